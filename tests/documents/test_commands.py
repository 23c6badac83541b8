# SPDX-License-Identifier: Apache-2.0
"""Every command in the documents is one that the command line understands: those that need files of
a user, too, which no test runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from relax_aot.cli.main import cli
from tests.conftest import ROOT

PAGES = sorted(
    path
    for folder in (ROOT / "docs", ROOT / "examples", ROOT / "benchmarks")
    for path in folder.rglob("*.md")
    if path.name != "options.md"
) + sorted(ROOT.glob("*.md"))  # fmt: skip
LINE = re.compile(r"^(?:    |\$ )?((?:[A-Z_]+=\S+ )*relax-aot .*)$")
WHOLE = re.compile(r"`(relax-aot [^`]*)`")
ENDS = re.compile(r"\s(?:[|;>#]|2>|&&|&).*$")


def in_blocks(text: str) -> Iterator[str]:
    return (found[1] for line in text.splitlines() if (found := LINE.match(line)))


def in_sentences(text: str) -> Iterator[str]:
    """With options; their values may be names."""
    return (one for one in WHOLE.findall(text) if " -" in one and not one.split()[1].isupper())


def words_of(line: str) -> list[str]:
    words = shlex.split(ENDS.sub("", line.replace("\n", " ")))
    return words[words.index("relax-aot") + 1 :]


def understood(words: list[str]) -> None:
    """Parse options and their values."""
    group = click.Context(cli)
    while words and words[0].startswith("-"):
        words = words[1:]
    if not words:
        return
    command = cli.get_command(group, words[0])
    if command is None:
        raise click.NoSuchOption(words[0])
    with suppress(click.exceptions.Exit, click.MissingParameter):
        command.make_context(words[0], list(words[1:]), parent=group)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_understood(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    wrong = []
    for line in in_blocks(text):
        try:
            understood(words_of(line))
        except click.UsageError as error:
            wrong.append(f"{line}: {error.format_message()}")
    for line in in_sentences(text):
        try:
            understood(words_of(line))
        except click.NoSuchOption as error:
            wrong.append(f"{line}: {error.format_message()}")
        except click.UsageError:
            pass
    assert not wrong, "\n".join(wrong)


def test_wrong_commands_are_found() -> None:
    text = (
        "    relax-aot llm x --quantize q9 -o out\n\nAsk `relax-aot compile m.onnx --boards x`.\n"
    )
    (block,), (sentence,) = in_blocks(text), in_sentences(text)
    with pytest.raises(click.BadParameter):
        understood(words_of(block))
    with pytest.raises(click.NoSuchOption):
        understood(words_of(sentence))
