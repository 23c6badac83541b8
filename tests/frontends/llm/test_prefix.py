# SPDX-License-Identifier: Apache-2.0
"""A prefix is read while compiling: what follows has the bits that it has behind a prefill."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.api import EntriesProject
from relax_aot.verify.host import HostEntries
from tests.frontends.llm.checkpoints import Array, Llama

CONTEXT, CHUNK = 48, 16
Given = tuple[tuple[str, Any], ...]
TOKENS = np.random.default_rng(6).integers(0, Llama().words, CONTEXT).astype(np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Llama(layers=1).write(tmp_path_factory.mktemp("model") / "tiny")


@cache
def compiled(
    folder: Path, prefix: int, options: tuple[tuple[str, Any], ...] = ()
) -> EntriesProject:
    """Compiled once in a test, whose flags of the compiler are those of both builds."""
    given = TOKENS[:prefix].tolist() if prefix else None
    model = rx.load_llm(folder, context=CONTEXT, chunk=CHUNK, prefix=given)
    project: EntriesProject = rx.compile(model, name="tiny", **dict(options))
    return project


def follow(host: HostEntries, first: int) -> list[bytes]:
    """The bits of logits behind the first tokens, of a call and of tokens alone."""
    last = min(first + CHUNK, CONTEXT)
    found = [host.prefill(tokens=TOKENS[first:last])["logits"].tobytes()]
    found += [host.decode(token=token)["logits"].tobytes() for token in TOKENS[last : last + 3]]
    return found


def bits_are_those_of_a_prefill(folder: Path, prefix: int, **options: Any) -> None:
    given = tuple(options.items())
    fixed, plain = (compiled(folder, length, given).host() for length in (prefix, 0))
    assert (fixed.length("m"), plain.length("m")) == (prefix, 0)
    for start in range(0, prefix, CHUNK):
        plain.prefill(tokens=TOKENS[start : min(start + CHUNK, prefix)])
    wanted = follow(plain, prefix)
    assert follow(fixed, prefix) == wanted
    fixed.truncate(m=prefix)
    assert follow(fixed, prefix) == wanted
    fixed.reset()
    assert fixed.length("m") == prefix
    assert follow(fixed, prefix) == wanted


@pytest.mark.slow
def test_bits(folder: Path) -> None:
    bits_are_those_of_a_prefill(folder, 27)


@pytest.mark.long
@pytest.mark.parametrize("prefix", [1, CHUNK, CHUNK + 1, CONTEXT - 1])
def test_bits_of_lengths(folder: Path, prefix: int) -> None:
    bits_are_those_of_a_prefill(folder, prefix)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{"weights": "blob"}, {"weights": "asm"}, {"numerics": "ordered"}, {"quantize": "q8_0"},
     {"threads": 2}, {"stepwise": True}],
    ids=str,
)  # fmt: skip
def test_bits_with_options(folder: Path, options: dict[str, Any]) -> None:
    bits_are_those_of_a_prefill(folder, 9, **options)


@pytest.mark.long
def test_memory(folder: Path) -> None:
    """The keys and values are constants, and the state is as large as before."""
    fixed, plain, model = compiled(folder, 27), compiled(folder, 0), Llama()
    rows = 27 * 2 * model.keys * model.size
    assert fixed.built.const_bytes - plain.built.const_bytes == 4 * rows
    assert fixed.built.state_bytes == plain.built.state_bytes
    assert fixed.built.arena_bytes == plain.built.arena_bytes


@pytest.mark.long
def test_a_full_context_changes_nothing(folder: Path) -> None:
    host = compiled(folder, 27).host()
    with pytest.raises(rx.RelaxAotError, match="the first call creates the state"):
        host.truncate(m=3)
    host.prefill(tokens=TOKENS[27:43])
    with pytest.raises(rx.RelaxAotError, match="ended with RAOT_ERR_CAPACITY"):
        host.prefill(tokens=TOKENS[:6])
    assert host.length("m") == 43
    wanted = host.decode(token=TOKENS[43])["logits"]
    host.truncate(m=27)
    host.prefill(tokens=TOKENS[27:43])
    assert (host.decode(token=TOKENS[43])["logits"] == wanted).all()


@pytest.mark.parametrize(
    ("prefix", "problem"),
    [([], "has 0 tokens"), ([1] * CONTEXT, "has 1 to 47"), ([3, 200], "knows 0 to 199"),
     ([-1], "has the token -1"), ("a text", "has no tokenizer"), (7, "a list of tokens"),
     ([1.5], "each token of prefix"), (b"x", "a string or a list")],
    ids=str,
)  # fmt: skip
def test_what_is_no_prefix(folder: Path, prefix: Any, problem: str) -> None:
    with pytest.raises(rx.RelaxAotError, match=problem):
        rx.load_llm(folder, context=CONTEXT, chunk=CHUNK, prefix=prefix)


def test_what_has_no_prefix(folder: Path, tmp_path: Path) -> None:
    model = rx.load_llm(folder, context=CONTEXT, prefix=[1, 2])
    with pytest.raises(rx.RelaxAotError, match="save the model without its prefix"):
        rx.save(model, tmp_path / "tiny.raot")


def test_boards_with_a_gpu_have_no_prefix(folder: Path) -> None:
    with pytest.raises(rx.RelaxAotError, match="has a GPU, on which init clears the state"):
        compiled(folder, 3, (("board", "jetson-nano"),))


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
def test_on_a_board(folder: Path) -> None:
    """The first answer behind the prefix, with the bits of the host."""
    ordered = ("numerics", "ordered")
    host = compiled(folder, 27, (ordered,)).host()
    board = compiled(folder, 27, (ordered, ("board", "mps2-an500")))
    tokens = TOKENS[27:30]
    (run,) = board.emulate([("prefill", {"tokens": tokens})])
    found: Array = run.outputs["logits"]
    assert found.tobytes() == host.prefill(tokens=tokens)["logits"].tobytes()
