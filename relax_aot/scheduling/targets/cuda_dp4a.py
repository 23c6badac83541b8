# SPDX-License-Identifier: Apache-2.0
"""CUDA devices from compute capability 6.1 on: four products of bytes and their sum are one
instruction, in tiles as of matrix units."""

from dataclasses import replace

from relax_aot.ir.types import DType
from relax_aot.scheduling.devices.matrix_units import byte_product
from relax_aot.scheduling.devices.products import product
from relax_aot.scheduling.targets import cuda

TARGET = replace(
    cuda.TARGET,
    name="cuda_dp4a",
    needs=("dp4a",),
    matrices=(DType.I8, DType.U8),
    nests=(byte_product, product),
)
