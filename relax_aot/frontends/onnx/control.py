"""If: decided by sizes or constants it disappears, else it is control flow."""

from __future__ import annotations

from collections.abc import Callable

from relax_aot.frontends.onnx.context import Node, Unsupported
from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Condition, Var

Handler = Callable[[Node], Var | tuple[Var, ...]]

LIMITS = {"If": "branches of one rank, unless sizes or constants decide"}
ENUMERATED = 1_000_000


def _if(node: Node) -> tuple[Var, ...]:
    condition = node.arg(0)
    graphs = {name: node.attr(name) for name in ("then_branch", "else_branch")}
    known = node.builder.known(condition)
    truth = None if known is None else known.reshape(-1)[0]
    if isinstance(truth, bool | int):
        chosen = graphs["then_branch" if truth else "else_branch"]
        return node.import_graph(chosen, node.builder, node.values)
    base = node.builder.unique(f"{node.origin or 'if'}")
    builders = (node.builder.branch(f"{base}_then"), node.builder.branch(f"{base}_else"))
    then, otherwise = (
        node.import_graph(graph, builder, dict(node.values))
        for graph, builder in zip(graphs.values(), builders, strict=True)
    )
    for name, a, b in zip(node.proto.output, then, otherwise, strict=True):
        if a.type.rank != b.type.rank:
            raise Unsupported(
                f"its branches give {name!r} different ranks ({a.type} and {b.type})"
                + _decided(truth, node.builder.bounds)
            )
    return node.builder.conditional(
        condition, builders, (then, otherwise), node.proto.output, node.origin
    )


def _decided(truth: object, bounds: Bounds) -> str:
    """For which sizes the condition would be decided, where one symbol tells."""
    if not isinstance(truth, Condition):
        return "; its condition is data, which only run time knows"
    symbols = sorted(truth.left.symbols | truth.right.symbols)
    text = f"; its condition is {truth}"
    if len(symbols) != 1:
        return f"{text}: bound {', '.join(symbols)} so that it is always true or always false"
    (symbol,) = symbols
    low, high = bounds.range(symbol)
    if high - low > ENUMERATED:
        return f"{text}: bound {symbol} more tightly"
    ranges = _ranges(truth, symbol, low, high)
    shown = ", ".join(
        f"{'true' if holds else 'false'} for {symbol} = {first}..{last}"
        for holds, first, last in ranges[:6]
    )
    return f"{text}, decided {shown}; give such a range with --bound"


def _ranges(truth: Condition, symbol: str, low: int, high: int) -> list[tuple[bool, int, int]]:
    ranges: list[tuple[bool, int, int]] = []
    for value in range(low, high + 1):
        left, right = (d.evaluate({symbol: value}) for d in (truth.left, truth.right))
        holds = {"==": left == right, "!=": left != right, "<=": left <= right}[truth.relation]
        if ranges and ranges[-1][0] == holds:
            ranges[-1] = (holds, ranges[-1][1], value)
        else:
            ranges.append((holds, value, value))
    return ranges


HANDLERS: dict[str, Handler] = {"If": _if}
