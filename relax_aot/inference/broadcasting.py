# SPDX-License-Identifier: Apache-2.0
"""Broadcasting of sizes that may be 1 at run time.

Ops broadcast an axis of size 1. If the size is dynamic, the model may mean either: two sizes that
are equal, or one that stretches if it is 1. Here, such operands are stretched by `expand` calls
whose indices are multiplied by 0 or 1, so that the op itself sees equal sizes. The size of the
result is the one that cannot be 1, else the greatest (0 if one is 0). Sizes stay unstretched if
the bounds, a relation of the user or an earlier condition prove them equal, and if they have a
symbol in common: those are related, and the op requires that they are equal. A size that is the
result of broadcasting is related to others through the sizes that it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relax_aot.inference.sizes import Sizes
from relax_aot.ir.dims import ONE, Dim, Max, Min, assume, dim_max, dim_min, prove_eq, prove_le
from relax_aot.ir.graph import Var
from relax_aot.ir.types import TensorType
from relax_aot.ops._op import Broadcast, Op

Shape = tuple[Dim, ...]


def stretched_shapes(
    sizes: Sizes, record: Op, args: Sequence[Var | None], attrs: Mapping[str, Any]
) -> dict[int, Shape]:
    """The shapes of the operands that have to be stretched, by number."""
    if record.broadcasts is None or all(arg is None or _is_static(arg) for arg in args):
        return {}
    types = [None if arg is None else arg.type for arg in args]
    found: dict[int, Shape] = {}
    for group in record.broadcasts(*types, **attrs):
        given = {i: t for i in group.operands if (t := types[i]) is not None}
        found |= _of_group(sizes, group, given)
    return found


def _is_static(arg: Var) -> bool:
    return all(size.is_constant for size in arg.type.shape)


def _of_group(sizes: Sizes, group: Broadcast, types: Mapping[int, TensorType]) -> dict[int, Shape]:
    shapes = {i: t.shape[: t.rank - group.core] if group.core else t.shape
              for i, t in types.items()}  # fmt: skip
    target = group.target or ()
    made = {i: list(shape) for i, shape in shapes.items()}
    for axis in range(1, 1 + max(map(len, shapes.values()), default=0)):
        meeting = {i: shape[-axis] for i, shape in shapes.items() if axis <= len(shape)}
        whole = target[-axis] if axis <= len(target) else None
        stretch = stretched_sizes(sizes, meeting.values(), whole)
        for i, size in meeting.items():
            made[i][-axis] = stretch.get(size, size)
    return {
        i: (*shape, *types[i].shape[len(shape) :])
        for i, shape in made.items()
        if tuple(shape) != shapes[i]
    }


def stretched_sizes(
    sizes: Sizes, meeting: Iterable[Dim], target: Dim | None = None
) -> dict[Dim, Dim]:
    """What each size that may be 1 stretches to; without `target`, the sizes broadcast to each
    other. Sizes that are left out are to be equal."""
    distinct = list(dict.fromkeys(size for size in meeting if size != ONE))
    if len(distinct) < 2 and target is None:
        return {}
    facts = assume(sizes.bounds, sizes.relations())

    def related(a: Dim, b: Dim) -> bool:
        if prove_eq(a, b, facts):
            return True
        within = parts_of(a) < parts_of(b) or parts_of(b) < parts_of(a)
        return not within and not a.symbols.isdisjoint(b.symbols)

    def may_be_one(size: Dim) -> bool:
        return not size.is_constant and not prove_le(2, size, facts)

    loose = [size for size in distinct if may_be_one(size)]
    firm = [size for size in distinct if size not in loose]
    if target is not None:
        whole = target
    elif firm:
        whole = next((size for size in firm if size.is_constant), firm[0])
    else:
        different: list[Dim] = []
        for part in dict.fromkeys(
            part for size in loose for part in sorted(parts_of(size), key=str)
        ):
            if not any(related(part, other) for other in different):
                different.append(part)
        if len(different) < 2:
            return {}
        whole = dim_max(*different)
        empty = [size for size in different if not prove_le(1, size, facts)]
        if empty:
            whole = whole * dim_min(1, *empty)
        return dict.fromkeys(loose, whole)
    return {size: whole for size in loose if not related(size, whole)}


def parts_of(size: Dim) -> frozenset[Dim]:
    """The sizes whose maximum it is, where it is one of broadcasting: that of a slice, such as
    `max(0, end - start)`, has constants, which do not broadcast to each other."""
    atoms = [atom for _, monomial in size.terms for atom, _ in monomial]
    found = [atom for atom in atoms if isinstance(atom, Max)]
    others = [atom for atom in atoms if not isinstance(atom, Max | Min)]
    if len(size.terms) == 1 and len(found) == 1 and not others:
        parts = frozenset(found[0].args)
        return frozenset({size}) if any(part.is_constant for part in parts) else parts
    return frozenset({size})
