# SPDX-License-Identifier: Apache-2.0
"""This machine, without its vector unit: 16 registers, displacements of any size.

Tiles of bytes are exact without VPDPBUSD too, for they do not use VPMADDUBSW, which saturates.
"""

from functools import partial

from relax_aot.scheduling.strategies.dot_channels import (
    DOT2_I16,
    DOT4_U8,
    Form,
    channels,
    depthwise_channels,
    strided_channels,
)
from relax_aot.scheduling.strategies.dot_positions import positions
from relax_aot.scheduling.strategies.f32_channel_blocks import channel_blocks
from relax_aot.scheduling.strategies.f32_in_place import in_place
from relax_aot.scheduling.strategies.f32_nhwc import depthwise, windows
from relax_aot.scheduling.strategies.f32_padded_rows import padded_rows
from relax_aot.scheduling.strategies.f32_tiles import im2col, tiles
from relax_aot.scheduling.strategies.f32_transposed import transposed
from relax_aot.scheduling.targets import Strategy, Target


def dot_products(*forms: Form) -> tuple[Strategy, ...]:
    """Of the first form whose operands hold both factors."""
    each = (channels, positions, strided_channels)
    tiled = (partial(one, form) for form in forms for one in each)
    return (depthwise_channels, *tiled)


TARGET = Target(
    "host",
    needs=(),
    registers=16,
    pointers=10,
    reach=1 << 30,
    block=96,
    code=32768,
    families=("host",),
    rows=24,
    panel=1 << 18,
    strip=1 << 13,
    sums=7,
    dots="16",
    group_rows=96,
    halves=True,
    partial_sums=32,
    functions=1024,
    gates=1024,
    strategies=dot_products(DOT4_U8, DOT2_I16),
    float_channels=16,
    transposes=True,
    byte_rows=True,
    stores=64,
    expands=1 << 18,
    floats=(in_place, windows, depthwise, channel_blocks, padded_rows, im2col, tiles, transposed),
)
