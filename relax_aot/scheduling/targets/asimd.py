# SPDX-License-Identifier: Apache-2.0
"""64-bit Arm with its Advanced SIMD: 32 vectors of four floats."""

from dataclasses import replace

from relax_aot.scheduling.strategies.dot_channels import DOT4_I8
from relax_aot.scheduling.strategies.f32_padded_rows import padded_rows
from relax_aot.scheduling.strategies.f32_tiles import im2col, tiles
from relax_aot.scheduling.targets import host

TARGET = replace(
    host.TARGET,
    name="asimd",
    needs=("fpu", "asimd"),
    families=(),
    registers=32,
    pointers=20,
    reach=16380,
    panel=1 << 17,
    dots="_asimd",
    partial_sums=16,
    byte_rows=True,
    wide_rows=True,
    functions=0,
    gates=64,
    float_channels=0,
    stores=0,
    expands=0,
    floats=(padded_rows, im2col, tiles),
    strategies=host.dot_products(DOT4_I8),
)
