# SPDX-License-Identifier: Apache-2.0
"""Products of matrices that a library computes instead of kernels, in C of the host.

The library has columns one behind the other: its result is the transposed one, and its first
factor the right one.

Calls state such products (scheduling/devices/library.py). The host knows their sizes, and nothing
can fail before them, or their result is memory of the arena, where it harms nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from relax_aot.emit.c_dims import dim_c
from relax_aot.emit.contexts import RunContext
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Attr
from relax_aot.ir.types import DType, TensorType
from relax_aot.planning import Home
from relax_aot.planning.steps import Step

TYPES = {DType.F32: 0, DType.F16: 2, DType.BF16: 14}
"""cudaDataType."""
COMPUTE_F32, COMPUTE_TF32 = 68, 77
"""cublasComputeType_t: sums in floats, CUBLAS_COMPUTE_32F and CUBLAS_COMPUTE_32F_FAST_TF32."""


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """One product of a run. `kind`, `sizes` and `operands` are members of C structs."""

    kind: str
    wanted: str
    sizes: tuple[str, ...]
    operands: tuple[str, ...]
    workspace_bytes: int
    required: bool


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One operand of a product, by its position."""

    operand: int
    transposed: int
    pitch: Dim
    apart: Dim


def library_product(
    context: RunContext, node: Step, places: Sequence[str], inside: frozenset[int], *,
    fallible: bool,
) -> LibraryProduct | None:  # fmt: skip
    """What a step leaves to the library, with its operands at `places`, some `inside` of a value
    and not aligned; None where it does not, or where the library could do harm or lacks what it
    must know."""
    attrs = dict(node.call.attrs)
    if "library" not in attrs:
        return None
    left, right, result = (_matrix(attrs[name]) for name in ("left", "right", "result"))
    sizes, requires = (_dims(attrs[name]) for name in ("sizes", "requires"))
    bias, room = attrs["bias"], attrs["workspace"]
    assert isinstance(bias, int) and isinstance(room, int)
    matrices = (right, left, result)
    far = ([one.pitch for one in matrices], [one.apart for one in matrices])
    known = {f.symbol.name for f in context.interface.dims}
    if not all(_is_plain(dim, known) for dim in (*sizes, *requires, *far[0], *far[1])):
        return None
    used = {one.operand for one in matrices} | ({bias} if bias >= 0 else set())
    roots = (*node.args, *node.outs)
    result_apart = context.plan.homes[roots[result.operand]] is Home.SLOT
    if inside & used or (fallible and not result_apart):
        return None

    def shown(dim: Dim) -> str:
        names = {symbol: f"(int64_t){context.symbols[symbol]}" for symbol in known}
        return dim_c(dim, names, context.plan.module.bounds)

    types = [type_of(context, roots[one.operand]).dtype for one in (left, result)]
    compute = COMPUTE_TF32 if attrs["tf32"] and types[0] is DType.F32 else COMPUTE_F32
    transposed = f"{{{right.transposed}, {left.transposed}}}"
    return LibraryProduct(
        kind=", ".join(
            [str(compute), *(str(TYPES[one]) for one in types), transposed, str(int(bias >= 0))]
        ),
        wanted=" && ".join(f"{shown(dim)} >= 0" for dim in requires) or "1",
        sizes=(
            *map(shown, sizes),
            *(f"{{{', '.join(map(shown, dims))}}}" for dims in far),
        ),
        operands=(
            *(places[one.operand] for one in matrices),
            places[bias] if bias >= 0 else "0u",
            places[-1] if room else "0u",
        ),
        workspace_bytes=room,
        required=bool(attrs["required"]),
    )


def _dims(value: Attr) -> tuple[Dim, ...]:
    """A size that is constant is stored as a number."""
    assert isinstance(value, tuple)
    dims = []
    for one in value:
        assert isinstance(one, int | Dim)
        dims.append(Dim.of(one) if isinstance(one, int) else one)
    return tuple(dims)


def _matrix(value: Attr) -> _Matrix:
    operand, transposed, pitch, apart = _dims(value)
    return _Matrix(operand.constant, transposed.constant, pitch, apart)


def _is_plain(dim: Dim, known: Collection[str]) -> bool:
    """Whether the host has its symbols, and no function of ours for 32 bits is called."""
    atoms = {atom for _, factors in dim.terms for atom, _ in factors}
    return all(isinstance(atom, str) and atom in known for atom in atoms)


def type_of(context: RunContext, root: str) -> TensorType:
    plan = context.plan
    known = {p.name: p.type for p in plan.module.main.params}
    known |= {c.name: c.type for c in plan.module.constants}
    return known[root] if root in known else plan.program.values[root].type
