# SPDX-License-Identifier: Apache-2.0
"""Calls of C functions of the user."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from relax_aot.emit.c_dims import dim_c, greatest_c
from relax_aot.emit.c_expr import literal
from relax_aot.emit.c_names import comment
from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.extern import FLOATS, INTEGER_RANGES, Extern, Role
from relax_aot.ir.graph import Attr, Call
from relax_aot.ir.loops import Lit
from relax_aot.ir.types import DType
from relax_aot.planning import Plan, at_most, inner_sizes
from relax_aot.planning.steps import Step, walk_steps


@dataclass(frozen=True, slots=True)
class ExternCall:
    """One call of a C function of the user."""

    extern: Extern
    call: Call

    @property
    def symbols(self) -> frozenset[str]:
        """Sizes that the values of the call are made of."""
        values = (value for _, value in self.call.attrs if isinstance(value, Dim))
        return frozenset[str]().union(*(value.symbols for value in values))

    def arguments(
        self, read: list[str], written: list[str], symbols: Mapping[str, str], bounds: Bounds
    ) -> list[str]:
        """The arguments in C's order; `read` and `written` are the pointers in the call's."""
        pointers = dict(zip((p.name for p in self.extern.read), read, strict=True))
        pointers |= dict(zip((p.name for p in self.extern.written), written, strict=True))
        return [
            _value(self.call.attr(param.name), param.c_type, symbols, bounds)
            if param.role is Role.VALUE
            else pointers[param.name]
            for param in self.extern.params
        ]

    def copied(self) -> Iterator[tuple[int, int, Dim]]:
        """(argument, result, bytes) of what must be copied before a parameter is updated."""
        reads = [param.name for param in self.extern.read]
        for number, param in enumerate(self.extern.written):
            if param.role is Role.UPDATE:
                yield reads.index(param.name), number, self.call.outs[number].type.bytes

    def lines(self, arguments: list[str], pad: str) -> Iterator[str]:
        """A comment that says whose function this is, and the call with what follows from it."""
        origin = f"; from {self.call.origin}" if self.call.origin else ""
        yield f"{pad}/* {comment(f'{self.extern.function}() of {self.extern.header}{origin}')} */"
        text = f"{self.extern.function}({', '.join(arguments)})"
        match self.extern.returns.value:
            case "status":
                yield f"{pad}status = {text};"
                yield f"{pad}if (status != RAOT_OK) {{"
                yield f"{pad}    return status;"
                yield f"{pad}}}"
            case "code":
                yield f"{pad}if ({text} != 0) {{"
                yield f"{pad}    return RAOT_ERR_EXTERN;"
                yield f"{pad}}}"
            case "ignored":
                yield f"{pad}(void){text};"
            case _:
                yield f"{pad}{text};"


def extern_steps(plan: Plan) -> Iterator[ExternCall]:
    for node in walk_steps(plan.program.nodes):
        if isinstance(node, Step) and isinstance(node.callee, Extern):
            yield ExternCall(node.callee, node.call)


def extern_sizes(plan: Plan) -> list[Dim]:
    """Sizes that calls of externs are given, over the entry's symbols."""
    inner = inner_sizes(plan.program, plan.module.bounds)
    values = (value for step in extern_steps(plan) for _, value in step.call.attrs)
    return [at_most(v, inner, plan.module.bounds) for v in values if isinstance(v, Dim)]


def _value(value: Attr, c_type: str, symbols: Mapping[str, str], bounds: Bounds) -> str:
    if isinstance(value, Dim):
        text = dim_c(value, symbols, bounds)
        # These take every int32_t without a conversion that warns.
        if c_type in ("int", "int32_t", "long", "long long", "int64_t", "ptrdiff_t"):
            return text
        return f"({c_type}){text}" if text.isidentifier() else f"({c_type})({text})"
    assert isinstance(value, int | float)
    if c_type in FLOATS:
        return literal(Lit(float(value), FLOATS[c_type]))
    low, high = INTEGER_RANGES[c_type]
    wide = DType.U32 if high < 2**32 else DType.I64 if low < 0 else DType.U64
    narrow = -(2**31) <= value < 2**31
    return literal(Lit(int(value), DType.I32 if narrow else wide))


def value_checks(plan: Plan, macros: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(C condition, message) that a raised bound must still hold: values fit their C types."""
    bounds, inner = plan.module.bounds, inner_sizes(plan.program, plan.module.bounds)
    raised = bounds.lows
    seen: set[tuple[str, str]] = set()
    for step in extern_steps(plan):
        extern, call = step.extern, step.call
        for param in extern.of_role(Role.VALUE):
            value = call.attr(param.name)
            if not isinstance(value, Dim):
                continue
            outer = value.substitute(inner)
            least, greatest = INTEGER_RANGES[param.c_type]
            top = greatest_c(outer, macros, bounds)
            condition = f"{top} <= {min(greatest, 2**31 - 1)}LL"
            least = max(least, -(2**31))
            if interval(outer, raised)[0] < least:
                condition += f" && {greatest_c(-outer, macros, bounds)} <= {-least}LL"
            message = f"{param.name} of {extern.function} must fit {param.c_type}"
            if (condition, message) not in seen:
                seen.add((condition, message))
                yield condition, message


def check_macros(text: str, macros: frozenset[str]) -> None:
    """Refuse macros of a user's header that are words of the generated code."""
    code = re.sub(r'/\*.*?\*/|"[^"\n]*"', " ", text, flags=re.DOTALL)
    clashes = sorted(set(re.findall(r"[A-Za-z_]\w*", code)) & macros)
    if clashes:
        raise RelaxAotError(
            f"a C header of an extern defines the macro {clashes[0]}, which is a name in the"
            " generated code; rename the macro, or the model with --name"
        )
