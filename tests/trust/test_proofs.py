# SPDX-License-Identifier: Apache-2.0
"""Frama-C Eva finds nothing that could be undefined, whatever sizes and numbers a call is given."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import onnx
import pytest

from relax_aot import driver
from relax_aot.cli.main import cli
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.project import Project
from relax_aot.verify.prove import prove, write
from tests.conftest import NO_FRAMA_C
from tests.fuzz.graphs import random_graph
from tests.trust.proven import PROVEN
from tests.trust.proven_further import FURTHER
from tests.trust.random_nets import random_net

MODELS = PROVEN | FURTHER
RANDOM_NETS, RANDOM_GRAPHS = 60, 60
SHARED: dict[str, dict[str, tuple[int, int]]] = {
    "kws_fp32.onnx": {},
    "kws_fp32.tflite": {},
    "kws_int8.tflite": {"input_1_0": (1, 1)},
    "kws_int8_qdq.onnx": {},
    "kws_int8_qop.onnx": {},
    "resnet8_fp32.onnx": {},
    "resnet8_fp32.tflite": {"input_1_0": (1, 1)},
    "resnet8_int8.tflite": {"input_1_int8_0": (1, 1)},
    "resnet8_int8_qdq.onnx": {},
    "resnet8_int8_qop.onnx": {},
}


REPLACED = ("kws_fp32.onnx", "kws_int8.tflite", "kws_int8_qdq.onnx", "kws_int8_qop.onnx")


def annotated(source: Any, options: Options, board: str = "host") -> Project:
    """With the comments that Frama-C reads, as `relax-aot prove` builds it."""
    return driver.compile_model(source, board, replace(options, annotate=True))


def test_only_proofs_have_annotations() -> None:
    """They change nothing else: without them the C is what users get."""
    subject = PROVEN["quantized"]
    plain = driver.compile_model(subject.make(), "host", subject.options)
    source = f"{plain.name}.c"
    proven = annotated(subject.make(), subject.options).files[source].decode()
    lines = proven.splitlines(keepends=True)
    kept = "".join(line for line in lines if not line.lstrip().startswith("/*@"))
    assert "/*@ loop unroll" in proven and "/*@ split" in proven
    assert kept == plain.files[source].decode()


def test_no_annotation_of_a_declaration() -> None:
    """Frama-C refuses it: a size is split before the first statement, which may be one."""
    net = random_net(11)
    project = annotated(net.make(), net.options)
    lines = project.files[f"{project.name}.c"].decode().splitlines()
    after = [
        line.strip() for before, line in pairwise(lines) if re.fullmatch(r" */\*@.*\*/", before)
    ]
    assert any("/*@ split n" in line for line in lines) and after
    assert all(re.match(r"for |if |/\*@", line) for line in after)


def test_no_annotation_calls_a_function_of_c() -> None:
    """Frama-C refuses it: the ranges of checked indices are in the language of annotations."""
    net = random_net(53)
    project = annotated(net.make(), net.options)
    text = project.files[f"{project.name}.c"].decode()
    admitted = re.findall(r"/\*@ admit (.*); \*/", text)
    assert any(r"\max(" in range_ for range_ in admitted), "no range has a maximum of sizes"
    assert not any("raot_" in range_ for range_ in admitted), admitted


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_no_alarm(name: str, tmp_path: Path) -> None:
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    subject = MODELS[name]
    project = annotated(subject.make(), subject.options)
    proof = prove(project)
    assert proof.ok, "\n".join(proof.lines())
    folder = write(project, proof, tmp_path / "out")
    assert {path.name for path in (folder / "proof").iterdir()} == {
        "driver.c", "command.txt", "proof.json", "frama-c.txt",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(RANDOM_NETS))
def test_no_alarm_in_random_nets(seed: int) -> None:
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    net = random_net(seed)
    proof = prove(annotated(net.make(), net.options))
    assert proof.ok, "\n".join(proof.lines())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(RANDOM_GRAPHS))
def test_no_alarm_in_random_graphs(seed: int) -> None:
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    graph = random_graph(seed)
    proof = prove(annotated(graph.model, Options(bounds=graph.bounds)))
    assert proof.ok, "\n".join(proof.lines())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", SHARED)
def test_no_alarm_in_real_networks(name: str, shared_models: Path) -> None:
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    proof = prove(annotated(shared_models / name, Options(bounds=SHARED[name])))
    assert proof.ok, "\n".join(proof.lines())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", [*MODELS, *REPLACED])
def test_no_alarm_with_replaceable_weights(name: str, request: pytest.FixtureRequest) -> None:
    """Whatever parameters a block has that `init` accepts."""
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    if name in REPLACED:
        source: Any = request.getfixturevalue("shared_models") / name
        options = Options(bounds=SHARED[name])
    else:
        source, options = MODELS[name].make(), MODELS[name].options
    proof = prove(annotated(source, replace(options, weights="blob")))
    assert proof.ok, "\n".join(proof.lines())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "board"),
    [
        *product(
            ("quantized", "quantized_cnn", "causal_codes"), ("microbit", "mps2-an386", "mps3-an547")
        ),
        ("quantized_depthwise", "mps3-an547"),
        *product(("quantized_gru", "quantized_pools"), ("mps2-an386", "mps3-an547")),
    ],
)
def test_no_alarm_on_boards(name: str, board: str) -> None:
    """In what they have in the place of instructions of their own."""
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    subject = MODELS[name]
    proof = prove(annotated(subject.make(), subject.options, board))
    assert proof.ok, "\n".join(proof.lines())


@pytest.mark.slow
@pytest.mark.long
def test_a_fault_is_an_alarm(tmp_path: Path) -> None:
    """What is proven is not nothing: one element beyond an output is found."""
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    subject = PROVEN["chain"]
    project = annotated(subject.make(), subject.options)
    header = f"{project.name}_layout.h"
    text = project.files[header].decode()
    cut = text.replace("CHAIN_Y_BYTES = 4LL *", "CHAIN_Y_BYTES = -4LL + 4LL *")
    assert cut != text
    proof = prove(replace(project, files=project.files | {header: cut.encode()}))
    assert not proof.ok and any("out of bounds write" in alarm for alarm in proof.alarms)


@pytest.mark.slow
@pytest.mark.long
def test_a_changed_project_is_proven_again(tmp_path: Path) -> None:
    """With pointers of 32 bits, as the board has; an inserted fault is found."""
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    onnx.save(PROVEN["chain"].make(), tmp_path / "chain.onnx")
    out = tmp_path / "out"
    words = ["prove", str(tmp_path / "chain.onnx"), "-o", str(out), "--board", "microbit"]
    assert exit_code([*words, "--bound", "n=5", "--bound", "m=6"]) == 0
    assert "gcc_x86_32" in (out / "proof" / "command.txt").read_text()
    assert exit_code(["prove", str(out)]) == 0
    before = {path for path in out.rglob("*") if path.is_file()}
    source = out / "chain.c"
    changed = source.read_text().replace("= 0; i0 < ", "= 0; i0 <= ")
    assert changed != source.read_text()
    source.write_text(changed)
    assert exit_code(["prove", str(out)]) == 1
    assert not json.loads((out / "proof" / "proof.json").read_text())["ok"]
    assert {path for path in out.rglob("*") if path.is_file()} == before


def exit_code(words: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        cli(words, standalone_mode=False)
    return int(ended.value.code or 0)


def test_a_folder_without_a_proof_is_refused(tmp_path: Path) -> None:
    (tmp_path / "relax_aot.json").write_text("{}")
    with pytest.raises(RelaxAotError, match="contains no project with a proof"):
        cli(["prove", str(tmp_path)], standalone_mode=False)
    (tmp_path / "proof").mkdir()
    (tmp_path / "proof" / "driver.c").write_text("")
    for command in (
        "[]",
        '["frama-c", "-machdep", "x", "proof/driver.c", "-load-module=x.c"]',
        "7",
    ):
        (tmp_path / "proof" / "proof.json").write_text(f'{{"command": {command}}}')
        with pytest.raises(RelaxAotError, match="contains no project with a proof"):
            cli(["prove", str(tmp_path)], standalone_mode=False)
    with pytest.raises(RelaxAotError, match="needs -o DIR"):
        cli(["prove", str(tmp_path / "model.onnx")], standalone_mode=False)
