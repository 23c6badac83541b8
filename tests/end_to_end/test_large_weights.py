# SPDX-License-Identifier: Apache-2.0
"""Large weights: no text in C, and memory for a few times their size while compiling."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.conftest import ROOT

WIDTH, LAYERS = 2048, 6
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def perceptron() -> onnx.ModelProto:
    """Weights of 100 megabytes in products that rearrange them."""
    rng = np.random.default_rng(0)
    weights = {
        f"w{i}": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for i in range(LAYERS)
    }
    nodes = [
        helper.make_node("Gemm", [f"x{i}", f"w{i}"], [f"x{i + 1}"], transB=i % 2)
        for i in range(LAYERS)
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x0", kind, ["n", WIDTH])],
        [helper.make_tensor_value_info(f"x{LAYERS}", kind, ["n", WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
@pytest.mark.long
def test_weights_of_100_megabytes_need_little_more_than_three_times_that(tmp_path: Path) -> None:
    path, folder = tmp_path / "large.onnx", tmp_path / "out"
    onnx.save(perceptron(), path)
    weights = WIDTH * WIDTH * LAYERS * 4
    plain = ["compile", str(path), "--bound", "n=8", "-o", str(folder)]
    for arguments in (plain, plain, [*plain, "--weights", "blob"]):  # The last two replace a folder
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, sys.executable, "-m", "relax_aot", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) * 1024 < 3.25 * weights
    assert (folder / "large_weights.bin").stat().st_size >= weights
    text = sum(file.stat().st_size for file in folder.glob("*.c"))
    assert text < 200_000
