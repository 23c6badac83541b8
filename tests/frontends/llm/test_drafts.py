# SPDX-License-Identifier: Apache-2.0
"""A draft model proposes tokens: the text is that without, and the model is called less often."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from tests.frontends.llm.checkpoints import Llama
from tests.frontends.llm.meaning import logits
from tests.frontends.llm.test_generate import CONTEXT, REPEATED, WORDS, Generator, built
from tests.frontends.llm.tokenizer_files import KINDS

MOST = 3
LARGE = Llama(words=WORDS, width=16, hidden=20, layers=1, queries=2, keys=1, size=8)
SMALL = Llama(words=WORDS, width=8, hidden=12, layers=1, queries=1, keys=1, size=8, tied=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    KINDS["llama3"]().save(str(LARGE.write(folder / "toy") / "tokenizer.json"))
    SMALL.write(folder / "small")
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> Generator:
    return Generator(*built(folder / "toy", folder / "alone"))


@pytest.fixture(scope="module", params=["toy", "small"])
def drafted(folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, Generator]]:
    """With itself as its draft, and with a model that knows nothing of it."""
    options = ["--speculate", str(MOST), "--draft", str(folder / request.param)]
    found = Generator(*built(folder / "toy", folder / f"by_{request.param}", *options))
    found.ffi.cdef("int32_t toy_get_d(const struct toy_memory *memory);")
    yield request.param, found


@pytest.mark.long
@pytest.mark.parametrize("how", [{}, {"temperature": 0.3}, {"repetition_penalty": 1.5}], ids=str)
def test_the_text_is_the_same(
    how: dict[str, Any], alone: Generator, drafted: tuple[str, Generator]
) -> None:
    """Every number of tokens, further texts behind them, and callers that stop."""
    name, proposing = drafted
    calls = [0, 0]
    for seed, prompt, most in product(range(3), (REPEATED, b"a"), (0, 1, 2, 7, 20)):
        answers: list[list[Any]] = []
        for number, one in enumerate((alone, proposing)):
            one.clear()
            found = [one(prompt, seed=seed, max_tokens=most, **how)]
            found.append(one(b" x", seed=seed + 9, max_tokens=5, **how))
            found.append(one(b" y", stop=3, max_tokens=9, **how))
            calls[number] += one.library.calls(1)
            answers.append(found)
        assert answers[1] == answers[0]
        last = answers[1][-1]
        if last.status == 0:
            assert proposing.library.toy_get_d(proposing.memory) == last.held
    if name == "toy" and not how:
        # Each call of `verify` accepts all proposals, unless the text ends.
        assert 2.2 * calls[1] < calls[0]


@pytest.mark.long
def test_a_text_fills_the_context(alone: Generator, drafted: tuple[str, Generator]) -> None:
    _, proposing = drafted
    answers = []
    for one in (alone, proposing):
        one.clear()
        found = one(b"a b c", temperature=0.5)
        while found.status == 0:
            found = one(b" x", temperature=0.5, seed=found.held)
        assert found.held <= CONTEXT
        one.library.toy_init(one.memory)
        answers.append((found, one(b"again", max_tokens=6)))
    assert answers[0] == answers[1]


@pytest.mark.long
def test_entries_of_both_models(tmp_path: Path) -> None:
    """They share neither caches nor weights, whose names are equal."""
    paths = [model.write(tmp_path / name) for name, model in (("a", LARGE), ("b", SMALL))]
    source = rx.load_llm(paths[0], context=32, chunk=8, speculate=MOST, draft=paths[1], prefix=[3])
    host = rx.compile(source, name="tiny").host()
    tokens = np.random.default_rng(1).integers(0, WORDS, 9).astype(np.int32)
    host.prefill(tokens=tokens[:8])
    found = host.decode(token=tokens[8])["logits"]
    for start in (0, 5):
        draft = host.draft_prefill(tokens=tokens[start : start + (5 if start == 0 else 4)])
    for model, values in ((LARGE, found), (SMALL, draft["logits"])):
        wanted = logits(model, [3, *tokens.tolist()])[-1]
        np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert (host.length("m"), host.length("d")) == (10, 10)


def test_other_drafts_are_refused(tmp_path: Path) -> None:
    one = LARGE.write(tmp_path / "a")
    other = Llama(words=WORDS + 1, width=8, hidden=12, layers=1).write(tmp_path / "b")
    wrong: list[tuple[int, int | None, Path, str]] = [
        (0, None, one, "give --speculate"),
        (2, 64, one, "and no pool"),
        (2, None, other, f"has {WORDS + 1} tokens, but a {WORDS}"),
    ]
    for speculate, pool, draft, why in wrong:
        with pytest.raises(rx.RelaxAotError, match=why):
            rx.load_llm(one, context=32, speculate=speculate, pool=pool, draft=draft)
