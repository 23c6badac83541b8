# SPDX-License-Identifier: Apache-2.0
"""The compilers of CUDA, and the GPUs for which each makes our machine code."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from relax_aot.toolchain.nvdisasm import installed_disassembler
from relax_aot.toolchain.nvrtc import MAJORS, installed_compiler
from tests.conftest import NO_CUDA, NO_NVCC, RANDOM_ADDRESSES

TARGETS = ((72, 11), (87, 11), (87, 12), (90, 12), (90, 13), (110, 13))
"""Compute capability and CUDA major: Xavier, Orin with JetPack 5 and 6, servers, Thor."""

LAYOUT = "import ctypes; print(ctypes.CDLL(None).personality(0x0040000))"
"""What toolchain/nvrtc_worker.py asks for: -1 where that is refused."""

needs_fixed_addresses = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", LAYOUT], capture_output=True, check=False).stdout
    == b"-1\n",
    reason=RANDOM_ADDRESSES,
)
needs_compilers = pytest.mark.skipif(
    any(installed_compiler(major) is None for major in MAJORS), reason=NO_CUDA
)
needs_disassembler = pytest.mark.skipif(installed_disassembler() is None, reason=NO_CUDA)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason=NO_NVCC)
