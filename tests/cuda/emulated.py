# SPDX-License-Identifier: Apache-2.0
"""Calls of generated C on the fake driver, by ctypes: one call of each public function."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import Interface
from relax_aot.verify.cuda import fake_driver
from relax_aot.verify.host import build_library
from relax_aot.verify.program import Built, program_of

Array = NDArray[Any]
FUNCTIONS = (
    "cuInit", "cuDriverGetVersion", "cuDeviceGet", "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
    "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc_v2", "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async", "cuStreamCreate",
    "cuStreamSynchronize", "cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate",
    "cuGraphExecKernelNodeSetParams", "cuGraphLaunch",
)  # fmt: skip
"""What a call can fail in."""
RELEASES = (
    "cuStreamSynchronize", "cuGraphExecDestroy", "cuGraphDestroy", "cuMemFreeHost",
    "cuMemFree_v2", "cuStreamDestroy_v2", "cuModuleUnload", "cuDevicePrimaryCtxRelease",
)  # fmt: skip
"""What a close can fail in, with the context as it should be."""
MAKERS = (
    "cuMemAlloc_v2", "cuMemHostAlloc", "cuStreamCreate", "cuGraphCreate", "cuGraphInstantiate",
    "cuModuleLoadData", "cuGraphAddKernelNode",
)  # fmt: skip
"""What gives resources."""


class _Memory(ctypes.Structure):
    """`weights` is a member of models whose weights are apart from the code."""

    _fields_ = (
        ("device", ctypes.c_void_p), ("device_bytes", ctypes.c_size_t),
        ("weights", ctypes.c_void_p),
    )  # fmt: skip


class Emulated:
    """One model with the memory struct of one program."""

    def __init__(self, project: Built) -> None:
        self.program = program_of(project)
        self.name = project.name
        self.driver = ctypes.CDLL(str(fake_driver(project)))
        self.library = ctypes.CDLL(str(build_library(project)))
        sizes = {size.macro: size.number for size in project.view.sizes}
        self.bytes = sizes[f"{self.program.shared.prefix}_DEVICE_BYTES"]
        self._block = np.zeros(self.bytes + 64, np.uint8)
        address = self._block.ctypes.data + -self._block.ctypes.data % 64
        self.memory = _Memory(address, self.bytes)
        self.driver.fake_reset()

    def _call(self, verb: str, *arguments: Any, first: Sequence[Any] = (), entry: str = "") -> int:
        name = self.program.interfaces[entry].name if entry else self.name
        function = self.library[f"{name}_{verb}"]
        return int(function(*first, ctypes.byref(self.memory), *arguments))

    def _dims(self, interface: Interface, sizes: Mapping[str, int]) -> list[Any]:
        if not interface.dims:
            return []
        fields = [*interface.dims, *interface.results]
        values = [sizes.get(field.source, 0) for field in fields]
        return [(ctypes.c_int32 * len(values))(*values)]

    def bind(self, block: Array) -> int:
        return self._call("bind_weights", ctypes.c_void_p(block.ctypes.data), block.size)

    def init(self, **sizes: int) -> int:
        return self._call("init", *self._dims(self.program.shared, sizes))

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        stream: int | None = None,
        entry: str = "",
        **sizes: int,
    ) -> int:
        """With arrays, or with addresses; in a stream the call does not wait."""
        dims = self._dims(self.program.interfaces[entry], sizes)
        arguments = [*dims, _pointers(inputs), _pointers(outputs)]
        if stream is None:
            return self._call("run", *arguments, entry=entry)
        return self._call("run_on", *arguments, first=[ctypes.c_void_p(stream)], entry=entry)

    def wait(self, stream: int, entry: str = "") -> int:
        return self._call("wait", ctypes.c_void_p(stream), entry=entry)

    def truncate(self, symbol: str, length: int) -> int:
        return self._call(f"truncate_{symbol}", ctypes.c_int32(length))

    def length(self, symbol: str) -> int:
        """The rows of a growing state."""
        return self._call(f"get_{symbol}")

    def close(self) -> None:
        self.library[f"{self.name}_close"](ctypes.byref(self.memory))

    @property
    def message(self) -> str:
        function = self.library[f"{self.name}_device_message"]
        function.restype = ctypes.c_char_p
        return str(function(ctypes.byref(self.memory)).decode())

    def alloc(self, shape: Sequence[int], dtype: Any) -> Array:
        """An array in mapped memory."""
        function = self.library[f"{self.name}_alloc"]
        function.restype = ctypes.c_void_p
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        pointer = function(ctypes.byref(self.memory), ctypes.c_size_t(size))
        assert pointer
        raw = (ctypes.c_uint8 * size).from_address(pointer)
        return np.frombuffer(raw, dtype).reshape(shape)

    def free(self, array: Array) -> None:
        pointer = ctypes.c_void_p(array.ctypes.data)
        self.library[f"{self.name}_free"](ctypes.byref(self.memory), pointer)

    def calls(self, name: str) -> int:
        return int(self.driver.fake_calls(name.encode()))

    @property
    def made(self) -> int:
        """The calls that give resources."""
        return sum(self.calls(name) for name in MAKERS)

    @property
    def live(self) -> int:
        """Resources that were not given back."""
        return int(self.driver.fake_live())

    def fail(self, name: str, nth: int = 1, error: int = 999) -> None:
        self.driver.fake_fail(name.encode(), nth, error)


def _pointers(arrays: Sequence[Any]) -> Any:
    values = [a if isinstance(a, int) else a.ctypes.data for a in arrays]
    return (ctypes.c_void_p * max(len(values), 1))(*values)
