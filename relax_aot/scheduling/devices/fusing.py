# SPDX-License-Identifier: Apache-2.0
"""What fusion for a device keeps apart: products that a schedule computes in tiles.

A product that shares its loops over rows with another kernel is computed by a warp or a block for
each row. It has neither tiles nor matrix units then, and reads the factor of all rows once for each
row. Two products of an attention are joined, as that has tiles of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from relax_aot.fusion import Policy, Tiles
from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, Kernel
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import contraction_of
from relax_aot.scheduling.devices.attention import attends
from relax_aot.scheduling.devices.few_rows import few_rows
from relax_aot.scheduling.devices.one_sum import with_one_sum
from relax_aot.scheduling.devices.operands import as_floats, product_of
from relax_aot.scheduling.nest import names_in, without_lets
from relax_aot.scheduling.passes import fma
from relax_aot.scheduling.targets import Context, Target
from relax_aot.scheduling.writer import Writer


def fusion_policy(target: Target) -> Policy:
    """How kernels are merged for a target."""
    if not target.device:
        return Policy()
    return Policy(tiles=Tiles(partial(is_product, target=target), partial(attends, target=target)))


def is_product(kernel: Kernel, bounds: Bounds, target: Target) -> bool:
    """Whether a kernel is one product of matrices, or of few rows by a matrix, for which the
    target has tiles or launches."""
    body = without_lets(kernel.body)
    if kernel.parallel or len(body) != 1 or not isinstance(body[0], For):
        return False
    (fused,) = fma.run(Module((), (replace(kernel, body=body),)), target).kernels
    (loop,) = fused.body
    assert isinstance(loop, For)
    context, w = Context(target), Writer(names_in(kernel), bounds)
    found = contraction_of(with_one_sum(loop, w, context), w.bounds)
    if found is None:
        return False
    found = as_floats(found)
    has_tiles = found.sum.dtype is DType.F32 or DType.I8 in target.matrices
    product = product_of(found, context) if has_tiles else None
    if product is None or not product.columns:
        return False
    return bool(product.rows) or few_rows(product, context, w.bounds) == 1
