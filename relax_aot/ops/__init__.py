"""The ops: one file each, or one file for a family that differs in a formula only; and those
of other packages (`relax_aot.ops`: an `Op`, several, or a module like a file of this folder).

A file defines `OP` or `OPS`; files that define neither are shared parts.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache

from relax_aot.ir.graph import Attr
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Op, ShapeError
from relax_aot.plugins import OURS, Plugin, plugins, refuse_twice


@cache
def all_ops() -> dict[str, Op]:
    """Every op by name, sorted; a name that is defined twice is refused."""
    found: dict[str, Op] = {}
    origins: list[tuple[str, str]] = []
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        single = (module.OP,) if hasattr(module, "OP") else ()
        for op in getattr(module, "OPS", single):
            assert op.name not in found, f"op {op.name} is defined twice"
            found[op.name] = op
            origins.append((op.name, OURS))
    for plugin in plugins("ops"):
        for op in _ops_of(plugin):
            origins.append((op.name, plugin.origin))
            refuse_twice(origins)
            found[op.name] = op
    return dict(sorted(found.items()))


@cache
def former_names() -> dict[str, str]:
    """Names of ops in older text, with the names that replace them."""
    return {old: op.name for op in all_ops().values() for old in op.former}


def _ops_of(plugin: Plugin) -> tuple[Op, ...]:
    value = plugin.value
    given = getattr(value, "OPS", (value.OP,) if hasattr(value, "OP") else value)
    ops = tuple(given) if isinstance(given, tuple | list) else (given,)
    for op in ops:
        if not isinstance(op, Op):
            raise plugin.fail(f"expected an Op, several, or a module with OP or OPS; got {op!r}")
        if not op.name.isidentifier():
            raise plugin.fail(f"the name of an op is an identifier, not {op.name!r}")
    return ops


def deduce(
    op: str, args: Sequence[TensorType | None], attrs: Mapping[str, Attr]
) -> tuple[TensorType, ...] | None:
    """What an op makes of these arguments, as `ir.check` asks it; None for an unknown op."""
    record = all_ops().get(op)
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
