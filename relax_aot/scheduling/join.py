# SPDX-License-Identifier: Apache-2.0
"""Joins kernels that fusion left apart, where a schedule needs them as one.

Fusion joins kernels if that saves memory or work by itself: scores, softmax and mix of a single row
have no loop in common, so it leaves them apart. A schedule may save more with the joined kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from relax_aot.fusion.mergers import rows
from relax_aot.fusion.mergers._merger import Link, Pair
from relax_aot.fusion.piece import Piece
from relax_aot.ir.graph import Call, Function, Module
from relax_aot.ir.loops import Apply, Kernel, expressions, walk


def join_around(module: Module, scalar: str, accept: Callable[[Kernel], bool]) -> Module:
    """Joins each kernel that applies the scalar function, and is not accepted itself, with the only
    producer of an operand, with the only reader of its result, or with both, if the joined kernel
    is accepted."""
    kernels = {kernel.name: kernel for kernel in module.kernels}
    functions = tuple(_joined(f, module, kernels, scalar, accept) for f in module.functions)
    if functions == module.functions:
        return module
    calls = (c for f in functions for c in f.body if c.op in ("call_kernel", "guard"))
    called = {call.ref("kernel") for call in calls}
    used = tuple(kernel for kernel in kernels.values() if kernel.name in called)
    return replace(module, functions=functions, kernels=used)


def _joined(
    function: Function,
    module: Module,
    kernels: dict[str, Kernel],
    scalar: str,
    accept: Callable[[Kernel], bool],
) -> Function:
    body = list(function.body)
    for call in function.body:
        if call not in body or not _applies(call, kernels, scalar):
            continue
        if accept(kernels[call.ref("kernel")]):
            continue
        for chain in _chains(call, body, function, module):
            piece = _piece(chain, kernels)
            if piece is None:
                continue
            kernel, joined = piece.closed()
            if accept(kernel):
                kernels[kernel.name] = kernel
                body[body.index(chain[-1])] = joined
                body = [other for other in body if other not in chain]
                break
    return replace(function, body=tuple(body))


def _applies(call: Call, kernels: dict[str, Kernel], scalar: str) -> bool:
    if call.op != "call_kernel":
        return False
    exprs = (e for s in walk(kernels[call.ref("kernel")].body) for e in expressions(s))
    return any(isinstance(expr, Apply) and expr.function == scalar for expr in exprs)


def _chains(
    call: Call, body: list[Call], function: Function, module: Module
) -> Iterator[tuple[Call, ...]]:
    """The call with a producer, a reader or both; nothing else reads the value between them."""
    others = [f for f in module.functions if f is not function]
    read = [v.name for c in body for v in c.inputs] + [v.name for v in function.results]
    uses = Counter([*read, *(v.name for f in others for c in f.body for v in c.inputs)])
    kernels = [other for other in body if other.op == "call_kernel"]
    before: list[tuple[Call, ...]] = [
        (other,)
        for other in kernels
        if any(v in other.outs and uses[v.name] == 1 for v in call.inputs)
    ]
    made = call.outs[0]
    after = [(other,) for other in kernels if made in other.inputs and uses[made.name] == 1]
    for producer, reader in (
        *product(before, [()]),
        *product([()], after),
        *product(before, after),
    ):
        yield (*producer, call, *reader)


def _piece(chain: tuple[Call, ...], kernels: dict[str, Kernel]) -> Piece | None:
    """The kernels of a chain of calls as one."""
    joined: Piece | None = None
    for call in chain:
        piece = Piece.of(call, kernels[call.ref("kernel")])
        if piece is None or piece.fallible:
            return None
        if joined is not None:
            if len(joined.writes) != 1:
                return None
            (made,) = joined.writes
            merged = rows.join(Pair(joined, piece, (Link(made, made),), frozenset()))
            piece = merged if isinstance(merged, Piece) else None
        if piece is None:
            return None
        joined = piece
    return joined
