"""64-bit Arm with its Advanced SIMD: 32 vectors of four floats."""

from relax_aot.scheduling.dot_channels import FOURS, channels_of, depthwise_channels
from relax_aot.scheduling.dot_positions import positions_of
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
        channels_of(FOURS, strided=False),
        positions_of(FOURS),
        channels_of(FOURS, strided=True),
    ),
)
