# SPDX-License-Identifier: Apache-2.0
"""Where loops were cut, the axes that they run along are cut as well.

After that each axis has a loop of its own again, and what is known about kernels whose
index is their loop variables applies.
"""

from __future__ import annotations

from math import prod

from relax_aot.fusion.accesses import accesses
from relax_aot.fusion.indexing import joined
from relax_aot.fusion.nest import Nest
from relax_aot.fusion.piece import buffer_of
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.graph import Var
from relax_aot.ir.loops import Buffer, Stmt
from relax_aot.ir.rewrite import map_accesses
from relax_aot.ir.types import TensorType


def refined(body: tuple[Stmt, ...], made: Var) -> tuple[tuple[Stmt, ...], Var]:
    """Where loops were cut, the axes that they run along are cut as well."""
    touched = list(accesses(body, made.name))
    if len({access.index for access in touched}) != 1:
        return body, made
    index: list[Dim] = []
    shape: list[Dim] = []
    loops = Nest.of(body).loops
    for dim, size in zip(touched[0].index, made.type.shape, strict=True):
        digits = tuple((x.variable, x.stop) for x in loops if x.variable in dim.symbols)
        starts = all(x.start == ZERO for x in loops if x.variable in dim.symbols)
        cut = len(digits) > 1 and starts and joined(digits) == dim
        if cut and prod((stop for _, stop in digits), start=Dim.of(1)) == size:
            index += [Dim.of(name) for name, _ in digits]
            shape += [stop for _, stop in digits]
        else:
            index.append(dim)
            shape.append(size)
    if len(shape) == made.type.rank:
        return body, made
    finer = Var(made.name, TensorType(made.type.dtype, tuple(shape)))

    def rule(buffer: Buffer, at: At) -> tuple[Buffer, At]:
        return (buffer_of(finer), tuple(index)) if buffer.name == made.name else (buffer, at)

    return map_accesses(body, rule), finer
