# SPDX-License-Identifier: Apache-2.0
"""Evaluates modules and kernels in NumPy."""
