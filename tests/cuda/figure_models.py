# SPDX-License-Identifier: Apache-2.0
"""Functions whose machine code has figures (test_figures.py): attention, and products with weights
of half precision and of bytes."""

from __future__ import annotations

import re

ATTENTION = """
symbol n in 1..4096
func @main(%q: f32[4, n, 64], %k: f32[4, 64, n], %v: f32[4, n, 64]) {
  %scores: f32[4, n, n] = matmul(%q, %k)
  %w: f32[4, n, n] = softmax(%scores) {axis=2}
  %y: f32[4, n, 64] = matmul(%w, %v)
  return %y
}"""

BY_ROWS = ATTENTION.replace("%k: f32[4, 64, n]", "%r: f32[4, n, 64]").replace(
    "%scores", "%k: f32[4, 64, n] = transpose(%r) {perm=[0, 2, 1]}\n  %scores", 1
)


LINEAR = """
symbol n in 1..4096
func @main(%x: f16[n, 768], %w: f16[768, 768], %b: f16[768]) {
  %y: f16[n, 768] = gemm(%x, %w, %b) {trans_b=true}
  return %y
}"""


DECODED = """
symbol n in 1..4096
func @main(%x: f16[n, 768], %w: i8[768, 768], %s: f16[768, 1], %b: f16[768]) {
  %f: f16[768, 768] = cast(%w) {to=f16}
  %d: f16[768, 768] = mul(%f, %s)
  %y: f16[n, 768] = gemm(%x, %d, %b) {trans_b=true}
  return %y
}"""


GROUPS = """
symbol n in 1..4096
func @main(%x: f16[n, 768], %w: i8[768, 24, 32], %s: f16[768, 24, 1], %b: f16[768]) {
  %f: f16[768, 24, 32] = cast(%w) {to=f16}
  %d: f16[768, 24, 32] = mul(%f, %s)
  %r: f16[768, 768] = reshape(%d) {shape=[768, 768]}
  %y: f16[n, 768] = gemm(%x, %r, %b) {trans_b=true}
  return %y
}"""
GROUPS_AND_ZEROS = GROUPS.replace("%b:", "%z: i8[768, 24, 1], %b:").replace(
    "  %d: f16[768, 24, 32] = mul(%f, %s)",
    """  %g: f16[768, 24, 1] = cast(%z) {to=f16}
  %h: f16[768, 24, 32] = sub(%f, %g)
  %d: f16[768, 24, 32] = mul(%h, %s)""",
)


def packed_weights(bits: int, zeros: str = "_", rows: str = "1..4096") -> str:
    """A product with constant weights in groups of 32. `zeros`: `%z` for zero points."""
    return f"""
symbol n in {rows}
const %w: u8[768, 24, {4 * bits}] = splat 5
const %s: f16[768, 24] = splat 0.5
const %z: u8[768, {3 * bits}] = splat 3
func @main(%x: f16[n, 768], %b: f16[768]) {{
  %p: f16[n, 768] = matmul_nbits(%x, %w, %s, {zeros}) {{bits={bits}, block=32}}
  %y: f16[n, 768] = add(%p, %b)
  return %y
}}"""


FOUR_BITS = """
symbol n in 1..4096
const %w: i4[768, 768] = splat 5
const %s: f16[24, 768] = splat 0.5
func @main(%x: f16[n, 768]) {
  %d: f16[768, 768] = dequantize(%w, %s, _) {axis=0, block=32, to=f16}
  %y: f16[n, 768] = matmul(%x, %d)
  return %y
}"""


def heads(size: int, score: str, *operands: str) -> str:
    """Attention of half-precision values. `score`: what makes %scores of %sums."""
    inputs = "".join(f", {one}" for one in operands)
    return f"""
symbol n in 1..4096
func @main(%q: f16[4, n, {size}], %r: f16[4, n, {size}], %v: f16[4, n, {size}]{inputs}) {{
  %k: f16[4, {size}, n] = transpose(%r) {{perm=[0, 2, 1]}}
  %sums: f16[4, n, n] = matmul(%q, %k)
  {score}
  %w: f16[4, n, n] = softmax(%scores) {{axis=2}}
  %y: f16[4, n, {size}] = matmul(%w, %v)
  return %y
}}"""


SCALED = "%scores: f16[4, n, n] = mul(%sums, %c)"
MASKED = SCALED.replace("%scores", "%scaled") + "\n  %scores: f16[4, n, n] = add(%scaled, %mask)"
SEEN = SCALED.replace("%scores", "%scaled")
SEEN += "\n  %scores: f16[4, n, n] = where(%seen, %scaled, %fill)"
MASKED_SUMS = "%scores: f16[4, n, n] = add(%sums, %mask)"
MADE = SCALED.replace("%scores", "%scaled")
MADE += """
  %zero: f16[] = fill() {dtype=f16, shape=[], value=0.0}
  %lowest: f16[] = fill() {dtype=f16, shape=[], value=-inf}
  %mask: f16[n, n] = where(%seen, %zero, %lowest)
  %scores: f16[4, n, n] = add(%scaled, %mask)"""
SOFTMAX = "  %w: f16[4, n, n] = softmax(%scores) {axis=2}\n"
WIDE = """%wide: f32[4, n, n] = cast(%sums) {to=f32}
  %scaled: f32[4, n, n] = mul(%wide, %c)
  %scores: f32[4, n, n] = add(%scaled, %mask)
  %powers: f32[4, n, n] = softmax(%scores) {axis=2}
  %w: f16[4, n, n] = cast(%powers) {to=f16}"""
CAUSAL = SCALED.replace("%scores", "%scaled")
CAUSAL += "\n  %scores: f16[4, n, n] = attention_mask(%scaled) {right=0}"
WINDOW = CAUSAL.replace("right", "left=256, right")
FLOATS = """
symbol n in 1..4096
func @main(%q: f16[4, n, 64], %r: f16[4, n, 64], %v: f16[4, n, 64]) {
  %k: f16[4, 64, n] = transpose(%r) {perm=[0, 2, 1]}
  %a: f32[4, n, 64] = cast(%q) {to=f32}
  %b: f32[4, 64, n] = cast(%k) {to=f32}
  %scores: f32[4, n, n] = matmul(%a, %b)
  %w: f32[4, n, n] = softmax(%scores) {axis=2}
  %c: f32[4, n, 64] = cast(%v) {to=f32}
  %made: f32[4, n, 64] = matmul(%w, %c)
  %y: f16[4, n, 64] = cast(%made) {to=f16}
  return %y
}"""
CAUSAL_FLOATS = FLOATS.replace(
    "%scores: f32[4, n, n] = matmul(%a, %b)",
    """%sums: f32[4, n, n] = matmul(%a, %b)
  %scores: f32[4, n, n] = attention_mask(%sums) {right=0}""",
)
WINDOW_FLOATS = CAUSAL_FLOATS.replace("right", "left=256, right")
MASKED_FLOATS = FLOATS.replace("%v: f16[4, n, 64])", "%v: f16[4, n, 64], %mask: f32[n, n])")
MASKED_FLOATS = MASKED_FLOATS.replace(
    "%scores: f32[4, n, n] = matmul(%a, %b)",
    """%sums: f32[4, n, n] = matmul(%a, %b)
  %scores: f32[4, n, n] = add(%sums, %mask)""",
)
CHOSEN_FLOATS = FLOATS.replace("%v: f16[4, n, 64])", "%v: f16[4, n, 64], %seen: bool[n, n])")
CHOSEN_FLOATS = CHOSEN_FLOATS.replace(
    "%scores: f32[4, n, n] = matmul(%a, %b)",
    """%sums: f32[4, n, n] = matmul(%a, %b)
  %lowest: f32[] = fill() {dtype=f32, shape=[], value=-inf}
  %scores: f32[4, n, n] = where(%seen, %sums, %lowest)""",
)


def grouped(size: int, ends: str = "right=0") -> str:
    """Attention of half-precision values whose heads of queries share heads of keys."""
    return f"""
symbol n in 1..4096
func @main(%q: f16[4, 3, n, {size}], %r: f16[4, 1, n, {size}], %v: f16[4, 1, n, {size}]) {{
  %k: f16[4, 1, {size}, n] = transpose(%r) {{perm=[0, 1, 3, 2]}}
  %sums: f16[4, 3, n, n] = matmul(%q, %k)
  %scores: f16[4, 3, n, n] = attention_mask(%sums) {{{ends}}}
  %w: f16[4, 3, n, n] = softmax(%scores) {{axis=3}}
  %y: f16[4, 3, n, {size}] = matmul(%w, %v)
  return %y
}}"""


PIXEL_ROWS = """
    symbol n in 1..64
    const %w: f16[96, 3, 3, 64] = splat 0.5
    kernel @conv(%x: f16[n, 28, 28, 64], %w: f16[96, 3, 3, 64]) -> (%y: f16[n, 28, 28, 96]) {
      for b in 0..n {
        for i in 0..28 {
          for j in 0..28 {
            for c in 0..96 {
              local sum: f16 = 0.0:f16
              for k in max(-i + 1, 0)..min(-i + 29, 3) {
                for l in max(-j + 1, 0)..min(-j + 29, 3) {
                  for d in 0..64 {
                    sum = (sum + (%x[b, i + k - 1, j + l - 1, d] * %w[c, k, l, d]))
                  }
                }
              }
              %y[b, i, j, c] = max(sum, 0.0:f16)
            }
          }
        }
      }
    }"""
CONVOLUTION = """
    symbol n in 1..64
    const %w: f32[96, 64, 3, 3] = splat 0.5
    kernel @conv(%x: f32[n, 64, 28, 28], %w: f32[96, 64, 3, 3]) -> (%y: f32[n, 96, 28, 28]) {
      for b in 0..n {
        for c in 0..96 {
          for i in 0..28 {
            for j in 0..28 {
              local sum: f32 = 0.0:f32
              for d in 0..64 {
                for k in max(-i + 1, 0)..min(-i + 29, 3) {
                  for l in max(-j + 1, 0)..min(-j + 29, 3) {
                    sum = fma(%x[b, d, i + k - 1, j + l - 1], %w[c, d, k, l], sum)
                  }
                }
              }
              %y[b, c, i, j] = max(sum, 0.0:f32)
            }
          }
        }
      }
    }"""

FIRST_LAYER = """
    symbol n in 1..64
    const %w: f32[64, 3, 7, 7] = splat 0.5
    kernel @conv(%x: f32[n, 3, 56, 56], %w: f32[64, 3, 7, 7]) -> (%y: f32[n, 64, 28, 28]) {
      for b in 0..n {
        for c in 0..64 {
          for i in 0..28 {
            for j in 0..28 {
              local sum: f32 = 0.0:f32
              for d in 0..3 {
                for k in max(-2*i + 3, 0)..min(-2*i + 59, 7) {
                  for l in max(-2*j + 3, 0)..min(-2*j + 59, 7) {
                    sum = fma(%x[b, d, 2*i + k - 3, 2*j + l - 3], %w[c, d, k, l], sum)
                  }
                }
              }
              %y[b, c, i, j] = max(sum, 0.0:f32)
            }
          }
        }
      }
    }"""


TRANSPOSED = """
symbol n in 1..64
const %w: f32[64, 96, 4, 4] = splat 0.5
func @main(%x: f32[n, 64, 14, 14]) {
  %y: f32[n, 96, 28, 28] = conv_transpose(%x, %w) {strides=[2, 2], pads=[1, 1, 1, 1],
    dilations=[1, 1], output_padding=[0, 0], group=1}
  return %y
}"""
POINTS = """
    symbol n in 1..64
    kernel @conv(%x: f32[n, 256, 49], %w: f32[512, 256], %b: f32[512]) -> (%y: f32[n, 512, 49]) {
      for b in 0..n {
        for c in 0..512 {
          for i in 0..49 {
            local sum: f32 = %b[c]
            for d in 0..256 {
              sum = fma(%x[b, d, i], %w[c, d], sum)
            }
            %y[b, c, i] = max(sum, 0.0:f32)
          }
        }
      }
    }"""


def points(channels: int, filters: int) -> str:
    """A convolution of floats of 1 x 1 for images of any size."""
    return f"""
    symbol n in 1..64
    symbol h in 1..64
    symbol w in 1..64
    const %w: f32[{filters}, {channels}, 1, 1] = splat 0.5
    func @main(%x: f32[n, {channels}, h, w], %b: f32[{filters}]) {{
      %y: f32[n, {filters}, h, w] = conv(%x, %w, %b) {{strides=[1, 1], pads=[0, 0, 0, 0],
        dilations=[1, 1], group=1}}
      return %y
    }}"""


BYTES = """
    symbol n in 1..4096
    kernel @dot(%x: i8[n, 768], %w: i8[768, 768], %b: i32[768]) -> (%y: i32[n, 768]) {
      for i in 0..n {
        for j in 0..768 {
          local sum: i32 = %b[j]
          for k in 0..768 {
            sum = (sum + (cast(%x[i, k], i32, wrap) * cast(%w[j, k], i32, wrap)))
          }
          %y[i, j] = sum
        }
      }
    }"""
BYTE_WINDOWS = """
    symbol n in 1..64
    kernel @conv(%x: i8[n, 28, 28, 64], %w: i8[96, 3, 3, 64]) -> (%y: i32[n, 28, 28, 96]) {
      for b in 0..n {
        for i in 0..28 {
          for j in 0..28 {
            for c in 0..96 {
              local sum: i32 = 0:i32
              for k in max(-i + 1, 0)..min(-i + 29, 3) {
                for l in max(-j + 1, 0)..min(-j + 29, 3) {
                  for d in 0..64 {
                    sum = (sum + ((cast(%x[b, i + k - 1, j + l - 1, d], i32, wrap) - 3:i32)
                      * cast(%w[c, k, l, d], i32, wrap)))
                  }
                }
              }
              %y[b, i, j, c] = sum
            }
          }
        }
      }
    }"""
HALF_WINDOWS = """
    symbol n in 1..64
    const %w: f16[96, 64, 3, 3] = splat 0.5
    kernel @conv(%x: f16[n, 28, 28, 64], %w: f16[96, 64, 3, 3]) -> (%y: f16[n, 28, 28, 96]) {
      for b in 0..n {
        for c in 0..96 {
          for i in 0..28 {
            for j in 0..28 {
              local sum: f16 = 0.0:f16
              for d in 0..64 {
                for k in max(-i + 1, 0)..min(-i + 29, 3) {
                  for l in max(-j + 1, 0)..min(-j + 29, 3) {
                    sum = (sum + (%x[b, i + k - 1, j + l - 1, d] * %w[c, d, k, l]))
                  }
                }
              }
              %y[b, i, j, c] = max(sum, 0.0:f16)
            }
          }
        }
      }
    }"""


def matmul(kind: str, weights: str, depth: int = 768) -> str:
    """`weights`: `k, j` or `j, k`, the order of their axes."""
    half, x = kind != "f32", f"{kind}[n, {depth}]"
    w = f"{depth}, 768" if weights == "k, j" else f"768, {depth}"
    total = f"cast(cast(sum, f32, wrap), {kind}, wrap)" if half else "sum"
    added = f"(sum + (%x[i, k] * %w[{weights}]))" if half else f"fma(%x[i, k], %w[{weights}], sum)"
    return f"""
    symbol n in 1..4096
    kernel @dot(%x: {x}, %w: {kind}[{w}], %b: {kind}[768]) -> (%y: {kind}[n, 768]) {{
      for i in 0..n {{
        for j in 0..768 {{
          local sum: {kind} = 0.0:{kind}
          for k in 0..{depth} {{
            sum = {added}
          }}
          %y[i, j] = max(({total} + %b[j]), 0.0:{kind})
        }}
      }}
    }}"""


def one_row(kind: str, weights: str) -> str:
    return matmul(kind, weights).replace("n in 1..4096", "n in 1..1")


def symbolic(weights: str, depth: str, columns: str) -> str:
    """A product of half precision whose rows have lengths that are known at run time."""
    sizes = {"k": depth, "j": columns}
    text = matmul("f16", weights).replace("j in 0..768", f"j in 0..{columns}")
    text = text.replace("k in 0..768", f"k in 0..{depth}")
    text = text.replace("%x: f16[n, 768]", f"%x: f16[n, {depth}]")
    text = text.replace("%y: f16[n, 768]", f"%y: f16[n, {columns}]")
    text = text.replace("f16[768]", f"f16[{columns}]")
    shape = ", ".join(sizes[axis] for axis in weights.split(", "))
    return "symbol m in 1..2048\nsymbol c in 1..2048" + text.replace("768, 768", shape)


def batches(x: str, w: str) -> str:
    """A batch of products of half precision of any sizes. `x`, `w`: the order of the axes."""
    left, right = ("[b, " + axes.replace("i", "n").replace("j", "m") + "]" for axes in (x, w))
    return f"""
    symbol b in 1..8
    symbol n in 1..1024
    symbol k in 1..1024
    symbol m in 1..1024
    kernel @dot(%x: f16{left}, %w: f16{right}) -> (%y: f16[b, n, m]) {{
      for a in 0..b {{
        for i in 0..n {{
          for j in 0..m {{
            local sum: f16 = 0.0:f16
            for d in 0..k {{
              sum = (sum + (%x[a, {x.replace("k", "d")}] * %w[a, {w.replace("k", "d")}]))
            }}
            %y[a, i, j] = sum
          }}
        }}
      }}
    }}"""


def halves(convolution: str) -> str:
    text = convolution.replace("f32", "f16").replace("= fma(", "= (sum + (")
    return text.replace(", %w[c, d, k, l], sum)", " * %w[c, d, k, l]))")


def any_size(text: str) -> str:
    for old, new in (
        ("28, 28", "h, w"), ("i in 0..28", "i in 0..h"), ("j in 0..28", "j in 0..w"),
        ("-i + 29", "-i + h + 1"), ("-j + 29", "-j + w + 1"),
    ):  # fmt: skip
        text = text.replace(old, new)
    return "symbol h in 1..64\nsymbol w in 1..64" + text


def of_sizes(text: str, channels: int, filters: int) -> str:
    """Of a convolution of at most 64 images with 64 channels and 96 filters."""
    return (
        re.sub(r"(?<!1\.\.)64", "C", text).replace("96", str(filters)).replace("C", str(channels))
    )


ANY_WINDOWS = any_size(HALF_WINDOWS)
