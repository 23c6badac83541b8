"""Remove calls, branches' values and constants that no result needs."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.graph import Call, Function, Module


def run(module: Module) -> Module:
    """Calls have no side effects, so a call whose results nobody uses is gone."""
    bodies = {f.name: _live(f) for f in module.functions}
    functions = tuple(bodies[f.name] for f in module.functions)
    used_functions = {module.main.name} | {
        call.ref(side) for f in functions for call in f.body if call.op == "if" for side in SIDES
    }
    functions = tuple(f for f in functions if f.name in used_functions)
    used = {v.name for f in functions for call in f.body for v in call.inputs}
    return replace(
        module,
        functions=functions,
        constants=tuple(c for c in module.constants if c.name in used),
    )


SIDES = ("then", "else")


def _live(function: Function) -> Function:
    needed = {v.name for v in function.results}
    body: list[Call] = []
    for call in reversed(function.body):
        if not any(out.name in needed for out in call.outs):
            continue
        body.append(call)
        needed |= {v.name for v in call.inputs}
    return replace(function, body=tuple(reversed(body)))
