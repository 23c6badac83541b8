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
from relax_aot.frontends.llm.config import MOST_LAYERS
from relax_aot.frontends.llm.gguf import GgufTensor
from relax_aot.frontends.llm.gguf_forms import FORMS, Form
from relax_aot.frontends.llm.rotary import FULL, SLIDING

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
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
"""The same of LongRoPE, for long and for short texts."""
THETA = 10000.0
"""The base of positions where a file does not say it."""
PATTERN = "attention.sliding_window_pattern"
ATTENTION = "rope.scaling.attn_factor"
"""Of cosines and sines."""
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "norm_epsilon")
"""What configurations call the small number of norms."""
TABLE, OUTPUT = "token_embd.weight", "output.weight"
_LAYER = re.compile(r"blk\.(\d{1,8})\.(\w+)\.(weight|bias)")
_PAIRED = ("attn_q", "attn_k")
HEADS = ("attention.value_length", "rope.dimension_count")


def form_of(file: str, metadata: Mapping[str, Any]) -> Form:
    """What the architecture of a file stands for."""
    name = metadata.get("general.architecture")
    form = FORMS.get(name) if isinstance(name, str) else None
    if form is None:
        raise UnsupportedError(
            f"{file}: its architecture is {printable(str(name))}; supported are " + ", ".join(FORMS)
        )
    return form


def config_of(
    file: str, metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any]:
    """The fields of a `config.json`."""
    form = form_of(file, metadata)
    prefix = f"{metadata['general.architecture']}."
    own = {key.removeprefix(prefix): value for key, value in metadata.items()}
    if metadata.get("split.count", 1) not in (0, 1):
        raise UnsupportedError(
            f"{file} is one of {printable(str(metadata['split.count']))} parts of a file, which is"
            " not supported; gguf-split --merge of llama.cpp joins them"
        )
    if own.get("attention.causal") is False:
        raise UnsupportedError(f"{file}: attention.causal=False is not supported")
    if own.get("expert_count"):
        raise UnsupportedError(f"{file}: mixtures of experts are not supported")
    if TABLE not in tensors:
        raise ModelError(f"{file} has no tensor {TABLE}")
    named = {**FIELDS, **form.fields}
    epsilon = next(named[name] for name in reversed(EPSILONS) if name in named)
    for needed in (epsilon, FIELDS["max_position_embeddings"]):
        if needed not in own:
            raise ModelError(f"{file} has no field {prefix}{needed}")
    given = {ours: own[theirs] for ours, theirs in named.items() if theirs in own}
    fields: dict[str, Any] = {**form.missing, **given}
    windows = fields.get("sliding_window", 0) != 0  # as in llama.cpp
    if not windows and "sliding_window" in fields:
        fields["sliding_window"] = None
    fields["architectures"] = [form.windowed if windows and form.windowed else form.name]
    fields["use_sliding_window"] = windows
    fields["vocab_size"] = tensors[TABLE].shape[0]
    fields["tie_word_embeddings"] = OUTPUT not in tensors
    fields |= {flag: name in tensors for flag, name in form.flags.items()}
    fields.setdefault("num_key_value_heads", fields.get("num_attention_heads"))
    fields.setdefault("rope_theta", THETA)
    if windows and "rope_local_base_freq" not in named:
        _require(file, own, "rope.freq_base_swa", fields["rope_theta"])
    if windows and form.one_base:
        fields["rope_parameters"] = {SLIDING: {"rope_theta": fields["rope_theta"]}}
    layers = fields.get("num_hidden_layers")
    fields |= _types(file, own.get(PATTERN), layers)
    _name_heads(file, own, fields, form)
    fields["rope_scaling"] = _scaling(file, own, tensors)
    return fields


def _types(file: str, pattern: object, layers: object) -> dict[str, Any]:
    """Which layers have windows: one of so many has none, or each as a list says."""
    if isinstance(pattern, list):
        return {"layer_types": [SLIDING if one else FULL for one in pattern]}
    if pattern is None or not isinstance(layers, int) or layers > MOST_LAYERS:
        return {}
    if isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 0:
        raise ModelError(f"{file}: {PATTERN} is {printable(str(pattern))}, expected a number")
    # As in llama.cpp: 0 for windows in all layers.
    types = [pattern == 0 or number % pattern < pattern - 1 for number in range(layers)]
    return {"layer_types": [SLIDING if one else FULL for one in types]}


def _require(file: str, own: Mapping[str, Any], name: str, allowed: object) -> None:
    """Refuse a field with another value, which is not compiled."""
    if own.get(name, allowed) != allowed:
        raise UnsupportedError(
            f"{file}: {name}={printable(str(own[name]))} is not supported, only {allowed}"
        )


def _scaling(
    file: str, own: Mapping[str, Any], tensors: Mapping[str, GgufTensor]
) -> dict[str, Any] | None:
    """The scaling of positions. As in llama.cpp, a factor without a type is linear."""
    attention = own.get(ATTENTION, 1.0)
    if SHORT in tensors and LONG in tensors:
        return {
            "rope_type": "longrope",
            "short_factor": _numbers(tensors[SHORT]),
            "long_factor": _numbers(tensors[LONG]),
            "attention_factor": attention,
        }
    if attention != 1:
        raise UnsupportedError(
            f"{file}: {ATTENTION}={printable(str(attention))} is not supported without {LONG} and"
            f" {SHORT}"
        )
    factors = tensors.get(FACTORS)
    kind, factor = own.get("rope.scaling.type", "linear"), own.get("rope.scaling.factor")
    factor = factor or own.get("rope.scale_linear") or 1.0
    if kind not in ("none", "linear") or (factors is not None and kind == "linear" and factor != 1):
        also = f" and {FACTORS}" if factors is not None else ""
        raise UnsupportedError(
            f"{file}: rope.scaling.type={printable(str(kind))} by {printable(str(factor))}{also} is"
            " not supported, only linear, or factors alone"
        )
    if factors is not None:
        return {"rope_type": "factors", "factors": _numbers(factors)}
    return None if kind == "none" or factor == 1 else {"rope_type": "linear", "factor": factor}


def _numbers(tensor: GgufTensor) -> list[float]:
    found: list[float] = tensor.array().astype(np.float64).reshape(-1).tolist()
    return found


def _name_heads(file: str, own: Mapping[str, Any], fields: dict[str, Any], form: Form) -> None:
    """Name the size of heads. Keys and values have this size, of which all numbers are rotated or
    the first ones."""
    width, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
    size = fields.get("head_dim")
    each = None
    if isinstance(width, int) and isinstance(heads, int) and heads > 0:
        each = width // heads
    if size is None and each is not None:
        size = fields["head_dim"] = each
    rotated = own.get("rope.dimension_count", size)
    if form.partly and isinstance(size, int) and isinstance(rotated, int) and 0 < rotated < size:
        # Half a number more, since the product with the size is rounded down.
        fields["partial_rotary_factor"] = (rotated + 0.5) / size
    elif form.partly and rotated == size:
        fields["partial_rotary_factor"] = 1.0
    if form.layers_of_27b:
        whole = fields.get("num_hidden_layers") == form.layers_of_27b
        fields["query_pre_attn_scalar"] = each if whole and each else size
    checked = ("attention.value_length",) if form.partly else HEADS
    for name in checked:
        if own.get(name, size) != size:
            raise UnsupportedError(
                f"{file}: {name}={printable(str(own[name]))} is not supported for heads of {size}"
            )


def named(
    form: Form, tensors: Mapping[str, GgufTensor], fields: Mapping[str, Any]
) -> dict[str, GgufTensor]:
    """The weights by their names. Names that GGUF does not have for these architectures stay."""
    layers, ends = {**LAYER, **form.layers}, {**WHOLE, **form.ends}
    read = (FACTORS, LONG, SHORT) if LONG in tensors and SHORT in tensors else (FACTORS,)
    queries = fields.get("num_attention_heads")
    heads = {"attn_q": queries, "attn_k": fields.get("num_key_value_heads", queries)}
    found = {}
    for name, tensor in tensors.items():
        stem, _, end = name.rpartition(".")
        layer = _LAYER.fullmatch(name)
        if form.added and stem.endswith("_norm"):
            tensor = replace(tensor, added=form.added)
        if layer and layer[2] in layers:
            count = heads.get(layer[2], 0) if form.paired else 0
            if isinstance(count, int) and count > 0 and tensor.shape[0] % (2 * count) == 0:
                tensor = replace(tensor, heads=count)
            found[f"model.layers.{int(layer[1])}.{layers[layer[2]]}.{layer[3]}"] = tensor
        elif stem in ends:
            found[f"{ends[stem]}.{end}"] = tensor
        elif name not in read:
            found[name] = tensor
    return found
