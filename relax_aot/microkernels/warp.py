# SPDX-License-Identifier: Apache-2.0
"""Warps and vectors of CUDA devices: a warp reduces a number of each lane, and all lanes have the
result, with the same bits; a thread copies 16 bytes at a time, from or to aligned memory, or
elements of half precision from any address."""

from __future__ import annotations

from relax_aot.ir.axes import LANES
from relax_aot.ir.types import DType
from relax_aot.microkernels._describe import Parameters, micro_kernels

HALVES = [LANES >> step for step in range(1, LANES.bit_length())]
TREE = "".join(
    f"for i in 0..{half} {{\n  %x[i] = $open%x[i]$comma%x[i + {half}])\n}}\n" for half in HALVES
)
KINDS: Parameters = {
    "kind": ("sum", "max", "min"), "open": ("(", "max(", "min("), "comma": (" + ", ", ", ", "),
}  # fmt: skip
TYPES: Parameters = {"T": ("f32", "f64", "i32", "i64")}
VECTORS = (DType.F32, DType.I32, DType.F16, DType.BF16, DType.I8, DType.U8)
"""Types that a thread copies 16 bytes of."""
MICRO_KERNELS = (
    *micro_kernels(
        "warp.cuh",
        f"""kernel @raot_warp_${{kind}}_$T() -> (%x: $T[{LANES}]) {{
          {TREE}
          for i in 1..{LANES} {{
            %x[i] = %x[0]
          }}
        }}""",
        KINDS,
        TYPES,
    ),
    *micro_kernels(
        "warp.cuh",
        """kernel @raot_$way${count}_$T(%from: $T[$count]) -> (%to: $T[$count]) {
          for i in 0..$count {
            %to[i] = %from[i]
          }
        }""",
        {
            "T": tuple(dtype.value for dtype in VECTORS),
            "count": tuple(str(16 // dtype.bytes) for dtype in VECTORS),
        },
        {"way": ("load", "store")},
    ),
    *micro_kernels(
        "warp.cuh",
        """kernel @raot_load_any8_$T(%from: $T[8]) -> (%to: $T[8]) {
          for i in 0..8 {
            %to[i] = %from[i]
          }
        }""",
        {"T": ("f16", "bf16")},
    ),
    *micro_kernels(
        "warp.cuh",
        """count 0..1, ahead 0..~9
        kernel @raot_load_one_$T(%from: $T[min(1, count) * (ahead + 1)]) -> (%to: $T[1]) {
          %to[0] = select((index(0) < index(count)), %from[ahead], 0.0:$T)
        }""",
        {"T": ("f32", "f16", "bf16")},
    ),
    *micro_kernels(
        "warp.cuh",
        """count 0..1, ahead 0..~9, apart 1..~9
        kernel @raot_load_planes_$T(%from: $T[min(1, count) * (ahead + 7 * apart + 1)]) ->
          (%to: $T[8]) {
          for i in 0..8 {
            %to[i] = select((index(0) < index(count)), %from[ahead + i * apart], 0.0:$T)
          }
        }""",
        {"T": ("f16", "bf16")},
    ),
)
