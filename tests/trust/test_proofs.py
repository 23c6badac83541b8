"""Frama-C Eva finds nothing that could be undefined, whatever sizes and numbers a call is given."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from relax_aot import driver
from relax_aot.verify.prove import prove, write
from tests.conftest import NO_FRAMA_C
from tests.trust.proven import PROVEN


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", PROVEN)
def test_no_alarm(name: str, tmp_path: Path) -> None:
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    subject = PROVEN[name]
    project = driver.compile_model(subject.make(), "host", subject.options)
    proof = prove(project)
    assert proof.ok, "\n".join(proof.lines())
    folder = write(project, proof, tmp_path / "out")
    assert {path.name for path in (folder / "proof").iterdir()} == {
        "driver.c", "command.txt", "proof.json", "frama-c.txt",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_a_fault_is_an_alarm(tmp_path: Path) -> None:
    """What is proven is not nothing: one element beyond an output is found."""
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    subject = PROVEN["chain"]
    project = driver.compile_model(subject.make(), "host", subject.options)
    header = f"{project.name}.h"
    text = project.files[header].decode()
    cut = text.replace("CHAIN_Y_BYTES = 4LL *", "CHAIN_Y_BYTES = -4LL + 4LL *")
    assert cut != text
    project.files[header] = cut.encode()
    proof = prove(project)
    assert not proof.ok and any("out of bounds write" in alarm for alarm in proof.alarms)
