# SPDX-License-Identifier: Apache-2.0
"""Remove calls, branches' values and constants that no result needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Function, Module, attr_symbols

EXAMPLES = (
    Example(
        why="calls and constants that no result needs",
        before="""
            symbol n in 1..8
            const %c: f32[2] = [1.0, 2.0]
            func @main(%x: f32[n]) {
              %a: f32[n] = exp(%x)
              %b: f32[2] = neg(%c)
              %y: f32[n] = neg(%x)
              return %y
            }""",
        after="""
            symbol n in 1..8
            func @main(%x: f32[n]) {
              %y: f32[n] = neg(%x)
              return %y
            }""",
    ),
)


def run(module: Module) -> Module:
    """Calls have no side effects, so calls with unused results are removed."""
    functions = module.functions
    while True:
        sizes = _sizes(functions)
        fewer = tuple(_live(function, sizes) for function in functions)
        if fewer == functions:
            break
        functions = fewer
    used_functions = {module.main.name} | {
        name for f in functions for call in f.body for name in call.bodies
    }
    functions = tuple(f for f in functions if f.name in used_functions)
    used = {v.name for f in functions for call in f.body for v in call.inputs}
    return replace(
        module,
        functions=functions,
        constants=tuple(c for c in module.constants if c.name in used),
    )


def _live(function: Function, sizes: frozenset[str]) -> Function:
    """Checks stay, and so does the definition of a size that is used."""
    needed = {v.name for v in function.results}
    body: list[Call] = []
    for call in reversed(function.body):
        kept = call.op == "check" or any(out.name in needed for out in call.outs)
        if not kept and not (call.op == "define" and set(call.defines) & sizes):
            continue
        body.append(call)
        needed |= {v.name for v in call.inputs}
    return replace(function, body=tuple(reversed(body)))


def _sizes(functions: Iterable[Function]) -> frozenset[str]:
    """Every size used by a value or an attribute, other than in its own definition."""
    found: set[str] = set()
    for function in functions:
        values = (v for call in function.body for v in (*call.outs, *call.inputs))
        attrs = (attr for call in function.body for _, attr in call.attrs)
        found.update(*(v.type.symbols for v in (*function.params, *function.results, *values)))
        found.update(*map(attr_symbols, attrs))
    return frozenset(found)
