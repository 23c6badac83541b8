# SPDX-License-Identifier: Apache-2.0
"""Random ONNX graphs with symbolic sizes compute what ONNX Runtime computes, node by node.

The oracle runs each node alone, so nothing that merges or reorders has a part in it. The C
runs under ASan and UBSan at the lowest, the highest and two other sizes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.graphs import random_graph
from tests.fuzz.judge import judge
from tests.fuzz.wide import faults

PER_LIBRARY = 15
GATE, LONG = 4, 1500
WIDE_LONG = 1500


def verify(seeds: range) -> None:
    refused, wrong = judge({seed: random_graph(seed) for seed in seeds})
    assert not wrong, "\n".join(wrong)
    assert not refused, refused


@pytest.mark.slow
def test_graphs_compute_what_their_nodes_do() -> None:
    verify(range(GATE))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start", range(GATE, LONG, PER_LIBRARY))
def test_graphs_compute_what_their_nodes_do_at_length(
    start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAX_AOT_CACHE", str(tmp_path))
    verify(range(start, min(start + PER_LIBRARY, LONG)))


@pytest.mark.slow
def test_wide_graphs_compute_what_their_nodes_do() -> None:
    found = faults(range(GATE))
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("start", range(GATE, WIDE_LONG, PER_LIBRARY))
def test_wide_graphs_compute_what_their_nodes_do_at_length(
    start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAX_AOT_CACHE", str(tmp_path))
    found = faults(range(start, min(start + PER_LIBRARY, WIDE_LONG)))
    assert not found, "\n".join(found)
