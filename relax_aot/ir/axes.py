# SPDX-License-Identifier: Apache-2.0
"""The named axes of parallel loops, and the scopes of memory.

Layouts (layout.py) place elements on the same axes. From the outside to the inside: a `block`
runs on a `core`; a `warp` is a group of `thread`s in lockstep, whose members are `lane`s.
"""

from __future__ import annotations

PARALLEL_AXES = ("block", "core", "warp", "thread", "lane")
DEVICE_AXES = ("block", "warp", "thread", "lane")
"""Those of a GPU."""

LANES = 32
"""Lanes of a warp."""

ARENA, CORE, SHARED, LANE, REGISTER = "arena", "core", "shared", "lane", "register"
SCOPES = (ARENA, CORE, SHARED, LANE, REGISTER)
"""Who accesses a buffer. `arena`: every iteration. `core`: each iteration of the outermost
parallel loop has a copy of its own, undefined at its start. `shared`: the iterations of the
parallel loops inside the block that reserves it. `register`: the iteration that reserves it.

`lane`: reserved by a warp, its first axis is LANES, and each lane accesses its own index alone:
registers of that lane. Micro-kernels that a warp calls take all of it. Outside of loops over
lanes, an element is read with a number as its first index: that lane gives it to all others."""
