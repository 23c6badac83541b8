# SPDX-License-Identifier: Apache-2.0
"""GGUF files become the same models as checkpoints, and damaged ones clear errors."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.llm.architectures import shape_of
from relax_aot.frontends.llm.checkpoint import read_checkpoint
from relax_aot.frontends.llm.gguf import GgufTensor, read_gguf
from relax_aot.frontends.llm.gguf_blocks import KINDS
from relax_aot.frontends.llm.text_files import read_text_files
from relax_aot.verify.reference import NumpyReference
from tests.frontends.llm.checkpoints import Array, Llama
from tests.frontends.llm.gguf_files import file_of, gguf, interleaved, metadata_of, stored
from tests.frontends.llm.meaning import logits
from tests.frontends.llm.models import MODELS

MODEL = Llama(width=64, hidden=96, size=16)
QWEN3 = Llama(architecture="Qwen3ForCausalLM", norms=True, tied=False)
QWEN2 = Llama(architecture="Qwen2ForCausalLM", biases="qkv")


TEXT = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *"abcdefghijklmnop", "ab"],
    "tokenizer.ggml.scores": [float(-number) for number in range(20)],
    "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 17],
    "tokenizer.ggml.bos_token_id": 1,
}


def written(folder: Path, data: bytes) -> Path:
    path = folder / "tiny.gguf"
    path.write_bytes(data)
    return path


def last_logits(path: Path, tokens: list[int]) -> Array:
    """By the meaning of the ops."""
    module = dict(rx.load_llm(path, context=48, chunk=24).modules)["prefill"]
    sizes = {"m": 0, "n": len(tokens)}
    shapes = {p.name: tuple(d.evaluate(sizes) for d in p.type.shape) for p in module.main.params}
    given = {"tokens": np.array(tokens, np.int32)}
    return NumpyReference(module)(given, shapes, sizes)["logits"]


@pytest.mark.parametrize(
    ("model", "architecture"),
    [(MODEL, "llama"), (QWEN3, "qwen3"), (QWEN2, "qwen2"), (Llama(keys=1, tied=False), "llama")],
    ids=["llama", "qwen3", "qwen2", "one head of keys"],
)
def test_the_model_of_a_file_computes_the_logits(
    model: Llama, architecture: str, tmp_path: Path
) -> None:
    tokens = [7, 3, 42, 1, 100, 9]
    found = last_logits(written(tmp_path, file_of(model, "F32", architecture)), tokens)
    wanted = logits(model, tokens)[-1]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def plain(name: str, layers: int = 2, style: Mapping[str, Any] = {}, **fields: Any) -> Llama:
    """A model of another architecture with what its files in GGUF can say."""
    model = MODELS[name]
    config = {key: value for key, value in {**model.config, **fields}.items() if value is not None}
    return replace(model, layers=layers, config=config, style=replace(model.style, **style))


ROOT = {"query_pre_attn_scalar": 8}
OTHERS: dict[str, tuple[Llama, dict[str, Any]]] = {
    "arcee": (MODELS["arcee"], {}),
    "exaone4": (MODELS["exaone4"], {"attention.sliding_window_pattern": [1, 1, 0, 1]}),
    "exaone4 without windows": (MODELS["exaone4 without windows"], {}),
    "gemma": (MODELS["gemma"], {}),
    "gemma2": (
        plain("gemma2", style={"query_scale": 8**-0.5}, **ROOT),
        {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 5.0},
    ),
    "gemma2 with windows in two of three layers": (
        plain("gemma2", 4, {"query_scale": 8**-0.5, "windows": (6, 6, None, 6)}, **ROOT),
        {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 5.0,
         "attention.sliding_window_pattern": 3},
    ),
    "gemma3": (
        plain("gemma3", 4, {"query_scale": 8**-0.5}, **ROOT),
        {"attention.sliding_window_pattern": 3, "rope.freq_base_swa": 5000.0,
         "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
    ),
    "granite": (
        MODELS["granite"],
        {"embedding_scale": 12.0, "attention.scale": 0.25, "residual_scale": 0.22,
         "logit_scale": 8.0},
    ),
    "olmo2": (MODELS["olmo2"], {}),
    "olmo2 with windows": (
        plain("olmo3", 5, {"local_theta": 3000.0}, rope_scaling=None, rope_theta=3000.0), {},
    ),
    "phi2": (MODELS["phi2 with shared keys"], {}),
    "phi3": (MODELS["phi3"], {}),
    "seed_oss": (MODELS["seed oss"], {}),
    "smollm3": (plain("smollm3", 5, {"still": (3,)}, no_rope_layers=None), {}),
    "stablelm": (MODELS["stablelm"], {"use_parallel_residual": False}),
    "starcoder2": (MODELS["starcoder2"], {}),
}  # fmt: skip
"""By the names of GGUF, and further fields of files."""


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures_compute_the_logits(name: str, tmp_path: Path) -> None:
    """Files of the same weights agree with llama.cpp, too (F32, but for its table of GELU)."""
    (model, fields), tokens = OTHERS[name], [7, 3, 42, 1, 100, 9, 11, 5]
    architecture = name.partition(" ")[0]
    text = {f"{architecture}.{key}": value for key, value in fields.items()}
    data = file_of(model, "F32", architecture, text=text)
    found = last_logits(written(tmp_path, data), tokens)
    wanted = logits(model, tokens)[-1]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "smollm3"])
def test_a_base_that_is_missing_is_that_of_llama_cpp(architecture: str, tmp_path: Path) -> None:
    """10000, also where `config.json` has another one."""
    data = file_of(Llama(words=20, layers=1), "F32", architecture)
    name = f"{architecture}.rope.freq_base".encode()
    found = []
    for content in (data, data.replace(name, name[:-1] + b"?")):
        config = read_checkpoint(written(tmp_path, content)).config
        found.append(shape_of(config).rotations[0].frequencies.tolist())
    assert found[0] == found[1]


def test_short_factors_of_a_file_divide_the_frequencies(tmp_path: Path) -> None:
    """LongRoPE, with the context and the factor of attention of the file."""
    model = MODELS["phi3 of long contexts"]
    scaling = model.config["rope_scaling"]
    more = {
        f"rope_factors_{name}.weight": stored(np.array(scaling[f"{name}_factor"]), "F32")
        for name in ("short", "long")
    }
    attention = math.sqrt(1 + math.log(512 / 200) / math.log(200))
    text = {
        "phi3.rope.scaling.original_context_length": 200,
        "phi3.rope.scaling.attn_factor": attention,
    }
    path = written(tmp_path, file_of(model, "F32", "phi3", more, text))
    wanted = logits(model, [7, 3, 42, 1])[-1]
    found = last_logits(path, [7, 3, 42, 1])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    with pytest.raises(RelaxAotError, match="is compiled for 1 to 200 tokens"):
        rx.load_llm(path, context=201)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_weights_of_every_type_are_near_their_floats(kind: str, tmp_path: Path) -> None:
    model = Llama(width=64, hidden=96, size=16, kind="BF16" if kind == "BF16" else "F32")
    checkpoint = read_checkpoint(written(tmp_path, file_of(model, kind)))
    most = {"F16": 1e-3, "BF16": 0.0, "Q8_0": 1 / 127, "Q4_0": 1 / 8}[kind]
    assert set(checkpoint.tensors) == set(model.tensors)
    for name, wanted in model.tensors.items():
        found = checkpoint.weights(name, wanted.shape).astype(np.float32)
        wide = wanted.astype(np.float32)
        assert np.abs(found - wide).max() <= most * np.abs(wide).max(), name


def test_frequencies_are_divided_by_the_factors_of_a_file(tmp_path: Path) -> None:
    """Factors of 4 are the linear scaling by 4."""
    linear = Llama(config={"rope_scaling": {"rope_type": "linear", "factor": 4.0}})
    tensors = {"rope_freqs.weight": stored(np.full(4, 4, np.float32), "F32")}
    data = file_of(linear, "F32", more=tensors)
    tokens = [7, 3, 42, 1]
    wanted = logits(linear, tokens)[-1]
    found = last_logits(written(tmp_path, data), tokens)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "fields",
    [
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        {"rope.scaling.factor": 4.0},
        {"rope.scale_linear": 4.0},
    ],
)
def test_a_factor_without_a_type_is_linear(fields: dict[str, Any], tmp_path: Path) -> None:
    """As in llama.cpp, for the names of several years."""
    linear = Llama(config={"rope_scaling": {"rope_type": "linear", "factor": 4.0}})
    more = {f"llama.{name}": value for name, value in fields.items()}
    wanted = logits(linear, [7, 3, 42, 1])[-1]
    data = file_of(Llama(), "F32", text=more)
    found = last_logits(written(tmp_path, data), [7, 3, 42, 1])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("fields", "factors", "said"),
    [
        ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, 0, "type=yarn by 4.0 is not"),
        ({"rope.scaling.factor": 2.0}, 4, "by 2.0 and rope_freqs.weight is not supported"),
        ({"attention.causal": False}, 0, "attention.causal=False is not supported"),
        ({"rope.scaling.attn_factor": 1.3}, 0, "attn_factor=1.2999.* is not supported without"),
        (
            {"rope.freq_base_swa": 5.0, "attention.sliding_window": 4},
            0,
            "rope.freq_base_swa=5.0 is not supported, only 10000",
        ),
        (
            {"attention.sliding_window_pattern": True},
            0,
            "window_pattern is True, expected a number",
        ),
        ({"rope.scaling.attn_factor": 0.5}, 4, "attn_factor=0.5 is not supported without rope"),
    ],
)
def test_fields_that_change_the_logits_are_not_ignored(
    fields: dict[str, Any], factors: int, said: str, tmp_path: Path
) -> None:
    more = {"rope_freqs.weight": stored(np.full(4, factors, np.float32), "F32")} if factors else {}
    text = {f"llama.{name}": value for name, value in fields.items()}
    data = file_of(Llama(words=20, layers=1), "F32", more=more, text=text)
    with pytest.raises(RelaxAotError, match=said):
        rx.load_llm(written(tmp_path, data), context=8)


SCALES = {
    "Q4_1": (0, 4), "Q5_1": (0, 4), "Q4_K": (0, 4), "Q5_K": (0, 4), "Q2_K": (80, 4),
    "Q3_K": (108, 2), "Q6_K": (208, 2),
}  # fmt: skip
"""Where blocks have numbers of half precision, and how many bytes; others begin with one."""


@pytest.mark.parametrize("kind", [pytest.param(k, id=k.name) for k in KINDS.values() if k.decode])
def test_blocks_stand_for_what_ggml_says(kind: object, request: pytest.FixtureRequest) -> None:
    quants = pytest.importorskip("gguf.quants")
    (number,) = (number for number, one in KINDS.items() if one is kind)
    one = KINDS[number]
    rng = np.random.default_rng(number)
    data = rng.integers(0, 256, (24, one.bytes * 2 if one.elements > 1 else 64)).astype(np.uint8)
    if one.elements > 1:  # scales are small numbers
        small = rng.uniform(-1, 1, (48, 2)).astype("<f2").view(np.uint8).reshape(24, 2, 4)
        start, size = SCALES.get(one.name, (0, 2))
        data.reshape(24, 2, one.bytes)[..., start : start + size] = small[..., :size]
    assert one.decode is not None
    found = np.asarray(one.decode(data.reshape(-1))).reshape(24, -1).astype(np.float32)
    wanted = quants.dequantize(data, quants.GGMLQuantizationType(number)).astype(np.float32)
    np.testing.assert_array_equal(found, wanted)


def test_sizes_of_types_are_those_of_ggml() -> None:
    quants = pytest.importorskip("gguf.quants")
    for number, kind in KINDS.items():
        type_ = quants.GGMLQuantizationType(number)
        assert (type_.name, *quants.GGML_QUANT_SIZES[type_]) == (
            kind.name, kind.elements, kind.bytes,
        )  # fmt: skip


def test_rows_of_heads_are_put_back() -> None:
    rows = np.arange(48, dtype=np.float32).reshape(24, 2)
    data = interleaved(rows, 3).tobytes()
    tensor = GgufTensor("x", KINDS[0], rows.shape, np.frombuffer(data, np.uint8), heads=3)
    np.testing.assert_array_equal(tensor.array(), rows)


# Damaged files


@cache
def whole() -> bytes:
    return file_of(Llama(words=20, layers=1), "F32", text=TEXT)


def at(offset: int, code: str, number: int) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        new = struct.pack(f"<{code}", number)
        return data[:offset] + new + data[offset + len(new) :]

    return edit


def behind(text: bytes, offset: int, code: str, number: int) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        return at(data.index(text) + len(text) + offset, code, number)(data)

    return edit


NAME = b"blk.0.attn_q.weight"
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "no GGUF file"),
    "other magic": (at(0, "I", 1), "no GGUF file"),
    "version 1": (at(4, "I", 1), "version 1 of GGUF"),
    "byte order": (at(4, "I", 3 << 24), "version 50331648"),
    "many tensors": (at(8, "Q", 2**40), "has 0 axes"),
    "many entries": (at(16, "Q", 2**60), "type|file ends|bytes"),
    "long key": (at(24, "Q", 2**50), "a key of the metadata would have"),
    "cut in the header": (lambda data: data[:100], "the file ends"),
    "cut in the data": (lambda data: data[:-200], "but the file has"),
    "type of a value": (behind(b"general.architecture", 0, "I", 77), "unknown type 77"),
    "architecture": (lambda d: d.replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0bloom", 1),
                     "its architecture is bloom"),
    "long array": (behind(b"tokenizer.ggml.tokens", 8, "Q", 2**60), "elements, the file ends"),
    "axes": (behind(NAME, 0, "I", 9), "has 9 axes"),
    "size 0": (behind(NAME, 4, "Q", 0), "has the shape"),
    "huge size": (behind(NAME, 4, "Q", 2**62), "has the shape"),
    "other size": (behind(NAME, 12, "Q", 16), "has the shape"),
    "type of a tensor": (behind(NAME, 20, "I", 1000), "has the type 1000"),
    "type that is not read": (behind(NAME, 20, "I", 39), "MXFP4|overlaps|blocks"),
    "offset": (behind(NAME, 24, "Q", 7), "no multiple of 32"),
    "far offset": (behind(NAME, 24, "Q", 1 << 50), "but the file has"),
    "overlap": (behind(NAME, 24, "Q", 0), "overlaps another one"),
    "name twice": (lambda d: d.replace(b"blk.0.attn_k.w", b"blk.0.attn_q.w"), "is there twice"),
    "no heads": (behind(b"llama.attention.head_count", 4, "I", 0), "expected a number from 1"),
    "other heads": (behind(b"llama.attention.head_count", 4, "I", 5), "5 heads of queries"),
    "value length": (behind(b"attention.value_length", 4, "I", 12), "attention.value_length=12"),
    "unknown tensor": (lambda d: d.replace(b"blk.0.attn_norm", b"blk.0.attn_morn"), "input_layer"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_clear_errors(name: str, tmp_path: Path) -> None:
    edit, message = DAMAGES[name]
    data = edit(whole())
    assert data != whole()
    with pytest.raises(RelaxAotError, match=message):
        rx.load_llm(written(tmp_path, data), context=8, chunk=4)


@pytest.mark.parametrize(
    ("architecture", "field"),
    [("llama", "context_length"), ("llama", "attention.layer_norm_rms_epsilon"),
     ("phi2", "attention.layer_norm_epsilon"), ("starcoder2", "attention.layer_norm_epsilon"),
     ("stablelm", "attention.layer_norm_epsilon")],
)  # fmt: skip
def test_what_llama_cpp_needs_is_not_guessed(architecture: str, field: str, tmp_path: Path) -> None:
    name = f"{architecture}.{field}"
    data = file_of(Llama(words=20, layers=1), "F32", architecture)
    damaged = data.replace(name.encode(), name[:-1].encode() + b"?")
    with pytest.raises(RelaxAotError, match=rf"tiny.gguf has no field {name}"):
        rx.load_llm(written(tmp_path, damaged), context=8)


def test_a_part_of_a_file_says_so(tmp_path: Path) -> None:
    data = file_of(Llama(words=20, layers=1), "F32", text={"split.count": 2, "split.no": 0})
    with pytest.raises(RelaxAotError, match="is one of 2 parts of a file, which is not supported"):
        rx.load_llm(written(tmp_path, data), context=8)


def test_alignment_is_a_power_of_two(tmp_path: Path) -> None:
    model = Llama(words=20, layers=1)
    data = gguf({**metadata_of(model, "llama"), "general.alignment": 24}, {})
    with pytest.raises(RelaxAotError, match=r"general\.alignment is 24"):
        rx.load_llm(written(tmp_path, data))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    """Bytes in front of the data: numbers, texts, lengths."""
    rng, data = np.random.default_rng(seed), whole()
    head = data.index(b"blk.0.ffn_down") + 64
    refused = 0
    for _ in range(2500):
        mutated = bytearray(data)
        for place in rng.integers(0, head, rng.integers(1, 4)):
            mutated[place] = rng.choice([0, 1, 127, 255, int(rng.integers(256))])
        if rng.random() < 0.2:
            del mutated[int(rng.integers(len(mutated))) :]
        path = written(tmp_path, bytes(mutated))
        try:
            read_gguf(path)
            checkpoint = read_checkpoint(path)
            for tensor in checkpoint.tensors.values():
                if tensor.is_read:
                    tensor.array()
            read_text_files(path)
        except RelaxAotError:
            refused += 1
    assert refused > 250
