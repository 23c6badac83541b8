# SPDX-License-Identifier: Apache-2.0
"""Quantization parameters of a call as parameters of its kernel (`ir/parameters.py`).

Where weights are replaceable, what an op's record lists in `quantization` stands in its loops as a
number with a name. After scheduling, these become loads from a table (scheduling/parameters.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relax_aot.ir.graph import Call, Constant
from relax_aot.ir.loops import Number
from relax_aot.ir.parameters import FloatParameter, Parameter
from relax_aot.ops._op import Limits, Op, Single


@dataclass(frozen=True, slots=True)
class Role:
    """What a parameter is to its op, and its limits."""

    name: str
    limits: Limits


@dataclass
class Naming:
    """Names of parameters, and the constants that one call has to itself. `taken`: the sizes."""

    taken: frozenset[str]
    used: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)

    def fresh(self, role: str) -> str:
        while True:
            count = self.used[role] = self.used.get(role, 0) + 1
            name = f"{role}_{count}"
            if name not in self.taken:
                return name

    def number(self, role: Role, value: Any) -> Number:
        """A number that is a parameter."""
        if isinstance(role.limits, Single):
            single = float(np.float32(value))
            return FloatParameter.of(single, self.fresh(role.name), _most(single))
        return Parameter.of(int(value), self.fresh(role.name), role.limits)


def roles_of(op: Op, call: Call, constants: Mapping[str, Constant]) -> tuple[Role | None, ...]:
    """What each argument of a call is; None where it is no parameter that is known."""
    names = [*inspect.signature(op.deduce).parameters]
    names += [""] * (len(call.args) - len(names))
    found: list[Role | None] = []
    for name, arg in zip(names, call.args, strict=False):
        constant = None if arg is None else constants.get(arg.name)
        found.append(None if constant is None else _role(op, name, call, constant.data))
    return tuple(found)


def attributes(op: Op, call: Call, naming: Naming) -> dict[str, Any]:
    """The attributes of a call, those among them that are parameters with a name."""

    def named(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(named(name, part) for part in value)
        role = _role(op, name, call, value)
        return value if role is None else naming.number(role, value)

    return {name: named(name, value) for name, value in call.attrs}


def _role(op: Op, name: str, call: Call, value: Any) -> Role | None:
    found = op.quantization.get(name)
    limits = found(call, value) if callable(found) else found
    return None if limits is None else Role(name, limits)


def own_constants(
    call: Call, roles: Sequence[Role | None], constants: Mapping[str, Constant], naming: Naming
) -> Call:
    """The call with constants of its own where these are parameters of several elements: what is
    equal in one training need not be in another."""
    args = list(call.args)
    for position, (arg, role) in enumerate(zip(call.args, roles, strict=True)):
        constant = None if arg is None or role is None else constants.get(arg.name)
        if constant is None or role is None or constant.data.size == 1:
            continue
        limits = role.limits
        if isinstance(limits, Single):
            limits = words(_most(float(np.max(constant.data, initial=0))))
        name = f"{call.outs[0].name}.{role.name}.{position}"
        narrow = constant.type.dtype.bytes != 4
        own = replace(constant, name=name, limits=() if narrow else (limits,))
        naming.constants[own.name] = own
        args[position] = own.var
    return replace(call, args=tuple(args))


CLASSES = (0.498, 2.0**20, 2.0**127)
"""Greatest scales. With the first, what a sum of 32 bits is worth fits 32 bits too."""


def _most(scale: float) -> float:
    return next((most for most in CLASSES if scale <= most), CLASSES[-1])


def words(most: float) -> tuple[int, int]:
    """The limits of a positive f32 as a word of 32 bits: both grow together."""
    return 1, int(np.float32(most).view(np.int32))
