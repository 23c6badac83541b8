# SPDX-License-Identifier: Apache-2.0
"""Programs that say less than types become exact, and compute what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.inference.draft_types import RefineError
from relax_aot.verify.host import StatusError

Array = NDArray[Any]


def ramp(*shape: int) -> Array:
    return np.linspace(-1, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def types_of(text: str, **bounds: int) -> dict[str, str]:
    module = rx.parse(text, bounds=bounds)
    return {out.name: str(out.type) for call in module.main.body for out in call.outs}


def refused(text: str, message: str, **bounds: int) -> None:
    with pytest.raises(rx.RelaxAotError) as caught:
        rx.parse(text, bounds=bounds)
    assert message in str(caught.value)


# Coarse annotations


def test_ops_tell_what_annotations_leave_open() -> None:
    text = """
    func @main(%x: f32[n, 4]) {
      %a: f32[?, 4] = softmax(%x) {axis=1}
      %b: f32 = relu(%a)
      %c: ?[?, ?] = tanh(%b)
      %d = reshape(%c) {shape=[4*n]}
      return %d
    }
    """
    kept = dict.fromkeys("abc", "f32[n, 4]")
    assert types_of(text, n=3) == kept | {"d": "f32[4*n]"}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("f32[?, 5]", "%a is f32[n, 4], not f32[?, 5]"),
        ("f64", "%a is f32[n, 4], not f64"),
        ("?[?]", "%a is f32[n, 4], not ?[?]"),
        ("shape[n]", "%a is f32[n, 4], not shape[n]"),
        ("(f32[n], f32[n])", "%a is a tensor, not (f32[n], f32[n])"),
        ("f32[n, 5]", "relu gives f32[n, 4], not f32[n, 5]"),
    ],
)
def test_an_annotation_that_is_wrong_is_refused(said: str, message: str) -> None:
    refused(f"func @main(%x: f32[n, 4]) {{\n  %a: {said} = relu(%x)\n  return %a\n}}", message, n=3)


def test_every_value_that_stays_coarse_is_named() -> None:
    text = """
    extern @fast = fast("fast.h") (x: in float f32[m], y: out float f32[m]) -> nothing
    func @main(%x: f32[n]) {
      %a: f32[?] = call_extern(%x) {extern=@fast}
      %b: f32 = call_extern(%x) {extern=@fast}
      return %a, %b
    }
    """
    with pytest.raises(RefineError) as caught:
        rx.parse(text, bounds={"n": 3})
    assert "%a: f32[?] is known no better" in str(caught.value)
    assert "%b: f32 is known no better" in str(caught.value)


def test_unknown_axes_of_inputs_are_symbols() -> None:
    text = "func @main(%x: f32[?, 4]) {\n  %y: f32[?, 4] = relu(%x)\n  return %y\n}"
    module = rx.parse(text, bounds={"x_0": 5})
    assert str(module.main.params[0].type) == "f32[x_0, 4]"
    host = rx.compile(module).host()
    np.testing.assert_array_equal(host(x=ramp(3, 4))["y"], np.maximum(ramp(3, 4), 0))
    refused(text, "--bound x_0=128    (input x, axis 0)")


@pytest.mark.parametrize("said", ["f32", "?[3]", "?", "shape[n]", "scalar[n]", "(f32[n], f32[n])"])
def test_an_input_of_c_has_a_known_type_and_rank(said: str) -> None:
    refused(f"func @main(%x: {said}) {{\n  return %x\n}}", "an input of a C function is a tensor")


# match_cast


CAST = """
func @main(%x: f32[n, m]) {
  %y: f32[k, k] = match_cast(%x)
  %z: f32[k, k] = matmul(%y, %y)
  return %z
}
"""


def test_what_match_cast_claims_is_checked_on_entry() -> None:
    module = rx.parse(CAST, bounds={"n": 5, "m": 5})
    assert [str(c) for c in module.conditions] == ["n == m"]
    host = rx.compile(module).host()
    for n in (1, 3, 5):
        x = ramp(n, n)
        np.testing.assert_allclose(host(x=x)["z"], x @ x, rtol=1e-5, atol=1e-6)
    with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
        host(x=ramp(3, 4))


def test_match_cast_divides_and_checks_the_rest() -> None:
    text = """
    func @main(%x: f32[n]) {
      %y: f32[2*h] = match_cast(%x)
      %z: f32[h, 2] = reshape(%y) {shape=[h, 2]}
      %s: f32[h] = reduce(%z) {axes=[1], keepdims=false, kind="sum"}
      return %s
    }
    """
    host = rx.compile(rx.parse(text, bounds={"n": 9})).host()
    np.testing.assert_allclose(host(x=ramp(6))["s"], ramp(3, 2).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(host(x=ramp(8))["s"], ramp(4, 2).sum(axis=1), rtol=1e-6)
    with pytest.raises(StatusError):
        host(x=ramp(7))


def test_what_match_cast_proves_leaves_no_check_and_no_copy() -> None:
    text = """
    func @main(%x: f32[n, 4]) {
      %y: f32[k, 4] = match_cast(%x)
      %z: f32[k, 4] = relu(%y)
      return %z
    }
    """
    project = rx.compile(rx.parse(text, bounds={"n": 4}))
    assert not project.built.source_module.conditions
    assert project.built.plan.arena_bytes == 0


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("f64[n, m]", "match_cast keeps the element type"),
        ("f32[n]", "has another rank"),
        ("f32[p*q, m]", "does not define p"),
        ("f32[n, 9]", "does not hold for any allowed size"),
        ("(f32[n])", "match_cast returns a tensor"),
    ],
)
def test_what_match_cast_cannot_claim_is_refused(said: str, message: str) -> None:
    text = f"func @main(%x: f32[n, m]) {{\n  %y: {said} = match_cast(%x)\n  return %y\n}}"
    refused(text, message, n=5, m=5)


# Functions


DOUBLE = """
func @main(%x: f32[n, 4], %m: f32[n, 3]) {
  %a: f32[2*n, 4] = call(%x, %x) {function=@stack}
  %b: f32[2*n, 3] = call(%m, %m) {function=@stack}
  %c: f32[4*n, 4] = call(%a, %a) {function=@stack}
  return %b, %c
}

func @stack(%x: f32[m, n], %y: f32[m, n]) {
  %both: f32[2*m, n] = concat(%x, %y) {axis=0}
  %y2: f32[2*m, n] = tanh(%both)
  return %y2
}
"""


def test_symbols_of_a_function_are_its_own() -> None:
    host = rx.compile(rx.parse(DOUBLE, bounds={"n": 3})).host()
    for n in (1, 3):
        x, m = ramp(n, 4), ramp(n, 3)
        out = host(x=x, m=m)
        np.testing.assert_allclose(out["b"], np.tanh(np.concatenate([m, m])), rtol=1e-6)
        np.testing.assert_allclose(
            out["c"], np.tanh(np.tanh(np.concatenate([x, x, x, x]))), rtol=1e-6
        )


def test_a_function_of_coarse_parameters_serves_every_rank() -> None:
    text = """
    func @main(%x: f32[n], %y: f64[n, 2]) {
      %a = call(%x) {function=@square}
      %b = call(%y) {function=@square}
      return %a, %b
    }
    func @square(%v: ?) {
      %w = mul(%v, %v)
      return %w
    }
    """
    module = rx.parse(text, bounds={"n": 3})
    assert [str(r.type) for r in module.main.results] == ["f32[n]", "f64[n, 2]"]
    out = rx.compile(module).host()(x=ramp(2), y=ramp(2, 2).astype(np.float64))
    np.testing.assert_allclose(out["b"], ramp(2, 2).astype(np.float64) ** 2)


def test_arguments_that_must_agree_are_checked_on_entry() -> None:
    text = """
    func @main(%x: f32[n], %y: f32[m]) {
      %a: f32[n] = call(%x, %y) {function=@sum}
      return %a
    }
    func @sum(%x: f32[k], %y: f32[k]) {
      %z: f32[k] = add(%x, %y)
      return %z
    }
    """
    module = rx.parse(text, bounds={"n": 3, "m": 3})
    assert [str(c) for c in module.conditions] == ["n == m"]
    with pytest.raises(StatusError):
        rx.compile(module).host()(x=ramp(2), y=ramp(3))


def test_sizes_and_tuples_are_passed_to_functions() -> None:
    text = """
    func @main(%x: f32[n, 6], %y: f32[n, 2]) {
      %t: (f32[n, 6], f32[n, 2]) = tuple(%x, %y)
      %s: shape[n, 6] = shape_of(%x)
      %count: scalar[6*n] = size_of(%x)
      %r = call(%t, %s, %count) {function=@flatten}
      %flat = get(%r) {index=0}
      %other = get(%r) {index=1}
      %out: f32[6*n] = neg(%flat)
      %plain: f32[n, 2] = relu(%other)
      return %out, %plain
    }
    func @flatten(%t: (f32, f32), %s: shape[rows, columns], %count: scalar[c]) {
      %first: f32[rows, columns] = get(%t) {index=0}
      %second = get(%t) {index=1}
      %flat: f32[c] = reshape(%first) {shape=[c]}
      %both = tuple(%flat, %second)
      return %both
    }
    """
    out = rx.compile(rx.parse(text, bounds={"n": 3})).host()(x=ramp(2, 6), y=ramp(2, 2))
    np.testing.assert_array_equal(out["out"], -ramp(12))
    np.testing.assert_array_equal(out["plain"], np.maximum(ramp(2, 2), 0))


CALLS = """
func @main(%x: f32[n, 4]) {{
  {}
  return %a
}}
func @f(%x: f32[m, 4]) {{
  %y: f32[m, 4] = relu(%x)
  return %y
}}
func @again(%x: f32[m, 4]) {{
  %y: f32[m, 4] = call(%x) {{function=@again}}
  return %y
}}
func @higher(%g: (f32[m]) -> f32[m]) {{
  return %g
}}
func @sized(%s: shape[k]) {{
  return %s
}}
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%a = call(%x) {function=@g}", "function= names no function"),
        ("%a = call(%x, %x) {function=@f}", "@f takes 1 arguments, got 2"),
        ("%a: f32[n, 5] = call(%x) {function=@f}", "%a is f32[n, 4], not f32[n, 5]"),
        ("%a = call(%x) {function=@again}", "is recursive"),
        ("%a = call(%x) {function=@main}", "is recursive"),
        ("%a = call(%x) {function=@higher}", "functions are called by name, not passed"),
        ("%a = call(%x) {function=@sized}", "the value of %x is data"),
        ("%a = get(%x) {index=0}", "get takes a tuple"),
        ("%a = tuple(%x, %x)", "result %a is a tuple"),
        ("%t = tuple(%x, %x)\n  %a = relu(%t)", "an op takes tensors, not a tuple"),
        ("%t = tuple(%x, %x)\n  %a = get(%t) {index=2}", "no part 2"),
        ("%a: shape[n] = shape_of(%x)", "%a is [n, 4], not shape[n]"),
        ("%v: f32[4, 4] = relu(%x)\n  %a = call(%v) {function=@f}", "relu gives f32[n, 4]"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(line: str, message: str) -> None:
    refused(CALLS.format(line), message, n=3)


# Kernels and branches


def test_symbols_of_a_kernel_are_its_own() -> None:
    text = """
    func @main(%x: f32[i, 4], %y: f32[3]) {
      %a: f32[2*i] = call(%x) {function=@flat}
      %b = call_kernel(%a) {kernel=@twice}
      %c: f32[3] = call_kernel(%y) {kernel=@twice}
      return %b, %c
    }
    func @flat(%x: f32[i, 4]) {
      %s: f32[i, 2] = slice(%x) {axes=[1], lengths=[2], starts=[0], steps=[1]}
      %r: f32[2*i] = reshape(%s) {shape=[2*i]}
      return %r
    }
    kernel @twice(%v: f32[n]) -> (%w: f32[n]) {
      for i in 0..n {
        %w[i] = (%v[i] * 2.0:f32)
      }
    }
    """
    module = rx.parse(text, bounds={"i": 3})
    assert sorted(k.name for k in module.kernels) == ["twice_1", "twice_2"]
    host = rx.compile(module).host()
    for i in (1, 3):
        out = host(x=ramp(i, 4), y=ramp(3))
        np.testing.assert_array_equal(out["b"], 2 * ramp(i, 4)[:, :2].reshape(-1))
        np.testing.assert_array_equal(out["c"], 2 * ramp(3))


def test_a_branch_may_name_what_it_uses_and_call_functions() -> None:
    text = """
    func @main(%x: f32[n], %flag: bool[]) {
      %y: f32[n] = if(%flag, %x) {else=@down, then=@up}
      %z: f32[n] = if(%flag, %y) {else=@up, then=@down}
      return %y, %z
    }
    func @up(%v: f32[n]) {
      %w: f32[n] = call(%v) {function=@twice}
      return %w
    }
    func @down(%v: f32[n]) {
      %w: f32[n] = neg(%v)
      return %w
    }
    func @twice(%v: f32[k]) {
      %t: f32[k] = add(%v, %v)
      return %t
    }
    """
    host = rx.compile(rx.parse(text, bounds={"n": 4})).host()
    x = ramp(3)
    for flag in (True, False):
        y = 2 * x if flag else -x
        out = host(x=x, flag=np.asarray(flag))
        np.testing.assert_array_equal(out["y"], y)
        np.testing.assert_array_equal(out["z"], -y if flag else 2 * y)


# What ops need of sizes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("slice(%x) {axes=[1], lengths=[5], starts=[0], steps=[1]}", "5 <= 4 does not hold"),
        ("slice(%x) {axes=[1], lengths=[2], starts=[-1], steps=[1]}", "0 <= -1 does not hold"),
        ("slice(%x) {axes=[1], lengths=[3], starts=[1], steps=[-1]}", "0 <= -1 does not hold"),
        ("slice(%x) {axes=[1], lengths=[2], starts=[0], steps=[0]}", "step 0"),
        ("slice(%x) {axes=[7], lengths=[2], starts=[0], steps=[1]}", "axis 7"),
        ("reshape(%x) {shape=[-1, 4]}", "does not hold for any allowed size"),
        ("fill() {dtype=f32, shape=[-n], value=1.0}", "0 <= -n does not hold for any allowed size"),
        ('pad(%x) {after=[0, 0], before=[0, 0], mode="bogus"}', 'mode is "constant" or "reflect"'),
        ('cast(%x) {to="f32"}', 'to is an element type, not "f32"'),
        ("tanh(%x) {alfa=1.0}", "tanh has no attribute alfa: it takes no attributes"),
        ("elu(%x) {alfa=1.0}", "elu has no attribute alfa: it takes alpha=1.0"),
        ('gelu(%x) {approximate="foo"}', 'approximate is "none" or "tanh", not "foo"'),
        ("softmax(%x) {axis=true}", "axis is an integer, not true"),
        ("reduce(%x) {axes=[0], keepdims=true}", "reduce needs the attribute kind"),
        ("transpose(%x) {perm=1}", "perm is a list of integers, not 1"),
    ],
)
def test_attributes_that_make_no_sense_are_refused(call: str, message: str) -> None:
    refused(f"func @main(%x: f32[n, 4]) {{\n  %a = {call}\n  return %a\n}}", message, n=8)


def test_a_slice_that_only_some_sizes_allow_is_checked_on_entry() -> None:
    text = """
    func @main(%x: f32[n], %y: f32[m]) {
      %a: f32[m] = slice(%x) {axes=[0], lengths=[m], starts=[0], steps=[1]}
      %b: f32[m] = add(%a, %y)
      return %b
    }
    """
    host = rx.compile(rx.parse(text, bounds={"n": 5, "m": 5})).host()
    np.testing.assert_allclose(host(x=ramp(5), y=ramp(3))["b"], ramp(5)[:3] + ramp(3))
    with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
        host(x=ramp(3), y=ramp(5))


# Data-dependent sizes


TAKE = """
inner symbol k in 0..6

func @main(%x: f32[6], %count: i64[], %y: f32[m]) {
  %c: scalar[k] = match_cast(%count)
  %first: f32[k] = slice(%x) {axes=[0], lengths=[k], starts=[0], steps=[1]}
  %mine: f32[k] = match_cast(%y)
  %sum = call(%first, %mine) {function=@sum}
  %again = call(%first, %c) {function=@row}
  return %sum, %again
}
func @sum(%a: f32[n], %b: f32[n]) {
  %z: f32[n] = add(%a, %b)
  return %z
}
func @row(%a: f32[n], %count: scalar[n]) {
  %r: f32[1, n] = reshape(%a) {shape=[1, n]}
  return %r
}
"""


def test_match_cast_makes_a_size_of_an_integer() -> None:
    host = rx.compile(rx.parse(TAKE, bounds={"m": (0, 6)})).host()
    x = ramp(6)
    for k in (0, 1, 6):
        out = host(x=x, count=np.asarray(k), y=x[:k])
        np.testing.assert_allclose(out["sum"], 2 * x[:k])
        np.testing.assert_array_equal(out["again"], x[None, :k])
    with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
        host(x=x, count=np.asarray(3), y=x[:4])
    with pytest.raises(StatusError, match="RAOT_ERR_CAPACITY"):
        host(x=x, count=np.asarray(7), y=x[:4])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%c: scalar[q] = match_cast(%count)", "element 0 of %count is data"),
        ("%c: scalar[2*k] = match_cast(%count)", "2*k is not one"),
        ("%c: shape[k, k] = match_cast(%count)", "%count is i64[], not 2 sizes"),
        ("%c: scalar[k] = match_cast(%y)", "%y is f32[m], not 1 sizes"),
    ],
)
def test_a_size_that_data_cannot_define_is_refused(line: str, message: str) -> None:
    refused(TAKE.replace("%c: scalar[k] = match_cast(%count)", line), message, m=6)


def test_each_call_of_a_function_has_its_own_size_from_data() -> None:
    text = """
    symbol n in 1..8
    inner symbol k in 0..8

    func @main(%x: f32[n], %y: f32[n]) {
      %a: f32[?] = call(%x) {function=@positive}
      %b: f32[?] = call(%y) {function=@positive}
      %c: f32[?] = concat(%a, %b) {axis=0}
      return %c
    }
    func @positive(%v: f32[m]) {
      %found = call(%v) {function=@count}
      %size: shape[k] = match_cast(%found)
      %part: f32[k] = slice(%v) {axes=[0], lengths=[k], starts=[0], steps=[1]}
      return %part
    }
    func @count(%v: f32[m]) {
      %zero: f32[] = fill() {dtype=f32, shape=[], value=0.0}
      %above: bool[m] = greater(%v, %zero)
      %found: i64[1] = count_nonzero(%above)
      return %found
    }
    """
    module = rx.parse(text)
    assert [symbol.name for symbol in module.symbols] == ["n", "k_2", "k_3"]
    host = rx.compile(module).host()
    for size in (1, 5, 8):
        x = np.sin(np.arange(size, dtype=np.float32) + size)
        y = np.float32(0.5) - x
        expected = [v[: np.count_nonzero(v > 0)] for v in (x, y)]
        np.testing.assert_array_equal(host(x=x, y=y)["c"], np.concatenate(expected))


def test_a_loop_reads_back_and_computes() -> None:
    text = """
    symbol n in 1..4
    inner symbol turn in 0..5
    func @main(%x: f32[n], %step: f32[n]) {
      %last: f32[n], %all: f32[5, n] = loop(%x, %step) {
        body=@turn, capped=false, carried=1, conditional=false, count="", defines=["turn"],
        first_sizes=[], later_sizes=[], most_sizes=[], sizes=[], trips=5, turn="turn"}
      return %last, %all
    }
    func @turn(%before: f32[n], %s: f32[n]) {
      %after: f32[n] = call(%before, %s) {function=@sum}
      %row: f32[n] = neg(%after)
      return %after, %row
    }
    func @sum(%a: f32[k], %b: f32[k]) {
      %z: f32[k] = add(%a, %b)
      return %z
    }
    """
    out = rx.compile(rx.parse(text)).host()(x=ramp(3), step=np.ones(3, np.float32))
    turns = ramp(3) + np.arange(1, 6, dtype=np.float32)[:, None]
    np.testing.assert_allclose(out["last"], turns[-1], rtol=1e-6)
    np.testing.assert_allclose(out["all"], -turns, rtol=1e-6)


def test_what_a_claim_assumes_of_raisable_bounds_is_checked() -> None:
    """n is at most 16 here, so min(n, 20) is n; with a raised bound it need not be."""
    text = """
    func @main(%x: f32[n, 4]) {
      %s: shape[min(n, 20), 4] = shape_of(%x)
      %y = relu(%x)
      return %y
    }
    """
    conditions = rx.parse(text, bounds={"n": 16}).conditions
    assert [str(condition) for condition in conditions] == ["n == min(20, n)"]
