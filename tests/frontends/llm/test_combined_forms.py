# SPDX-License-Identifier: Apache-2.0
"""A prefix together with a draft model, and with caches of windows, of bytes and of halves."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

import relax_aot as rx
from tests.frontends.llm.checkpoints import Llama
from tests.frontends.llm.models import MODELS
from tests.frontends.llm.test_generate import CHUNK, WORDS, Generator, built
from tests.frontends.llm.tokenizer_files import KINDS

LARGE = Llama(words=WORDS, width=16, hidden=20, layers=1, queries=2, keys=1, size=8)
SMALL = Llama(words=WORDS, width=8, hidden=12, layers=1, queries=1, keys=1, size=8, tied=False)
PREFIX, PROMPT = b"def f(x): return x def f(x)", b" a b a b"
WINDOWED, SIZE = "late windows", 20


def calls_of(tokens: int) -> int:
    return -(-tokens // CHUNK)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    KINDS["llama3"]().save(str(LARGE.write(folder / "toy") / "tokenizer.json"))
    SMALL.write(folder / "small")
    (folder / "prefix.txt").write_bytes(PREFIX)
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> Generator:
    found = Generator(*built(folder / "toy", folder / "alone"))
    found.ffi.cdef("int toy_truncate_m(const struct toy_memory *memory, int32_t length);")
    return found


@pytest.fixture(scope="module")
def tokens(folder: Path) -> tuple[int, int]:
    """Of the prefix, and of a prompt behind it."""
    tokenizer = Tokenizer.from_file(str(folder / "toy" / "tokenizer.json"))
    prompt = tokenizer.encode(PROMPT.decode(), add_special_tokens=False)
    return len(tokenizer.encode(PREFIX.decode()).ids), len(prompt.ids)


def behind_the_prefix(one: Generator, **sampling: Any) -> tuple[list[Any], int]:
    """The text behind the prompt, and the calls that read prompts."""
    read = one.library.prefills(1)
    found = [one(PROMPT, **sampling), one(b" x", max_tokens=4)]
    return found, read + one.library.prefills(1)


@pytest.mark.long
@pytest.mark.parametrize("draft", [None, pytest.param("toy", marks=pytest.mark.long),
                                   pytest.param("small", marks=pytest.mark.long)])  # fmt: skip
def test_a_prefix_is_not_read(
    draft: str | None, folder: Path, alone: Generator, tokens: tuple[int, int]
) -> None:
    """The text is that behind a prompt, without the calls that read the prefix; those of a draft
    model are fewer."""
    options = ["--prefix", str(folder / "prefix.txt")]
    if draft is not None:
        options += ["--speculate", "3", "--draft", str(folder / draft)]
    fixed = Generator(*built(folder / "toy", folder / f"by_{draft}", *options))
    continued = [0, 0]
    for seed, how in product(range(3), ({}, {"temperature": 0.5})):
        alone.clear()
        assert alone(PREFIX, stop=1, options=1).held == tokens[0] + 1
        assert alone.library.toy_truncate_m(alone.memory, tokens[0]) == 0
        alone.library.calls(1)
        wanted, all_read = behind_the_prefix(alone, seed=seed, max_tokens=14, **how)
        fixed.clear()
        assert fixed.library.toy_get_m(fixed.memory) == tokens[0]
        found, read = behind_the_prefix(fixed, seed=seed, max_tokens=14, **how)
        assert found == wanted
        assert all_read - read == calls_of(tokens[0])
        for number, one in enumerate((alone, fixed)):
            continued[number] += one.library.calls(1)
    if draft is None:
        assert continued[0] == continued[1]
    elif draft == "toy":
        # The same model proposes what is chosen, where the most likely token is.
        assert continued[1] < 0.7 * continued[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("prefix", "kind"),
    [(SIZE, "int8"), (3, "int8"), (SIZE, "f16"), (SIZE, "f32"), (33, "int8")],
)
def test_a_prefix_in_caches_of_windows(prefix: int, kind: str, tmp_path: Path) -> None:
    """The bits behind the prefix are those behind a prefill of it, and of a window that dropped its
    first tokens."""
    path = MODELS[WINDOWED].write(tmp_path / "tiny")
    given = np.random.default_rng(4).integers(0, Llama().words, 60).astype(np.int32)
    hosts = [
        rx.compile(
            rx.load_llm(path, context=60, chunk=8, cache="window", cache_type=kind, prefix=fixed),
            name="tiny",
        ).host()
        for fixed in (given[:prefix].tolist(), None)
    ]
    fixed, plain = hosts
    for start in range(0, prefix, 8):
        plain.prefill(tokens=given[start : min(start + 8, prefix)])
    assert fixed.length("m") == plain.length("m") == prefix
    assert fixed.length("w") == plain.length("w")
    for start, stop in ((prefix, prefix + 3), (prefix + 3, prefix + 11)):
        rows = [host.prefill(tokens=given[start:stop])["logits"].tobytes() for host in hosts]
        assert rows[0] == rows[1]
    for token in given[prefix + 11 : prefix + 20]:
        rows = [host.decode(token=token)["logits"].tobytes() for host in hosts]
        assert rows[0] == rows[1]
    fixed.reset()
    assert fixed.length("m") == prefix
