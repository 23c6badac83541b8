# SPDX-License-Identifier: Apache-2.0
"""Half-precision operators that expand to several calls: computed in float32, rounded once.

A frontend expands an operator through `expanded`. Where a first expansion rounds a value to
float16 or bfloat16 between two computations, it is undone and repeated with `builder.widen` set:
calls that compute take half-precision operands as float32, calls that move elements leave them
as they are, and the operator's results are rounded to the types of the first expansion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from relax_aot.inference.build import Args, FunctionBuilder
from relax_aot.ir.graph import Call, Var
from relax_aot.ir.types import DType
from relax_aot.ops import all_ops, has
from relax_aot.ops._op import Trait

HALF = (DType.F16, DType.BF16)

Results = TypeVar("Results")


def selects(op: str, attrs: Mapping[str, Any]) -> bool:
    """Whether the op's results are exact in the type of its operands."""
    return all_ops()[op].is_exact(attrs)


def rounds_between(calls: Sequence[Call]) -> list[str]:
    """The half-precision values that one of these calls rounds and another computes with."""
    rounded: set[str] = set()
    found: list[str] = []
    ops = all_ops()
    for call in calls:
        if call.op not in ops:
            continue
        read = [arg.name for arg in call.inputs if arg.name in rounded]
        exact = selects(call.op, dict(call.attrs))
        half = [out.name for out in call.outs if out.type.dtype in HALF]
        if read and not (exact and len(half) == len(call.outs)):
            found += read
        from_half = call.op == "cast" and all(a.type.dtype in HALF for a in call.inputs)
        if read or not (exact or from_half):
            rounded |= set(half)
    return found


def expanded(
    builder: FunctionBuilder,
    args: Iterable[Var],
    tables: Sequence[dict[Any, Any]],
    expand: Callable[[], Results],
    adapt: Callable[[Results, Callable[[Var], Var]], Results],
) -> Results:
    """The results of `expand`, which adds an operator's calls; see the module's text.

    `tables` are further dictionaries that it changes. `adapt` applies a function to each result.
    """
    if all(arg.type.dtype not in HALF for arg in args):
        return expand()
    start = len(builder.body)
    undo = _undo(builder, tables)
    first = expand()
    if not rounds_between(builder.body[start:]):
        return first
    types: list[DType] = []

    def note(value: Var) -> Var:
        types.append(value.type.dtype)
        return value

    adapt(first, note)
    undo()
    widener = _Widener(builder)
    builder.widen = widener
    try:
        wide = expand()
    finally:
        builder.widen = None
    requested = iter(types)
    return adapt(wide, lambda value: narrowed(builder, value, next(requested)))


def _undo(builder: FunctionBuilder, tables: Sequence[dict[Any, Any]]) -> Callable[[], None]:
    """Takes back what is built from here on. Containers keep their identity: bounds and scopes
    refer to them."""
    shared = builder.shared
    held = {part.name: getattr(shared, part.name) for part in fields(shared)}
    containers: list[Any] = [builder.params, builder.body, *tables]
    containers += [value for value in held.values() if isinstance(value, list | dict | set)]
    copies = [copy(container) for container in containers]

    def undo() -> None:
        for container, before in zip(containers, copies, strict=True):
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(before)
        for name, value in held.items():
            setattr(shared, name, value)

    return undo


def narrowed(builder: FunctionBuilder, value: Var, to: DType) -> Var:
    """The value in the half-precision type that a result or a state has."""
    if value.type.dtype is to or to not in HALF:
        return value
    call = next((call for call in reversed(builder.body) if value in call.outs), None)
    if call is not None and has(call.op, Trait.PERMUTES):
        # Rounded before they are moved, elements take half the memory.
        parts = [narrowed(builder, arg, to) for arg in call.inputs]
        attrs = dict(call.attrs)
        return builder.call(call.op, *parts, name=value.name, origin=call.origin, **attrs)[0]
    widen, builder.widen = builder.widen, None
    origin = "" if call is None else call.origin  # a constant that was widened
    (found,) = builder.call("cast", value, name=value.name, origin=origin, to=to, saturate=False)
    builder.widen = widen
    return found


def working_type(builder: FunctionBuilder, dtype: DType) -> DType:
    """The type of a scalar or a conversion that an expansion asks for."""
    return DType.F32 if builder.widen is not None and dtype in HALF else dtype


class _Widener:
    """The operands and attributes of calls while an operator is computed in float32."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder

    def __call__(self, op: str, args: Args, attrs: dict[str, Any]) -> tuple[Args, dict[str, Any]]:
        if op == "cast":
            return args, attrs
        floats = [a for a in args if a is not None and a.type.dtype in (*HALF, DType.F32)]
        if selects(op, attrs):
            narrow = self._narrow(floats)
            if narrow is not None:
                return tuple(a if a is None else narrow.get(a, a) for a in args), attrs
        changed = {
            name: DType.F32 for name in ("to", "dtype", "precision") if attrs.get(name) in HALF
        }
        # Each call converts its own operands: a conversion of one reader is fused with it.
        given = dict.fromkeys(a for a in args if a is not None)
        wide = {a: self._widened(a) for a in given}
        return tuple(a if a is None else wide[a] for a in args), attrs | changed

    def _narrow(self, floats: Sequence[Var]) -> dict[Var, Var] | None:
        """What stands for operands of a call that only moves them, where none need be widened:
        they are of one type, or those of float32 are constants that are exact in the other."""
        kinds = {a.type.dtype for a in floats}
        if len(kinds) < 2:
            return {}
        half = next(kind for kind in HALF if kind in kinds)
        found = {a: self._exact(a, half) for a in floats if a.type.dtype is DType.F32}
        exact = {a: value for a, value in found.items() if value is not None}
        return exact if len(exact) == len(found) else None

    def _exact(self, arg: Var, half: DType) -> Var | None:
        data = self.builder.numeric(arg)
        if data is None:
            return None
        with np.errstate(all="ignore"):
            narrow = data.astype(half.numpy)
        if not np.array_equal(narrow.astype(np.float32), data, equal_nan=True):
            return None
        return self.builder.constant(arg.name, narrow)

    def _widened(self, arg: Var) -> Var:
        if arg.type.dtype not in HALF:
            return arg
        (wide,) = self.builder.call(
            "cast", arg, name=f"{arg.name}_f32", origin=self._origin(arg), to=DType.F32,
            saturate=False,
        )  # fmt: skip
        return wide

    def _origin(self, arg: Var) -> str:
        return next((c.origin for c in reversed(self.builder.body) if arg in c.outs), "")
