# SPDX-License-Identifier: Apache-2.0
"""Each invariant of a module is broken once, and each breach has its own message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relax_aot.driver import check_stage
from relax_aot.ir.check import CheckError, check, problems
from relax_aot.ir.parse import parse
from relax_aot.microkernels import all_micro_kernels
from relax_aot.ops import deduce

SOUND = """
symbol n in 1..8
inner symbol k in 0..16
require 2*n <= 12
state %s = %z
alias n = "batch-size"

const %w: f32[4] = [1.0, 2.0, 3.0, 4.0]

func @main(%x: f32[n, 4], %s: f32[n], %flag: bool[]) {
  %y: f32[n, 4] = mul(%x, %w)  # /Mul
  %z: f32[n] = call_kernel(%y, %s) {kernel=@add_up}
  %flat: f32[4*n] = view(%y)
  %r: f32[k] = if(%flag, %flat) {
    defines=["k"], else=@rest, else_sizes=[2*n], then=@all, then_sizes=[4*n]}
  return %z, %r
}

func @all(%flat: f32[4*n]) {
  %all_r: f32[4*n] = relu(%flat)
  return %all_r
}

func @rest(%flat: f32[4*n]) {
  %rest_r: f32[2*n] = slice(%flat) {axes=[0], lengths=[2*n], starts=[0], steps=[1]}
  return %rest_r
}

kernel @add_up(%a: f32[n, 4], %s: f32[n]) -> (%b: f32[n]) {
  for i in 0..n {
    local total: f32 = %s[i]
    for j in 0..4 {
      total = (total + %a[i, j])
    }
    %b[i] = total
  }
}
"""

BREACHES = [
    ("symbol n in 1..8", "symbol n in 9..8", "n in 9..8 contains no size"),
    ("symbol n in 1..8", "symbol m in 1..8", "n has no bounds"),
    ("symbol n in 1..8", "symbol n in 1..8\nsymbol n in 1..9", "two symbols are called n"),
    ("symbol n in 1..8", "symbol n in 1..8\nsymbol `a b` in 1..2", "'a b' is not an identifier"),
    ("require 2*n <= 12", "require 2*k <= 12", "k is not known on entry"),
    ("require 2*n <= 12", "require 2*m <= 12", "m has no bounds"),
    ("%s: f32[n], %flag", "%s: f32[k], %flag", "k is an inner symbol"),
    ("state %s = %z", "state %t = %z", "no such parameter"),
    ("state %s = %z", "state %s = %y", "no such result"),
    ("state %s = %z", "state %s = %r", "a state keeps its type"),
    ('alias n = "batch', 'alias m = "batch', "alias m: no parameter"),
    ("%y: f32[n, 4] = mul", "%y: f32[n, 5] = mul", "mul gives f32[n, 4], not f32[n, 5]"),
    ("mul(%x, %w)", "mull(%x, %w)", "unknown op mull"),
    ("mul(%x, %w)", "mul(%x)", "mul takes (x, y): missing a required argument"),
    ("mul(%x, %w)", "mul(%x, %w) {axis=1}", "mul has no attribute axis: it takes no attributes"),
    ("mul(%x, %w)", "mul(%x, %flag)", "f32[n, 4] and bool[]"),
    ("kernel=@add_up", "kernel=@add", "kernel= names no kernel"),
    ("(%y, %s) {kernel", "(%y) {kernel", "kernel @add_up reads f32[n, 4], f32[n], not f32[n, 4]"),
    ("%flat: f32[4*n] = view", "%flat: f32[5*n] = view", "a view keeps the bytes"),
    ("then=@all", "then=@al", "then= names no function"),
    ("then_sizes=[4*n]", "then_sizes=[3*n]", "@all gives f32[4*n], not f32[3*n]"),
    ("then_sizes=[4*n]", "then_sizes=[]", "lists the sizes that it defines"),
    ("if(%flag, %flat)", "if(%flag, %y)", "the parameters of @all are not the arguments"),
    ("if(%flag, %flat)", "if(%flat, %flat)", "a scalar, its condition"),
    ("return %z, %r", "return %z, %z", "%z is two results"),
    ("func @rest", "func @all", "two functions are called all"),
    ("for j in 0..4", "for n in 0..4", "the loop variable n has the name of another size"),
    ("for j in 0..4", "for j in 0..m", "unknown size m"),
    ("%b[i] = total", "%a[i, 0] = total", "%a is an input, and is written"),
    ("%b[i] = total", "%b[j] = total", "unknown size j"),
    ("%b[i] = total", "%b[i] = 1:i32", "a i32 is stored into f32[n]"),
    ("total: f32 = %s[i]", "total: f32 = 0:i32", "total is f32, not its value's type"),
    ("total = (total", "let i = 3\n      total = (total", "i has the name of another size"),
    ("total = (total", "bind q in 0..3 = %s[i]\n      total = (total", "q is bound to a f32"),
    ("%flat: f32[4*n] = view(%y)", "%flat: f32[k] = view(%y)", "k is used before it is defined"),
    ("for j in 0..4", "for j in 0..5", "%a[i, j] is outside f32[n, 4]: 4 on axis 1 for n="),
    ("for i in 0..n", "for i in 0..n + 1", "%s[i] is outside f32[n]: 1 on axis 0 for n=1"),
    ("%b[i] = total", "%b[i - 1] = total", "%b[i - 1] is outside f32[n]: -1 on axis 0"),
    ("%s[i]", "%s[2*i]", "%s[2*i] is outside f32[n]: 2 on axis 0 for n=2"),
    ("%s[i]\n", "%s[i]\n    let h = i + 1\n    total = %s[h]\n", "%s[i + 1] is outside f32[n]"),
    (" {\n  for i", " in_place (%b = %a) {\n  for i", "not a pair of an input and an output"),
]


def test_a_sound_module_has_no_problems() -> None:
    assert list(problems(parse(SOUND), deduce)) == []


@pytest.mark.parametrize(("right", "wrong", "message"), BREACHES, ids=[b[1] for b in BREACHES])
def test_a_breach_has_its_message(right: str, wrong: str, message: str) -> None:
    assert SOUND.count(right) == 1
    found = list(problems(parse(SOUND.replace(right, wrong)), deduce))
    assert any(message in problem for problem in found), found


def test_all_breaches_are_told_at_once_with_call_and_origin() -> None:
    text = SOUND.replace("mul(", "mull(").replace("kernel=@add_up", "kernel=@add")
    with pytest.raises(CheckError) as caught:
        check(parse(text), deduce)
    said = str(caught.value)
    assert "unknown op mull" in said
    assert "in %y: f32[n, 4] = mull(%x, %w)      from /Mul" in said
    assert "kernel= names no kernel" in said


def test_a_stage_that_breaks_an_invariant_is_named() -> None:
    sound = parse(SOUND)
    check_stage("frontend", sound)
    with pytest.raises(CheckError, match="kernel= names no kernel") as caught:
        check_stage("fusion", replace(sound, kernels=()))
    assert caught.value.__notes__ == ["after the stage fusion"]


def test_an_access_that_is_guarded_or_never_reached_is_no_breach() -> None:
    for guarded in (
        "if (index(i) < index(n - 1)) {\n      total = (total + %s[i + 1])\n    }",
        "total = select((index(i) < index(n - 1)), %s[i + 1], total)",
        "for q in 3..3 {\n      total = %s[i + q]\n    }",
        "if ((index(i) < index(n - 1)) && (%s[i + 1] < total)) {\n      total = 0.0:f32\n    }",
        "bind q in 0..n - 1 = cast(total, i64, wrap)\n    total = %s[q]",
    ):
        text = SOUND.replace("= %s[i]\n", f"= %s[i]\n    {guarded}\n")
        assert list(problems(parse(text), deduce)) == [], guarded


LINE = """
symbol n in 0..4

func @main(%x: f32[n], %w: f32[n]) {
  %y: f32[n] = call_kernel(%x, %w) {kernel=@mul_y}
  return %y
}

kernel @mul_y(%x: f32[n], %w: f32[n]) -> (%y: f32[n]) {
  micro raot_line_product_f32(%y[0], %x[0], %w[0]) [n]
}
"""


def test_a_micro_kernel_of_no_elements_accesses_none() -> None:
    """Although its operands begin behind the last element."""
    assert list(problems(parse(LINE, {}, all_micro_kernels()), deduce)) == []
    wrong = parse(LINE.replace("%y[0], %x", "%y[n], %x"), {}, all_micro_kernels())
    assert any("%y[`iteration 0` + n] is outside f32[n]" in one for one in problems(wrong, deduce))


@pytest.mark.parametrize("operand", ["%x[-1]", "%w[1]"])
def test_a_micro_kernel_reads_no_more_than_an_operand_has(operand: str) -> None:
    """From its first element to its last."""
    text = LINE.replace(f"{operand[:2]}[0]", operand)
    found = list(problems(parse(text, {}, all_micro_kernels()), deduce))
    assert any(f"{operand[:2]}[`iteration 0`" in one and "is outside" in one for one in found), (
        found
    )


CHECKED = """
inner symbol k in 0..8

func @main(%x: i64[8], %count: i64[1]) {
  define(%count) {defines=["k"], element=0, low=0, most=8}
  %v: i64[k] = call_kernel(%x) {kernel=@first}
  check() {left=k, relation="==", right=2*(k // 2)}
  %y: i64[2, k // 2] = view(%v)
  return %y
}

kernel @first(%a: i64[8]) -> (%b: i64[k]) {
  for i in 0..k {
    %b[i] = %a[i]
  }
}
"""


def test_a_view_may_rest_on_a_check_above_it() -> None:
    check = '  check() {left=k, relation="==", right=2*(k // 2)}\n'
    view = "  %y: i64[2, k // 2] = view(%v)\n"
    assert list(problems(parse(CHECKED), deduce)) == []
    for text in (
        CHECKED.replace(check, ""),
        CHECKED.replace(check + view, view + check),
        CHECKED.replace('"=="', '"<="').replace("2*(k // 2)}", "2*(k // 2) + 1}"),
    ):
        (problem,) = problems(parse(text), deduce)
        assert "a view keeps the bytes: i64[k] is not proven to have the same size" in problem
