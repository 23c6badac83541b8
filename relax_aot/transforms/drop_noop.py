# SPDX-License-Identifier: Apache-2.0
"""Remove calls that change nothing, for all values of the symbolic sizes.

A call that makes a result stays: results keep their names, because those names are
fields of the C interface.
"""

from __future__ import annotations

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Function, Module, Var
from relax_aot.ir.rewrite import rewrite_module
from relax_aot.ops import has
from relax_aot.ops._op import Trait

EXAMPLES = (
    Example(
        why="equal shapes for every n",
        before="""
            symbol n in 1..8
            func @main(%x: f32[n, 4]) {
              %a: f32[n, 4] = softmax(%x)
              %b: f32[n, 4] = reshape(%a) {shape=[n, 4]}
              %y: f32[4*n] = reshape(%b) {shape=[4*n]}
              return %y
            }""",
        after="""
            symbol n in 1..8
            func @main(%x: f32[n, 4]) {
              %a: f32[n, 4] = softmax(%x)
              %y: f32[4*n] = reshape(%a) {shape=[4*n]}
              return %y
            }""",
    ),
    Example(
        why="equal shapes only where n is 4",
        before="""
            symbol n in 1..8
            func @main(%x: f32[n, 4]) {
              %a: f32[4, n] = reshape(%x) {shape=[4, n]}
              %y: f32[4, n] = softmax(%a)
              return %y
            }""",
    ),
    Example(
        why="a result keeps its name",
        before="""
            symbol n in 1..8
            func @main(%x: f32[n, 4]) {
              %y: f32[n, 4] = reshape(%x) {shape=[n, 4]}
              return %y
            }""",
    ),
)


def run(module: Module) -> Module:
    return rewrite_module(module, _rule)


def _rule(function: Function, call: Call) -> Call | Var:
    if len(call.outs) != 1 or call.out in function.results or not call.inputs:
        return call
    same = has(call.op, Trait.SAME) and call.inputs[0].type == call.out.type
    noop = same or (
        call.op == "transpose" and call.attr("perm") == tuple(range(call.out.type.rank))
    )
    return call.inputs[0] if noop else call
