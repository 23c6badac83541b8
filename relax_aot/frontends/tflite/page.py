"""The list of operators, for a terminal and for the documentation."""

from __future__ import annotations

from relax_aot.frontends.tflite.table import supported

INTRODUCTION = """\
# TensorFlow Lite models

Made by `relax-aot ops --format tflite --markdown`.

    relax-aot compile kws.tflite --board mps2-an386 -o build/kws

- **Names.** Inputs and outputs are called as the model's signature calls them, where it has one;
  else as their tensors.
- **Sizes.** A size that the converter left open (-1 in the shape signature) is the symbol
  `<input>_<axis>` and needs a bound; an open batch (axis 0) is 1 where no batch has a bound, and a
  note says so. A size that the file fixes is opened by a bound of the same form: `--bound x_0=8`
  makes a batch of 1..8. Constant shapes inside the model follow the batch.
- **Layout.** Channels stay last; nothing is transposed on the way in.
- **Codes.** Quantised values are computed bit by bit as by the reference kernels of LiteRT
  (`BUILTIN_REF`, 2.x), for `i8`, `u8` and `i16` with weights of `i8` or `u8`, with one scale or
  one per channel. Nothing is dequantised that the file does not dequantise. Two kinds of rounding
  occur, as in those kernels: convolutions round twice (gemmlowp), products of matrices once, as
  float64 does; the integers that stand for float64 are compared with it for every result while
  compiling, and where none are equal, float64 itself is used.
- **Floats** agree within rounding: the order of sums is the kernel's own.
- **Files** are not trusted: every offset is checked. All operators that cannot be compiled are
  named in one error, with the way out.
- **State.** Variables inside a model are kept between calls; inputs and outputs that carry state
  are joined with `--state input=output`.

| operator | limits |
|---|---|"""


def lines(markdown: bool) -> list[str]:
    """One line per operator; the page of the documentation with `markdown`."""
    rows = supported()
    if not markdown:
        return [f"{row.operator:32} {row.limits}".rstrip() for row in rows]
    return [INTRODUCTION, *(f"| {row.operator} | {row.limits} |" for row in rows)]
