# SPDX-License-Identifier: Apache-2.0
"""What a user chose besides the model counts when a difference is looked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from relax_aot.cli.main import cli
from relax_aot.externs import ExternError
from relax_aot.verify.onnx_reference import OnnxReference
from relax_aot.verify.reference import ReferenceFailed
from tests.diagnose.test_diagnose import with_wrong
from tests.models.onnx_text import model_of

SOFTMAX = "void my_softmax(int m, int k, const float *x, float *y)"
WRONG = f"""#include "my.h"
#include <math.h>
{SOFTMAX}
{{
    for (int i = 0; i < m; i++, x += k, y += k) {{
        float sum = 0.0f;
        for (int j = 0; j < k; j++) sum += y[j] = expf(x[j]);
        for (int j = 0; j < k; j++) y[j] /= sum;
        if (m > 5) y[0] += 0.25f;
    }}
}}
"""
TABLE = """header = "my.h"
sources = ["my.c"]
[[extern]]
function = "my_softmax"
replaces = "%y = softmax(%x) {axis=AXIS}"
[extern.arguments]
m = { size = "m" }
k = { size = "k" }
x = { input = "f32[*m, k]" }
y = { output = "f32[*m, k]" }
"""


def ran(verb: str, folder: Path, *arguments: str) -> Result:
    model = str(folder / "model.onnx")
    return CliRunner().invoke(cli, [verb, model, "--bound", "n=9", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    weights = {"w": rng.normal(size=(4, 3)).astype(np.float32)}
    body = "a = MatMul(x, w)\ny = Softmax <axis = -1> (a)"
    onnx.save(
        model_of("soft (float[1, n, 4] x) => (float[1, n, 3] y)", body, weights),
        tmp_path / "model.onnx",
    )
    np.savez(tmp_path / "samples.npz", x=rng.normal(size=(8, 1, 5, 4)).astype(np.float32))
    (tmp_path / "my.h").write_text(f"{SOFTMAX};\n")
    (tmp_path / "my.c").write_text(WRONG)
    for name, axis in (("last", -1), ("same", 2), ("other", 0)):
        (tmp_path / f"{name}.toml").write_text(TABLE.replace("AXIS", str(axis)))
    return tmp_path


@pytest.mark.slow
def test_a_routine_that_is_wrong_is_found_and_its_table_is_told(folder: Path) -> None:
    for name in ("last", "same"):
        table = str(folder / f"{name}.toml")
        done = ran("verify", folder, "--extern", table, "--per-value", "--at", "n=6")
        assert done.exit_code == 1 and "the first value that differs is %y" in done.output
    table = str(folder / "last.toml")
    done = ran("bug", folder, "--extern", table, "-o", str(folder / "small"), "--at", "n=6")
    assert done.exit_code == 0 and "1 of 2 calls" in done.output, done.output
    assert "y at n=9: 9 elements differ, by 0.25" in done.output
    note = (folder / "small" / "README.txt").read_text()
    assert "--reference numpy --extern ../last.toml\n" in note


def test_a_table_that_takes_nothing_shows_what_there_is(folder: Path) -> None:
    for verb in ("verify", "bug"):
        more = ("-o", str(folder / "small")) if verb == "bug" else ()
        done = ran(verb, folder, "--extern", str(folder / "other.toml"), *more)
        assert isinstance(done.exception, ExternError)
        assert "where softmax is, they are:\n  %y: f32[1, n, 3] = softmax(%a) {axis=2}" in str(
            done.exception
        )
    assert not (folder / "small").exists()


@pytest.mark.slow
def test_codes_are_what_a_quantized_model_is_looked_at_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_wrong(monkeypatch, "quantize", lambda x: np.where(x < 100, x + 1, x))
    chosen = ("--quantize", "int8", "--calibrate", str(folder / "samples.npz"))
    done = ran("verify", folder, *chosen, "--per-value", "--at", "n=6")
    assert done.exit_code == 1 and "= quantize" in done.output, done.output
    done = ran("bug", folder, *chosen, "-o", str(folder / "small"))
    assert done.exit_code == 0, done.output
    assert "quantize(" in (folder / "small" / "reproducer.raot").read_text()


def test_options_that_would_not_count_are_refused(folder: Path) -> None:
    for more in (("--sanitize",), ("--json", "-"), ("--dump", "d")):
        done = ran("verify", folder, "--per-value", *more)
        assert done.exit_code == 2 and "--per-value cannot be combined with" in done.output, more
    done = ran("verify", folder, "--per-value", "--reference", "expected.npz")
    assert done.exit_code == 2 and "the references numpy and onnxruntime" in done.output
    done = ran("bug", folder, "-o", str(folder / "small"), "--dump", str(folder / "d"))
    assert done.exit_code == 2 and "bug does not support --dump" in done.output
    stages = folder / "stages"
    done = ran("profile", folder, "--dump", str(stages), "--board", "mps2-an386", "--at", "n=99")
    assert "n=99: the bounds are 1..9; give another --at" in str(done.exception)
    assert (stages / "01-frontend.raot").is_file()


@pytest.mark.parametrize("size", [0, 10])
def test_sizes_outside_their_bounds_are_refused_before_anything_runs(
    size: int, folder: Path
) -> None:
    """ONNX Runtime ends the process at a recurrence over nothing."""
    said = f"n={size}: the bounds are 1..9"
    for verb, more in (("verify", ()), ("verify", ("--per-value",)), ("bug", ("-o", "none"))):
        assert said in str(ran(verb, folder, "--at", f"n={size}", *more).exception)
    np.savez(folder / "in.npz", x=np.zeros((1, size, 4), np.float32))
    assert said in str(ran("verify", folder, "--inputs", str(folder / "in.npz")).exception)


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3)])
@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("LSTM", 4)])
def test_a_recurrence_over_nothing_does_not_end_the_process(
    op: str, gates: int, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """ONNX Runtime did, and no error of ours would be seen."""
    weights = {
        "w": np.ones((1, 2 * gates, 3), np.float32),
        "r": np.ones((1, 2 * gates, 2), np.float32),
    }
    made = model_of("g (float[t, b, 3] x) => (float[t, 1, b, 2] y)",
                    f"y = {op} <hidden_size = 2> (x, w, r)", weights)  # fmt: skip
    onnx.save(made, tmp_path / "model.onnx")
    for source in (made, made.SerializeToString(), tmp_path / "model.onnx"):
        try:
            found = OnnxReference(source, {}, {})({"x": np.zeros(shape, np.float32)}, {})
        except ReferenceFailed as error:
            assert "at a size of 0: use --reference numpy" in str(error)
        else:  # from version 1.32 on, without steps
            assert found["y"].size == 0
