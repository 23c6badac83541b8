# SPDX-License-Identifier: Apache-2.0
"""Graph passes, in order. Each is a function from a module to a module.

Passes of other packages (`relax_aot.passes`) are modules, or anything else, with `run` and
either `AFTER` or `BEFORE`: the name of the pass that they stand next to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from relax_aot.ir.check import problems
from relax_aot.ir.graph import Module
from relax_aot.ops import deduce
from relax_aot.plugins import OURS, Plugin, plugins, refuse_twice
from relax_aot.transforms import (
    drop_dead,
    drop_noop,
    drop_relu,
    fold_constants,
    integers,
    reassociate,
)

Pass = Callable[[Module], Module]

PIPELINE: tuple[tuple[str, Pass], ...] = (
    ("reassociate", reassociate.run),
    ("integers", integers.run),
    ("fold_constants", fold_constants.run),
    ("drop_noop", drop_noop.run),
    ("drop_relu", drop_relu.run),
    ("drop_dead", drop_dead.run),
)


def run(module: Module) -> Module:
    for _, transform in pipeline():
        module = transform(module)
    return module


@cache
def pipeline() -> tuple[tuple[str, Pass], ...]:
    """Our passes and those of other packages, each next to the pass that it names."""
    order = list(PIPELINE)
    waiting = list(plugins("passes"))
    refuse_twice([(name, OURS) for name, _ in order] + [(p.name, p.origin) for p in waiting])
    while waiting:
        names = [name for name, _ in order]
        ready = next((p for p in waiting if _neighbor(p)[0] in names), None)
        if ready is None:
            stuck = waiting[0]
            raise stuck.fail(
                f"unknown pass {_neighbor(stuck)[0]!r} in AFTER or BEFORE; passes are:"
                f" {', '.join(names)}"
            )
        waiting.remove(ready)
        name, offset = _neighbor(ready)
        order.insert(names.index(name) + offset, (ready.name, _guarded(ready)))
    return tuple(order)


def _neighbor(plugin: Plugin) -> tuple[str, int]:
    """The pass to stand next to, and 1 for after it or 0 for before."""
    places = [(getattr(plugin.value, key, None), key == "AFTER") for key in ("AFTER", "BEFORE")]
    given = [(name, int(after)) for name, after in places if name is not None]
    if not callable(getattr(plugin.value, "run", None)) or len(given) != 1:
        raise plugin.fail("a pass has `run(module)` and either AFTER or BEFORE, a pass's name")
    ((name, offset),) = given
    return str(name), offset


def interface(module: Module) -> tuple[object, ...]:
    """Inputs, results and states: they are members of the C interface, so no pass changes them."""
    return module.main.params, module.main.results, module.states


def _guarded(plugin: Plugin) -> Pass:
    """The pass with checks of its result: a valid program with the interface of before."""

    def guarded(module: Module) -> Module:
        changed = plugin.guarded("the pass", plugin.value.run)(module)
        if not isinstance(changed, Module):
            raise plugin.fail(f"the pass returned {type(changed).__name__}, not a Module")
        if interface(changed) != interface(module):
            raise plugin.fail("the pass changed inputs, results or states of the model")
        wrong = next(problems(changed, deduce), None)
        if wrong is not None:
            raise plugin.fail(f"the pass returned an invalid program: {wrong}")
        return changed

    return guarded
