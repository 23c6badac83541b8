# SPDX-License-Identifier: Apache-2.0
"""Random graphs as the entries of one model: each answers as it does alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.entries import EntryError, joined
from relax_aot.ir.graph import Module
from relax_aot.project.board import load_board
from relax_aot.verify.host import HostEntries, entries_host
from tests.fuzz.graphs import Fuzzed, random_graph
from tests.fuzz.judge import KINDS, alike

MOST = 4
"""Graphs in one group at most."""


def groups(first: int, count: int) -> Iterator[dict[str, tuple[Fuzzed, Module]]]:
    """Graphs that are compiled, together where their sizes agree; the first of each twice."""
    group: dict[str, tuple[Fuzzed, Module]] = {}
    seed = first
    while count:
        made, name = random_graph(seed), f"g{seed}"
        seed += 1
        try:
            module = driver.load(made.model, Options(bounds=made.bounds))
            joined({other: found[1] for other, found in group.items()} | {name: module})
        except EntryError:
            continue
        except RelaxAotError:
            continue
        group[name] = (made, module)
        if len(group) == MOST:
            yield group | {"again": next(iter(group.values()))}
            group, count = {}, count - 1


def wrong(host: HostEntries, name: str, made: Fuzzed) -> Iterator[str]:
    interface = host.project.entries[name].interface
    lows = {f.source: f.symbol.low for f in interface.bounded}
    for number, sizes in enumerate(made.assignments):
        given = {value.name: value.arrays[number] for value in made.inputs}
        inputs = [given[port.source] for port in interface.inputs]
        known = {n: size for n, size in sizes.items() if n in lows}
        found = host.run_at(name, lows | known, inputs)
        for value in made.outputs:
            ours, wanted = found[value.name], value.arrays[number]
            if ours.shape != wanted.shape or not alike(ours, wanted, value.tolerance):
                yield f"{name} at {sizes}: {value.name} is {ours}, not {wanted}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count"), [(70_000, 1), pytest.param(71_000, 8, marks=pytest.mark.long)]
)
def test_random_entries(first: int, count: int) -> None:
    problems: list[str] = []
    for number, group in enumerate(groups(first, count)):
        options = Options(
            name="fuzzed",
            optimize=KINDS[number % len(KINDS)],
            weights=("c", "blob")[number % 2],
            stepwise=number % 4 == 3,
            check=True,
        )
        entries = joined({name: module for name, (_, module) in group.items()})
        host = entries_host(driver.compile_entries(entries, load_board("host"), options))
        for name, (made, _) in group.items():
            problems += wrong(host, name, made)
    assert problems == []
