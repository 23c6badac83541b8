# SPDX-License-Identifier: Apache-2.0
"""What a network of the set is: a module, its inputs by name, the sizes it is run at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from relax_aot.ir.dims import parse_dim

Array = NDArray[np.generic]
DYNAMO = ("dynamo",)
"""TorchScript's exporter writes the example's length into nn.MultiheadAttention."""
TORCHSCRIPT = ("torchscript",)
"""The other exporter lacks an operator, writes the example's length (into nn.RNN), or writes
sequences, which are refused."""
Maker = Callable[[np.random.Generator, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Input:
    """An input: its shape, of sizes and expressions (`16*h`), and what fills it."""

    shape: tuple[int | str, ...]
    make: Maker

    def array(self, rng: np.random.Generator, sizes: Mapping[str, int]) -> Array:
        return self.make(rng, self.shape_at(sizes))

    def shape_at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(
            parse_dim(size).evaluate(sizes) if isinstance(size, str) else size
            for size in self.shape
        )


def real(*shape: int | str) -> Input:
    """Normal numbers."""
    return Input(shape, lambda rng, s: rng.standard_normal(s).astype(np.float32))


def whole(below: int, *shape: int | str) -> Input:
    """Whole numbers from 0, such as tokens."""
    return Input(shape, lambda rng, s: rng.integers(0, below, s).astype(np.int64))


def padding(*shape: int | str) -> Input:
    """What is to be passed over; never the first of a row."""

    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        values = rng.random(shape) < 0.3
        values[..., 0] = False
        return values

    return Input(shape, make)


def count(last: int, *shape: int | str) -> Input:
    """Whole numbers from 1 up to and with `last`."""
    return Input(shape, lambda rng, s: rng.integers(1, last + 1, s).astype(np.int64))


@dataclass(frozen=True)
class Network:
    """A module with random weights. `sizes` are low, odd and the bound, by symbol."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Mapping[str, Input]
    sizes: Mapping[str, tuple[int, int, int]]
    tolerance: float = 2e-4
    """Of the largest number in an output."""
    exporters: tuple[str, ...] = ("dynamo", "torchscript")
    """Those of PyTorch's exporters that can export it at all."""

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        return {symbol: (low, high) for symbol, (low, _, high) in self.sizes.items()}

    def at(self, which: int) -> dict[str, int]:
        return {symbol: values[which] for symbol, values in self.sizes.items()}

    def arrays(self, which: int) -> dict[str, Array]:
        rng = np.random.default_rng(which)
        return {name: port.array(rng, self.at(which)) for name, port in self.inputs.items()}
