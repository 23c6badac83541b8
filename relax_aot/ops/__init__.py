# SPDX-License-Identifier: Apache-2.0
"""The ops: one file per op, or per group of ops that share their rules; and the ops of other
packages (entry points `relax_aot.ops`: an `Op`, several, or a module like a file of this folder).

A file defines `OP` or `OPS`; files that define neither are shared parts.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

from relax_aot.ir.graph import Attr
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import Op, Trait
from relax_aot.plugins import Plugin, PluginError, usable, with_problems


class Ops(dict[str, Op]):
    """Ops by name. `problems` are those of plugins whose ops are missing."""

    problems: tuple[str, ...] = ()

    def __missing__(self, name: str) -> Op:
        raise PluginError(with_problems(f"unknown op {name!r}", self.problems))


@cache
def all_ops() -> Ops:
    """Every op by name, sorted; a duplicate name is refused."""
    found: dict[str, Op] = {}
    for _, own in files():
        for op in own:
            assert op.name not in found, f"op {op.name} is defined twice"
            found[op.name] = op
    others = usable("ops", _ops_of, found)
    found |= {op.name: op for ops in others.values for op in ops}
    ops = Ops(sorted(found.items()))
    ops.problems = others.problems
    return ops


def files() -> Iterator[tuple[ModuleType, tuple[Op, ...]]]:
    """Each file of this folder that defines ops, with its ops."""
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        ops = tuple(getattr(module, "OPS", (module.OP,) if hasattr(module, "OP") else ()))
        if ops:
            yield module, ops


@cache
def former_names() -> dict[str, str]:
    """Names of ops in older text, with the names that replace them."""
    return {old: op.name for op in all_ops().values() for old in op.former}


def has(op: str, trait: Trait) -> bool:
    """Whether the op of this name has the trait; calls of kernels, externs and forms have none."""
    record = all_ops().get(op)
    return record is not None and record.has(trait)


def _ops_of(plugin: Plugin) -> tuple[list[str], tuple[Op, ...]]:
    value = plugin.value
    given = getattr(value, "OPS", (value.OP,) if hasattr(value, "OP") else value)
    ops = tuple(given) if isinstance(given, tuple | list) else (given,)
    for op in ops:
        if not isinstance(op, Op):
            raise plugin.fail(f"expected an Op, several, or a module with OP or OPS; got {op!r}")
        if not op.name.isidentifier():
            raise plugin.fail(f"the name of an op must be an identifier, got {op.name!r}")
    return [op.name for op in ops], tuple(_guarded(plugin, op) for op in ops)


def _guarded(plugin: Plugin, op: Op) -> Op:
    """The op with functions whose unexpected exceptions name the package."""
    names = ("deduce", "lower", "reference", "conditions", "symbolic")
    functions: dict[str, Any] = {
        name: plugin.guarded(f"{name} of op {op.name}", getattr(op, name))
        for name in names
        if getattr(op, name) is not None
    }
    return replace(op, **functions)


def deduce(
    op: str, args: Sequence[TensorType | None], attrs: Mapping[str, Attr]
) -> tuple[TensorType, ...] | None:
    """What an op makes of these arguments, as `ir.check` asks it; None for an unknown op."""
    record = all_ops().get(op)
    if record is None and all_ops().problems:
        record = all_ops()[op]
    if record is None:
        return None
    return record.result_types(args, attrs)
