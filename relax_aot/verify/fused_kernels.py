# SPDX-License-Identifier: Apache-2.0
"""Runs each fused kernel and its parts in the interpreter, at small sizes, on random data.

What `fusion/check.py` proves with symbols is looked at once more with numbers: every access is
inside its buffer, nothing is read before it is written, and the results have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from relax_aot.evaluation.interpret import Array, IndexFault, run_kernel
from relax_aot.evaluation.reference import partial_outputs
from relax_aot.fusion.check import FusionError
from relax_aot.ir.check import checked_relations
from relax_aot.ir.graph import Call, Function, Module, Var
from relax_aot.ir.loops import For, If, Stmt

MOST_WORK = 20_000
"""Statements that a kernel and its parts may execute at one size; larger ones are left out."""
STEPS = (0, 1, 3)
"""How far above their lowest values sizes are."""

Sizes = dict[str, int]


def compare_fused(before: Module, after: Module) -> int:
    """Raise FusionError where a fused kernel computes something else; how many runs were
    compared."""
    runs = 0
    for function in after.functions:
        source = before.function_table[function.name]
        makers = _makers(source)
        for call in function.body:
            if call.op != "call_kernel":
                continue
            parts = _parts(call, makers)
            if parts == [makers.get(call.outs[0].name)]:
                continue
            for number, sizes in enumerate(_small_sizes(before, source)):
                runs += _compare(before, after, call, parts, sizes, number)
    return runs


def _makers(function: Function) -> dict[str, Call]:
    return {out.name: call for call in function.body for out in call.outs}


def _parts(call: Call, makers: Mapping[str, Call]) -> list[Call | None]:
    """The calls before fusion that lead from the operands of a call to its results, in order;
    None for what is neither a kernel nor a view."""
    given = {v.name for v in call.inputs}
    found: list[Call | None] = []

    def follow(name: str) -> None:
        maker = makers.get(name)
        if name in given or maker in found or maker is None:
            return
        if maker.op not in ("call_kernel", "view"):
            found.append(None)
            return
        for operand in maker.inputs:
            follow(operand.name)
        found.append(maker)

    for out in call.outs:
        follow(out.name)
    return found


def _small_sizes(module: Module, function: Function) -> Iterator[Sizes]:
    """Sizes with which the function's calls run: no condition and no check refuses them."""
    relations = [(c.relation, c.left, c.right) for c in module.conditions]
    relations += [relation for call in function.body for relation in checked_relations(call)]
    seen: list[Sizes] = []
    for step in STEPS:
        sizes = {
            s.name: min(s.high, s.low + (step + place % 3 if step else 0))
            for place, s in enumerate(module.symbols)
        }
        holds = all(
            left.evaluate(sizes) == right.evaluate(sizes)
            if relation == "=="
            else left.evaluate(sizes) <= right.evaluate(sizes)
            for relation, left, right in relations
        )
        if holds and sizes not in seen:
            seen.append(sizes)
            yield sizes


def _compare(
    before: Module,
    after: Module,
    call: Call,
    parts: list[Call | None],
    sizes: Sizes,
    seed: int,
) -> int:
    """1 where both ran, 0 where they are too large or the data suit neither."""
    calls = [part for part in parts if part is not None]
    if len(calls) < len(parts):
        return 0
    kernels = [before.kernel_table[c.ref("kernel")] for c in calls if c.op == "call_kernel"]
    fused = after.kernel_table[call.ref("kernel")]
    if sum(_work(kernel.body, sizes) for kernel in (*kernels, fused)) > MOST_WORK:
        return 0
    rng = np.random.default_rng(seed)
    values = {v.name: _array(v, before, sizes, rng) for v in call.inputs}
    try:
        separate = _run_parts(before, calls, dict(values), sizes)
    except (IndexFault, AssertionError, KeyError):
        return 0  # no kernel of fusion's making: random data may be refused, or undefined
    try:
        arrays, partial = [values[v.name] for v in call.inputs], partial_outputs(after, call, fused)
        results = run_kernel(fused, arrays, sizes, partial=partial)
    except (IndexFault, AssertionError, KeyError) as error:
        raise FusionError(fused.name, f"at {_text(sizes)}: {error}") from error
    for out, array in zip(call.outs, results, strict=False):
        if array.tobytes() != separate[out.name].tobytes():
            raise FusionError(fused.name, f"%{out.name} differs from its parts at {_text(sizes)}")
    return 1


def _array(value: Var, module: Module, sizes: Sizes, rng: np.random.Generator) -> Array:
    """Constants as they are; other values at random, whole numbers small."""
    constant = module.constant_table.get(value.name)
    if constant is not None:
        return np.asarray(constant.data)
    shape = tuple(size.evaluate(sizes) for size in value.type.shape)
    dtype = value.type.dtype
    if dtype.is_float or dtype.is_stored_float:
        return rng.normal(size=shape).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)


def _run_parts(
    module: Module, calls: list[Call], values: dict[str, Array], sizes: Sizes
) -> dict[str, Array]:
    for call in calls:
        arrays = [values[v.name] for v in call.inputs]
        if call.op == "view":
            shape = tuple(size.evaluate(sizes) for size in call.out.type.shape)
            values[call.out.name] = arrays[0].reshape(shape)
            continue
        kernel = module.kernel_table[call.ref("kernel")]
        partial = partial_outputs(module, call, kernel)
        results = run_kernel(kernel, arrays, sizes, partial=partial)
        values |= {out.name: array for out, array in zip(call.outs, results, strict=False)}
    return values


def _work(body: tuple[Stmt, ...], sizes: Mapping[str, int]) -> int:
    """Statements that run, at about; loops whose ranges hang on outer loops count from 0."""
    total = 0
    for stmt in body:
        if isinstance(stmt, For):
            known = {n: sizes.get(n, 0) for n in stmt.start.symbols | stmt.stop.symbols}
            count = stmt.stop.evaluate(known) - stmt.start.evaluate(known)
            total += max(count, 1) * _work(stmt.body, sizes)
        elif isinstance(stmt, If):
            total += 1 + _work(stmt.then, sizes) + _work(stmt.otherwise, sizes)
        else:
            total += 1
    return total


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "its fixed sizes"
