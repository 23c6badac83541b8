# SPDX-License-Identifier: Apache-2.0
"""Whether two terms, or two arrays, are the same value for all sizes.

One side are the parts of a fused kernel: a leaf that the fused kernel does not read is looked up
in what the part that makes it leaves. What a loop carries is compared by induction: the same
at the start, and the same after an iteration where it was the same before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relax_aot.fusion.checking.arrays import Array, Arrays, Axis, Box
from relax_aot.fusion.checking.boxes import disjoint
from relax_aot.fusion.checking.terms import Fold, Term, World
from relax_aot.ir.dims import ZERO, Dim

_Expand = Callable[[Term], Term | None]
"""The value of an element that a part makes; None for one that the fused kernel is given."""
_Assumed = tuple[tuple[Term, bool], ...]
_Proven = set[tuple[object, object]]
"""Pairs of terms, or of definitions of folds with the names of two things that they carry."""


@dataclass(eq=False)
class _Pair:
    """Two folds compared: things carried that are taken as equal, and those still to compare."""

    left: int
    right: int
    equal: set[tuple[str, str]] = field(default_factory=set)
    open: list[tuple[str, str]] = field(default_factory=list)
    proven: _Proven = field(default_factory=set)
    """What is the same as far as what is carried is."""

    def ask(self, one: str, other: str) -> None:
        if (one, other) not in self.equal:
            self.equal.add((one, other))
            self.open.append((one, other))


class Comparison:
    def __init__(self, world: World, expand: _Expand) -> None:
        self.world = world
        self.arrays = Arrays(world)
        self._expand = expand
        self._proven: _Proven = set()
        self._expanded: dict[Term, Term] = {}
        self.pairs: list[_Pair] = []

    def same(self, one: Term, other: Term, assumed: _Assumed = ()) -> bool:
        """`one` is of the parts, `other` of the fused kernel."""
        one = self._open(one)
        if one is other:
            return True
        memory = self.memory(one, other)
        if (one, other) in memory:
            return True
        result = self._same(one, other, assumed)
        if result and not assumed:
            memory.add((one, other))
        return result

    def memory(self, one: Term, other: Term) -> _Proven:
        if self.pairs and (one.phis or other.phis):
            return self.pairs[-1].proven
        return self._proven

    def _open(self, term: Term) -> Term:
        """Leaves that a part makes, in place."""
        found = self._expanded.get(term)
        if found is not None:
            return found
        made = term
        while made.kind == "leaf":
            value = self._expand(made)
            if value is None:
                break
            made = value
        self._expanded[term] = made
        return made

    def _same(self, one: Term, other: Term, assumed: _Assumed) -> bool:
        if one.kind == "select" or other.kind == "select":
            return self._selected(one, other, assumed)
        if one.kind != other.kind:
            return False
        match one.kind:
            case "phi":
                return self._same_phi(one, other)
            case "fold" | "at":
                if not self._same_dims(one.dims, other.dims):
                    return False
                return _same_folds(self, one, other)
            case "array" | "chosen":
                return self.same_sources(one, other)
            case "box" | "def":
                return False
            case "read":
                if one.label != other.label or not self._same_dims(one.dims, other.dims):
                    return False
                return self.same_sources(one.args[0], other.args[0])
        if one.label != other.label or len(one.args) != len(other.args):
            return False
        return self._same_dims(one.dims, other.dims) and all(
            self.same(a, b, assumed) for a, b in zip(one.args, other.args, strict=True)
        )

    def _selected(self, one: Term, other: Term, assumed: _Assumed) -> bool:
        """Case by case, where conditions are not the same on both sides."""
        if one.kind == other.kind and self.same(one.args[0], other.args[0], assumed):
            return self.same(one.args[1], other.args[1], assumed) and self.same(
                one.args[2], other.args[2], assumed
            )
        for condition, holds in assumed:
            if other.kind == "select" and other.args[0] is condition:
                return self.same(one, other.args[1 if holds else 2], assumed)
            if one.kind == "select" and self.same(one.args[0], condition):
                return self.same(one.args[1 if holds else 2], other, assumed)
        if other.kind != "select":
            return self.same(one.args[1], other, assumed) and self.same(one.args[2], other, assumed)
        condition = other.args[0]
        return self.same(one, other.args[1], (*assumed, (condition, True))) and self.same(
            one, other.args[2], (*assumed, (condition, False))
        )

    def _same_dims(self, one: tuple[Dim, ...], other: tuple[Dim, ...]) -> bool:
        return len(one) == len(other) and all(map(self.same_dim, one, other))

    def same_dim(self, one: Dim, other: Dim) -> bool:
        if one == other and one.symbols.isdisjoint(self.world.from_data):
            return True
        one = self._matched(one, other)
        return self.world.known_eq(one, other) or (
            self.world.simplified(one) == self.world.simplified(other)
        )

    def _matched(self, one: Dim, other: Dim) -> Dim:
        """With indices from data under the names that they have on the other side."""
        world = self.world
        values: dict[str, Dim] = {}
        for name in one.symbols:
            mine = world.bound.get(name)
            if mine is None:
                continue
            for theirs in sorted(other.symbols & world.bound.keys()):
                found = world.bound[theirs]
                if (
                    mine.trusted == found.trusted
                    and self.same_dim(mine.low, found.low)
                    and self.same_dim(mine.high, found.high)
                    and self.same(mine.value, found.value)
                ):
                    values[name] = Dim.of(theirs)
                    break
            else:
                values[name] = Dim.of(f"{name}?")  # equal to nothing
        return one.substitute(values) if values else one

    def _same_phi(self, one: Term, other: Term) -> bool:
        assert isinstance(one.label, tuple) and isinstance(other.label, tuple)
        for pair in reversed(self.pairs):
            if (pair.left, pair.right) == (one.label[0], other.label[0]):
                pair.ask(one.label[1], other.label[1])
                return True
        return False

    def same_sources(self, one: Term, other: Term) -> bool:
        """Arrays as terms."""
        if one.kind == "chosen" and other.kind == "chosen":
            return self.same(one.args[0], other.args[0]) and all(
                self.same_sources(a, b) for a, b in zip(one.args[1:], other.args[1:], strict=True)
            )
        if one.kind != "array" and other.kind != "array":
            return self.same(one, other)
        if one.kind != other.kind or one.label != other.label or len(one.args) != len(other.args):
            return False
        if not self._same_dims(one.dims, other.dims):
            return False
        assert isinstance(one.label, tuple)
        dtype = one.label[1]
        return same_arrays(
            self,
            self.arrays.of_term(one, dtype, one.dims),
            self.arrays.of_term(other, dtype, other.dims),
        )


def _same_folds(comparison: Comparison, one: Term, other: Term) -> bool:
    definitions, names = (one.args[0], other.args[0]), (str(one.label), str(other.label))
    memory = comparison.memory(*definitions)
    if (definitions, names) in memory:
        return True
    left, whole = map(Fold.of, definitions)
    cut = _cut_alike(comparison, left, whole, names)
    if cut is None:
        return False
    left, right, names, moved = cut
    pair = _Pair(left.number, right.number)
    pair.ask(*names)
    comparison.pairs.append(pair)
    try:
        while pair.open:
            mine, theirs = pair.open.pop()
            if mine not in left.names or theirs not in right.names:
                return False
            i, j = left.names.index(mine), right.names.index(theirs)
            following = comparison.world.substitute(left.next[i], moved)
            comparison.pairs.pop()
            try:
                first = comparison.same(left.first[i], right.first[j])
            finally:
                comparison.pairs.append(pair)
            if not first or not comparison.same(following, right.next[j]):
                return False
    finally:
        comparison.pairs.pop()
    if right is whole:
        memory.update((definitions, equal) for equal in pair.equal)
    return True


def _cut_alike(
    comparison: Comparison, left: Fold, right: Fold, names: tuple[str, str]
) -> tuple[Fold, Fold, tuple[str, str], Mapping[str, Dim]] | None:
    """The fused loop may be cut in several, one in another: seen as one again."""
    position = Dim.of(right.variable)
    theirs = names[1]
    while not comparison.same_dim(left.stop - left.start, right.stop - right.start):
        inner = _inner_fold(comparison, right)
        if inner is None or right.start != ZERO or inner[0].start != ZERO or left.start != ZERO:
            return None
        nested, inside = inner
        if right.variable in comparison.world.free(nested.stop):
            return None
        position = position * nested.stop + Dim.of(nested.variable)
        theirs = inside[theirs]
        outer = {name: right.names.index(one) for one, name in inside.items()}
        chosen = [name for name in nested.names if name in outer]
        first = tuple(right.first[outer[name]] for name in chosen)
        following = tuple(nested.next[nested.names.index(name)] for name in chosen)
        right = Fold(
            nested.number, nested.variable, ZERO, right.stop * nested.stop, tuple(chosen),
            first, following,
        )  # fmt: skip
    if not comparison.same_dim(left.start, right.start):
        return None
    return left, right, (names[0], theirs), {left.variable: position}


def _inner_fold(comparison: Comparison, outer: Fold) -> tuple[Fold, dict[str, str]] | None:
    """The only thing that an iteration does is another loop: that loop, and the names in it
    of what the outer one carries."""
    found: Fold | None = None
    names: dict[str, str] = {}
    for name, following in zip(outer.names, outer.next, strict=True):
        if following.kind != "fold":
            return None
        fold = Fold.of(following.args[0])
        if found is not None and fold != found:
            return None
        found = fold
        inside = str(following.label)
        start = fold.first[fold.names.index(inside)]
        if start.kind != "phi" or start.label != (outer.number, name):
            return None
        names[name] = inside
    return None if found is None else (found, names)


def same_arrays(comparison: Comparison, one: Array, other: Array) -> bool:
    """All elements are the same."""
    if one.dtype is not other.dtype or one.shape != other.shape:
        return False
    if not comparison.same_sources(one.base, other.base):
        return False
    common = 0
    for a, b in zip(one.boxes, other.boxes, strict=False):
        if not _same_box(comparison, a, b):
            break
        common += 1
    one, other = (
        a.holding(a.base, a.boxes[common:]).visible(comparison.world) for a in (one, other)
    )
    if len(one.boxes) == len(other.boxes) and all(
        _same_box(comparison, a, b) for a, b in zip(one.boxes, other.boxes, strict=True)
    ):
        return True
    return _same_by_elements(comparison, one, other)


def _same_box(comparison: Comparison, one: Box, other: Box) -> bool:
    value = _aligned(comparison, one, other)
    return value is not None and comparison.same(value, other.value)


def _same_by_elements(comparison: Comparison, one: Array, other: Array) -> bool:
    """The boxes of the fused kernel are disjoint, and so are those of the parts, which hold as
    many elements and among them these: then it is enough to compare in each of them."""
    for array in (one, other):
        for number, box in enumerate(array.boxes):
            if not all(disjoint(comparison.world, box, a) for a in array.boxes[:number]):
                return False
    counts = [sum((box.elements for box in a.boxes), start=ZERO) for a in (one, other)]
    if not comparison.world.known_eq(*counts):
        return False
    for box in other.boxes:
        if not box.within(comparison.world, other.shape):
            return False
        value = comparison.arrays.held(one, box.position)
        if value is None or not comparison.same(value, box.value):
            return False
    return True


def _aligned(comparison: Comparison, one: Box, other: Box) -> Term | None:
    """The value of `one` with the digits of `other`, where both hold the same elements."""
    values: dict[str, Dim] = {}
    for mine, theirs in zip(one.axes, other.axes, strict=True):
        found = _aligned_axis(comparison, mine, theirs)
        if found is None:
            return None
        values |= found
    for mine, theirs in zip(one.axes, other.axes, strict=True):
        low = comparison.world.simplified(comparison.world.substitute_dim(mine.low, values))
        if not comparison.same_dim(low, theirs.low):
            return None
    return comparison.world.substitute(one.value, values)


def _aligned_axis(comparison: Comparison, mine: Axis, theirs: Axis) -> dict[str, Dim] | None:
    values: dict[str, Dim] = {}
    left = list(theirs.digits)
    for digit in mine.digits:
        position, extent = ZERO, Dim.of(1)
        while left:
            following = left.pop(0)
            position = position * following.extent + Dim.of(following.name)
            extent = extent * following.extent
            if following.stride == digit.stride:
                break
            if left and following.stride != left[0].stride * left[0].extent:
                return None
        else:
            return None
        if not comparison.same_dim(digit.extent, extent):
            return None
        values[digit.name] = position
    return None if left else values
