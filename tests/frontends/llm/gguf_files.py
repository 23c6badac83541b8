# SPDX-License-Identifier: Apache-2.0
"""Writes files of the format GGUF, version 3, as its specification says.

Source: ggml's docs/gguf.md; blocks of quantized weights: block_q8_0 and block_q4_0 of ggml's
src/ggml-common.h, with the rounding of quantize_row_q8_0_ref and quantize_row_q4_0_ref.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tests.frontends.llm.checkpoints import Array, Llama

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}
BLOCK = 32
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _INT32 = 4, 6, 7, 8, 9, 5


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(given: Any) -> bytes:
    """A value of the metadata, behind its type."""
    match given:
        case bool():
            return struct.pack("<I?", _BOOL, given)
        case int():
            return struct.pack("<II", _UINT32, given)
        case float():
            return struct.pack("<If", _FLOAT32, given)
        case str():
            return struct.pack("<I", _STRING) + string(given)
        case [str(), *_]:
            return _array(_STRING, given, b"".join(map(string, given)))
        case [float(), *_]:
            return _array(_FLOAT32, given, struct.pack(f"<{len(given)}f", *given))
        case [*_]:
            return _array(_INT32, given, struct.pack(f"<{len(given)}i", *given))
        case _:
            raise TypeError(type(given))


def _array(kind: int, given: Sequence[Any], data: bytes) -> bytes:
    return struct.pack("<IIQ", _ARRAY, kind, len(given)) + data


def gguf(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]
) -> bytes:
    """A file: metadata, and tensors as (type, shape, data)."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(string(key) + value(given) for key, given in metadata.items())
    data = b""
    for name, (kind, shape, content) in tensors.items():
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += string(name) + sizes + struct.pack("<IQ", TYPES[kind], len(data))
        data += content + b"\0" * (-len(content) % BLOCK)
    return head + b"\0" * (-len(head) % BLOCK) + data


# Weights


def q8_0(rows: Array) -> bytes:
    """Blocks of 32: a scale in half precision, and bytes."""
    blocks = rows.astype(np.float32).reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    scaled = blocks * inverse
    codes = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)
    return _joined(scale, codes)


def q4_0(rows: Array) -> bytes:
    """Blocks of 32: a scale in half precision, and numbers of 0..15, of which k and k + 16 share a
    byte."""
    blocks = rows.astype(np.float32).reshape(-1, BLOCK)
    at = np.abs(blocks).argmax(axis=1)[:, None]
    scale = np.take_along_axis(blocks, at, axis=1) / np.float32(-8)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    codes = np.minimum(15, (blocks * inverse + np.float32(8.5)).astype(np.int8)).astype(np.uint8)
    return _joined(scale, codes[:, :16] | codes[:, 16:] << 4)


def _joined(scale: Array, codes: Array) -> bytes:
    parts = [scale.astype("<f2").view(np.uint8), codes.view(np.uint8)]
    return np.concatenate(parts, axis=1).tobytes()


def stored(array: Array, kind: str) -> tuple[str, tuple[int, ...], bytes]:
    """A tensor; vectors and rows that are no whole blocks stay floats."""
    if array.ndim == 1:
        kind = "F32"
    if kind in ("Q8_0", "Q4_0"):
        data = (q8_0 if kind == "Q8_0" else q4_0)(array)
    else:
        wide = array.astype(np.float32)
        bits = (wide.view(np.uint32) >> 16).astype("<u2")  # the tests' weights are bfloat16 there
        data = {"F32": wide, "F16": wide.astype("<f2"), "BF16": bits}[kind].tobytes()
    assert prod(array.shape), array.shape
    return kind, array.shape, data


# Models

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "model.layers": "blk",
    "self_attn.qkv_proj": "attn_qkv",
}  # fmt: skip
RESULTS = {"post_attention_layernorm": "post_attention_norm",
           "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
OTHERS = {
    "exaone4": RESULTS, "olmo2": RESULTS, "seed_oss": RESULTS,
    "gemma2": {**RESULTS, "pre_feedforward_layernorm": "ffn_norm"},
    "gemma3": {**RESULTS, "pre_feedforward_layernorm": "ffn_norm"},
    "phi2": {"model.final_layernorm": "output_norm", "self_attn.dense": "attn_output",
             "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
    "phi3": {"mlp.gate_up_proj": "ffn_up"},
    "starcoder2": {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
}  # fmt: skip
"""Names that differ."""
PAIRED = ("llama", "arcee", "granite", "smollm3")
"""Architectures in which llama.cpp rotates neighbors."""


def file_of(
    model: Llama,
    kind: str,
    architecture: str = "llama",
    more: Mapping[str, tuple[str, tuple[int, ...], bytes]] = {},
    text: Mapping[str, Any] = {},
) -> bytes:
    """A checkpoint as llama.cpp's convert_hf_to_gguf.py writes it, and `more` tensors. `text`: the
    fields of its tokenizer."""
    tensors = dict(more)
    for name, array in model.tensors.items():
        if architecture in PAIRED and name[-13:-7] in ("q_proj", "k_proj"):
            array = interleaved(array, model.queries if "q_proj" in name else model.keys)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        for long, short in {**NAMES, **OTHERS.get(architecture, {})}.items():
            name = name.replace(long, short)
        tensors[name] = stored(array, kind)
    return gguf({**metadata_of(model, architecture), **text}, tensors)


def interleaved(rows: Array, heads: int) -> Array:
    """Rows of each head as llama.cpp rotates them: pairs are neighbors, not halves of the head."""
    parts = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return parts.swapaxes(1, 2).reshape(rows.shape)


def metadata_of(model: Llama, architecture: str) -> dict[str, Any]:
    fields = {
        "block_count": model.layers, "context_length": 512, "embedding_length": model.width,
        "feed_forward_length": model.hidden, "attention.head_count": model.queries,
        "attention.head_count_kv": model.keys, "attention.key_length": model.size,
        "attention.value_length": model.size,
        "rope.dimension_count": model.style.rotated or model.size,
        "rope.freq_base": model.fields["rope_theta"],
        f"attention.layer_norm_{'' if model.style.centered else 'rms_'}epsilon": 1e-5,
        "vocab_size": model.words,
    }  # fmt: skip
    if model.fields.get("sliding_window") is not None:
        fields["attention.sliding_window"] = model.fields["sliding_window"]
    return {
        "general.architecture": architecture,
        "general.name": "tiny",
        **{f"{architecture}.{name}": given for name, given in fields.items()},
    }
