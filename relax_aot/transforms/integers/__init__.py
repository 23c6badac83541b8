# SPDX-License-Identifier: Apache-2.0
"""Replace float operators between dequantize and quantize by integer operators.

Three rules work together along a function. A contraction of dequantized values becomes an
integer contraction whose sums are dequantized, and one of floats by dequantized weights keeps their
bytes. Ops that move elements move quantized values. A
quantize is merged with the calls before it. Calls that no rule matches stay in floats, and
`stays` lists them. The quantized results are equal, see docs/decisions/0009-integer-models.md.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.dims import Relation
from relax_aot.ir.graph import Call, Module, Var, assumption_conditions
from relax_aot.ir.rewrite import substitute
from relax_aot.ops import has
from relax_aot.ops._op import Trait
from relax_aot.transforms.integers import (
    contractions,
    elementwise,
    movement,
    pairs,
    pools,
    weights,
)
from relax_aot.transforms.integers.stays import stays
from relax_aot.transforms.integers.work import Work

__all__ = ["EXAMPLES", "run", "stays"]

EXAMPLES = (
    *contractions.EXAMPLES,
    *elementwise.EXAMPLES,
    *movement.EXAMPLES,
    *pairs.EXAMPLES,
    *pools.EXAMPLES,
    *weights.EXAMPLES,
)


def run(module: Module) -> Module:
    if not any(has(call.op, Trait.QUANTIZED) for f in module.functions for call in f.body):
        return module
    constants = dict(module.constant_table)
    names = set(constants)
    for function in module.functions:
        names |= {p.name for p in function.params}
        names |= {out.name for call in function.body for out in call.outs}
    functions = []
    assumptions: list[Relation] = []
    for function in module.functions:
        results = frozenset(r.name for r in function.results)
        calls_floats = module.calls_floats and not module.replaceable
        work = Work(
            constants, module.bounds, names, assumptions, results, module.replaceable,
            calls_floats, module.keeps_half,
        )  # fmt: skip
        replaced: dict[Var, Var] = {}
        for before in function.body:
            found = _call(work, substitute(before, replaced))
            if found is not None:
                replaced[before.out] = found
        functions.append(replace(function, body=tuple(work.body)))
    added = assumption_conditions(assumptions, module.symbols, "sums of 32 bits")
    return replace(
        module,
        functions=tuple(functions),
        constants=tuple(constants.values()),
        conditions=tuple(dict.fromkeys((*module.conditions, *added))),
    )


def _call(work: Work, call: Call) -> Var | None:
    """Add the calls that replace one call. A returned value is used instead of its result."""
    rule = contractions.RULES.get(call.op)
    if rule is not None and rule(work, call):
        return None
    if call.op in ("matmul", "gemm") and weights.product(work, call):
        return None
    if contractions.later_zero_point(work, call):
        return None
    if call.op in ("conv_integer", "matmul_integer"):
        work.add(contractions.zero_point(work, call))
        return None
    if call.op == "quantize":
        return _quantize(work, call)
    if pairs.fixed_pair(work, call):
        return None
    if not movement.dequantize_later(work, call):
        work.add(call)
    return None


def _quantize(work: Work, call: Call) -> Var | None:
    target = elementwise.target_of(work, call)
    if target is None:
        work.add(call)
        return None
    for rule in (*elementwise.RULES, *pairs.RULES, *pools.RULES):
        found = rule(work, target)
        if isinstance(found, Var):
            if call.out.name not in work.results:
                return found
            # Results of a function keep their names.
            work.add(Call(call.outs, "copy", (found,), (), call.origin))
            return None
        if found:
            return None
    start = len(work.body)
    moved = movement.quantize_earlier(work, target)
    if moved is None:
        work.add(call)
        return None
    asked = work.body[start:]
    del work.body[start:]
    replaced: dict[Var, Var] = {}
    for quantize in asked:
        other = _quantize(work, quantize)
        if other is not None:
            replaced[quantize.out] = other
    work.add(substitute(moved, replaced))
    return None
