# SPDX-License-Identifier: Apache-2.0
"""Which channels go: those that add nothing, or one number, to every sum that runs over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relax_aot.ops._op import Array
from relax_aot.pruning.links import Key, Links
from relax_aot.pruning.values import Sum


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """A sum of one call, ready to be asked which of its iterations add nothing."""

    call: int
    sum: Sum
    free: Array
    """Where a term is zero, or a known integer that each sum takes as often; an axis per loop."""

    @staticmethod
    def of(call: int, made: Sum) -> Terms:
        return Terms(call, made, made.term.known if made.exact else made.term.zero)


def removed(links: Links, sums: Sequence[Terms], kept: Sequence[Key]) -> Array:
    """A flag for each place and iteration. The places of `kept` all stay; of every other axis, at
    least one does."""
    label, fixed = links.channels()
    for key in kept:
        fixed[label[links.places(key)]] = True
    while True:
        gone = _greatest(links, sums, label, fixed)
        empty = [key for key in links.first if gone[links.places(key)].all()]
        if not empty:
            return gone
        for key in empty:
            fixed[label[links.first[key]]] = True


def _greatest(links: Links, sums: Sequence[Terms], label: Array, fixed: Array) -> Array:
    gone = np.zeros(links.count, np.bool_)
    while True:
        may = ~fixed
        for terms in sums:
            for place in _needed(links, terms, gone):
                may[label[place]] = False
        more = may[label]
        if (more == gone).all():
            return gone
        gone = more


def _needed(links: Links, terms: Terms, gone: Array) -> list[Array]:
    """The iterations of each loop that a sum runs over in which a term counts, for what stays."""
    loops = [f for f in terms.sum.frames if f.number >= 0]
    outer = sum(f.number >= 0 for f in terms.sum.frames[: terms.sum.outer])
    keys: list[Key] = [("loop", terms.call, frame.number) for frame in loops]
    free = terms.free
    for axis, (key, frame) in enumerate(zip(keys, loops, strict=True)):
        if key in links.first and free.shape[axis] == links.sizes[key] and frame.size > 1:
            shape = [-1 if other == axis else 1 for other in range(free.ndim)]
            free = free | gone[links.places(key)].reshape(shape)
    found: list[Array] = []
    for axis in range(outer, len(loops)):
        key = keys[axis]
        if key not in links.first:
            continue
        rest = tuple(a for a in range(free.ndim) if a != axis)
        nothing = free.all(axis=rest)
        places = links.places(key)
        if nothing.size == places.size:
            found.append(places[~nothing])
        elif not nothing.all():
            found.append(places)
    return found
