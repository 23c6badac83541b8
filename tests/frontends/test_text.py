# SPDX-License-Identifier: Apache-2.0
"""A program as text compiles like a model, at any level; options act on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.api import Array
from relax_aot.driver import Options
from relax_aot.frontends.bounds import MissingBound, WrongBound
from relax_aot.ir.check import CheckError
from relax_aot.verify.host import StatusError
from relax_aot.verify.job import Job, default_reference, run_job

HEAD = """
func @head(%logits: f32[n, 4]) {
  %probs: f32[n, 4] = softmax(%logits) {axis=-1}  # /classifier/Softmax
  %flat: f32[4*n] = reshape(%probs) {shape=[4*n]}  # /classifier/Flatten
  return %flat
}
"""
MIXED = """
symbol n in 1..8

const %gain: f32[4] = [1.0, 2.0, 0.5, -1.0]

func @main(%x: f32[n, 4]) {
  %a: f32[n, 4] = mul(%x, %gain)
  %b: f32[n] = call_kernel(%a) {kernel=@row_sum}
  %c: f32[n] = tanh(%b)
  return %c
}

kernel @row_sum(%a: f32[n, 4]) -> (%y: f32[n]) {
  for i in 0..n {
    local total: f32 = 0.0:f32
    for j in 0..4 {
      total = (total + %a[i, j])
    }
    %y[i] = total
  }
}
"""
SUM = """
func @main(%x: f32[n, 2], %y: f32[m, 2], %s: f32[n, 2]) {
  %new: f32[n, 2] = add(%x, %s)
  %sum: f32[n, 2] = add(%new, %y)
  %out: f32[n, 2] = relu(%sum)
  return %new, %out
}
"""


def softmax(x: Array) -> Array:
    e = np.exp(x.astype(np.float64))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def ramp(*shape: int) -> Array:
    return np.linspace(-1, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_a_program_of_ops_runs() -> None:
    host = rx.compile(rx.parse(HEAD, bounds={"n": 7})).host()
    for n in (1, 4, 7):
        x = ramp(n, 4)
        np.testing.assert_allclose(host(logits=x)["flat"], softmax(x).reshape(-1), rtol=1e-6)


def test_a_program_of_ops_and_kernels_runs() -> None:
    host = rx.compile(rx.parse(MIXED)).host()
    for n in (1, 5, 8):
        x = ramp(n, 4)
        expected = np.tanh((x.astype(np.float64) * [1, 2, 0.5, -1]).sum(axis=1))
        np.testing.assert_allclose(host(x=x)["c"], expected, rtol=1e-6)


def test_a_file_is_verified_against_the_ops_references(tmp_path: Path) -> None:
    path = tmp_path / "mixed.raot"
    path.write_text(MIXED)
    project = driver.compile_model(path)
    assert project.name == "mixed"
    assert default_reference(path) == "numpy"
    assert run_job(Job(path, (project,), reference="numpy")).ok


RETURNED = """
symbol n in 1..4

func @main(%x: f32[n, 2]) {
  %flat: f32[2*n] = view(%x)
  %y: f32[2*n] = neg(%flat)
  %again: f32[n, 2] = view(%y)
  return %y, %flat, %x, %again
}
"""


def test_inputs_and_views_may_be_results(tmp_path: Path) -> None:
    path = tmp_path / "returned.raot"
    path.write_text(RETURNED)
    project = driver.compile_model(path, options=Options(check=True))
    assert [port.source for port in project.interface.outputs] == ["y", "flat", "x", "again"]
    assert run_job(Job(path, (project,), reference="numpy")).ok
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    results = rx.compile(path).host()(x=x)
    np.testing.assert_array_equal(results["y"], -x.reshape(-1))
    np.testing.assert_array_equal(results["flat"], x.reshape(-1))
    np.testing.assert_array_equal(results["x"], x)
    np.testing.assert_array_equal(results["again"], -x)


def test_large_constants_lie_beside_the_text(tmp_path: Path) -> None:
    weights = np.arange(40, dtype=np.float32).reshape(4, 10)
    text = "func @main(%x: f32[n, 4]) {\n  %y: f32[n, 10] = matmul(%x, %w)\n  return %y\n}\n"
    spelt = ", ".join(map(str, weights.reshape(-1)))
    module = rx.parse(f"const %w: f32[4, 10] = [{spelt}]\n{text}", bounds={"n": 3})
    path = rx.save(module, tmp_path / "net.raot")
    assert "sha256:" in path.read_text()
    assert rx.load(path) == replace(module, source="net.raot")
    (tmp_path / "net.npz").unlink()
    with pytest.raises(rx.RelaxAotError, match=r"are digests without data: %w;"):
        rx.compile(path)
    (tmp_path / "net.npz").write_bytes(b"no archive")
    with pytest.raises(rx.RelaxAotError, match=r"cannot read .*net\.npz"):
        rx.load(path)


def test_missing_bounds_are_told_with_the_option_to_add() -> None:
    with pytest.raises(MissingBound, match=r"--bound n=128    \(input logits, axis 0\)"):
        rx.parse(HEAD)
    with pytest.raises(WrongBound, match="no such symbol, its symbols are n; did you mean n"):
        rx.parse(HEAD, bounds={"nn": 3})


def test_bounds_of_kernels_can_only_be_narrowed() -> None:
    assert rx.parse(MIXED, bounds={"n": (2, 4)}).bounds.range("n") == (2, 4)
    with pytest.raises(WrongBound, match=r"compiled for 1\.\.8"):
        rx.parse(MIXED, bounds={"n": 9})


def test_sizes_that_must_agree_are_checked_on_entry() -> None:
    module = rx.parse(SUM, bounds={"n": 4, "m": 4})
    assert [str(c) for c in module.conditions] == ["m == n"]
    host = rx.compile(module).host()
    x = ramp(3, 2)
    np.testing.assert_allclose(host(x=x, y=x, s=x)["new"], 2 * x, rtol=1e-6)
    with pytest.raises(StatusError):
        host(x=x, y=ramp(2, 2), s=x)


def test_fix_state_and_assume_act_on_text(tmp_path: Path) -> None:
    path = tmp_path / "sum.raot"
    path.write_text(SUM)
    y = ramp(2, 2)
    options = Options(bounds={"n": (1, 4)}, fix={"y": y}, state={"s": "new"}, assume=("n <= 3",))
    module = driver.load(path, options)
    assert [p.name for p in module.main.params] == ["x", "s"]
    assert {str(c) for c in module.conditions} == {"0 <= -n + 3", "n == 2"}
    host = rx.compile(module).host()
    x = ramp(2, 2)
    np.testing.assert_allclose(host(x=x)["out"], np.maximum(x + y, 0), rtol=1e-6)
    np.testing.assert_allclose(host(x=x)["out"], np.maximum(2 * x + y, 0), rtol=1e-6)
    with pytest.raises(StatusError):
        rx.compile(module).host()(x=ramp(3, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(bounds={"n": (1, 4), "m": (1, 4)}, fix={"z": 1}), "no such input"),
        (Options(bounds={"n": (1, 4), "m": (1, 4)}, state={"s": "q"}), "no such result"),
        (Options(bounds={"n": (1, 4), "m": (5, 6)}), "does not hold for any allowed size"),
        (Options(bounds={"n": (1, 4), "m": (1, 4)}, assume=("q < n",)), "no such symbol"),
        (Options(bounds={"n": (1, 4)}, fix={"y": [[1.0, 2.0, 3.0]]}), "input has shape [m, 2]"),
    ],
)
def test_wrong_options_are_refused(options: Options, message: str, tmp_path: Path) -> None:
    path = tmp_path / "sum.raot"
    path.write_text(SUM)
    with pytest.raises(rx.RelaxAotError) as caught:
        driver.load(path, options)
    assert message in str(caught.value)


def test_a_program_that_is_not_sound_is_refused_with_its_line() -> None:
    with pytest.raises(CheckError, match=r"softmax gives f32\[n, 4\], not f32\[n, 5\]"):
        rx.parse(HEAD.replace("%probs: f32[n, 4]", "%probs: f32[n, 5]"), bounds={"n": 3})


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.raot"
    with pytest.raises(rx.RelaxAotError, match="cannot read"):
        rx.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(rx.RelaxAotError, match="not UTF-8 text"):
        rx.load(path)


HOSTILE = r"""
module "a */ #error x \u000a #error y ??/"
symbol n in 1..4
symbol N in 1..4
alias n = "*/ int"
alias `in` = "a\u000a#error"

const %`"; #error`: f32[1] = [2.0]

func @`main(){`(%`in`: f32[n], %out: f32[N]) {
  %`a*/`: f32[n] = mul(%`in`, %`"; #error`)  # */ #error "\" ??/
  %memory: f32[n] = call_kernel(%`a*/`) {kernel=@main}
  %size_t: f32[N] = relu(%out)
  return %memory, %size_t
}

kernel @main(%float: f32[n]) -> (%for: f32[n]) {
  for `int` in 0..n {
    local `double`: f32 = %float[`int`]
    let `if` = `int` // 2
    `double` = (`double` + %float[`if`])
    %for[`int`] = `double`
  }
}
"""


def test_no_name_or_comment_of_a_text_reaches_c_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "hostile.raot"
    path.write_text(HOSTILE)
    project = driver.compile_model(path, options=Options(name="hostile"))
    assert run_job(Job(path, (project,), reference="numpy")).ok
