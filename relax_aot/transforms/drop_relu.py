# SPDX-License-Identifier: Apache-2.0
"""Remove the lower limit of a ReLU or a clip at 0 whose results are only quantized by a range from
0 on (`quantize_by_range` of the form "positive"), for which values below 0 are 0.

Between both may be calls that move elements: they commute with a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Constant, Function, Module, Var
from relax_aot.ir.rewrite import rewrite_module
from relax_aot.ops import has
from relax_aot.ops._op import Trait

EXAMPLES = (
    Example(
        why="the only reader moves and quantizes",
        before="""
            symbol n in 1..8
            func @main(%x: f32[n, 4]) {
              %a: f32[n, 4] = add(%x, %x)
              %b: f32[n, 4] = relu(%a)
              %c: f32[n, 2, 2] = reshape(%b) {shape=[n, 2, 2]}
              %y: i8[n, 2, 2], %s: f32[n] = quantize_by_range(%c) {form="positive"}
              return %y, %s
            }""",
        after="""
            symbol n in 1..8
            func @main(%x: f32[n, 4]) {
              %a: f32[n, 4] = add(%x, %x)
              %c: f32[n, 2, 2] = reshape(%a) {shape=[n, 2, 2]}
              %y: i8[n, 2, 2], %s: f32[n] = quantize_by_range(%c) {form="positive"}
              return %y, %s
            }""",
    ),
    Example(
        why="the upper limit stays",
        before="""
            const %low: f32[] = [0.0]
            const %high: f32[] = [6.0]
            func @main(%x: f32[2, 4]) {
              %a: f32[2, 4] = clip(%x, %low, %high)
              %y: i8[2, 4], %s: f32[2] = quantize_by_range(%a) {form="positive"}
              return %y, %s
            }""",
        after="""
            ...
              %a: f32[2, 4] = clip(%x, _, %high)
            ...""",
    ),
    Example(
        why="a sum reads the result, too",
        before="""
            func @main(%x: f32[2, 4]) {
              %a: f32[2, 4] = relu(%x)
              %y: i8[2, 4], %s: f32[2] = quantize_by_range(%a) {form="positive"}
              %z: f32[2, 4] = add(%a, %x)
              return %y, %s, %z
            }""",
    ),
)


def run(module: Module) -> Module:
    readers = Counter(
        name
        for function in module.functions
        for name in (
            *(var.name for call in function.body for var in call.inputs),
            *(var.name for var in function.results),
        )
    )
    dropped = {name for function in module.functions for name in _limited(function, readers)}
    table = module.constant_table

    def rule(_: Function, call: Call) -> Call | Var:
        if not call.outs or call.outs[0].name not in dropped:
            return call
        if call.op == "relu":
            return call.inputs[0]
        x, low, *high = call.args
        return call if _is_above(low, table) else replace(call, args=(x, None, *high))

    return rewrite_module(module, rule)


def _limited(function: Function, readers: Mapping[str, int]) -> list[str]:
    """The values that are read once, by a quantization from 0 on, and may be negative then."""
    made = {out.name: call for call in function.body for out in call.outs}
    found = []
    for call in function.body:
        if call.op != "quantize_by_range" or call.attr("form") != "positive":
            continue
        name = call.inputs[0].name
        while name in made and readers[name] == 1:
            before = made[name]
            if before.op in ("relu", "clip"):
                found.append(name)
            if not has(before.op, Trait.MOVES):
                break
            name = before.inputs[0].name
    return found


def _is_above(low: Var | None, table: Mapping[str, Constant]) -> bool:
    """Whether the lower limit of a clip changes values that are not negative."""
    known = table.get(low.name) if low is not None else None
    return known is None or bool(np.greater(known.data, 0).any())
