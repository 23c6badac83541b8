# SPDX-License-Identifier: Apache-2.0
"""Random networks in which channels are dead or constant."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx

from tests.models.onnx_text import Array, Weights, model_of


@dataclass
class Net:
    """Layers one after the other; `channels` are those of the last value. `sizes` are its spatial
    axes: names for symbolic ones."""

    rng: np.random.Generator
    rank: int
    symbolic: bool
    channels: int = 3
    value: str = "x"
    lines: list[str] = field(default_factory=list)
    weights: Weights = field(default_factory=dict)
    before: list[tuple[str, int]] = field(default_factory=list)

    def weight(self, *shape: int, spread: float = 1.0) -> str:
        """Weights of which some filters and some inputs of filters are zero."""
        name = f"w{len(self.weights)}"
        values = self.rng.normal(size=shape) * spread
        for axis in range(min(2, len(shape))):
            zero = self.rng.random(shape[axis]) < 0.35
            values[(slice(None),) * axis + (zero,)] = 0
        self.weights[name] = values.astype(np.float32)
        return name

    def node(self, text: str, channels: int | None = None) -> None:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.value, self.channels = name, channels or self.channels

    def conv(self) -> None:
        groups = int(self.rng.choice([1, 1, self.channels, 2 if self.channels % 2 == 0 else 1]))
        per_group = int(self.rng.integers(1, 3)) if groups > 1 else int(self.rng.integers(2, 7))
        filters, size = groups * per_group, int(self.rng.choice([1, 3]))
        padded = self.rng.random() < 0.7
        w = self.weight(filters, self.channels // groups, *[size] * self.rank)
        args = [self.value, w] + ([self.weight(filters)] if self.rng.random() < 0.8 else [])
        kernel, pads = [size] * self.rank, [(size // 2) * padded] * 2 * self.rank
        if size == 3 and not padded:
            pads = [1] * 2 * self.rank  # the extent stays
        self.node(
            f"Conv <kernel_shape = {kernel}, pads = {pads}, group = {groups}> ({', '.join(args)})",
            filters,
        )

    def activation(self) -> None:
        self.node(f"{self.rng.choice(['Relu', 'Tanh', 'Abs', 'HardSwish'])}({self.value})")

    def scaled(self) -> None:
        factor = self.weight(self.channels, *[1] * self.rank)
        self.node(f"{self.rng.choice(['Mul', 'Add'])}({self.value}, {factor})")

    def joined(self) -> None:
        other, channels = self.before[int(self.rng.integers(len(self.before)))]
        if channels == self.channels and self.rng.random() < 0.7:
            self.node(f"{self.rng.choice(['Add', 'Mul'])}({self.value}, {other})")
        elif channels + self.channels <= 10:
            self.node(f"Concat <axis = 1> ({self.value}, {other})", channels + self.channels)

    def sliced(self) -> None:
        if self.channels < 4:
            return
        first, step = int(self.rng.integers(0, 2)), int(self.rng.integers(1, 3))
        names = [f"s{len(self.lines)}_{part}" for part in range(4)]
        for name, number in zip(names, (first, self.channels, 1, step), strict=True):
            self.weights[name] = np.array([number], np.int64)
        kept = len(range(first, self.channels, step))
        self.node(f"Slice({self.value}, {', '.join(names)})", kept)

    def pool(self) -> None:
        name = self.rng.choice(["MaxPool", "AveragePool"])
        kernel, pads = [3] * self.rank, [1] * 2 * self.rank
        self.node(f"{name} <kernel_shape = {kernel}, pads = {pads}> ({self.value})")

    def normalized(self) -> None:
        parts = [self.weight(self.channels) for _ in range(3)]
        spread = f"w{len(self.weights)}"
        self.weights[spread] = self.rng.uniform(0.5, 2, self.channels).astype(np.float32)
        self.node(f"BatchNormalization({self.value}, {', '.join([*parts, spread])})")

    def model(self) -> onnx.ModelProto:
        """With a mean over all places and a product at the end."""
        space = ["h", "wd"][: self.rank] if self.symbolic else ["5", "4"][: self.rank]
        axes = list(range(2, 2 + self.rank))
        self.node(f"ReduceMean <axes = {axes}, keepdims = 0> ({self.value})")
        product = self.weight(self.channels, 3)
        self.lines.append(f"y = MatMul({self.value}, {product})")
        batch = "n" if self.symbolic else "1"
        return model_of(
            f"net (float[{batch}, 3, {', '.join(space)}] x) => (float[{batch}, 3] y)",
            "\n".join(self.lines),
            self.weights,
        )


def random_net(seed: int) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    net = Net(rng, rank=int(rng.integers(1, 3)), symbolic=bool(rng.random() < 0.5))
    steps = [
        net.conv, net.conv, net.conv, net.activation, net.activation, net.scaled, net.joined,
        net.joined, net.sliced, net.pool, net.normalized,
    ]  # fmt: skip
    net.conv()
    for _ in range(int(rng.integers(3, 9))):
        net.before.append((net.value, net.channels))
        steps[int(rng.integers(len(steps)))]()
    return net.model()


def image(rng: np.random.Generator, model: onnx.ModelProto, sizes: dict[str, int]) -> Array:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    shape = [sizes.get(d.dim_param, d.dim_value) for d in dims]
    return rng.normal(size=shape).astype(np.float32)
