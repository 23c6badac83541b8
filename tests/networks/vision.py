# SPDX-License-Identifier: Apache-2.0
"""Networks that see images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.networks.network import DYNAMO, Network, real


def conv(inner: int, outer: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    padding = (size - 1) // 2
    return [
        nn.Conv2d(inner, outer, size, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outer),
    ]


class InvertedResidual(nn.Module):
    """The block of MobileNetV2: expand, depthwise, project."""

    def __init__(self, inner: int, outer: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inner * expand
        parts: list[nn.Module] = []
        if expand != 1:
            parts += [*conv(inner, hidden, 1), nn.ReLU6()]
        parts += [*conv(hidden, hidden, 3, stride, hidden), nn.ReLU6()]
        parts += conv(hidden, outer, 1)
        self.body = nn.Sequential(*parts)
        self.same = stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.same else self.body(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        parts: list[nn.Module] = [*conv(3, 8, 3, 2), nn.ReLU6()]
        inner = 8
        plan = [
            (1, 8, 1, 1),
            (6, 8, 2, 2),
            (6, 8, 3, 2),
            (6, 16, 2, 2),
            (6, 24, 1, 1),
            (6, 24, 2, 2),
        ]
        for expand, outer, count, first in plan:
            for number in range(count):
                parts.append(InvertedResidual(inner, outer, first if number == 0 else 1, expand))
                inner = outer
        parts += [*conv(inner, 64, 1), nn.ReLU6()]
        self.features = nn.Sequential(*parts)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(64, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.head(torch.flatten(x, 1))


class BasicBlock(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*conv(inner, outer, 3, stride), nn.ReLU(), *conv(outer, outer, 3))
        other = stride != 1 or inner != outer
        self.side = nn.Sequential(*conv(inner, outer, 1, stride)) if other else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.side(x))


class ResNet18(nn.Module):
    def __init__(self, classes: int = 10, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[nn.Module] = []
        inner = width
        for number, outer in enumerate((width, 2 * width, 4 * width, 8 * width)):
            blocks.append(BasicBlock(inner, outer, 1 if number == 0 else 2))
            blocks.append(BasicBlock(outer, outer, 1))
            inner = outer
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(inner, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.down = nn.Conv2d(width, hidden, 1)
        self.up = nn.Conv2d(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.up(functional.silu(self.down(self.pool(x))))
        return x * torch.sigmoid(scale)


class MBConv(nn.Module):
    def __init__(self, inner: int, outer: int, size: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inner * expand
        parts: list[nn.Module] = [*conv(inner, hidden, 1), nn.SiLU()] if expand != 1 else []
        parts += [*conv(hidden, hidden, size, stride, hidden), nn.SiLU()]
        parts += [SqueezeExcite(hidden, max(1, inner // 4)), *conv(hidden, outer, 1)]
        self.body = nn.Sequential(*parts)
        self.same = stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.same else self.body(x)


class EfficientNet(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *conv(3, 8, 3, 2),
            nn.SiLU(),
            MBConv(8, 8, 3, 1, 1),
            MBConv(8, 12, 3, 2, 6),
            MBConv(12, 12, 3, 1, 6),
            MBConv(12, 16, 5, 2, 6),
            MBConv(16, 24, 3, 2, 6),
            MBConv(24, 24, 5, 1, 6),
            *conv(24, 48, 1),
            nn.SiLU(),
        )
        self.head = nn.Linear(48, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


def double(inner: int, outer: int) -> nn.Sequential:
    return nn.Sequential(*conv(inner, outer, 3), nn.ReLU(), *conv(outer, outer, 3), nn.ReLU())


class UNet(nn.Module):
    """Three levels, transposed convolutions up, and skips."""

    def __init__(self, width: int = 6, classes: int = 3) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(double(i, o) for i, o in zip([1, *widths], widths, strict=False))
        self.middle = double(widths[-1], 8 * width)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths))
        self.joined = nn.ModuleList(double(2 * w, w) for w in reversed(widths))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, joined, skip in zip(self.up, self.joined, reversed(skips), strict=True):
            x = joined(torch.cat([skip, up(x)], 1))
        return self.head(x)


class UNetAnySize(UNet):
    """The same for any height and width: what comes up is resized to the skip."""

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, joined, skip in zip(self.up, self.joined, reversed(skips), strict=True):
            x = functional.interpolate(up(x), skip.shape[2:], mode="bilinear", align_corners=False)
            x = joined(torch.cat([skip, x], 1))
        return self.head(x)


class ViT(nn.Module):
    """Patches, a class token, pre-norm encoder layers."""

    def __init__(self, side: int = 24, patch: int = 4, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(0.1 * torch.randn(1, (side // patch) ** 2 + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.body(x))[:, 0])


class ViTAnySize(ViT):
    """Positions are interpolated to the image's grid."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        rows, columns = x.shape[2], x.shape[3]
        width = x.shape[1]
        grid = self.places[:, 1:].transpose(1, 2).reshape(1, width, 6, 6)
        grid = functional.interpolate(grid, (rows, columns), mode="bicubic", align_corners=False)
        x = (x + grid).flatten(2).transpose(1, 2)
        token = (self.token + self.places[:, :1]).expand(x.shape[0], -1, -1)
        return self.head(self.norm(self.body(torch.cat([token, x], 1)))[:, 0])


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.mix(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 4, 4)
        self.first = nn.Sequential(ConvNeXtBlock(12), ConvNeXtBlock(12))
        self.down = nn.Sequential(nn.GroupNorm(1, 12), nn.Conv2d(12, 24, 2, 2))
        self.second = ConvNeXtBlock(24)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.down(self.first(self.stem(x)))).mean((2, 3)))


class SuperResolution(nn.Module):
    """Pixel shuffle at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2),
            nn.PReLU(16),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.PReLU(),
            nn.Conv2d(16, 9, 3, padding=1),
            nn.PixelShuffle(3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + functional.interpolate(x, scale_factor=3, mode="bilinear")


class WindowAttention(nn.Module):
    """A block of Swin: shifted windows, relative bias, padding to whole windows."""

    def __init__(self, width: int = 16, window: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.window, self.heads = window, heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(heads, window**2, window**2))

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, columns, width = x.shape
        w = self.window
        y = self.norm(x)
        y = functional.pad(y, (0, 0, 0, -columns % w, 0, -rows % w))
        tall, wide = y.shape[1], y.shape[2]
        y = torch.roll(y, (-w // 2, -w // 2), (1, 2))
        y = y.view(batch, tall // w, w, wide // w, w, width).permute(0, 1, 3, 2, 4, 5)
        y = y.reshape(-1, w * w, width)
        parts = self.qkv(y).view(-1, w * w, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5 + self.bias
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, w * w, width)
        y = self.out(y).view(batch, tall // w, wide // w, w, w, width)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(batch, tall, wide, width)
        y = torch.roll(y, (w // 2, w // 2), (1, 2))
        return x + y[:, :rows, :columns]


class Pyramid(nn.Module):
    """A feature pyramid: lateral convolutions, nearest resizing to run-time sizes, sums."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(*conv(i, o, 3, 2), nn.ReLU()) for i, o in ((3, 8), (8, 12), (12, 16))
        )
        self.lateral = nn.ModuleList(nn.Conv2d(w, width, 1) for w in (8, 12, 16))
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Sequence[Tensor]:
        levels = []
        for stage, lateral in zip(self.stages, self.lateral, strict=True):
            x = stage(x)
            levels.append(lateral(x))
        merged = [levels[-1]]
        for level in reversed(levels[:-1]):
            merged.append(
                level + functional.interpolate(merged[-1], size=level.shape[-2:], mode="nearest")
            )
        return [smooth(m) for smooth, m in zip(self.smooth, merged, strict=True)]


BATCH = (1, 2, 3)
IMAGE = {"x": real("batch", 3, "32*h", "32*w")}
SIDES = {"batch": BATCH, "h": (1, 3, 4), "w": (1, 2, 5)}
ANY = {"batch": BATCH, "h": (33, 47, 70), "w": (32, 61, 64)}
FREE = {"x": real("batch", 3, "h", "w")}

NETWORKS = (
    Network("mobilenet_v2", MobileNetV2, FREE, ANY),
    Network("mobilenet_v2_steps", MobileNetV2, IMAGE, SIDES),
    Network("resnet18", ResNet18, FREE, ANY),
    Network("efficientnet", EfficientNet, FREE, ANY),
    Network(
        "unet",
        UNet,
        {"x": real("batch", 1, "8*h", "8*w")},
        {"batch": BATCH, "h": (1, 3, 6), "w": (1, 3, 4)},
    ),
    Network(
        "unet_any_size",
        UNetAnySize,
        {"x": real("batch", 1, "h", "w")},
        {"batch": BATCH, "h": (17, 29, 41), "w": (16, 35, 48)},
    ),
    Network("vit", ViT, {"x": real("batch", 3, 24, 24)}, {"batch": (1, 3, 5)}),
    Network(
        "vit_any_size",
        ViTAnySize,
        {"x": real("batch", 3, "4*h", "4*w")},
        {"batch": BATCH, "h": (2, 5, 8), "w": (3, 5, 6)},
        exporters=DYNAMO,
    ),
    Network("convnext", ConvNeXt, FREE, ANY),
    Network(
        "super_resolution",
        SuperResolution,
        {"x": real("batch", 1, "h", "w")},
        {"batch": BATCH, "h": (2, 7, 16), "w": (3, 9, 12)},
    ),
    Network(
        "window_attention",
        WindowAttention,
        {"x": real("batch", "h", "w", 16)},
        {"batch": BATCH, "h": (5, 8, 13), "w": (4, 11, 14)},
    ),
    Network("pyramid", Pyramid, FREE, ANY),
)
