# SPDX-License-Identifier: Apache-2.0
"""Building a `loop`: a body that is a function, carried values, and rows of every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Dim, interval
from relax_aot.ir.graph import Call, Loop, Symbol, Var
from relax_aot.ir.types import DType, TensorType

FARTHEST = 2**28 - 1
"""No loop makes more iterations: numbers of iterations are parts of indices, which are int32 in
C."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A size of a carried value that changes from iteration to iteration."""

    carried: int
    axis: int
    symbol: str
    most: Dim


@dataclass(frozen=True)
class Iterations:
    """How often a body runs."""

    symbol: str
    trips: Dim
    conditional: bool
    capped: bool


def open_iteration(builder: FunctionBuilder, name: str, trips: Dim) -> Dim:
    """The number of the iteration as a size."""
    high = max(interval(trips, builder.bounds)[1] - 1, 0)
    symbol = Symbol(
        builder.inner_name(f"{name}_turn"), 0, high, f"the iteration of {name}", inner=True
    )
    return builder.symbol(symbol)


def number_of(body: FunctionBuilder, iteration: Dim, origin: str) -> Var:
    """The number of the iteration as an int64 scalar, of which the value is known."""
    attrs = {"start": iteration, "step": 1, "length": 1, "dtype": DType.I64}
    (row,) = body.call("range", name="turn", origin=origin, **attrs)
    (number,) = body.call("reshape", row, name="turn", origin=origin, shape=())
    return number


def differing(
    before: Sequence[Var], after: Sequence[Var], builder: FunctionBuilder
) -> list[tuple[int, int]]:
    """(carried value, axis) where an iteration changes a size."""
    return [
        (number, axis)
        for number, (a, b) in enumerate(zip(before, after, strict=True))
        for axis, (n, m) in enumerate(zip(a.type.shape, b.type.shape, strict=True))
        if not builder.proves(n, "==", m)
    ]


def close_loop(
    builder: FunctionBuilder,
    body: FunctionBuilder,
    iterations: Iterations,
    initial: Sequence[Var],
    params: Sequence[Var],
    results: Sequence[Var],
    grown: Sequence[Grown],
    names: Sequence[str],
    origin: str,
) -> tuple[Var, ...]:
    """The call of a body that is built; results are the last carried values, then rows."""
    results = body.own_results(results)
    own = {param.name for param in params}
    captured = [value for value in body.free(results) if value.name not in own]
    body.params = [*params, *captured]
    builder.shared.functions.append(body.finish(results))
    count, symbol = iterations.trips, ""
    rows = results[len(params) :]
    if rows and iterations.conditional:
        symbol = builder.inner_name(f"{names[len(params)]}_0")
        high = max(interval(iterations.trips, builder.bounds)[1], 0)
        count = builder.symbol(Symbol(symbol, 0, high, f"iterations of {origin}", inner=True))
    types = [param.type for param in params]
    types += [TensorType(row.type.dtype, (count, *row.type.shape)) for row in rows]
    outs = tuple(Var(builder.unique(name), type_) for name, type_ in zip(names, types, strict=True))
    sizes = tuple(
        (
            g.symbol,
            initial[g.carried].type.shape[g.axis],
            results[g.carried].type.shape[g.axis],
            g.most,
        )
        for g in grown
    )
    loop = Loop(
        body.name, iterations.symbol, iterations.trips, symbol, len(params), iterations.conditional,
        iterations.capped, sizes,
    )  # fmt: skip
    builder.body.append(Call(outs, "loop", (*initial, *captured), loop.attrs, origin))
    return outs
