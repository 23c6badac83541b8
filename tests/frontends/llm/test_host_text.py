# SPDX-License-Identifier: Apache-2.0
"""`host.generate` continues texts as `<name>_generate` does, with the caches of the entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.verify.host import HostEntries
from tests.frontends.llm.checkpoints import Llama
from tests.frontends.llm.test_generate import CHUNK, CONTEXT, Generator, built
from tests.frontends.llm.tokenizer_files import KINDS

PROMPT, MORE = "def f(x): return", " and more"


@dataclass
class Seen:
    """Stops at the `last` token."""

    last: int = 0
    tokens: list[int] = field(default_factory=list)
    text: str = ""

    def __call__(self, token: int, text: str) -> bool:
        self.tokens.append(token)
        self.text += text
        return len(self.tokens) == self.last


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "toy"
    shape = Llama(words=700, width=16, hidden=20, layers=1, queries=2, keys=1, size=8,
                  config={"eos_token_id": 2})  # fmt: skip
    KINDS["llama3"]().save(str(shape.write(folder) / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def host(folder: Path) -> HostEntries:
    return rx.compile(rx.load_llm(folder, context=CONTEXT, chunk=CHUNK), name="toy").host()


@pytest.fixture(scope="module")
def generator(folder: Path) -> Generator:
    return Generator(*built(folder, folder.parent / "out"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 1.5, "seed": 3},
        {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "seed": 2**63},
        {"repetition_penalty": 1.7},
    ],
    ids=["greedy", "warm", "cut", "penalty"],
)
def test_text_is_that_of_the_c(
    how: dict[str, Any], host: HostEntries, generator: Generator
) -> None:
    host.reset()
    generator.clear()
    for prompt, options in ((PROMPT, 1), (MORE, 0)):
        wanted = generator(prompt.encode(), max_tokens=6, options=options, **how)
        assert wanted.status == 0
        seen = Seen()
        text = host.generate(prompt, max_tokens=6, on_token=seen, **how)
        assert (text.encode(), seen.tokens) == (wanted.text, wanted.tokens)
        assert host.length("m") == wanted.held


@pytest.mark.slow
def test_text_continues_what_entries_have_read(host: HostEntries) -> None:
    host.reset()
    text = host.generate(PROMPT, max_tokens=8)
    length = host.length("m")
    host.truncate(m=length - 8)
    logits = host.decode(token=np.array(7, np.int32))["logits"]
    assert logits.shape == (700,) and host.length("m") == length - 7
    host.reset()
    assert host.generate(PROMPT.encode(), max_tokens=8) == text


@pytest.mark.slow
def test_text_ends_where_the_caches_are_full_or_a_caller_stops(host: HostEntries) -> None:
    host.reset()
    host.generate(PROMPT)
    assert host.length("m") == CONTEXT
    with pytest.raises(rx.RelaxAotError, match="toy_generate ended with RAOT_ERR_CAPACITY"):
        host.generate("x")
    assert host.length("m") == CONTEXT
    host.reset()
    seen = Seen(3)
    assert host.generate(PROMPT, on_token=seen) == seen.text
    assert len(seen.tokens) == 3
    with pytest.raises(ZeroDivisionError):
        host.generate("x", on_token=lambda token, _: token // 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompt": 5}, "the prompt is 5, expected a text"),
        ({"prompt": "\ud800"}, "expected a text"),
        ({"prompt": ""}, "RAOT_ERR_SIZE"),
        ({"top_k": -1}, "top_k is -1, expected a number from 0 to"),
        ({"seed": 2**64}, "seed is 18446744073709551616, expected"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": "a"}, "top_p is 'a'"),
    ],
)
def test_wrong_values_are_clear_errors(
    given: dict[str, Any], message: str, host: HostEntries
) -> None:
    host.reset()
    if given.get("prompt") == "":
        host.generate("x", max_tokens=1)  # an empty text begins with a first token
    with pytest.raises(rx.RelaxAotError, match=message):
        host.generate(**{"prompt": "x", **given})


def test_without_a_tokenizer_no_text_is_generated(folder: Path) -> None:
    entries = rx.load_llm(folder, context=CONTEXT, chunk=CHUNK, tokenizer=False)
    project = rx.compile(entries, name="toy")
    assert "toy_generate.c" not in project.files
    with pytest.raises(rx.RelaxAotError, match="toy generates no text: it needs a tokenizer"):
        project.host().generate("x")


def test_a_template_of_python_replaces_that_of_the_checkpoint(folder: Path) -> None:
    entries = rx.load_llm(folder, context=CONTEXT, template="Q: {}\\nA:")
    assert entries.text is not None and entries.text.chat.answer == "\nA:"
