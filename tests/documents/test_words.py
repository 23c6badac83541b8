# SPDX-License-Identifier: Apache-2.0
"""Texts use American spelling and the field's words, not the words that this project replaced.

Texts are documents, docstrings, comments, and messages (string constants with a space) in Python,
and comments and identifiers in C and in templates. Code spans and links are not checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_repository import FILES

BRITISH = re.compile(
    r"(?:quanti|optimi|normali|initiali|recogni|minimi|maximi|seriali|organi|generali|speciali"
    r"|vectori|utili|materiali|customi|emphasi|summari|categori|paralleli|lineari|equali|finali"
    r"|stabili|saniti|randomi|canonicali|tokeni|synchroni|prioriti)s(?:e|ed|es|er|ers|ing|ation)\b"
    r"|\banalys(?:e|ed|ing)\b"
    r"|(?:neighbour|behaviour|colour|favour|labour|flavour)\w*"
    r"|\b(?:centre|centres|licence|licences|fulfil|fulfils|spelt|grey|metre|metres|programme"
    r"|modelled|labelled|cancelled|artefact|defence)\b",
    re.IGNORECASE,
)
REPLACED = {
    r"\bdata decides?\b|\bdata decided\b": "data-dependent",
    r"\brun time knows\b|\bunknown until run time\b": "dynamic",
    r"\bwhat there is\b|\bis there already\b": "has, available, missing",
    r"\bthere is none\b|\bthere are none\b": "has, available, missing",
    r"\b(?:a|the|each|every|one|next|first) turn\b": "iteration",
    r"\bturns\b(?! (?:into|on|off|out)\b)": "iterations",
    r"(?<!exit )(?<!status )(?<!error )\bcodes\b": "quantized values",
    r"\bbeside\b": "next to, in addition to, compared with",
    r"\bquads\b|\bfours\b": "groups of four, four-row interleaved",
    r"\bheard\b": "used",
    r"\btruths\b": "booleans",
    r"\bpainted\b": "measured stack",
    r"\bnobody\b|\bsomebody\b|\banew\b": "plain technical English",
}
"""Patterns, and the words to use."""
ADVICE = {
    BRITISH: "American spelling",
    **{re.compile(pattern, re.IGNORECASE): words for pattern, words in REPLACED.items()},
}
ALLOWED = {
    "tests/documents/test_words.py": "contains the patterns",
}
"""Files and folders, and why they are not checked."""
MEANT = {
    ("examples/gesture/motion.py", "turns"): "rotations of a hand",
}
"""Words in their own sense: file and word, and what it means there."""
C = {".c", ".h", ".j2"}
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|https?://\S+", re.DOTALL)


def without_code(text: str) -> str:
    """`text` with code replaced by its line ends."""
    return CODE.sub(lambda found: "\n" * found[0].count("\n"), text)


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and texts."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, source
        return
    if path.suffix in C:
        yield 1, source.replace("_", " ")
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for number, line in enumerate(source.splitlines(), start=1):
        if line.lstrip().startswith("# "):
            yield number, line


def letters_of(pattern: str) -> Iterator[str]:
    """Of each alternative the longest run of letters that all its matches have."""
    while (simpler := re.sub(r"\([^()]*\)|\\b|.\?", "_", pattern)) != pattern:
        pattern = simpler
    for alternative in pattern.split("|"):
        yield max(re.findall("[a-z ]+", alternative), key=len)


LETTERS = [letters for pattern in REPLACED for letters in letters_of(pattern)]
SPELT = re.compile(BRITISH.pattern)


def is_clean(path: Path) -> bool:
    """No text contains the letters of a pattern, which takes a fraction of the search in texts."""
    source = (ROOT / path).read_text(encoding="utf-8").lower().replace("_", " ")
    source = re.sub(r'"\s*\n\s*[rf]*"', "", source)  # strings in several lines
    return not any(letters in source for letters in LETTERS) and not SPELT.search(source)


def problems_of(path: Path) -> Iterator[str]:
    if is_clean(path):
        return
    for start, text in texts_of(path):
        words = without_code(text)
        for pattern, advice in ADVICE.items():
            for found in pattern.finditer(words):
                if (path.as_posix(), found[0].lower()) not in MEANT:
                    line = start + words.count("\n", 0, found.start())
                    yield f"{path}:{line}: {found[0]}: use {advice}"


def is_checked(path: Path) -> bool:
    allowed = any(path == Path(place) or Path(place) in path.parents for place in ALLOWED)
    return path.suffix in {".md", ".py", *C} and not allowed


CHECKED = [path for path in FILES if is_checked(path)]


@pytest.mark.slow
def test_texts_use_the_words_of_the_field() -> None:
    problems = [problem for path in CHECKED for problem in problems_of(path)]
    if problems:
        pytest.fail("\n  ".join(["replaced words:", *problems]), pytrace=False)


def test_names_of_files_use_american_spelling() -> None:
    assert [str(path) for path in FILES if BRITISH.search(path.as_posix().replace("_", " "))] == []


def test_every_exception_exists() -> None:
    places = [*ALLOWED, *(place for place, _ in MEANT)]
    assert [place for place in places if not (ROOT / place).exists()] == []
