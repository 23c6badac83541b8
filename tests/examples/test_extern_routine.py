# SPDX-License-Identifier: Apache-2.0
"""The example of a C routine inside a model: right at every size, and as documented."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

import relax_aot as rx
from examples.extern_routine.make_model import WINDOW, model
from tests.conftest import ROOT
from tests.models.onnx_text import Array

EXAMPLE = ROOT / "examples" / "extern_routine"
BOUNDS = {"n": (1, 200), "b": (1, 2)}
SIZES = [(1, 1), (2, 2), (1, WINDOW - 1), (2, WINDOW), (1, WINDOW + 1), (2, 129), (2, 200)]


def expected(signal: Array) -> list[Array]:
    session = InferenceSession(model().SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(["crest", "loudest"], {"signal": signal}))


def signal(b: int, n: int) -> Array:
    return np.random.default_rng(n).normal(size=(b, 3, n)).astype(np.float32)


def project(board: str = "host") -> rx.Project:
    return rx.compile(
        model(), board=board, bounds=BOUNDS, name="peaks", externs=[EXAMPLE / "envelope.toml"]
    )


def check(outputs: dict[str, Array], x: Array) -> None:
    crest, loudest = expected(x)
    np.testing.assert_allclose(outputs["crest"], crest, rtol=1e-6)
    np.testing.assert_array_equal(outputs["loudest"], loudest)


@pytest.mark.slow
@pytest.mark.parametrize("sanitize", [False, True])
def test_the_routine_equals_onnx_runtime(sanitize: bool) -> None:
    host = project().host(sanitize=sanitize)
    for b, n in SIZES:
        x = signal(b, n)
        check(host(signal=x), x)


@pytest.mark.qemu
def test_the_routine_equals_onnx_runtime_on_a_board_and_costs_less() -> None:
    x = signal(2, 200)
    ours = project("mps2-an386").emulate(signal=x)
    check(ours.outputs, x)
    plain = rx.compile(model(), board="mps2-an386", bounds=BOUNDS, name="peaks").emulate(signal=x)
    assert ours.instructions is not None and plain.instructions is not None
    assert ours.instructions < plain.instructions / 2


def test_the_scratch_is_a_slot_whose_size_follows_the_bound() -> None:
    (slot,) = [s for s in project().built.plan.slots if s.var.name == "envelope.work"]
    for n in (1, 64, 65, 66, 200):
        assert slot.bytes.evaluate({"n": n, "b": 1}) == 8 * WINDOW * -(-(n + WINDOW - 1) // WINDOW)


@pytest.mark.slow
def test_the_readme_is_what_happens(tmp_path: Path) -> None:
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    (calls,) = re.findall(r"^```c\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    for folder in ("examples", "relax_aot", "templates", "boards", "runtime_c"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    ours = f'python() {{ {sys.executable} "$@"; }}\nrelax-aot() {{ python -m relax_aot "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-euc", ours + commands], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "; equal" in done.stdout
    assert subprocess.run([tmp_path / "build" / "peaks" / "run"], check=False).returncode == 0
    code = (tmp_path / "build" / "peaks" / "peaks.c").read_text()
    for line in calls.splitlines():
        assert line in code


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_routine_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    made = subprocess.run(
        [compiler, *flags, "-c", EXAMPLE / "envelope.c", "-o", tmp_path / "envelope.o"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr


def test_a_node_of_another_kind_is_refused() -> None:
    changed = model()
    (pool,) = [node for node in changed.graph.node if node.op_type == "MaxPool"]
    pool.attribute.append(onnx.helper.make_attribute("ceil_mode", 1))
    onnx.checker.check_model(changed)
    said = r"node '/envelope' is:\n  %envelope.*ceil_mode=true"
    with pytest.raises(rx.RelaxAotError, match=said):
        rx.compile(changed, bounds=BOUNDS, externs=[EXAMPLE / "envelope.toml"])
