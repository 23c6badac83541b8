# SPDX-License-Identifier: Apache-2.0
"""A built model as a shared library, called through cffi with every buffer between guards.

This is the low level: sizes and bytes in, status and bytes out. It never trusts the model:
guard zones around arena, state and outputs are checked after each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np
from numpy.typing import NDArray

CDEF = """
struct raot_buffers { void *arena; size_t arena_bytes; void *state; const void *weights; };
struct raot_model {
    const char *name;
    size_t arena_bytes, state_bytes, alignment;
    int32_t dim_count, input_count, output_count, result_count;
    const size_t *input_bytes, *output_bytes;
    size_t (*arena_need)(const int32_t *dims);
    int (*init)(const struct raot_buffers *memory, const int32_t *dims);
    int (*run)(const struct raot_buffers *memory, const int32_t *dims, const void *const *inputs,
               void *const *outputs, int32_t *result);
    int32_t (*get_length)(const struct raot_buffers *memory, int32_t index);
    int (*truncate_length)(const struct raot_buffers *memory, int32_t index, int32_t length);
    size_t kept_bytes;
    int (*read_kept)(const struct raot_buffers *memory, void *kept);
};
extern struct raot_model raot_model;
"""
GUARD_BYTES = 256
BLOCK = "weights.bin"
"""In the folder of a library: weights that are too large to be linked."""
FILL = 0xA5
POISON = 0x7F
"""Arena bytes before a run: as floats they are huge, so a read before a write shows."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RawResult:
    """One call. Where the status is an error, `untouched` says whether outputs, state and arena are
    byte for byte as before."""

    status: int
    sizes: tuple[int, ...]
    outputs: tuple[Bytes, ...]
    guards_ok: bool
    untouched: bool
    state: Bytes | None = None
    """The state block after a call that succeeded; of a model on a GPU its part there."""


class Guarded:
    """Aligned memory between two guard zones."""

    def __init__(self, size: int, alignment: int, fill: int) -> None:
        self._raw = np.full(size + 2 * GUARD_BYTES + alignment, FILL, np.uint8)
        address = self._raw.ctypes.data + GUARD_BYTES
        self._start = GUARD_BYTES + (-address) % alignment
        self._size = size
        self.data[:] = fill

    @property
    def data(self) -> Bytes:
        return self._raw[self._start : self._start + self._size]

    @property
    def address(self) -> int:
        return self._raw.ctypes.data + self._start

    @property
    def intact(self) -> bool:
        before, after = self._raw[: self._start], self._raw[self._start + self._size :]
        return bool((before == FILL).all() and (after == FILL).all())


class Library:
    """A shared library that exposes `raot_model`, or a table of another name; keeps the state
    between calls."""

    def __init__(self, path: Path, table: str = "raot_model") -> None:
        self.path = path
        self._ffi = cffi.FFI()
        self._ffi.cdef(CDEF.replace(" raot_model;", f" {table};"))
        self._library = self._ffi.dlopen(str(path))
        self.model: Any = getattr(self._library, table)
        self.alignment = int(self.model.alignment)
        self.arena_bytes = int(self.model.arena_bytes)
        self.state_bytes = int(self.model.state_bytes)
        self._state = Guarded(self.state_bytes, self.alignment, POISON)
        self._weights: Guarded | None = None
        block = path.with_name(BLOCK)
        self._mapped: Bytes | None = np.memmap(block, np.uint8, "r") if block.exists() else None

    def arena_need(self, dims: Sequence[int]) -> int:
        return int(self.model.arena_need(self._ints(dims)))

    def give_weights(self, block: bytes) -> None:
        """Use these instead of the weights that are linked in; they are checked by init."""
        self._weights = Guarded(len(block), self.alignment, 0)
        self._weights.data[:] = np.frombuffer(block, np.uint8)

    def init(self, dims: Sequence[int]) -> int:
        if self.model.init == self._ffi.NULL:
            return 0
        return int(self.model.init(self.memory(None, 0), self._ints(dims)))

    def get_length(self, index: int) -> int:
        """The rows of growing states, or a negative status."""
        return int(self.model.get_length(self.memory(None, 0), index))

    def truncate_length(self, index: int, length: int) -> int:
        """Keep the first rows of growing states; the status."""
        return int(self.model.truncate_length(self.memory(None, 0), index, length))

    def run(
        self,
        dims: Sequence[int],
        inputs: Sequence[Bytes],
        arena_bytes: int | None = None,
        arena_shift: int = 0,
    ) -> RawResult:
        """One call, with `arena_bytes` (default: what these sizes need) of poisoned arena,
        `arena_shift` bytes away from its alignment."""
        need = self.arena_bytes if arena_bytes is None else arena_bytes
        arena = Guarded(need + arena_shift, self.alignment, POISON)
        sizes = [int(self.model.output_bytes[i]) for i in range(self.model.output_count)]
        outputs = [Guarded(size, 64, FILL ^ 0xFF) for size in sizes]
        held = [Guarded(max(len(data), 1), 64, 0) for data in inputs]
        for guarded, data in zip(held, inputs, strict=True):
            guarded.data[: len(data)] = data
        state_before = self._state.data.copy()
        result = self._ints([-1] * max(self.model.result_count, 1))
        status = self.model.run(
            self.memory(arena, need, arena_shift),
            self._ints(dims),
            self._pointers("const void *[]", held),
            self._pointers("void *[]", outputs),
            result,
        )
        guards = all(g.intact for g in (arena, self._state, *outputs, *held))
        kept = all(bool((g.data[: len(d)] == d).all()) for g, d in zip(held, inputs, strict=True))
        untouched = bool((self._state.data == state_before).all()) and all(
            bool((g.data == FILL ^ 0xFF).all()) for g in outputs
        )
        return RawResult(
            int(status),
            tuple(int(result[i]) for i in range(self.model.result_count)),
            tuple(g.data for g in outputs),
            guards and kept,
            untouched and bool((arena.data == POISON).all()),
            self._kept() if status == 0 else None,
        )

    def _kept(self) -> Bytes:
        """The state block; of a model on a GPU what is there."""
        if self.model.read_kept == self._ffi.NULL:
            return self._state.data.copy()
        kept = np.zeros(int(self.model.kept_bytes), np.uint8)
        target = self._ffi.cast("void *", kept.ctypes.data)
        if self.model.read_kept(self.memory(None, 0), target):
            raise RuntimeError("the state on the GPU cannot be read")
        return kept

    def address_of(self, memory: Any) -> int:
        return int(self._ffi.cast("uintptr_t", memory))

    def memory(self, arena: Guarded | None, size: int, shift: int = 0) -> Any:
        """A `struct raot_buffers *` with the state of this library."""
        memory = self._ffi.new("struct raot_buffers *")
        address = arena.address + shift if arena else 0
        memory.arena = self._ffi.cast("void *", address)
        memory.arena_bytes = size
        memory.state = self._ffi.cast("void *", self._state.address if self.state_bytes else 0)
        given = 0 if self._mapped is None else self._mapped.ctypes.data
        given = self._weights.address if self._weights is not None else given
        memory.weights = self._ffi.cast("void *", given)
        return memory

    def _ints(self, values: Sequence[int]) -> Any:
        return self._ffi.new("int32_t[]", list(values) or [0])

    def _pointers(self, kind: str, buffers: Sequence[Guarded]) -> Any:
        pointers = [self._ffi.cast("void *", buffer.address) for buffer in buffers]
        return self._ffi.new(kind, pointers or [self._ffi.NULL])
