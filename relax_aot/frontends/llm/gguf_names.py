# SPDX-License-Identifier: Apache-2.0
"""What GGUF calls the fields and the weights of a model, in the words of Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.gguf import GgufTensor

ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
}  # fmt: skip
FIELDS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
}
WHOLE = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
}  # fmt: skip
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
FACTORS = "rope_freqs.weight"
"""A number for each frequency, which divides it: the scaling of Llama 3."""
TABLE, OUTPUT, BIAS = "token_embd.weight", "output.weight", "blk.0.attn_q.bias"
_LAYER = re.compile(r"blk\.(\d{1,8})\.(\w+)\.(weight|bias)")
_PAIRED = ("attn_q", "attn_k")


def config_of(
    file: str, metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any]:
    """The fields of a `config.json`."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnsupportedError(
            f"{file}: its architecture is {printable(str(name))}; supported are "
            + ", ".join(ARCHITECTURES)
        )
    own = {key.removeprefix(f"{name}."): value for key, value in metadata.items()}
    if own.get("attention.causal") is False:
        raise UnsupportedError(f"{file}: attention.causal=False is not supported")
    if own.get("expert_count"):
        raise UnsupportedError(f"{file}: mixtures of experts are not supported")
    if TABLE not in tensors:
        raise ModelError(f"{file} has no tensor {TABLE}")
    fields = {ours: own[theirs] for ours, theirs in FIELDS.items() if theirs in own}
    fields["architectures"] = [ARCHITECTURES[name]]
    if name == "llama" and "sliding_window" in fields:
        fields["architectures"] = ["MistralForCausalLM"]
    if name == "qwen2" or name == "qwen3":
        fields["use_sliding_window"] = "sliding_window" in fields
    fields["vocab_size"] = tensors[TABLE].shape[0]
    fields["tie_word_embeddings"] = OUTPUT not in tensors
    fields["attention_bias"] = BIAS in tensors
    fields.setdefault("num_key_value_heads", fields.get("num_attention_heads"))
    _require_whole_heads(file, own, fields)
    fields["rope_scaling"] = _scaling(file, own, tensors.get(FACTORS))
    return fields


def _scaling(
    file: str, own: Mapping[str, Any], factors: GgufTensor | None
) -> dict[str, Any] | None:
    """The scaling of positions. As in llama.cpp, a factor without a type is linear."""
    kind, factor = own.get("rope.scaling.type", "linear"), own.get("rope.scaling.factor")
    factor = factor or own.get("rope.scale_linear") or 1.0
    if kind not in ("none", "linear") or (factors is not None and kind == "linear" and factor != 1):
        also = f" and {FACTORS}" if factors is not None else ""
        raise UnsupportedError(
            f"{file}: rope.scaling.type={printable(str(kind))} by {printable(str(factor))}{also} is"
            " not supported, only linear, or factors alone"
        )
    if factors is not None:
        values = factors.array().astype(np.float64).reshape(-1).tolist()
        return {"rope_type": "factors", "factors": values}
    return None if kind == "none" or factor == 1 else {"rope_type": "linear", "factor": factor}


def _require_whole_heads(file: str, own: Mapping[str, Any], fields: dict[str, Any]) -> None:
    """Name the size of heads. Keys and values have this size, of which all numbers are rotated."""
    width, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    size = fields.get("head_dim")
    if size is None and isinstance(width, int) and isinstance(heads, int) and heads > 0:
        size = fields["head_dim"] = width // heads
    for name in ("attention.value_length", "rope.dimension_count"):
        if own.get(name, size) != size:
            raise UnsupportedError(
                f"{file}: {name}={printable(str(own[name]))} is not supported for heads of {size}"
            )


def named(tensors: Mapping[str, GgufTensor], fields: Mapping[str, Any]) -> dict[str, GgufTensor]:
    """The weights by their names. Names that GGUF does not have for these architectures stay."""
    paired = fields["architectures"][0] in ("LlamaForCausalLM", "MistralForCausalLM")
    queries = fields.get("num_attention_heads")
    heads = {"attn_q": queries, "attn_k": fields.get("num_key_value_heads", queries)}
    found = {}
    for name, tensor in tensors.items():
        stem, _, end = name.rpartition(".")
        layer = _LAYER.fullmatch(name)
        if layer and layer[2] in LAYER:
            count = heads.get(layer[2], 0) if paired else 0
            if isinstance(count, int) and count > 0 and tensor.shape[0] % (2 * count) == 0:
                tensor = replace(tensor, heads=count)
            found[f"model.layers.{int(layer[1])}.{LAYER[layer[2]]}.{layer[3]}"] = tensor
        elif stem in WHOLE:
            found[f"{WHOLE[stem]}.{end}"] = tensor
        elif name != FACTORS:
            found[name] = tensor
    return found
