# SPDX-License-Identifier: Apache-2.0
"""CUDA devices from compute capability 8.0 on: matrix units for half-precision values and bytes,
and copies to shared memory that threads do not wait for."""

from dataclasses import replace

from relax_aot.ir.types import DType
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.devices.products import product
from relax_aot.scheduling.targets import cuda

TARGET = replace(
    cuda.TARGET,
    name="cuda_mma",
    needs=("mma_f16", "mma_bf16", "mma_i8", "cp_async"),
    matrices=(DType.F16, DType.BF16, DType.I8, DType.U8),
    nests=(matrix_product, product),
)
