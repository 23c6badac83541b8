# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints with random weights."""

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
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}

LONG = {
    "type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.5, 2.0, 3.0], "long_factor": [4.0] * 6,
}  # fmt: skip


@dataclass(frozen=True)
class Mixture:
    """So many of `count` experts for each token, in layers but `without`."""

    count: int
    chosen: int
    hidden: int
    normalized: bool = True
    shared: int = 0
    at: str = "mlp"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    without: Sequence[int] = ()


@dataclass(frozen=True)
class Style:
    """In what an architecture differs from Llama, in the words of its paper."""

    model: str = ""
    """`model_type`, if it is not the name of the architecture."""
    windows: Sequence[int | None] = ()
    """Of each layer; a query sees so many keys."""
    still: Sequence[int] = ()
    """Layers without rotary positions."""
    rotated: int | None = None
    """So many numbers of a head are rotated; None: all."""
    offset: float = 0.0
    """What is added to the weights of norms."""
    before: tuple[str, str] = ("input_layernorm", "post_attention_layernorm")
    after: tuple[str, str] = ("", "")
    """The norms in front of attention and of the products behind it, and of their results; "":
    none."""
    last_norm: str = "norm"
    centered: bool = False
    """Norms subtract the mean."""
    parts: tuple[str, ...] = ("weight", "bias")
    """Which of them centered norms have."""
    head_norm: str = "shared"
    """Of models with norms of queries and keys. "single": heads have weights of their own,
    "stacked": in one tensor, "joint": one norm for all heads."""
    norm: str = "norm"
    """What ends the names of norms of queries and keys."""
    neighbors: bool = False
    """Neighbors in a head are rotated together, not numbers half a head apart."""
    input_cap: float | None = None
    """The greatest number of queries, keys and values."""
    output: str = "o_proj"
    parallel: bool = False
    """Attention and the products behind it add to the same rows."""
    apart: bool = False
    """Each of them behind a norm of its own."""
    positions: int | None = None
    """A table of positions has so many rows in front of that of the first token."""
    names: Sequence[tuple[str, str]] = ()
    """Parts of names, and what a file has instead."""
    transposed: bool = False
    """A file has weights of products with inputs as rows."""
    by_heads: bool = False
    """The tensor of queries, keys and values has these of one head after the other."""
    plain: tuple[str, str] | None = None
    """Two products in place of a gated one."""
    fused: bool = False
    """One tensor holds queries, keys and values."""
    gate_fused: bool = False
    """One holds both products of the gate."""
    widths: Sequence[tuple[int, int, int]] = ()
    """Of each layer: heads of queries and keys, and the hidden width."""
    rank: int | None = None
    """Weights of layers are products of two matrices with so many columns and rows."""
    factors: tuple[str, str] = ("_proj.ALinear", "_proj.BLinear")
    """What names of these have in place of _proj."""
    mixture: Mixture | None = None
    activation: str = "silu"
    embedding_scale: float = 1.0
    result_scale: float = 1.0
    """Of what attention and products add to the rows."""
    logit_scale: float = 1.0
    query_scale: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
    local_theta: float | None = None
    """The base of rotary positions in layers with windows, which are not scaled."""


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
    style: Style = field(default_factory=Style)

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "architectures": [self.architecture],
            "model_type": self.style.model or self.architecture.removesuffix("ForCausalLM").lower(),
            "vocab_size": self.words,
            "hidden_size": self.width, "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers, "num_attention_heads": self.queries,
            "num_key_value_heads": self.keys, "head_dim": self.size, "hidden_act": "silu",
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512,
            "tie_word_embeddings": self.tied, "attention_bias": "o" in self.biases,
            "mlp_bias": "g" in self.biases, "pad_token_id": 0, **self.config,
        }  # fmt: skip

    @property
    def tensors(self) -> dict[str, Array]:
        rng = np.random.default_rng(0)
        made: dict[str, Array] = {}

        def layer(name: str, outputs: int, inputs: int) -> None:
            rank = self.style.rank
            if rank is None or name == "lm_head":
                made[f"{name}.weight"] = rng.normal(size=(outputs, inputs)) / np.sqrt(inputs)
            else:
                outer, inner = (name.replace("_proj", end) for end in self.style.factors)
                made[f"{outer}.weight"] = rng.normal(size=(outputs, rank)) / np.sqrt(rank)
                made[f"{inner}.weight"] = rng.normal(size=(rank, inputs)) / np.sqrt(inputs)
            if name.rpartition(".")[2][0] in self.biases:
                made[f"{name}.bias"] = rng.normal(size=outputs) / 4

        parts = self.style.parts if self.style.centered else ("weight",)

        def norm(name: str, *shape: int, parts: tuple[str, ...] = parts) -> None:
            if "weight" in parts:
                made[f"{name}.weight"] = 1 - self.style.offset + rng.normal(size=shape) / 8
            if "bias" in parts:
                made[f"{name}.bias"] = rng.normal(size=shape) / 8

        def head_norm(name: str, outputs: int) -> None:
            if self.style.head_norm == "single":
                for one in range(outputs // self.size):
                    norm(f"{name}.norms.{one}", self.size, parts=("weight",))
            elif self.style.head_norm == "stacked":
                norm(name, outputs // self.size, self.size)
            else:
                norm(name, outputs if self.style.head_norm == "joint" else self.size)

        made["model.embed_tokens.weight"] = rng.normal(size=(self.words, self.width))
        for number in range(self.layers):
            at = f"model.layers.{number}"
            queries, keys, _ = self.widths[number]
            q, k = queries * self.size, keys * self.size
            for letter, outputs in (("q", q), ("k", k), ("v", k)):
                layer(f"{at}.self_attn.{letter}_proj", outputs, self.width)
                if self.norms and letter in "qk":
                    head_norm(f"{at}.self_attn.{letter}_{self.style.norm}", outputs)
            layer(f"{at}.self_attn.{self.style.output}", self.width, q)
            for name, outputs, inputs in self.products(number):
                layer(f"{at}.{name}", outputs, inputs)
            for name in filter(None, (*self.style.before, *self.style.after)):
                norm(f"{at}.{name}", self.width)
        norm(f"model.{self.style.last_norm}", self.width)
        if self.style.positions is not None:
            rows = self.fields["max_position_embeddings"] + self.style.positions
            made["model.embed_positions.weight"] = rng.normal(size=(rows, self.width))
        if not self.tied:
            layer("lm_head", self.words, self.width)
            made["lm_head.weight"] *= np.sqrt(self.width)
        if self.style.fused:
            made = _fused(made, "qkv_proj")
        if self.style.gate_fused:
            made = _fused(made, "gate_up_proj")
        return {name: array.astype(KINDS[self.kind]) for name, array in made.items()}

    @property
    def widths(self) -> Sequence[tuple[int, int, int]]:
        """Of each layer."""
        return self.style.widths or ((self.queries, self.keys, self.hidden),) * self.layers

    def products(self, number: int) -> list[tuple[str, int, int]]:
        """The products behind attention of a layer, with their outputs and inputs."""
        hidden = self.widths[number][2]
        inner, outer = (hidden, self.width), (self.width, hidden)
        if self.style.plain is not None:
            first, second = self.style.plain
            return [(f"mlp.{first}", *inner), (f"mlp.{second}", *outer)]
        mixture = self.style.mixture
        if mixture is not None and number not in mixture.without:
            return _experts(mixture, self.width)
        return [("mlp.gate_proj", *inner), ("mlp.up_proj", *inner), ("mlp.down_proj", *outer)]

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.fields))
        (folder / "model.safetensors").write_bytes(safetensors(self.stored))
        return folder

    @property
    def stored(self) -> dict[str, Array]:
        """The tensors as the files of the architecture have them."""
        found = {}
        for name, array in self.tensors.items():
            if self.style.by_heads and "qkv_proj" in name:
                split = array.reshape(3, self.queries, self.size, *array.shape[1:])
                array = split.swapaxes(0, 1).reshape(array.shape)
            if self.style.transposed and "layers" in name and array.ndim == 2:
                array = array.T.copy()
            for part, other in self.style.names:
                name = name.replace(part, other)
            found[name] = array
        return found


def _experts(mixture: Mixture, width: int) -> list[tuple[str, int, int]]:
    at, (gate, up, down) = mixture.at, mixture.names
    made = [(f"{at}.gate", mixture.count, width)]
    for one in range(mixture.count):
        inner = [(f"{at}.experts.{one}.{name}", mixture.hidden, width) for name in (gate, up)]
        made += [*inner, (f"{at}.experts.{one}.{down}", width, mixture.hidden)]
    if mixture.shared:
        stem, hidden = f"{at}.shared_expert", mixture.shared
        made += [(f"{stem}.{name}_proj", hidden, width) for name in ("gate", "up")]
        made += [(f"{stem}.down_proj", width, hidden), (f"{stem}_gate", 1, width)]
    return made


FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def _fused(tensors: Mapping[str, Array], whole: str) -> dict[str, Array]:
    """With the first tensor of each group in place of all."""
    made, (first, *others) = dict(tensors), FUSED[whole]
    for name in tensors:
        if name.endswith((f"{first}.weight", f"{first}.bias")):
            parts = [made.pop(name.replace(first, part)) for part in (first, *others)]
            made[name.replace(first, whole)] = np.concatenate(parts)
    return made


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
