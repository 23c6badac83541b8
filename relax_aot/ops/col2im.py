# SPDX-License-Identifier: Apache-2.0
"""col2im: sums overlapping blocks into an image.

The columns are the blocks in row-major order of their places; each element of the image
gathers what the blocks that cover it hold for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import Shape, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_equal, must_not_exceed, require
from relax_aot.ops._window import Sizes, Strides, reaching, usual


@dataclass(frozen=True, kw_only=True)
class Blocks(Strides):
    image: Sizes
    block: Sizes

    @property
    def taps(self) -> Dim:
        return prod(map(Dim.of, self.block), start=Dim.of(1))

    @property
    def places(self) -> Shape:
        """How many blocks lie along each axis."""
        return self.window(self.block).sizes(tuple(map(Dim.of, self.image)))


def _type(attrs: Blocks, x: TensorType) -> TensorType:
    image = tuple(map(Dim.of, attrs.image))
    require(x.rank == 3 and len(image) == len(attrs.block), f"col2im cannot take {x}")
    return TensorType(x.dtype, (x.shape[0], x.shape[1] // attrs.taps, *image))


def _conditions(attrs: Blocks, x: TensorType) -> list[Condition]:
    places, image = attrs.places, map(Dim.of, attrs.image)
    channels = x.shape[1] // attrs.taps * attrs.taps
    return [
        *(must_not_exceed(0, n, "col2im's blocks") for n in (*places, *image)),
        must_equal(x.shape[2], prod(places, start=Dim.of(1)), "col2im's blocks"),
        must_equal(x.shape[1], channels, "col2im's channels"),
    ]


def _lower(attrs: Blocks, k: KernelBuilder, x: Buffer, y: Buffer) -> None:
    places, block = attrs.places, attrs.block
    zero = 0.0 if x.dtype.is_float else 0
    with k.loops(*y.shape) as (n, channel, *at):
        total = k.local("total", x.dtype, zero)
        with reaching(k, tuple(at), places, attrs.window(block)) as (tap, place):
            row, column = channel, Dim.of(0)
            for axis, size in enumerate(places):
                row = row * Dim.of(block[axis]) + tap[axis]
                column = column * size + place[axis]
            k.assign(total, total + x[(n, row, column)])
        k.store(y[(n, channel, *at)], total)


def _reference(attrs: Blocks, x: Array) -> Array:
    image, block, pads = (list(map(int, a)) for a in (attrs.image, attrs.block, attrs.pads))
    rank = len(block)
    places = [d.constant for d in attrs.places]
    strides, dilations = attrs.strides, attrs.dilations
    full = [image[a] + pads[a] + pads[a + rank] for a in range(rank)]
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    channels = x.shape[1] // prod(block)
    blocks = wide.reshape(x.shape[0], channels, *block, *places)
    y = np.zeros((x.shape[0], channels, *full), wide.dtype)
    for tap in np.ndindex(*block):
        where = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, places, strides, strict=True)
        )
        y[(slice(None), slice(None), *where)] += blocks[(slice(None), slice(None), *tap)]
    cut = tuple(slice(pads[a], pads[a] + image[a]) for a in range(rank))
    return np.asarray(y[(slice(None), slice(None), *cut)]).astype(x.dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(channels: int, image: tuple[int, ...], block: tuple[int, ...], **more: Any) -> Sample:
        attrs = usual(len(block), image=image, block=block, **more)
        columns = prod(d.constant for d in Blocks(**attrs).places)
        x = rng.normal(size=(2, channels * prod(block), columns)).astype(np.float32)
        return Sample((x,), attrs, symbolic=False)

    return [
        case(3, (5, 5), (1, 5)),
        case(1, (5, 6), (2, 3), strides=(2, 1), pads=(1, 0, 1, 2)),
        case(2, (7, 7), (2, 2), dilations=(2, 3)),
        case(2, (7, 8), (3, 2), dilations=(2, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        case(1, (4, 3, 5), (2, 2, 2)),
        case(2, (9,), (3,), strides=(3,)),
    ]


OP = Op("col2im", _type, _lower, _reference, _samples, conditions=_conditions, record=Blocks)
