"""Builds functions call by call: deduces types, folds what is known, collects conditions.

Frontends and the text parser build through here, so that a program is well-typed from its
first line. Shape arithmetic (`Shape -> Gather -> Concat -> Reshape`) is evaluated while
building: a small integer value may be known as an array of `Dim`s (see `known`), and the
calls that made it are dead as soon as nobody needs its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relax_aot.errors import RelaxAotError
from relax_aot.inference import float_sizes, value_ranges
from relax_aot.ir.dims import (
    Bounds,
    Dim,
    Relation,
    assume,
    interval,
    prove_eq,
    prove_le,
    prove_lt,
)
from relax_aot.ir.graph import (
    Alias,
    Attr,
    Call,
    Condition,
    Constant,
    Function,
    Module,
    State,
    Symbol,
    Var,
    attr_value,
    attrs_of,
)
from relax_aot.ir.types import DType, Ref, TensorType
from relax_aot.ops import all_ops
from relax_aot.ops._op import Array, ShapeError, depends_on_sizes

FOLD_BUDGET_BYTES = 64 * 1024 * 1024
"""Folding never makes a constant larger than this (a splat is free)."""

ENCODED_BYTES = 512
"""Constants of bytes, greater than this, are not unfolded into wider types at once."""

KNOWN_LIMIT = 4096
"""Integer values of more elements than this take no part in shape arithmetic."""

MADE_FOR = "the code was made for this"

EXACT = (DType.I64, DType.I32, DType.BOOL)
"""Element types that take part in shape arithmetic: narrower integers would wrap."""


class SizeError(RelaxAotError):
    """A condition on sizes that no allowed size fulfils."""


class UnboundedSize(RelaxAotError):
    """A size that data decide, and of which nothing is known."""

    def __init__(self, symbol: str, origin: str) -> None:
        self.symbol = symbol
        super().__init__(f"data decide {origin}; give --bound {symbol}=... for the greatest")


@dataclass
class Shared:
    """What all functions of a module under construction share."""

    symbols: list[Symbol] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    by_digest: dict[tuple[str, str], Var] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    known: dict[str, Array] = field(default_factory=dict)
    measured: dict[str, Array] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    narrowed: dict[str, tuple[int, int]] = field(default_factory=dict)
    requested: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """What the user says of symbols that are no input's: sizes that data decide."""
    used: set[str] = field(default_factory=set)
    """Those of them that the model turned out to have."""
    bounds: Bounds = field(default_factory=lambda: Bounds.of({}))
    replaceable: bool = False

    assumed: list[Relation] = field(default_factory=list)
    assumptions: list[Relation] = field(default_factory=list)
    """What proofs took from highs that may be raised when the project is compiled."""
    assumptions_in_part: list[Relation] = field(default_factory=list)
    """The same where it needs to hold for the narrowed sizes only."""

    def set_bounds(self) -> None:
        declared = {s.name: (s.low, s.high) for s in self.symbols}
        ranges = declared | self.narrowed
        raisable = frozenset(
            s.name
            for s in self.symbols
            for low, high in [ranges[s.name]]
            if s.raisable and high == s.high and (low == s.low or low < high)
        )
        assumptions = self.assumptions_in_part if self.narrowed else self.assumptions
        bounds = replace(Bounds.of(ranges), raisable=raisable, assumptions=assumptions)
        self.bounds = assume(bounds, self.assumed)


Args = tuple[Var | None, ...]
Widen = Callable[[str, Args, dict[str, Any]], tuple[Args, dict[str, Any]]]


def value_name(wanted: str) -> str:
    """A value name of the text form: letters, digits, `_`, `.`."""
    base = re.sub(r"[^A-Za-z0-9_.]+", "_", wanted).strip("_.") or "v"
    return f"v{base}" if base[0].isdigit() else base


class FunctionBuilder:
    """One function under construction; `branch` opens another in the same module."""

    def __init__(self, name: str = "main", shared: Shared | None = None) -> None:
        self.name = name
        self.shared = shared or Shared()
        self.params: list[Var] = []
        self.body: list[Call] = []
        self.widen: Widen | None = None
        """Changes the operands of calls of half precision (widen.py)."""

    # Names, symbols, parameters, constants

    def unique(self, wanted: str) -> str:
        """A value name that is unique in the module."""
        base = value_name(wanted)
        name, count = base, 1
        while name in self.shared.names:
            count += 1
            name = f"{base}_{count}"
        self.shared.names.add(name)
        return name

    def symbol(self, symbol: Symbol) -> Dim:
        assert all(symbol.name != s.name for s in self.shared.symbols), symbol
        self.shared.symbols.append(symbol)
        self.shared.set_bounds()
        return Dim.of(symbol.name)

    @contextmanager
    def narrowed(self, ranges: Mapping[str, tuple[int, int]]) -> Iterator[None]:
        """What is built inside runs for these sizes only, so that proofs may use them."""
        shared, outer = self.shared, self.shared.narrowed
        shared.narrowed = outer | dict(ranges)
        shared.set_bounds()
        try:
            yield
        finally:
            shared.narrowed = outer
            shared.set_bounds()

    @property
    def bounds(self) -> Bounds:
        return self.shared.bounds

    def param(self, name: str, type_: TensorType) -> Var:
        var = Var(self.unique(name), type_)
        self.params.append(var)
        return var

    def constant(self, name: str, data: Array) -> Var:
        """A constant; equal data under one type is stored once, unless it may be replaced."""
        type_ = TensorType(DType.of(data.dtype), tuple(Dim.of(int(n)) for n in data.shape))
        constant = Constant(name, type_, data)
        key = (str(type_), constant.digest)
        if self.shared.replaceable or key not in self.shared.by_digest:
            constant = Constant(self.unique(name), type_, data)
            self.shared.constants[constant.name] = constant
            self.shared.by_digest[key] = constant.var
        return self.shared.by_digest[key]

    # What is known of values

    def known(self, var: Var) -> Array | None:
        """The value as an array of objects (int, float, bool, Dim, Condition), where known."""
        constant = self.shared.constants.get(var.name)
        if constant is not None:
            return constant.data.astype(object) if constant.data.size <= KNOWN_LIMIT else None
        if var.type.elements == Dim.of(0) and all(size.is_constant for size in var.type.shape):
            return np.empty([size.constant for size in var.type.shape], object)
        return self.shared.known.get(var.name)

    def numeric(self, var: Var) -> Array | None:
        """The value as a plain array, where it is a constant."""
        constant = self.shared.constants.get(var.name)
        return None if constant is None else constant.data

    def measured(self, var: Var) -> Array | None:
        """A float value as an array of quotients of sizes, where known (float_sizes.py)."""
        data = self.numeric(var)
        if data is not None:
            return float_sizes.of_constant(data) if data.size <= KNOWN_LIMIT else None
        return self.shared.measured.get(var.name)

    def dims(self, var: Var) -> tuple[Dim, ...] | None:
        """The elements of a known integer value as sizes, flattened."""
        value = self.known(var)
        if value is None or any(isinstance(v, float | Condition) for v in value.flat):
            return None
        return tuple(v if isinstance(v, Dim) else Dim.of(int(v)) for v in value.flat)

    def know(self, var: Var, value: Array) -> None:
        """State the value of an integer parameter or call (an object array)."""
        self.shared.known[var.name] = value

    # Calls

    def call(
        self, op: str, *args: Var | None, name: str = "", origin: str = "", **attrs: Any
    ) -> tuple[Var, ...]:
        """Append a call, or fold it; returns its results."""
        record = all_ops()[op]
        if self.widen is not None:
            args, attrs = self.widen(op, args, attrs)
        attrs = {key: attr_value(value) for key, value in attrs.items()}
        types = record.result_types([a.type if a is not None else None for a in args], attrs)
        for condition in record.conditions(
            *(a.type if a is not None else None for a in args), **attrs
        ):
            self.require(condition, origin)
        folded = self._fold(op, args, attrs, types, name or op)
        if folded is not None:
            return folded
        outs = tuple(Var(self.unique(name or op), t) for t in types)
        self.body.append(Call(outs, op, args, attrs_of(attrs), origin))
        self.learn(op, args, attrs, outs)
        return outs

    def assume(self, conditions: Iterable[Condition]) -> None:
        """Conditions that the user states: checked on entry, and facts from here on."""
        for condition in conditions:
            self.require(condition)
            self.shared.assumed.append((condition.relation, condition.left, condition.right))
        self.shared.set_bounds()

    def require(self, condition: Condition, origin: str = "") -> None:
        """Prove a condition, or keep it for a check on entry."""
        left, right = condition.left, condition.right
        inner = {s.name for s in self.shared.symbols if s.inner}
        # Sizes that the model computes cannot be checked on entry.
        computed = bool((left.symbols | right.symbols) & inner)
        bounds = self.bounds if computed else replace(self.bounds, assumptions=None)
        if condition.relation == "==":
            if prove_eq(left, right, bounds):
                return
            closed = bounds.closed
            impossible = prove_lt(left, right, closed) or prove_lt(right, left, closed)
        else:
            if prove_le(left, right, bounds):
                return
            impossible = prove_lt(right, left, bounds.closed)
        if impossible:
            why = f": {condition.origin}" if condition.origin else ""
            used = [s for s in self.shared.symbols if s.name in left.symbols | right.symbols]
            allowed = ", ".join(f"{s.name} is {s.low}..{s.high}" for s in used)
            bound = f"; {allowed} (--bound)" if used else ""
            raise SizeError(
                f"{left} {condition.relation} {right} holds for no allowed size{why}{bound}"
            )
        found = Condition(condition.relation, left, right, condition.origin or origin)
        inner = {s.name for s in self.shared.symbols if s.inner}
        if (left.symbols | right.symbols) & inner:
            self._check(found)
        else:
            self._keep(found)

    def _keep(self, found: Condition) -> None:
        if all(str(found) != str(c) for c in self.shared.conditions):
            self.shared.conditions.append(found)

    def keep_assumptions(self) -> None:
        """What followed from highs becomes a check, so that they may be raised. Where it
        cannot be checked on entry, or holds in part only, the highs are what is checked."""
        shared = self.shared
        entry = {s.name: s.high for s in shared.symbols if not s.inner and s.low < s.high}
        fixed = {s.name for s in shared.symbols if not s.inner} - entry.keys()
        highs: set[str] = set()
        for relation, left, right in shared.assumptions:
            symbols = left.symbols | right.symbols
            if symbols <= entry.keys() | fixed:
                self.require(Condition(relation, left, right, MADE_FOR))
            else:
                highs |= entry.keys()
        for _, left, right in shared.assumptions_in_part:
            symbols = left.symbols | right.symbols
            highs |= symbols if symbols <= entry.keys() | fixed else entry.keys()
        for name in sorted(highs & entry.keys()):
            self.require(Condition("<=", Dim.of(name), Dim.of(entry[name]), MADE_FOR))

    def _check(self, condition: Condition) -> None:
        """A check where the sizes are known: some of them the model computes."""
        attrs = {name: getattr(condition, name) for name in ("relation", "left", "right")}
        call = Call((), "check", (), attrs_of(attrs), condition.origin)
        if call not in self.body:
            self.body.append(call)

    def define(
        self, var: Var, element: int, name: str, most: Dim | None, origin: str, least: int = 0
    ) -> Dim:
        """A size that is an element of an integer value. `most` bounds it where something is
        known; what the user says of the symbol bounds it in any case."""
        symbol = self.inner_name(name)
        if var.type.dtype in (DType.F16, DType.BF16):
            # Memory holds its bits; sizes are read from numbers.
            (var,) = self.call("cast", var, name=symbol, origin=origin, to=DType.I64)
        if most is None:
            calls = {out.name: call for call in self.body for out in call.outs}
            found = value_ranges.greatest(var, calls, self.known, self.bounds)
            most = None if found is None else Dim.of(found)
        given = self.shared.requested.get(symbol)
        if given is not None:
            self.shared.used.add(symbol)
            least = max(least, given[0])
            above = most is None or not prove_le(most, given[1], self.bounds)
            most = Dim.of(given[1]) if above or most is None else most
        if most is None:
            raise UnboundedSize(symbol, origin)
        high = max(interval(most, self.bounds)[1], least)
        size = self.symbol(Symbol(symbol, least, high, origin, inner=True))
        attrs: dict[str, Attr] = {
            "defines": (symbol,), "element": element, "low": least, "most": most,
        }  # fmt: skip
        self.body.append(Call((), "define", (var,), attrs_of(attrs), origin))
        return size

    def inner_name(self, wanted: str) -> str:
        """A name for a symbol that the model computes; users bound it by that name."""
        taken = {s.name.lower() for s in self.shared.symbols}
        base = re.sub(r"[^A-Za-z0-9_]+", "_", wanted).strip("_") or "size"
        base = base if base[0].isalpha() else f"n_{base}"
        name, count = base, 1
        while name.lower() in taken:
            count += 1
            name = f"{base}_{count}"
        return name

    def _fold(
        self,
        op: str,
        args: tuple[Var | None, ...],
        attrs: dict[str, Any],
        types: tuple[TensorType, ...],
        name: str,
    ) -> tuple[Var, ...] | None:
        """Evaluate now where all arguments are constants and the result is small."""
        record = all_ops()[op]
        values = [None if a is None else self.numeric(a) for a in args]
        absent = any(v is None and a is not None for v, a in zip(values, args, strict=True))
        if absent or any(depends_on_sizes(v) for v in attrs.values()):
            return None
        if any(not t.bytes.is_constant or t.bytes.constant > FOLD_BUDGET_BYTES for t in types):
            return None
        if not args and (op != "fill" or types[0].elements.constant > KNOWN_LIMIT):
            return None  # one number fills it, which readers see as it is
        if op == "dequantize" and args[0] is not None and args[0].type.dtype.bytes == 1:
            return None
        if any(_encodes(a, t) for a in args for t in types):
            return None
        try:
            with np.errstate(all="ignore"):
                results = record.reference(*values, **attrs)
        except IndexError:
            # A constant index out of range: the call stays, and ends the run with a status.
            return None
        results = results if isinstance(results, tuple) else (results,)
        return tuple(
            self.constant(name, np.asarray(r, t.dtype.numpy).reshape([int(d) for d in t.shape]))
            for r, t in zip(results, types, strict=True)
        )

    def learn(
        self, op: str, args: tuple[Var | None, ...], attrs: dict[str, Any], outs: tuple[Var, ...]
    ) -> None:
        """Shape arithmetic: the value of a small integer result, where it can be told."""
        record = all_ops()[op]
        if len(outs) != 1 or outs[0].type.dtype not in (*EXACT, *float_sizes.EXACT_BELOW):
            return
        (out,) = outs
        elements = out.type.elements
        if not elements.is_constant or elements.constant > KNOWN_LIMIT:
            return
        if not all(size.is_constant for size in out.type.shape):
            return  # no elements, in a shape that depends on sizes
        from_float = op == "cast" and args[0] is not None and args[0].type.dtype.is_float
        if out.type.dtype.is_float or from_float:
            self._measure(op, args, attrs, out)
            return
        if record.symbolic is None:
            return
        if op in ("shape_of", "size_of"):
            values: list[Array | None] = [np.array(args[0].type.shape + (0,), object)[:-1]]  # type: ignore[union-attr]
        else:
            values = [None if a is None else self.known(a) for a in args]
            if any(v is None and a is not None for v, a in zip(values, args, strict=True)):
                return
        try:
            result = record.symbolic(self.bounds, *values, **attrs)
        except IndexError:
            return
        if result is not None and self._fits(result, out.type.dtype):
            shape = [d.constant for d in out.type.shape]
            self.know(out, np.asarray(result, object).reshape(shape))

    def _measure(
        self, op: str, args: tuple[Var | None, ...], attrs: dict[str, Any], out: Var
    ) -> None:
        """The same through floats, and back to integers."""
        values: list[Array] = []
        for arg in args:
            value = None
            if arg is not None:
                value = self.measured(arg) if arg.type.dtype.is_float else self.known(arg)
            if value is None:
                return
            values.append(value)
        dtype, symbolic = out.type.dtype, all_ops()[op].symbolic
        try:
            result = float_sizes.follow(op, values, attrs, dtype, self.bounds, symbolic)
        except IndexError:
            return
        if result is None:
            return
        result = result.reshape([size.constant for size in out.type.shape])
        if dtype.is_float:
            self.shared.measured[out.name] = result
        elif dtype in (DType.I32, DType.I64) and self._fits(result, dtype):
            self.know(out, result)

    def _fits(self, value: Array, dtype: DType) -> bool:
        """Whether no integer leaves its element type: what would wrap is not known."""
        if not dtype.is_int:
            return True
        least, most = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
        for number in np.asarray(value, object).flat:
            if isinstance(number, Condition):
                continue
            low, high = interval(Dim.of(number), self.bounds)
            if low < least or high > most:
                return False
        return True

    def own(self, var: Var, name: str) -> Var:
        """A copy of `var` that is a value of its own, whatever is known of `var`."""
        out = Var(self.unique(name), var.type)
        self.body.append(Call((out,), "copy", (var,), (), "result"))
        return out

    def own_results(self, results: Iterable[Var]) -> tuple[Var, ...]:
        """Results with a copy for each that is made elsewhere, constant, or a duplicate."""
        made = {o.name for c in self.body for o in c.outs}
        owned: list[Var] = []
        for result in results:
            foreign = result.name not in made or result in owned
            owned.append(self.own(result, f"{result.name}.copy") if foreign else result)
        return tuple(owned)

    # Control flow

    def branch(self, name: str) -> FunctionBuilder:
        """A function that may use the values of this one; see `conditional`."""
        return FunctionBuilder(name, self.shared)

    def conditional(
        self,
        condition: Var,
        branches: tuple[FunctionBuilder, FunctionBuilder],
        results: tuple[tuple[Var, ...], tuple[Var, ...]],
        names: Iterable[str],
        origin: str,
    ) -> tuple[Var, ...]:
        """`if`: both branches give the same ranks and element types.

        A size in which they disagree becomes an inner symbol, defined by the branch taken.
        Values of this function that a branch uses become its parameters.
        """
        first, second = branches
        results = (first.own_results(results[0]), second.own_results(results[1]))
        captured: dict[str, Var] = {}
        for builder, outs in zip(branches, results, strict=True):
            captured |= {v.name: v for v in builder.free(outs)}
        params = tuple(captured[n] for n in sorted(captured))
        symbols: list[str] = []
        sizes: list[tuple[Dim, Dim]] = []
        outs = tuple(
            Var(self.unique(name), self._join(a.type, b.type, name, symbols, sizes, origin))
            for name, a, b in zip(names, *results, strict=True)
        )
        for builder, found in zip(branches, results, strict=True):
            builder.params = list(params)
            self.shared.functions.append(builder.finish(found))
        attrs: dict[str, Attr] = {
            "then": Ref(branches[0].name),
            "else": Ref(branches[1].name),
            "defines": tuple(symbols),
            "then_sizes": tuple(a for a, _ in sizes),
            "else_sizes": tuple(b for _, b in sizes),
        }
        self.body.append(Call(outs, "if", (condition, *params), attrs_of(attrs), origin))
        return outs

    def _join(
        self,
        a: TensorType,
        b: TensorType,
        name: str,
        symbols: list[str],
        sizes: list[tuple[Dim, Dim]],
        origin: str,
    ) -> TensorType:
        if a.dtype is not b.dtype or a.rank != b.rank:
            raise ShapeError(f"the branches of an If give {a} and {b} for {name}")
        shape = []
        for axis, pair in enumerate(zip(a.shape, b.shape, strict=True)):
            if prove_eq(*pair, self.bounds):
                shape.append(pair[0])
            elif pair in sizes:
                shape.append(Dim.of(symbols[sizes.index(pair)]))
            else:
                shape.append(self._inner(name, axis, pair, origin))
                symbols.append(str(shape[-1]))
                sizes.append(pair)
        return TensorType(a.dtype, tuple(shape))

    def _inner(self, name: str, axis: int, pair: tuple[Dim, Dim], origin: str) -> Dim:
        ranges = [interval(dim, self.bounds) for dim in pair]
        wanted = self.inner_name(f"{name}_{axis}")
        low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
        return self.symbol(
            Symbol(wanted, max(low, 0), high, f"axis {axis} of {origin}", inner=True)
        )

    def free(self, results: Iterable[Var]) -> list[Var]:
        """Values used here but made elsewhere, in order of use; constants are global."""
        made = {v.name for v in self.params} | {o.name for c in self.body for o in c.outs}
        used = [v for c in self.body for v in c.inputs] + list(results)
        constants = self.shared.constants
        return list(
            dict.fromkeys(v for v in used if v.name not in made and v.name not in constants)
        )

    # Results

    def finish(self, results: Iterable[Var]) -> Function:
        return Function(self.name, tuple(self.params), tuple(self.body), tuple(results))

    def module(
        self,
        results: Iterable[Var],
        states: Iterable[State] = (),
        aliases: Iterable[Alias] = (),
        source: str = "",
    ) -> Module:
        """The module with this function as its entry. Every result must be a value of its
        own: neither a parameter, nor a constant, nor twice the same (insert `copy`)."""
        shared = self.shared
        self.keep_assumptions()
        return Module(
            functions=(self.finish(results), *shared.functions),
            constants=tuple(shared.constants.values()),
            symbols=tuple(shared.symbols),
            conditions=tuple(shared.conditions),
            states=tuple(states),
            aliases=tuple(aliases),
            source=source,
            replaceable=shared.replaceable,
        )


def _encodes(arg: Var | None, result: TensorType) -> bool:
    """The argument is the small form of a large constant, say of quantized weights. Whether
    it stays so is decided when its readers are known (transforms/fold_constants.py)."""
    if arg is None or arg.type.dtype.bytes > 1 or not arg.type.bytes.is_constant:
        return False
    return ENCODED_BYTES < arg.type.bytes.constant < result.bytes.constant
