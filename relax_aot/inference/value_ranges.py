"""Between which numbers a value lies, as far as the calls that made it say.

That bounds sizes that data decide: `Sqrt(n)`, lengths that a `Clip` or a `Sigmoid` keeps
small. What is found here is proposed, not proved: the C checks each such size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor, inf, isnan, sqrt

from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.graph import Call, Var
from relax_aot.ops._op import Array

Extent = tuple[float, float]

ANY: Extent = (-inf, inf)

ROUNDING = 1e-6
"""Of a number, for what floats lose on the way."""

DEEPEST = 64
"""Calls that are looked through, one behind the other."""

MOST = 2**20
"""A size beyond this is not proposed: the user is asked."""


def greatest(
    var: Var, calls: Mapping[str, Call], known: Callable[[Var], Array | None], bounds: Bounds
) -> int | None:
    """The greatest size that an element of `var` can be, where anything bounds it. `calls` by
    the names of their results; `known` gives the elements of some values."""
    high = _extent(var, calls, known, bounds, 0)[1]
    return max(floor(high), 0) if high <= MOST else None


def _extent(
    var: Var,
    calls: Mapping[str, Call],
    known: Callable[[Var], Array | None],
    bounds: Bounds,
    depth: int,
) -> Extent:
    elements = known(var)
    if elements is not None:
        return _of_elements(elements, bounds)
    call = calls.get(var.name)
    if call is None or depth == DEEPEST:
        return ANY
    if call.op in WITHIN:
        return WITHIN[call.op]
    if call.op in ("arg_max", "arg_min"):
        return 0.0, float(max(interval(n, bounds)[1] for n in call.inputs[0].type.shape))
    args = call.args[1:] if call.op == "where" else call.args
    parts = [ANY if a is None else _extent(a, calls, known, bounds, depth + 1) for a in args]
    if call.op == "reduce":
        low, high = _reduced(call, parts[0], bounds)
    elif call.op in RULES and parts:
        low, high = RULES[call.op](*parts)
    else:
        return ANY
    if isnan(low) or isnan(high):
        return ANY
    return low - ROUNDING * abs(low), high + ROUNDING * abs(high)


def _of_elements(elements: Array, bounds: Bounds) -> Extent:
    found = []
    for element in elements.flat:
        if isinstance(element, int | Dim):
            found.append(interval(Dim.of(element), bounds))
        elif isinstance(element, float) and not isnan(element):
            found.append((element, element))  # type: ignore[arg-type]  # only compared
        else:
            return ANY
    return _union(*found) if found else (0.0, 0.0)


def _reduced(call: Call, a: Extent, bounds: Bounds) -> Extent:
    kind = call.attr("kind")
    if kind in ("max", "min", "mean"):
        return a
    if kind != "sum":
        return ANY
    count = interval(call.inputs[0].type.elements, bounds)[1]
    return min(a[0] * count, 0.0), max(a[1] * count, 0.0)


def _corners(combine: Callable[[float, float], float]) -> Callable[[Extent, Extent], Extent]:
    def rule(a: Extent, b: Extent) -> Extent:
        found = [combine(x, y) for x in a for y in b]
        return ANY if any(map(isnan, found)) else (min(found), max(found))

    return rule


def _ratio(a: Extent, b: Extent) -> Extent:
    if b[0] <= 0 <= b[1]:
        return ANY
    return _corners(lambda x, y: x / y)(a, b)


def _root(a: Extent) -> Extent:
    return sqrt(max(a[0], 0.0)), sqrt(max(a[1], 0.0))


def _union(*parts: Extent) -> Extent:
    return min(p[0] for p in parts), max(p[1] for p in parts)


def _same(a: Extent, *_others: Extent) -> Extent:
    return a


def _clipped(a: Extent, low: Extent = ANY, high: Extent = ANY) -> Extent:
    return min(max(a[0], low[0]), high[1]), min(max(a[1], low[1]), high[1])


def _steps(first: Extent, last: Extent, step: Extent) -> Extent:
    """How many steps from the first to the last."""
    low, high = _ratio((last[0] - first[1], last[1] - first[0]), step)
    return max(low, 0.0), max(high + 1, 0.0)


RULES: dict[str, Callable[..., Extent]] = {
    **dict.fromkeys(("cast", "reshape", "copy", "transpose", "expand", "slice", "gather"), _same),
    "concat": _union,
    "where": _union,
    "clip": _clipped,
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _corners(lambda x, y: x * y),
    "div": _ratio,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0.0, max(abs(a[0]), abs(a[1]))),
    "floor": lambda a: (a[0] - 1, a[1]),
    "ceil": lambda a: (a[0], ceil(a[1]) if a[1] < MOST else inf),
    "round_even": lambda a: (a[0] - 1, a[1] + 1),
    "sqrt": _root,
    "range_size": _steps,
}

WITHIN: dict[str, Extent] = {
    "sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0), "sign": (-1.0, 1.0),
}  # fmt: skip
