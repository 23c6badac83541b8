# SPDX-License-Identifier: Apache-2.0
"""The committed language model is as small as its README says, and writes the same text on a
Cortex-M7 and on the host."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import relax_aot as rx
from relax_aot.cli.main import cli
from relax_aot.frontends.llm.gguf import read_gguf
from tests.conftest import ROOT

MODEL = ROOT / "examples" / "language_model" / "pydoc.gguf"
BOARD = "mps2-an500"


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def weights() -> int:
    return sum(int(np.prod(tensor.shape)) for tensor in read_gguf(MODEL)[1].values())


def text_on_the_board(folder: Path, context: int, prompt: str, *options: str) -> tuple[str, str]:
    """What the command prints, and what the program of the project writes in QEMU."""
    sizes = ("--context", str(context), "--chunk", "16", "-o", str(folder))
    how = ("--board", BOARD, "--quantize", "q8_0", "--numerics", "ordered")
    done = CliRunner().invoke(cli, ["llm", str(MODEL), *sizes, *how])
    assert done.exit_code == 0, done.output
    command = ["make", "-s", "-C", str(folder / "board"), "run", f"PROMPT={prompt}"]
    run = subprocess.run(
        [*command, f"EXTRA={' '.join(options)}"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return done.output, run.stdout


def text_on_the_host(context: int, prompt: str, count: int, temperature: float) -> str:
    model = rx.load_llm(MODEL, context=context, chunk=16)
    host = rx.compile(model, name="pydoc", quantize="q8_0", numerics="ordered").host()
    top_p = 0.95 if temperature else 0.0
    return host.generate(prompt, temperature=temperature, top_p=top_p, seed=1, max_tokens=count)


def test_the_model_has_the_size_that_its_readme_states() -> None:
    readme = (MODEL.parent / "README.md").read_text(encoding="utf-8")
    assert f"A Llama of {weights():,} weights" in readme
    assert f"{MODEL.stat().st_size / 1000:.0f} kB" in readme


@pytest.mark.qemu
@pytest.mark.long
def test_a_cortex_m7_writes_the_text_of_the_host(tmp_path: Path) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "make")
    prompt, flags = "read_text(path)", "-DMAX_TOKENS=12 -Wall -Wextra -Werror"
    said, text = text_on_the_board(tmp_path, 64, prompt, flags)
    assert text == prompt + text_on_the_host(64, prompt, 12, 0.0) + "\n"
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "-S", tmp_path / "board" / "pydoc.elf"], capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    found = re.findall(r" (\w{8}) \w (\w+)$", symbols.stdout, re.M)
    sizes = {name: int(size, 16) for size, name in found}
    printed = {int(number) for number in re.findall(r"(\d+) bytes", said)}
    assert {sizes["arena"], sizes["state"]} <= printed
    assert not {"malloc", "_malloc_r", "free", "_sbrk"} & set(sizes)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_long_texts_are_the_same(temperature: float, tmp_path: Path) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "make")
    prompt = "class FileReader"
    given = (f"-DTEMPERATURE={temperature}f", "-DMAX_TOKENS=230")
    _, text = text_on_the_board(tmp_path, 256, prompt, *given)
    assert text == prompt + text_on_the_host(256, prompt, 230, temperature) + "\n"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.parametrize(("held", "most"), [(16, 1.25), (64, 1.34), (128, 1.46), (255, 1.69)])
def test_instructions_for_each_weight_and_token(held: int, most: float) -> None:
    """With so many tokens in the caches."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    model = rx.load_llm(MODEL, context=256, chunk=64, tokenizer=False)
    project = rx.compile(model, name="pydoc", quantize="q8_0", numerics="ordered", board=BOARD)
    tokens = np.random.default_rng(0).integers(1, 1024, held).astype(np.int32)
    chunks = [("prefill", {"tokens": tokens[at : at + 64]}) for at in range(0, held, 64)]
    run = project.emulate([*chunks, ("decode", {"token": np.array(5, np.int32)})])[-1]
    assert run.status == 0 and run.instructions is not None
    assert run.instructions <= most * weights()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.parametrize("numerics", ["blocked", "ordered"])
def test_instructions_of_a_text_that_fills_the_caches(numerics: str) -> None:
    """At most 1.5 for each weight and token."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    model = rx.load_llm(MODEL, context=256, chunk=64, tokenizer=False)
    project = rx.compile(model, name="pydoc", quantize="q8_0", numerics=numerics, board=BOARD)
    tokens = np.random.default_rng(0).integers(1, 1024, 256).astype(np.int32)
    first = ("prefill", {"tokens": tokens[:1]})
    runs = project.emulate([first, *(("decode", {"token": token}) for token in tokens[1:])])
    assert not any(run.status for run in runs)
    assert sum(run.instructions or 0 for run in runs) <= 1.5 * weights() * len(tokens)
