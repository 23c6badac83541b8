# SPDX-License-Identifier: Apache-2.0
"""Calls of the C of micro-kernels, of all in one build: in this process, or of a program that an
emulator runs. Each operand lies between guards."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import cffi
import numpy as np

from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.types import C_TYPES
from relax_aot.resources import data_dir
from relax_aot.verify.host import STRICT_FLAGS, build_shared
from tests.microkernels.samples import Array, Sample, differs

GUARD, FILL = 64, 0xA5
Arrays = dict[str, Array]
Called = Callable[[MicroKernel, Sequence[Sample]], list[Arrays]]
PROTOTYPE = "void call(int32_t which, unsigned char *const *at, const int32_t *sizes)"
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    int32_t head[32], bytes[8];
    while (fread(head, 4, 32, stdin) == 32 && fread(bytes, 4, 8, stdin) == 8) {
        unsigned char *held[8] = {0}, *at[8] = {0};
        for (int n = 0; n < 8 && bytes[n] >= 0; n++) {
            held[n] = malloc((size_t)bytes[n]);
            at[n] = held[n] + 64;
            if (fread(held[n], 1, (size_t)bytes[n], stdin) != (size_t)bytes[n]) {
                return 3;
            }
        }
        call(head[0], at, head + 1);
        for (int n = 0; n < 8 && bytes[n] >= 0; n++) {
            fwrite(held[n], 1, (size_t)bytes[n], stdout);
            free(held[n]);
        }
    }
    return 0;
}
"""


def source(kernels: Iterable[MicroKernel]) -> str:
    """C of a function that calls the micro-kernel of a number."""
    headers = sorted({kernel.header for kernel in kernels})
    lines = [*(f'#include "raot/{header}"' for header in headers), f"{PROTOTYPE};", PROTOTYPE, "{"]
    lines.append("    switch (which) {")
    for which, kernel in enumerate(kernels):
        lines += [f"    case {which}: {{", f"        {_call(kernel)}", "        break;", "    }"]
    return "\n".join([*lines, "    default:", "        break;", "    }", "}", ""])


def _call(kernel: MicroKernel) -> str:
    operands = [
        f"({'' if operand.name in kernel.written else 'const '}{C_TYPES[operand.dtype]} *)at[{n}]"
        for n, operand in enumerate(kernel.operands)
    ]
    sizes = [f"sizes[{n}]" for n in range(len(kernel.sizes))]
    if kernel.struct:
        kind = "int16_t" if kernel.in_flash else "int32_t"
        members = (f".{m} = ({kind}){s}" for m, s in zip(kernel.sizes, sizes, strict=True))
        table = f"const struct {kernel.struct} all = {{{', '.join(members)}}}; "
        return f"{table}{kernel.name}({', '.join([*operands, '&all'])});"
    return f"{kernel.name}({', '.join([*operands, *sizes])});"


def headers() -> dict[str, bytes]:
    folder = data_dir("runtime_c") / "include" / "raot"
    return {f"raot/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.h"))}


VECTORS = "-O2"
"""How code with instructions of this machine is optimized. In the gate it is not, which takes a
quarter of the time: intrinsics say what is computed."""


def in_process(kernels: Sequence[MicroKernel], flags: Sequence[str]) -> Called:
    """What is compiled for this machine, with the instructions of the flags."""
    level = VECTORS if flags else "-O2"
    files = {**headers(), "call.c": source(kernels).encode()}
    files |= {f"raot/{k.header}": k.source.encode() for k in kernels if k.source}
    ffi = cffi.FFI()
    ffi.cdef(f"{PROTOTYPE};")
    library = ffi.dlopen(
        str(build_shared(files, (*STRICT_FLAGS, "-Wno-cast-align", level, *flags)))
    )

    def call(kernel: MicroKernel, samples: Sequence[Sample]) -> list[Arrays]:
        found = []
        for sample in samples:
            held = _guarded(sample)
            at = [ffi.cast("unsigned char *", ffi.from_buffer(memory) + GUARD) for memory in held]
            library.call(kernels.index(kernel), at, sample.sizes)
            found.append(_inside(sample, held))
        return found

    return call


def emulated(kernels: Sequence[MicroKernel], core: str, emulator: str, folder: Path) -> Called:
    """What is compiled for a 64-bit Arm core, run by QEMU."""
    (folder / "main.c").write_text(source(kernels) + MAIN)
    include = data_dir("runtime_c") / "include"
    flags = [f"-mcpu={core}", "-std=c11", "-O3", "-static", f"-I{include}"]
    build = ["aarch64-linux-gnu-gcc", *flags, str(folder / "main.c"), "-o", str(folder / "main")]
    subprocess.run(build, check=True)

    def call(kernel: MicroKernel, samples: Sequence[Sample]) -> list[Arrays]:
        given = b""
        for sample in samples:
            held = _guarded(sample)
            head = np.zeros(32, np.int32)
            head[: len(sample.sizes) + 1] = [kernels.index(kernel), *sample.sizes]
            sizes = np.full(8, -1, np.int32)
            sizes[: len(held)] = [memory.size for memory in held]
            given += head.tobytes() + sizes.tobytes() + b"".join(map(bytes, held))
        command = ["qemu-aarch64", "-cpu", emulator, str(folder / "main")]
        rest = subprocess.run(command, input=given, capture_output=True, check=True).stdout
        found = []
        for sample in samples:
            parts = []
            for array in sample.arrays.values():
                size = array.nbytes + 2 * GUARD
                parts.append(np.frombuffer(rest[:size], np.uint8))
                rest = rest[size:]
            found.append(_inside(sample, parts))
        return found

    return call


def _guarded(sample: Sample) -> list[Array]:
    held = []
    for array in sample.arrays.values():
        memory = np.full(array.nbytes + 2 * GUARD, FILL, np.uint8)
        memory[GUARD : GUARD + array.nbytes] = array.view(np.uint8)
        held.append(memory)
    return held


def _inside(sample: Sample, held: Sequence[Array]) -> Arrays:
    found = {}
    for memory, (name, array) in zip(held, sample.arrays.items(), strict=True):
        guards = (memory[:GUARD], memory[GUARD + array.nbytes :])
        assert all((guard == FILL).all() for guard in guards), f"{name}: written outside"
        found[name] = memory[GUARD : GUARD + array.nbytes].view(array.dtype)
    return found


def differences(kernel: MicroKernel, samples: Sequence[Sample], call: Called) -> list[str]:
    """Written operands hold what the meaning stores, read ones what they held. The sign of a zero
    that is a maximum is open."""
    problems = []
    for sample, found in zip(samples, call(kernel, samples), strict=True):
        named = dict(zip(kernel.sizes, sample.sizes, strict=True))
        for name, array in found.items():
            wanted = sample.expected.get(name)
            if wanted is not None:
                array, wanted = array[~wanted.mask], wanted.compressed()
            elif name in kernel.written:
                continue
            else:
                wanted = sample.arrays[name]
            if differs(kernel, array, wanted):
                problems.append(f"{kernel.name}: {name} at {named}")
    return problems
