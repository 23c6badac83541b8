# SPDX-License-Identifier: Apache-2.0
"""Kernels merged where one reads what another writes.

What may be merged follows from the loops alone, never from the name of an op:

- `forward`: a reader that works element by element moves to where its operand is stored;
- `inline`: a writer that computes each element by itself is computed where it is read;
- `rows`: writer and reader share their outer loops, and one row passes between them.

Source: Relax (arXiv:2311.02103), section 4.2, FuseOps and FuseTensorIR; the third is
loop fusion with array contraction. Each number is computed as without fusion: `legality`
says when a merger may be tried, and `check` proves each result again, by other means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relax_aot.fusion import check, in_place
from relax_aot.fusion.search import Policy, Search, Tiles
from relax_aot.fusion.summary import Apart, Member, Summary, Traffic
from relax_aot.ir.graph import Module

__all__ = ["Fused", "Policy", "Tiles", "fuse"]


@dataclass(frozen=True, slots=True)
class Fused:
    module: Module
    summary: Summary


def fuse(module: Module, policy: Policy | None = None, *, lenient: bool = False) -> Fused:
    """Module of kernels -> module of fewer kernels, and what was done.

    The checker proves each result. What it cannot prove is a `FusionError`, or with `lenient`
    stays as it was before fusion: slower, and certainly right. The summary names it.
    """
    closed: frozenset[str] = frozenset()
    unproven: list[check.FusionError] = []
    while True:
        result, apart = _merged(module, policy or Policy(), closed)
        parts = Member.of(module, result)
        try:
            check.check(module, result)
        except check.FusionError as error:
            more = _parts_of(error.kernel, result, parts) - closed
            if not lenient or not more:
                raise
            unproven.append(error)
            closed |= more
            continue
        summary = Summary(Traffic.of(module), Traffic.of(result), apart, parts, tuple(unproven))
        return Fused(in_place.mark(result, lenient), summary)


def _merged(
    module: Module, policy: Policy, closed: frozenset[str]
) -> tuple[Module, tuple[Apart, ...]]:
    """Calls whose first result is in `closed` are not merged."""
    searches = []
    for function in module.functions:
        others = (f for f in module.functions if f is not function)
        outside = frozenset(v.name for f in others for c in f.body for v in c.inputs)
        search = Search(function, module, outside, policy, closed)
        apart: frozenset[str] = frozenset()
        while more := search.without_tiles() - apart:
            apart |= more
            search = Search(function, module, outside, policy, closed, apart)
        searches.append(search)
    bodies = [search.calls() for search in searches]
    functions = tuple(
        replace(function, body=tuple(calls))
        for function, (calls, _) in zip(module.functions, bodies, strict=True)
    )
    fused = {kernel.name: kernel for _, kernels in bodies for kernel in kernels}
    called = {
        c.ref("kernel") for f in functions for c in f.body if c.op in ("call_kernel", "guard")
    }
    untouched = [k for k in module.kernels if k.name in called and k.name not in fused]
    used = {v.name for f in functions for c in f.body for v in c.inputs}
    result = replace(
        module,
        functions=functions,
        kernels=(*untouched, *fused.values()),
        constants=tuple(c for c in module.constants if c.name in used),
    )
    return result, tuple(note for search in searches for note in search.apart())


def _parts_of(kernel: str, module: Module, parts: tuple[Member, ...]) -> frozenset[str]:
    """The first results of the calls before fusion that a kernel was made of."""
    homes = {
        call.outs[0].name
        for function in module.functions
        for call in function.body
        if call.op == "call_kernel" and call.ref("kernel") == kernel
    }
    return frozenset(part.writes[0].name for part in parts if homes & set(part.into))
