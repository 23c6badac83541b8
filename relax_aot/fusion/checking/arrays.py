"""Arrays as layers of boxes: which elements hold which value.

A box is a set of elements, one product over the axes, with one term for all: on each axis a
lowest position and digits, each with an extent and a stride; the digits are the variables of
the term. A later box lies over an earlier one. What no box holds comes from the base.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from relax_aot.fusion.checking.terms import ONE, ZERO, At, Term, World
from relax_aot.ir.dims import Dim
from relax_aot.ir.types import DType, Shape


@dataclass(frozen=True, slots=True)
class Digit:
    name: str
    extent: Dim
    stride: Dim


@dataclass(frozen=True, slots=True)
class Axis:
    """Positions low + stride * digit + ..., the greatest stride first."""

    low: Dim
    digits: tuple[Digit, ...] = ()

    @property
    def contiguous(self) -> bool:
        """The digits reach every position from `low` on."""
        below = ONE
        for digit in reversed(self.digits):
            if digit.stride != below:
                return False
            below = below * digit.extent
        return True

    @property
    def count(self) -> Dim:
        return prod((digit.extent for digit in self.digits), start=ONE)

    @property
    def position(self) -> Dim:
        return sum((Dim.of(d.name) * d.stride for d in self.digits), start=self.low)


@dataclass(frozen=True, slots=True)
class Box:
    axes: tuple[Axis, ...]
    value: Term

    @property
    def count(self) -> Dim:
        return prod((axis.count for axis in self.axes), start=ONE)

    @property
    def position(self) -> At:
        return tuple(axis.position for axis in self.axes)


@dataclass(frozen=True, slots=True)
class Array:
    dtype: DType
    shape: Shape
    base: Term
    boxes: tuple[Box, ...] = ()


class Arrays:
    """Reading from arrays and making them, in one world of terms."""

    def __init__(self, world: World) -> None:
        self._world = world

    def undefined(self, dtype: DType, shape: Shape) -> Array:
        return Array(dtype, shape, self._world.term("undefined", ("array", dtype)))

    def stored(self, array: Array, index: At, value: Term) -> Array:
        box = Box(tuple(map(Axis, index)), self._world.rounded(value, array.dtype))
        return replace(array, boxes=(*array.boxes, box))

    def term_of(self, array: Array) -> Term:
        """The array as a term, for what loops carry."""
        parts = tuple(self._box_term(box) for box in array.boxes)
        if not parts:
            return array.base
        return self._world.term("array", ("array", array.dtype), array.shape, (array.base, *parts))

    def _box_term(self, box: Box) -> Term:
        names = tuple(digit.name for axis in box.axes for digit in axis.digits)
        dims: list[Dim] = []
        for axis in box.axes:
            dims += (axis.low, Dim.of(len(axis.digits)))
            for digit in axis.digits:
                dims += (digit.extent, digit.stride)
        return self._world.term("box", names, tuple(dims), (box.value,))

    def of_term(self, term: Term, dtype: DType, shape: Shape) -> Array:
        """`term_of` backwards."""
        if term.kind != "array":
            return Array(dtype, shape, term)
        base, *parts = term.args
        boxes = []
        for part in parts:
            assert isinstance(part.label, tuple)
            names, dims = list(part.label), list(part.dims)
            axes = []
            while dims:
                low, count = dims.pop(0), dims.pop(0).constant
                digits = []
                for _ in range(count):
                    digits.append(Digit(names.pop(0), dims.pop(0), dims.pop(0)))
                axes.append(Axis(low, tuple(digits)))
            boxes.append(Box(tuple(axes), part.args[0]))
        return Array(dtype, term.dims, base, tuple(boxes))

    # Reading

    def read(self, array: Array, index: At) -> Term:
        """The element; where it is not known which box holds it, a term that says so."""
        for number in range(len(array.boxes) - 1, -1, -1):
            box = array.boxes[number]
            inside, values = self.inside(box, index, array.shape)
            if inside is True:
                return self._world.substitute(box.value, values)
            if inside is None:
                rest = replace(array, boxes=array.boxes[: number + 1])
                return self._read_term(self.term_of(rest), array.dtype, index)
        if array.base.kind == "undefined":
            return array.base
        return self._read_term(array.base, array.dtype, index)

    def valid(self, index: At, shape: Shape) -> At:
        """An index that lies in the array: on an axis of one position it is 0."""
        return tuple(ZERO if size == ONE else at for at, size in zip(index, shape, strict=True))

    def _read_term(self, source: Term, dtype: DType, index: At) -> Term:
        return self._world.term("read", ("element", dtype), index, (source,))

    def inside(self, box: Box, index: At, shape: Shape) -> tuple[bool | None, dict[str, Dim]]:
        """Whether the box holds the element (None: not known), and the digits of it."""
        values: dict[str, Dim] = {}
        known = True
        for axis, at, size in zip(box.axes, index, shape, strict=True):
            inside, digits = self._on_axis(axis, at, size)
            if inside is False:
                return False, {}
            known = known and inside is True
            values |= digits
        return (True, values) if known else (None, {})

    def _on_axis(self, axis: Axis, at: Dim, size: Dim) -> tuple[bool | None, dict[str, Dim]]:
        world = self._world
        inner = at - axis.low
        if not axis.digits:
            if world.known_eq(at, axis.low):
                return True, {}
            apart = world.known_lt(at, axis.low) or world.known_lt(axis.low, at)
            return (False if apart else None), {}
        if not axis.contiguous:
            return self._strided(axis, inner)
        whole = axis.low == ZERO and axis.count == size
        if not whole:
            if world.known_lt(inner, ZERO) or world.known_le(axis.count, inner):
                return False, {}
            if not (world.known_le(ZERO, inner) and world.known_lt(inner, axis.count)):
                return None, {}
        return True, self._digits(axis, inner)

    def _digits(self, axis: Axis, inner: Dim) -> dict[str, Dim]:
        values: dict[str, Dim] = {}
        for digit in axis.digits:
            quotient, inner = self.divided(inner, digit.stride)
            values[digit.name] = quotient
        return values

    def _strided(self, axis: Axis, inner: Dim) -> tuple[bool | None, dict[str, Dim]]:
        """With gaps: known to be inside only where the index follows the strides."""
        world = self._world
        values: dict[str, Dim] = {}
        for digit in axis.digits:
            quotient, inner = self.divided(inner, digit.stride)
            fits = world.known_le(ZERO, quotient) and world.known_lt(quotient, digit.extent)
            if not fits:
                return None, {}
            values[digit.name] = quotient
        return (True, values) if inner == ZERO else (None, {})

    def divided(self, dim: Dim, by: Dim) -> tuple[Dim, Dim]:
        """Quotient and remainder, without a division where the terms allow."""
        if by == ONE:
            return dim, ZERO
        quotient, rest = ZERO, dim
        for name in sorted(n for n in dim.symbols if n in self._world.ranges):
            stride = dim.substitute({name: Dim.of(name) + 1}) - dim
            times = _quotient(stride, by)
            if times is not None and name not in stride.symbols:
                quotient, rest = quotient + times * Dim.of(name), rest - stride * Dim.of(name)
        for factor, monomial in rest.terms:
            term = Dim(((factor, monomial),))
            times = _quotient(term, by)
            if times is not None:
                quotient, rest = quotient + times, rest - term
        world = self._world
        if world.known_le(ZERO, rest) and world.known_lt(rest, by):
            return quotient, rest
        return quotient + rest // by, rest % by

    # Loops around stores

    def over_loop(self, box: Box, variable: str) -> Box | None:
        """What the iterations of a loop store, when one stores `box`; None where two of them
        store the same element, or no box says which elements they store."""
        world = self._world
        start, stop = world.ranges[variable]
        moving = [n for n, axis in enumerate(box.axes) if variable in world.free(axis.low)]
        sizes = (
            d for axis in box.axes for digit in axis.digits for d in (digit.extent, digit.stride)
        )
        if len(moving) != 1 or any(variable in world.free(dim) for dim in sizes):
            return None
        (number,) = moving
        axis = box.axes[number]
        stride = axis.low.substitute({variable: Dim.of(variable) + 1}) - axis.low
        if world.free(stride) & {variable}:
            return None
        falling = world.known_lt(stride, ZERO)
        if not falling and not self._positive(stride, axis):
            return None
        value: Term = box.value
        name = variable
        if falling or start != ZERO:
            name = world.variable(variable, ZERO, stop - start)
            origin = stop - 1 - Dim.of(name) if falling else start + Dim.of(name)
            value = world.substitute(value, {variable: origin})
        low = axis.low.substitute({variable: stop - 1 if falling else start})
        digit = Digit(name, stop - start, -stride if falling else stride)
        inserted = self._inserted(axis.digits, digit)
        if inserted is None:
            return None
        axes = (*box.axes[:number], Axis(low, inserted), *box.axes[number + 1 :])
        return Box(axes, value)

    def _positive(self, stride: Dim, axis: Axis) -> bool:
        """A stride over all positions of a digit is positive where there is a position."""
        reached = (digit.extent * digit.stride for digit in axis.digits)
        return self._world.known_lt(ZERO, stride) or any(stride == size for size in reached)

    def _inserted(self, digits: tuple[Digit, ...], new: Digit) -> tuple[Digit, ...] | None:
        """Digits in order of their strides, where no two combinations are one position."""
        for place in range(len(digits) + 1):
            tried = (*digits[:place], new, *digits[place:])
            if all(
                self._world.known_le(below.stride * below.extent, above.stride)
                for above, below in pairwise(tried)
            ):
                return tried
        return None

    def disjoint(self, one: Box, other: Box) -> bool:
        """No element is in both."""
        return any(self._apart(a, b) for a, b in zip(one.axes, other.axes, strict=True))

    def _apart(self, one: Axis, other: Axis) -> bool:
        """One lies below the other, or so within each step of a stride that both have."""
        world = self._world
        ends = [
            sum(((d.extent - 1) * d.stride for d in axis.digits), start=axis.low)
            for axis in (one, other)
        ]
        if world.known_lt(ends[0], other.low) or world.known_lt(ends[1], one.low):
            return True
        if not one.digits or not other.digits:
            return False
        (first, *rest_one), (second, *rest_other) = one.digits, other.digits
        if (first.stride, first.extent) != (second.stride, second.extent):
            return False
        inner = Axis(one.low, tuple(rest_one)), Axis(other.low, tuple(rest_other))
        reach = ends[0] - (first.extent - 1) * first.stride
        reach_other = ends[1] - (second.extent - 1) * second.stride
        return (
            world.known_lt(reach - other.low, first.stride)
            and world.known_lt(reach_other - one.low, first.stride)
            and self._apart(*inner)
        )

    def within(self, box: Box, shape: Shape) -> bool:
        """All of its elements are elements of the array."""
        world = self._world
        for axis, size in zip(box.axes, shape, strict=True):
            span = sum(((d.extent - 1) * d.stride for d in axis.digits), start=ZERO)
            if not (world.known_le(ZERO, axis.low) and world.known_lt(axis.low + span, size)):
                return False
        return True

    def visible(self, array: Array) -> Array:
        """Without boxes that a later one with the same elements covers."""
        kept: list[Box] = []
        seen: set[object] = set()
        for box in reversed(array.boxes):
            key = tuple(
                (axis.low, tuple((d.extent, d.stride) for d in axis.digits)) for axis in box.axes
            )
            if key not in seen:
                kept.insert(0, box)
            seen.add(key)
        return replace(array, boxes=tuple(kept))

    def reshaped(self, index: At, source: Shape, target: Shape) -> At | None:
        """The index into `target` of the element at `index` of `source`."""
        if source == target:
            return index
        left = [n for n, size in enumerate(source) if size != ONE]
        right = [n for n, size in enumerate(target) if size != ONE]
        result = [ZERO] * len(target)
        while left or right:
            cut = _first_group([source[n] for n in left], [target[n] for n in right])
            if cut is None:
                return None
            linear = ZERO
            for axis in left[: cut[0]]:
                linear = linear * source[axis] + index[axis]
            axes = right[: cut[1]]
            for position, axis in enumerate(axes):
                below = prod((target[n] for n in axes[position + 1 :]), start=ONE)
                result[axis], linear = self.divided(linear, below)
            left, right = left[cut[0] :], right[cut[1] :]
        return tuple(result)


def _first_group(left: list[Dim], right: list[Dim]) -> tuple[int, int] | None:
    """How many axes of each side hold the same number of elements, as few as possible."""
    for total in range(2, len(left) + len(right) + 1):
        for count in range(max(1, total - len(right)), min(len(left), total - 1) + 1):
            ours = prod(left[:count], start=ONE)
            if ours == prod(right[: total - count], start=ONE):
                return count, total - count
    return None


def _quotient(dim: Dim, by: Dim) -> Dim | None:
    """How many times `by` is `dim`, as one product; None where something is left."""
    if not dim.terms or not by.terms:
        return None
    (factor, monomial), (divisor, atoms) = dim.terms[0], by.terms[0]
    if factor % divisor:
        return None
    powers = dict(monomial)
    for atom, power in atoms:
        powers[atom] = powers.get(atom, 0) - power
    if any(power < 0 for power in powers.values()):
        return None
    kept = tuple((atom, powers[atom]) for atom, _ in monomial if powers[atom])
    times = Dim(((factor // divisor, kept),))
    return times if times * by == dim else None
