# SPDX-License-Identifier: Apache-2.0
"""Layers of unequal widths, as pruning leaves them (Ma et al., arXiv:2305.11627). A configuration
has one number of heads and one hidden width for all layers, so that their weights tell them."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.frontends import ModelError
from relax_aot.frontends.llm.checkpoint import Checkpoint
from relax_aot.frontends.llm.decoder import Layer, Shape
from relax_aot.frontends.llm.layers import Heads


def unequal(checkpoint: Checkpoint, shape: Shape) -> Shape:
    """With the sizes of each layer, where they differ. Weights of layers of one size have those
    of the configuration."""
    found = [_layer(checkpoint, shape, number) for number in range(len(shape.layers))]
    sizes = {(layer.heads, layer.hidden) for layer in found}
    return replace(shape, layers=tuple(found)) if len(sizes) > 1 else shape


def _layer(checkpoint: Checkpoint, shape: Shape, number: int) -> Layer:
    at, heads = f"model.layers.{number}", shape.heads

    def size(name: str, unit: int, most: int) -> int:
        rows = checkpoint.rows(f"{at}.{name}")
        if rows is None:
            return most
        if rows % unit or not 1 <= rows // unit <= most:
            raise ModelError(
                f"{checkpoint.name}: the weights {at}.{name} have {rows} rows, expected at most"
                f" {most} times {unit}"
            )
        return rows // unit

    queries, keys = (
        size(f"self_attn.{letter}_proj", heads.size, most)
        for letter, most in (("q", heads.queries), ("k", heads.keys))
    )
    if queries % keys:
        raise ModelError(
            f"{checkpoint.name}: {at} has {queries} heads of queries for {keys} heads of keys"
        )
    inner = "gate_proj" if shape.plain is None else shape.plain[0]
    hidden = size(f"mlp.{inner}", 1, shape.hidden)
    return replace(shape.layers[number], heads=Heads(queries, keys, heads.size), hidden=hidden)
