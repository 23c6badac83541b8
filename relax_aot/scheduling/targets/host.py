"""This machine, without its vector unit: 16 registers, displacements of any size."""

from relax_aot.scheduling.targets import Target

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
    integers="pairs",
)
