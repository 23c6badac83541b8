# SPDX-License-Identifier: Apache-2.0
"""What images of a board share is compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import relax_aot as rx
from relax_aot.toolchain import build, compilers
from relax_aot.verify.emulate import build_image
from tests.conftest import ROOT

OF_A_MODEL = {"gesture.c", "gesture_weights.c", "adapter.c", "raot_harness.c"}


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize(
    "board", ["mps2-an386", pytest.param("aarch64-linux", marks=pytest.mark.long)]
)
def test_a_second_model_has_the_harness_of_the_first(
    board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAX_AOT_CACHE", str(tmp_path / "cache"))
    compiled: list[str] = []
    real = compilers.run

    def run(compiler: Any, command: Sequence[str], folder: Path) -> Any:
        # Names of objects are the last argument; the harness is compiled as it is shipped.
        sources = [Path(part).name for part in command if part.endswith(".c")]
        compiled.extend(sources)
        quick = ["-O0"] if OF_A_MODEL.intersection(sources) else []
        return real(compiler, [*command, *quick], folder)

    monkeypatch.setattr(build, "run", run)
    model = ROOT / "examples" / "gesture" / "gesture.onnx"
    images, counts = [], []
    for most in (8, 9):
        compiled.clear()
        project = rx.compile(model, board=board, bounds={"n": most}).built
        images.append(build_image(project, tmp_path / f"{most}"))
        counts.append(set(compiled))
    others = {"platform.c"} if board == "aarch64-linux" else {
        "startup.c", "protection.c", "fault.c", "files.c",
    }  # fmt: skip
    assert counts == [OF_A_MODEL | others, OF_A_MODEL]
    first, second = ({path.name for path in image.folder.iterdir()} for image in images)
    assert first == second
