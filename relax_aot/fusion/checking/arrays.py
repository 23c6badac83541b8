"""Arrays as layers of boxes: which elements hold which value.

A box is a set of elements with one term for all: on each axis a lowest position and digits,
each with an extent and a stride. The digits are the variables of the term. The lowest position
may depend on digits of other axes, as on a diagonal. A later box lies over an earlier one. What
no box holds comes from the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from relax_aot.fusion.checking.terms import ONE, ZERO, At, Term, World, rise
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

    def renamed(self, names: Mapping[str, str]) -> Axis:
        low = self.low.substitute({old: Dim.of(new) for old, new in names.items()})
        digits = (replace(d, name=names.get(d.name, d.name)) for d in self.digits)
        return Axis(low, tuple(digits))

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
    def tied(self) -> bool:
        """Some axis depends on digits of another."""
        return any(axis.low.symbols & self.digit_names for axis in self.axes)

    @property
    def digit_names(self) -> frozenset[str]:
        return frozenset(digit.name for axis in self.axes for digit in axis.digits)

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

    def held(self, array: Array, index: At) -> Term | None:
        """The element, where a box is known to hold it; boxes are disjoint."""
        for box in array.boxes:
            inside, values = self.inside(box, index, array.shape)
            if inside:
                return self._world.substitute(box.value, values)
        return None

    def valid(self, index: At, shape: Shape) -> At:
        """An index that lies in the array: on an axis of one position it is 0."""
        return tuple(ZERO if size == ONE else at for at, size in zip(index, shape, strict=True))

    def _read_term(self, source: Term, dtype: DType, index: At) -> Term:
        return self._world.term("read", ("element", dtype), index, (source,))

    def inside(self, box: Box, index: At, shape: Shape) -> tuple[bool | None, dict[str, Dim]]:
        """Whether the box holds the element (None: not known), and the digits of it."""
        values: dict[str, Dim] = {}
        names = box.digit_names
        waiting = list(zip(box.axes, index, shape, strict=True))
        known = True
        while waiting:
            ready = [w for w in waiting if not (w[0].low.symbols & names) - values.keys()]
            if not ready:  # a digit is not known, so neither is what depends on it
                return None, {}
            for axis, at, size in ready:
                low = self._world.simplified(axis.low.substitute(values))
                inside, digits = self._on_axis(Axis(low, axis.digits), at, size)
                if inside is False:
                    return False, {}
                known = known and inside is True
                values |= digits
            waiting = [w for w in waiting if w not in ready]
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
            quotient, inner = self._world.divided(inner, digit.stride)
            values[digit.name] = quotient
        return values

    def _strided(self, axis: Axis, inner: Dim) -> tuple[bool | None, dict[str, Dim]]:
        """With gaps: known to be inside only where the index follows the strides."""
        world = self._world
        values: dict[str, Dim] = {}
        for digit in axis.digits:
            quotient, inner = self._world.divided(inner, digit.stride)
            fits = world.known_le(ZERO, quotient) and world.known_lt(quotient, digit.extent)
            if not fits:
                return None, {}
            values[digit.name] = quotient
        return (True, values) if inner == ZERO else (None, {})

    # Loops around stores

    def over_loop(self, box: Box, variable: str) -> Box | None:
        """What the iterations of a loop store, when one stores `box`; None where two of them
        store the same element, or no box says which elements they store."""
        sizes = (
            d for axis in box.axes for digit in axis.digits for d in (digit.extent, digit.stride)
        )
        if any(variable in self._world.free(dim) for dim in sizes):
            return None
        moving = [n for n, axis in enumerate(box.axes) if variable in self._world.free(axis.low)]
        found = (self._along(box, variable, number) for number in moving)
        return next((wide for wide in found if wide is not None), None)

    def _along(self, box: Box, variable: str, number: int) -> Box | None:
        """The variable as a digit of one axis, on which other axes may depend."""
        world = self._world
        start, stop = world.ranges[variable]
        axis = box.axes[number]
        stride = rise(axis.low, variable)
        if world.free(stride) & {variable} or axis.low.symbols & box.digit_names:
            return None
        falling = world.known_lt(stride, ZERO)
        if not falling and not self._positive(stride, axis):
            return None
        name, origin = variable, Dim.of(variable)
        if falling or start != ZERO:
            name = world.variable(variable, ZERO, stop - start)
            origin = stop - 1 - Dim.of(name) if falling else start + Dim.of(name)
        digit = Digit(name, stop - start, -stride if falling else stride)
        inserted = self._inserted(axis.digits, digit)
        if inserted is None:
            return None
        axes, value = list(box.axes), box.value
        if name != variable:
            at = {variable: origin}
            axes = [replace(a, low=world.simplified(a.low.substitute(at))) for a in axes]
            value = world.substitute(value, at)
        low = axis.low.substitute({variable: stop - 1 if falling else start})
        axes[number] = Axis(low, inserted)
        return Box(tuple(axes), value)

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
        shared = one.digit_names & other.digit_names
        if shared and (one.tied or other.tied):  # the digits of one box say nothing of the other
            world = self._world
            fresh = {name: world.variable(name, *world.ranges[name]) for name in sorted(shared)}
            other = Box(tuple(axis.renamed(fresh) for axis in other.axes), other.value)
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
            tied = box.tied
            key = tuple(
                (axis.low, tuple((d.extent, d.stride, d.name if tied else "") for d in axis.digits))
                for axis in box.axes
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
                result[axis], linear = self._world.divided(linear, below)
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
