# SPDX-License-Identifier: Apache-2.0
"""When two kernels may be merged: conditions on index maps, for all sizes.

An index map takes the loop variables around a store to the element that it stores. The
mergers (`epilogue`, `inline`, `rows`) ask these questions:

- `stored_once`: the kernel stores each element exactly once, unconditionally. Only then is
  the value at the store the value that every later reader loads.
- `independent`: no two iterations of the loops store the same element, every iteration
  stores, and none loads what another stores. Only then may the iterations run in another
  order.
- `separate_rows`: each iteration of given loops touches elements of its own of everything that
  the loops store. Only then may these loops be interchanged.
- `carried`: iterations of a loop read what others stored. Then memory of one row does not hold
  at its start what that of all rows does, and whether that is read is not proven.

The answer False means "not proven"; the merger is then refused. A map is proven one-to-one
where its axes are sums of loop variables with strides, as digits of a number in mixed radix,
possibly cut by a division and its remainder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from relax_aot.fusion.accesses import Access, accesses, stores
from relax_aot.ir.bounds import GREATEST, interval
from relax_aot.ir.builder import At
from relax_aot.ir.dims import (
    ONE,
    ZERO,
    Bounds,
    Dim,
    FloorDiv,
    Mod,
    assume,
    prove_le,
    prove_lt,
)
from relax_aot.ir.loops import (
    For,
    Micro,
    Multiply,
    Reserve,
    Stmt,
    walk,
)
from relax_aot.ir.types import Shape

# Index maps


def one_to_one(
    index: At, loops: tuple[For, ...], bounds: Bounds, data: frozenset[str] = frozenset()
) -> bool:
    """No two iterations of the loops have the same index."""
    plain = _with_loops(bounds, loops)
    if not undetermined(index, loops, plain, data):
        return True
    # Where an iteration exists, every loop around it has one.
    inside = assume(plain, [("<=", ONE, loop.extent) for loop in loops])
    return not undetermined(index, loops, inside, data)


def undetermined(
    index: At, loops: tuple[For, ...], bounds: Bounds, data: frozenset[str] = frozenset()
) -> set[str]:
    """The variables of loops whose value does not follow from the index. Names in `data` are not
    known when loops run."""
    unknown = {loop.variable: loop for loop in loops if not prove_le(loop.extent, 1, bounds)}
    axes = [dim for dim in (*index, *_divided(index)) if not dim.symbols & data]
    progress = True
    while unknown and progress:
        progress = False
        for dim in axes:
            names = dim.symbols & unknown.keys()
            if names and _decodable(dim, {name: unknown[name] for name in names}, bounds):
                for name in names:
                    del unknown[name]
                progress = True
    return set(unknown)


def _divided(index: At) -> list[Dim]:
    """Numerators whose quotient and remainder are both axes: these two determine them."""
    quotients = (atom for dim in index for atom in dim.atoms if isinstance(atom, FloorDiv))
    return [
        atom.numerator
        for atom in quotients
        if Dim.of(atom) in index and Dim.of(Mod(atom.numerator, atom.denominator)) in index
    ]


def _decodable(dim: Dim, loops: Mapping[str, For], bounds: Bounds) -> bool:
    """The value of `dim` determines these variables: their strides are a mixed radix."""
    found = strides(dim, loops.keys())
    if found is None:
        return False
    digits = []
    for name, stride in found[0].items():
        rising = prove_lt(0, stride, bounds)
        if not rising and not prove_lt(stride, 0, bounds):
            return False
        digits.append((stride if rising else -stride, loops[name].stop - loops[name].start))
    while digits:
        # The digit with the greatest stride: all others together must stay below it.
        for position, (stride, _) in enumerate(digits):
            rest = digits[:position] + digits[position + 1 :]
            span = sum(((size - 1) * other for other, size in rest), start=ZERO)
            if prove_lt(span, stride, bounds):
                digits = rest
                break
        else:
            return False
    return True


def strides(dim: Dim, names: Iterable[str]) -> tuple[dict[str, Dim], Dim] | None:
    """(stride of each name, rest) where `dim` is affine in the names; None otherwise."""
    wanted = set(names)
    found: dict[str, Dim] = {}
    rest = ZERO
    for factor, monomial in dim.terms:
        term = Dim(((factor, monomial),))
        used = term.symbols & wanted
        if not used:
            rest = rest + term
            continue
        plain = [atom for atom, power in monomial if atom in wanted and power == 1]
        others = tuple(pair for pair in monomial if pair[0] not in wanted)
        if len(plain) != 1 or len(used) != 1 or len(others) != len(monomial) - 1:
            return None
        (name,) = plain
        stride = Dim(((factor, others),))
        if stride.symbols & wanted:
            return None
        found[str(name)] = found.get(str(name), ZERO) + stride
    return found, rest


def _with_loops(bounds: Bounds, loops: tuple[For, ...]) -> Bounds:
    """The bounds of the sizes, and ranges of the loop variables."""
    for loop in loops:
        known = (loop.start.symbols | loop.stop.symbols) <= set(bounds)
        if loop.variable in bounds:
            continue
        if known:
            bounds = bounds.with_value(loop.variable, loop.start, loop.stop - 1)
        else:
            bounds = bounds.with_range(loop.variable, -GREATEST, GREATEST)
    return bounds


# What a kernel stores


def windows_overlap(access: Access, bounds: Bounds) -> bool:
    """Whether the iterations of two loops access an element several times, as the windows of a
    convolution do whose stride is less than their extent."""
    extents: dict[str, Dim] = {}
    for loop in access.ranges:
        if not all(name in bounds for name in loop.start.symbols | loop.stop.symbols):
            return False
        bounds = bounds.with_value(loop.variable, loop.start, loop.stop - 1)
        extents[loop.variable] = loop.extent
    for dim in access.at:
        found = strides(dim, extents)
        steps = [] if found is None else [*found[0].items()]
        if len(steps) < 2 or not all(step.is_constant for _, step in steps):
            continue
        reach = 0
        for name, step in sorted(steps, key=lambda pair: abs(pair[1].constant)):
            if reach >= abs(step.constant):
                return True
            extent = interval(extents[name], bounds)[1]
            reach += abs(step.constant) * (extent - 1)
    return False


def stored_once(body: tuple[Stmt, ...], name: str, shape: Shape, bounds: Bounds) -> bool:
    """Every element of the buffer is stored exactly once, whatever the data."""
    found = _unconditional_stores(body, name)
    if not found:
        return False
    if not all(one_to_one(a.at, a.ranges, bounds, a.data) for a in found):
        return False
    stored = ZERO
    for access in found:
        around = _with_loops(bounds, access.ranges)
        extents = [loop.extent for loop in access.ranges]
        variables = {loop.variable for loop in access.ranges}
        if any(extent.symbols & variables for extent in extents):
            return False
        if not all(prove_le(0, extent, around) for extent in extents):
            return False
        stored = stored + prod(extents, start=ONE)
    if stored != prod(shape, start=ONE):
        return False
    return all(
        _disjoint(one, other, bounds)
        for number, one in enumerate(found)
        for other in found[:number]
    )


def _disjoint(one: Access, other: Access, bounds: Bounds) -> bool:
    """On some axis the one lies wholly below the other."""
    if len(one.at) != len(other.at):
        return False
    for a, b in zip(one.at, other.at, strict=True):
        first, second = _range(a, one, bounds), _range(b, other, bounds)
        if first is None or second is None:
            continue
        if prove_lt(first[1], second[0], bounds) or prove_lt(second[1], first[0], bounds):
            return True
    return False


def _range(dim: Dim, access: Access, bounds: Bounds) -> tuple[Dim, Dim] | None:
    """Least and greatest value of an affine index over its loops, as sizes."""
    if dim.symbols & access.data:
        return None
    low = high = dim
    for loop in reversed(access.ranges):
        ends = []
        for end, upwards in ((low, False), (high, True)):
            found = strides(end, (loop.variable,))
            if found is None:
                return None
            stride = found[0].get(loop.variable, ZERO)
            around = _with_loops(bounds, access.ranges)
            rising = prove_le(0, stride, around)
            if not rising and not prove_le(stride, 0, around):
                return None
            value = loop.stop - 1 if rising == upwards else loop.start
            ends.append(end.substitute({loop.variable: value}))
        low, high = ends
    return low, high


def _unconditional_stores(body: tuple[Stmt, ...], name: str) -> list[Access] | None:
    """Stores to the buffer; None where one depends on a condition or cannot be analyzed.
    Both branches of a condition with the same stores count as one."""
    if opaque(body):
        return None
    found = stores(body, name)
    while inner := max((a.branches for a in found), key=len, default=()):
        condition = inner[-1][0]
        sides = [[a for a in found if (condition, side) in a.branches] for side in (1, 2)]
        then, other = ([(a.at, a.ranges, a.data) for a in side] for side in sides)
        if then != other:
            return None
        kept = [a for a in found if a not in sides[1]]
        found = [replace(a, branches=a.branches[:-1]) if a in sides[0] else a for a in kept]
    return found


def opaque(body: tuple[Stmt, ...]) -> bool:
    """It holds statements that access more than their index says."""
    return any(isinstance(stmt, Multiply | Micro | Reserve) for stmt in walk(body))


# Questions of the mergers


def independent(inner: tuple[Stmt, ...], loops: tuple[For, ...], bounds: Bounds) -> str | None:
    """Why the iterations of the loops, each of which runs `inner`, may not run in another
    order; None where they may."""
    for name in sorted({a.name for a in accesses(inner) if a.stored}):
        if _unconditional_stores(inner, name) is None:
            return "the consumer stores conditionally"
        found = list(accesses(inner, name))
        if any(a.at != found[0].at or a.loops for a in found):
            return "the consumer stores at several indices or reads its own result"
        if not one_to_one(found[0].at, loops, bounds, found[0].data):
            return "the consumer may store an element more than once"
    return None


def separate_rows(body: tuple[Stmt, ...], variables: Iterable[str]) -> bool:
    """Iterations of the loops over `variables`, which are around the whole body, share no
    element of what the body stores: for each variable, one axis of every access is it."""
    for name in {a.name for a in accesses(body) if a.stored}:
        found = list(accesses(body, name))
        for variable in variables:
            wanted = Dim.of(variable)
            rank = len(found[0].at)
            if not any(all(a.at[axis] == wanted for a in found) for axis in range(rank)):
                return False
    return True


def carried(body: tuple[Stmt, ...], name: str) -> bool:
    """Whether iterations of a loop may load elements of the buffer that other iterations store."""
    for loop in walk(body):
        if not isinstance(loop, For):
            continue
        found = list(accesses(loop.body, name))
        if len({access.stored for access in found}) < 2:
            continue
        own = Dim.of(loop.variable)
        if not any(all(a.at[axis] == own for a in found) for axis in range(len(found[0].at))):
            return True
    return False
