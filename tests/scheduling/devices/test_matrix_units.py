# SPDX-License-Identifier: Apache-2.0
"""Products by matrix units have the values of plain loops at all sizes, and faults are found."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from relax_aot.evaluation.interpret import RaceError, run_kernel
from relax_aot.ir.axes import ARENA
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Kernel, Micro, Reserve, walk
from relax_aot.ir.types import shape_of
from relax_aot.ops._op import Array
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.devices.launches import launches
from relax_aot.scheduling.devices.matrix_tiles import Tile, Tiles
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.targets import cuda_mma
from tests.scheduling.devices.kernels import (
    cast_rows,
    device_form,
    inputs,
    without_barriers,
    without_conditions,
)  # fmt: skip
from tests.transforms.examples import example_module

_ONE = Tile(32, 16, 16, (1, 1))
TILES = Tiles(
    large=Tile(32, 32, 16, (2, 1)), small=Tile(32, 32, 16, (1, 2)), narrow=_ONE, single=_ONE,
    wide=Tile(32, 32, 16, (2, 2)), medium=_ONE, short=_ONE, slim=(_ONE,), low=_ONE,
    tall=Tile(32, 16, 16, (1, 1)), slid=((Tile(32, 16, 16, (2, 1)), _ONE),), enough=2,
)  # fmt: skip
"""Small ones: two blocks or more take the large tile, 16 columns and less the last one."""
PAIRS = (1, 2, 3, 6, 7)
"""Of parts of a sum: few ones, and even and odd numbers of which a loop takes two at a time."""
BIAS = "max((cast(cast(sum, f32, wrap), f16, wrap) + %b[j]), 0.0:f16)"


def matmul(
    depth: int, columns: int, x: str = "i, k", w: str = "k, j", value: str = BIAS,
    start: str = "0.0:f16",
) -> str:  # fmt: skip
    """`x`, `w`: the order of the axes of the factors."""
    sizes = {"i": "n", "j": str(columns), "k": str(depth)}
    shapes = (", ".join(sizes[axis] for axis in order.split(", ")) for order in (x, w))
    left, right = (f"f16[{shape}]" for shape in shapes)
    return f"""
    symbol n in 1..70
    kernel @dot(%x: {left}, %w: {right}, %b: f16[{columns}]) -> (%y: f16[n, {columns}]) {{
      for i in 0..n {{
        for j in 0..{columns} {{
          local sum: f16 = {start}
          for k in 0..{depth} {{
            sum = (sum + (%x[{x}] * %w[{w}]))
          }}
          %y[i, j] = {value}
        }}
      }}
    }}"""


CONVOLUTION = """
    symbol n in 1..2
    const %w: f16[6, 8, 3, 3] = splat 0.5
    kernel @conv(%x: f16[n, 8, 6, 5], %w: f16[6, 8, 3, 3]) -> (%y: f16[n, 6, 6, 5]) {
      for b in 0..n {
        for c in 0..6 {
          for i in 0..6 {
            for j in 0..5 {
              local sum: f16 = 0.0:f16
              for d in 0..8 {
                for k in max(-i + 1, 0)..min(-i + 7, 3) {
                  for l in max(-j + 1, 0)..min(-j + 6, 3) {
                    sum = (sum + (%x[b, d, i + k - 1, j + l - 1] * %w[c, d, k, l]))
                  }
                }
              }
              %y[b, c, i, j] = sum
            }
          }
        }
      }
    }"""
DECODED = """
    symbol n in 1..9
    kernel @dot(%x: f16[n, 16], %packed: u8[8, 24], %scales: f16[24]) -> (%y: f16[n, 24]) {
      for i in 0..n {
        for j in 0..24 {
          local sum: f16 = 0.0:f16
          for k in 0..16 {
            sum = (sum + (%x[i, k] * cast(((cast(((%packed[k // 2, j] >>
              cast(index(4*(k % 2)), u8, wrap)) & 15:u8), f32, wrap) - 8.0:f32)
              * cast(%scales[j], f32, wrap)), f16, wrap)))
          }
          %y[i, j] = sum
        }
      }
    }"""


def decoded(
    w: str = "j, k", group: int = 0, kind: str = "i8", zero: str = "", depth: str = "40",
    columns: str = "24",
) -> str:  # fmt: skip
    """Weights of bytes with the axes `w`; scales, and zero points if `zero` is a load of them, of
    columns, or of groups of steps too."""
    sizes = {"j": columns, "k": depth}
    shape = ", ".join(sizes[axis] for axis in w.split(", "))
    groups = int(depth) // group if group else 0
    of, at = (f"{groups}, {columns}", f"k // {group}, j") if group else (columns, "j")
    byte = f"cast(%w[{w}], i32, wrap)"
    byte = f"({byte} - {zero.replace('AT', at)})" if zero else byte
    value = f"cast((cast({byte}, f32, wrap) * cast(%s[{at}], f32, wrap)), f16, wrap)"
    return f"""
    symbol n in 1..70
    symbol m in 0..6
    kernel @dot(
        %x: f16[n, {depth}], %w: {kind}[{shape}], %s: f16[{of}], %z: {kind}[{of}]
      ) -> (%y: f16[n, {columns}]) {{
      for i in 0..n {{
        for j in 0..{columns} {{
          local sum: f16 = 0.0:f16
          for k in 0..{depth} {{
            sum = (sum + (%x[i, k] * {value}))
          }}
          %y[i, j] = sum
        }}
      }}
    }}"""


ZEROS = "cast(%z[AT], i32, wrap)"
BATCH = """
    symbol n in 1..3
    symbol k in 0..40
    kernel @dot(%x: f16[n, 5, k], %w: f16[n, k, 8]) -> (%y: f16[n, 5, 8]) {
      for b in 0..n {
        for i in 0..5 {
          for j in 0..8 {
            local sum: f16 = 0.0:f16
            for d in 0..k {
              sum = (sum + (%x[b, i, d] * %w[b, d, j]))
            }
            %y[b, i, j] = sum
          }
        }
      }
    }"""
SQUARE = """
    symbol n in 1..70
    symbol k in 0..40
    kernel @dot(%x: f16[n, k], %w: f16[k, k]) -> (%y: f16[n, k]) {
      for i in 0..n {
        for j in 0..k {
          local sum: f16 = 0.0:f16
          for d in 0..k {
            sum = (sum + (%x[i, d] * %w[d, j]))
          }
          %y[i, j] = sum
        }
      }
    }"""


def any_lengths(x: str, w: str, kind: str = "f16") -> str:
    """A batch of products whose rows have any lengths. `x`, `w`: the order of the axes."""
    sizes = {"i": "n", "j": "m", "k": "k"}
    shapes = [", ".join(sizes[axis] for axis in order.split(", ")) for order in (x, w)]
    return (
        f"""
    symbol b in 0..2
    symbol n in 1..70
    symbol k in 0..40
    symbol m in 1..70
    kernel @dot(%x: {kind}[b, {shapes[0]}], %w: {kind}[b, {shapes[1]}]) -> (%y: {kind}[b, n, m]) {{
      for a in 0..b {{
        for i in 0..n {{
          for j in 0..m {{
            local sum: {kind} = 0.0:{kind}
            for k0 in 0..k {{
              sum = (sum + (%x[a, {x}] * %w[a, {w}]))
            }}
            %y[a, i, j] = sum
          }}
        }}
      }}
    }}""".replace("[a, i, k]", "[a, i, k0]")
        .replace("[a, k, i]", "[a, k0, i]")
        .replace("[a, j, k]", "[a, j, k0]")
        .replace("[a, k, j]", "[a, k0, j]")
    )


ANY_LENGTHS = (
    {"b": 1, "n": 1, "k": 1, "m": 1}, {"b": 2, "n": 33, "k": 17, "m": 35},
    {"b": 1, "n": 34, "k": 18, "m": 66}, {"b": 1, "n": 32, "k": 24, "m": 40},
    {"b": 0, "n": 5, "k": 5, "m": 5}, {"b": 1, "n": 7, "k": 0, "m": 3},
    {"b": 2, "n": 70, "k": 40, "m": 70},
)  # fmt: skip
"""The lowest, odd, even and aligned ones, none, and the highest."""
SEVERAL_AXES = """
    symbol n in 1..12
    symbol k in 1..7
    symbol m in 1..12
    kernel @dot(%x: f16[k, 3, n, 5], %w: f16[m, 7, k, 3]) -> (%y: f16[n, 5, m, 7]) {
      for i in 0..n {
        for c in 0..5 {
          for j in 0..m {
            for d in 0..7 {
              local sum: f16 = 0.0:f16
              for e in 0..k {
                for l in 0..3 {
                  sum = (sum + (%x[e, l, i, c] * %w[j, d, e, l]))
                }
              }
              %y[i, c, j, d] = sum
            }
          }
        }
      }
    }"""
BYTES = """
    symbol n in 1..40
    kernel @dot(%x: u8[n, 70], %w: i8[70, 24], %b: i32[24]) -> (%y: i32[n, 24]) {
      for i in 0..n {
        for j in 0..24 {
          local sum: i32 = %b[j]
          for k in 0..70 {
            sum = (sum + ((cast(%x[i, k], i32, wrap) - 200:i32) * cast(%w[k, j], i32, wrap)))
          }
          %y[i, j] = sum
        }
      }
    }"""
BYTE_LENGTHS = """
    symbol b in 0..2
    symbol n in 1..40
    symbol k in 0..40
    symbol m in 1..40
    kernel @dot(%x: u8[b, n, k], %w: i8[b, k, m]) -> (%y: i32[b, n, m]) {
      for a in 0..b {
        for i in 0..n {
          for j in 0..m {
            local sum: i32 = 2147483647:i32
            for d in 0..k {
              sum = (sum + ((cast(%x[a, i, d], i32, wrap) - 200:i32)
                * (cast(%w[a, d, j], i32, wrap) + 7:i32)))
            }
            %y[a, i, j] = sum
          }
        }
      }
    }"""
BYTE_LINES = BYTES.replace("i8[70, 24]", "i8[24, 32]").replace("%w[k, j]", "%w[j, k]")
BYTE_LINES = BYTE_LINES.replace("70", "20")
BYTE_WINDOWS = """
    symbol n in 1..2
    kernel @conv(%x: i8[n, 6, 5, 4], %w: i8[6, 3, 3, 4]) -> (%y: i32[n, 6, 5, 6]) {
      for b in 0..n {
        for i in 0..6 {
          for j in 0..5 {
            for c in 0..6 {
              local sum: i32 = 7:i32
              for k in max(-i + 1, 0)..min(-i + 7, 3) {
                for l in max(-j + 1, 0)..min(-j + 6, 3) {
                  for d in 0..4 {
                    sum = (sum + ((cast(%x[b, i + k - 1, j + l - 1, d], i32, wrap) + 5:i32)
                      * (cast(%w[c, k, l, d], i32, wrap) - 1:i32)))
                  }
                }
              }
              %y[b, i, j, c] = sum
            }
          }
        }
      }
    }"""
ALIGNED_BYTES = """
    symbol n in 1..40
    symbol k in 0..40
    kernel @dot(%x: u8[n, 16*k], %w: i8[24, 16*k]) -> (%y: i32[n, 24]) {
      for i in 0..n {
        for j in 0..24 {
          local sum: i32 = 2147483647:i32
          for d in 0..16*k {
            sum = (sum + (cast(%x[i, d], i32, wrap) * cast(%w[j, d], i32, wrap)))
          }
          %y[i, j] = sum
        }
      }
    }"""
CHANNELS_LAST = BYTE_WINDOWS.replace("5, 4]", "5, 32]").replace("3, 4]", "3, 32]")
CHANNELS_LAST = CHANNELS_LAST.replace("d in 0..4", "d in 0..32")
HALF_CHANNELS_LAST = """
    symbol n in 1..2
    kernel @conv(%x: f16[n, 6, 5, 32], %w: f16[6, 3, 3, 32]) -> (%y: f16[n, 3, 5, 6]) {
      for b in 0..n {
        for i in 0..3 {
          for j in 0..5 {
            for c in 0..6 {
              local sum: f16 = 0.0:f16
              for k in max(-2*i + 1, 0)..min(-2*i + 7, 3) {
                for l in max(-j + 2, 0)..min(-j + 7, 3) {
                  for d in 0..32 {
                    sum = (sum + (%x[b, 2*i + k - 1, j + l - 2, d] * %w[c, k, l, d]))
                  }
                }
              }
              %y[b, i, j, c] = sum
            }
          }
        }
      }
    }"""
"""With a stride along one axis, and windows of which all but one column is outside."""
PIXELS_APART = HALF_CHANNELS_LAST.replace("32", "24")
"""Of which a part of the steps has more than one pixel."""
WIDE_WINDOWS = HALF_CHANNELS_LAST.replace("32", "8").replace("6, 3, 3, 8", "6, 7, 5, 8")
WIDE_WINDOWS = WIDE_WINDOWS.replace("7, 3)", "7, 7)", 1).replace("7, 3)", "7, 5)", 1)
"""Of more places than words have bits."""
SHARED_PIXELS = HALF_CHANNELS_LAST.replace("6, 5, 32]", "6, 7, 32]").replace("3, 5, 6]", "3, 7, 6]")
SHARED_PIXELS = SHARED_PIXELS.replace("j in 0..5", "j in 0..7").replace("min(-j + 7", "min(-j + 9")
SPREAD_PIXELS = SHARED_PIXELS.replace("max(-j + 2, 0)..min(-j + 9, 3)", "0..3")
SPREAD_PIXELS = SPREAD_PIXELS.replace("j + l - 2", "j + 2*l").replace("6, 7, 32]", "6, 11, 32]")
SPREAD_PIXELS = SPREAD_PIXELS.replace("32", "48")
CHANNELS_FIRST = """
    symbol n in 1..2
    kernel @conv(%x: u8[n, 16, 6, 5], %w: u8[6, 3, 3, 16]) -> (%y: i32[n, 6, 6, 5]) {
      for b in 0..n {
        for c in 0..6 {
          for i in 0..6 {
            for j in 0..5 {
              local sum: i32 = 0:i32
              for k in max(-i + 1, 0)..min(-i + 7, 3) {
                for l in max(-j + 1, 0)..min(-j + 6, 3) {
                  for d in 0..16 {
                    sum = (sum + ((cast(%x[b, d, i + k - 1, j + l - 1], i32, wrap) - 255:i32)
                      * (cast(%w[c, k, l, d], i32, wrap) - 128:i32)))
                  }
                }
              }
              %y[b, c, i, j] = sum
            }
          }
        }
      }
    }"""
CASES: dict[str, tuple[str, tuple[dict[str, int], ...]]] = {
    "rows below, at and above a tile": (matmul(24, 24), tuple({"n": n} for n in (1, 32, 33))),
    "whole tiles": (matmul(32, 32), ({"n": 32}, {"n": 64})),
    "weights by columns": (matmul(24, 24, w="j, k"), ({"n": 9},)),
    "transposed left": (matmul(24, 16, x="k, i"), ({"n": 9},)),
    "vectors of four": (matmul(20, 44), ({"n": 9}, {"n": 70})),
    "vectors of two": (matmul(38, 26, w="j, k"), ({"n": 33},)),
    "odd sizes": (matmul(21, 13), tuple({"n": n} for n in (1, 9, 70))),
    "a sum that is rounded behind the bias": (
        matmul(16, 24, value="((sum * 0.5:f16) + %b[j])"),
        ({"n": 9},),
    ),
    "sums that begin with a bias": (matmul(16, 9, value="sum", start="%b[j]"), ({"n": 9},)),
    "bfloat16": (matmul(24, 24).replace("f16", "bf16"), ({"n": 33},)),
    "a batch of dynamic depth": (BATCH, ({"n": 3, "k": 0}, {"n": 2, "k": 21}, {"n": 1, "k": 40})),
    "rows of which some are aligned": (SQUARE, tuple({"n": 9, "k": k} for k in (0, 1, 40, 21))),
    "odd rows": (matmul(21, 37), ({"n": 9}, {"n": 70})),
    "odd rows by columns": (matmul(21, 37, w="j, k"), ({"n": 33},)),
    "odd rows that are cast": (cast_rows(matmul(21, 13)), ({"n": 9}, {"n": 70})),
    "odd columns that are cast": (cast_rows(matmul(21, 37, x="k, i"), "k, i"), ({"n": 33},)),
    "rows of any lengths": (any_lengths("i, k", "k, j"), ANY_LENGTHS),
    "rows of any lengths by columns": (any_lengths("i, k", "j, k"), ANY_LENGTHS),
    "rows of any lengths, transposed left": (any_lengths("k, i", "k, j", "bf16"), ANY_LENGTHS[:3]),
    "rows of any lengths, both transposed": (any_lengths("k, i", "j, k"), ANY_LENGTHS[1:4]),
    "rows of several axes": (
        SEVERAL_AXES,
        ({"n": 7, "k": 5, "m": 9}, {"n": 12, "k": 7, "m": 12}, {"n": 8, "k": 4, "m": 8}),
    ),
    "a convolution with borders": (CONVOLUTION, ({"n": 1},)),
    "bytes": (BYTES, ({"n": 33},)),
    "bytes of any lengths": (BYTE_LENGTHS, (
        {"b": 1, "n": 1, "k": 1, "m": 1}, {"b": 2, "n": 33, "k": 17, "m": 35},
        {"b": 0, "n": 5, "k": 5, "m": 5}, {"b": 1, "n": 7, "k": 0, "m": 3},
        {"b": 2, "n": 40, "k": 40, "m": 40},
    )),
    "bytes of any lengths by columns": (
        BYTE_LENGTHS.replace("[b, k, m]", "[b, m, k]").replace("[a, d, j]", "[a, j, d]"),
        ({"b": 1, "n": 32, "k": 24, "m": 40}, {"b": 1, "n": 17, "k": 35, "m": 18}),
    ),
    "bytes of any lengths by one matrix": (
        BYTE_LENGTHS.replace("[b, k, m]", "[k, m]").replace("[a, d, j]", "[d, j]"),
        ({"b": 2, "n": 33, "k": 17, "m": 35}, {"b": 0, "n": 5, "k": 5, "m": 5}),
    ),
    "lines of bytes that are no whole vectors": (BYTE_LINES, ({"n": 9},)),
    "windows of bytes": (BYTE_WINDOWS, ({"n": 1},)),
    "windows of whole vectors of bytes": (CHANNELS_LAST, ({"n": 1},)),
    "windows of whole vectors of half precision": (HALF_CHANNELS_LAST, ({"n": 1}, {"n": 2})),
    "windows that share pixels": (SHARED_PIXELS, ({"n": 1}, {"n": 2})),
    "windows that share pixels apart": (SPREAD_PIXELS, ({"n": 1}, {"n": 2})),
    "windows of which a part has several pixels": (PIXELS_APART, ({"n": 1},)),
    "windows of more places than words have bits": (WIDE_WINDOWS, ({"n": 1},)),
    "windows of bytes in planes": (CHANNELS_FIRST, ({"n": 1},)),
    "aligned bytes": (ALIGNED_BYTES, ({"n": 33, "k": 5}, {"n": 1, "k": 0})),
    "weights of four bits": (DECODED, ({"n": 9},)),
    "bytes by columns": (decoded(), tuple({"n": n, "m": 0} for n in (9, 33))),
    "bytes by rows": (decoded("k, j"), ({"n": 33, "m": 0},)),
    "bytes with zero points": (decoded(kind="u8", zero=ZEROS), ({"n": 9, "m": 0},)),
    "bytes with one zero point": (decoded("k, j", zero="-3:i32"), ({"n": 9, "m": 0},)),
    "groups of bytes by columns": (decoded(group=8, zero=ZEROS), ({"n": 33, "m": 0},)),
    "groups of bytes by rows": (
        decoded("k, j", 8, kind="u8", zero=ZEROS), ({"n": 33, "m": 0},),
    ),
    **{
        f"groups of bytes in {pairs} pairs of parts": (
            decoded(("j, k", "k, j")[pairs % 2], 16, zero=ZEROS, depth=str(32 * pairs)),
            tuple({"n": n, "m": 0} for n in ((33, 9) if pairs == 3 else (33,))),
        )
        for pairs in PAIRS
    },
    "bytes of dynamic depth": (
        decoded(depth="16*m", columns="16"), tuple({"n": 9, "m": m} for m in (0, 1, 2, 5))
    ),
}  # fmt: skip
VECTORS = {
    "rows below, at and above a tile": 2, "whole tiles": 2, "weights by columns": 2,
    "transposed left": 3, "vectors of four": 2, "vectors of two": 2, "odd sizes": 2,
    "a convolution with borders": 1,
    "bytes": 2, "bytes of any lengths": 2,
    "windows of bytes": 0, "windows of whole vectors of bytes": 2, "odd rows that are cast": 2,
    "windows of bytes in planes": 1, "windows of whole vectors of half precision": 2,
    "aligned bytes": 2, "rows of which some are aligned": 4, "odd rows": 2,
}  # fmt: skip
"""How many factors are copied to shared memory at once, from memory or from aligned rows."""
DECODED_AT_ONCE = [case for case in CASES if "bytes" in case and "f16" in CASES[case][0]]


@cache
def both(case: str) -> tuple[Kernel, Kernel]:
    """The plain kernel and its device form."""
    plain, device, _ = device_form(CASES[case][0], partial(matrix_product, tiles=TILES))
    assert device is not None
    return plain, device


def whole(array: Array) -> Array:
    """Floats as small whole numbers."""
    numbers = array if array.dtype.kind in "iu" else np.rint(array.astype(np.float32) * 4)
    return numbers.astype(array.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_matrices_have_the_values_of_the_plain_loops(case: str) -> None:
    """Sums of whole numbers are exact in every order. Random bytes are so large that their sums are
    no floats."""
    plain, device = both(case)
    for sizes in CASES[case][1]:
        data = [whole(array) for array in inputs(plain, sizes)]
        (expected,) = run_kernel(plain, data, sizes)
        (found,) = run_kernel(device, data, sizes, seed=1)
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.slow
def test_long_sums_of_bytes_are_integers() -> None:
    """Products of -255 and 255 whose sum is beyond the integers that floats hold."""
    text = BYTES.replace("70", "600").replace("n in 1..40", "n in 1..1").replace("24", "16")
    text = text.replace("i8[", "u8[").replace("- 200:i32", "- 255:i32")
    plain, device, _ = device_form(text, partial(matrix_product, tiles=TILES))
    assert device is not None
    data: list[Array] = [np.zeros((1, 600), np.uint8), np.full((600, 16), 255, np.uint8)]
    data.append(np.arange(16, dtype=np.int32))
    (expected,) = run_kernel(plain, data, {"n": 1})
    assert expected[0, 0] == -255 * 255 * 600
    np.testing.assert_array_equal(run_kernel(device, data, {"n": 1})[0], expected)


KNOWN = {
    "lines": BYTE_LINES.replace("%b", "%bias"),
    "rows": BYTES,
    "windows": CHANNELS_LAST.replace("- 1:i32", "- 0:i32"),
    "planes": CHANNELS_FIRST.replace("- 128:i32", "- 0:i32").replace("n in 1..2", "n in 1..1"),
    "weights with a zero point": CHANNELS_LAST,
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.long if case.startswith("w") else pytest.mark.slow)
        for case in KNOWN
    ],
)
def test_sums_of_known_weights_are_constants(case: str) -> None:
    """So that no loop adds them, and the results are those of plain loops."""
    (line,) = (line for line in KNOWN[case].splitlines() if "kernel @" in line)
    shape = line.split("%w: ")[1].split("]")[0] + "]"
    module = example_module(f"const %w: {shape} = splat 1" + KNOWN[case])
    (weights,) = module.constants
    random = np.random.default_rng(2)
    low, high = weights.type.dtype.limits
    data = random.integers(low, high + 1, weights.data.shape).astype(weights.data.dtype)
    module = replace(module, constants=(replace(weights, data=data),))
    (plain,), scheduled = module.kernels, schedule_device(module, cuda_mma.TARGET)
    (device,), (call,) = scheduled.kernels, scheduled.kernel_calls[plain.name]
    names = {stmt.name for stmt in walk(device.body) if isinstance(stmt, Micro)}
    adds = any(name.startswith("raot_add_") for name in names)
    assert adds == (case == "weights with a zero point")
    sizes = {"n": 1}
    given = dict(zip((b.name for b in plain.inputs), inputs(plain, sizes), strict=True))
    given["w"] = data
    known = {constant.name: constant.data for constant in scheduled.constants}
    (expected,) = run_kernel(plain, [*given.values()], sizes)
    pairs = zip(device.inputs, call.inputs, strict=True)
    arrays = [known.get(var.name, given.get(buffer.name)) for buffer, var in pairs]
    assert all(array is not None for array in arrays)
    (found,) = run_kernel(device, [array for array in arrays if array is not None], sizes, seed=1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", VECTORS)
def test_aligned_neighbors_are_copied_at_once(case: str) -> None:
    _, device = both(case)
    copies = [s for s in walk(device.body) if isinstance(s, Micro) and "copy_async" in s.name]
    assert len({copy.operands[1].buffer.name for copy in copies}) == VECTORS[case]


@pytest.mark.parametrize(("case", "apart"), [("share pixels", 1), ("share pixels apart", 2)])
def test_pixels_are_copied_for_all_windows_of_a_line(case: str, apart: int) -> None:
    """Shared memory has the pixels behind those of a tile that its windows reach."""
    _, device = both(f"windows that {case}")
    tiles = [stmt.buffer for stmt in walk(device.body) if isinstance(stmt, Reserve)]
    lines = {buffer.shape[1] for buffer in tiles if buffer.name.startswith("left_tile")}
    assert lines == {Dim.of(32 + 2 * apart)}


@pytest.mark.parametrize("case", DECODED_AT_ONCE)
def test_bytes_are_decoded_in_vectors(case: str) -> None:
    _, device = both(case)
    names = {stmt.name for stmt in walk(device.body) if isinstance(stmt, Micro)}
    assert "raot_multiply8_f16" in names
    assert any(name.startswith("raot_widen8_") for name in names)


@pytest.mark.parametrize("pairs", PAIRS)
def test_bytes_are_decoded_for_two_parts_at_once(pairs: int) -> None:
    """32 of 16 lines, of which 16 are multiplied at a time."""
    _, device = both(f"groups of bytes in {pairs} pairs of parts")
    tiles = [one.buffer for one in walk(device.body) if isinstance(one, Reserve)]
    shapes = {
        name: {buffer.shape for buffer in tiles if buffer.name.startswith(name)}
        for name in ("left_tile", "right_tile")
    }
    right = shape_of(2, 32, 16 + 8) if pairs % 2 else shape_of(2, 16, 32 + 8)
    assert shapes == {"left_tile": {shape_of(2, 32, 16 + 8)}, "right_tile": {right}}


def test_tall_tiles_have_more_rows_than_half() -> None:
    _, device = both("bytes by columns")
    for n in (1, 16, 17, 70):
        large, small = (one.grid.evaluate({"n": n, "m": 0}) for one in launches(device))
        assert (large > 0, small > 0) == (n > 16, n <= 16), n


@pytest.mark.parametrize(
    "case", [case for case in CASES if "odd rows" in case or "rows of" in case or "of any" in case]
)
def test_rows_are_aligned_before_a_product(case: str) -> None:
    """So that no element is gathered for a tile."""
    _, device = both(case)
    stores = [one for one in walk(device.body) if isinstance(one, Micro) and "store" in one.name]
    assert {one.written[0].buffer.scope for one in stores} == {ARENA}
    assert len({one.written[0].buffer for one in stores}) == 2


@pytest.mark.parametrize("case", ["bytes", "bytes of any lengths"])
def test_lines_of_bytes_that_several_tiles_read_are_added_before(case: str) -> None:
    """So that no loop over steps adds them for zero points."""
    _, device = both(case)
    names = {one.name for one in walk(device.body) if isinstance(one, Micro)}
    assert not any(name.startswith("raot_add_") for name in names)


def test_lines_of_bytes_that_one_tile_reads_are_added_there() -> None:
    text = BYTES.replace("n in 1..40", "n in 1..32")
    _, device, _ = device_form(text, partial(matrix_product, tiles=TILES))
    assert device is not None
    names = {one.name for one in walk(device.body) if isinstance(one, Micro)}
    assert any(name.startswith("raot_add_right_") for name in names)


def test_planted_faults_are_found() -> None:
    plain, device = both("rows below, at and above a tile")
    data = inputs(plain, {"n": 33})
    with pytest.raises(RaceError):
        run_kernel(without_barriers(device), data, {"n": 33})
    with pytest.raises(AssertionError):
        run_kernel(without_conditions(device, "row"), data, {"n": 33})
