# SPDX-License-Identifier: Apache-2.0
"""A prefill that is computed in parts of its tokens is that of all tokens, also where it fails."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.api import EntriesProject
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.bounds import WrongBound
from relax_aot.ir.text import to_text
from relax_aot.verify.host import StatusError
from tests.frontends.llm.checkpoints import Llama

CONTEXT, CHUNK, PART = 24, 15, 4
TOKENS = np.random.default_rng(8).integers(0, Llama().words, CONTEXT).astype(np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Llama(layers=1).write(tmp_path_factory.mktemp("model") / "tiny")


@cache
def compiled(
    folder: Path, rows: int, options: tuple[tuple[str, Any], ...] = (), **loaded: Any
) -> EntriesProject:
    model = rx.load_llm(folder, context=CONTEXT, chunk=CHUNK, rows=rows, **loaded)
    project: EntriesProject = rx.compile(model, name="tiny", **dict(options))
    return project


def bits_are_those_of_all_rows(folder: Path, options: tuple[tuple[str, Any], ...] = ()) -> None:
    """For the lowest and highest sizes, those of a part, and others; behind other tokens, too."""
    parts, whole = (compiled(folder, rows, options).host() for rows in (PART, CHUNK))
    for first in (0, 3, CONTEXT - CHUNK - 1):
        for count in (1, PART - 1, PART, PART + 1, 2 * PART, 11, CHUNK):
            found = []
            for host in (parts, whole):
                host.reset()
                if first:
                    host.prefill(tokens=TOKENS[:first])
                behind = host.prefill(tokens=TOKENS[first : first + count])["logits"]
                after = host.decode(token=TOKENS[first + count])["logits"]
                found.append((host.length("m"), behind.tobytes(), after.tobytes()))
            assert found[0] == found[1], (first, count)


@pytest.mark.long
def test_bits(folder: Path) -> None:
    bits_are_those_of_all_rows(folder)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{"quantize": "q8_0"}, {"quantize": "q4_0"}, {"quantize": "int4w"},
     {"numerics": "ordered"}, {"threads": 2},
     {"offsets": "dynamic"}, {"weights": "blob"}, {"stepwise": True}, {"functions": "inline"}],
    ids=str,
)  # fmt: skip
def test_bits_with_options(folder: Path, options: dict[str, Any]) -> None:
    bits_are_those_of_all_rows(folder, tuple(options.items()))


@pytest.mark.slow
@pytest.mark.long
def test_a_part_decides_the_arena(folder: Path) -> None:
    """Little but scores depends on the number of tokens in the caches."""
    arenas = [compiled(folder, rows).entries["prefill"].memory.arena_bytes for rows in (4, 8, 15)]
    assert arenas[0] < arenas[1] < arenas[2]
    assert arenas[0] * 15 < arenas[2] * 4 * 1.5


@pytest.mark.slow
def test_a_call_that_fails_has_changed_nothing(folder: Path) -> None:
    """The token that no table has is in the third part; the calls after it are as without it."""
    host, plain = (compiled(folder, PART).host() for _ in range(2))
    wrong = TOKENS[2:13].copy()
    wrong[9] = Llama().words
    for one in (host, plain):
        one.prefill(tokens=TOKENS[:2])
    with pytest.raises(StatusError, match="RAOT_ERR_INDEX"):
        host.prefill(tokens=wrong)
    assert host.length("m") == 2
    for one in (host, plain):
        one.prefill(tokens=TOKENS[2 : 2 + CHUNK])
    with pytest.raises(StatusError, match="RAOT_ERR_CAPACITY"):
        host.prefill(tokens=TOKENS[:8])
    assert host.length("m") == 2 + CHUNK
    ours, wanted = (one.decode(token=TOKENS[20])["logits"] for one in (host, plain))
    assert ours.tobytes() == wanted.tobytes()


@pytest.mark.slow
@pytest.mark.long
def test_which_calls_are_whole(folder: Path) -> None:
    """Those whose tokens all have logits, and of several texts."""
    for loaded in ({"logits": "all"}, {"pool": 32}):
        code = compiled(folder, PART, **loaded).files["tiny.c"]
        assert b"tiny_prefill_part" not in code
    assert b"tiny_prefill_part" in compiled(folder, PART).files["tiny.c"]
    assert b"tiny_prefill_part" not in compiled(folder, PART, (("stepwise", True),)).files["tiny.c"]


def test_rows_are_one_or_more(folder: Path) -> None:
    with pytest.raises(WrongBound, match="0 rows"):
        rx.load_llm(folder, rows=0)


MODULE = """
symbol n in 1..8 in parts of 2 of 8

func @main(%x: f32[n, 3]) {
  %y: f32[3] = reduce(%x) {axes=[0], keepdims=false, kind="sum"}
  return %y
}"""


def test_the_text_form_states_parts() -> None:
    module = rx.parse(MODULE)
    (symbol,) = module.symbols
    assert symbol.division is not None
    assert (symbol.division.part, symbol.division.whole) == (2, 8)
    assert rx.parse(to_text(module)) == module
    narrow = rx.parse(MODULE, bounds={"n": (1, 5)}).symbols[0]
    assert narrow.division is not None and narrow.division.whole == 5
    assert rx.parse(MODULE, bounds={"n": (1, 2)}).symbols[0].division is None
    with pytest.raises(RelaxAotError, match="parts are smaller than the whole"):
        rx.parse(MODULE.replace("parts of 2", "parts of 8"))
    with pytest.raises(RelaxAotError, match="can not be divided by its rows"):
        rx.parse(MODULE.replace("f32[n, 3]", "f32[3, n]").replace("axes=[0]", "axes=[1]"))
