# SPDX-License-Identifier: Apache-2.0
"""Value ranges of data-dependent sizes, propagated through the calls that compute them.

They bound `Sqrt(n)`, a length after a `Clip` or a `Sigmoid`, or a sum of booleans. A range
is a proposal, not a proof: the C checks each such size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor, isnan

import numpy as np

from relax_aot.ir.dims import Bounds, Dim, interval
from relax_aot.ir.graph import Call, Var
from relax_aot.ir.types import DType
from relax_aot.ops import all_ops
from relax_aot.ops._op import Array, Range, Trait
from relax_aot.ops._ranges import ANY, union

ROUNDING = 1e-6
"""Of a number, for what floats lose on the way."""

DEEPEST = 64
"""Calls that are looked through, one behind the other."""

MOST = 2**20
"""A size beyond this is not proposed: the user is asked."""


def greatest(
    var: Var, calls: Mapping[str, Call], known: Callable[[Var], Array | None], bounds: Bounds
) -> int | None:
    """The largest size that an element of `var` can be, where anything bounds it. `calls` by
    the names of their results; `known` gives the elements of some values."""
    high = _range(var, calls, known, bounds, 0)[1]
    return max(floor(high), 0) if high <= MOST else None


def _range(
    var: Var,
    calls: Mapping[str, Call],
    known: Callable[[Var], Array | None],
    bounds: Bounds,
    depth: int,
) -> Range:
    elements = known(var)
    if elements is not None:
        return _of_elements(elements, bounds)
    if var.type.dtype is DType.BOOL:
        return 0.0, 1.0
    call = calls.get(var.name)
    if call is None or depth == DEEPEST:
        return ANY
    if call.op in ("arg_max", "arg_min"):
        return 0.0, float(max(interval(n, bounds)[1] for n in call.inputs[0].type.shape))
    record = all_ops().get(call.op)
    if record is None or not call.args:
        return ANY
    parts = [ANY if a is None else _range(a, calls, known, bounds, depth + 1) for a in call.args]
    if call.op == "reduce":
        low, high = _reduced(call, parts[0], bounds)
    elif call.op == "expand_sizes":
        sizes = call.attr("sizes")
        assert isinstance(sizes, tuple)
        low, high = union(parts[0], _of_elements(np.array(sizes, object), bounds))
    elif record.value_range is not None:
        low, high = record.value_range(*parts)
    elif record.has(Trait.MOVES):
        low, high = parts[0]
    else:
        return ANY
    if isnan(low) or isnan(high):
        return ANY
    return low - ROUNDING * abs(low), high + ROUNDING * abs(high)


def _of_elements(elements: Array, bounds: Bounds) -> Range:
    found = []
    for element in elements.flat:
        if isinstance(element, int | Dim):
            found.append(interval(Dim.of(element), bounds))
        elif isinstance(element, float) and not isnan(element):
            found.append((element, element))  # type: ignore[arg-type]  # only compared
        else:
            return ANY
    return union(*found) if found else (0.0, 0.0)


def _reduced(call: Call, a: Range, bounds: Bounds) -> Range:
    kind = call.attr("kind")
    if kind in ("max", "min", "mean"):
        return a
    if kind != "sum":
        return ANY
    count = interval(call.inputs[0].type.elements, bounds)[1]
    return min(a[0] * count, 0.0), max(a[1] * count, 0.0)
