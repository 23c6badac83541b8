"""The ops: one file each, or one file for a family that differs in a formula only; and those
of other packages (`relax_aot.ops`: an `Op`, several, or a module like a file of this folder).

A file defines `OP` or `OPS`; files that define neither are shared parts.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from relax_aot.ir.graph import Attr
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Op, ShapeError
from relax_aot.plugins import Plugin, PluginError, usable, with_problems


class Ops(dict[str, Op]):
    """Ops by name. `problems` are those of plugins whose ops are missing."""

    problems: tuple[str, ...] = ()

    def __missing__(self, name: str) -> Op:
        raise PluginError(with_problems(f"there is no op {name!r}", self.problems))


@cache
def all_ops() -> Ops:
    """Every op by name, sorted; a duplicate name is refused."""
    found: dict[str, Op] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        single = (module.OP,) if hasattr(module, "OP") else ()
        for op in getattr(module, "OPS", single):
            assert op.name not in found, f"op {op.name} is defined twice"
            found[op.name] = op
    others = usable("ops", _ops_of, found)
    found |= {op.name: op for ops in others.values for op in ops}
    ops = Ops(sorted(found.items()))
    ops.problems = others.problems
    return ops


@cache
def former_names() -> dict[str, str]:
    """Names of ops in older text, with the names that replace them."""
    return {old: op.name for op in all_ops().values() for old in op.former}


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
    signature = inspect.signature(record.deduce)
    try:
        signature.bind(*args, **attrs)
    except TypeError as error:
        takes = ", ".join(str(p).partition(":")[0] for p in signature.parameters.values())
        raise ShapeError(f"{op} takes ({takes}): {error}") from None
    for name, value in attrs.items():
        wanted = str(signature.parameters[name].annotation) if name in signature.parameters else ""
        if not isinstance(value, _KINDS.get(wanted, object)):
            raise ShapeError(f"{op}: {name} is a {wanted}, got {value!r}")
    return record.result_types(args, attrs)


_KINDS: dict[str, type | tuple[type, ...]] = {
    "DType": DType,
    "str": str,
    "bool": bool,
    "int": int,
    "float": (int, float),
    "Sizes": tuple,
    "Sequence[int]": tuple,
}
"""What an attribute must be, by how the op's rule declares it; text may say anything."""
