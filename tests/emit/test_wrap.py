# SPDX-License-Identifier: Apache-2.0
"""Long lines of C are broken; not a token changes."""

from __future__ import annotations

import re

import pytest

from relax_aot.emit.c_layout import COLUMNS
from relax_aot.emit.wrap import wrapped

ARGUMENTS = ", ".join(f"const int32_t *restrict number_{n}" for n in range(9))
NAME = "a_function_whose_name_takes_most_of_the_line_alone_so_that_nothing_fits"
LINES = {
    "prototype": f"enum raot_status run({ARGUMENTS});",
    "long name": f"static void {NAME}({ARGUMENTS})",
    "nested calls": "    y = " + "clamp(" * 8 + "x" * 40 + ", 0)" * 8 + ";",
    "condition": "    if (" + " && ".join(f"first_{n} == {n}" for n in range(20)) + ") {",
    "sum of products": "    SIZE = "
    + " + ".join(f"4LL * (long long)N{n}" for n in range(12))
    + ",",
    "choice": "x = " + "a" * 60 + " > 0 ? f(" + ", ".join("b" * 9) + ") : g(" + "c" * 50 + ");",
    "string": f'ASSERT({"a" * 50} <= 3, "{"words, (and) signs = " * 4}");',
    "comment behind code": f"    int32_t x; /* {'several words ' * 12}*/",
    "macro": f"#define BLOCK(storage, name) ALIGNED({'A' * 49}) storage unsigned char name[BYTES]",
    "pasted names": "#define N(name, a, b) name" + "".join(f"##_size{n}##a" for n in range(12)),
}


def tokens(text: str) -> list[str]:
    bare = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")
    return re.findall(r'"[^"]*"|\w+|[^\w\s]', bare)


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_long_line_is_broken_between_its_tokens(line: str) -> None:
    assert len(line) > COLUMNS
    text = wrapped(line)
    assert max(map(len, text.split("\n"))) <= COLUMNS
    assert tokens(text) == tokens(line)
    assert wrapped(text) == text


def test_deep_nesting_takes_no_exponential_time() -> None:
    line = "    y = " + "clamp(" * 30 + "x" + ", 0)" * 30 + ";"
    assert tokens(wrapped(line)) == tokens(line)


def test_a_long_declaration_without_a_call_is_kept_whole() -> None:
    line = f"    static const struct {'m' * 50}_memory {'n' * 50} = {{"
    assert tokens(wrapped(line)) == tokens(line)


def test_arguments_are_aligned_as_clang_format_does() -> None:
    arguments = ("memory *memory", "dims *dims", "inputs *in", "outputs *out")
    given = ", ".join(f"const struct tagger_{argument}" for argument in arguments)
    first, second = wrapped(f"enum raot_status tagger_run({given});").split("\n")
    assert first.endswith("const struct tagger_dims *dims,")
    assert second.startswith(" " * len("enum raot_status tagger_run(") + "const struct")


def test_words_of_a_comment_are_filled_with_their_indent() -> None:
    line = " *   1. " + "word " * 30
    first, second = wrapped(line.rstrip()).split("\n")
    assert first.startswith(" *   1. word")
    assert second.startswith(" *      word")
