# SPDX-License-Identifier: Apache-2.0
"""The form that returns between kernels, called from Python through nothing but its header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import cffi
import numpy as np
from numpy.typing import NDArray

from relax_aot.project import Project
from relax_aot.verify.host import build_shared
from relax_aot.verify.program import to_bytes
from relax_aot.verify.sizes import ordered_inputs, sizes_of
from tests.conftest import QUICK_FLAGS

Array = NDArray[Any]

FLAGS = (
    "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-align",
    "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wdouble-promotion", "-Wvla", "-Werror",
    *QUICK_FLAGS,
)  # fmt: skip
FILL = 0x5A


class Stepped:
    """A project as a shared library, where given with flags more."""

    def __init__(self, project: Project, flags: tuple[str, ...] = ()) -> None:
        self.project, self.name = project, project.name
        self.interface = project.interface
        suffixes = (".c", ".h", ".bin")
        files = {n: c for n, c in project.files.items() if n.endswith(suffixes) and n != "main.c"}
        prefix = self.interface.prefix
        said = {"most": f"{prefix}_STEPS", "held": f"sizeof(struct {self.name}_position)"}
        said["need"] = f"{prefix}_ARENA_BYTES"
        said |= {"kept": f"{prefix}_STATE_BYTES"} if self.interface.has_state else {}
        probe = [f'#include "{self.name}.h"']
        probe += [f"size_t {n}(void);\nsize_t {n}(void) {{ return {v}; }}" for n, v in said.items()]
        files["probe.c"] = "\n".join([*probe, ""]).encode()
        self.ffi = cffi.FFI()
        self.ffi.cdef(self._declarations() + "".join(f"size_t {n}(void);" for n in said))
        self.library: Any = self.ffi.dlopen(
            str(build_shared(files, (*FLAGS, *flags), project.foreign))
        )
        self.most = int(self.library.most())
        assert self.library.held() == self.ffi.sizeof(f"struct {self.name}_position")

    def _declarations(self) -> str:
        header = self.project.files[f"{self.name}.h"].decode()
        structs = re.findall(rf"^struct {self.name}_\w+ \{{\n.*?^\}};", header, re.DOTALL | re.M)
        verbs = "init|run|begin|step|step_name"
        functions = re.findall(
            rf"^(?:enum raot_status|const char \*) ?{self.name}_(?:{verbs})\([^;]*\);", header, re.M
        )
        return "\n".join([*structs, *functions]).replace("enum raot_status", "int")

    def call(self, verb: str, *arguments: Any) -> Any:
        return getattr(self.library, f"{self.name}_{verb}")(*arguments)


class Run:
    """One run's memory: arena, inputs, outputs, and where it stands. `state` may be shared."""

    def __init__(
        self,
        model: Stepped,
        arrays: Mapping[str, Array],
        state: Array | None = None,
        given_sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.model = model
        interface, ffi = model.interface, model.ffi
        given = ordered_inputs(interface, arrays)
        self.sizes = sizes_of(interface, given, given_sizes)
        self.arena = aligned(int(model.library.need()))
        self.state = state
        self.inputs = [aligned(max(a.nbytes, 1)) for a in given]
        for held, array in zip(self.inputs, given, strict=True):
            held[: array.nbytes] = to_bytes(array)
        greatest = [self._greatest(port.macro) for port in interface.outputs]
        self.outputs = [aligned(size) for size in greatest]
        self.position = self._new("position")
        self.memory = self._new("memory")
        self.memory.arena = self._at(self.arena)
        self.memory.arena_bytes = self.arena.nbytes
        if state is not None:
            self.memory.state = self._at(state)
        self.result = self._new("dims") if interface.results else None
        self.dims = self._new("dims") if interface.dims else None
        for field in interface.dims:
            setattr(self.dims, field.c_name, self.sizes[field.symbol.name])
        self._in, self._out = self._new("inputs"), self._new("outputs")
        for struct, ports, buffers in (
            (self._in, interface.inputs, self.inputs),
            (self._out, interface.outputs, self.outputs),
        ):
            for port, buffer in zip(ports, buffers, strict=True):
                setattr(struct, port.c_name, ffi.cast(f"{port.c_type} *", buffer.ctypes.data))

    def _greatest(self, macro: str) -> int:
        bounds = {f.symbol.name: f.symbol.high for f in self.model.interface.dims}
        bounds |= {f.symbol.name: f.symbol.high for f in self.model.interface.lengths}
        bounds |= {f.symbol.name: f.symbol.high for f in self.model.interface.results}
        port = next(p for p in self.model.interface.outputs if p.macro == macro)
        return max(port.type.bytes.evaluate(bounds), 1)

    def _new(self, what: str) -> Any:
        return self.model.ffi.new(f"struct {self.model.name}_{what} *")

    def _at(self, buffer: Array) -> Any:
        return self.model.ffi.cast("void *", buffer.ctypes.data)

    @property
    def _given(self) -> list[Any]:
        optional = (self.memory, self.dims, self._in, self._out, self.result)
        return [part for part in optional if part is not None]

    def init(self) -> int:
        return int(self.model.call("init", *self._given[: 2 if self.dims is not None else 1]))

    def whole(self) -> int:
        """`<name>_run`."""
        return int(self.model.call("run", *self._given))

    def begin(self) -> int:
        return int(self.model.call("begin", self.position, *self._given))

    def step(self) -> int:
        return int(self.model.call("step", self.position))

    @property
    def running(self) -> bool:
        return bool(self.position.running)

    @property
    def following(self) -> str:
        text = self.model.ffi.string(self.model.call("step_name", self.position))
        assert isinstance(text, bytes)
        return text.decode()

    @property
    def untouched(self) -> bool:
        return all(bool((buffer == FILL).all()) for buffer in self.outputs)

    def values(self) -> dict[str, Array]:
        """Outputs by name, cut to their sizes."""
        known = dict(self.sizes)
        for field in self.model.interface.results:
            known[field.symbol.name] = getattr(self.result, field.c_name)
        found = {}
        for port, data in zip(self.model.interface.outputs, self.outputs, strict=True):
            shape = self.model.interface.shape(port, known)
            dtype = port.type.dtype.numpy
            count = int(np.prod(shape, dtype=np.int64))
            found[port.source] = data[: count * dtype.itemsize].view(dtype).reshape(shape)
        return found


def aligned(size: int) -> Array:
    """Bytes at a multiple of 64, none of them zero."""
    raw = np.full(size + 64, FILL, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def finished(run: Run) -> int:
    """Step to the end; how many steps it took."""
    count = 0
    while run.running:
        assert run.step() == 0
        count += 1
        assert count <= run.model.most
    return count
