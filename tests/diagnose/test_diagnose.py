# SPDX-License-Identifier: Apache-2.0
"""Seeded faults are found and named: by value, by the smallest part, between two builds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

from relax_aot import driver, lowering
from relax_aot.cli.main import cli
from relax_aot.diagnose.bug import (
    NothingWrong,
    cut,
    minimize,
    with_random_weights,
    write_reproducer,
)
from relax_aot.diagnose.changes import NotAProject, changes
from relax_aot.diagnose.values import all_values, first_differences
from relax_aot.driver import Options
from relax_aot.evaluation import reference
from relax_aot.ir import check
from relax_aot.ops import all_ops, deduce
from relax_aot.project.board import load_board
from relax_aot.verify.compare import Tolerance
from relax_aot.verify.onnx_values import OnnxValues
from relax_aot.verify.profile import profile
from relax_aot.verify.samples import cases_of
from tests.conftest import ROOT
from tests.models.taggers import gru_tagger, lstm_tagger

OPTIONS = Options(bounds={"batch": (1, 3), "n": (1, 20)}, name="tagger")
GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"


def with_wrong(monkeypatch: pytest.MonkeyPatch, op: str, change: Callable[[Any], Any]) -> None:
    """The reference of one op says something else, as a fault of the C would look."""
    right = all_ops()
    wrong = replace(right[op], reference=lambda *a, **k: change(right[op].reference(*a, **k)))
    monkeypatch.setattr(reference, "all_ops", lambda: {**right, op: wrong})


def test_values_of_a_right_model_are_all_equal() -> None:
    module = driver.load(lstm_tagger(), OPTIONS)
    found = first_differences(module, ["host"], OPTIONS, [], {}, Tolerance())
    assert found.ok and len(found.lines) == 5
    assert all("equal" in line for line in found.lines)


def test_the_first_value_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_wrong(monkeypatch, "matmul", lambda y: y + np.float32(0.5))
    module = driver.load(lstm_tagger(), OPTIONS)
    found = first_differences(module, ["host"], OPTIONS, [{"batch": 2, "n": 7}], {}, Tolerance())
    assert not found.ok
    (line,) = found.lines
    assert "= matmul, from /product/MatMul: 70 elements, by 0.5" in line


@pytest.mark.qemu
@pytest.mark.long
def test_values_are_shown_on_a_board_without_room_for_all() -> None:
    options = Options(bounds={"n": (1, 40)}, name="gesture")
    module = driver.load(GESTURE, options)
    count = len(all_values(module).main.results)
    found = first_differences(module, ["stm32vldiscovery"], options, [{"n": 40}], {}, Tolerance())
    assert found.ok and found.lines == (f"stm32vldiscovery at n=40: equal ({count} values)",)


@pytest.mark.slow
def test_the_smallest_part_that_differs_is_one_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_wrong(monkeypatch, "matmul", lambda y: y * np.float32(1.01))
    module = driver.load(lstm_tagger(), OPTIONS)
    found = minimize(module, load_board("host"), OPTIONS)
    assert found.calls == 1 < found.of_calls and found.failure.kind == "results differ"
    (call,) = found.module.main.body
    assert (call.op, call.origin) == ("matmul", "/product/MatMul")


@pytest.mark.long
def test_a_failure_of_the_compiler_is_cut_down_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = lowering.lower

    def fails(module: Any) -> Any:
        ops = [call.op for call in module.main.body]
        if "transpose" in ops and "reshape" in ops:
            raise ZeroDivisionError("both are here")
        return real(module)

    monkeypatch.setattr(lowering, "lower", fails)
    path = tmp_path / "gesture.onnx"
    path.write_bytes(GESTURE.read_bytes())
    onnx.save(lstm_tagger(), path)
    arguments = ["bug", str(path), "-o", str(tmp_path / "bug"), "--bound", "n=20"]
    done = CliRunner().invoke(cli, [*arguments, "--bound", "batch=3", "--random-weights"])
    assert done.exit_code == 0, done.output
    assert "ZeroDivisionError: both are here" in done.output
    monkeypatch.undo()
    note = (tmp_path / "bug" / "README.txt").read_text()
    assert "--reference numpy" in note
    made = driver.load(tmp_path / "bug" / "reproducer.raot", Options(name="r"))
    ops = [call.op for call in made.main.body]
    assert {"transpose", "reshape"} <= set(ops) and len(ops) <= 4


def test_every_part_of_a_model_is_a_module() -> None:
    module = replace(driver.load(lstm_tagger(), OPTIONS), states=())
    for size in (1, 2, 4):
        for start in range(len(module.main.body) - size + 1):
            part = cut(module, start, start + size)
            check.check(part, deduce)
            assert part.main.body == module.main.body[start : start + size]


def test_random_weights_keep_nothing_of_the_model() -> None:
    module = driver.load(lstm_tagger(), OPTIONS)
    drawn = with_random_weights(module)
    for before, after in zip(module.constants, drawn.constants, strict=True):
        assert before.type == after.type
        if before.type.dtype.is_float and before.data.size > 4:
            assert not np.isin(after.data, before.data).any()


@pytest.mark.slow
def test_nothing_wrong_is_said() -> None:
    module = driver.load(lstm_tagger(), OPTIONS)
    with pytest.raises(NothingWrong, match="no failure to reproduce"):
        minimize(module, load_board("host"), OPTIONS)


@pytest.mark.slow
def test_what_changed_between_two_builds(tmp_path: Path) -> None:
    small = driver.compile_model(GESTURE, "host", Options(bounds={"n": (1, 64)}))
    large = driver.compile_model(GESTURE, "host", Options(bounds={"n": (1, 128)}, weights="blob"))
    small.write(tmp_path / "small")
    large.write(tmp_path / "large", "arduino")
    lines = changes(tmp_path / "small", tmp_path / "large")
    grown = large.plan.arena_bytes - small.plan.arena_bytes
    assert f"arena: {small.plan.arena_bytes} -> {large.plan.arena_bytes} bytes (+{grown})" in lines
    assert "bound n: [1, 64] -> [1, 128]" in lines and "weights: c -> blob" in lines
    assert "input motion: 1536 -> 3072 bytes (+1536)" in lines
    assert changes(tmp_path / "small", tmp_path / "small") == []
    other = driver.compile_model(gru_tagger(), "host", replace(OPTIONS, name="gesture"))
    other.write(tmp_path / "other")
    lines = changes(tmp_path / "small", tmp_path / "other")
    assert "input motion: removed (was f32[n, 6])" in lines
    assert any(line.startswith("kernel + ") and "GRU" in line for line in lines)


def test_a_folder_that_is_no_project_is_said(tmp_path: Path) -> None:
    (tmp_path / "relax_aot.json").write_text(json.dumps({"generator": "relax_aot"}))
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(NotAProject, match="is not a project"):
            changes(folder, folder)


@pytest.mark.qemu
def test_a_profile_adds_up_and_ranks_by_work() -> None:
    project = driver.compile_model(GESTURE, "mps2-an386", Options(bounds={"n": (1, 64)}))
    (case,) = cases_of(project.interface, ({"n": 64},), {})
    found = profile(project, case)
    assert sum(row.instructions for row in found.kernels) == found.instructions
    assert abs(found.instructions - found.as_shipped) < 0.05 * found.as_shipped
    counts = [row.instructions for row in found.kernels]
    assert counts == sorted(counts, reverse=True)
    # Functions of tiles serve several kernels. Of kernels, the recurrence has most work.
    first = next(row for row in found.kernels if row.origin)
    assert first.origin.startswith("/gru/")


MISREAD = """
<ir_version: 9, opset_import: ["": 17]>
g (float[2, n] x) => (float[2, n] y) {
  a = Neg(x)
  b = Tanh(a)
  y = Exp(b)
}
"""


def misread() -> tuple[Any, OnnxValues]:
    """A module whose Tanh was read as Sin, and the model."""
    model = onnx.parser.parse_model(MISREAD)
    options = Options(bounds={"n": (1, 9)}, name="misread")
    module = driver.load(onnx.parser.parse_model(MISREAD.replace("Tanh", "Sin")), options)
    return module, OnnxValues(model, {}, module)


def test_a_value_that_the_source_model_computes_otherwise_is_named() -> None:
    module, outside = misread()
    assert first_differences(module, ["host"], OPTIONS, [{"n": 5}], {}, None).ok
    found = first_differences(module, ["host"], OPTIONS, [{"n": 5}], {}, None, outside)
    assert not found.ok and "%b: f32[2, n] = sin" in found.lines[0]


def test_a_call_that_was_misread_becomes_a_reproducer(tmp_path: Path) -> None:
    module, outside = misread()
    board, options = load_board("host"), Options(name="misread")
    with pytest.raises(NothingWrong):
        minimize(module, board, options)
    found = minimize(module, board, options, [{"n": 4}], outside)
    assert found.calls == 1 and "differs from ONNX Runtime" in found.failure.message
    path = write_reproducer(found, board, options, tmp_path)
    arguments = ["--inputs", str(tmp_path / "inputs.npz")]
    arguments += ["--reference", str(tmp_path / "expected.npz")]
    done = CliRunner().invoke(cli, ["verify", str(path), *arguments])
    assert done.exit_code == 1, done.output
    assert "--inputs inputs.npz --reference expected.npz" in (tmp_path / "README.txt").read_text()
