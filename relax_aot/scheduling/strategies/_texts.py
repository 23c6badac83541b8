"""Kernels that the examples of strategies begin with."""

INTEGER_MATMUL = """
    symbol n in 1..9
    const %w: i8[2, 4] = [1, 2, 3, 4, 5, 6, 7, 8]
    kernel @dot(%x: i8[n, 4], %w: i8[2, 4]) -> (%y: i32[n, 2]) {
      for i in 0..n {
        for c in 0..2 {
          local sum: i32 = 0:i32
          for k in 0..4 {
            sum = (sum + ((cast(%x[i, k], i32, wrap) - 3:i32) * cast(%w[c, k], i32, wrap)))
          }
          %y[i, c] = sum
        }
      }
    }"""
SHORT_SUMS = INTEGER_MATMUL.replace("[2, 4]", "[2, 3]").replace(", 7, 8]", "]")
SHORT_SUMS = SHORT_SUMS.replace("[n, 4]", "[n, 3]").replace("0..4", "0..3")
WIDE_MATMUL = INTEGER_MATMUL.replace("[2, 4] = [1, 2, 3, 4, 5, 6, 7, 8]", "[4, 4] = splat 5")
WIDE_MATMUL = WIDE_MATMUL.replace("[2, 4]", "[4, 4]").replace("[n, 2]", "[n, 4]")
WIDE_MATMUL = WIDE_MATMUL.replace("c in 0..2", "c in 0..4")
MATMUL = """
    const %w: f32[4, 12] = splat 0.5
    kernel @dot(%x: f32[9, 4], %w: f32[4, 12]) -> (%y: f32[9, 12]) {
      for i in 0..9 {
        for j in 0..12 {
          local sum: f32 = 0.0:f32
          for k in 0..4 {
            sum = fma(%x[i, k], %w[k, j], sum)
          }
          %y[i, j] = sum
        }
      }
    }"""
NARROW_MATMUL = MATMUL.replace("12]", "7]").replace("0..12", "0..7")
NARROW_MATMUL = NARROW_MATMUL.replace("[9,", "[5,").replace("0..9", "0..5")
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
DEPTHWISE = """
    const %w: f32[2, 3, 3] = splat 0.5
    kernel @conv(%x: f32[2, 6, 6], %w: f32[2, 3, 3]) -> (%y: f32[2, 6, 6]) {
      for c in 0..2 {
        for i in 0..6 {
          for j in 0..6 {
            local sum: f32 = 0.0:f32
            for k in max(-i + 1, 0)..min(-i + 7, 3) {
              for l in max(-j + 1, 0)..min(-j + 7, 3) {
                sum = fma(%x[c, i + k - 1, j + l - 1], %w[c, k, l], sum)
              }
            }
            %y[c, i, j] = sum
          }
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
DEPTHWISE_INTEGER = """
    const %w: i8[2, 3, 3] = splat 5
    const %scale: f32[2] = splat 0.5
    kernel @conv(%x: i8[2, 6, 6], %w: i8[2, 3, 3], %scale: f32[2]) -> (%y: i8[2, 6, 6]) {
      for c in 0..2 {
        for i in 0..6 {
          for j in 0..6 {
            local sum: i32 = 0:i32
            for k in max(-i + 1, 0)..min(-i + 7, 3) {
              for l in max(-j + 1, 0)..min(-j + 7, 3) {
                sum = (sum + ($x * cast(%w[c, k, l], i32, wrap)))
              }
            }
            %y[c, i, j] = $byte
          }
        }
      }
    }"""
DEPTHWISE_INTEGER = DEPTHWISE_INTEGER.replace("$x", "cast(%x[c, i + k - 1, j + l - 1], i32, wrap)")
DEPTHWISE_INTEGER = DEPTHWISE_INTEGER.replace(
    "$byte",
    "cast(cast(cast(rint((cast(sum, f32, wrap) * %scale[c])), i32, saturate), i32, wrap), "
    "i8, saturate)",
)
LONG_WINDOWS = DEPTHWISE_INTEGER.replace("[2, 3, 3]", "[2, 3, 5]").replace(
    "max(-j + 1, 0)..min(-j + 7, 3)", "max(-j + 2, 0)..min(-j + 8, 5)"
)
LONG_WINDOWS = LONG_WINDOWS.replace("j + l - 1", "j + l - 2")
