# SPDX-License-Identifier: Apache-2.0
"""The network: a small Llama in PyTorch, for training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as f

WORDS = 1024
WIDTH, HIDDEN, LAYERS = 128, 352, 4
HEADS, KEYS, SIZE = 4, 2, 32
CONTEXT = 256
BASE, EPSILON = 10000.0, 1e-5


def linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


def rotated(values: Tensor, angles: Tensor) -> Tensor:
    """Neighbors are turned as pairs: the order of rows that GGUF files of the Llamas have."""
    pairs = torch.view_as_complex(values.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angles[: values.shape[-2]]).flatten(-2)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = (nn.RMSNorm(WIDTH, EPSILON) for _ in range(2))
        self.attn_q = linear(WIDTH, HEADS * SIZE)
        self.attn_k, self.attn_v = (linear(WIDTH, KEYS * SIZE) for _ in range(2))
        self.attn_output = linear(HEADS * SIZE, WIDTH)
        self.ffn_gate, self.ffn_up = (linear(WIDTH, HIDDEN) for _ in range(2))
        self.ffn_down = linear(HIDDEN, WIDTH)
        for layer in (self.attn_output, self.ffn_down):
            nn.init.normal_(layer.weight, std=0.02 / (2 * LAYERS) ** 0.5)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        x = x + self.attention(self.attn_norm(x), angles)
        y = self.ffn_norm(x)
        return x + self.ffn_down(f.silu(self.ffn_gate(y)) * self.ffn_up(y))

    def attention(self, x: Tensor, angles: Tensor) -> Tensor:
        def heads(layer: nn.Linear) -> Tensor:
            return layer(x).unflatten(-1, (-1, SIZE)).transpose(1, 2)

        q, k = rotated(heads(self.attn_q), angles), rotated(heads(self.attn_k), angles)
        k, v = (each.repeat_interleave(HEADS // KEYS, 1) for each in (k, heads(self.attn_v)))
        y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_output(y.transpose(1, 2).flatten(-2))


class Network(nn.Module):
    """Rows of tokens -> logits of the next one. The names of weights are those of GGUF."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embd = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        self.blk = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.output_norm = nn.RMSNorm(WIDTH, EPSILON)
        steps = torch.arange(0, SIZE, 2) / SIZE
        turns = torch.outer(torch.arange(CONTEXT), BASE**-steps)
        self.register_buffer("angles", torch.polar(torch.ones_like(turns), turns), False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embd(tokens)
        for layer in self.blk:
            x = layer(x, self.angles)
        return f.linear(self.output_norm(x), self.token_embd.weight)
