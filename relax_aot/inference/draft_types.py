# SPDX-License-Identifier: Apache-2.0
"""Exact types of the values of a draft, from what its annotations say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from relax_aot.errors import RelaxAotError
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.requirements import present
from relax_aot.inference.sizes import MADE_FOR, Shared
from relax_aot.ir.check import RULE_ERRORS
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Attr, Call, Function, Module, Var, assumption_conditions, attr_value
from relax_aot.ir.loops import Kernel
from relax_aot.ir.types import (
    Annotation,
    CoarseType,
    DType,
    ShapeType,
    TensorType,
    TupleType,
)
from relax_aot.ops import deduce

Value = Var | tuple["Value", ...]
INTEGERS = ("i64", "i32")


class RefineError(RelaxAotError):
    """Values whose type cannot be told, or calls that do not fit what they call."""


class Unfit(Exception):
    """Why a call cannot be made exact; its line is added where it is caught."""


@dataclass
class Scope:
    """Where a body stands: what its names mean there."""

    values: dict[str, Value]
    sizes: dict[str, Dim]
    prefix: str = ""
    stack: tuple[str, ...] = ()
    body: list[Call] = field(default_factory=list)

    def dim(self, size: Dim) -> Dim:
        moved = {s: d for s, d in self.sizes.items() if s in size.symbols and d != Dim.of(s)}
        return size.substitute(moved) if moved else size


class DraftTypes:
    """Exact types of values from what a draft says of them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.problems: list[str] = []
        self.kernels = dict(module.kernel_table)
        self.used_kernels: dict[str, None] = {}
        self.branches: list[Function] = []
        self.branch_names: set[str] = set()
        self.names = {c.name for c in module.constants}
        for function in module.functions:
            made = (*function.params, *(out for call in function.body for out in call.outs))
            self.names |= {var.name for var in made}
        self.defined: set[str] = set()
        self.copied: set[str] = set()
        shared = Shared(symbols=list(module.symbols), constants=present(module))
        shared.set_bounds()
        self.builder = FunctionBuilder("main", shared)

    def _with_assumptions(self, *functions: Function, kernels: tuple[Kernel, ...]) -> Module:
        """The module with a check of what was assumed of bounds that may be raised."""
        module, shared = self.module, self.builder.shared
        calls = [call for function in functions for call in function.body]
        defined = {name for call in calls for name in tuple_of(dict(call.attrs).get("defines", ()))}
        unused = self.copied - defined
        symbols = tuple(symbol for symbol in shared.symbols if symbol.name not in unused)
        added = assumption_conditions(shared.assumptions, symbols, MADE_FOR)
        conditions = tuple(dict.fromkeys((*module.conditions, *added)))
        return replace(
            module, functions=functions, kernels=kernels, conditions=conditions, symbols=symbols
        )

    def _own_symbol(self, name: str, scope: Scope) -> str:
        """The symbol of a data-dependent size: each call of a function has one of its own."""
        own = self.builder.inner_name(name) if scope.prefix else name
        if own != name:
            self.copied.add(name)
            declared = next(symbol for symbol in self.module.symbols if symbol.name == name)
            self.builder.symbol(replace(declared, name=own))
        scope.sizes[name] = Dim.of(own)
        return own

    def _constants(self) -> dict[str, Value]:
        return {constant.name: constant.var for constant in self.module.constants}

    def _outs(self, call: Call, count: int) -> tuple[Var, ...]:
        if len(call.outs) != count:
            raise Unfit(f"{call.op} has {count} results, the call names {len(call.outs)}")
        return call.outs

    def _tensor(self, value: Value | None) -> Var | None:
        if isinstance(value, tuple):
            raise Unfit("an op takes tensors, not a tuple; use `get` for its parts")
        return value

    def _attr(self, value: Attr, scope: Scope) -> Attr:
        if isinstance(value, tuple):
            return tuple(self._attr(part, scope) for part in value)
        return attr_value(scope.dim(value)) if isinstance(value, Dim) else value

    def _fits(self, name: str, said: Annotation, found: TensorType, scope: Scope) -> None:
        """Refuse a coarse annotation that contradicts the type."""
        wrong = f"%{name} is {found}, not {said}"
        match said:
            case CoarseType():
                if said.dtype not in (None, found.dtype):
                    raise Unfit(wrong)
                if said.shape is None:
                    return
                sizes = [None if size is None else scope.dim(size) for size in said.shape]
                if len(sizes) != found.rank or not all(
                    size is None or self.builder.proves(size, "==", actual)
                    for size, actual in zip(sizes, found.shape, strict=True)
                ):
                    raise Unfit(f"{wrong}, which is not proven; use match_cast to state it")
            case ShapeType(rank=rank):
                if found.dtype.value not in INTEGERS or found.rank != rank:
                    raise Unfit(wrong)
            case _:
                raise Unfit(wrong)

    def _claims(self, out: Var, var: Var, scope: Scope) -> None:
        """`shape[...]` and `scalar[...]` say what the values of integers are."""
        said: Annotation = out.type
        if not isinstance(said, ShapeType):
            return
        sizes = said.sizes
        known = self.builder.dims(var)
        if known is None:
            raise Unfit(f"the value of %{out.name} is data-dependent, not {said}")
        requested = [scope.dim(size) for size in sizes]
        if not self.builder.same_sizes(known, requested):
            raise Unfit(f"%{out.name} is [{', '.join(map(str, known))}], not {said}")

    def _bind(self, out: Var, value: Value, scope: Scope) -> None:
        """Another name for a value that is there; its annotation may say as much or less."""
        said: Annotation = out.type
        if isinstance(value, Var):
            if isinstance(said, TensorType):
                requested = tuple(scope.dim(size) for size in said.shape)
                same = said.dtype is value.type.dtype
                if not (same and self.builder.same_sizes(requested, value.type.shape)):
                    raise Unfit(f"%{out.name} is {value.type}, not {said}; match_cast claims it")
            else:
                self._fits(out.name, said, value.type, scope)
                self._claims(out, value, scope)
        elif isinstance(said, TupleType):
            if len(said.parts) != len(value):
                raise Unfit(f"%{out.name} has {len(value)} parts, not {len(said.parts)}")
            for part, inner in zip(said.parts, value, strict=True):
                self._bind(Var(out.name, part), inner, scope)  # type: ignore[arg-type]  # a draft
        elif said != CoarseType():
            raise Unfit(f"%{out.name} is a tuple, not {said}")
        scope.values[out.name] = value

    def _own(self, name: str, scope: Scope) -> Var:
        value = scope.values.get(name)
        if not isinstance(value, Var):
            raise Unfit(f"%{name} is no result of a branch: it is a tuple, or has a problem")
        return value

    def _define(self, requested: str, scope: Scope) -> str:
        """The name of a value: its own where it is free, since names of results matter."""
        base = f"{scope.prefix}.{requested}" if scope.prefix else requested
        name, count = base, 1
        while name in self.defined or (name != requested and name in self.names):
            count += 1
            name = f"{base}_{count}"
        self.defined.add(name)
        return name

    def _exact(self, out: Var, found: TensorType | None, scope: Scope) -> TensorType:
        """The type of a result: what is written, where that is exact; check.py compares."""
        said: Annotation = out.type
        match said:
            case TensorType():
                return replace(said, shape=tuple(scope.dim(size) for size in said.shape))
            case CoarseType() if found is None:
                raise Unfit(f"%{out.name}: {said} is known no better: write its type")
            case ShapeType() | CoarseType() if found is not None:
                self._fits(out.name, said, found, scope)
                return found
            case _:
                raise Unfit(f"%{out.name} is a tensor, not {said}")

    def _result(self, name: str, scope: Scope) -> Var:
        """A result of the entry is a value of its own name: a field of the C interface."""
        value = scope.values.get(name)
        if isinstance(value, tuple):
            self.problems.append(f"result %{name} is a tuple; return its parts")
        if not isinstance(value, Var):
            return Var(name, TensorType(DType.F32, ()))  # never seen: there is a problem
        if value.name == name:
            return value
        own = Var(name, value.type)
        scope.body.append(Call((own,), "copy", (value,), (), "result"))
        return own


def deduced(op: str, args: Sequence[Var | None], attrs: Mapping[str, Attr]) -> Sequence[TensorType]:
    try:
        return deduce(op, [None if arg is None else arg.type for arg in args], attrs) or ()
    except RULE_ERRORS as error:
        raise Unfit(f"wrong arguments or attributes for {op} ({error})") from None


def tuple_of(value: Attr) -> tuple[Attr, ...]:
    return value if isinstance(value, tuple) else ()


def shown(value: Value | None) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return "nothing" if value is None else str(value.type)
