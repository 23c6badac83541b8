# SPDX-License-Identifier: Apache-2.0
"""Launches for which registers do not suffice have smaller tiles."""

from __future__ import annotations

from dataclasses import dataclass, field

from relax_aot.project.crowded import FREE, Crowded, Reduced, with_registers

Costs = dict[tuple[str, int], list[tuple[int, bool]]]


@dataclass(frozen=True)
class Made:
    reduced: Reduced
    crowded: Crowded = field(default_factory=dict)


def made(costs: Costs, same: frozenset[int] = frozenset()) -> tuple[Reduced, list[Reduced]]:
    """Of launches that cost so much with tiles of each size, the last one with all smaller ones,
    too: what is chosen, and what is compiled for it. `same`: sizes that no kernel has tiles for.
    """
    compiled: list[Reduced] = []

    def assembled(plan: Reduced) -> Made:
        compiled.append(plan)
        sizes = {one: min(plan.count(one), len(own) - 1) for one, own in costs.items()}
        found = {one: costs[one][size] for one, size in sizes.items()}
        return Made(plan, {one: cost for one, cost in found.items() if cost != FREE})

    def kernels(plan: Reduced) -> dict[str, object]:
        times = {name: [plan.count((name, n)) for n in range(3)] for name, _ in costs}
        return {name: [n - (n in same) for n in own] for name, own in times.items()}

    chosen = with_registers(lambda plan: plan, kernels, assembled)
    return chosen.reduced, compiled


def test_the_first_tiles_without_spills_are_taken() -> None:
    costs: Costs = {("a", 0): [(8, False), (4, True), FREE, FREE], ("b", 1): [FREE]}
    chosen, compiled = made(costs)
    assert chosen == (("a", 0), ("a", 0)) and len(compiled) == 3


def test_nothing_is_compiled_again_where_registers_suffice() -> None:
    assert made({("a", 0): [FREE]}) == ((), [()])


def test_the_largest_tiles_are_taken_where_smaller_ones_are_no_better() -> None:
    """Arrays that are indexed by variables are local memory, whatever the tiles."""
    costs: Costs = {("a", 0): [(64, False)], ("a", 1): [(8, False), (16, False), (8, False), FREE]}
    chosen, _ = made(costs)
    assert chosen == (("a", 1),) * 3


def test_kernels_without_other_tiles_are_not_compiled_again() -> None:
    chosen, compiled = made({("a", 0): [(8, False), (8, False), FREE]}, same=frozenset({1}))
    assert chosen == (("a", 0),) * 2 and len(compiled) == 2


def test_a_quarter_of_the_threads_is_better_than_fewer() -> None:
    chosen, _ = made({("a", 0): [(0, True), FREE]})
    assert chosen == (("a", 0),)
