# SPDX-License-Identifier: Apache-2.0
"""What the ops of a finished module need of run-time sizes.

A frontend collects conditions while it builds. A module that was read as text states
some of them; the rest is found here by the same rules.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.inference.branch_sizes import narrowed
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.sizes import Shared, SizeError
from relax_aot.ir.graph import Call, Condition, Constant, Function, Module
from relax_aot.ops import all_ops
from relax_aot.ops._op import must_not_exceed

Bodies = dict[str, tuple[Call, ...]]


def complete(module: Module) -> Module:
    """The module with every condition that is neither proved nor stated: of sizes that are
    known on entry in its list, of others as a `check` where they are known."""
    shared = Shared(
        symbols=list(module.symbols),
        constants=present(module),
        conditions=list(module.conditions),
    )
    shared.set_bounds()
    made: Bodies = {}
    _follow(module, module.main, FunctionBuilder(module.main.name, shared), made)
    functions = tuple(replace(f, body=made.get(f.name, f.body)) for f in module.functions)
    return replace(module, functions=functions, conditions=tuple(shared.conditions))


def present(module: Module) -> dict[str, Constant]:
    """The constants whose values are known: a text may lack the bytes of some."""
    return {c.name: c for c in module.constants if not c.absent}


def _follow(module: Module, function: Function, builder: FunctionBuilder, made: Bodies) -> None:
    """Conditions in the order of calls; small integer values are followed on the way."""
    for call in function.body:
        record = all_ops().get(call.op)
        attrs = dict(call.attrs)
        if record is not None:
            types = [None if arg is None else arg.type for arg in call.args]
            for condition in record.conditions(*types, **attrs):
                builder.require(condition, call.origin)
            for size in [size for out in call.outs for size in out.type.shape]:
                builder.require(must_not_exceed(0, size, f"a size of %{call.outs[0].name}"))
            builder.learn(call.op, call.args, attrs, call.outs)
        elif call.op == "if":
            _branches(module, call, builder, made)
        else:
            for name in call.bodies:
                _follow(module, module.function_table[name], builder.branch(name), made)
        builder.body.append(call)
    made[function.name] = tuple(builder.body)


def _branches(module: Module, call: Call, builder: FunctionBuilder, made: Bodies) -> None:
    """Check the size conditions of the branches on entry, if the condition of the `if` is
    data-dependent. If it depends on sizes, a branch may only need what its sizes fulfill."""
    known = builder.known(call.inputs[0])
    truth = None if known is None else known.reshape(-1)[0]
    stated = len(builder.shared.conditions)
    for side, name in zip(("then", "else"), call.bodies, strict=True):
        with builder.narrowed(narrowed(truth, side == "then", builder.bounds)):
            _follow(module, module.function_table[name], builder.branch(name), made)
    needs = builder.shared.conditions[stated:]
    if isinstance(truth, Condition) and needs:
        raise SizeError(
            f"a branch of an if that {truth} decides needs {needs[0]}, which does not hold for all "
            "sizes of this branch"
        )
