"""What an op is: its type rule, its loops, its meaning, and samples to test it with.

`deduce`, `lower` and `reference` take the arguments in order; attributes are keyword-only
parameters. An absent optional argument is None.

    deduce(*types, **attrs)                 -> TensorType, or a tuple of them
    lower(k, *inputs, *outputs, **attrs)       writes the loops
    reference(*arrays, **attrs)             -> array, or a tuple of them (NumPy)
    conditions(*types, **attrs)             -> what must hold of run-time sizes

Attributes that are sizes may be symbolic (`Dim`) in `deduce`, `lower` and `conditions`;
in `reference` they are plain integers.

Shape arithmetic: an op with `symbolic` takes part in it at compile time. Its arguments
are then object arrays whose elements are int, `Dim`, bool, or a `Condition` (a truth that
depends on sizes); it returns such an array, or None where it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.types import DType, TensorType

Array = NDArray[Any]
Types = TensorType | tuple[TensorType, ...]


class ShapeError(RelaxAotError):
    """Types that an op cannot take; the message gives what was expected and what came."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ShapeError(message)


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


@dataclass(frozen=True, slots=True)
class Op:
    """See the module's text.

    symbolic(bounds, *object_arrays, **attrs): see above; `plainly` makes it of `reference`
        where that works on objects as it stands.
    view: the result is the first argument's bytes under another shape; no code is needed.
    former: names that older text gives it.
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
    view: bool = False
    any_type: bool = False
    former: tuple[str, ...] = ()

    def result_types(
        self, args: Sequence[TensorType | None], attrs: Mapping[str, Any]
    ) -> tuple[TensorType, ...]:
        for arg in () if self.any_type else args:
            computable = arg is None or not arg.dtype.is_storage
            require(computable, f"{self.name} does not compute with {arg}; cast it first")
        types = self.deduce(*args, **attrs)
        return types if isinstance(types, tuple) else (types,)


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


def may_equal(left: Dim | int, right: Dim | int) -> bool:
    """Nothing says that these sizes differ; that they are equal is then a condition."""
    apart = Dim.of(left) - Dim.of(right)
    return not apart.is_constant or apart.constant == 0


def must_not_exceed(left: Dim | int, right: Dim | int, why: str = "") -> Condition:
    return Condition("<=", Dim.of(left), Dim.of(right), why)


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


def spread(index: Sequence[Dim], shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Where a broadcast operand of `shape` is read, for an element `index` of the result."""
    tail = index[len(index) - len(shape) :]
    return tuple(Dim.of(0) if size == Dim.of(1) else i for i, size in zip(tail, shape, strict=True))


def normal_axis(axis: int, rank: int, what: str = "axis") -> int:
    require(-rank <= axis < rank, f"{what} {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis
