"""64-bit Arm (SDOT, SMMLA; else SMULL): the tiles of dot2.py by groups of four signed bytes.
Unsigned bytes are moved by 128."""

from __future__ import annotations

from relax_aot.microkernels import dot2
from relax_aot.microkernels._describe import micro_kernel

HEADER = "dot4_i8.h"
ROWS = f"""{dot2.ROWS_HEAD}
    for i in 0..count0, j in 0..count1, t in 0..count2 {{
      local inside: bool = within(first0, i, last0)
      inside = (inside && within(first1, j, last1))
      inside = (inside && within(first2, t, last2))
      local value: i32 = select(inside, i32(%image[r * row_step + {dot2.AT}]),
        i32(index(zero)))
      %to[r, (i * count1 + j) * count2 + t] = i8((value - $moved:i32))
    }}
  }}
}}"""
MOVED = {"s8": "0", "u8": "128"}
MICRO_KERNELS = (
    micro_kernel(
        HEADER, dot2.TILE_SIZES, dot2.TILE, struct="raot_dot4_i8", S="dot4_i8", T="i8", group="4"
    ),
    *(
        found
        for S, T in dot2.TYPES.items()
        for found in (
            micro_kernel(
                HEADER, dot2.PANEL_SIZES, dot2.PANEL, S=f"dot4_i8_{S}", T=T, I="i8", group="4",
                moved=MOVED[S], fill="0",
            ),
            micro_kernel(
                HEADER, dot2.ROWS_SIZES, ROWS, struct="raot_rows_dot4_i8", S=f"dot4_i8_{S}", T=T,
                I="i8",
                group="4", moved=MOVED[S],
            ),
        )
    ),
)  # fmt: skip
