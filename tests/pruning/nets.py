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


@dataclass
class QuantizedNet:
    """Convolutions of 8-bit values, as a quantizer writes them (QDQ): 3 channels, 8, 8 by a
    depthwise one, 6, and their mean in a product. A dead channel has weights of zero or a scale
    that makes every sum round to one number, or nothing reads it."""

    rng: np.random.Generator
    tiny: tuple[int, ...] = ()
    zero: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    lines: list[str] = field(default_factory=list)
    weights: Weights = field(default_factory=dict)

    def pair(self, value: str, name: str, scale: float, zero: int) -> str:
        self.weights[f"{name}_s"] = np.asarray(scale, np.float32)
        self.weights[f"{name}_z"] = np.asarray(zero, np.int8)
        at = f"{name}_s, {name}_z"
        self.lines += [f"{name}_q = QuantizeLinear({value}, {at})",
                       f"{name}_d = DequantizeLinear({name}_q, {at})"]  # fmt: skip
        return f"{name}_d"

    def conv(self, value: str, name: str, shape: tuple[int, ...], step: float) -> str:
        values = self.rng.integers(-127, 128, size=shape).astype(np.int8)
        scales = self.rng.uniform(0.5, 1, shape[0]) * 0.3 / 127 / np.sqrt(np.prod(shape[1:]))
        bias = np.rint(self.rng.uniform(0.1, 0.4, shape[0]) / (step * scales))
        if name == "a":
            values[list(self.zero)] = 0
            for channel in (*self.tiny, *self.zero):
                scales[channel], bias[channel] = 1e-9, -(2**30)
        if name == "c":
            values[:, list(self.unread)] = 0
        made = {"w": (values, scales), "b": (bias.astype(np.int32), scales * step)}
        for part, (data, scale) in made.items():
            names = [f"{name}{part}", f"{name}{part}_s", f"{name}{part}_z"]
            self.weights |= dict(
                zip(names, (data, scale.astype(np.float32), np.zeros(shape[0], data.dtype)),
                    strict=True)
            )  # fmt: skip
            self.lines.append(f"{names[0]}_d = DequantizeLinear <axis = 0> ({', '.join(names)})")
        group = shape[0] if shape[1] == 1 else 1
        size, pad = shape[2], shape[2] // 2
        attrs = f"kernel_shape = [{size}, {size}], pads = {[pad] * 4}, group = {group}"
        self.lines += [
            f"{name}_c = Conv <{attrs}> ({value}, {name}w_d, {name}b_d)",
            f"{name}_r = Relu({name}_c)",
        ]
        return self.pair(f"{name}_r", name, 0.02, -128)

    def model(self) -> onnx.ModelProto:
        value = self.pair("x", "input", 1 / 64, 3)
        layers = {"a": (8, 3, 3, 3), "b": (8, 1, 3, 3), "c": (6, 8, 1, 1)}
        step = 1 / 64
        for name, shape in layers.items():
            value, step = self.conv(value, name, shape, step), 0.02
        self.lines.append(f"mean = GlobalAveragePool({value})")
        flat = self.pair("mean", "pooled", 0.02, -128)
        product = self.rng.integers(-127, 128, size=(6, 4)).astype(np.int8)
        self.weights |= {"p": product, "p_s": np.asarray(0.01, np.float32)}
        self.lines += [
            f"flat = Flatten({flat})",
            "p_d = DequantizeLinear(p, p_s)",
            "logits = MatMul(flat, p_d)",
        ]
        result = self.pair("logits", "result", 0.05, 0)
        self.lines.append(f"y = Identity({result})")
        return model_of(
            "net (float[n, 3, h, wd] x) => (float[n, 4] y)", "\n".join(self.lines), self.weights
        )


def image(rng: np.random.Generator, model: onnx.ModelProto, sizes: dict[str, int]) -> Array:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    shape = [sizes.get(d.dim_param, d.dim_value) for d in dims]
    return rng.normal(size=shape).astype(np.float32)
