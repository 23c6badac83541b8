# SPDX-License-Identifier: Apache-2.0
"""Child process of `batch.py`: runs generated models under the sanitizers' runtime.

Every buffer is a block of its own of exactly the size that counts, so that AddressSanitizer
sees each byte beyond it; the arena and the outputs begin as NaN.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import cffi

BLOCKS = """
void *memalign(size_t alignment, size_t size);
void free(void *block);
"""
POISON = b"\xff"


class Caller:
    def __init__(self, path: str, declarations: str, tables: list[str]) -> None:
        self.ffi = cffi.FFI()
        extern = "\n".join(f"extern struct raot_model {table};" for table in tables)
        self.ffi.cdef(declarations + extern + BLOCKS)
        self.library = self.ffi.dlopen(path)
        self.c = self.ffi.dlopen(None)

    def block(self, size: int, content: bytes) -> Any:
        memory = self.c.memalign(64, size)
        held = self.ffi.gc(memory, self.c.free)
        self.ffi.memmove(held, content, size)
        return held

    def run(self, table: str, dims: list[int], inputs: list[bytes], given: list[Any]) -> Any:
        """(status, sizes that the model computed, outputs as bytes, bytes of arena)."""
        ffi, model = self.ffi, getattr(self.library, table)
        sizes = [model.output_bytes[i] if n is None else n for i, n in enumerate(given)]
        numbers = ffi.new("int32_t[]", dims or [0])
        need = model.arena_need(numbers)
        memory = ffi.new("struct raot_buffers *")
        arena = self.block(need, POISON * need)
        memory.arena, memory.arena_bytes = arena, need
        sources = [self.block(len(data), data) for data in inputs]
        targets = [self.block(size, POISON * size) for size in sizes]
        result = ffi.new("int32_t[]", [-1] * max(model.result_count, 1))
        status = model.run(
            memory,
            numbers,
            ffi.new("const void *[]", sources or [ffi.NULL]),
            ffi.new("void *[]", targets or [ffi.NULL]),
            result,
        )
        outputs = [bytes(ffi.buffer(t, n)) for t, n in zip(targets, sizes, strict=True)]
        return int(status), list(result)[: model.result_count], outputs, int(need)


def main() -> None:
    path, declarations, tables, calls = pickle.load(sys.stdin.buffer)
    caller = Caller(path, declarations, tables)
    for call in calls:
        pickle.dump(caller.run(*call), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
