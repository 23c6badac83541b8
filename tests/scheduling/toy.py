# SPDX-License-Identifier: Apache-2.0
"""A made-up instruction set in one file: TOYMAC multiplies one byte by four and adds the products
to four sums. It has the micro-kernel of a matrix product, and the strategy that calls it."""

from __future__ import annotations

from relax_aot.ir.dims import ZERO
from relax_aot.ir.loops import Load, Micro
from relax_aot.ir.types import DType
from relax_aot.microkernels import micro_kernels
from relax_aot.scheduling.contraction import Weighted, step_of, stride
from relax_aot.scheduling.targets import Context, Emit, Target
from relax_aot.scheduling.weighted import Weights, position_tiles
from relax_aot.scheduling.writer import Writer

LANES = 4
HEADER = """\
#ifndef RAOT_TOY_H
#define RAOT_TOY_H

#include <stdint.h>

/* TOYMAC: four products of one byte, added to four sums. */
#define RAOT_TOYMAC(x, w) \\
    do { \\
        const int32_t factor = (x); \\
        a += factor * (w)[0]; \\
        b += factor * (w)[1]; \\
        c += factor * (w)[2]; \\
        d += factor * (w)[3]; \\
    } while (0)

__attribute__((noinline, unused)) static void
raot_toy_rows(int32_t *sums, const int8_t *x, const int8_t *weights, const int32_t *start,
              int32_t rows, int32_t row_step, int32_t depth, int32_t blocks)
{
    for (int32_t r = 0; r < rows; r++) {
        const int8_t *by = weights;
        for (int32_t n = 0; n < blocks; n++) {
            int32_t a = start[4 * n];
            int32_t b = start[4 * n + 1];
            int32_t c = start[4 * n + 2];
            int32_t d = start[4 * n + 3];
            const int8_t *from = x;
            int32_t k = depth;
            for (; k >= 4; k -= 4) {
                RAOT_TOYMAC(from[0], by);
                RAOT_TOYMAC(from[1], by + 4);
                RAOT_TOYMAC(from[2], by + 8);
                RAOT_TOYMAC(from[3], by + 12);
                from += 4;
                by += 16;
            }
            for (; k > 0; k--) {
                RAOT_TOYMAC(*from++, by);
                by += 4;
            }
            *sums++ = a;
            *sums++ = b;
            *sums++ = c;
            *sums++ = d;
        }
        x += row_step;
    }
}

#endif
"""
(ROWS,) = micro_kernels(
    "toy.h",
    """rows 1..~5, row_step depth.., depth 1..~40, blocks 1..~4, %start -100000..100000
    kernel @raot_toy_rows(
      %x: i8[span(rows * row_step, depth * 1)], %weights: i8[blocks, depth, 4],
      %start: i32[4 * blocks]
    ) -> (%sums: i32[rows, 4 * blocks]) {
      for r in 0..rows, n in 0..4 * blocks {
        local sum: i32 = %start[n]
        for k in 0..depth {
          sum = (sum + (i32(%x[r * row_step + k]) * i32(%weights[n // 4, k, n % 4])))
        }
        %sums[r, n] = sum
      }
    }""",
    source=HEADER,
)


def rows(found: Weighted, w: Writer, context: Context) -> Emit | None:
    """Contiguous rows of signed bytes by a matrix."""
    if found.channel is None or len(found.reductions) != 1 or len(found.positions) != 1:
        return None
    if found.clipped or found.flip or not found.fits_bytes:
        return None
    if stride(found.x, found.reductions[0].variable) != 1:
        return None
    return _Rows(found, w).emit if found.has_depth(context.constants) else None


class _Rows:
    def __init__(self, found: Weighted, w: Writer) -> None:
        self.found, self.w = found, w

    def emit(self) -> None:
        found, w = self.found, self.w
        channel = found.channel
        assert channel is not None
        pack = Weights(found, (0,))
        blocks = -(-found.channels // LANES)
        weights = pack.packed(w, "toy", ROWS, "weights", {"depth": found.depth, "blocks": blocks})
        start = pack.packed_starts(w, 0, LANES)
        sums = w.buffer("sums", DType.I32, 1, blocks * LANES)
        (reduction,) = found.reductions
        step = step_of(found.x, found.positions[-1].variable)
        with position_tiles(w, found, 1, joined=False) as tile:
            at = {**tile.at(w), reduction.variable: ZERO}
            x = Load(found.x.buffer, tuple(dim.substitute(at) for dim in found.x.index))
            w.add(
                Micro.of(
                    ROWS, sums=Load(sums, (ZERO, ZERO)), x=x, weights=pack.first(weights),
                    start=pack.first(start), rows=tile.count, row_step=step, depth=found.depth,
                    blocks=blocks,
                )
            )  # fmt: skip
            with w.range(channel.variable, channel.stop) as n:
                value = Load(sums, (ZERO, n))
                w.finish(found.after, found.sum, value, {**tile.at(w), channel.variable: n})


MICRO_KERNELS = (ROWS,)
TARGET = Target(
    "toy",
    needs=("toy",),
    registers=8,
    pointers=5,
    reach=124,
    block=96,
    code=16384,
    strategies=(rows,),
)
