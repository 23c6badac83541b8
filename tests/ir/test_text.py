# SPDX-License-Identifier: Apache-2.0
"""Text and IR say the same, in both directions; what is no program is refused at its place."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from relax_aot.driver import Options, compile_module
from relax_aot.errors import RelaxAotError
from relax_aot.ir.graph import Module
from relax_aot.ir.lexer import TextError
from relax_aot.ir.parse import parse
from relax_aot.ir.text import to_text
from relax_aot.project.board import load_board
from tests.ir.programs import modules


@pytest.mark.slow
@given(modules())
@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
def test_text_reads_back_as_the_same_module(module: Module) -> None:
    text = to_text(module)
    again = parse(text, {constant.digest: constant.data for constant in module.constants})
    assert to_text(again) == text
    # NaN differs from itself, as an attribute too; text tells it from other numbers.
    if "nan" not in text:
        assert again == module


def test_a_comment_is_an_origin_only_behind_a_call() -> None:
    module = parse(
        """
        # about the program
        symbol n in 1..8  # input x, axis 0
        func @main(%x: f32[n]) {
          # about the call
          %y: f32[n] = relu(%x)  # /a/Relu
          return %y
        }
        """
    )
    assert module.symbols[0].origin == "input x, axis 0"
    assert module.main.body[0].origin == "/a/Relu"


def test_a_relation_may_be_written_either_way() -> None:
    text = "require {}\nfunc @main(%x: f32[n]) {{\n return %x\n}}"
    shown = {
        parse(text.format(relation)).conditions
        for relation in ("n + 1 <= m", "n < m", "m > n", "m >= n + 1")
    }
    assert len(shown) == 1


PLACES = [
    ("func @main(%x: f32[n) {", 1, 21, "`,`"),
    ("func @main(%x: f31[n]) {", 1, 16, "an element type"),
    ("func @main(%x: f32[n]) {\n  return %y\n}", 2, 10, "%y is not defined above"),
    ("func @main(%x: f32[n]) {\n  %y: f32[n] = relu(%x, %x\n}", 3, 1, "`,`"),
    ("func @main(%x: f32[n]) {\n  %x: f32[n] = relu(%x)\n}", 2, 3, "already"),
    ("func @main(%x: f32[n // 0]) {", 1, 26, "a divisor other than 0"),
    ("symbol n in 1..\n", 1, 16, "an integer"),
    ("symbol n in 4\n", 1, 14, "`..`"),
    ("symbol $ in 4\n", 1, 8, "unexpected '$'"),
    ("const %c: u8[1] = [256]", 1, 20, "256 is not a value of type u8"),
    ("const %c: u8[2] = [1]", 1, 19, "2 elements, got 1"),
    ("const %c: u8[n] = [1]", 1, 19, "sizes of a constant are numbers"),
    ("const %c: u8[1] = [1.5]", 1, 20, "not a value of type u8"),
    ("kernel @k(%x: f32[n]) -> () {\n  %x[0, 0] = 1.0:f32\n}", 2, 4, "takes 1 indices"),
    ("kernel @k(%x: f32[n]) -> () {\n  %x[0] = z\n}", 2, 11, "expected an expression"),
    (
        "kernel @k(%x: f32[n]) -> () {\n  %x[0] = sinn(%x[0])\n}",
        2,
        11,
        "unknown scalar function sinn",
    ),
    ("kernel @k(%x: f32[n]) -> () {\n  %x[0] = (%x[0] + 1:i32)\n}", 2, 18, "f32 and i32"),
    ("kernel @k(%x: f32[n]) -> () {\n  %x[0] = 1.0:f32 + 2.0:f32\n}", 2, 19, "end of the line"),
    ('func @main() {\n  %y: f32[] = f() {a=1, a="x"}\n}', 2, 25, "twice"),
    ('module "\\q"', 1, 8, "wrong escape"),
    ("", 1, 1, "a function"),
]


@pytest.mark.parametrize(("text", "line", "column", "expected"), PLACES)
def test_errors_name_the_place_and_what_was_expected(
    text: str, line: int, column: int, expected: str
) -> None:
    with pytest.raises(TextError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"line {line}, column {column}: "), caught.value
    assert expected in str(caught.value)


@pytest.mark.parametrize("text", ["(" * 10_000, "func @f(" + "%" * 10_000, "{" * 10_000])
def test_hostile_text_is_refused(text: str) -> None:
    with pytest.raises(TextError):
        parse("func @main() {\n %y: f32[" + text)
    with pytest.raises(TextError):
        parse("kernel @k() -> () {\n let x = " + text)


@pytest.mark.slow
def test_a_product_that_grows_without_end_is_refused() -> None:
    factor = "(" + " + ".join(f"s{i}" for i in range(20)) + ")"
    with pytest.raises(TextError, match="smaller product"):
        parse(f"require {' * '.join([factor] * 12)} == 0")


LARGE = "const %w: f32[3, 4] = sha256:{}\nfunc @main() {{\n  return %w\n}}\n"


def test_large_constants_come_from_beside_the_text() -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    text = LARGE.format("9" * 16)
    bare = parse(text)
    assert "sha256:" + "9" * 16 in to_text(bare)
    assert parse(to_text(bare)) == bare
    with pytest.raises(RelaxAotError, match=r"are digests without data: %w;"):
        compile_module(bare, load_board("host"), Options())
    with pytest.raises(TextError, match=r"have the digest \w+, not 9999"):
        parse(text, {"w": data})
    with pytest.raises(TextError, match=r"f32\[3, 4\] are float32\[4, 3\]"):
        parse(text, {"w": data.T})
    digest = hashlib.sha256(data.tobytes()).hexdigest()[:16]
    found = parse(LARGE.format(digest), {digest: data})
    np.testing.assert_array_equal(found.constants[0].data, data)
    assert parse(LARGE.format(digest)) == found
    for shared in (data.reshape(-1), data.view(np.int32)):  # a constant with the same bytes
        assert parse(LARGE.format(digest), {digest: shared}) == found
