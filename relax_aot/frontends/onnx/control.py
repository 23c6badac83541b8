# SPDX-License-Identifier: Apache-2.0
"""If: decided by sizes or constants it disappears, else it is control flow."""

from __future__ import annotations

from collections.abc import Sequence

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.refusals import Refused
from relax_aot.inference.branch_sizes import narrowed, runs_of
from relax_aot.inference.branches import conditional
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Condition, Var
from relax_aot.ir.types import DType

LIMITS = {"If": "both branches have results of the same rank, unless the condition is static"}

SHOWN = 6


def _if(node: Node) -> Results:
    condition = node.arg(0)
    graphs = {side: node.required(f"{side}_branch") for side in ("then", "else")}
    known = node.builder.known(condition)
    if condition.type.elements == 0:
        raise ModelError(f"the condition of an If is {condition.type}")
    truth = None if known is None else known.reshape(-1)[0]
    if isinstance(truth, bool | int):
        return node.import_graph(graphs["then" if truth else "else"], node.builder, node.scope)
    base = node.builder.unique(node.origin or "if")
    builders = (node.builder.branch(f"{base}_then"), node.builder.branch(f"{base}_else"))
    results: list[tuple[Var, ...]] = []
    for (side, graph), builder in zip(graphs.items(), builders, strict=True):
        before = len(builder.shared.conditions)
        with builder.narrowed(narrowed(truth, side == "then", node.builder.bounds)):
            results.append(node.import_graph(graph, builder, node.scope))
        _check_conditions(node, truth, side, builder.shared.conditions[before:])
    results = _booleans_as_scalars(builders, results, node.origin)
    names = [name or f"{base}_{i}" for i, name in enumerate(node.proto.output)]
    for name, then, otherwise in zip(names, *results, strict=True):
        if then.type.rank != otherwise.type.rank:
            raise Refused(
                f"its branches give {name!r} different ranks, {then.type} and {otherwise.type}"
                + _way_out(truth, node.builder.bounds)
            )
    return conditional(
        node.builder, condition, builders, (results[0], results[1]), names, node.origin
    )


def _booleans_as_scalars(
    builders: Sequence[FunctionBuilder], results: Sequence[Sequence[Var]], origin: str
) -> list[tuple[Var, ...]]:
    """The results of both branches, a single boolean without axes if its ranks differ: `a and b`
    of PyTorch is a constant in one branch, and the result of a comparison in the other."""
    found = [list(side) for side in results]
    for place, pair in enumerate(zip(*results, strict=True)):
        single = all(v.type.dtype is DType.BOOL and v.type.elements == 1 for v in pair)
        if single and pair[0].type.rank != pair[1].type.rank:
            for builder, side in zip(builders, found, strict=True):
                (side[place],) = builder.call("reshape", side[place], origin=origin, shape=())
    return [tuple(side) for side in found]


def _check_conditions(node: Node, truth: object, side: str, needs: list[Condition]) -> None:
    """Check the size conditions of a branch on entry, whichever branch runs. If the condition of
    the `If` depends on sizes, this would refuse sizes of the other branch."""
    if isinstance(truth, Condition) and needs:
        raise Refused(
            f"its {side} branch needs {needs[0]}, which does not hold for all sizes of this branch"
            + _way_out(truth, node.builder.bounds)
        )


def _way_out(truth: object, bounds: Bounds) -> str:
    """For which sizes the condition would be decided."""
    if not isinstance(truth, Condition):
        return "; its condition depends on data, so fix the input that decides it"
    symbol, ranges = runs_of(truth, bounds)
    if not ranges:
        symbols = sorted(truth.left.symbols | truth.right.symbols)
        return f"; bound {', '.join(symbols)} so that {truth} is always true or always false"
    shown = ", ".join(
        f"decided ({str(holds).lower()}) for {symbol} = {first}..{last}"
        for holds, first, last in ranges[:SHOWN]
    )
    more = ", ..." if len(ranges) > SHOWN else ""
    _, first, last = max(ranges, key=lambda r: r[2] - r[1])
    return f"; its condition {truth} is {shown}{more}; for example --bound {symbol}={first}..{last}"


HANDLERS: dict[str, Handler] = {"If": _if}
