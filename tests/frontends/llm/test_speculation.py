# SPDX-License-Identifier: Apache-2.0
"""The entry `verify` returns the logits of several tokens, with the bits of `decode`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.verify.host import HostEntries
from tests.frontends.llm.checkpoints import Llama

CONTEXT, MOST = 32, 4
TOKENS = np.random.default_rng(8).integers(0, Llama().words, CONTEXT).astype(np.int32)


@cache
def hosted(folder: Path, options: tuple[tuple[str, Any], ...] = ()) -> HostEntries:
    model = rx.load_llm(Llama(layers=1).write(folder), context=CONTEXT, chunk=8, speculate=MOST)
    host: HostEntries = rx.compile(model, name="tiny", **dict(options)).host()
    return host


def rows_are_those_of_decode(host: HostEntries) -> None:
    host.prefill(tokens=TOKENS[:5])
    wanted = [host.decode(token=token)["logits"] for token in TOKENS[5:]]
    for start in (5, 6, 20, CONTEXT - 1):
        for rows in range(1, min(MOST + 1, CONTEXT - start) + 1):
            host.truncate(m=5)
            for token in TOKENS[5:start]:
                host.decode(token=token)
            found = host.verify(tokens=TOKENS[start : start + rows])["logits"]
            assert found.tobytes() == np.array(wanted[start - 5 : start - 5 + rows]).tobytes()
            assert host.length("m") == start + rows


@pytest.mark.slow
def test_bits(tmp_path: Path) -> None:
    rows_are_those_of_decode(hosted(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{"quantize": "q8_0"}, {"quantize": "q4_0"}, {"quantize": "int8w"}, {"numerics": "ordered"}],
    ids=str,
)
def test_bits_with_options(options: dict[str, Any], tmp_path: Path) -> None:
    rows_are_those_of_decode(hosted(tmp_path, tuple(options.items())))


@pytest.mark.long
def test_proposals_without_room_change_nothing(tmp_path: Path) -> None:
    host = hosted(tmp_path)
    for start in range(0, CONTEXT, 8):
        host.prefill(tokens=TOKENS[start : start + 8])
    host.truncate(m=CONTEXT - 2)
    with pytest.raises(rx.RelaxAotError, match="ended with RAOT_ERR_CAPACITY"):
        host.verify(tokens=TOKENS[:3])
    assert host.length("m") == CONTEXT - 2
    with pytest.raises(rx.RelaxAotError, match="ended with RAOT_ERR_INDEX"):
        host.verify(tokens=np.array([1, Llama().words], np.int32))
    assert host.length("m") == CONTEXT - 2
    host.verify(tokens=TOKENS[:2])
    assert host.length("m") == CONTEXT


@pytest.mark.parametrize("count", [-1, CONTEXT])
def test_what_cannot_be_verified(count: int, tmp_path: Path) -> None:
    with pytest.raises(rx.RelaxAotError, match="at most 31 are verified at a time"):
        rx.load_llm(Llama(layers=1).write(tmp_path), context=CONTEXT, speculate=count)
