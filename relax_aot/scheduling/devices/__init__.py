# SPDX-License-Identifier: Apache-2.0
"""Kernels as loops over the blocks, warps, lanes and threads of a device."""
