# SPDX-License-Identifier: Apache-2.0
"""Fields of `config.json` mean what `transformers` reads in them, or are refused: for each
architecture, every field of its configuration class has other values, and fields of other
architectures are added. Logits of random weights are those of `transformers`."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.frontends.llm.architectures import architectures
from relax_aot.verify.reference import NumpyReference
from tests.conftest import NO_TRANSFORMERS
from tests.frontends.llm.checkpoints import Array

WORDS, COUNT, LAYERS = 160, 24, 4
TOKENS = np.random.default_rng(1).integers(3, WORDS, COUNT).astype(np.int32)
NEAR = 1e-4
COMMON: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
OWN: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4, "sliding_window": 6},
    "qwen2_moe": EXPERTS | {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 20},
    "qwen3_moe": EXPERTS | {"moe_intermediate_size": 24},
    "olmoe": EXPERTS,
    **{
        kind: {"sliding_window": 6} for kind in ("mistral", "gemma2", "olmo3", "exaone4", "cohere2")
    },
    "ministral": {"sliding_window": 6, "head_dim": 8},
    "gemma3_text": {"sliding_window": 6, "num_hidden_layers": 7},
    "phi": {"num_key_value_heads": 4},
    "phi3": {"original_max_position_embeddings": 64},
    "stablelm": {"num_key_value_heads": 4},
    "glm": {"hidden_size": 64, "head_dim": 16},
    "glm4": {"hidden_size": 64, "head_dim": 16},
    "nemotron": {"hidden_size": 64},
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": LAYERS, "n_positions": 64},
    "gpt_neox": {"hidden_size": 64},
    "opt": {"ffn_dim": 44},
    "helium": {"head_dim": 8},
    "ernie4_5": {"head_dim": 8},
}
"""Sizes that are small, and windows that hide tokens."""
FIXED = {
    "architectures", "model_type", "transformers_version", "vocab_size", "num_hidden_layers",
    "num_attention_heads", "max_position_embeddings", "hidden_size", "rope_parameters",
    "rope_scaling", "id2label", "label2id", "n_embd", "n_head", "n_layer", "n_positions",
}  # fmt: skip
"""Fields that are not changed alone."""
SLIDES = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
OTHERS: list[dict[str, Any]] = [
    {"head_dim": 20}, {"head_dim": None}, {"num_key_value_heads": 1}, {"num_key_value_heads": 4},
    {"num_key_value_heads": None}, {"attention_bias": True}, {"mlp_bias": True},
    {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, {"rope_theta": 500},
    {"partial_rotary_factor": 0.5}, {"sliding_window": None}, {"sliding_window": 1},
    {"sliding_window": 5}, {"sliding_window": 5, "use_sliding_window": True},
    {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 2},
    {"sliding_window": 5, "layer_types": SLIDES},
    {"sliding_window": 5, "use_sliding_window": True, "layer_types": SLIDES},
    {"sliding_window_pattern": 2}, {"rope_local_base_freq": 300.0},
    {"no_rope_layers": [1, 0, 1, 0]}, {"no_rope_layer_interval": 2},
    {"query_pre_attn_scalar": 17}, {"attn_logit_softcapping": 2.0},
    {"final_logit_softcapping": 3.0}, {"logit_scale": 0.3}, {"attention_multiplier": 0.3},
    {"clip_qkv": 0.5}, {"rms_norm_eps": 0.05}, {"layer_norm_eps": 0.05}, {"norm_eps": 0.05},
    {"qk_layernorm": True}, {"use_qk_norm": True}, {"use_bias": True}, {"qkv_bias": False},
    {"use_parallel_residual": True}, {"mlp_only_layers": [0, 2]}, {"decoder_sparse_step": 2},
    {"norm_topk_prob": True}, {"hidden_act": "relu2"}, {"torch_dtype": "bfloat16"},
    {"is_causal": False}, {"use_bidirectional_attention": True}, {"pretraining_tp": 2},
]  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "original_max_position_embeddings": 32}
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 3.0}, {"type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 3.0}, {"rope_type": "yarn", "factor": 4.0}, YARN,
    YARN | {"beta_fast": 16, "beta_slow": 2}, YARN | {"mscale": 1.0, "mscale_all_dim": 0.7},
    YARN | {"mscale": 0.7}, YARN | {"attention_factor": 1.5}, YARN | {"truncate": False},
    YARN | {"factor": 1.0},
    {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    LONG, LONG | {"factor": 2.0}, LONG | {"attention_factor": 1.3}, {"rope_type": "proportional"},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "factor": 3.0, "partial_rotary_factor": 0.5},
    {"rope_type": "default", "mrope_section": [1, 1, 2]}, {},
]  # fmt: skip
ROTATED = {"phi": 0.5, "glm": 0.5, "glm4": 0.5, "nemotron": 0.5, "stablelm": 0.25}


def others_of(value: Any) -> list[Any]:
    """Other values of a field of a configuration class."""
    match value:
        case bool():
            return [not value]
        case int():
            return [one for one in (value + 1, max(value // 2, 1), 0) if one != value]
        case float():
            return [value * 1.7, value * 0.5]
        case str():
            return ["gelu", "relu", "mish", "sigmoid"]
        case list():
            return [value[::-1]]
        case None:
            return [4, 0.3, True]
        case _:
            return []


def scaled(base: Mapping[str, Any], scaling: Mapping[str, Any], name: str) -> dict[str, Any]:
    """With a scaling of positions, and as many factors as pairs are rotated."""
    size = base.get("head_dim") or base["hidden_size"] // base["num_attention_heads"]
    share = scaling.get("partial_rotary_factor", ROTATED.get(base["model_type"], 1.0))
    pairs = int(size * share) // 2
    made = {**scaling}
    if made.get("rope_type") == "longrope":
        made["short_factor"] = [1 + 0.25 * number for number in range(pairs)]
        made["long_factor"] = [4 + 0.5 * number for number in range(pairs)]
    theta = {"rope_theta": 5000.0}
    return (
        {**base, name: made | theta} if name == "rope_parameters" else {**base, **theta, name: made}
    )


def configurations(base: dict[str, Any], fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield base
    for name in sorted(fields.keys() - FIXED):
        for value in others_of(base.get(name, fields[name])):
            yield {**base, name: value}
    for more in OTHERS:
        yield {**base, **more}
    for number, scaling in enumerate(SCALINGS):
        yield scaled(base, scaling, ("rope_scaling", "rope_parameters")[number % 2])


def expected(fields: Mapping[str, Any], folder: Path) -> Array | None:
    """The logits of random weights, which the folder has afterwards; None where `transformers`
    cannot compute them."""
    import torch
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    refusals = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError,
                TypeError, ValueError, StrictDataclassError)  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(fields))
    how: dict[str, Any] = {"attn_implementation": "eager", "dtype": torch.float32}
    generator = torch.Generator().manual_seed(0)
    auto = transformers.AutoModelForCausalLM
    try:
        model = auto.from_config(transformers.AutoConfig.from_pretrained(folder), **how).eval()
        with torch.no_grad():
            for name, weights in model.named_parameters():
                drawn = torch.randn(weights.shape, generator=generator)
                if weights.ndim == 1:
                    weights.add_(0.2 * drawn)
                else:
                    weights.copy_(drawn / (1 if "embed" in name else weights.shape[-1] ** 0.5))
        model.save_pretrained(folder / "saved")
        for path in (folder / "saved").glob("*.safetensors"):
            shutil.move(path, folder / path.name)
        with torch.no_grad():
            found = model(torch.tensor(TOKENS[None].astype(np.int64))).logits[0].numpy()
    except refusals:
        return None
    return found if np.isfinite(found).all() else None


def computed(folder: Path) -> Array:
    """By the meaning of the ops."""
    model = rx.load_llm(folder, context=COUNT, chunk=COUNT, logits="all")
    module, sizes = dict(model.modules)["prefill"], {"m": 0, "n": COUNT}
    shapes = {p.name: tuple(d.evaluate(sizes) for d in p.type.shape) for p in module.main.params}
    return NumpyReference(module)({"tokens": TOKENS}, shapes, sizes)["logits"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", architectures())
def test_logits_are_those_of_transformers_or_refused(name: str, tmp_path: Path) -> None:
    if not all(importlib.util.find_spec(one) for one in ("torch", "transformers")):
        pytest.skip(NO_TRANSFORMERS)
    import transformers

    kind = architectures()[name].KIND
    base = {"architectures": [name], "model_type": kind, **COMMON, **OWN.get(kind, {})}
    fields = transformers.AutoConfig.for_model(kind).to_dict()
    wrong, compared = [], 0
    for number, given in enumerate(configurations(base, fields)):
        folder = tmp_path / str(number) / "tiny"
        folder.parent.mkdir()
        wanted = expected(given, folder)
        if wanted is not None:
            try:
                found = computed(folder)
            except rx.RelaxAotError:
                assert number, "the configuration without changes is refused"
                continue
            compared += 1
            if np.abs(found - wanted).max() > NEAR * np.abs(wanted).max():
                wrong.append({key: one for key, one in given.items() if base.get(key) != one})
        shutil.rmtree(folder.parent)
    assert not wrong
    assert compared > 50
