# SPDX-License-Identifier: Apache-2.0
"""Random inputs that are indices: drawn from the axes into which the model indexes with them.

The loops of an op say which elements of its operands are indices, and how large they may be. An
input is traced to such an operand through ops that move or convert its elements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from relax_aot.emit.interface import Port
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Function, Module, Var
from relax_aot.ir.loops import Bind, Declare, Expr, Index, Load, Local, parts, walk
from relax_aot.ops import all_ops
from relax_aot.ops._op import Trait
from relax_aot.verify.depth import plain_loops
from relax_aot.verify.program import Built, parts_of
from relax_aot.verify.samples import Array, Case

SEED = 2
Axes = Mapping[str, Sequence[Dim]]
"""By inputs as the source names them: each element must be less than all of these sizes."""


def indexed_axes(module: Module) -> Axes:
    found: dict[str, list[Dim]] = defaultdict(list)
    sources = _sources(module.main)
    sizes = {symbol.name for symbol in module.symbols}
    for call in module.main.body:
        for operand, size in _indexed(call, sizes):
            for name in sources.get(operand.name, ()):
                found[module.source_name(name)].append(size)
    return found


def drawn_inside(built: Built, cases: Sequence[Case], given: Set[str]) -> list[Case]:
    """The cases with indices inside their axes, but for inputs that are given."""
    parts = parts_of(built)
    axes = {entry: indexed_axes(part.source_module) for entry, part in parts.items()}
    rng = np.random.default_rng(SEED)

    def inside(case: Case, port: Port, array: Array) -> Array:
        bounds = axes[case.entry].get(port.source, ())
        known = [dim.evaluate(case.sizes) for dim in bounds if dim.symbols <= case.sizes.keys()]
        if not known or given & {port.source, f"{case.entry}.{port.source}"}:
            return array
        return rng.integers(0, max(min(known), 1), array.shape).astype(array.dtype)

    def pairs(case: Case) -> Iterator[tuple[Port, Array]]:
        return zip(parts[case.entry].interface.inputs, case.inputs, strict=True)

    return [replace(case, inputs=tuple(inside(case, *p) for p in pairs(case))) for case in cases]


def _sources(function: Function) -> dict[str, frozenset[str]]:
    """For each value that consists of elements of whole-number inputs: these inputs."""
    found = {p.name: frozenset({p.name}) for p in function.params if p.type.dtype.is_int}
    for call in function.body:
        op = all_ops().get(call.op)
        if op is None or not all(out.type.dtype.is_int for out in call.outs):
            continue
        first = call.inputs[: None if op.has(Trait.PERMUTES) else 1]
        if op.view or op.has(Trait.MOVES | Trait.ROUNDS | Trait.PERMUTES):
            names = frozenset[str]().union(*(found.get(v.name, frozenset()) for v in first))
            found |= {out.name: names for out in call.outs}
    return found


def _indexed(call: Call, sizes: Set[str]) -> Iterator[tuple[Var, Dim]]:
    """Operands whose elements are indices, with the sizes that they must be less than."""
    op = all_ops().get(call.op)
    if op is None or op.view or not any(v.type.dtype.is_int for v in call.inputs):
        return
    kernel = plain_loops(call)
    operands = dict(zip((b.name for b in kernel.inputs), call.inputs, strict=True))
    body = list(walk(kernel.body))
    locals_: dict[Expr, Expr] = {s.local: s.value for s in body if isinstance(s, Declare)}
    for stmt in body:
        if not isinstance(stmt, Bind) or stmt.trusted:
            continue
        inside = list(_written_out(stmt.value, locals_))
        read = {e.buffer.name for e in inside if isinstance(e, Load)}
        fixed = all(e.dim.symbols <= sizes for e in inside if isinstance(e, Index))
        # An index plus a loop's variable is the first one of several.
        if fixed and len(read) == 1 and read <= operands.keys():
            yield operands[read.pop()], stmt.high + 1


def _written_out(expr: Expr, locals_: Mapping[Expr, Expr]) -> Iterator[Expr]:
    for part in parts(expr):
        if isinstance(part, Local):
            yield from _written_out(locals_[part], locals_) if part in locals_ else ()
        else:
            yield part
