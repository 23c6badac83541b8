"""64-bit Arm with its Advanced SIMD: 32 vectors of four floats."""

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
    integers="fours",
)
