# SPDX-License-Identifier: Apache-2.0
"""The architectures of GGUF files, in the words of Hugging Face.

Source: `llm_load_hparams` and the graphs of llama.cpp, and its convert_hf_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BIAS, MLP_BIAS = "blk.0.attn_q.bias", "blk.0.ffn_down.bias"
RESULTS: Mapping[str, str] = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""Norms of results."""
ALL: Mapping[str, str] = {**RESULTS, "ffn_norm": "pre_feedforward_layernorm"}
"""Norms of results, and of inputs."""


@dataclass(frozen=True, slots=True)
class Form:
    """What an architecture of GGUF stands for."""

    name: str
    """In `architectures` of a `config.json`."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Further fields and what a file calls them."""
    flags: Mapping[str, str] = field(
        default_factory=lambda: {"attention_bias": BIAS, "mlp_bias": MLP_BIAS}
    )
    """Fields that are true if a file has a tensor."""
    missing: Mapping[str, Any] = field(default_factory=dict)
    """The values of fields that a file does not have, where they are not those of config.json."""
    windowed: str = ""
    """The architecture of a file that has a window, if it is another one."""
    layers: Mapping[str, str] = field(default_factory=dict)
    """Further names of weights of a layer."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """Further names of weights behind the layers."""
    paired: bool = False
    """Whether the numbers of a head that are rotated together are neighbors."""
    partly: bool = False
    """Whether a part of each head may be rotated."""
    added: float = 0.0
    """What the file adds to the weights of norms."""
    one_base: bool = False
    """Whether layers with windows have the base of positions of the others."""
    layers_of_27b: int = 0
    """With so many layers, scores are divided by the root of the width for each head."""


_GEMMA: Mapping[str, str] = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
FORMS: Mapping[str, Form] = {
    "arcee": Form("ArceeForCausalLM", paired=True),
    "exaone4": Form("Exaone4ForCausalLM", missing={"sliding_window": None}, layers=RESULTS),
    "gemma": Form("GemmaForCausalLM", added=1.0),
    "gemma2": Form("Gemma2ForCausalLM", fields=_GEMMA, layers=ALL, added=1.0, layers_of_27b=46),
    "gemma3": Form(
        "Gemma3ForCausalLM",
        fields={**_GEMMA, "rope_local_base_freq": "rope.freq_base_swa"},
        layers=ALL,
        added=1.0,
        layers_of_27b=62,
    ),
    "granite": Form(
        "GraniteForCausalLM",
        fields={
            "embedding_multiplier": "embedding_scale",
            "attention_multiplier": "attention.scale",
            "residual_multiplier": "residual_scale",
            "logits_scaling": "logit_scale",
        },
        paired=True,
    ),
    "llama": Form("LlamaForCausalLM", windowed="MistralForCausalLM", paired=True),
    "olmo2": Form("Olmo2ForCausalLM", windowed="Olmo3ForCausalLM", layers=RESULTS, one_base=True),
    "phi2": Form(
        "PhiForCausalLM",
        fields={"layer_norm_eps": "attention.layer_norm_epsilon"},
        layers={
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.dense",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
        },
        ends={"output_norm": "model.final_layernorm"},
        partly=True,
    ),
    "phi3": Form(
        "Phi3ForCausalLM",
        fields={"original_max_position_embeddings": "rope.scaling.original_context_length"},
        layers={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
        partly=True,
    ),
    "qwen2": Form("Qwen2ForCausalLM"),
    "qwen3": Form("Qwen3ForCausalLM"),
    "seed_oss": Form(
        "SeedOssForCausalLM",
        flags={"attention_bias": BIAS, "attention_out_bias": "blk.0.attn_output.bias"},
        layers={"post_attention_norm": "post_attention_layernorm"},
    ),
    "smollm3": Form("SmolLM3ForCausalLM", paired=True),
    "stablelm": Form(
        "StableLmForCausalLM",
        fields={
            "layer_norm_eps": "attention.layer_norm_epsilon",
            "use_parallel_residual": "use_parallel_residual",
        },
        flags={"use_qkv_bias": BIAS},
        partly=True,
    ),
    "starcoder2": Form(
        "Starcoder2ForCausalLM",
        fields={"norm_epsilon": "attention.layer_norm_epsilon"},
        flags={"use_bias": BIAS},
        layers={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    ),
}
"""By the names of GGUF."""
