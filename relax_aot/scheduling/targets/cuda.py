# SPDX-License-Identifier: Apache-2.0
"""CUDA devices: figures that every chip from sm_53 on has."""

from relax_aot.scheduling.devices.products import product
from relax_aot.scheduling.targets import Target

TARGET = Target(
    "cuda",
    needs=(),
    registers=64,
    pointers=32,
    reach=1 << 30,
    block=256,
    code=1 << 20,
    families=("cuda",),
    partial_sums=32,
    device=True,
    nests=(product,),
)
