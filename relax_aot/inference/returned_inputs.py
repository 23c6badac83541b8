# SPDX-License-Identifier: Apache-2.0
"""Inputs of the entry that are results as well.

Such a result is a value and a field of the interface of its own, copied from the input; the
name of the input is its alias.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.graph import Alias, Call, Module, Var
from relax_aot.ir.names import unused_name


def copy_returned_inputs(module: Module) -> Module:
    main = module.main
    returned = [v for v in main.results if v in main.params]
    if not returned:
        return module
    taken = {c.name for c in module.constants}
    for function in module.functions:
        taken |= {v.name for v in function.params}
        taken |= {out.name for call in function.body for out in call.outs}
    copies: dict[str, Var] = {}
    for var in returned:
        copies[var.name] = Var(unused_name(var.name, taken), var.type)
    calls = [Call((copies[v.name],), "copy", (v,), (), "result") for v in returned]
    states = tuple(
        replace(state, output=copies[state.output].name)
        if state.output in copies and state.output != state.input
        else state
        for state in module.states
    )
    aliases = [Alias(copies[v.name].name, module.source_name(v.name)) for v in returned]
    results = tuple(copies.get(v.name, v) for v in main.results)
    changed = replace(main, body=(*main.body, *calls), results=results)
    return replace(
        module,
        functions=(changed, *module.functions[1:]),
        states=states,
        aliases=(*module.aliases, *aliases),
    )
