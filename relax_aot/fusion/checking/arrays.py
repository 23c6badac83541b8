# SPDX-License-Identifier: Apache-2.0
"""Arrays as layers of boxes: which elements hold which value.

A box is a set of elements with one term for all: on each axis a lowest position and digits,
each with an extent and a stride. The digits are the variables of the term. The lowest position
may depend on digits of other axes, as on a diagonal or where data say it. A later box lies over an
earlier one. What no box holds comes from the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from relax_aot.fusion.checking.terms import Term, World, rounded
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.types import DType, Shape


class Digit(NamedTuple):
    name: str
    extent: Dim
    stride: Dim


class Axis(NamedTuple):
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
    def extent(self) -> Dim:
        return prod((digit.extent for digit in self.digits), start=ONE)

    def renamed(self, world: World, names: Mapping[str, str]) -> Axis:
        low = world.substitute_dim(self.low, {old: Dim.of(new) for old, new in names.items()})
        digits = (d._replace(name=names.get(d.name, d.name)) for d in self.digits)
        return Axis(low, tuple(digits))

    @property
    def position(self) -> Dim:
        return sum((Dim.of(d.name) * d.stride for d in self.digits), start=self.low)


class Box(NamedTuple):
    axes: tuple[Axis, ...]
    value: Term

    @property
    def elements(self) -> Dim:
        return prod((axis.extent for axis in self.axes), start=ONE)

    def tied(self, world: World) -> bool:
        """Some axis depends on digits of another."""
        return any(world.free(axis.low) & self.digit_names for axis in self.axes)

    @property
    def digit_names(self) -> frozenset[str]:
        return frozenset(digit.name for axis in self.axes for digit in axis.digits)

    @property
    def position(self) -> At:
        return tuple(axis.position for axis in self.axes)

    def within(self, world: World, shape: Shape) -> bool:
        """All of its elements are elements of the array."""
        for axis, size in zip(self.axes, shape, strict=True):
            span = sum(((d.extent - 1) * d.stride for d in axis.digits), start=ZERO)
            if not (world.known_le(ZERO, axis.low) and world.known_lt(axis.low + span, size)):
                return False
        return True


class Array(NamedTuple):
    dtype: DType
    shape: Shape
    base: Term
    boxes: tuple[Box, ...] = ()

    def holding(self, base: Term, boxes: tuple[Box, ...] = ()) -> Array:
        """An array of this type with other elements."""
        return Array(self.dtype, self.shape, base, boxes)

    def under(self, *boxes: Box) -> Array:
        """With boxes over it."""
        return self.holding(self.base, (*self.boxes, *boxes))

    def visible(self, world: World) -> Array:
        """Without boxes that a later one with the same elements covers."""
        kept: list[Box] = []
        seen: set[object] = set()
        for box in reversed(self.boxes):
            tied = box.tied(world)
            key = tuple(
                (axis.low, tuple((d.extent, d.stride, d.name if tied else "") for d in axis.digits))
                for axis in box.axes
            )
            if key not in seen:
                kept.insert(0, box)
            seen.add(key)
        return self.holding(self.base, tuple(kept))


class Arrays:
    """Reading from arrays and making them, in one world of terms."""

    def __init__(self, world: World) -> None:
        self._world = world

    def undefined(self, dtype: DType, shape: Shape) -> Array:
        return Array(dtype, shape, self._world.term("undefined", ("array", dtype)))

    def stored(self, array: Array, index: At, value: Term) -> Array:
        return array.under(Box(tuple(map(Axis, index)), rounded(self._world, value, array.dtype)))

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
                rest = array.holding(array.base, array.boxes[: number + 1])
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
            ready = [w for w in waiting if not (self._world.free(w[0].low) & names) - values.keys()]
            if not ready:  # a digit is not known, so neither is what depends on it
                return None, {}
            for axis, at, size in ready:
                low = self._world.simplified(self._world.substitute_dim(axis.low, values))
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
        contiguous = axis.contiguous
        if contiguous and (axis.low != ZERO or axis.extent != size):
            if world.known_lt(inner, ZERO) or world.known_le(axis.extent, inner):
                return False, {}
            if not (world.known_le(ZERO, inner) and world.known_lt(inner, axis.extent)):
                return None, {}
        values: dict[str, Dim] = {}
        for digit in axis.digits:
            quotient, inner = world.divided(inner, digit.stride)
            # With gaps: known to be inside only where the index follows the strides.
            if not contiguous and not (
                world.known_le(ZERO, quotient) and world.known_lt(quotient, digit.extent)
            ):
                return None, {}
            values[digit.name] = quotient
        return (True, values) if contiguous or inner == ZERO else (None, {})
