# SPDX-License-Identifier: Apache-2.0
"""Random networks for proofs: layers of all groups, in floats and quantized to int8.

A network is drawn layer by layer from its seed: convolutions (plain, depthwise, dilated, with
asymmetric padding), pooling, normalization, dense layers, recurrences, attention, sums of
branches, concatenation, resizing, and an ending (dense, softmax, argmax, global pooling). Sizes
are small, since a proof goes through many loops iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import numpy as np

from relax_aot.driver import Options
from relax_aot.quantization import Choice
from tests.models.onnx_text import Array, model_of, random_weights
from tests.trust.proven import Proven

SAMPLES = 6
ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish")


@dataclass
class _Net:
    """The lines of a model under construction, and the shape of its last value; the first
    symbolic axis is called n."""

    random: Random
    rng: np.random.Generator
    lines: list[str] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    count: int = 0

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def weight(self, *shape: int) -> str:
        name = self.new("w")
        self.weights |= random_weights(self.rng, **{name: shape})
        return name

    def positive(self, size: int) -> str:
        name = self.new("w")
        self.weights[name] = self.rng.uniform(0.5, 1.5, size).astype(np.float32)
        return name

    def ints(self, *values: int, scalar: bool = False) -> str:
        name = self.new("c")
        self.weights[name] = np.array(values[0] if scalar else values, np.int64)
        return name

    def call(self, operator: str, *inputs: str, attributes: str = "") -> str:
        name = self.new("v")
        given = f" <{attributes}>" if attributes else ""
        self.lines.append(f"{name} = {operator}{given} ({', '.join(inputs)})")
        return name


@dataclass(frozen=True)
class _Made:
    """The name of the result, the shape of the input `x`, and the upper bounds of its symbols."""

    result: str
    shape: tuple[str | int, ...]
    bounds: Mapping[str, int]
    rank: int = 2


def _activated(net: _Net, x: str) -> str:
    return x if net.random.random() < 0.3 else net.call(net.random.choice(ACTIVATIONS), x)


def _convolved(net: _Net, x: str, channels: int) -> tuple[str, int]:
    random = net.random
    to = random.choice((3, 4, 5, 8))
    size = random.choice((1, 2, 3))
    stride, dilation = random.choice((1, 1, 2)), random.choice((1, 1, 2))
    before, after = size * dilation // 2, (size - 1) * dilation - size * dilation // 2 + 1
    pads = f"pads = [{before}, {before}, {max(after, 0)}, {max(after, 0)}]"
    shape = f"kernel_shape = [{size}, {size}], strides = [{stride}, {stride}]"
    shape += f", dilations = [{dilation}, {dilation}], {pads}"
    if random.random() < 0.35:
        shape += f", group = {channels}"
        w, to = net.weight(channels, 1, size, size), channels
    else:
        w = net.weight(to, channels, size, size)
    return _activated(net, net.call("Conv", x, w, net.weight(to), attributes=shape)), to


def _pooled(net: _Net, x: str) -> str:
    kind = net.random.choice(("MaxPool", "AveragePool"))
    edges = "pads = [1, 1, 1, 1]" if net.random.random() < 0.5 else "pads = [1, 0, 1, 1]"
    stride = net.random.choice((1, 2))
    return net.call(
        kind, x, attributes=f"kernel_shape = [3, 2], strides = [{stride}, {stride}], {edges}"
    )


def _image(net: _Net) -> _Made:
    """A convolution network over images whose height is a symbol."""
    c = first = net.random.choice((1, 2, 3))
    x = "x"
    for _ in range(net.random.randint(1, 4)):
        kind = net.random.random()
        if kind < 0.5:
            x, c = _convolved(net, x, c)
        elif kind < 0.65:
            x = _pooled(net, x)
        elif kind < 0.75:
            vectors = [net.positive(c), net.weight(c), net.weight(c), net.positive(c)]
            x = net.call("BatchNormalization", x, *vectors)
        elif kind < 0.85:
            branch = net.call("Conv", x, net.weight(c, c, 1, 1), attributes="kernel_shape = [1, 1]")
            x = net.call("Add", x, branch)
        elif kind < 0.93:
            x, c = net.call("Concat", x, _activated(net, x), attributes="axis = 1"), 2 * c
        else:
            factors = net.new("c")
            net.weights[factors] = np.array([1, 1, 2, 1], np.float32)
            x = net.call("Resize", x, "", factors, attributes='mode = "nearest"')
    rank = 4
    if net.random.random() < 0.75:
        rank = 2
        x = net.call("GlobalAveragePool", x)
        x = net.call("Flatten", x, attributes="axis = 1")
        classes = net.random.choice((2, 3, 5))
        x = net.call("Gemm", x, net.weight(c, classes), net.weight(classes))
        x = _ended(net, x)
    return _Made(x, ("batch", first, "n", 6), {"batch": 2, "n": 9}, rank)


def _ended(net: _Net, x: str) -> str:
    ending = net.random.choice(("Softmax", "Softmax", "Sigmoid", "none", "ArgMax", "LogSoftmax"))
    if ending == "none":
        return net.call("Identity", x)
    return net.call(ending, x, attributes="axis = 1" if ending != "Sigmoid" else "")


def _rows(net: _Net) -> _Made:
    """Dense layers over n rows."""
    width = net.random.choice((4, 6, 9))
    x, c = "x", width
    for _ in range(net.random.randint(1, 4)):
        kind = net.random.random()
        if kind < 0.6:
            to = net.random.choice((3, 5, 8))
            x = net.call("Add", net.call("MatMul", x, net.weight(c, to)), net.weight(to))
            x, c = _activated(net, x), to
        elif kind < 0.75:
            x = net.call(
                "LayerNormalization", x, net.positive(c), net.weight(c), attributes="axis = -1"
            )
        elif kind < 0.9:
            x = net.call("Mul", x, net.call("Sigmoid", x))
        else:
            x = net.call("Sub", x, net.call("ReduceMax", x, attributes="axes = [0], keepdims = 1"))
    return _Made(_ended(net, x), ("n", width), {"n": 11})


def _sequence(net: _Net) -> _Made:
    """A recurrence over n steps, and a dense layer."""
    width, hidden = net.random.choice((3, 5)), net.random.choice((4, 6))
    kind, gates = net.random.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    both = net.random.random() < 0.3
    ways = 2 if both else 1
    w, r = net.weight(ways, gates * hidden, width), net.weight(ways, gates * hidden, hidden)
    b = net.weight(ways, 2 * gates * hidden)
    direction = ', direction = "bidirectional"' if both else ""
    x = net.call(kind, "x", w, r, b, attributes=f"hidden_size = {hidden}{direction}")
    flat = net.call("Transpose", x, attributes="perm = [0, 2, 1, 3]")
    flat = net.call("Reshape", flat, net.ints(-1, ways * hidden))
    x = net.call("Gemm", flat, net.weight(ways * hidden, 3), net.weight(3))
    return _Made(_ended(net, x), ("n", 2, width), {"n": 9})


def _attending(net: _Net) -> _Made:
    """Self-attention of one head over n rows."""
    width = net.random.choice((4, 6))
    q, k, v = (net.call("MatMul", "x", net.weight(width, width)) for _ in range(3))
    scores = net.call("MatMul", q, net.call("Transpose", k, attributes="perm = [1, 0]"))
    mixed = net.call("MatMul", net.call("Softmax", scores, attributes="axis = -1"), v)
    x = net.call("Add", "x", mixed)
    x = net.call("LayerNormalization", x, net.positive(width), net.weight(width))
    x = net.call("Gemm", x, net.weight(width, 4), net.weight(4))
    return _Made(_ended(net, x), ("n", width), {"n": 9})


def _selecting(net: _Net) -> _Made:
    """Indices and sizes from data: rows of greatest elements, masks, cumulative sums, padding."""
    width = first = net.random.choice((3, 4))
    x = "x"
    for _ in range(net.random.randint(1, 3)):
        kind = net.random.randrange(6)
        if kind == 0:
            best = net.call("ArgMax", x, attributes="axis = 0, keepdims = 0")
            x = net.call("Gather", x, best, attributes="axis = 0")
        elif kind == 1:
            x = net.call("CumSum", x, net.ints(0, scalar=True))
        elif kind == 2:
            x = net.call("Where", net.call("Greater", x, net.weight(1)), x, net.weight(1))
        elif kind == 3:
            x, width = net.call("Pad", x, net.ints(1, 0, 2, 1)), width + 1
        elif kind == 4:
            x = net.call("Slice", x, net.ints(-1), net.ints(-100), net.ints(0), net.ints(-1))
        else:
            above = net.call(
                "Greater",
                net.call("ReduceMax", x, attributes="axes = [1], keepdims = 0"),
                net.weight(1),
            )
            x = net.call("Compress", x, above, attributes="axis = 0")
    x = net.call("Gemm", x, net.weight(width, 3), net.weight(3))
    return _Made(_ended(net, x), ("n", first), {"n": 7})


MAKERS: tuple[Callable[[_Net], _Made], ...] = (
    _image, _rows, _sequence, _attending, _image, _selecting,
)  # fmt: skip


def random_net(seed: int) -> Proven:
    """The network of a seed; of each kind, every second one is quantized to int8."""
    net = _Net(Random(seed), np.random.default_rng(seed))
    made = MAKERS[seed % len(MAKERS)](net)
    net.lines.append(f"y = Identity ({made.result})")
    shape = ", ".join(map(str, made.shape))
    ending = net.lines[-2]
    kind = "int64" if ending.startswith(f"{made.result} = ArgMax") else "float"
    result = ", ".join(f"r{axis}" for axis in range(made.rank))
    signature = f"net (float[{shape}] x) => ({kind}[{result}] y)"
    model = model_of(signature, "\n".join(net.lines), net.weights)
    bounds = {name: (1, high) for name, high in made.bounds.items()}
    if seed // len(MAKERS) % 2 == 0:
        return Proven(lambda: model, Options(bounds=bounds, name="net"))
    sizes = [made.bounds[axis] if isinstance(axis, str) else axis for axis in made.shape]
    samples = net.rng.normal(size=(SAMPLES, *sizes)).astype(np.float32)
    return Proven(
        lambda: model,
        Options(bounds=bounds, name="net", quantize=Choice(), calibrate={"x": samples}),
    )
