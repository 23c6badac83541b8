# SPDX-License-Identifier: Apache-2.0
"""Runs kernels as C: all of them in one shared library under UBSan, called through cffi."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import cffi
import numpy as np

from relax_aot.emit.c_code import KernelCode, print_kernel
from relax_aot.emit.c_names import Names
from relax_aot.ir.dims import Bounds
from relax_aot.ir.fold import fold_kernel
from relax_aot.ir.loops import Kernel
from relax_aot.ir.types import C_TYPES
from relax_aot.ops._op import Array
from relax_aot.resources import data_dir
from relax_aot.verify.host import STRICT_FLAGS, build_shared
from relax_aot.verify.library import Guarded
from relax_aot.verify.op_cases import Case, Run

HEADERS = (
    "check", "convert", "depthwise_3x3", "fixed_gates", "function", "index", "integer", "lanes",
    "lines_f32", "math", "math64", "multiply", "multiply_s16", "narrow", "requantize",
    "requantize_lanes", "status", "window",
)  # fmt: skip
LARGE = (
    "byte_rows", "depthwise_lanes", "dot2_i16", "dot4_i8", "dot4_u8", "gates", "gather",
    "multiply_integers", "multiply_rows", "multiply_store",
)  # fmt: skip
"""Headers of intrinsics, which take longer to read than most kernels."""
FLAGS = (
    *STRICT_FLAGS, "-Wno-unused-parameter", "-O0", "-ffp-contract=off", "-fno-strict-aliasing",
)  # fmt: skip
WIDE = 2**31 - 1


def c_library(cases: Sequence[Case]) -> Run:
    """The kernels of all cases; cases with equal kernels share a function."""
    call = c_kernels({case.name: case.kernel for case in cases})
    return lambda case: call(case.name, case.inputs, case.sizes)


Call = Callable[[str, Sequence[Array], Mapping[str, int]], list[Array]]
"""Runs the kernel of a name on inputs, at sizes."""


def c_kernels(kernels: Mapping[str, Kernel], flags: Sequence[str] = ()) -> Call:
    """Compile kernels once, to be called at any sizes; equal kernels share a function."""
    first: dict[Kernel, str] = {}
    names = {n: first.setdefault(replace(k, name=""), n) for n, k in kernels.items()}
    parts = []
    declarations = []
    for name in first.values():
        prototype, code = _function(name, kernels[name])
        declarations.append(f"{prototype};")
        parts.append(f"{code.parts}{prototype};\n{prototype}\n{{\n{code.body}\n}}")
    folder = data_dir("runtime_c") / "include" / "raot"
    files = {f"raot/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.h"))}
    used = [*HEADERS, *_used(files, "\n".join(parts))]
    lines = [f'#include "raot/{name}.h"' for name in used]
    files["kernels.c"] = "\n\n".join([*lines, *parts]).encode()
    ffi = cffi.FFI()
    ffi.cdef(
        "\n".join(
            d.replace("restrict ", "").replace("enum raot_status", "int") for d in declarations
        )
    )
    library = ffi.dlopen(str(build_shared(files, (*FLAGS, *flags))))
    return lambda name, inputs, sizes: _call(
        ffi, library, names[name], kernels[name], inputs, sizes
    )


def _used(files: Mapping[str, bytes], code: str) -> Iterator[str]:
    """The large headers with a name that the code has."""
    names = set(re.findall(r"\braot_\w+", code))
    for header in LARGE:
        if names.intersection(re.findall(r"\braot_\w+", files[f"raot/{header}.h"].decode())):
            yield header


def _function(case_name: str, kernel: Kernel) -> tuple[str, KernelCode]:
    scope = Names()
    symbols = {name: scope.claim(name) for name in kernel.free_symbols}
    buffers = {b.name: scope.claim(b.name) for b in kernel.buffers}
    parameters = [f"int32_t {name}" for name in symbols.values()]
    parameters += [f"const {C_TYPES[b.dtype]} *restrict {buffers[b.name]}" for b in kernel.inputs]
    written = (*kernel.outputs, *kernel.scratch)
    parameters += [f"{C_TYPES[b.dtype]} *restrict {buffers[b.name]}" for b in written]
    bounds = Bounds.of(dict.fromkeys(symbols, (0, WIDE)))
    folded = fold_kernel(kernel, bounds)
    result = "enum raot_status" if folded.fallible else "void"
    code = print_kernel(replace(folded, name=f"k_{case_name}"), buffers, symbols, bounds)
    return f"{result} k_{case_name}({', '.join(parameters) or 'void'})", code


def _call(
    ffi: Any,
    library: Any,
    name: str,
    kernel: Kernel,
    inputs: Sequence[Array],
    sizes: Mapping[str, int],
) -> list[Array]:
    held = []
    for array in inputs:
        guarded = Guarded(max(array.nbytes, 1), 64, 0)
        guarded.data[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        held.append(guarded)
    written = []
    for buffer in (*kernel.outputs, *kernel.scratch):
        size = buffer.type.bytes.evaluate(sizes)
        written.append(Guarded(size, 64, 0x7F))
    arguments: list[Any] = [sizes[symbol] for symbol in kernel.free_symbols]
    for buffer, memory in zip(kernel.buffers, [*held, *written], strict=True):
        arguments.append(ffi.cast(f"{C_TYPES[buffer.dtype]} *", memory.address))
    status = getattr(library, f"k_{name}")(*arguments)
    assert not status, f"status {status}"
    assert all(memory.intact for memory in (*held, *written)), "wrote outside its buffers"
    results = []
    for buffer, memory in zip(kernel.outputs, written, strict=False):
        shape = [size.evaluate(sizes) for size in buffer.shape]
        results.append(memory.data.view(buffer.dtype.numpy).reshape(shape).copy())
    return results
