# SPDX-License-Identifier: Apache-2.0
"""`if` under construction: two branches whose results are joined."""

from __future__ import annotations

from collections.abc import Iterable

from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import (
    Dim,
    interval,
)
from relax_aot.ir.graph import (
    Attr,
    Call,
    Symbol,
    Var,
    attrs_of,
)
from relax_aot.ir.types import Ref, TensorType
from relax_aot.ops._op import ShapeError


def conditional(
    builder: FunctionBuilder,
    condition: Var,
    branches: tuple[FunctionBuilder, FunctionBuilder],
    results: tuple[tuple[Var, ...], tuple[Var, ...]],
    names: Iterable[str],
    origin: str,
) -> tuple[Var, ...]:
    """`if`: both branches give the same ranks and element types.

    A size in which they disagree becomes an inner symbol, defined by the branch taken.
    Values of the outer function that a branch uses become its parameters.
    """
    first, second = branches
    results = (first.own_results(results[0]), second.own_results(results[1]))
    captured: dict[str, Var] = {}
    for side, outs in zip(branches, results, strict=True):
        captured |= {v.name: v for v in side.free(outs)}
    params = tuple(captured[n] for n in sorted(captured))
    symbols: list[str] = []
    sizes: list[tuple[Dim, Dim]] = []
    outs = tuple(
        Var(builder.unique(name), _join(builder, a.type, b.type, name, symbols, sizes, origin))
        for name, a, b in zip(names, *results, strict=True)
    )
    for side, found in zip(branches, results, strict=True):
        side.params = list(params)
        builder.shared.functions.append(side.finish(found))
    attrs: dict[str, Attr] = {
        "then": Ref(branches[0].name),
        "else": Ref(branches[1].name),
        "defines": tuple(symbols),
        "then_sizes": tuple(a for a, _ in sizes),
        "else_sizes": tuple(b for _, b in sizes),
    }
    builder.body.append(Call(outs, "if", (condition, *params), attrs_of(attrs), origin))
    return outs


def _join(
    builder: FunctionBuilder,
    a: TensorType,
    b: TensorType,
    name: str,
    symbols: list[str],
    sizes: list[tuple[Dim, Dim]],
    origin: str,
) -> TensorType:
    if a.dtype is not b.dtype or a.rank != b.rank:
        raise ShapeError(f"the branches of an If give {a} and {b} for {name}")
    shape = []
    for axis, pair in enumerate(zip(a.shape, b.shape, strict=True)):
        if builder.proves(pair[0], "==", pair[1]):
            shape.append(pair[0])
        elif pair in sizes:
            shape.append(Dim.of(symbols[sizes.index(pair)]))
        else:
            shape.append(_inner(builder, name, axis, pair, origin))
            symbols.append(str(shape[-1]))
            sizes.append(pair)
    return TensorType(a.dtype, tuple(shape))


def _inner(
    builder: FunctionBuilder, name: str, axis: int, pair: tuple[Dim, Dim], origin: str
) -> Dim:
    ranges = [interval(dim, builder.bounds) for dim in pair]
    requested = builder.inner_name(f"{name}_{axis}")
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    return builder.symbol(
        Symbol(requested, max(low, 0), high, f"axis {axis} of {origin}", inner=True)
    )
