# SPDX-License-Identifier: Apache-2.0
"""Passes over the loops of kernels, before and after the strategies. Each file has `run`."""
