# SPDX-License-Identifier: Apache-2.0
"""Boxes of elements: what a loop makes of one, and how two lie to each other."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from relax_aot.fusion.checking.arrays import Axis, Box, Digit
from relax_aot.fusion.checking.ranges import rise
from relax_aot.fusion.checking.terms import World
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.types import Shape


def over_loop(world: World, box: Box, variable: str) -> Box | None:
    """What the iterations of a loop store, when one stores `box`; None where two of them
    store the same element, or no box says which elements they store."""
    sizes = (d for axis in box.axes for digit in axis.digits for d in (digit.extent, digit.stride))
    if any(dim.symbols and variable in world.free(dim) for dim in sizes):
        return None
    moving = [n for n, axis in enumerate(box.axes) if variable in world.free(axis.low)]
    found = (_along(world, box, variable, number) for number in moving)
    return next((wide for wide in found if wide is not None), None)


def _along(world: World, box: Box, variable: str, number: int) -> Box | None:
    """The variable as a digit of one axis, on which other axes may depend."""
    start, stop = world.ranges[variable]
    axis = box.axes[number]
    stride = rise(axis.low, variable)
    rest = axis.low - stride * Dim.of(variable)
    tied = world.free(axis.low) & box.digit_names
    if tied or variable in world.free(stride) | world.free(rest):
        return None
    falling = world.known_lt(stride, ZERO)
    # A stride over all positions of a digit is positive where there is a position.
    whole = any(stride == digit.extent * digit.stride for digit in axis.digits)
    if not falling and not whole and not world.known_lt(ZERO, stride):
        return None
    name, origin = variable, Dim.of(variable)
    if falling or start != ZERO:
        name = world.variable(variable, ZERO, stop - start)
        origin = stop - 1 - Dim.of(name) if falling else start + Dim.of(name)
    digit = Digit(name, stop - start, -stride if falling else stride)
    inserted = _inserted(world, axis.digits, digit)
    if inserted is None:
        return None
    axes, value = list(box.axes), box.value
    if name != variable:
        at = {variable: origin}
        axes = [Axis(world.simplified(world.substitute_dim(a.low, at)), a.digits) for a in axes]
        value = world.substitute(value, at)
    low = axis.low.substitute({variable: stop - 1 if falling else start})
    axes[number] = Axis(low, inserted)
    return Box(tuple(axes), value)


def _inserted(world: World, digits: tuple[Digit, ...], new: Digit) -> tuple[Digit, ...] | None:
    """Digits in order of their strides, where no two combinations are one position."""
    for place in range(len(digits) + 1):
        tried = (*digits[:place], new, *digits[place:])
        if all(
            world.known_le(below.stride * below.extent, above.stride)
            for above, below in pairwise(tried)
        ):
            return tried
    return None


def disjoint(world: World, one: Box, other: Box) -> bool:
    """No element is in both."""
    shared = one.digit_names & other.digit_names
    if shared and (
        one.tied(world) or other.tied(world)
    ):  # the digits of one box say nothing of the other
        fresh = {name: world.variable(name, *world.ranges[name]) for name in sorted(shared)}
        other = Box(tuple(axis.renamed(world, fresh) for axis in other.axes), other.value)
    return any(_apart(world, a, b) for a, b in zip(one.axes, other.axes, strict=True))


def _apart(world: World, one: Axis, other: Axis) -> bool:
    """One lies below the other, or so within each step of a stride that both have."""
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
        and _apart(world, *inner)
    )


def reshaped(world: World, index: At, source: Shape, target: Shape) -> At | None:
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
            result[axis], linear = world.divided(linear, below)
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
