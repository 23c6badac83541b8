# SPDX-License-Identifier: Apache-2.0
"""Kernels that the examples of strategies begin with."""

import re


def _integer_matmul(depth: int, channels: int) -> str:
    return f"""
    symbol n in 1..9
    const %w: i8[{channels}, {depth}] = splat 5
    kernel @dot(%x: i8[n, {depth}], %w: i8[{channels}, {depth}]) -> (%y: i32[n, {channels}]) {{
      for i in 0..n {{
        for c in 0..{channels} {{
          local sum: i32 = 0:i32
          for k in 0..{depth} {{
            sum = (sum + ((cast(%x[i, k], i32, wrap) - 3:i32) * cast(%w[c, k], i32, wrap)))
          }}
          %y[i, c] = sum
        }}
      }}
    }}"""


def _matmul(rows: int, columns: int) -> str:
    return f"""
    const %w: f32[5, {columns}] = splat 0.5
    kernel @dot(%x: f32[{rows}, 5], %w: f32[5, {columns}]) -> (%y: f32[{rows}, {columns}]) {{
      for i in 0..{rows} {{
        for j in 0..{columns} {{
          local sum: f32 = 0.0:f32
          for k in 0..5 {{
            sum = fma(%x[i, k], %w[k, j], sum)
          }}
          %y[i, j] = sum
        }}
      }}
    }}"""


def _channels_last(text: str) -> str:
    """Windows of twenty channels, which lie side by side."""
    text = re.sub(r"%(x|y)\[c, (.*?)\]", r"%\1[\2, c]", text.replace("[2, 6, 6]", "[6, 6, 20]"))
    text = text.replace("[2, 3,", "[20, 3,").replace("f32[2]", "f32[20]")
    return text.replace("c in 0..2 ", "c in 0..20 ")


def _depthwise(kind: str, taps: int, start: str, added: str, result: str) -> str:
    """Windows of 3 x `taps` on an image with a border."""
    pad, image = taps // 2, f"{kind}[2, 6, 6]"
    weights = f"%w: {kind}[2, 3, {taps}]"
    return f"""
    const {weights} = splat 5
    const %scale: f32[2] = splat 0.5
    kernel @conv(%x: {image}, {weights}, %scale: f32[2]) -> (%y: {image}) {{
      for c in 0..2 {{
        for i in 0..6 {{
          for j in 0..6 {{
            local sum: {start}
            for k in max(-i + 1, 0)..min(-i + 7, 3) {{
              for l in max(-j + {pad}, 0)..min(-j + {pad + 6}, {taps}) {{
                sum = {added.replace("$x", f"%x[c, i + k - 1, j + l - {pad}]")}
              }}
            }}
            %y[c, i, j] = {result}
          }}
        }}
      }}
    }}"""


_TO_I32 = "cast(cast(rint((cast(sum, f32, wrap) * %scale[c])), i32, saturate), i32, wrap)"
_BYTES = (
    "i32 = 0:i32",
    "(sum + (cast($x, i32, wrap) * cast(%w[c, k, l], i32, wrap)))",
    f"cast({_TO_I32}, i8, saturate)",
)
INTEGER_MATMUL = _integer_matmul(4, 2)
WIDE_MATMUL = _integer_matmul(4, 4)
SHORT_SUMS = _integer_matmul(3, 2)
LONG_SUMS = _integer_matmul(50, 2)
MATMUL = _matmul(9, 12)
NARROW_MATMUL = _matmul(5, 7)
ROW_MATMUL = _matmul(1, 128)
DEPTHWISE = _depthwise("f32", 3, "f32 = 0.0:f32", "fma($x, %w[c, k, l], sum)", "sum")
DEPTHWISE_INTEGER = _depthwise("i8", 3, *_BYTES)
DEPTHWISE_FLOATS = DEPTHWISE_INTEGER.replace("(%y: i8", "(%y: f32").replace(
    _BYTES[2], "(cast(sum, f32, wrap) * %scale[c])"
)
DEPTHWISE_LAST = _channels_last(DEPTHWISE_INTEGER)
LONG_WINDOWS = _depthwise("i8", 5, *_BYTES)
LAST_LONG_WINDOWS = _channels_last(LONG_WINDOWS)
LONGER_WINDOWS = _depthwise("i8", 7, *_BYTES)


def _computed(x: str, w: str, at: tuple[str, str], columns: str, depth: str) -> str:
    """A product of bytes, both computed, with zero points."""
    return f"""
    symbol n in 1..40
    kernel @dot(%x: i8[{x}], %w: i8[{w}]) -> (%y: i32[n, {columns}]) {{
      for i in 0..n {{
        for j in 0..{columns} {{
          local sum: i32 = 0:i32
          for k in 0..{depth} {{
            sum = (sum + ((cast(%x[{at[0]}], i32, wrap) - 3:i32)
              * (cast(%w[{at[1]}], i32, wrap) + 5:i32)))
          }}
          %y[i, j] = sum
        }}
      }}
    }}"""


LINE_OF_ONE_CHANNEL = """
    symbol n in 1..40
    const %w: i8[2, 8] = splat 3
    kernel @conv(%x: i8[n, 36], %w: i8[2, 8]) -> (%y: i32[n, 2, 8]) {
      for i in 0..n {
        for c in 0..2 {
          for p in 0..8 {
            local sum: i32 = 0:i32
            for k in 0..8 {
              sum = (sum + ((cast(%x[i, 4*p + k], i32, wrap) - 3:i32) * cast(%w[c, k], i32, wrap)))
            }
            %y[i, c, p] = sum
          }
        }
      }
    }"""
IMAGE_OF_CHANNELS = """
    const %w: i8[16, 16, 3, 3] = splat 3
    kernel @conv(%x: i8[16, 8, 8], %w: i8[16, 16, 3, 3]) -> (%y: i32[16, 8, 8]) {
      for o in 0..16 {
        for i in 0..8 {
          for j in 0..8 {
            local sum: i32 = 0:i32
            for c in 0..16 {
              for k in max(-i + 1, 0)..min(-i + 9, 3) {
                for l in max(-j + 1, 0)..min(-j + 9, 3) {
                  sum = (sum + ((cast(%x[c, i + k - 1, j + l - 1], i32, wrap) - 3:i32)
                    * cast(%w[o, c, k, l], i32, wrap)))
                }
              }
            }
            %y[o, i, j] = sum
          }
        }
      }
    }"""
COMPUTED_COLUMNS = _computed("n, 16", "n, 16", ("i, k", "j, k"), "n", "16")
COMPUTED_LINES = _computed("n, n", "n, 48", ("k, i", "k, j"), "48", "n")


def _wide(value: str) -> str:
    """Two rows of 16 bits by columns of bytes. `value`: of a sum."""
    return f"""
    symbol n in 1..40
    kernel @dot(%x: i16[2, 16], %w: i8[n, 16], %a: f32[2], %b: f32[n]) -> (%y: f32[2, n]) {{
      for i in 0..2 {{
        for j in 0..n {{
          local sum: i32 = 0:i32
          for k in 0..16 {{
            sum = (sum + (i32(%x[i, k]) * i32(%w[j, k])))
          }}
          %y[i, j] = {value}
        }}
      }}
    }}"""


WIDE_ROWS = _wide("(f32(sum) * %a[i])")
WIDE_SCALED = _wide("((f32(sum) * %a[i]) * %b[j])")


def _gathered(rows: str, left: str, right: str, index: str, size: str) -> str:
    """A product of which one factor is rows of a table. `index`: the loop over these rows."""
    read = f"""checked row in 0..8 = %at[{index}]"""
    first, second = (read, "") if index == "i" else ("", read)
    return f"""
    symbol n in 1..40
    const %w: f32[16, 12] = splat 0.5
    kernel @dot(%table: f32[9, 16], %at: i64[n], {rows}) -> (%y: f32[{size}]) {{
      for i in 0..{size.split(",")[0]} {{
        {first}
        for j in 0..{size.split(", ")[1]} {{
          {second}
          local sum: f32 = 0.0:f32
          for k in 0..16 {{
            sum = fma({left}, {right}, sum)
          }}
          %y[i, j] = sum
        }}
      }}
    }}"""


GATHERED_ROWS = _gathered("%w: f32[16, 12]", "%table[row, k]", "%w[k, j]", "i", "n, 12")
GATHERED_COLUMNS = _gathered("%x: f32[5, 16]", "%x[i, k]", "%table[row, k]", "j", "5, n")
DECODED_MATMUL = """
    symbol n in 1..9
    kernel @dot(%x: f32[n, 32], %packed: u8[16, 12], %scales: f32[12]) -> (%y: f32[n, 12]) {
      for i in 0..n {
        for j in 0..12 {
          local sum: f32 = 0.0:f32
          for k in 0..32 {
            sum = fma(%x[i, k], ((cast(((%packed[k // 2, j] >> cast(index(4*(k % 2)), u8, wrap))
              & 15:u8), f32, wrap) - 8.0:f32) * %scales[j]), sum)
          }
          %y[i, j] = sum
        }
      }
    }"""
HALF_MATMUL = """
    symbol n in 1..9
    const %w: f16[12, 5] = splat 0.5
    kernel @dot(%x: f32[n, 5], %w: f16[12, 5]) -> (%y: f32[n, 12]) {
      for i in 0..n {
        for j in 0..12 {
          local sum: f32 = 0.0:f32
          for k in 0..5 {
            sum = fma(%x[i, k], cast(%w[j, k], f32, wrap), sum)
          }
          %y[i, j] = sum
        }
      }
    }"""
HALF_KEYS = """
    symbol m in 8..99
    kernel @scores(%q: f32[5], %keys: f16[5, m]) -> (%y: f32[m]) {
      for j in 0..m {
        local sum: f32 = 0.0:f32
        for k in 0..5 {
          sum = fma(%q[k], cast(%keys[k, j], f32, wrap), sum)
        }
        %y[j] = sum
      }
    }"""
BYTE_KEYS = """
    symbol m in 8..99
    kernel @scores(%q: f32[5], %keys: i8[5, m], %steps: f32[m]) -> (%y: f32[m]) {
      for j in 0..m {
        local sum: f32 = 0.0:f32
        for k in 0..5 {
          sum = fma(%q[k], (cast(%keys[k, j], f32, wrap) * %steps[j]), sum)
        }
        %y[j] = sum
      }
    }"""
ROW_GROUPS = """
    symbol n in 1..9
    const %w: i8[64, 30] = splat 5
    const %s: f32[2, 30] = splat 0.5
    kernel @dot(%x: i8[n, 64], %w: i8[64, 30], %s: f32[2, 30], %r: f32[n]) -> (%y: f32[n, 30]) {
      for i in 0..n {
        for j in 0..30 {
          local total: f32 = 0.0:f32
          for g in 0..2 {
            local sum: i32 = 0:i32
            for k in 0..32 {
              sum = (sum + (cast(%x[i, 32*g + k], i32, wrap) * cast(%w[32*g + k, j], i32, wrap)))
            }
            total = fma(cast(sum, f32, wrap), %s[g, j], total)
          }
          %y[i, j] = (total * %r[i])
        }
      }
    }"""
ONE_ROW = """
    const %w: i8[64, 160] = splat 5
    const %s: f16[2, 160] = splat 0.5
    kernel @dot(%x: i8[64], %w: i8[64, 160], %s: f16[2, 160], %r: f32[2]) -> (%y: f32[160]) {
      for j in 0..160 {
        local total: f32 = 0.0:f32
        for g in 0..2 {
          local sum: i32 = 0:i32
          for k in 0..32 {
            sum = (sum + (cast(%x[32*g + k], i32, wrap) * cast(%w[32*g + k, j], i32, wrap)))
          }
          total = fma(cast(sum, f32, wrap), (cast(%s[g, j], f32, wrap) * %r[g]), total)
        }
        %y[j] = total
      }
    }"""
ROW_BLOCKS = """
    symbol n in 1..9
    const %w: i8[64, 30] = splat 5
    const %s: f16[2, 30] = splat 0.5
kernel @dot(%x: i8[n, 64], %w: i8[64, 30], %s: f16[2, 30], %r: f32[n, 2]) -> (%y: f32[n, 2, 15]) {
      for i in 0..n {
        for h in 0..2 {
          for j in 0..15 {
            local total: f32 = 0.0:f32
            for g in 0..2 {
              local sum: i32 = 0:i32
              for k in 0..32 {
                sum = (sum + (cast(%x[i, 32*g + k], i32, wrap)
                  * cast(%w[32*g + k, 15*h + j], i32, wrap)))
              }
              total = fma(cast(sum, f32, wrap),
                (cast(%s[g, 15*h + j], f32, wrap) * %r[i, g]), total)
            }
            %y[i, h, j] = total
          }
        }
      }
    }"""


def _groups(depth: int, group: int) -> str:
    """Floats by weights of 4 bits."""
    groups = -(-depth // group)
    weights = f"%w: i4[{depth}, 30], %s: f32[{groups}, 30]"
    return f"""
    symbol n in 1..9
    const %w: i4[{depth}, 30] = splat 5
    const %s: f32[{groups}, 30] = splat 0.5
    kernel @dot(%x: f32[n, {depth}], {weights}) -> (%y: f32[n, 30]) {{
      for i in 0..n {{
        for j in 0..30 {{
          local total: f32 = 0.0:f32
          for g in 0..{groups} {{
            local sum: f32 = 0.0:f32
            for k in 0..min(-{group}*g + {depth}, {group}) {{
              sum = fma(%x[i, {group}*g + k], cast(%w[{group}*g + k, j], f32, wrap), sum)
            }}
            total = fma(sum, %s[g, j], total)
          }}
          %y[i, j] = total
        }}
      }}
    }}"""


GROUPS = _groups(20, 8)
FLOAT_GROUPS = _groups(50, 32)
ONE_GROUP = """
    symbol n in 1..9
    const %w: i8[20, 30] = splat 5
    const %s: f32[1, 30] = splat 0.5
    kernel @dot(%x: f32[n, 20], %w: i8[20, 30], %s: f32[1, 30]) -> (%y: f32[n, 30]) {
      for i in 0..n {
        for j in 0..30 {
          local total: f32 = 0.0:f32
          local sum: f32 = 0.0:f32
          for k in 0..20 {
            sum = fma(%x[i, k], cast(%w[k, j], f32, wrap), sum)
          }
          total = fma(sum, %s[0, j], total)
          %y[i, j] = total
        }
      }
    }"""
CONVOLUTION = """
    const %w: f32[4, 2, 3] = splat 0.5
    kernel @conv(%x: f32[2, 40], %w: f32[4, 2, 3]) -> (%y: f32[4, 40]) {
      for f in 0..4 {
        for i in 0..40 {
          local sum: f32 = 0.0:f32
          for c in 0..2 {
            for k in max(-i + 1, 0)..min(-i + 41, 3) {
              sum = fma(%x[c, i + k - 1], %w[f, c, k], sum)
            }
          }
          %y[f, i] = sum
        }
      }
    }"""
HALF_CONVOLUTION = """
    const %w: f16[4, 2, 3] = splat 0.5
    kernel @conv(%x: f32[2, 40], %w: f16[4, 2, 3]) -> (%y: f32[4, 40]) {
      for f in 0..4 {
        for i in 0..40 {
          local sum: f32 = 0.0:f32
          for c in 0..2 {
            for k in max(-i + 1, 0)..min(-i + 41, 3) {
              sum = fma(%x[c, i + k - 1], cast(%w[f, c, k], f32, wrap), sum)
            }
          }
          %y[f, i] = sum
        }
      }
    }"""
CHANNELS_LAST = """
    const %w: f32[8, 1, 1, 4] = splat 0.5
    kernel @conv(%x: f32[1, 3, 5, 4], %w: f32[8, 1, 1, 4]) -> (%y: f32[1, 3, 5, 8]) {
      for i in 0..3 {
        for j in 0..5 {
          for f in 0..8 {
            local sum: f32 = 0.0:f32
            for c in 0..4 {
              sum = fma(%x[0, i, j, c], %w[f, 0, 0, c], sum)
            }
            %y[0, i, j, f] = sum
          }
        }
      }
    }"""


CONVOLUTION_NHWC = """
    const %w: f32[8, 3, 5] = splat 0.5
    kernel @conv(%x: f32[6, 5], %w: f32[8, 3, 5]) -> (%y: f32[6, 8]) {
      for f in 0..8 {
        for i in 0..6 {
          local sum: f32 = 0.0:f32
          for k in max(-i + 1, 0)..min(-i + 7, 3) {
            for c in 0..5 {
              sum = fma(%x[i + k - 1, c], %w[f, k, c], sum)
            }
          }
          %y[i, f] = max(sum, 0.0:f32)
        }
      }
    }"""
IMAGE_NHWC = """
    const %w: f32[8, 3, 3, 5] = splat 0.5
    kernel @conv(%x: f32[9, 11, 5], %w: f32[8, 3, 3, 5]) -> (%y: f32[9, 11, 8]) {
      for f in 0..8 {
        for i in 0..9 {
          for j in 0..11 {
            local sum: f32 = 0.0:f32
            for k in max(-i + 1, 0)..min(-i + 10, 3) {
              for l in max(-j + 1, 0)..min(-j + 12, 3) {
                for c in 0..5 {
                  sum = fma(%x[i + k - 1, j + l - 1, c], %w[f, k, l, c], sum)
                }
              }
            }
            %y[i, j, f] = max(sum, 0.0:f32)
          }
        }
      }
    }"""
DEPTHWISE_NHWC = """
    const %w: f32[8, 3] = splat 0.5
    kernel @conv(%x: f32[6, 8], %w: f32[8, 3]) -> (%y: f32[6, 8]) {
      for c in 0..8 {
        for i in 0..6 {
          local sum: f32 = 0.0:f32
          for k in max(-i + 1, 0)..min(-i + 7, 3) {
            sum = fma(%x[i + k - 1, c], %w[c, k], sum)
          }
          %y[i, c] = max(sum, 0.0:f32)
        }
      }
    }"""

SCALED_ROWS = """
    symbol n in 1..3
    const %w: i8[8, 6] = splat 5
    const %s: f32[6] = splat 0.5
    kernel @dot(%x: i8[n, 8], %w: i8[8, 6], %s: f32[6], %r: f32[n], %b: f32[6]) -> (%y: f32[n, 6]) {
      for i in 0..n {
        for c in 0..6 {
          local sum: i32 = 0:i32
          for k in 0..8 {
            sum = (sum + (cast(%x[i, k], i32, wrap) * cast(%w[k, c], i32, wrap)))
          }
          %y[i, c] = (((cast(sum, f32, wrap) * %s[c]) * %r[i]) + %b[c])
        }
      }
    }"""
SCALED_ROW = """
    const %w: i8[7, 6] = splat 5
    const %s: f32[6] = splat 0.5
    kernel @dot(%x: i8[7], %w: i8[7, 6], %s: f32[6], %r: f32[1], %b: f32[6]) -> (%y: f32[6]) {
      for c in 0..6 {
        local sum: i32 = 0:i32
        for k in 0..7 {
          sum = (sum + (cast(%x[k], i32, wrap) * cast(%w[k, c], i32, wrap)))
        }
        %y[c] = (((cast(sum, f32, wrap) * %s[c]) * %r[0]) + %b[c])
      }
    }"""
KEYS = """
    kernel @scores(%q: f32[9, 16], %keys: f32[12, 16]) -> (%y: f32[9, 12]) {
      for i in 0..9 {
        for j in 0..12 {
          local sum: f32 = 0.0:f32
          for k in 0..16 {
            sum = fma(%q[i, k], %keys[j, k], sum)
          }
          %y[i, j] = sum
        }
      }
    }"""
FEW_KEYS = KEYS.replace("[9, ", "[7, ").replace("0..9", "0..7")
