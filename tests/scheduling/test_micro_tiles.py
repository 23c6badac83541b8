"""Micro-kernels of integer tiles in C, with vectors and without, beside what NumPy computes: random
operands between guards, at random sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import cffi
import numpy as np
import pytest

from relax_aot.ir.micro import MicroKernel
from relax_aot.ir.micro_tiles import MICRO_KERNELS, OFFSETS, STRIP
from relax_aot.ir.types import C_TYPES, DType
from relax_aot.resources import data_dir
from relax_aot.verify.host import STRICT_FLAGS, build_shared

KERNELS = {kernel.name: kernel for kernel in MICRO_KERNELS}
NATIVE, PORTABLE = ("-O2", "-march=native"), ("-O2",)
GUARD = 64
RUNS = 60

Sizes = Mapping[str, int]
Random = np.random.Generator


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
    return {"depth": depth, "columns": columns, "extent": extent, "zero": code(rng)}


def places(rng: Random) -> Sizes:
    extent = int(rng.integers(60, 120))
    return {
        "taps": int(rng.integers(1, 12)), "places": int(rng.integers(1, 60)), "extent": extent,
        "zero": code(rng),
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


SIZES: dict[str, Callable[[Random], Sizes]] = {
    "raot_tile_s16": tile, "raot_strip": strip, "raot_panel_s16": panel, "raot_rows_s16": rows,
    "raot_lines": lines, "raot_depthwise_places": places, "raot_depthwise_channels": channels,
    "raot_offsets": offsets,
}  # fmt: skip


@pytest.mark.parametrize("flags", [NATIVE, PORTABLE], ids=["native", "portable"])
@pytest.mark.parametrize("name", KERNELS)
def test_c_computes_what_numpy_does(name: str, flags: tuple[str, ...]) -> None:
    kernel = KERNELS[name]
    call = compiled(kernel, flags)
    rng = np.random.default_rng(sum(name.encode()))
    for _ in range(RUNS):
        sizes = SIZES[name.removesuffix("_s8").removesuffix("_u8")](rng)
        values = [sizes[size] for size in kernel.sizes]
        assert list(sizes) == list(kernel.sizes)
        arrays = [
            offsets_into(rng, sizes, reach)
            if wanted.name == "offsets" and not wanted.written
            else numbers(rng, wanted.dtype, reach)
            for wanted, reach in zip(kernel.operands, kernel.reach(values), strict=True)
        ]
        if name.startswith("raot_depthwise_places"):
            arrays[3][sizes["taps"] :] = 0
        expected = [array.copy() for array in arrays]
        kernel.run(expected, values)
        found = call(arrays, values)
        for wanted, one, other in zip(kernel.operands, found, expected, strict=True):
            used = meaningful(name, sizes, other.size)
            same = np.array_equal(one[used], other[used]) if wanted.written else True
            assert same, (wanted.name, sizes)


def numbers(rng: Random, dtype: DType, count: int) -> np.ndarray:
    low, high = (-255, 255) if dtype is DType.I16 else dtype.limits
    return rng.integers(low, high, count, endpoint=True).astype(dtype.numpy)


def offsets_into(rng: Random, sizes: Sizes, count: int) -> np.ndarray:
    most = sizes["extent"] - sizes.get("columns", sizes.get("places", 0))
    return rng.integers(0, most + 1, count).astype(np.int32)


def meaningful(name: str, sizes: Sizes, size: int) -> np.ndarray:
    """What is defined of the result."""
    at = np.arange(size)
    if name == "raot_tile_s16":
        return at % sizes["sum_step"] < sizes["columns"]
    if name.startswith("raot_panel"):
        return at // 2 % 16 < sizes["columns"]
    if name.startswith("raot_depthwise_places"):
        return at < sizes["places"]
    if name.startswith("raot_lines"):
        return at % sizes["to_step"] < sizes["columns"]
    return at >= 0


def compiled(
    kernel: MicroKernel, flags: tuple[str, ...]
) -> Callable[[list[np.ndarray], list[int]], list[np.ndarray]]:
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
