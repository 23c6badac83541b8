# SPDX-License-Identifier: Apache-2.0
"""Reads the models of llama2.c (`*.bin`) and their tokenizer (`tokenizer.bin` in their folder).

    version 0   7 x i32 | weights as f32
    1 and 2     "24ka" | i32 version | 7 x i32 | u8 tied | version 2: i32 group | zeros up to 256 |
                weights as f32; with version 2, those of products and the table as int8, and an f32
                scale for each group behind them
    tokenizer   i32 longest | for each token f32 score, i32 bytes, its text

The seven numbers are width, hidden width, layers, heads of queries, heads of keys, tokens, and
positions; in version 0, the number of tokens is negative if the table is not that of the logits.

Source: `export.py`, `run.c` and `runq.c` of llama2.c. Nothing of a file is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.llm.config import GREATEST_SIZE, MOST_LAYERS
from relax_aot.frontends.llm.gguf import GgufTensor
from relax_aot.frontends.llm.gguf_blocks import KINDS, Kind
from relax_aot.frontends.llm.tokenizer.components import MARK
from relax_aot.frontends.llm.tokenizer.gguf import BYTE, CONTROL, NORMAL, PREFIX, UNKNOWN
from relax_aot.ops._op import Array

SUFFIX, TEXT = ".bin", "tokenizer.bin"
MAGIC, HEADER, ALIGNED = b"24ka", 7, 256
VERSIONS = (1, 2)
F32 = KINDS[0]
_FIELDS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "vocab_size", "max_position_embeddings",
)  # fmt: skip
_LAYER = {
    "attention_norm": "input_layernorm", "wq": "self_attn.q_proj", "wk": "self_attn.k_proj",
    "wv": "self_attn.v_proj", "wo": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "w1": "mlp.gate_proj", "w2": "mlp.down_proj", "w3": "mlp.up_proj",
}  # fmt: skip
_WHOLE = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
_NORMS = ("attention_norm", "ffn_norm", "norm")
_ORDERS = {
    0: ("tok_embeddings", "attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3",
        "norm", "angles", "output"),
    1: (*_NORMS, "tok_embeddings", "wq", "wk", "wv", "wo", "w1", "w2", "w3", "output"),
}  # fmt: skip
_ORDERS[2] = _ORDERS[1]
_SPECIAL = {0: "<unk>", 1: "<s>", 2: "</s>"}
"""1 begins a text, and a model writes it between texts: `run.c` stops there."""


@dataclass(frozen=True, slots=True)
class _Header:
    version: int
    fields: Mapping[str, int]
    tied: bool
    group: int
    end: int


def read_llama2c(path: Path) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    """The fields of a `config.json`, and the weights by their names."""
    data = _mapped(path)
    header = _header(path, data)
    sizes, at = header.fields, header.end
    found: dict[str, GgufTensor] = {}
    for part, layer, shape in _parts(header):
        kind = _groups(header.group, shape) if header.group and part not in _NORMS else F32
        taken = prod(shape) // kind.elements * kind.bytes
        if at + taken > data.size:
            raise ModelError(
                f"{path}: the weights {part} end at {at + taken}, but it has {data.size} bytes"
            )
        heads = {"wq": sizes["num_attention_heads"], "wk": sizes["num_key_value_heads"]}
        name = _WHOLE.get(part) or f"model.layers.{layer}.{_LAYER.get(part)}"
        if part != "angles":
            found[f"{name}.weight"] = GgufTensor(
                path.name, kind, shape, data[at : at + taken], heads.get(part, 0)
            )
        at += taken
    if at != data.size:
        raise ModelError(f"{path}: the weights end at {at}, but it has {data.size} bytes")
    fields = {**sizes, "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": header.tied}  # fmt: skip
    return fields, found


def llama2c_text(path: Path, tokens: int) -> dict[str, Any] | None:
    """What a GGUF file would say of the tokenizer in the folder of a model with so many tokens;
    None if it has none."""
    file = path.with_name(TEXT)
    if not file.is_file():
        return None
    data, at = _mapped(file), 4
    texts, scores = [], []
    for number in range(tokens):
        if at + 8 > data.size:
            raise ModelError(f"{file}: token {number} of {tokens} is not there, the file ends")
        score, count = struct.unpack_from("<fi", data.data, at)
        at += 8
        if not 0 <= count <= data.size - at:
            raise ModelError(f"{file}: token {number} would have {count} bytes")
        texts.append(bytes(data[at : at + count]).decode("utf-8", "surrogateescape"))
        scores.append(score)
        at += count
    if at != data.size:
        raise ModelError(f"{file}: {tokens} tokens end at {at}, but it has {data.size} bytes")
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * max(tokens - 259, 0)]
    pieces = [_SPECIAL.get(n, text.replace(" ", MARK)) for n, text in enumerate(texts)]
    fields = {"model": "llama", "tokens": pieces, "scores": scores, "token_type": kinds[:tokens],
              "bos_token_id": 1, "eos_token_id": 2, "eot_token_id": 1}  # fmt: skip
    return {f"{PREFIX}{name}": value for name, value in fields.items()}


def _mapped(path: Path) -> Array:
    try:
        size = path.stat().st_size
        return np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None


def _header(path: Path, data: Array) -> _Header:
    if data.size < ALIGNED:
        raise ModelError(f"{path} has {data.size} bytes, which is no model of llama2.c")
    version, at = 0, 0
    if bytes(data[:4]) == MAGIC:
        (version,) = struct.unpack_from("<i", data.data, 4)
        at = 8
        if version not in VERSIONS:
            raise UnsupportedError(
                f"{path}: version {version} of llama2.c, only 0, 1 and 2 are known"
            )
    numbers = list(struct.unpack_from(f"<{HEADER}i", data.data, at))
    at += 4 * HEADER
    tied, group = numbers[5] > 0, 0
    numbers[5] = abs(numbers[5]) if version == 0 else numbers[5]
    for name, number in zip(_FIELDS, numbers, strict=True):
        most = MOST_LAYERS if name == "num_hidden_layers" else GREATEST_SIZE
        if not 1 <= number <= most:
            raise ModelError(
                f"{path} is no model of llama2.c: {name} would be {number}, expected 1 to {most}"
            )
    fields = dict(zip(_FIELDS, numbers, strict=True))
    if fields["hidden_size"] % (2 * fields["num_attention_heads"]):
        raise ModelError(f"{path}: heads of half a pair of numbers in {fields['hidden_size']}")
    if version:
        tied = bool(data[at])
        (group,) = struct.unpack_from("<i", data.data, at + 1) if version == 2 else (0,)
        if version == 2 and (group < 1 or fields["hidden_size"] % group):
            raise ModelError(f"{path}: groups of {group} in rows of {fields['hidden_size']}")
        at = ALIGNED
    return _Header(version, fields, tied, group, at)


def _parts(header: _Header) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """The weights in their order: name, layer and shape."""
    sizes = header.fields
    width, hidden = sizes["hidden_size"], sizes["intermediate_size"]
    size = width // sizes["num_attention_heads"]
    keys = size * sizes["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "tok_embeddings": (sizes["vocab_size"], width), "output": (sizes["vocab_size"], width),
        "attention_norm": (width,), "ffn_norm": (width,), "norm": (width,),
        "wq": (width, width), "wk": (keys, width), "wv": (keys, width), "wo": (width, width),
        "w1": (hidden, width), "w2": (width, hidden), "w3": (hidden, width),
        "angles": (2, sizes["max_position_embeddings"], size // 2),
    }  # fmt: skip
    for part in _ORDERS[header.version]:
        if part == "output" and header.tied:
            continue
        layers = sizes["num_hidden_layers"] if part in _LAYER else 1
        for layer in range(layers):
            yield part, layer, shapes[part]


def _groups(group: int, shape: tuple[int, ...]) -> Kind:
    """One tensor of int8, then a scale for each group."""
    count = prod(shape)

    def decode(data: Array) -> Array:
        scales = np.ascontiguousarray(data[count:]).view("<f4")
        values = data[:count].view(np.int8).reshape(-1, group).astype(np.float32)
        return np.asarray(values * scales[:, None])

    return Kind("int8 in groups", count, count + count // group * 4, decode)
