# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints with random weights, and what they compute in double precision."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
KINDS = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16),
         "BF16": np.dtype(ml_dtypes.bfloat16)}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Llama:
    """A checkpoint. `biases`: the first letters of the products that have one. `norms`: queries and
    keys are normalized. `config`: further fields."""

    words: int = 200
    width: int = 32
    hidden: int = 44
    layers: int = 2
    queries: int = 4
    keys: int = 2
    size: int = 8
    kind: str = "F32"
    tied: bool = True
    biases: str = ""
    norms: bool = False
    architecture: str = "LlamaForCausalLM"
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "architectures": [self.architecture],
            "model_type": self.architecture.removesuffix("ForCausalLM").lower(),
            "vocab_size": self.words,
            "hidden_size": self.width, "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers, "num_attention_heads": self.queries,
            "num_key_value_heads": self.keys, "head_dim": self.size, "hidden_act": "silu",
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512,
            "tie_word_embeddings": self.tied, "attention_bias": "o" in self.biases,
            "mlp_bias": "g" in self.biases, **self.config,
        }  # fmt: skip

    @property
    def tensors(self) -> dict[str, Array]:
        rng = np.random.default_rng(0)
        made: dict[str, Array] = {}

        def layer(name: str, outputs: int, inputs: int) -> None:
            made[f"{name}.weight"] = rng.normal(size=(outputs, inputs)) / np.sqrt(inputs)
            if name.rpartition(".")[2][0] in self.biases:
                made[f"{name}.bias"] = rng.normal(size=outputs) / 4

        made["model.embed_tokens.weight"] = rng.normal(size=(self.words, self.width))
        for number in range(self.layers):
            at = f"model.layers.{number}"
            q, k = self.queries * self.size, self.keys * self.size
            for letter, outputs in (("q", q), ("k", k), ("v", k)):
                layer(f"{at}.self_attn.{letter}_proj", outputs, self.width)
                if self.norms and letter in "qk":
                    norm = f"{at}.self_attn.{letter}_norm.weight"
                    made[norm] = 1 + rng.normal(size=self.size) / 8
            layer(f"{at}.self_attn.o_proj", self.width, q)
            for name in ("gate", "up"):
                layer(f"{at}.mlp.{name}_proj", self.hidden, self.width)
            layer(f"{at}.mlp.down_proj", self.width, self.hidden)
            for name in ("input_layernorm", "post_attention_layernorm"):
                made[f"{at}.{name}.weight"] = 1 + rng.normal(size=self.width) / 8
        made["model.norm.weight"] = 1 + rng.normal(size=self.width) / 8
        if not self.tied:
            made["lm_head.weight"] = rng.normal(size=(self.words, self.width))
        return {name: array.astype(KINDS[self.kind]) for name, array in made.items()}

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.fields))
        (folder / "model.safetensors").write_bytes(safetensors(self.tensors))
        return folder


def safetensors(tensors: Mapping[str, Array]) -> bytes:
    """A file of the format safetensors."""
    names = {dtype: name for name, dtype in KINDS.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in tensors.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {
            "dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": offsets,
        }  # fmt: skip
        data += array.tobytes()
    return with_header(json.dumps(header).encode(), data)


def with_header(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


# The meaning, written from the paper and independent of ops: one token after another, in float64


def logits(model: Llama, tokens: Sequence[int]) -> Array:
    """The logits of every token, [n, words]."""
    w = {name: array.astype(np.float64) for name, array in model.tensors.items()}
    table = w["model.embed_tokens.weight"]
    keys: list[list[Array]] = [[] for _ in range(model.layers)]
    values: list[list[Array]] = [[] for _ in range(model.layers)]
    found = []
    for place, token in enumerate(tokens):
        x = table[token]
        for number in range(model.layers):
            at = f"model.layers.{number}"
            y = _normalized(x, w[f"{at}.input_layernorm.weight"])
            q, k, v = (_linear(w, f"{at}.self_attn.{c}_proj", y) for c in "qkv")
            q, k, v = (x.reshape(-1, model.size) for x in (q, k, v))
            if model.norms:
                scales = [w[f"{at}.self_attn.{letter}_norm.weight"] for letter in "qk"]
                q, k = (
                    np.array([_normalized(row, scale) for row in rows])
                    for rows, scale in zip((q, k), scales, strict=True)
                )
            keys[number].append(_rotated(model, k, place))
            values[number].append(v)
            q = _rotated(model, q, place)
            heads = []
            for query in range(model.queries):
                shared = query // (model.queries // model.keys)
                k_rows = np.array([row[shared] for row in keys[number]])
                scores = k_rows @ q[query] / np.sqrt(model.size)
                share = np.exp(scores - scores.max())
                v_rows = np.array([row[shared] for row in values[number]])
                heads.append(share / share.sum() @ v_rows)
            x = x + _linear(w, f"{at}.self_attn.o_proj", np.concatenate(heads))
            y = _normalized(x, w[f"{at}.post_attention_layernorm.weight"])
            gate, up = (_linear(w, f"{at}.mlp.{name}_proj", y) for name in ("gate", "up"))
            x = x + _linear(w, f"{at}.mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
        head = table if model.tied else w["lm_head.weight"]
        found.append(head @ _normalized(x, w["model.norm.weight"]))
    return np.array(found)


def _linear(w: Mapping[str, Array], name: str, x: Array) -> Array:
    y = w[f"{name}.weight"] @ x
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def _normalized(x: Array, scale: Array) -> Array:
    return np.asarray(x / np.sqrt(np.mean(x * x) + 1e-5) * scale)


def _rotated(model: Llama, x: Array, place: int) -> Array:
    """Each pair of numbers, half a head apart, is a complex number that is multiplied."""
    half = model.size // 2
    pairs = x[:, :half] + 1j * x[:, half:]
    pairs = pairs * np.exp(1j * place * np.array([_frequency(model, i) for i in range(half)]))
    return np.concatenate([pairs.real, pairs.imag], axis=1)


def _frequency(model: Llama, number: int) -> float:
    plain = float(10000.0 ** (-2 * number / model.size))
    scaling = model.config.get("rope_scaling")
    if scaling is None:
        return plain
    if scaling["rope_type"] == "linear":
        return plain / float(scaling["factor"])
    wavelength = 2 * np.pi / plain
    low, high = (64 / LLAMA3[f"{end}_freq_factor"] for end in ("low", "high"))  # type: ignore[operator]
    if wavelength < high:
        return plain
    if wavelength > low:
        return plain / 8
    smooth = (64 / wavelength - 1) / 3
    return float((1 - smooth) * plain / 8 + smooth * plain)
