# SPDX-License-Identifier: Apache-2.0
"""Networks that read and write tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.networks.network import DYNAMO, TORCHSCRIPT, Network, count, padding, real, whole

WIDTH, HEADS, WORDS = 32, 4, 50


class BertLayer(nn.Module):
    """Post-norm attention with an additive mask, as BERT is written."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.last = nn.LayerNorm(WIDTH)

    def heads(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS) + bias
        y = torch.matmul(torch.softmax(scores, -1), v).permute(0, 2, 1, 3).contiguous()
        x = self.norm(x + self.out(y.view(x.shape)))
        return self.last(x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    """Tokens, types, positions; a mask of what is padding; the pooled first token."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.places = nn.Embedding(64, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer() for _ in range(2))
        self.pool = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        places = torch.arange(input_ids.size(1), device=input_ids.device).unsqueeze(0)
        x = self.words(input_ids) + self.types(token_type_ids) + self.places(places)
        x = self.norm(x)
        bias = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pool(x[:, 0]))


class GptLayer(nn.Module):
    """Pre-norm attention over past keys and values and the new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, new, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (t.view(batch, new, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        k, v = torch.cat([key, k], 2), torch.cat([value, v], 2)
        total = k.size(2)
        past = total - new
        seen = torch.arange(total)[None, :] <= torch.arange(new)[:, None] + past
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(~seen, float("-inf"))
        y = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, new, WIDTH)
        x = x + self.out(y)
        x = x + self.down(functional.gelu(self.up(self.last(x)), approximate="tanh"))
        return x, k, v


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(GptLayer() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(
        self, input_ids: Tensor, key_0: Tensor, value_0: Tensor, key_1: Tensor, value_1: Tensor
    ) -> tuple[Tensor, ...]:
        past = key_0.shape[2]
        places = torch.arange(past, past + input_ids.shape[1])
        x = self.words(input_ids) + self.places(places)
        x, k0, v0 = self.layers[0](x, key_0, value_0)
        x, k1, v1 = self.layers[1](x, key_1, value_1)
        return functional.linear(self.norm(x), self.words.weight), k0, v0, k1, v1


class RmsNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class LlamaLayer(nn.Module):
    """Rotary positions, fewer key heads than query heads, a gated feed-forward."""

    def __init__(self, groups: int = 2) -> None:
        super().__init__()
        self.groups = groups
        size = WIDTH // HEADS
        self.norm, self.last = RmsNorm(), RmsNorm()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, groups * size, bias=False)
        self.value = nn.Linear(WIDTH, groups * size, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 48, bias=False), nn.Linear(WIDTH, 48, bias=False)
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(
        self, x: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, new, _ = x.shape
        size = WIDTH // HEADS
        y = self.norm(x)
        q = rotated(self.query(y).view(batch, new, HEADS, size).transpose(1, 2), cos, sin)
        k = rotated(self.key(y).view(batch, new, self.groups, size).transpose(1, 2), cos, sin)
        v = self.value(y).view(batch, new, self.groups, size).transpose(1, 2)
        k, v = torch.cat([key, k], 2), torch.cat([value, v], 2)
        total = k.shape[2]
        wide_k, wide_v = (
            t[:, :, None]
            .expand(batch, self.groups, HEADS // self.groups, total, size)
            .reshape(batch, HEADS, total, size)
            for t in (k, v)
        )
        seen = torch.full((new, total), float("-inf")).triu(total - new + 1)
        y = functional.scaled_dot_product_attention(q, wide_k, wide_v, attn_mask=seen)
        x = x + self.out(y.transpose(1, 2).reshape(batch, new, WIDTH))
        y = self.last(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y)), k, v


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layer = LlamaLayer()
        self.norm = RmsNorm()
        rates = 1.0 / 10000 ** (torch.arange(0, 8, 2).float() / 8)
        self.register_buffer("rates", rates)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, ...]:
        angles = position_ids[:, :, None].float() * self.rates
        angles = torch.cat([angles, angles], -1)[:, None]
        x, k, v = self.layer(self.words(input_ids), key, value, angles.cos(), angles.sin())
        return self.head(self.norm(x)), k, v


class Seq2Seq(nn.Module):
    """nn.Transformer: encoder, decoder, cross attention, causal and padding masks."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Transformer(WIDTH, HEADS, 1, 1, 64, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, source: Tensor, target: Tensor, source_padding: Tensor) -> Tensor:
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = self.body(
            self.words(source),
            self.words(target),
            tgt_mask=causal,
            tgt_is_causal=True,
            memory_is_causal=False,
            src_key_padding_mask=source_padding,
            memory_key_padding_mask=source_padding,
        )
        return self.head(y)


class T5Bias(nn.Module):
    """Relative positions in buckets of logarithmic width."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(8, HEADS)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        places = torch.arange(length)
        apart = places[None, :] - places[:, None]
        bucket = (apart > 0).long() * 4
        apart = apart.abs()
        far = 2 + (torch.log(apart.float().clamp(min=1) / 2) / math.log(16 / 2) * 2).long()
        far = torch.minimum(far, torch.full_like(far, 3))
        bucket = bucket + torch.where(apart < 2, apart, far)
        bias = self.bias(bucket).permute(2, 0, 1).unsqueeze(0)
        q = x.view(x.shape[0], length, HEADS, -1).transpose(1, 2)
        return torch.softmax(q @ q.transpose(-1, -2) + bias, -1) @ q


class Tagger(nn.Module):
    """Embedding, two bidirectional layers, a class for each token."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        make = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[kind]
        self.body = make(16, 12, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        y, _ = self.body(self.words(tokens))
        return self.head(y)


class StatefulTagger(nn.Module):
    """The state goes in and out, as a stream needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LSTM(8, 12, 1, batch_first=True)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.body(x, (h, c))
        return self.head(y).argmax(-1), h, c


class LengthTagger(nn.Module):
    """The last state of each sequence, by its length; what is behind counts nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.GRU(8, 12, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        seen = torch.arange(x.shape[1])[None, :] < lengths[:, None]
        y, _ = self.body(x * seen[..., None])
        y = y.masked_fill(~seen[..., None], -1e9)
        last = y.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, y.shape[2]))
        return self.head(y.amax(1) + last.squeeze(1))


class PackedTagger(nn.Module):
    """pack_padded_sequence: the recurrent operator's own lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LSTM(8, 12, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, (h, _) = self.body(packed)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
        return y, h


TEXT = {"batch": (1, 2, 3), "n": (1, 7, 16)}
PAST = {"batch": (1, 2, 3), "n": (1, 3, 8), "past": (0, 5, 16)}
MEMORY = real("batch", HEADS, "past", 8)

NETWORKS = (
    Network(
        "bert",
        Bert,
        {
            "input_ids": whole(WORDS, "batch", "n"),
            "attention_mask": whole(2, "batch", "n"),
            "token_type_ids": whole(2, "batch", "n"),
        },
        TEXT,
    ),
    Network(
        "gpt",
        Gpt,
        {
            "input_ids": whole(WORDS, "batch", "n"),
            "key_0": MEMORY,
            "value_0": MEMORY,
            "key_1": MEMORY,
            "value_1": MEMORY,
        },
        PAST,
    ),
    Network(
        "llama",
        Llama,
        {
            "input_ids": whole(WORDS, "batch", "n"),
            "position_ids": whole(30, "batch", "n"),
            "key": real("batch", 2, "past", 8),
            "value": real("batch", 2, "past", 8),
        },
        PAST,
    ),
    Network(
        "seq2seq",
        Seq2Seq,
        {
            "source": whole(WORDS, "batch", "m"),
            "target": whole(WORDS, "batch", "n"),
            "source_padding": padding("batch", "m"),
        },
        {"batch": (1, 2, 3), "m": (2, 5, 12), "n": (1, 7, 9)},
        exporters=DYNAMO,
    ),
    Network("t5_bias", T5Bias, {"x": real("batch", "n", 16)}, TEXT),
    Network("lstm_tagger", lambda: Tagger("lstm"), {"tokens": whole(WORDS, "batch", "n")}, TEXT),
    Network("gru_tagger", lambda: Tagger("gru"), {"tokens": whole(WORDS, "batch", "n")}, TEXT),
    Network(
        "rnn_tagger",
        lambda: Tagger("rnn"),
        {"tokens": whole(WORDS, "batch", "n")},
        TEXT,
        exporters=TORCHSCRIPT,
    ),
    Network(
        "stateful_tagger",
        StatefulTagger,
        {"x": real("batch", "n", 8), "h": real(1, "batch", 12), "c": real(1, "batch", 12)},
        TEXT,
    ),
    Network(
        "length_tagger",
        LengthTagger,
        {"x": real("batch", "n", 8), "lengths": count(1, "batch")},
        TEXT,
    ),
)
