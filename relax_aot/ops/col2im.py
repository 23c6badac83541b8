"""col2im: sums overlapping blocks into an image.

The columns are the blocks in row-major order of their places; each element of the image
gathers what the blocks that cover it hold for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer
from relax_aot.ir.types import Shape, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_equal, must_not_exceed, require
from relax_aot.ops._window import Sizes, output_sizes, reaching


def _places(
    image: Sizes, block: Sizes, *, strides: Sequence[int], pads: Sizes, dilations: Sequence[int]
) -> Shape:
    """How many blocks lie along each axis."""
    sizes = tuple(Dim.of(size) for size in image)
    return output_sizes(sizes, block, strides, pads, dilations)


def _taps(block: Sizes) -> Dim:
    return prod(map(Dim.of, block), start=Dim.of(1))


def _type(x: TensorType, *, image: Sizes, block: Sizes, **attrs: Any) -> TensorType:
    require(x.rank == 3 and len(image) == len(block), f"col2im cannot take {x}")
    return TensorType(x.dtype, (x.shape[0], x.shape[1] // _taps(block), *map(Dim.of, image)))


def _conditions(x: TensorType, *, image: Sizes, block: Sizes, **attrs: Any) -> list[Condition]:
    places = _places(image, block, **attrs)
    total = prod(places, start=Dim.of(1))
    channels = x.shape[1] // _taps(block) * _taps(block)
    inside = [must_not_exceed(0, n, "col2im's blocks") for n in (*places, *map(Dim.of, image))]
    return [
        *inside,
        must_equal(x.shape[2], total, "col2im's blocks"),
        must_equal(x.shape[1], channels, "col2im's channels"),
    ]


def _lower(
    k: KernelBuilder, x: Buffer, y: Buffer, *, image: Sizes, block: Sizes, **attrs: Any
) -> None:
    places = _places(image, block, **attrs)
    zero = 0.0 if x.dtype.is_float else 0
    with k.loops(*y.shape) as (n, channel, *at):
        total = k.local("total", x.dtype, zero)
        windows = reaching(
            k, tuple(at), places, block, attrs["strides"], attrs["pads"], attrs["dilations"]
        )
        with windows as (tap, place):
            row, column = channel, Dim.of(0)
            for axis, size in enumerate(places):
                row = row * Dim.of(block[axis]) + tap[axis]
                column = column * size + place[axis]
            k.assign(total, total + x[(n, row, column)])
        k.store(y[(n, channel, *at)], total)


def _reference(x: Array, *, image: Sequence[int], block: Sequence[int], **attrs: Any) -> Array:
    rank = len(block)
    places = [d.constant for d in _places(image, block, **attrs)]
    pads, strides, dilations = attrs["pads"], attrs["strides"], attrs["dilations"]
    full = [int(image[a]) + pads[a] + pads[a + rank] for a in range(rank)]
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    blocks = wide.reshape(x.shape[0], -1, *block, *places)
    y = np.zeros((x.shape[0], blocks.shape[1], *full), wide.dtype)
    for tap in np.ndindex(*block):
        where = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, places, strides, strict=True)
        )
        y[(slice(None), slice(None), *where)] += blocks[(slice(None), slice(None), *tap)]
    cut = tuple(slice(pads[a], pads[a] + int(image[a])) for a in range(rank))
    return np.asarray(y[(slice(None), slice(None), *cut)]).astype(x.dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def case(channels: int, image: tuple[int, ...], block: tuple[int, ...], **more: Any) -> Sample:
        rank = len(block)
        attrs = {
            "strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank, **more,
        }  # fmt: skip
        columns = prod(d.constant for d in _places(image, block, **attrs))
        x = rng.normal(size=(2, channels * prod(block), columns)).astype(np.float32)
        return Sample((x,), {"image": image, "block": block, **attrs}, symbolic=False)

    return [
        case(3, (5, 5), (1, 5)),
        case(1, (5, 6), (2, 3), strides=(2, 1), pads=(1, 0, 1, 2)),
        case(2, (7, 7), (2, 2), dilations=(2, 3)),
        case(2, (7, 8), (3, 2), dilations=(2, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        case(1, (4, 3, 5), (2, 2, 2)),
        case(2, (9,), (3,), strides=(3,)),
    ]


OP = Op("col2im", _type, _lower, _reference, _samples, conditions=_conditions, rules=(_places,))
