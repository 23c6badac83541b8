# SPDX-License-Identifier: Apache-2.0
"""Writes the trained model as a GGUF file: matrices in the blocks Q8_0."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
from tokenizers import Tokenizer

from examples.language_model.network import (
    BASE,
    CONTEXT,
    EPSILON,
    HEADS,
    HIDDEN,
    KEYS,
    LAYERS,
    SIZE,
    WIDTH,
    Network,
)


def write(path: Path, network: Network, tokenizer: Tokenizer, end: str) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("pydoc")
    writer.add_description("Trained on the documentation in Python, PSF license")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_key_length(SIZE)
    writer.add_value_length(SIZE)
    writer.add_rope_dimension_count(SIZE)
    writer.add_rope_freq_base(BASE)
    writer.add_layer_norm_rms_eps(EPSILON)
    add_tokenizer(writer, tokenizer, end)
    for name, weight in network.state_dict().items():
        array = weight.numpy()
        kind = gguf.GGMLQuantizationType.Q8_0
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer, end: str) -> None:
    words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    kinds = [gguf.TokenType.CONTROL if word == end else gguf.TokenType.NORMAL for word, _ in words]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([word for word, _ in words])
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    number = dict(words)[end]
    writer.add_bos_token_id(number)
    writer.add_eos_token_id(number)
    writer.add_add_bos_token(True)
