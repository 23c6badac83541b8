# SPDX-License-Identifier: Apache-2.0
"""Files of a checkpoint that are wrong end with one clear error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.frontends.llm.architectures import shape_of
from relax_aot.frontends.llm.config import Config
from relax_aot.frontends.llm.safetensors import read
from relax_aot.frontends.llm.text_files import read_text_files
from tests.frontends.llm.checkpoints import (
    LLAMA3,
    LONG,
    YARN,
    Array,
    Llama,
    safetensors,
    with_header,
)

SMALL = Llama(words=5, width=4, hidden=6, layers=1, queries=2, keys=1, size=2)
NORM = "model.norm.weight"


def entry(kind: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> bytes:
    """A header with one tensor."""
    fields = {"dtype": kind, "shape": shape, "data_offsets": offsets, **more}
    return json.dumps({"a": fields}).encode()


def two(first: tuple[int, int], second: tuple[int, int]) -> bytes:
    """A header with two tensors of two numbers."""
    parts = {"a": first, "b": second}
    return json.dumps(
        {n: {"dtype": "F32", "shape": [2], "data_offsets": at} for n, at in parts.items()}
    ).encode()


EIGHT = bytes(8)
FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no safetensors file"),
    "a length without a header": (b"\x10\0\0\0\0\0\0\0", "its header would have 16 bytes"),
    "a header behind the end": (with_header(b"{}", b"")[:9], "its header would have 2 bytes"),
    "a header of many bytes": (b"\xff" * 8 + b"{}", "its header would have 18446744073709551615"),
    "no JSON": (with_header(b"{", b""), "is not JSON"),
    "no text": (with_header(b"\xff\xff", b""), "is not JSON"),
    "deep": (with_header(b"[" * 100_000, b""), "nested too deeply"),
    "a list": (with_header(b"[]", b""), "is not a JSON object"),
    "a name twice": (with_header(b'{"a": 1, "a": 2}', b""), "has 'a' twice"),
    "a name twice behind many": (
        with_header(
            b'{%s "a": 1, "a": 2}' % b"".join(b'"%d": 1,' % n for n in range(100_000)), b""
        ),
        "has 'a' twice",
    ),
    "a number for a tensor": (with_header(b'{"a": 1}', b""), "its fields are not"),
    "a field too many": (with_header(entry(more=1), EIGHT), "its fields are not"),
    "an unknown type": (with_header(entry("F31"), EIGHT), "its type 'F31' is unknown"),
    "a type that is a list": (with_header(entry([]), EIGHT), "its type '[]' is unknown"),
    "a shape that is text": (with_header(entry(shape="2"), EIGHT), "not a list of sizes"),
    "a size below zero": (with_header(entry(shape=[-2]), EIGHT), "not a list of sizes"),
    "a size that is true": (with_header(entry(shape=[True]), EIGHT), "not a list of sizes"),
    "a size of 2**40": (with_header(entry(shape=[2**40]), EIGHT), "not a list of sizes"),
    "many axes": (with_header(entry(shape=[1] * 9), EIGHT), "not a list of sizes"),
    "an overflow": (with_header(entry(shape=[2**31 - 1] * 8), EIGHT), "does not take 8 bytes"),
    "three offsets": (with_header(entry(offsets=[0, 4, 8]), EIGHT), "not two numbers"),
    "offsets of floats": (with_header(entry(offsets=[0, 8.0]), EIGHT), "not two numbers"),
    "offsets in reverse": (with_header(entry(offsets=[8, 0]), EIGHT), "follows bytes of no tensor"),
    "bytes for another shape": (with_header(entry(shape=[3]), EIGHT), "does not take 8 bytes"),
    "bytes behind the file": (
        with_header(entry(), EIGHT[:7]),
        "it ends at 8, but the file has 7 bytes of data",
    ),
    "a gap": (with_header(two((0, 8), (12, 20)), bytes(20)), "'b': it follows bytes of no tensor"),
    "an overlap": (with_header(two((0, 8), (4, 12)), bytes(12)), "'b': it overlaps another"),
    "the same bytes": (with_header(two((0, 8), (0, 8)), EIGHT), "'b': it overlaps another"),
    "bytes that are left": (with_header(entry(), bytes(9)), "take 8 bytes, but the file has 9"),
}


@pytest.mark.parametrize("name", FILES)
def test_safetensors(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    data, said = FILES[name]
    path.write_bytes(data)
    with pytest.raises(rx.RelaxAotError) as error:
        read(path)
    assert said in str(error.value) and str(path) in str(error.value)


def test_tensors_have_the_values_of_the_file(tmp_path: Path) -> None:
    """Also of half precision, without elements, of no axis, and at odd addresses."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {
        "wide": rng.normal(size=(3, 5)).astype(np.float32),
        "half": rng.normal(size=7).astype(np.float16),
        "scalar": np.array(2.5, np.float32),
        "empty": np.zeros((0, 4), np.float16),
    }
    (tmp_path / "x").write_bytes(safetensors(arrays))
    found = read(tmp_path / "x")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].array(), array)


def changed(**fields: Any) -> Callable[[Path], None]:
    """The configuration with other fields; None removes one."""
    if "architectures" in fields:
        fields = {"model_type": None} | fields

    def change(folder: Path) -> None:
        given = {k: v for k, v in (SMALL.fields | fields).items() if v is not None}
        (folder / "config.json").write_text(json.dumps(given))

    return change


def stored(**arrays: Any) -> Callable[[Path], None]:
    """The weights with others; None removes some."""

    def change(folder: Path) -> None:
        names = {name.replace("__", "."): array for name, array in arrays.items()}
        whole: dict[str, Any] = {**SMALL.tensors, **names}
        kept = {k: v for k, v in whole.items() if v is not None}
        (folder / "model.safetensors").write_bytes(safetensors(kept))

    return change


def pruned(name: str, rows: int) -> Callable[[Path], None]:
    """Two layers, in the second of which a product has other rows."""

    def change(folder: Path) -> None:
        model = replace(SMALL, layers=2)
        tensors = {**model.tensors}
        tensors[f"model.layers.1.{name}.weight"] = np.zeros((rows, 4), np.float32)
        model.write(folder)
        (folder / "model.safetensors").write_bytes(safetensors(tensors))

    return change


def index(weight_map: Any) -> Callable[[Path], None]:
    """An index in place of the one file."""

    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "one.safetensors")
        text = json.dumps({"weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(text)

    return change


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def two_shards(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "two.safetensors").write_bytes(data)
    index({NORM: "one.safetensors", "b": "two.safetensors"})(folder)


ROPE = "rope_scaling"
FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no configuration": (without("config.json"), "config.json: No such file"),
    "no weights": (without("model.safetensors"), "has neither model.safetensors nor"),
    "no architecture": (changed(architectures=None), "is none; supported are Arcee"),
    "another architecture": (changed(architectures=["BloomForCausalLM", 3]),
                             "is BloomForCausalLM, 3; supported are Arcee"),
    "a width that is missing": (changed(hidden_size=None), "has no field hidden_size"),
    "a width that is text": (changed(hidden_size="4"), "hidden_size is 4, expected a number"),
    "a width of 0": (changed(hidden_size=0), "hidden_size is 0, expected a number from 1"),
    "a width beyond all": (changed(hidden_size=10**30), "expected a number from 1 to 16777216"),
    "a width that is true": (changed(hidden_size=True), "hidden_size is True, expected"),
    "another width": (changed(hidden_size=8), "has the shape [5, 4], but config.json says [5, 8]"),
    "many layers": (changed(num_hidden_layers=2), "has no weights model.layers.1."),
    "heads that share unequally": (changed(num_attention_heads=3, num_key_value_heads=2),
                                   "3 heads of queries for 2 heads of keys"),
    "heads of no size": (changed(num_attention_heads=3, num_key_value_heads=3, head_dim=None),
                         "hidden_size 4 for 3 heads, and no head_dim"),
    "heads of odd size": (changed(head_dim=3), "rotary positions rotate pairs"),
    "an epsilon below 0": (changed(rms_norm_eps=-1), "rms_norm_eps is -1, expected a positive"),
    "an epsilon that is no number": (changed(rms_norm_eps=float("nan")), "expected a positive"),
    "an epsilon beyond float32": (changed(rms_norm_eps=10**400), "expected a positive number of"),
    "a base beyond float32": (changed(rope_theta=1e-320), "rope_theta is 1e-320, expected a pos"),
    "a scaling beyond float32": (
        changed(rope_theta=1e-30, head_dim=64, rope_scaling={"type": "linear", "factor": 1e-30}),
        "rope_scaling: its rotary positions are beyond float32"),
    "a flag that is a number": (changed(attention_bias=1), "attention_bias is 1, expected true"),
    "another activation": (changed(hidden_act="sine"), "hidden_act=sine is not supported, only"),
    "quantized weights": (changed(quantization_config={"bits": 4}), "quantization_config="),
    "a scaling of another kind": (changed(rope_scaling={"rope_type": "proportional"}),
                                  "rope_type=proportional is not supported, only default, dynamic"),
    "yarn of a small base": (changed(rope_theta=1.0, rope_scaling=YARN),
                             "yarn needs a rope_theta above 1, not 1.0"),
    "types of too few layers": (changed(layer_types=[], sliding_window=4, use_sliding_window=True,
                                        architectures=["Qwen2ForCausalLM"]),
                                "layer_types is [], expected a list of 1"),
    "a type of layers": (changed(layer_types=["linear_attention"], sliding_window=4,
                                 use_sliding_window=True, architectures=["Qwen2ForCausalLM"]),
                         "layer_types has linear_attention, which is not supported, only full_att"),
    "windows of no size": (changed(layer_types=["sliding_attention"],
                                   architectures=["SmolLM3ForCausalLM"]),
                           "has no field sliding_window"),
    "a number of layers that is text": (
        changed(max_window_layers="1", use_sliding_window=True, sliding_window=4,
                architectures=["Qwen3ForCausalLM"]),
        "max_window_layers is 1, expected a number of at least 0"),
    "the type of another model": (changed(model_type="mistral"),
                                  "model_type=mistral is not supported, only llama"),
    "tokens that see later ones": (changed(is_causal=False), "is_causal=False is not supported"),
    "an encoder": (changed(is_encoder_decoder=True), "is_encoder_decoder=True is not supported"),
    "windows that are not used": (
        changed(layer_types=["sliding_attention"], sliding_window=4, use_sliding_window=False,
                architectures=["Qwen2ForCausalLM"]),
        "has no field sliding_window"),
    "positions by types of layers": (
        changed(rope_parameters={"full_attention": {"rope_theta": 500.0}}),
        "rope_parameters: the field full_attention is not supported"),
    "positions in two sections": (changed(rope_scaling={"type": "default", "mrope_section": [1]}),
                                  "rope_scaling: the field mrope_section is not supported"),
    "an epsilon of one layer": (
        changed(per_layer_config={"0": {"intermediate_size": 6, "rms_norm_eps": 1e-3}}),
        "per_layer_config: layer 0 has its own rms_norm_eps; supported are num_attention_heads"),
    "a layer that is no object": (changed(per_layer_config={"0\n": 6}),
                                  "per_layer_config: 0? is 6, expected an object"),
    "rows of several products": (
        stored(model__layers__0__mlp__gate_proj__weight=None,
               model__layers__0__mlp__up_proj__weight=None,
               model__layers__0__mlp__gate_up_proj__weight=np.zeros((13, 4), np.float32)),
        "has the shape [13, 4], but config.json says 12 rows"),
    "products that are there twice": (
        stored(model__layers__0__mlp__gate_up_proj__weight=np.zeros((12, 4), np.float32)),
        "tensors that its architecture does not have: model.layers.0.mlp.gate_up_proj.weight"),
    "a part of a head": (changed(partial_rotary_factor=0.5),
                         "partial_rotary_factor=0.5 is not supported, only 1"),
    "bounds of queries": (changed(architectures=["OlmoForCausalLM"], clip_qkv=-8.0),
                          "clip_qkv is -8.0, expected a positive number"),
    "more than a head": (changed(architectures=["PhiForCausalLM"], partial_rotary_factor=1.5),
                         "partial_rotary_factor is 1.5, expected a number up to 1"),
    "one number of a head": (changed(architectures=["PhiForCausalLM"], partial_rotary_factor=0.2),
                             "heads of 0 numbers; rotary positions rotate pairs"),
    "factors of another head": (
        changed(architectures=["Phi3ForCausalLM"], rope_scaling=LONG),
        "short_factor is [1.0, 1.1, 1.2, 1.5, 2.0, 3.0], expected 1 positive numbers"),
    "more heads in a layer": (
        pruned("self_attn.q_proj", 6),
        "the weights model.layers.1.self_attn.q_proj have 6 rows, expected at most 2 times 2"),
    "a part of a head in a layer": (
        pruned("self_attn.k_proj", 1),
        "the weights model.layers.1.self_attn.k_proj have 1 rows, expected at most 1 times 2"),
    "widths that do not fit": (
        pruned("mlp.gate_proj", 5),
        "mlp.up_proj.weight has the shape [6, 4], but config.json says [5, 4]"),
    "more experts than there are": (
        changed(architectures=["MixtralForCausalLM"], num_local_experts=2, num_experts_per_tok=3),
        "num_experts_per_tok is 3, expected a number from 1 to 2"),
    "layers without experts that are no list": (
        changed(architectures=["Qwen3MoeForCausalLM"], num_experts=2, num_experts_per_tok=1,
                moe_intermediate_size=4, mlp_only_layers=0),
        "mlp_only_layers is 0, expected a list of layers"),
    "an expert that is missing": (
        changed(architectures=["MixtralForCausalLM"], num_local_experts=2**20),
        "model.layers.0.block_sparse_moe.gate.weight"),
    "layers without number": (changed(num_hidden_layers=2**20), "expected a number from 1 to 4096"),
    "a scaling without a factor": (changed(rope_scaling={"type": "linear"}), "has no field factor"),
    "a scaling that is text": (changed(rope_scaling="linear"), "expected an object"),
    "a ramp in reverse": (changed(rope_scaling=LLAMA3 | {"high_freq_factor": 0.5}),
                          "expected a number above low_freq_factor"),
    "weights that are missing": (stored(model__norm__weight=None), f"has no weights {NORM}"),
    "weights of another shape": (stored(model__norm__weight=np.zeros(5, np.float32)),
                                 "has the shape [5], but config.json says [4]"),
    "weights of no use": (stored(extra=np.zeros(5, np.float32)),
                          "has 1 tensors that its architecture does not have: extra"),
    "an index without a map": (index(None), "has no weight_map"),
    "an index of other folders": (index({NORM: "../one.safetensors"}), "is not the name of a file"),
    "an index of no text": (index({NORM: "\ud800"}), "'?' is not the name of a file"),
    "an index of a missing file": (index({NORM: "two.safetensors"}), "No such file"),
    "an index of other tensors": (index({"a": "one.safetensors"}), "has no tensor 'a'"),
    "tensors in two files": (two_shards, "is in one.safetensors and two.safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_folders(name: str, tmp_path: Path) -> None:
    change, said = FOLDERS[name]
    change(SMALL.write(tmp_path / "tiny"))
    with pytest.raises(rx.RelaxAotError) as error:
        rx.load_llm(tmp_path / "tiny", context=8, chunk=4)
    assert said in str(error.value)


def test_weights_of_integers_are_refused(tmp_path: Path) -> None:
    path = SMALL.write(tmp_path / "tiny") / "model.safetensors"
    data = path.read_bytes()
    at = data.index(b'"model.norm.weight"')
    path.write_bytes(data[:at] + data[at:].replace(b'"F32"', b'"I32"', 1))
    with pytest.raises(rx.RelaxAotError, match="has the type I32, only F32, F16, BF16"):
        rx.load_llm(path.parent)


def test_what_a_tied_model_does_not_read_is_left_out(tmp_path: Path) -> None:
    more = {
        "lm_head.weight": SMALL.tensors["model.embed_tokens.weight"],
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(1, np.float32),
    }
    path = SMALL.write(tmp_path / "tiny")
    (path / "model.safetensors").write_bytes(safetensors(SMALL.tensors | more))
    assert rx.load_llm(path, context=8) == rx.load_llm(
        SMALL.write(tmp_path / "other" / "tiny"), context=8
    )


def test_a_tied_model_whose_table_of_logits_differs_is_not_tied(tmp_path: Path) -> None:
    """As in `transformers` 5."""
    found = []
    for number, model in enumerate((SMALL, replace(SMALL, tied=False))):
        path = model.write(tmp_path / str(number) / "tiny")
        tensors = replace(SMALL, tied=False).tensors
        (path / "model.safetensors").write_bytes(safetensors(tensors))
        found.append(rx.load_llm(path, context=8))
    assert found[0] == found[1] != rx.load_llm(SMALL.write(tmp_path / "tiny"), context=8)


DEFAULTS: dict[str, dict[str, Any]] = {
    "Gemma2ForCausalLM": {
        "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "query_pre_attn_scalar": 256, "num_key_value_heads": 4, "head_dim": 256,
    },
    "Gemma3ForCausalLM": {
        "sliding_window": 4096, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "tie_word_embeddings": True,
    },
    "MistralForCausalLM": {"sliding_window": 4096, "num_key_value_heads": 8, "rope_theta": 1e4},
    "MixtralForCausalLM": {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8},
    "Olmo2ForCausalLM": {"rms_norm_eps": 1e-5, "attention_bias": False},
    "Olmo3ForCausalLM": {"rms_norm_eps": 1e-5, "sliding_window": 4096, "rope_theta": 5e5},
    "OlmoeForCausalLM": {
        "rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": False,
    },
    "Exaone4ForCausalLM": {
        "rms_norm_eps": 1e-5, "num_key_value_heads": 32, "sliding_window_pattern": 4,
        "sliding_window": 4096,
    },
    "SeedOssForCausalLM": {
        "num_key_value_heads": 8, "head_dim": 128, "attention_bias": True,
        "attention_out_bias": False,
    },
    "MinistralForCausalLM": {"sliding_window": 4096, "num_key_value_heads": 8},
    "ArceeForCausalLM": {"hidden_act": "relu2", "rms_norm_eps": 1e-5},
    "GraniteForCausalLM": {
        "embedding_multiplier": 1.0, "attention_multiplier": 1.0, "residual_multiplier": 1.0,
        "logits_scaling": 1.0, "rms_norm_eps": 1e-6,
    },
    "Starcoder2ForCausalLM": {
        "norm_epsilon": 1e-5, "use_bias": True, "hidden_act": "gelu_pytorch_tanh",
        "num_key_value_heads": 2, "tie_word_embeddings": True, "sliding_window": None,
    },
    "CohereForCausalLM": {
        "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "tie_word_embeddings": True,
        "rope_theta": 5e5, "use_qk_norm": False, "attention_bias": False,
    },
    "Cohere2ForCausalLM": {
        "logit_scale": 0.0625, "tie_word_embeddings": True, "rope_theta": 1e4,
        "sliding_window": 4096, "sliding_window_pattern": 4,
    },
    "GlmForCausalLM": {
        "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
        "attention_bias": True, "partial_rotary_factor": 0.5,
    },
    "Glm4ForCausalLM": {
        "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
        "attention_bias": True, "partial_rotary_factor": 0.5,
    },
    "HeliumForCausalLM": {
        "head_dim": 128, "rms_norm_eps": 1e-8, "rope_theta": 1e5,
    },
    "Ernie4_5ForCausalLM": {
        "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
        "use_bias": False, "tie_word_embeddings": True,
    },
    "NemotronForCausalLM": {
        "norm_eps": 1e-5, "hidden_act": "relu2", "partial_rotary_factor": 0.5,
        "attention_bias": False, "mlp_bias": False,
    },
    "OlmoForCausalLM": {"clip_qkv": None, "attention_bias": False},
    "StableLmForCausalLM": {
        "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "num_key_value_heads": 32,
        "use_qkv_bias": False, "use_parallel_residual": False, "qk_layernorm": False,
    },
    "Phi3ForCausalLM": {"rms_norm_eps": 1e-5, "sliding_window": None},
    "Qwen2ForCausalLM": {"rms_norm_eps": 1e-6, "max_window_layers": 28},
    "Qwen2MoeForCausalLM": {"num_experts": 60, "num_experts_per_tok": 4, "qkv_bias": True},
    "Qwen3ForCausalLM": {"head_dim": 128, "num_key_value_heads": 32},
    "Qwen3MoeForCausalLM": {"num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": False},
    "SmolLM3ForCausalLM": {
        "rope_theta": 2e6, "tie_word_embeddings": True, "num_key_value_heads": 4,
        "no_rope_layer_interval": 4,
    },
}  # fmt: skip
"""Of the configurations of `transformers`."""


@pytest.mark.parametrize("architecture", DEFAULTS)
def test_missing_fields_have_the_values_of_the_architecture(architecture: str) -> None:
    given = {
        "architectures": [architecture], "model_type": None, "num_attention_heads": 32,
        "num_hidden_layers": 6, "max_position_embeddings": 8192, "use_sliding_window": True,
        "sliding_window": 4096, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 6, "shared_expert_intermediate_size": 6, "head_dim": 8,
    }  # fmt: skip
    fields, named = SMALL.fields | given, DEFAULTS[architecture]
    without = {name: value for name, value in fields.items() if name not in named}
    found = [shape_of(Config("config.json", one)) for one in (fields | named, without)]
    first, second = (replace(one, rotations=()) for one in found)
    assert first == second
    frequencies = [[rotation.frequencies.tolist() for rotation in one.rotations] for one in found]
    assert frequencies[0] == frequencies[1]


def test_several_files_are_one_model(tmp_path: Path) -> None:
    whole = SMALL.write(tmp_path / "tiny")
    folder = SMALL.write(tmp_path / "shards" / "tiny")
    tensors = SMALL.tensors
    weight_map: dict[str, str] = {}
    for number, part in enumerate((list(tensors)[:5], list(tensors)[5:])):
        file = f"model-{number}.safetensors"
        (folder / file).write_bytes(safetensors({name: tensors[name] for name in part}))
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)
    assert rx.load_llm(folder, context=8) == rx.load_llm(whole, context=8)


def test_fields_of_later_versions_are_read(tmp_path: Path) -> None:
    parameters = {"rope_theta": 10000.0, **LLAMA3}
    new = replace(SMALL, size=8, config={"rope_parameters": parameters, "rope_theta": None})
    old = replace(SMALL, size=8, config={"rope_scaling": LLAMA3})
    found = [
        rx.load_llm(model.write(tmp_path / str(number) / "tiny"), context=8)
        for number, model in enumerate((new, old))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"context": 0}, "the context 0"),
        ({"context": 513}, "is compiled for 1 to 512 tokens"),
        ({"chunk": 0}, "the chunk 0"),
        ({"context": "8"}, "context must be an integer"),
        ({"logits": "first"}, "logits is one of last, all"),
    ],
)
def test_options(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(rx.RelaxAotError, match=said):
        rx.load_llm(SMALL.write(tmp_path / "tiny"), **options)


def test_windows_of_lengths_are_refused(tmp_path: Path) -> None:
    """Positions are counted from the first token of the caches."""
    source = rx.load_llm(SMALL.write(tmp_path / "tiny"), context=16)
    with pytest.raises(rx.RelaxAotError, match="--window m=8: the module was loaded without"):
        rx.compile(source, window={"m": 8})


def test_a_window_that_hides_nothing_is_left_out(tmp_path: Path) -> None:
    """The context has no more tokens than the window."""
    plain = replace(SMALL, architecture="MistralForCausalLM")
    windowed = replace(plain, config={"sliding_window": 9})
    found = [
        rx.load_llm(model.write(tmp_path / str(number) / "tiny"), context=context)
        for number, (model, context) in enumerate([(plain, 9), (windowed, 9), (windowed, 10)])
    ]
    assert found[0] == found[1] != found[2]


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(rx.RelaxAotError, match="is no folder"):
        rx.load_llm(tmp_path / "none")
    with pytest.raises(rx.RelaxAotError, match="is no folder"):
        read_text_files(tmp_path / "none")


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.long)])
def test_mutated_files_are_read_or_refused(count: int, tmp_path: Path) -> None:
    """Bytes of the configuration and of the header change, vanish, or come twice."""
    rng, folder = np.random.default_rng(count), SMALL.write(tmp_path / "tiny")
    originals = {
        path: path.read_bytes() for path in (folder / "config.json", folder / "model.safetensors")
    }
    refused = 0
    for number in range(count):
        path = list(originals)[number % 2]
        data = bytearray(originals[path])
        header = len(data) - sum(a.nbytes for a in SMALL.tensors.values()) * (number % 2)
        for _ in range(rng.integers(1, 4)):
            at, end = sorted(int(n) for n in rng.integers(0, header, 2))
            match rng.integers(0, 3):
                case 0:
                    data[at] = int(rng.integers(0, 256))
                case 1:
                    del data[at : min(end, at + 9)]
                case _:
                    data[at:at] = data[at : min(end, at + 9)]
        path.write_bytes(bytes(data))
        try:
            rx.load_llm(folder, context=8, chunk=4)
        except rx.RelaxAotError:
            refused += 1
        path.write_bytes(originals[path])
    assert refused > count // 2


@pytest.mark.parametrize(
    ("architecture", "longest"), [("LlamaForCausalLM", 2048), ("Qwen3ForCausalLM", 32768)]
)
def test_a_missing_context_is_that_of_the_architecture(architecture: str, longest: int) -> None:
    """The defaults of LlamaConfig and Qwen3Config in `transformers`."""
    fields = {"architectures": [architecture], "max_position_embeddings": None, "model_type": None}
    fields = SMALL.fields | fields
    assert shape_of(Config("config.json", fields)).longest == longest
