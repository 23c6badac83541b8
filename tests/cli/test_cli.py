# SPDX-License-Identifier: Apache-2.0
"""The command line: every mistake is one clear message and the right exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relax_aot.cli.main import cli
from tests.cli.in_process import relax_aot
from tests.conftest import ROOT

GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"


def started(
    *arguments: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The tool as a process of its own."""
    command = [sys.executable, "-m", "relax_aot", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def model_of(nodes: list[onnx.NodeProto], size: int | str = "n") -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    data: bytes = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    return data


def test_the_list_of_commands_shows_whole_sentences(tmp_path: Path) -> None:
    _, _, said = relax_aot("--help", folder=tmp_path).stdout.partition("Commands:")
    assert "compile" in said and "..." not in said


@pytest.mark.slow
def test_compile_writes_a_project_and_figures(tmp_path: Path) -> None:
    done = started(
        "compile", GESTURE, "--bound", "n=64", "-o", "out", "--json", "-", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["symbols"] == {"n": [1, 64]}
    assert (tmp_path / "out" / "gesture.h").is_file()


@pytest.mark.slow
def test_verify_reports_by_schema(tmp_path: Path) -> None:
    done = relax_aot(
        "verify", GESTURE, "--bound", "n=4..64", "--at", "n=9", "--at", "n=64", "--json", "-",
        folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (target,) = result["targets"]
    assert (result["ok"], target["board"]) == (True, "host")
    assert [run["dims"] for run in target["runs"]] == [{"n": 9}, {"n": 64}]
    assert set(target["memory"]) == {
        "arena_bytes", "state_bytes", "const_bytes", "code_bytes", "stack_bytes",
        "lower_bound_bytes",
    }  # fmt: skip
    assert set(target["runs"][0]["outputs"][0]) == {
        "name", "shape", "max_abs", "max_rel", "mismatches", "of_allowed",
    }  # fmt: skip


@pytest.mark.slow
def test_verify_exits_1_where_results_differ(tmp_path: Path) -> None:
    motion = np.zeros((5, 6), np.float32)
    np.savez(tmp_path / "in.npz", motion=motion)
    np.savez(tmp_path / "want.npz", scores=np.full(8, 9.0, np.float32), frames=np.zeros((3, 8)))
    done = relax_aot(
        "verify", GESTURE, "--bound", "n=64", "--inputs", "in.npz", "--reference", "want.npz",
        folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr


@pytest.mark.slow
def test_missing_bound_names_the_symbol_and_the_option(tmp_path: Path) -> None:
    done = started("compile", GESTURE, "-o", "out", folder=tmp_path)
    refused(done, 2, "n ", "motion, axis 0", "--bound n=128")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bound", ["m=3", "n=", "n=x", "n=9..3", "n=-4", "=3"])
def test_bad_bounds_are_refused(bound: str, tmp_path: Path) -> None:
    done = relax_aot("compile", GESTURE, "--bound", bound, "-o", "out", folder=tmp_path)
    refused(done, 2, bound.partition("=")[0] or "--bound")
    assert not (tmp_path / "out").exists()


def test_a_bound_of_another_size_is_named_with_the_missing_one(tmp_path: Path) -> None:
    done = relax_aot("compile", GESTURE, "--bound", "length=256", "-o", "out", folder=tmp_path)
    refused(done, 2, "--bound n=128", "No input has a size length.")


def test_a_size_that_is_fixed_as_an_input_says_how_sizes_are(tmp_path: Path) -> None:
    done = relax_aot("compile", GESTURE, "--bound", "n=9", "--fix", "n=4", "-o", "out",
                     folder=tmp_path)  # fmt: skip
    refused(done, 2, "has no input 'n', its inputs are motion", "--bound n=8..8 fixes a size")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "No such file or directory"),
        (b"hello", "it is no .npz file"),
        (b"PK hello", "it is no .npz file"),
        (b"PK\3\4 hello", "it is damaged"),
        (b"cut", "it is damaged"),
    ],
)
def test_samples_that_cannot_be_read(data: bytes | None, said: str, tmp_path: Path) -> None:
    whole = (GESTURE.parent / "gesture_samples.npz").read_bytes()
    if data is not None:
        (tmp_path / "x.npz").write_bytes(whole[:3000] if data == b"cut" else data)
    bounds = ("--bound", "n=9", "--quantize", "int8", "--calibrate", "x.npz")
    done = relax_aot("compile", GESTURE, *bounds, "-o", "out", folder=tmp_path)
    refused(done, 2, "x.npz", said)


@pytest.mark.parametrize(
    ("motion", "said"),
    [
        (np.array([["a"]]), "input 'motion' must be f32[n, 6]: its elements are <U1, not f32"),
        (np.ones((3, 6), complex), "its elements are complex128, not f32"),
        (np.ones((3, 6), ml_dtypes.bfloat16), "its elements are |V2, not f32"),
    ],
)
def test_inputs_that_are_no_numbers(motion: Any, said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", motion=motion)
    inputs = ("--bound", "n=9", "--inputs", "x.npz")
    refused(relax_aot("profile", GESTURE, *inputs, folder=tmp_path), 2, said)
    chosen = ("--bound", "n=9", "--quantize", "int8", "--calibrate", "x.npz", "-o", "out")
    done = relax_aot("compile", GESTURE, *chosen, folder=tmp_path)
    refused(done, 2, said.replace("input", "calibration data for"))


@pytest.mark.parametrize("inputs", ["x.npz", "movement=x.npz:movement"])
def test_inputs_of_other_names_are_refused(inputs: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", movement=np.zeros((5, 6), np.float32))
    done = relax_aot("verify", GESTURE, "--bound", "n=9", "--inputs", inputs, folder=tmp_path)
    refused(done, 2, "the model has no input 'movement'; its inputs are motion")


def test_inputs_of_other_names_are_refused_for_entries(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", movement=np.zeros((5, 6), np.float32))
    models = (f"a={GESTURE}", f"b={GESTURE}")
    done = relax_aot("verify", *models, "--bound", "n=9", "--inputs", "x.npz", folder=tmp_path)
    refused(done, 2, "the model has no input 'movement'; its inputs are a.motion, b.motion")


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
def test_tolerances_that_allow_everything_or_nothing_are_refused(
    value: str, tmp_path: Path
) -> None:
    done = relax_aot("verify", GESTURE, "--bound", "n=9", "--rtol", value, folder=tmp_path)
    refused(done, 2, "--rtol", "expected a finite number of at least 0")


def test_a_runner_needs_a_board(tmp_path: Path) -> None:
    done = relax_aot("runner", GESTURE, "--bound", "n=9", "-o", "out", folder=tmp_path)
    refused(done, 2, "Missing option '--board'")


def test_a_missing_table_is_named_once(tmp_path: Path) -> None:
    done = relax_aot("plan", "none.csv", folder=tmp_path)
    refused(done, 2, "cannot read none.csv: No such file or directory")
    assert done.stderr.count("none.csv") == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.gguf", "`relax-aot llm`"),
        ("model.safetensors", "`relax-aot llm`"),
        ("", "`relax-aot llm`"),
        ("config.json", "cannot tell the format of config.json from its suffix '.json'"),
        ("model.pt2", "docs/how-to/pytorch.md"),
        ("missing.gguf", "cannot read missing.gguf: No such file"),
    ],
)
def test_models_of_other_commands_say_how_they_are_read(
    name: str, said: str, tmp_path: Path
) -> None:
    """`""` is a folder in the layout of Hugging Face."""
    for file in ("config.json", "model.gguf", "model.safetensors", "model.pt2"):
        (tmp_path / file).write_bytes(b"{}")
    done = relax_aot("compile", name or str(tmp_path), "-o", "out", folder=tmp_path)
    refused(done, 2, said)


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x08\xff\xff\xff", None])
def test_broken_files_are_refused(data: bytes | None, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / "broken.onnx").write_bytes(data)
    done = relax_aot("compile", "broken.onnx", "-o", "out", folder=tmp_path)
    refused(done, 2, "broken.onnx")
    assert not (tmp_path / "out").exists()


def test_truncated_and_changed_files_give_no_traceback(tmp_path: Path) -> None:
    whole = GESTURE.read_bytes()
    rng = np.random.default_rng(0)
    for trial in range(6):
        data = bytearray(whole[: len(whole) * trial // 6] if trial % 2 else whole)
        for place in rng.integers(0, max(len(data), 1), 20):
            if place < len(data):
                data[place] = int(rng.integers(256))
        (tmp_path / "changed.onnx").write_bytes(bytes(data))
        done = relax_aot("compile", "changed.onnx", "--bound", "n=8", "-o", "out", folder=tmp_path)
        assert done.returncode in (0, 2)
        assert "Traceback" not in done.stderr


def test_unsupported_operators_are_listed_all_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="my.domain"),
        helper.make_node("StringNormalizer", ["a"], ["b"], name="second"),
        helper.make_node("Relu", ["b"], ["y"], name="third"),
    ]
    (tmp_path / "m.onnx").write_bytes(model_of(nodes))
    done = relax_aot("compile", "m.onnx", "--bound", "n=8", "-o", "out", folder=tmp_path)
    refused(done, 2, "first", "Frobnicate", "second", "StringNormalizer")
    assert "third" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_foreign_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    done = relax_aot("compile", GESTURE, "--bound", "n=8", "-o", "mine", folder=tmp_path)
    refused(done, 2, "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_an_older_project_is_replaced_whole(tmp_path: Path) -> None:
    for bound in ("n=8", "n=16"):
        done = relax_aot("compile", GESTURE, "--bound", bound, "-o", "out", folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "GESTURE_N_MAX 16" in (tmp_path / "out" / "gesture_config.h").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_an_absent_compiler_exits_3_and_says_how_to_get_it(tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    bare["RELAX_AOT_TOOLS"] = "system"
    for board in ("host", "mps2-an386"):
        done = started(
            "verify", GESTURE, "--bound", "n=8", "--board", board, folder=tmp_path, environment=bare
        )
        refused(done, 3, "apt-get install", "relax-aot[emulator]")


@pytest.mark.slow
def test_an_unknown_choice_of_tools_is_refused(tmp_path: Path) -> None:
    environment = os.environ | {"RELAX_AOT_TOOLS": "all"}
    done = started("doctor", folder=tmp_path, environment=environment)
    refused(done, 2, "RELAX_AOT_TOOLS", "wheels")


def test_an_unknown_board_is_refused(tmp_path: Path) -> None:
    done = relax_aot(
        "compile", GESTURE, "--bound", "n=8", "--board", "mps2-an387", "-o", "out", folder=tmp_path
    )
    refused(done, 2, "mps2-an387", "mps2-an38")


def test_quantization_without_samples_asks_for_them(tmp_path: Path) -> None:
    done = relax_aot(
        "compile", GESTURE, "--bound", "n=8", "--quantize", "int8", "-o", "out", folder=tmp_path
    )
    refused(done, 2, "--calibrate")


@pytest.mark.slow
def test_dump_shows_every_stage(tmp_path: Path) -> None:
    done = relax_aot(
        *("compile", GESTURE, "--bound", "n=8", "-o", "out", "--check", "--dump", "stages"),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    names = [p.name for p in sorted((tmp_path / "stages").iterdir())]
    assert names[0] == "01-frontend.raot"
    assert "func @main" in (tmp_path / "stages" / names[0]).read_text()
    assert names[-2].endswith("plan.txt")
    assert names[-1] == "constants.npz"


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage",
    [
        "frontend",
        *(pytest.param(s, marks=pytest.mark.long) for s in ("transforms", "lowering", "fusion")),
        "scheduling",
    ],
)
def test_a_dump_of_any_stage_compiles_again(stage: str, tmp_path: Path) -> None:
    done = relax_aot(
        "compile", GESTURE, "--bound", "n=8", "-o", "out", "--dump", "stages", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (text,) = (tmp_path / "stages").glob(f"*-{stage}.raot")
    done = relax_aot("verify", text, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal" in done.stdout


def test_plan_gives_offsets_that_do_not_overlap(tmp_path: Path) -> None:
    rows = [("a", 0, 3, 40), ("b", 1, 4, 24), ("c", 3, 5, 40), ("d", 4, 6, 16)]
    text = "id,lower,upper,size\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows)
    (tmp_path / "t.csv").write_text(text)
    done = relax_aot("plan", "t.csv", "-o", "o.csv", "--capacity", "64", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "o.csv").read_text().splitlines()
    assert lines[0] == "id,lower,upper,size,offset"
    placed = [tuple(map(int, line.split(",")[1:])) for line in lines[1:]]
    for i, (low, high, size, offset) in enumerate(placed):
        for low2, high2, size2, offset2 in placed[:i]:
            together = low < high2 and low2 < high
            assert not together or offset + size <= offset2 or offset2 + size2 <= offset
    assert relax_aot("plan", "t.csv", "--capacity", "63", folder=tmp_path).returncode == 1


@pytest.mark.parametrize("text", ["", "id,lower\n", "id,lower,upper,size\na,3,1,4\n", "\xff"])
def test_a_bad_table_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text, encoding="latin-1")
    refused(relax_aot("plan", "t.csv", folder=tmp_path), 2, "t.csv")


@pytest.mark.parametrize("given", [("--time", "-1"), ("--time", "nan"), ("--capacity", "-1")])
def test_a_limit_of_a_plan_is_a_number_of_at_least_0(
    given: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("id,lower,upper,size\na,0,3,4\n")
    refused(relax_aot("plan", "t.csv", *given, folder=tmp_path), 2, given[0])


def test_no_option_takes_any_float() -> None:
    """Neither NaN, nor infinities, nor negative numbers."""
    commands = [cli, *cli.commands.values()]
    found = [p for command in commands for p in command.params if p.type is click.FLOAT]
    assert found == []


@pytest.mark.slow
def test_boards_ops_doctor_and_report_answer(tmp_path: Path) -> None:
    boards = relax_aot("boards", folder=tmp_path).stdout
    assert "mps2-an386" in boards and "microbit" in boards
    assert "Cortex" in relax_aot("boards", "mps2-an500", folder=tmp_path).stdout.replace(
        "cortex", "Cortex"
    )
    assert "LayerNormalization" in relax_aot("ops", folder=tmp_path).stdout
    assert "arm-none-eabi-gcc" in relax_aot("doctor", folder=tmp_path).stdout
    done = relax_aot("report", GESTURE, "--bound", "n=64", "-o", "r.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r.html").read_text()
    assert "<svg" in page and "http" not in page.replace("http-equiv", "")


@pytest.mark.slow
def test_files_are_what_their_names_and_options_say(tmp_path: Path) -> None:
    done = relax_aot("boards", "microbit", "--json", "b.json", folder=tmp_path)
    assert done.returncode == 0 and "cortex-m0" in done.stdout and not done.stdout.startswith("{")
    assert json.loads((tmp_path / "b.json").read_text())["cpu"] == "cortex-m0"
    sizes = ("report", GESTURE, "--bound", "n=64", "-o")
    assert relax_aot(*sizes, "r.svg", folder=tmp_path).returncode == 0
    assert (tmp_path / "r.svg").read_text().startswith("<svg")
    assert relax_aot(*sizes, "r.JSON", folder=tmp_path).returncode == 0
    assert json.loads((tmp_path / "r.JSON").read_text())["model"] == "gesture"
    refused(relax_aot("verify", "list.toml", folder=tmp_path), 2, "--farm")


@pytest.mark.slow
def test_bash_completes_verbs_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = relax_aot("completion", "bash", folder=tmp_path).stdout
    assert "_RELAX_AOT_COMPLETE=bash_complete" in script and "complete " in script
    cases = {
        "relax-aot prof": "plain,profile",
        "relax-aot compile --weig": "plain,--weights",
        "relax-aot compile m.onnx --board nucleo-f4": "plain,nucleo-f446re",
        "relax-aot boards nucleo-f4": "plain,nucleo-f446re",
        "relax-aot compile m.onnx --board ./mi": "file,./mi",
        "relax-aot verify mo": "file,mo",
        "relax-aot compare build/ol": "file,build/ol",
        "relax-aot compile m.onnx -o out/x": "file,out/x",
    }
    monkeypatch.setenv("_RELAX_AOT_COMPLETE", "bash_complete")
    for words, wanted in cases.items():
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        done = relax_aot(folder=tmp_path)
        assert wanted in done.stdout.splitlines(), done.stdout + done.stderr
    done = started(folder=tmp_path, environment=os.environ)
    assert wanted in done.stdout.splitlines(), done.stdout + done.stderr


@pytest.mark.slow
def test_an_answer_that_cannot_be_written_is_no_difference(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    with full.open("w") as nowhere:
        done = subprocess.run(
            [sys.executable, "-m", "relax_aot", "boards"],
            cwd=tmp_path, stdout=nowhere, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr
