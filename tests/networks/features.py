# SPDX-License-Identifier: Apache-2.0
"""Small modules, each with one thing that networks do and that exporters spell oddly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional

from tests.networks.network import DYNAMO, TORCHSCRIPT, Array, Input, Network, real, whole


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


class AppliedToTwo(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(x, y)


class Warped(nn.Module):
    """Bilinear sampling at places that the image itself moves."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        across = torch.linspace(-1, 1, 8)
        rows, columns = torch.meshgrid(across, across, indexing="ij")
        moved = torch.tanh(self.offset(x)).mean((2, 3))[:, None, None]
        grid = torch.stack([columns, rows], -1)[None] + 0.1 * moved
        return functional.grid_sample(x, grid, align_corners=False)


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6, mode="mean")

    def forward(self, x: Tensor) -> Tensor:
        return self.bag(x)


class GroupNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 6)
        self.instance = nn.InstanceNorm2d(6, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) + self.instance(x)


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, kdim=8, vdim=8, batch_first=True)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z, weights = self.attention(x, y, y)
        return z, weights


def halves(x: Tensor) -> Tensor:
    n = x.shape[1]
    return torch.cat([x[:, : n // 2].sum(1), x[:, n // 2 :].sum(1), x[:, 1::2].sum(1)], -1)


def paired(x: Tensor) -> Tensor:
    batch, n, width = x.shape
    return x.view(batch, -1, width // 2, 2).flip(1).transpose(2, 3).reshape(batch, n, width)


def put(x: Tensor, y: Tensor) -> Tensor:
    places = torch.arange(y.shape[1]) * 2 % x.shape[1]
    z = x.clone()
    z[:, places] = y
    z[:, 0] = 1.0
    return z


def folded(x: Tensor) -> Tensor:
    columns = functional.unfold(x, (3, 2), padding=1, stride=2)
    return columns.softmax(1)


def fold_back(x: Tensor) -> Tensor:
    columns = functional.unfold(x, 2, stride=2)
    return functional.fold(columns * 2, (x.shape[2], x.shape[3]), 2, stride=2)


def windows(x: Tensor) -> Tensor:
    return x.unfold(1, 3, 2).mean(-1)


def scaled_attention(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def resized(x: Tensor, y: Tensor) -> Tensor:
    return functional.interpolate(
        x, size=(y.shape[2], y.shape[3]), mode="bilinear", align_corners=True
    )


def doubled(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="nearest") + functional.interpolate(
        x, size=(2 * x.shape[2], 2 * x.shape[3]), mode="bicubic"
    )


def spatial_pyramid(x: Tensor) -> Tensor:
    return torch.cat([functional.adaptive_avg_pool2d(x, s).flatten(1) for s in (1, 2, 4)], 1)


def relative(x: Tensor) -> Tensor:
    n = x.shape[1]
    apart = (torch.arange(n)[:, None] - torch.arange(n)[None]).abs().float()
    return torch.softmax(x @ x.transpose(1, 2) - 0.5 * apart, -1) @ x


def kept(x: Tensor) -> Tensor:
    return x[x > 0]


def found(x: Tensor) -> Tensor:
    return (x > 1).nonzero()


def squared(x: Tensor) -> Tensor:
    return torch.einsum("bnd,bmd->bnm", x, x)


def ranked(x: Tensor) -> tuple[Tensor, ...]:
    values, order = torch.sort(x, 1, descending=True)
    return values, order, torch.cumsum(x, 1), x.std(1), x.var(1, unbiased=False), x.norm(dim=2)


def tokens(x: Tensor) -> Tensor:
    return functional.one_hot(x, 9).float().cumsum(1)


def tiled(x: Tensor) -> Tensor:
    return x.repeat(1, 2, 1) + torch.cat([x, x], 1).roll(3, 1)


def interleaved(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, 1) * torch.tril(torch.ones(x.shape[1] * 2, 1))


def padded(x: Tensor) -> Tensor:
    x = functional.pad(x, (1, 2, 2, 1), mode="reflect")
    x = functional.pad(x, (0, 1, 1, 0), mode="replicate")
    return (
        functional.pad(x, (1, 1), mode="circular")
        if x.dim() == 3
        else functional.pad(x, (1, 1), value=2.0)
    )


def pooled(x: Tensor) -> Tensor:
    y = functional.max_pool2d(x, 3, 2, 1, ceil_mode=True) + functional.avg_pool2d(
        x, 3, 2, 1, ceil_mode=True
    )
    return functional.lp_pool2d(y.abs(), 2, 2, ceil_mode=True)


def complicated(x: Tensor) -> Tensor:
    """Activations that exporters take apart."""
    y = (
        functional.mish(x)
        + functional.hardswish(x)
        + functional.hardsigmoid(x)
        + functional.softplus(x)
        + functional.celu(x)
        + functional.selu(x)
    )
    y = (
        y
        + functional.gelu(x)
        + functional.logsigmoid(x)
        + functional.softsign(x)
        + functional.tanhshrink(x)
        + functional.hardtanh(x)
    )
    return y + torch.erf(x) + torch.clamp(x, -0.5, 0.5) + torch.where(x > 0, x, x.exp()) + x.sign()


def distances(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y) + 1.0


def bilinear_mix(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    a, b = x.split([half, x.shape[-1] - half], -1)
    return torch.stack([a * b, a - b], -1).flatten(-2)


def channel_shuffle(x: Tensor) -> Tensor:
    batch, channels, rows, columns = x.size()
    y = x.view(batch, 2, channels // 2, rows, columns).transpose(1, 2).contiguous()
    return y.view(batch, -1, rows, columns)


def space_to_depth(x: Tensor) -> Tensor:
    return torch.cat(
        [x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1
    )


def same_padded(x: Tensor) -> Tensor:
    rows, columns = x.shape[2], x.shape[3]
    tall = max(0, (-(-rows // 2) - 1) * 2 + 3 - rows)
    wide = max(0, (-(-columns // 2) - 1) * 2 + 3 - columns)
    x = functional.pad(x, (wide // 2, wide - wide // 2, tall // 2, tall - tall // 2))
    return functional.avg_pool2d(x, 3, 2)


def chosen(x: Tensor) -> Tensor:
    first = x.index_select(1, torch.tensor([0])).squeeze(1)
    return x[:, -1] + x.amax(1) + x[:, [0, -1]].sum(1) + first


def best(x: Tensor) -> Tensor:
    values, places = x.topk(3, -1)
    return torch.zeros_like(x).scatter(-1, places, values.softmax(-1))


def spectrum(x: Tensor) -> Tensor:
    frames = x.unfold(1, 16, 8) * torch.hann_window(16)
    return torch.fft.rfft(frames).abs()


class Many(nn.Module):
    """Convolutions of other ranks, and normalizations that are rarer."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(8, 6, 4, 2, 1, output_padding=1)
        self.volume = nn.Conv3d(1, 2, 3, padding=1)
        self.norm = nn.LayerNorm((6, 4))
        self.local = nn.LocalResponseNorm(3)
        self.slope = nn.PReLU(6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.slope(self.up(x.transpose(1, 2)))
        y = self.local(y)
        z = functional.avg_pool1d(y, 4, 2, 1)[..., :4]
        z = functional.pad(z, (0, 4 - z.shape[-1]))
        volume = self.volume(y.unsqueeze(1).unsqueeze(1)).squeeze(2).mean(1)
        return torch.cat([self.norm(z).flatten(1), volume.amax(2)], 1)


class Aligned(nn.Module):
    """Boxes of a feature map, each resampled to one size."""

    def forward(self, x: Tensor, boxes: Tensor) -> Tensor:
        return torchvision.ops.roi_align(x, [boxes], (3, 2), 0.5, 2, aligned=True)


def to_even(x: Tensor) -> Tensor:
    rows, columns = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
    x = x[:, :, :rows, :columns]
    y = x.reshape(x.shape[0], 4, rows // 2, 2, columns // 2, 2)
    return y.amax((3, 5)) - y.mean((3, 5))


def triangles(x: Tensor) -> Tensor:
    square = x @ x.transpose(1, 2)
    mean = torch.diagonal(square, dim1=1, dim2=2).mean(1)
    return torch.tril(square, -1) + torch.triu(square, 1) + mean[:, None, None]


def counted(x: Tensor) -> Tensor:
    """Sums of the elements that belong to each class, by index_put and by scatter_add."""
    kind = (x[..., 0] > 0).long() + (x[..., 1] > 0).long()
    sums = torch.zeros(x.shape[0], 3, x.shape[2])
    sums = sums.scatter_add(1, kind[..., None].expand(-1, -1, x.shape[2]), x)
    flat = torch.zeros(3).index_put((kind.flatten(),), x[..., 0].flatten(), accumulate=True)
    return sums + flat[None, :, None]


def cleaned(x: Tensor) -> Tensor:
    y = torch.log(x)
    y = torch.nan_to_num(y, nan=0.5, posinf=2.0, neginf=-2.0)
    return torch.where(torch.isfinite(x / 0), y, y * 2).masked_fill(x.abs() < 0.1, 7.0)


def rms(x: Tensor) -> Tensor:
    y = functional.rms_norm(x, (8,), eps=1e-5) + functional.normalize(x, dim=-1)
    return y + functional.softmin(x, 1) + torch.logsumexp(x, 1, keepdim=True)


def blocks(x: Tensor) -> Tensor:
    """Attention within blocks of four, padded to whole ones."""
    batch, n, width = x.shape
    more = (4 - n % 4) % 4
    y = functional.pad(x, (0, 0, 0, more)).view(batch, -1, 4, width)
    y = torch.softmax(torch.einsum("bkid,bkjd->bkij", y, y), -1) @ y
    return y.reshape(batch, n + more, width)[:, :n]


def unshuffled(x: Tensor) -> Tensor:
    return functional.pixel_shuffle(
        functional.pixel_unshuffle(x, 2), 2
    ) + functional.adaptive_max_pool2d(x, 1)


def rotary(x: Tensor) -> Tensor:
    n = x.shape[1]
    rates = 1.0 / 100 ** (torch.arange(0, 8, 2) / 8)
    turn = torch.outer(torch.arange(n).float(), rates)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = (even * turn.cos() - odd * turn.sin(), even * turn.sin() + odd * turn.cos())
    return torch.stack(turned, -1).flatten(-2)


def glued(x: Tensor) -> Tensor:
    parts = x.tensor_split(3, -1)
    low, high = x.aminmax(dim=1)
    return (
        torch.cat([parts[0].cumsum(1), parts[1].flip(1), parts[2].clamp(min=0)], -1)
        + (high - low)[:, None]
    )


def sinusoidal(x: Tensor) -> Tensor:
    """Places that are counted in floats."""
    places = torch.arange(x.shape[1], dtype=x.dtype)[:, None]
    rates = torch.exp(torch.arange(0, 8, 2) * -1.2)
    encoding = torch.zeros(x.shape[1], 8)
    encoding[:, 0::2] = torch.sin(places * rates)
    encoding[:, 1::2] = torch.cos(places * rates)
    return x + encoding


def shares(x: Tensor) -> tuple[Tensor, ...]:
    """Sizes that go through floats."""
    return (
        functional.interpolate(x, scale_factor=0.5, recompute_scale_factor=True, mode="bilinear"),
        x[:, :, : int(x.shape[2] * 0.75)],
        x[:, :, :, : math.ceil(x.shape[3] / 3)],
    )


SEQUENCE: Mapping[str, Input] = {"x": real("batch", "n", 8)}
LENGTHS = {"batch": (1, 2, 3), "n": (2, 7, 16)}
IMAGE: Mapping[str, Input] = {"x": real("batch", 4, "h", "w")}
SIDES = {"batch": (1, 2, 3), "h": (5, 8, 13), "w": (4, 9, 12)}


def boxes_of(count: str) -> Input:
    """Corners, the second beyond the first."""

    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        first = rng.uniform(0, 6, (shape[0], 2))
        return np.concatenate([first, first + rng.uniform(1, 9, first.shape)], 1).astype(np.float32)

    return Input((count, 4), make)


def sequence(function: Callable[..., Any], **others: Any) -> Network:
    return Network(function.__name__, lambda: Applied(function), SEQUENCE, LENGTHS, **others)


def image(function: Callable[..., Any], **others: Any) -> Network:
    return Network(function.__name__, lambda: Applied(function), IMAGE, SIDES, **others)


NETWORKS = (
    Network("warped", Warped, IMAGE, SIDES),
    Network("bag", Bag, {"x": whole(20, "batch", "n")}, LENGTHS),
    Network("group_norm", GroupNormed, {"x": real("batch", 6, "h", "w")}, SIDES),
    Network(
        "cross_attention",
        CrossAttention,
        {"x": real("batch", "n", 16), "y": real("batch", "m", 8)},
        {"batch": (1, 2, 3), "n": (1, 5, 12), "m": (2, 7, 9)},
    ),
    sequence(halves),
    sequence(paired),
    Network(
        "put",
        lambda: AppliedToTwo(put),
        {"x": real("batch", "n", 8), "y": real("batch", 2, 8)},
        {"batch": (1, 2, 3), "n": (4, 7, 16)},
        exporters=TORCHSCRIPT,
    ),
    image(folded),
    Network(
        "fold_back",
        lambda: Applied(fold_back),
        {"x": real("batch", 4, "2*h", "2*w")},
        {"batch": (1, 2, 3), "h": (2, 3, 6), "w": (2, 3, 4)},
        exporters=DYNAMO,
    ),
    Network(
        "windows",
        lambda: Applied(windows),
        SEQUENCE,
        {"batch": (1, 2, 3), "n": (3, 8, 17)},
        exporters=DYNAMO,
    ),
    Network(
        "scaled_attention",
        lambda: Applied(scaled_attention),
        {"x": real("batch", 2, "n", 8)},
        LENGTHS,
    ),
    Network(
        "resized",
        lambda: AppliedToTwo(resized),
        {"x": real("batch", 4, "h", "w"), "y": real("batch", 1, "m", "n")},
        {**SIDES, "m": (2, 7, 15), "n": (3, 11, 20)},
    ),
    image(doubled),
    image(shares),
    sequence(sinusoidal),
    sequence(relative),
    sequence(kept),
    sequence(found),
    sequence(squared),
    sequence(ranked, tolerance=1e-3),
    Network("tokens", lambda: Applied(tokens), {"x": whole(9, "batch", "n")}, LENGTHS),
    sequence(tiled),
    sequence(interleaved),
    image(padded),
    image(pooled),
    sequence(complicated),
    Network(
        "distances",
        lambda: AppliedToTwo(distances),
        {"x": real("n", 4), "y": real("m", 4)},
        {"n": (1, 5, 9), "m": (1, 4, 8)},
        tolerance=1e-3,
        exporters=TORCHSCRIPT,
    ),
    sequence(bilinear_mix),
    image(channel_shuffle),
    Network(
        "space_to_depth",
        lambda: Applied(space_to_depth),
        {"x": real("batch", 4, "2*h", "2*w")},
        {"batch": (1, 2, 3), "h": (2, 3, 6), "w": (2, 3, 4)},
    ),
    image(same_padded),
    sequence(chosen),
    sequence(best),
    Network(
        "spectrum",
        lambda: Applied(spectrum),
        {"x": real("batch", "n")},
        {"batch": (1, 2, 3), "n": (16, 39, 64)},
        tolerance=1e-3,
        exporters=DYNAMO,
    ),
    Network(
        "spatial_pyramid",
        lambda: Applied(spatial_pyramid),
        {"x": real("batch", 4, 8, 16)},
        {"batch": (1, 2, 3)},
    ),
    Network("many", Many, SEQUENCE, LENGTHS),
    Network(
        "aligned",
        Aligned,
        {"x": real(1, 4, "h", "w"), "boxes": boxes_of("m")},
        {"m": (1, 3, 5), "h": (5, 8, 13), "w": (4, 9, 12)},
        exporters=TORCHSCRIPT,
    ),
    image(to_even),
    sequence(triangles),
    sequence(counted),
    sequence(cleaned),
    sequence(rms, exporters=DYNAMO),
    sequence(blocks),
    Network(
        "unshuffled",
        lambda: Applied(unshuffled),
        {"x": real("batch", 4, "2*h", "2*w")},
        {"batch": (1, 2, 3), "h": (2, 3, 6), "w": (2, 3, 4)},
    ),
    sequence(rotary),
    sequence(glued, exporters=DYNAMO),
)
