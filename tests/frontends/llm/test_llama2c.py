# SPDX-License-Identifier: Apache-2.0
"""Models of llama2.c become the same models as checkpoints, and damaged ones clear errors. Files
are written as `export.py` and `tokenizer.py` of llama2.c do."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from relax_aot.cli.main import cli
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.llm.checkpoint import read_checkpoint
from relax_aot.frontends.llm.text_files import read_text_files, tokenizer_of
from tests.frontends.llm.checkpoints import Llama
from tests.frontends.llm.llama2c_files import written
from tests.frontends.llm.meaning import logits
from tests.frontends.llm.test_gguf import last_logits
from tests.frontends.llm.test_gguf_tokenizers import trained
from tests.frontends.llm.tokenizer_files import texts
from tests.frontends.llm.tokenizer_program import FRAME, STRICT, program_with

MODELS = {"tied": Llama(), "untied": Llama(tied=False, keys=1)}


def tokenizer() -> bytes:
    """Of SentencePiece."""
    reference = trained()
    data = struct.pack("<i", 64)
    for number in range(reference.vocab_size()):
        text = reference.id_to_piece(number)
        text = {1: "\n<s>\n", 2: "\n</s>\n"}.get(number, text).replace("\u2581", " ")
        score = reference.get_score(number)
        data += struct.pack("<fi", score, len(text.encode())) + text.encode()
    return data


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_the_model_of_a_file_computes_the_logits(name: str, version: int, tmp_path: Path) -> None:
    model, path = MODELS[name], tmp_path / "tiny.bin"
    path.write_bytes(written(model, version))
    checkpoint = read_checkpoint(path)
    assert set(checkpoint.tensors) == set(model.tensors)
    for label, wanted in model.tensors.items():
        found = checkpoint.weights(label, wanted.shape)
        most = np.abs(wanted).max() / 127 if version == 2 else 0
        assert np.abs(found - wanted).max() <= most, label
    if version < 2:
        tokens = [7, 3, 42, 1, 100, 9]
        wanted = logits(model, tokens)[-1]
        near = {"rtol": 1e-4, "atol": 1e-5 * np.abs(wanted).max()}
        np.testing.assert_allclose(last_logits(path, tokens), wanted, **near)


@pytest.mark.slow
def test_tokens_are_those_of_sentencepiece(tmp_path: Path) -> None:
    reference = trained()
    path = tmp_path / "tiny.bin"
    path.write_bytes(written(Llama(words=reference.vocab_size()), 0))
    assert tokenizer_of(path) is None
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer())
    made = tokenizer_of(path)
    assert made is not None
    program = program_with(made, tmp_path, (*STRICT, "-O1"))
    given = [b"Once upon a time", *texts(7, 100)]
    for text, tokens in zip(given, program.encode(given, FRAME), strict=True):
        plain = text.decode("utf-8", "replace")
        assert tokens == [1, *reference.encode(plain)] or "\u2581" in plain
    found = read_text_files(path)
    assert found is not None and found.ends == (2, 1)


def test_the_project_of_a_file_has_its_tokenizer(tmp_path: Path) -> None:
    words = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), " ", "a"]
    data = b"".join(struct.pack("<fi", -n, len(w)) + w.encode() for n, w in enumerate(words))
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<i", 8) + data)
    path, out = tmp_path / "tiny.bin", tmp_path / "out"
    path.write_bytes(written(Llama(words=len(words), layers=1), 0))
    done = CliRunner().invoke(cli, ["llm", str(path), "--context", "8", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert (out / "tiny_generate.c").is_file()


@cache
def whole(version: int) -> bytes:
    return written(Llama(words=20, layers=1), version)


def number(offset: int, value: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:offset] + struct.pack("<i", value) + data[offset + 4 :]


DAMAGES: dict[str, tuple[int, Callable[[bytes], bytes], str]] = {
    "no bytes": (0, lambda data: b"", "has 0 bytes, which is no model"),
    "half": (0, lambda data: data[: len(data) // 2], "but it has"),
    "bytes behind": (0, lambda data: data + b"x", "the weights end at"),
    "a width of 0": (0, number(0, 0), "hidden_size would be 0"),
    "many layers": (0, number(8, 2**30), "num_hidden_layers would be 1073741824"),
    "heads that are no part": (0, number(12, 3), "heads of half a pair"),
    "another version": (1, number(4, 9), "version 9 of llama2.c"),
    "fewer tokens than none": (1, number(28, -20), "vocab_size would be -20"),
    "groups of 0": (2, number(37, 0), "groups of 0"),
    "groups of half a row": (2, number(37, 7), "groups of 7 in rows of 32"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_clear_errors(name: str, tmp_path: Path) -> None:
    version, edit, message = DAMAGES[name]
    path = tmp_path / "tiny.bin"
    path.write_bytes(edit(whole(version)))
    with pytest.raises(RelaxAotError) as raised:
        read_checkpoint(path)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "token 0 of 20 is not there"),
        (struct.pack("<ifi", 8, 0.0, 9), "token 0 would have 9 bytes"),
        (struct.pack("<ifi", 8, 0.0, -1), "token 0 would have -1 bytes"),
        (struct.pack("<i", 8) + struct.pack("<fi", 0, 0) * 21, "20 tokens end at 164"),
    ],
)
def test_damaged_tokenizers_are_clear_errors(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.bin"
    path.write_bytes(whole(0))
    (tmp_path / "tokenizer.bin").write_bytes(data)
    with pytest.raises(RelaxAotError) as raised:
        tokenizer_of(path)
    assert message in str(raised.value)


@pytest.mark.long
def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    rng, refused = np.random.default_rng(0), 0
    path = tmp_path / "tiny.bin"
    for _ in range(1500):
        mutated = bytearray(whole(int(rng.integers(3))))
        for place in rng.integers(0, 48, rng.integers(1, 4)):
            mutated[place] = rng.choice([0, 1, 127, 255, int(rng.integers(256))])
        path.write_bytes(bytes(mutated))
        try:
            for tensor in read_checkpoint(path).tensors.values():
                tensor.array()
        except RelaxAotError:
            refused += 1
    assert refused > 500
