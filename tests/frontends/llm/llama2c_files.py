# SPDX-License-Identifier: Apache-2.0
"""Models as `export.py` of llama2.c writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from tests.frontends.llm.checkpoints import Array, Llama
from tests.frontends.llm.gguf_files import interleaved

LETTERS = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
           "o": "self_attn.o_proj", "1": "mlp.gate_proj", "2": "mlp.down_proj",
           "3": "mlp.up_proj"}  # fmt: skip


def products(model: Llama, letters: str) -> Iterator[Array]:
    for letter in letters:
        for number in range(model.layers):
            rows = model.tensors[f"model.layers.{number}.{LETTERS[letter]}.weight"]
            heads = {"q": model.queries, "k": model.keys}.get(letter)
            yield interleaved(rows, heads) if heads else rows


def norms(model: Llama, name: str) -> Iterator[Array]:
    for number in range(model.layers):
        yield model.tensors[f"model.layers.{number}.{name}.weight"]


def quantized(rows: Array, group: int) -> bytes:
    groups = rows.reshape(-1, group)
    scales = (np.abs(groups).max(axis=1) / 127).astype(np.float32)
    codes = np.round(groups / scales[:, None]).astype(np.int8)
    return bytes(codes.tobytes() + scales.tobytes())


def floats(*arrays: Array) -> bytes:
    return b"".join(array.astype("<f4").tobytes() for array in arrays)


def written(model: Llama, version: int, group: int = 8, context: int = 64) -> bytes:
    """A model file; that of version 2 has weights of 8 bits with a scale for each group."""
    table = model.tensors["model.embed_tokens.weight"]
    last = model.tensors["model.norm.weight"]
    output = () if model.tied else (model.tensors["lm_head.weight"],)
    first, second = (list(norms(model, name)) for name in
                     ("input_layernorm", "post_attention_layernorm"))  # fmt: skip
    heads = [model.queries, model.keys]
    sizes = [model.width, model.hidden, model.layers, *heads, model.words, context]
    if version == 0:
        sizes[5] *= 1 if model.tied else -1
        angles = np.zeros((2, context, model.size // 2))
        return struct.pack("<7i", *sizes) + floats(
            table, *first, *products(model, "qkvo"), *second, *products(model, "123"), last,
            angles, *output,
        )  # fmt: skip
    head = struct.pack("<Ii7iB", 0x616B3432, version, *sizes, model.tied)
    head += struct.pack("<i", group) if version == 2 else b""
    weights = [table, *products(model, "qkvo123"), *output]
    body = floats(*weights) if version == 1 else b"".join(quantized(one, group) for one in weights)
    return head.ljust(256, b"\0") + floats(*first, *second, last) + body
