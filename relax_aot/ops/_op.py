# SPDX-License-Identifier: Apache-2.0
"""What an op is: its type rule, its loops, its meaning, and samples to test it with.

`deduce`, `lower` and `reference` take the arguments in order; attributes are keyword-only
parameters. An absent optional argument is None.

    deduce(*types, **attrs)                 -> TensorType, or a tuple of them
    lower(k, *inputs, *outputs, **attrs)       writes the loops
    reference(*arrays, **attrs)             -> array, or a tuple of them (NumPy)
    conditions(*types, **attrs)             -> what must hold of run-time sizes

An op with a `record`, a dataclass of its attributes, has rules that take one before the other
arguments: deduce(attrs, *types), lower(attrs, k, *inputs, *outputs) and so on.

Attributes that are sizes may be symbolic (`Dim`) in `deduce`, `lower` and `conditions`;
in `reference` they are plain integers.

Shape arithmetic: an op with `symbolic` takes part in it at compile time. Its arguments
are then object arrays whose elements are int, `Dim`, bool, or a `Condition` (a boolean that
depends on sizes); it returns such an array, or None where it cannot tell.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Bounds, Dim, Max, dim_max, dim_min
from relax_aot.ir.graph import Call, Condition
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._attributes import (
    Attribute,
    attributes_of,
    problem_of,
    with_attributes,
    with_optional,
)

POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
VARIADIC = inspect.Parameter.VAR_POSITIONAL

Array = NDArray[Any]
Types = TensorType | tuple[TensorType, ...]
Range = tuple[float, float]


class ShapeError(RelaxAotError):
    """Types that an op cannot take; the message gives what was expected and what came."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ShapeError(message)


def require_one_type(name: str, *types: TensorType | None) -> None:
    """Refuses arguments of different element types; absent ones have none."""
    given = [one for one in types if one is not None]
    equal = len({one.dtype for one in given}) <= 1
    require(equal, f"{name} needs equal element types, got {', '.join(map(str, given))}")


@dataclass(frozen=True, slots=True)
class Sample:
    """Arguments that a test runs. With `symbolic`, it also runs with each distinct size
    above 1 replaced by a symbol; numbers above 1 in the attributes named in `sizes` are
    then replaced too. Sizes in `fixed` stay numbers."""

    args: tuple[Array | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[str, ...] = ()
    fixed: tuple[int, ...] = ()
    symbolic: bool = True
    rtol: float = 1e-5
    atol: float = 1e-6


def is_float(array: Array) -> bool:
    """Whether its elements are floats, bfloat16 (which NumPy takes for bytes) included."""
    return DType.of(array.dtype).is_float


def no_conditions(*_args: TensorType | None, **_attrs: Any) -> Iterable[Condition]:
    return ()


class Trait(Flag):
    """What passes ask of an op."""

    NONE = 0
    MOVES = auto()
    """Each result element is an element of the first argument. A maximum counts: monotone
    functions commute with it."""
    PERMUTES = auto()
    """The result holds each element of the arguments once."""
    SAME = auto()
    """The result is the first argument where their types are equal."""
    EXACT = auto()
    """The results of floats need no rounding: they are elements of arguments, or exact. So are
    those of ops that move elements or take any type."""
    ROUNDS = auto()
    """Takes any type, but converts: its results are rounded."""
    COMMUTATIVE = auto()
    DISCONTINUOUS = auto()
    """A function of floats that jumps."""
    REQUANTIZES = auto()
    """Rounds floats to bytes again and again, as states of a layer: once a rounding goes the other
    way, all that follow may."""
    QUANTIZED = auto()
    """Takes or gives quantized values."""
    QUANTIZABLE = auto()
    """Has a form for quantized arguments."""
    CONTRACTION = auto()
    """A sum of products with a form for quantized arguments."""
    WIDENS = auto()
    """Converts weights of half precision as it reads them, in most forms once for a tile of its
    products."""
    POSITIVE = auto()
    """No result is negative."""
    KEEPS_SIGN = auto()
    """Moves no elements, but no result is negative where no argument is."""


@dataclass(frozen=True, slots=True)
class Single:
    """A positive f32."""


Limits = tuple[int, int] | Single
"""Between which numbers a quantization parameter lies."""
ParameterLimits = Limits | Callable[[Call, Any], Limits | None]
WORDS = (-(2**31) + 1, 2**31 - 1)


def code_limits(call: Call, value: Any) -> Limits | None:
    """Those of a zero point, where the call works on bytes or 16-bit quantized values."""
    found = [var.type.dtype for var in (*call.inputs[:1], *call.outs)]
    codes = [d for d in found if d.is_int and not d.is_stored_int and d.bytes <= 2]
    if not codes:
        return None
    return (-128, 255) if min(d.bytes for d in codes) == 1 else (-(2**15), 2**16 - 1)


def clamp_limits(call: Call, value: Any) -> Limits | None:
    """Those of the end of a clamp; one that the type keeps anyway is part of the code."""
    return None if value in call.out.type.dtype.limits else code_limits(call, value)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Operands, by number, whose sizes broadcast: all axes but the last `core`. With `target`,
    they broadcast to this shape and not to each other."""

    operands: tuple[int, ...]
    core: int = 0
    target: tuple[Dim, ...] | None = None


def all_operands(*types: TensorType | None, **_attrs: Any) -> tuple[Broadcast, ...]:
    """NumPy's broadcasting of all operands."""
    return (Broadcast(tuple(range(len(types)))),)


@dataclass(frozen=True, slots=True)
class Op:
    """See the module's text.

    symbolic(bounds, *object_arrays, **attrs): see above; `plainly` makes it of `reference`
        where that works on objects as it stands.
    broadcasts: the operands that broadcast, for types and attributes like `conditions`. Builders
        stretch dynamic sizes that may be 1 (inference/broadcasting.py).
    view: the result is the first argument's bytes under another shape; no code is needed.
    former: names that older text gives it.
    rules: functions whose keyword-only parameters are its attributes, where `deduce`, `lower`
        and `reference` only pass them on.
    values: for an attribute that is one of several words, these words.
    exact_where: for which attributes its results are exact, where that is not always.
    value_range: the range of a result from those of the arguments, as (lowest, highest); None
        where nothing is known.
    quantization: arguments and attributes that are quantization parameters, with their limits, or
        what gives the limits for a call and a value (None: it is no parameter there).
    any_type: takes storage types (4-bit integers, 8-bit floats) as well, which nothing can
        compute with.
    """

    name: str
    deduce: Callable[..., Types]
    lower: Callable[..., None]
    reference: Callable[..., Array | tuple[Array, ...]]
    samples: Callable[[np.random.Generator], Sequence[Sample]]
    conditions: Callable[..., Iterable[Condition]] = no_conditions
    symbolic: Callable[..., Array | None] | None = None
    broadcasts: Callable[..., tuple[Broadcast, ...]] | None = None
    view: bool = False
    any_type: bool = False
    former: tuple[str, ...] = ()
    rules: tuple[Callable[..., Any], ...] = ()
    values: Mapping[str, Iterable[str]] = field(default_factory=dict)
    traits: Trait = Trait.NONE
    exact_where: Callable[..., bool] | None = None
    value_range: Callable[..., Range] | None = None
    quantization: Mapping[str, ParameterLimits] = field(default_factory=dict)
    record: type[Any] | None = None
    attributes: tuple[Attribute, ...] = field(init=False)
    """In the order in which its rules declare them."""

    def __post_init__(self) -> None:
        for name in ("deduce", "lower", "reference", "conditions", "broadcasts"):
            if self.record is not None and getattr(self, name) is not None:
                rule = with_attributes(getattr(self, name), self.record)
                object.__setattr__(self, name, rule)
        object.__setattr__(self, "lower", with_optional(self.lower, self.deduce))
        rules = (self.lower, self.deduce, self.reference, *self.rules)
        object.__setattr__(self, "attributes", attributes_of(rules, self.values))

    def has(self, trait: Trait) -> bool:
        return bool(self.traits & trait)

    def is_exact(self, attrs: Mapping[str, Any]) -> bool:
        """Whether results of floats need no rounding."""
        if self.exact_where is not None:
            return self.exact_where(**attrs)
        known = self.has(Trait.EXACT | Trait.MOVES) or self.any_type
        return known and not self.has(Trait.ROUNDS)

    @property
    def parameters(self) -> str:
        """Its arguments as its rules name them; optional ones have a question mark."""
        kinds = {p.kind for p in inspect.signature(self.deduce).parameters.values()}
        named = self.reference if VARIADIC in kinds else self.deduce
        given = inspect.signature(named).parameters.values()
        shown = {POSITIONAL: "", VARIADIC: "..."}
        return ", ".join(
            f"{p.name}{shown[p.kind]}{'' if p.default is p.empty else '?'}"
            for p in given
            if p.kind in shown
        )

    def result_types(
        self, args: Sequence[TensorType | None], attrs: Mapping[str, Any]
    ) -> tuple[TensorType, ...]:
        problem = problem_of(self.name, self.attributes, attrs)
        require(not problem, problem)
        try:
            inspect.signature(self.deduce).bind(*args, **attrs)
        except TypeError as error:
            raise ShapeError(f"{self.name} takes ({self.parameters}): {error}") from None
        for arg in () if self.any_type else args:
            computable = arg is None or not arg.dtype.is_storage
            require(computable, f"{self.name} does not compute with {arg}; cast it first")
        types = self.deduce(*args, **attrs)
        results = types if isinstance(types, tuple) else (types,)
        for number in (n for t in results for n in t.shape if not isinstance(n, Dim)):
            require(
                False, f"{self.name}: deduce returns the size {number!r}: write Dim.of({number})"
            )
        return results


def depends_on_sizes(attr: object) -> bool:
    """Is an attribute a symbolic size, or does it hold one?"""
    if isinstance(attr, tuple | list):
        return any(depends_on_sizes(part) for part in attr)
    return isinstance(attr, Dim) and not attr.is_constant


def plainly(reference: Callable[..., Array]) -> Callable[..., Array | None]:
    """`reference` as a `symbolic` rule: it moves or adds elements and asks nothing of them.

    It asks for plain attributes: where one depends on sizes, nothing can be told."""

    def symbolic(_bounds: Bounds, *args: Array, **attrs: Any) -> Array | None:
        if any(depends_on_sizes(value) for value in attrs.values()):
            return None
        return reference(*args, **attrs)

    return symbolic


def must_equal(left: Dim | int, right: Dim | int, why: str = "") -> Condition:
    return Condition("==", Dim.of(left), Dim.of(right), why)


def must_fit(
    given: TensorType | None, shape: Sequence[Dim | int], why: str = ""
) -> list[Condition]:
    """What the sizes of an argument must equal; nothing where it is absent."""
    if given is None:
        return []
    rank = len(shape)
    require(given.rank == rank, f"{why or 'an argument'} must have rank {rank}, got {given}")
    return [must_equal(size, fit, why) for size, fit in zip(given.shape, shape, strict=True)]


def may_equal(left: Dim | int, right: Dim | int) -> bool:
    """Nothing says that these sizes differ; that they are equal is then a condition."""
    apart = Dim.of(left) - Dim.of(right)
    return not apart.is_constant or apart.constant == 0


def must_not_exceed(left: Dim | int, right: Dim | int, why: str = "") -> Condition:
    return Condition("<=", Dim.of(left), Dim.of(right), why)


def not_negative(*names: str) -> Callable[..., list[Condition]]:
    """The conditions of an op whose attributes `names` are sizes of its result, or lists of them:
    shape arithmetic may give a negative number."""

    def conditions(*_types: TensorType | None, **attrs: Any) -> list[Condition]:
        given = [attrs[name] for name in names]
        lists = [(value,) if isinstance(value, int | Dim) else value for value in given]
        return [must_not_exceed(0, size, "a size of the result") for size in chain(*lists)]

    return conditions


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape of NumPy's broadcasting.

    Where two sizes are not known to be equal, a constant wins over a symbol; that they
    agree is left to `broadcast_conditions`.
    """
    rank = max(len(shape) for shape in shapes)
    result = []
    for axis in range(rank):
        sizes = [s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0]
        sizes = [size for size in sizes if size != Dim.of(1)] or [Dim.of(1)]
        constants = {size for size in sizes if size.is_constant}
        if len(constants) > 1:
            shown = " and ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
            raise ShapeError(f"shapes {shown} do not broadcast")
        result.append(next(iter(constants)) if constants else sizes[0])
    return tuple(result)


def broadcast_conditions(*types: TensorType | None, **_attrs: Any) -> list[Condition]:
    """Sizes that meet in broadcasting and are not 1 must be equal."""
    shapes = [t.shape for t in types if t is not None]
    out = broadcast(*shapes)
    return [
        must_equal(size, expected)
        for shape in shapes
        for size, expected in zip(shape, out[len(out) - len(shape) :], strict=True)
        if size not in (Dim.of(1), expected)
    ]


def must_stretch(size: Dim, whole: Dim) -> Condition:
    """`size` is `whole`, or 1."""
    if size.is_constant:
        return must_equal(size, whole)
    below = whole - size if _has_argument(whole, size) else dim_max(whole - size, size - whole)
    zero = dim_min(below, dim_max(size - 1, 1 - size))
    return must_equal(zero, 0, f"broadcasting: {size} is {whole} or 1")


def _has_argument(dim: Dim, size: Dim) -> bool:
    """It is the maximum of `size` and others."""
    atoms = [atom for _, monomial in dim.terms for atom, _ in monomial]
    whole = len(atoms) == 1 and dim == Dim.of(atoms[0])
    return whole and isinstance(atoms[0], Max) and size in atoms[0].args


def spread(index: Sequence[Dim], shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Where a broadcast operand of `shape` is read, for an element `index` of the result."""
    tail = index[len(index) - len(shape) :]
    return tuple(Dim.of(0) if size == Dim.of(1) else i for i, size in zip(tail, shape, strict=True))


def stretched(index: Sequence[Dim], shape: Sequence[Dim], whole: Sequence[Dim]) -> tuple[Dim, ...]:
    """The same where a dynamic size may be 1 at run time: its index is multiplied by 0 or 1."""
    tail = whole[len(whole) - len(shape) :]
    return tuple(
        i if size.is_constant or size == all_ else i * dim_min(size - 1, 1)
        for i, size, all_ in zip(spread(index, shape), shape, tail, strict=True)
    )


def normal_axis(axis: int, rank: int, what: str = "axis") -> int:
    require(-rank <= axis < rank, f"{what} {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis
