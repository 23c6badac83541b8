# SPDX-License-Identifier: Apache-2.0
"""Several models in one program and many threads: right, without a race, and as documented."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnxruntime import InferenceSession

import relax_aot as rx
from examples.several_models.make_models import active, smooth
from tests.conftest import ROOT

EXAMPLE = ROOT / "examples" / "several_models"
MODELS = ("smooth", "active", "gesture")
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three projects in one folder."""
    folder = tmp_path_factory.mktemp("several")
    bounds = {"n": 128}
    rx.compile(smooth(), bounds=bounds, state={"last": "lastN"}, name="smooth").write(
        folder / "smooth"
    )
    rx.compile(active(), bounds=bounds, name="active").write(folder / "active")
    gesture = ROOT / "examples" / "gesture" / "gesture.onnx"
    rx.compile(gesture, bounds=bounds, name="gesture").write(folder / "gesture")
    return folder


def build(folder: Path, program: Path, name: str, *flags: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    sources = [folder / model / f for model in MODELS for f in (f"{model}.c", f"{model}_weights.c")]
    include = [f"-I{folder / model}" for model in MODELS] + [f"-I{ROOT / 'examples' / 'gesture'}"]
    target = folder / name
    command: list[str | Path] = [
        "gcc",
        "-std=c11",
        *flags,
        *include,
        program,
        *sources,
        "-o",
        target,
    ]
    done = subprocess.run(
        [*command, "-lm", "-lpthread"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]
    return target


def run(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], capture_output=True, text=True, check=False)


@pytest.mark.long
def test_three_models_share_the_greatest_arena(several: Path) -> None:
    done = run(build(several, EXAMPLE / "main.c", "run", "-O2", *STRICT))
    assert done.returncode == 0, done.stdout
    shared, apart = map(int, re.findall(r"\d+", done.stdout))
    gesture = ROOT / "examples" / "gesture" / "gesture.onnx"
    needs = [
        rx.compile(smooth(), bounds={"n": 128}, state={"last": "lastN"}).memory.arena_bytes,
        rx.compile(active(), bounds={"n": 128}).memory.arena_bytes,
        rx.compile(gesture, bounds={"n": 128}).memory.arena_bytes,
    ]
    assert (shared, apart) == (max(needs), sum(needs))


@pytest.mark.slow
def test_eight_threads_of_three_models_agree(several: Path) -> None:
    done = run(build(several, EXAMPLE / "threads.c", "threads", "-O2", *STRICT))
    assert (done.returncode, "0 differ" in done.stdout) == (0, True), done.stdout


@pytest.mark.slow
def test_the_thread_sanitizer_finds_no_race(several: Path) -> None:
    done = run(build(several, EXAMPLE / "threads.c", "tsan", "-O1", "-g", "-fsanitize=thread"))
    assert "ThreadSanitizer" not in done.stderr and done.returncode == 0, done.stderr[:2000]


@pytest.mark.slow
@pytest.mark.long
def test_the_thread_sanitizer_finds_a_race_where_threads_share_an_arena(several: Path) -> None:
    """So that the test above can fail."""
    text = (EXAMPLE / "threads.c").read_text().replace("&own->arena", "&contexts[0].arena")
    (several / "race.c").write_text(text)
    done = run(build(several, several / "race.c", "race", "-O1", "-g", "-fsanitize=thread"))
    assert "ThreadSanitizer: data race" in done.stderr
    assert re.search(r"data race .*(smooth|active|gesture)\.c", done.stderr)


@pytest.mark.parametrize("parts", [[128], [1, 1, 1], [5, 40, 2, 33]])
def test_the_filter_goes_on_from_call_to_call(parts: list[int]) -> None:
    model = rx.compile(smooth(), bounds={"n": 128}, state={"last": "lastN"}, name="smooth").host()
    motion = np.random.default_rng(0).normal(size=(sum(parts), 6)).astype(np.float32)
    session = InferenceSession(smooth().SerializeToString())
    feeds = {"motion": motion, "last": np.zeros((2, 6), np.float32)}
    pieces = [model(motion=piece)["smoothed"] for piece in np.split(motion, np.cumsum(parts)[:-1])]
    np.testing.assert_allclose(
        np.concatenate(pieces), session.run(["smoothed"], feeds)[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_the_readme_is_what_happens(tmp_path: Path) -> None:
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    for folder in ("examples", "relax_aot", "templates", "boards", "runtime_c"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    ours = f'python() {{ {sys.executable} "$@"; }}\nrelax-aot() {{ python -m relax_aot "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-euc", ours + commands], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one arena of" in done.stdout and "0 differ" in done.stdout
