# SPDX-License-Identifier: Apache-2.0
"""The lanes of a reduction as one number, by a tree: the upper half is added to the lower one until
one lane is left, the first. Any target."""

from __future__ import annotations

from relax_aot.microkernels._describe import Parameters, micro_kernels

MOST = 32
HALF = """for i in 0..count // {parts} {{
  %lanes[i] = $value
}}"""
TREE = "\n".join(
    HALF.format(parts=1 << step).replace("$value", f"$open%lanes[i + count // {1 << step}])")
    for step in range(1, MOST.bit_length())
)
OPEN = {"add": "(%lanes[i] + ", "max": "max(%lanes[i], ", "min": "min(%lanes[i], "}
KINDS: Parameters = {"kind": tuple(OPEN), "open": tuple(OPEN.values())}
MICRO_KERNELS = tuple(
    kernel
    for dtype in ("f32", "f64")
    for kernel in micro_kernels(
        "lanes.h",
        f"count {' | '.join(str(1 << step) for step in range(1, MOST.bit_length()))}\n"
        f"kernel @raot_$kind_lanes_{dtype}() -> (%lanes: {dtype}[count]) {{\n{TREE}\n}}".replace(
            "$kind", "${kind}"
        ),
        KINDS,
    )
)
