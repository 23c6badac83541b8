"""Helium (VMLADAVA): contractions of rows of bytes, contiguous windows of channels-last images,
depthwise convolutions of four interleaved rows, and requantization of their sums."""

from __future__ import annotations

from relax_aot.ir.microkernel import MicroKernel
from relax_aot.microkernels._describe import micro_kernel

TYPES = {"s8": ("i8", "0"), "u8": ("u8", "128")}
"""Element type, and what flips an unsigned byte to a signed one."""
ROWS = 8
"""RAOT_ROWS: output pixels whose windows are gathered together."""
BLOCK = 16
"""Bytes of a vector: weights of a channel are padded to a multiple."""
WINDOW = 16
"""Bytes that are read for each window of four interleaved rows."""


def channel_order(channels: int) -> list[int]:
    """Which channel stands at each place of the groups of four; -1 where none does."""
    order: list[int] = []
    for n in range(0, channels, 8):
        lanes = [0, 2, 4, 6, 1, 3, 5, 7] if channels - n > 4 else [0, 1, 2, 3]
        order += [n + lane if n + lane < channels else -1 for lane in lanes]
    return order


def stream_bytes(depth: int) -> int:
    """What the starts and the weights of four channels take."""
    return 32 + 4 * (-(-depth // BLOCK) * BLOCK)


GATHER_ROWS = """
kernel @raot_im2col_$S(%image: $T[span(count0 * step0, last1 - first1 * step1,
  min(lead + (positions - 1) * apart + (count2 - 1) * tap + 1, width) * step2)]
) -> (%rows: i8[8, depth]) {
  for p in 0..positions, i in 0..count0, j in 0..count1, t in 0..count2 {
    let column = lead + p * apart + t * tap
    local inside: bool = within(first1, j, last1)
    inside = (inside && within(0, column, width))
    local byte: u8 = select(inside,
      (u8(%image[i * step0 + (j - first1) * step1 + column * step2]) ^ u8(index(flip))),
      u8(index(zero)))
    %rows[p, i * to0 + j * to1 + t * to2] = i8(byte)
  }
}"""
GATHER_ROWS_SIZES = """zero -128..127, flip $flip, depth up(count0 * count1 * count2, 16),
positions 1..8, count0 1..~9, step0 ~40, to0 ~1, count1 1..~3, first1 0..count1,
last1 first1..count1,
step1 ~400, to1 ~count0 * count2, count2 1..~3, step2 1..~3, to2 ~count0, lead ~-2 | -1 | 0 | 3,
apart 1..2,
tap ~1, width 1..~12"""

MULTIPLY_ROWS = """
kernel @raot_multiply_rows_s8(
  %weights: i8[channels // 4, depth // 16, 4, 16], %rows: i8[up(positions, 2), depth],
  %bias: i32[channels]
) -> (%sums: i32[(channels - 1) * 8 + up(positions, 2)]) {
  for n in 0..channels, p in 0..positions {
    local sum: i32 = %bias[n]
    for k in 0..depth {
      sum = (sum + (i32(%weights[n // 4, k // 16, n % 4, k % 16]) * i32(%rows[p, k])))
    }
    %sums[n * 8 + p] = sum
  }
}"""
MULTIPLY_ROWS_SIZES = "channels 4..~16 by 4, depth 16..~80 by 16, positions 1..8"

GATHER_WINDOWS = """
kernel @raot_im2col_nhwc_$S(%image: $T[span(channels * channel_step, last1 - first1 * line_step,
  min(first + columns, width) * column_step, min(first + columns, width) - max(first, 0))]
) -> (%strip: i8[columns, lines, channels]) {
  for x in 0..columns, y in 0..lines, c in 0..channels {
    let column = first + x
    local inside: bool = within(first1, y, last1)
    inside = (inside && within(0, column, width))
    let at = (y - first1) * line_step + column * column_step + c * channel_step
    local byte: u8 = select(inside, (u8(%image[at]) ^ u8(index(flip))), u8(index(zero)))
    %strip[x, y, c] = i8(byte)
  }
}"""
GATHER_WINDOWS_SIZES = """zero -128..127, flip $flip, channels 1..~40, channel_step ~1 | 200,
lines 1..~3, first1 0..lines, last1 first1..lines, line_step ~8000, columns 1..~12,
first ~-3 | 0 | 2 | 4,
width 1..~14, column_step ~channels | 3"""

MULTIPLY_WINDOWS = """
kernel @raot_multiply_nhwc_s8(
  %weights: i32[groups, 8 + up(depth, 16)], %rows: i8[span(positions * row_step, depth * 1)]
) -> (%sums: i32[up(positions, 2) // 2, groups, 2, 4]) {
  for p in 0..positions, g in 0..groups, n in 0..4 {
    local sum: i32 = %weights[g, p % 2 * 4 + n]
    for k in 0..depth {
      let word = 8 + k // 16 * 16 + n * 4 + k % 16 // 4
      local weight: i32 = i32(i8((%weights[g, word] >> i32(index(8 * (k % 4))))))
      sum = (sum + (weight * i32(%rows[p * row_step + k])))
    }
    %sums[p // 2, g, p % 2, n] = sum
  }
}"""
MULTIPLY_WINDOWS_SIZES = "groups 1..~5, depth 1..~150, positions 1..~5, row_step 1..~depth + 4"

MULTIPLIERS = "1073741824..2147483647"
FORMS = {
    "f32": ("f32", "", "", "100..10000"),
    "nearest": ("i32", "(product >> 32:i64)", "4", MULTIPLIERS),
    "above": ("i32", "((product + 1073741824:i64) >> 31:i64)", "3", MULTIPLIERS),
    "twice": ("i32", "((product + 1073741824:i64) >> 31:i64)", "3", MULTIPLIERS),
}
"""Element type of the scales, the high part of a product, the least shift, and the scales."""


def _scaled(form: str, scale: str, shift: str) -> str:
    """Statements that give `value`, the scaled `sum`: in float, or by a multiplier and a shift."""
    if form == "f32":
        return f"local value: i64 = i64(rint((f32(sum) * {scale})))"
    lower = "high = (high - select((high < 0:i64), 1:i64, 0:i64))\n" if form == "twice" else ""
    return f"""local product: i64 = (i64(sum) * i64({scale}))
        local high: i64 = {FORMS[form][1]}
        {lower}local by: i64 = (0:i64 - i64({shift}))
        local value: i64 = ((high + ((1:i64 << by) >> 1:i64)) >> by)"""


LIMITS = "zero -128..127, low $low, high $high"
REQUANTIZE_WINDOWS = """
kernel @raot_requantize_nhwc_$S(
  %sums: i32[up(positions, 2) // 2, up(channels, 4) // 4, 2, 4],
  %scales: $F[up(channels, 4) // 4, $parts 4]
) -> (%out: $T[span(positions * out_step, channels * channel_step)]) {
  for p in 0..positions, c in 0..channels {
    let wide = min(1, max(0, channels - c // 8 * 8 - 4))
    let lane = wide * (c % 2 * 4 + c % 8 // 2) + (1 - wide) * (c % 8)
    let group = c // 8 * 2 + lane // 4
    local sum: i32 = %sums[p // 2, group, p % 2, lane % 4]
    $scaled
    value = min(max((value + index(zero)), index(low)), index(high))
    %out[p * out_step + c * channel_step] = $T(value)
  }
}"""
REQUANTIZE_WINDOWS_SIZES = f"""channels 1..~37, positions 1..~5,
out_step channels * channel_step.., channel_step ~1 | 40, {LIMITS}, $ranges"""

FILL = """
kernel @raot_fill_interleaved4() -> (%rows4: i8[count]) {
  for i in 0..count {
    %rows4[i] = i8(index(zero))
  }
}"""

INTERLEAVE = """
kernel @raot_interleave4_$S(%image: $T[span(min(lines, top + 2 * blocks + 2) * line_step,
  min(columns, left + length) * step, min(lines, top + 2 * blocks + 2) - max(top, 0),
  min(columns, left + length) - max(left, 0))]) -> (%rows4: i8[blocks, length, 4]) {
  for b in 0..blocks, c in 0..length, j in 0..4 {
    let y = top + 2 * b + j
    let x = left + c
    local inside: bool = within(0, y, lines)
    inside = (inside && within(0, x, columns))
    %rows4[b, c, j] = select(inside,
      i8((u8(%image[y * line_step + x * step]) ^ u8(index(flip)))), %rows4[b, c, j])
  }
}"""
INTERLEAVE_SIZES = """flip $flip, blocks 1..~4, length 4..~40,
top ~-3 | -1 | 0 | 3, left ~-3 | -1 | 0 | 2, lines 4..~10,
columns 3..~40, line_step columns * step.., step ~1 | 2 | 5 | 17 | 18 | 64"""

DEPTHWISE = """
kernel @raot_depthwise_interleaved4_s8(
  %rows4: i8[span(blocks * (4 * length), count * (4 * stride), 16 * 1)], %weights: i8[outs, 16]
) -> (%sums: i32[blocks, outs, count]) {
  for b in 0..blocks, o in 0..outs, p in 0..count {
    local sum: i32 = 0:i32
    for k in 0..16 {
      local value: i32 = i32(%rows4[(b * length + p * stride) * 4 + k])
      sum = (sum + (value * i32(%weights[o, k])))
    }
    %sums[b, o, p] = sum
  }
}"""
DEPTHWISE_SIZES = """blocks 1..~3, outs 1..2, count 1..~30, stride 1..2,
length count * stride..~count * stride + 3"""

REQUANTIZE_CHANNEL = """
kernel @raot_requantize_channel_$S(
  %sums: i32[max((lines - 1) * count + up(count, 8), up(lines * count, 8))], %start: i32[1],
  %scale: $F[$parts]
) -> (%out: $T[span(lines * line_step, count * step)]) {
  for r in 0..lines, c in 0..count {
    local sum: i32 = (%sums[r * count + c] + %start[0])
    $scaled
    value = min(max((value + index(zero)), index(low)), index(high))
    %out[r * line_step + c * step] = $T(value)
  }
}"""
REQUANTIZE_CHANNEL_SIZES = f"""lines 1..~5, count 1..~30,
line_step count * step..~count * step + 1, step ~1 | 2 | 7, {LIMITS}, $ranges"""

REQUANTIZE = """
kernel @raot_requantize_$F(
  %sums: i32[span(rows * sum_step, up(columns, 8) * 1)], %scale: $F[span(rows * scale_step)]
) -> (%out: i8[span(rows * out_step, columns * 1)]) {
  for r in 0..rows, c in 0..columns {
    local sum: i32 = %sums[r * sum_step + c]
    $value
    %out[r * out_step + c] = cast((value + index(zero)), i8, saturate)
  }
}"""
REQUANTIZE_SIZES = """rows 1..~5, columns 1..~20, out_step columns.., sum_step columns..,
scale_step 0..1, zero -128..127, """
REQUANTIZE_FORMS = {
    "f32": (
        "local value: i64 = i64(rint((f32(sum) * %scale[r * scale_step])))",
        "%scale 100..10000",
    ),
    "i32": (
        """local product: i64 = (i64(sum) * i64(%scale[r * scale_step]))
      local value: i64 = ((product + (1:i64 << (index(shift) - 1:i64))) >> index(shift))""",
        "shift 33..43, %scale 1073741824..2147483647, %sums -131072..131071",
    ),
}

ADD = """
kernel @raot_qadd_s8(
  %a: i8[span(rows * a_step, columns * 1)], %b: i8[span(rows * b_step, columns * 1)]
) -> (%out: i8[span(rows * out_step, columns * 1)]) {
  for r in 0..rows, c in 0..columns {
    local sum: i32 = (i32(index(more)) + (i32(%a[r * a_step + c]) * i32(index(by_a))))
    sum = (sum + (i32(%b[r * b_step + c]) * i32(index(by_b))))
    %out[r * out_step + c] = cast((sum >> i32(index(shift))), i8, saturate)
  }
}"""
ADD_SIZES = """rows 1..~4, columns 1..~40, out_step columns.., a_step columns.., b_step columns..,
by_a -4194304..4194304, by_b -4194304..4194304, more -268435456..268435456, shift 18..23"""


def _requantize(form: str, suffix: str) -> tuple[MicroKernel, ...]:
    kind, _, least, scales = FORMS[form]
    element, flip = TYPES[suffix]
    low, high = int(flip) - 128, int(flip) + 127
    parts = ("", "1") if form == "f32" else ("2,", "2, 1")
    at = ("group", "0") if form == "f32" else ("group, 0", "0, 0")
    common = {
        "S": f"{form}_u8" if suffix == "u8" else form, "T": element, "F": kind,
        "low": f"{low}..{low} + 28", "high": f"{high} - 37..{high}",
    }  # fmt: skip
    shifts = f", %scale[1] -11..-{least}" if least else ""
    return (
        micro_kernel(
            "requantize_nhwc.h", REQUANTIZE_WINDOWS_SIZES, REQUANTIZE_WINDOWS,
            struct="raot_requantize_nhwc",
            parts=parts[0], ranges=f"%scale {scales}{shifts}".replace("scale", "scales"),
            scaled=_scaled(form, f"%scales[{at[0]}, lane % 4]", "%scales[group, 1, lane % 4]"),
            **common,
        ),
        micro_kernel(
            "requantize_channel.h", REQUANTIZE_CHANNEL_SIZES, REQUANTIZE_CHANNEL,
            struct="raot_requantize_channel", parts=parts[1], ranges=f"%scale {scales}{shifts}",
            scaled=_scaled(form, f"%scale[{at[1]}]", "%scale[1, 0]"), **common,
        ),
    )  # fmt: skip


MULTIPLY, WINDOWS, QUADS = "multiply_s8.h", "multiply_nhwc.h", "depthwise_interleaved4.h"
MICRO_KERNELS = (
    micro_kernel("requantize.h", ADD_SIZES, ADD, struct="raot_qadd"),
    micro_kernel(MULTIPLY, MULTIPLY_ROWS_SIZES, MULTIPLY_ROWS),
    micro_kernel(WINDOWS, MULTIPLY_WINDOWS_SIZES, MULTIPLY_WINDOWS),
    micro_kernel(QUADS, "zero -128..127, count 1..~70", FILL),
    micro_kernel(QUADS, DEPTHWISE_SIZES, DEPTHWISE),
    *(
        micro_kernel(
            "requantize.h", REQUANTIZE_SIZES + ranges, REQUANTIZE, struct="raot_requantize",
            F=form, value=value,
        )
        for form, (value, ranges) in REQUANTIZE_FORMS.items()
    ),
    *(
        micro_kernel(header, sizes, meaning, struct=struct, S=S, T=T, flip=flip)
        for S, (T, flip) in TYPES.items()
        for header, sizes, meaning, struct in (
            (MULTIPLY, GATHER_ROWS_SIZES, GATHER_ROWS, "raot_im2col"),
            (WINDOWS, GATHER_WINDOWS_SIZES, GATHER_WINDOWS, "raot_im2col_nhwc"),
            (QUADS, INTERLEAVE_SIZES, INTERLEAVE, "raot_interleave4"),
        )
    ),
    *(found for form in FORMS for S in TYPES for found in _requantize(form, S)),
)  # fmt: skip
