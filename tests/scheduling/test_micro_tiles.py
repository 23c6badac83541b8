"""Micro-kernels of integer tiles in C, with vectors and without, beside what NumPy computes: random
operands between guards, at random sizes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import cffi
import numpy as np
import pytest

from relax_aot.ir.micro import MicroKernel, Operand
from relax_aot.ir.micro_fours import MICRO_KERNELS as FOURS
from relax_aot.ir.micro_rescale import MICRO_KERNELS as RESCALE
from relax_aot.ir.micro_tiles import MICRO_KERNELS, OFFSETS, STRIP
from relax_aot.ir.types import C_TYPES, DType
from relax_aot.resources import data_dir
from relax_aot.verify.host import STRICT_FLAGS, build_shared

KERNELS = {kernel.name: kernel for kernel in (*MICRO_KERNELS, *FOURS, *RESCALE)}
NATIVE, PORTABLE = ("-O2", "-march=native"), ("-O2",)
GUARD = 64
RUNS, EMULATED = 60, 15

Sizes = Mapping[str, int]
Random = np.random.Generator
Called = Callable[[list[np.ndarray], list[int]], list[np.ndarray]]


def tile(rng: Random) -> Sizes:
    rows, columns, depth = (int(rng.integers(1, high)) for high in (15, 50, 20))
    wide = -(-columns // 16) * 16
    across = int(rng.integers(2))
    return {
        "rows": rows, "columns": columns, "depth": 2 * depth, "sum_step": wide + 16,
        "bias_row": 1 - across, "bias_column": across,
    }  # fmt: skip


def strip(rng: Random) -> Sizes:
    columns, step = int(rng.integers(1, 25)), int(rng.integers(1, 3))
    rows = int(rng.integers(1, 6))
    row_stride, column_stride = (int(rng.integers(1, 4)) for _ in range(2))
    return dict(
        zip(
            STRIP,
            (
                int(rng.integers(0, 128)), int(rng.integers(1, 4)),
                int(rng.integers(1, row_stride + 1)), int(rng.integers(1, column_stride + 1)),
                int(rng.integers(1, 6)), int(rng.integers(1, 30)), row_stride, column_stride,
                int(rng.integers(-3, 4)), int(rng.integers(-3, 4)), rows, columns,
                rows * columns * step, columns * step, step,
            ),
            strict=True,
        )
    )  # fmt: skip


def panel(rng: Random) -> Sizes:
    columns, extent = int(rng.integers(1, 17)), int(rng.integers(16, 80))
    depth = int(rng.integers(1, 20))
    return {"depth": depth, "columns": columns, "extent": extent}


def places(rng: Random) -> Sizes:
    extent = int(rng.integers(60, 120))
    return {
        "taps": int(rng.integers(1, 12)), "places": int(rng.integers(1, 60)), "extent": extent,
    }  # fmt: skip


def code(rng: Random) -> int:
    return int(rng.integers(-128, 128))


def rows(rng: Random) -> Sizes:
    found = {"zero": code(rng), "rows": int(rng.integers(1, 4)), "row_step": int(rng.integers(9))}
    taps, step = 1, 1
    for level in (2, 1, 0):
        count = int(rng.integers(1, 40 if level == 2 else 4))
        first = int(rng.integers(0, count)) if rng.integers(2) else 0
        last = int(rng.integers(first, count + 1)) if rng.integers(2) else count
        found |= {f"count{level}": count, f"first{level}": first, f"last{level}": last}
        found[f"step{level}"] = step + int(rng.integers(2))
        taps, step = taps * count, found[f"step{level}"] * count
    found["depth"] = taps + taps % 2
    return {name: found[name] for name in KERNELS["raot_rows_s16_s8"].sizes}


def quad_rows(rng: Random) -> Sizes:
    found = rows(rng)
    return {**found, "depth": -(-found["depth"] // 4) * 4}


def lines(rng: Random) -> Sizes:
    columns = int(rng.integers(1, 40))
    steps = (columns + int(rng.integers(4)) for _ in range(2))
    return dict(zip(("rows", "columns", "to_step", "from_step"), (3, columns, *steps), strict=True))


def channels(rng: Random) -> Sizes:
    first0, first1 = int(rng.integers(2)), int(rng.integers(3))
    last0, last1 = first0 + int(rng.integers(3)), first1 + int(rng.integers(4))
    wide = int(rng.integers(1, 40))
    return {
        "channels": wide, "zero": code(rng), "first0": first0, "last0": last0,
        "step0": 6 * wide, "count1": 6, "first1": first1, "last1": last1, "step1": wide,
    }  # fmt: skip


def offsets(rng: Random) -> Sizes:
    return {name: int(rng.integers(1, 5)) for name in OFFSETS}


def rescale(rng: Random) -> Sizes:
    columns, across = int(rng.integers(1, 30)), int(rng.integers(2))
    return {
        "rows": int(rng.integers(1, 5)), "columns": columns,
        "out_step": columns + int(rng.integers(2)), "sum_step": columns + int(rng.integers(9)),
        "scale_row": int(rng.integers(2)), "scale_column": across,
        "zero": int(rng.integers(-128, 256)),
    }  # fmt: skip


SIZES: dict[str, Callable[[Random], Sizes]] = {
    "raot_tile_s16": tile, "raot_strip": strip, "raot_panel_s16": panel, "raot_rows_s16": rows,
    "raot_lines": lines, "raot_depthwise_places": places, "raot_depthwise_channels": channels,
    "raot_tile_s8": lambda rng: {**tile(rng), "depth": 4 * int(rng.integers(1, 14))},
    "raot_panel_s8": panel, "raot_rows_s8": quad_rows,
    "raot_offsets": offsets, "raot_rescale_f32": rescale, "raot_rescale_shifts": rescale,
    "raot_rescale_i32": lambda rng: {**rescale(rng), "shift": int(rng.integers(33, 63))},
}  # fmt: skip


@pytest.mark.parametrize("flags", [NATIVE, PORTABLE], ids=["native", "portable"])
@pytest.mark.parametrize("name", KERNELS)
def test_c_computes_what_numpy_does(name: str, flags: tuple[str, ...]) -> None:
    same_as_numpy(KERNELS[name], compiled(KERNELS[name], flags), RUNS)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="no emulator of 64-bit Arm")
@pytest.mark.parametrize("core", ["cortex-a76", "cortex-a72"])
@pytest.mark.parametrize("name", [kernel.name for kernel in (*FOURS, *RESCALE)])
def test_64_bit_arm_computes_what_numpy_does(name: str, core: str, tmp_path: Path) -> None:
    same_as_numpy(KERNELS[name], emulated(KERNELS[name], core, core, tmp_path), EMULATED)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="no emulator of 64-bit Arm")
def test_arm_matrices_compute_what_numpy_does(tmp_path: Path) -> None:
    kernel = KERNELS["raot_tile_s8"]
    call = emulated(kernel, "cortex-a76+i8mm", "max", tmp_path)
    code = ["aarch64-linux-gnu-objdump", "-d", str(tmp_path / "main")]
    assert "smmla" in subprocess.run(code, capture_output=True, text=True, check=True).stdout
    same_as_numpy(kernel, call, 2 * EMULATED)


def same_as_numpy(kernel: MicroKernel, call: Called, runs: int) -> None:
    name = kernel.name
    rng = np.random.default_rng(sum(name.encode()))
    short = name.removesuffix("_s8").removesuffix("_u8")
    for _ in range(runs):
        sizes = SIZES[name if name in SIZES else short](rng)
        values = [sizes[size] for size in kernel.sizes]
        assert list(sizes) == list(kernel.sizes)
        arrays = [
            offsets_into(rng, sizes, reach)
            if wanted.name == "offsets" and not wanted.written
            else numbers(rng, wanted, reach)
            for wanted, reach in zip(kernel.operands, kernel.reach(values), strict=True)
        ]
        if name.startswith("raot_rows_s8"):
            arrays[0][:] = 0
        if name.startswith("raot_depthwise_places"):
            arrays[3][sizes["taps"] :] = 0
        expected = [array.copy() for array in arrays]
        kernel.run(expected, values)
        found = call(arrays, values)
        for wanted, one, other in zip(kernel.operands, found, expected, strict=True):
            used = meaningful(name, sizes, other.size)
            same = np.array_equal(one[used], other[used]) if wanted.written else True
            assert same, (wanted.name, sizes)


def numbers(rng: Random, wanted: Operand, count: int) -> np.ndarray:
    dtype = wanted.dtype
    if dtype is DType.F32:
        return (rng.normal(size=count) * 10.0 ** rng.integers(-9, 2)).astype(np.float32)
    if wanted.name == "shifts":
        return rng.integers(33, 63, count).astype(np.int32)
    low, high = (-255, 255) if dtype is DType.I16 else dtype.limits
    found = rng.integers(low, high, count, endpoint=True)
    if wanted.name == "sums":
        found >>= rng.integers(0, 24, count)
    return found.astype(dtype.numpy)


def offsets_into(rng: Random, sizes: Sizes, count: int) -> np.ndarray:
    most = sizes["extent"] - sizes.get("columns", sizes.get("places", 0))
    return rng.integers(0, most + 1, count).astype(np.int32)


def meaningful(name: str, sizes: Sizes, size: int) -> np.ndarray:
    """What is defined of the result."""
    at = np.arange(size)
    if name.startswith("raot_tile"):
        return at % sizes["sum_step"] < sizes["columns"]
    if name.startswith("raot_panel_s8"):
        step = at // 64 * 4 + at % 4
        return (at // 4 % 16 < sizes["columns"]) & (step < sizes["depth"])
    if name.startswith("raot_panel"):
        return at // 2 % 16 < sizes["columns"]
    if name.startswith("raot_rows_s8"):
        taps = sizes["count0"] * sizes["count1"] * sizes["count2"]
        return at % sizes["depth"] < taps
    if name.startswith("raot_depthwise_places"):
        return at < sizes["places"]
    if name.startswith("raot_rescale"):
        return at % sizes["out_step"] < sizes["columns"]
    if name.startswith("raot_lines"):
        return at % sizes["to_step"] < sizes["columns"]
    return at >= 0


def compiled(kernel: MicroKernel, flags: tuple[str, ...]) -> Called:
    """A call of the C function, each operand between guards that are looked at afterwards."""
    folder = data_dir("runtime_c") / "include" / "raot"
    files = {f"raot/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.h"))}
    pointers = [
        f"{'' if operand.written else 'const '}{C_TYPES[operand.dtype]} *{letter}"
        for operand, letter in zip(kernel.operands, "abcdefgh", strict=False)
    ]
    numbers = [f"int32_t s{n}" for n in range(len(kernel.sizes))]
    prototype = f"void call({', '.join((*pointers, *numbers))})"
    names = (*"abcdefgh"[: len(pointers)], *(f"s{n}" for n in range(len(numbers))))
    body = f"{kernel.name}({', '.join(names)});"
    source = f'#include "raot/{kernel.header}"\n{prototype};\n{prototype}\n{{\n    {body}\n}}\n'
    files["call.c"] = source.encode()
    ffi = cffi.FFI()
    ffi.cdef(f"{prototype};")
    library = ffi.dlopen(str(build_shared(files, (*STRICT_FLAGS, *flags))))

    def call(arrays: list[np.ndarray], sizes: list[int]) -> list[np.ndarray]:
        held = [np.full(array.nbytes + 2 * GUARD, 0xA5, np.uint8) for array in arrays]
        for memory, array in zip(held, arrays, strict=True):
            memory[GUARD : GUARD + array.nbytes] = array.view(np.uint8)
        at = [ffi.cast("void *", ffi.from_buffer(memory) + GUARD) for memory in held]
        library.call(*at, *sizes)
        for memory in held:
            assert (memory[:GUARD] == 0xA5).all() and (memory[-GUARD:] == 0xA5).all()
        parts = zip(held, arrays, strict=True)
        return [m[GUARD : GUARD + a.nbytes].view(a.dtype) for m, a in parts]

    return call


EMULATED_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "raot/{header}"
#define GUARD 64

int main(void)
{{
    int32_t sizes[24], bytes[8];
    unsigned char *held[8];
    if (fread(sizes, 4, {sizes}, stdin) != {sizes} || fread(bytes, 4, {count}, stdin) != {count})
        return 2;
    for (int n = 0; n < {count}; n++) {{
        held[n] = malloc((size_t)bytes[n] + 2 * GUARD);
        memset(held[n], 0xA5, (size_t)bytes[n] + 2 * GUARD);
        if (fread(held[n] + GUARD, 1, (size_t)bytes[n], stdin) != (size_t)bytes[n])
            return 3;
    }}
    {call};
    for (int n = 0; n < {count}; n++)
        fwrite(held[n], 1, (size_t)bytes[n] + 2 * GUARD, stdout);
    return 0;
}}
"""


def emulated(kernel: MicroKernel, core: str, emulator: str, folder: Path) -> Called:
    """A call of what is compiled for a core on an emulated one, each operand between guards."""
    operands = (
        f"({C_TYPES[operand.dtype]} *)(held[{n}] + GUARD)"
        for n, operand in enumerate(kernel.operands)
    )
    numbers = (f"sizes[{n}]" for n in range(len(kernel.sizes)))
    source = EMULATED_MAIN.format(
        header=kernel.header, sizes=len(kernel.sizes), count=len(kernel.operands),
        call=f"{kernel.name}({', '.join((*operands, *numbers))})",
    )  # fmt: skip
    (folder / "main.c").write_text(source)
    include = data_dir("runtime_c") / "include"
    flags = [f"-mcpu={core}", "-std=c11", "-O3", "-static", f"-I{include}"]
    build = ["aarch64-linux-gnu-gcc", *flags, str(folder / "main.c"), "-o", str(folder / "main")]
    subprocess.run(build, check=True)

    def call(arrays: list[np.ndarray], sizes: list[int]) -> list[np.ndarray]:
        bytes_of = np.array([*sizes, *(array.nbytes for array in arrays)], np.int32)
        given = bytes_of.tobytes() + b"".join(array.tobytes() for array in arrays)
        command = ["qemu-aarch64", "-cpu", emulator, str(folder / "main")]
        found = subprocess.run(command, input=given, capture_output=True, check=True).stdout
        result, at = [], 0
        for array in arrays:
            end = at + array.nbytes + 2 * GUARD
            memory = np.frombuffer(found[at:end], np.uint8)
            assert (memory[:GUARD] == 0xA5).all() and (memory[-GUARD:] == 0xA5).all()
            result.append(memory[GUARD:-GUARD].view(array.dtype))
            at = end
        return result

    return call
