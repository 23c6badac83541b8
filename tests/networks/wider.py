# SPDX-License-Identifier: Apache-2.0
"""Kinds of networks that the other sets lack: scans, spectra, experts, regions, caches."""

from __future__ import annotations

import warnings

import numpy as np
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional

from tests.networks.features import SEQUENCE, Applied, boxes_of
from tests.networks.network import DYNAMO, TORCHSCRIPT, Input, Network, real, whole


class SelectiveScan(nn.Module):
    """Mamba's recurrence in its parallel form."""

    def __init__(self, width: int = 8, states: int = 4) -> None:
        super().__init__()
        self.enter = nn.Linear(width, 2 * width)
        self.mix = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.select = nn.Linear(width, 1 + 2 * states)
        self.step = nn.Linear(1, width)
        self.decay = nn.Parameter(torch.randn(width, states))
        self.states = states

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        u, gate = self.enter(x).chunk(2, -1)
        u = functional.silu(self.mix(u.transpose(1, 2))[..., :steps].transpose(1, 2))
        step, enter, leave = self.select(u).split([1, self.states, self.states], -1)
        step = functional.softplus(self.step(step))
        logs = torch.cumsum(step[..., None] * -torch.exp(self.decay), 1)
        weights = torch.exp(logs[:, :, None] - logs[:, None])
        seen = torch.tril(torch.ones(steps, steps, dtype=torch.bool))
        weights = torch.where(seen[None, :, :, None, None], weights, torch.zeros(()))
        state = torch.einsum("btsdk,bsd,bsk->btdk", weights, step * u, enter)
        return torch.einsum("btdk,btk->btd", state, leave) * functional.silu(gate)


class Spectrogram(nn.Module):
    """Log-mel features of a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.register_buffer("mel", torch.rand(17, 6))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.stft(x, 32, 8, 32, self.window, center=True, return_complex=False)
        power = y[..., 0] ** 2 + y[..., 1] ** 2
        return torch.log(power.transpose(1, 2) @ self.mel + 1e-5)


class RegionHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 4, 3, 2, 1), nn.Linear(36, 5)

    def forward(self, x: Tensor, boxes: Tensor) -> Tensor:
        y = functional.relu(self.body(x))
        regions = torchvision.ops.roi_align(y, [boxes], (3, 3), 0.5, 2, True)
        return self.head(regions.flatten(1)).softmax(-1)


class KeptByKind(nn.Module):
    """batched_nms, and what it keeps."""

    def forward(self, boxes: Tensor, scores: Tensor, kinds: Tensor) -> tuple[Tensor, ...]:
        keep = torchvision.ops.batched_nms(boxes, scores, kinds, 0.4)
        return boxes[keep], scores[keep], kinds[keep]


class Extremes(nn.Module):
    """Neighbors by greatest, least and product, without the vertex itself."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        sent = x[edges[0]]
        place = edges[1][:, None].expand_as(sent)
        most = torch.zeros_like(x).scatter_reduce(0, place, sent, "amax", include_self=False)
        least = torch.zeros_like(x).scatter_reduce(0, place, sent, "amin", include_self=False)
        total = torch.ones_like(x).scatter_reduce(0, place, sent, "prod")
        return functional.normalize(most + least + total, dim=-1)


class Flow(nn.Module):
    """An image warped by a field of moves."""

    def forward(self, x: Tensor, moves: Tensor) -> Tensor:
        rows, columns = x.shape[2:]
        down, across = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        place = torch.stack((across, down), -1).float()[None] + moves.permute(0, 2, 3, 1)
        wide, tall = 2 * place[..., 0] / (columns - 1) - 1, 2 * place[..., 1] / (rows - 1) - 1
        grid = torch.stack((wide, tall), -1)
        return functional.grid_sample(x, grid, "bicubic", "border", align_corners=True)


class Experts(nn.Module):
    """Each token goes to its best expert: a data-dependent number of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.weights = nn.Parameter(torch.randn(3, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = x.reshape(-1, 8)
        share, kind = self.gate(y).softmax(-1).max(-1)
        total = torch.zeros_like(y)
        for number in range(3):
            rows = (kind == number).nonzero()[:, 0]
            out = (y[rows] @ self.weights[number]) * share[rows][:, None]
            total = total.index_add(0, rows, out)
        return total.view_as(x)


class FixedCache(nn.Module):
    """A cache of fixed size, written at positions."""

    def forward(self, cache: Tensor, keys: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        cache = cache.index_copy(2, places, keys)
        seen = torch.arange(cache.shape[2])[None, :] <= places[:, None]
        scores = (keys @ cache.transpose(-1, -2)).masked_fill(~seen, float("-inf"))
        return scores.softmax(-1) @ cache, cache


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        def then(x: Tensor) -> Tensor:
            return functional.relu(self.first(x))

        def otherwise(x: Tensor) -> Tensor:
            return self.second(x) * 2

        return torch.cond(x.sum() > 0, then, otherwise, (x,))


def looked_up(x: Tensor) -> Tensor:
    """A binary search, written out by the exporter."""
    return torch.bucketize(x, torch.linspace(-2, 2, 9))


def best_beams(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    top, place = x.log_softmax(-1).flatten(1).topk(3, -1)
    return top, place // 8, place % 8


def nucleus(x: Tensor) -> Tensor:
    """What is outside the likeliest four fifths goes."""
    values, order = x.sort(-1, descending=True)
    shares = values.softmax(-1)
    values = values.masked_fill(shares.cumsum(-1) - shares > 0.8, -1e9)
    return torch.zeros_like(x).scatter(-1, order, values)


def stepped(x: Tensor) -> Tensor:
    """A loop that the exporter keeps."""
    state = torch.zeros(x.shape[0], x.shape[2])
    for number in range(x.shape[1]):
        state = torch.tanh(0.5 * state + x[:, number])
    return state


def scripted() -> nn.Module:
    """The only way in which the old exporter keeps a loop; PyTorch calls it deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return Applied(torch.jit.script(stepped))


def swin() -> nn.Module:
    """Windows over images of any size."""
    return torchvision.models.swin_transformer.SwinTransformer(
        patch_size=[4, 4], embed_dim=12, depths=[2], num_heads=[2], window_size=[4, 4],
        num_classes=5,
    )  # fmt: skip


TEXT = {"batch": (1, 2, 3), "n": (1, 7, 16)}
SIDES = {"batch": (1, 2, 3), "h": (3, 7, 12), "w": (4, 9, 10)}
GRAPH = {"n": (2, 5, 9), "m": (1, 7, 20)}
SCORES = Input(("m",), lambda rng, s: rng.random(s).astype(np.float32))
PLACES = Input(("n",), lambda _rng, s: np.arange(s[0], dtype=np.int64))

NETWORKS = (
    Network("selective_scan", SelectiveScan, SEQUENCE, TEXT),
    Network(
        "spectrogram",
        Spectrogram,
        {"x": real("batch", "n")},
        {"batch": (1, 2, 3), "n": (32, 77, 99)},
    ),
    Network(
        "region_head",
        RegionHead,
        {"x": real(1, 3, "h", "w"), "boxes": boxes_of("m")},
        {"h": (16, 19, 30), "w": (16, 21, 28), "m": (1, 3, 6)},
    ),
    Network(
        "kept_by_kind",
        KeptByKind,
        {"boxes": boxes_of("m"), "scores": SCORES, "kinds": whole(3, "m")},
        {"m": (1, 9, 20)},
    ),
    Network(
        "extremes",
        Extremes,
        {"x": real("n", 6), "edges": whole(2, 2, "m")},
        GRAPH,
        exporters=DYNAMO,
    ),
    Network(
        "flow",
        Flow,
        {"x": real("batch", 2, "h", "w"), "moves": real("batch", 2, "h", "w")},
        SIDES,
    ),
    Network("experts", Experts, SEQUENCE, TEXT),
    Network(
        "fixed_cache",
        FixedCache,
        {"cache": real("batch", 2, "c", 6), "keys": real("batch", 2, "n", 6), "places": PLACES},
        {"batch": (1, 2, 3), "n": (1, 3, 4), "c": (5, 9, 16)},
    ),
    Network("branching", Branching, SEQUENCE, TEXT, exporters=DYNAMO),
    Network("looked_up", lambda: Applied(looked_up), SEQUENCE, TEXT),
    Network("best_beams", lambda: Applied(best_beams), SEQUENCE, TEXT),
    Network("nucleus", lambda: Applied(nucleus), SEQUENCE, TEXT),
    Network("stepped", scripted, SEQUENCE, TEXT, exporters=TORCHSCRIPT),
    Network(
        "swin",
        swin,
        {"x": real("batch", 3, "h", "w")},
        {"batch": (1, 2, 3), "h": (16, 23, 36), "w": (17, 32, 33)},
        exporters=TORCHSCRIPT,
    ),
)
