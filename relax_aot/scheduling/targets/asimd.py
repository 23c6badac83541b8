"""64-bit Arm with its Advanced SIMD: 32 vectors of four floats."""

from relax_aot.scheduling.strategies.dot_channels import DOT4_I8, channels_of, depthwise_channels
from relax_aot.scheduling.strategies.dot_positions import positions_of
from relax_aot.scheduling.strategies.f32_im2col import im2col
from relax_aot.scheduling.strategies.f32_padded_rows import padded_rows
from relax_aot.scheduling.strategies.f32_tiles import tiles
from relax_aot.scheduling.targets import Target

TARGET = Target(
    "asimd",
    needs=("fpu", "asimd"),
    registers=32,
    pointers=20,
    reach=16380,
    block=96,
    code=32768,
    rows=24,
    panel=1 << 17,
    strip=1 << 13,
    strategies=(
        depthwise_channels,
        channels_of(DOT4_I8, strided=False),
        positions_of(DOT4_I8),
        channels_of(DOT4_I8, strided=True),
    ),
    floats=(padded_rows, im2col, tiles),
)
