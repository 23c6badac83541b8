# SPDX-License-Identifier: Apache-2.0
"""Perplexities are those of float64; the tokenizer in Python is that of the package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer

from relax_aot.cli.main import cli
from relax_aot.frontends.llm.tokenizer import read_tokenizer
from relax_aot.verify.text import HostTokenizer
from tests.frontends.llm.checkpoints import Llama
from tests.frontends.llm.meaning import logits
from tests.frontends.llm.tokenizer_files import KINDS, SAMPLES

CONTEXT, CHUNK = 12, 5
SHAPE = Llama(words=900, width=32, hidden=32, layers=1, queries=2, keys=1, size=16)
TEXT = "def f(x): return x + 1  # \u4f60\u597d, hello world"


@pytest.fixture(scope="module", params=["llama2", pytest.param("llama3", marks=pytest.mark.long)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    SHAPE.write(folder)
    KINDS[request.param]().save(str(folder / "tokenizer.json"))
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return folder


def expected(folder: Path) -> tuple[int, float]:
    """Tokens that are predicted, and the mean of their negative log-probabilities."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = tokenizer.encode(TEXT, add_special_tokens=False).ids
    first = tokenizer.encode("").ids[:1]  # the token behind it ends a text
    losses = []
    for start in range(0, len(text), CONTEXT - len(first)):
        part = first + text[start : start + CONTEXT - len(first)]
        scores = logits(SHAPE, part)
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        losses += [-np.log(chances[at - 1, part[at]]) for at in range(1, len(part))]
    return len(losses), float(np.mean(losses))


@pytest.mark.long
def test_perplexity_is_that_of_float64(folder: Path) -> None:
    command = ["perplexity", str(folder), str(folder / "text.txt"), "--context", str(CONTEXT)]
    command += ["--chunk", str(CHUNK), "--quantize", "q8_0", "--quantize", "q4_0", "--json", "-"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    plain, eight, four = json.loads(done.stdout)
    tokens, loss = expected(folder)
    assert [row["tokens"] for row in (plain, eight, four)] == [tokens] * 3
    errors = [abs(np.log(row["perplexity"]) - loss) / loss for row in (plain, eight, four)]
    # Vocabularies depend on the order of the package's hash tables.
    assert errors[0] < 1e-6 < errors[1] < 0.01
    assert 1e-6 < errors[2] < 0.1
    assert plain["bytes"] > 3 * eight["bytes"] > 4 * four["bytes"]


@pytest.mark.long
def test_caches_of_each_type_are_measured(folder: Path) -> None:
    command = ["perplexity", str(folder), str(folder / "text.txt"), "--context", str(CONTEXT)]
    command += ["--cache-type", "f16", "--cache-type", "int8", "--json", "-"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["caches"] for row in rows] == ["f32", "f16", "int8"]
    _, loss = expected(folder)
    plain, half, byte = (abs(np.log(row["perplexity"]) - loss) / loss for row in rows)
    assert plain < 1e-6
    # The rounding of a key or value: 2^-11 of it; 1/254 of the greatest of its row.
    assert 1e-8 < half < 1e-4
    assert half < byte < 1e-2


@pytest.mark.slow
def test_text_of_python_is_that_of_the_package(folder: Path) -> None:
    ours = HostTokenizer(read_tokenizer(folder))
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in (*SAMPLES, "", "a" * 5000, "\u0958" * 700):
        for frame in (False, True):
            tokens = theirs.encode(text, add_special_tokens=frame).ids
            assert ours.encode(text, frame=frame, special=True).tolist() == tokens
        assert ours.decode(tokens) == theirs.decode(tokens)


def test_what_cannot_be_measured_is_one_message(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("x")
    Llama(words=300, layers=1).write(tmp_path / "toy")
    command = ["perplexity", str(tmp_path / "toy"), str(text)]
    bare = CliRunner().invoke(cli, command)
    assert bare.exit_code and "has no tokenizer" in str(bare.exception)
    KINDS["llama3"]().save(str(tmp_path / "toy" / "tokenizer.json"))
    small = CliRunner().invoke(cli, [*command, "--context", "1"])
    assert small.exit_code and "--context" in str(small.exception)
    text.write_text("hello world")
    unknown = CliRunner().invoke(cli, command)
    assert unknown.exit_code and "300 words" in str(unknown.exception)
    text.write_text("")
    empty = CliRunner().invoke(cli, command)
    assert empty.exit_code and "too few tokens" in str(empty.exception)
