# SPDX-License-Identifier: Apache-2.0
"""Networks that hear, that find things, and that walk along edges."""

from __future__ import annotations

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from tests.networks.network import DYNAMO, TORCHSCRIPT, Network, real, whole


class ConvModule(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first = nn.Conv1d(width, 2 * width, 1)
        self.mix = nn.Conv1d(width, width, 15, padding=7, groups=width)
        self.batch = nn.BatchNorm1d(width)
        self.last = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.glu(self.first(self.norm(x).transpose(1, 2)), 1)
        return self.last(functional.silu(self.batch(self.mix(y)))).transpose(1, 2)


def feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, 64), nn.SiLU(), nn.Dropout(0.1), nn.Linear(64, width)
    )


class Conformer(nn.Module):
    """Two strided convolutions in front, then a whole block."""

    def __init__(self, features: int = 20, width: int = 24) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 6, 3, 2), nn.ReLU(), nn.Conv2d(6, 6, 3, 2), nn.ReLU()
        )
        self.embed = nn.Linear(6 * (((features - 1) // 2 - 1) // 2), width)
        self.first, self.second = feed_forward(width), feed_forward(width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.conv = ConvModule(width)
        self.last = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x.unsqueeze(1))
        batch, channels, time, features = y.shape
        y = self.embed(y.transpose(1, 2).reshape(batch, time, channels * features))
        y = y + 0.5 * self.first(y)
        z = self.norm(y)
        y = y + self.attention(z, z, z, need_weights=False)[0]
        y = y + self.conv(y)
        return self.last(y + 0.5 * self.second(y)).log_softmax(-1)


class TemporalBlock(nn.Module):
    """Dilated causal convolutions whose surplus is cut off."""

    def __init__(self, inner: int, outer: int, dilation: int) -> None:
        super().__init__()
        self.cut = 2 * dilation
        self.first = weight_norm(nn.Conv1d(inner, outer, 3, padding=self.cut, dilation=dilation))
        self.second = weight_norm(nn.Conv1d(outer, outer, 3, padding=self.cut, dilation=dilation))
        self.side = nn.Conv1d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first(x)[:, :, : -self.cut])
        y = functional.relu(self.second(y)[:, :, : -self.cut])
        return functional.relu(y + self.side(x))


class Tcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(TemporalBlock(4 if i == 0 else 12, 12, 2**i) for i in range(4)))
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[:, :, -1])


class WaveNet(nn.Module):
    """Gated dilated convolutions with skips, padded on the left."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(4))
        self.out = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(4))
        self.head = nn.Conv1d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        skips = torch.zeros_like(x)
        for number, (gated, out) in enumerate(zip(self.gated, self.out, strict=True)):
            a, b = gated(functional.pad(x, (2**number, 0))).chunk(2, 1)
            step, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, skips = x + step, skips + skip
        return self.head(functional.relu(skips))


class Crnn(nn.Module):
    """Columns of an image become steps of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d((2, 1), (2, 1)),
            nn.Conv2d(16, 16, (4, 1)),
        )
        self.recurrent = nn.LSTM(16, 12, 2, bidirectional=True)
        self.head = nn.Linear(24, 11)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).squeeze(2).permute(2, 0, 1)
        y, _ = self.recurrent(y)
        return functional.log_softmax(self.head(y), 2)


class Detector(nn.Module):
    """An SSD-like head up to the boxes: anchors by the grid's size, decoded, sorted by score."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1))
        self.boxes = nn.Conv2d(8, 8, 3, padding=1)
        self.scores = nn.Conv2d(8, 6, 3, padding=1)
        self.register_buffer("anchors", torch.tensor([[8.0, 8.0], [12.0, 6.0]]))

    def decoded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = functional.relu(self.body(x))
        batch, rows, columns = y.shape[0], y.shape[2], y.shape[3]
        moves = self.boxes(y).view(batch, 2, 4, rows, columns)
        moves = moves.permute(0, 3, 4, 1, 2).reshape(batch, -1, 4)
        scores = self.scores(y).view(batch, 2, 3, rows, columns)
        scores = scores.permute(0, 3, 4, 1, 2).reshape(batch, -1, 3).sigmoid()
        ys, xs = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        centers = torch.stack([xs, ys], -1).float().reshape(-1, 1, 2) * 4 + 2
        centers = centers.expand(-1, 2, -1).reshape(-1, 2)
        sides = self.anchors[None].expand(rows * columns, -1, -1).reshape(-1, 2)
        middle = centers + moves[..., :2] * sides
        size = torch.exp(moves[..., 2:].clamp(max=4)) * sides
        return torch.cat([middle - size / 2, middle + size / 2], -1), scores

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores = self.decoded(x)
        best, kind = scores.max(-1)
        top, order = best.topk(min(4, 8), 1)
        picked = boxes.gather(1, order[..., None].expand(-1, -1, 4))
        return picked, top, kind.gather(1, order)


class SuppressingDetector(Detector):
    """With torchvision's NonMaxSuppression: the number of boxes is known at run time only."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        boxes, scores = self.decoded(x)
        best, kind = scores[0].max(-1)
        keep = torchvision.ops.nms(boxes[0], best, 0.5)
        return boxes[0][keep], best[keep], kind[keep]


class GraphLayer(nn.Module):
    """Messages along edges, added up at their ends, divided by their number."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.message = nn.Linear(2 * inner + 2, outer)
        self.update = nn.Linear(inner + outer, outer)

    def forward(self, x: Tensor, edges: Tensor, features: Tensor) -> Tensor:
        begin, end = edges[0], edges[1]
        sent = functional.relu(self.message(torch.cat([x[begin], x[end], features], -1)))
        total = torch.zeros(x.shape[0], sent.shape[1]).index_add(0, end, sent)
        count = torch.zeros(x.shape[0]).index_add(0, end, torch.ones_like(end, dtype=x.dtype))
        mean = total / count.clamp(min=1)[:, None]
        return functional.elu(self.update(torch.cat([x, mean], -1)))


class Gnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GraphLayer(6, 10), GraphLayer(10, 10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor, edges: Tensor, features: Tensor) -> Tensor:
        x = self.second(self.first(x, edges, features), edges, features)
        return self.head(x.mean(0))


class GraphAttention(nn.Module):
    """Softmax over the edges that end at a vertex, by scatter_reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 8)
        self.left, self.right = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        begin, end = edges[0], edges[1]
        y = self.enter(x)
        score = functional.leaky_relu(self.left(y)[begin] + self.right(y)[end], 0.2)[:, 0]
        top = torch.full((x.shape[0],), -1e9).scatter_reduce(0, end, score, "amax")
        weight = (score - top[end]).exp()
        total = torch.zeros(x.shape[0]).scatter_add(0, end, weight)
        weight = weight / (total[end] + 1e-9)
        place = end[:, None].expand(-1, 8)
        return torch.zeros_like(y).scatter_add(0, place, weight[:, None] * y[begin])


SOUND = {"batch": (1, 2, 3), "n": (1, 21, 40)}

NETWORKS = (
    Network(
        "conformer",
        Conformer,
        {"x": real("batch", "n", 20)},
        {"batch": (1, 2, 3), "n": (7, 22, 41)},
        exporters=DYNAMO,
    ),
    Network("tcn", Tcn, {"x": real("batch", 4, "n")}, SOUND),
    Network("wavenet", WaveNet, {"x": real("batch", 1, "n")}, SOUND),
    Network("crnn", Crnn, {"x": real("batch", 1, 16, "w")}, {"batch": (1, 2, 3), "w": (2, 17, 40)}),
    Network(
        "detector",
        Detector,
        {"x": real("batch", 3, "h", "w")},
        {"batch": (1, 2, 3), "h": (9, 14, 21), "w": (8, 13, 24)},
    ),
    Network(
        "suppressing_detector",
        SuppressingDetector,
        {"x": real(1, 3, "h", "w")},
        {"h": (9, 14, 21), "w": (8, 13, 24)},
        exporters=TORCHSCRIPT,
    ),
    Network(
        "gnn",
        Gnn,
        {
            "x": real("n", 6),
            "edges": whole(2, 2, "m"),
            "features": real("m", 2),
        },
        {"n": (2, 5, 9), "m": (1, 7, 20)},
    ),
    Network(
        "graph_attention",
        GraphAttention,
        {"x": real("n", 6), "edges": whole(2, 2, "m")},
        {"n": (2, 5, 9), "m": (1, 7, 20)},
    ),
)
