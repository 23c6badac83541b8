# SPDX-License-Identifier: Apache-2.0
"""Remove channels that add nothing to any result, or one known number.

Two things are found from the loops of kernels, whatever op they are of. The range of each value,
from weights and from the ranges of operands (`values`, interval arithmetic), and which places of
axes go together through all kernels (`links`). A channel goes where each sum that runs over it
takes nothing from it, or the same known integer, which the bias then has (`decide`, `rewrite`).
Every sum keeps its other terms and their order. What is known is known for all symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from relax_aot.ir.graph import Call, Constant, Module, Var
from relax_aot.ir.types import DType
from relax_aot.ops._op import Array
from relax_aot.pruning.decide import Terms, removed
from relax_aot.pruning.knowledge import Known, computes, exactly
from relax_aot.pruning.links import Key, Links, links_of, pairs_of
from relax_aot.pruning.plain import Plain, plain
from relax_aot.pruning.rewrite import Rewriter, Uneven
from relax_aot.pruning.values import Found, evaluate

LARGEST = 1 << 24
"""Larger constants are not looked at."""


def run(module: Module) -> Module:
    """A module of kernels without channels that nothing depends on."""
    if module.replaceable:
        return module
    while (after := _pruned(module)) is not module:
        module = after
    return module


def _pruned(module: Module) -> Module:
    if not any(_uneven(constant) or _bias(constant) for constant in module.constants):
        return module
    kernels = {
        number: plain(module.kernel_table[call.ref("kernel")])
        for number, call in enumerate(module.main.body)
        if call.op == "call_kernel"
    }
    sums = _sums(module, kernels)
    if not any(terms.free.any() for terms in sums):
        return module
    links = links_of(module, kernels)
    kept: list[Key] = []
    while True:
        gone = removed(links, sums, kept)
        if not gone.any():
            return module
        try:
            return _rewritten(module, kernels, sums, links, gone)
        except Uneven as error:
            kept.append(error.key)


def _uneven(constant: Constant) -> bool:
    """Whether a slice of a constant along an axis is one number, as where a filter is zero."""
    data = constant.data
    if constant.absent or data.size > LARGEST or not any(data.strides):
        return False
    for axis, size in enumerate(data.shape):
        if size > 1:
            rows = np.moveaxis(np.asarray(data), axis, 0).reshape(size, -1)
            same = (rows == rows[:, :1]).all(axis=1)
            if rows.shape[1] == 1:
                same = same & (rows[:, 0] == 0)
            if same.any():
                return True
    return False


def _bias(constant: Constant) -> bool:
    """Whether a constant may be biases or scales of integers: a channel with a small scale is one
    number, whatever its weights are."""
    return constant.type.dtype is DType.I32 and not constant.absent and constant.data.size > 1


def _sums(module: Module, kernels: Mapping[int, Plain | None]) -> list[Terms]:
    """What is known of the terms of every sum of the entry's calls."""
    known: dict[str, Known] = {}
    for constant in module.constants:
        small = not constant.absent and constant.data.size <= LARGEST
        if small and computes(constant.type.dtype):
            known[constant.name] = exactly(np.asarray(constant.data), constant.type.dtype)
    sums: list[Terms] = []
    for number, call in enumerate(module.main.body):
        if call.op == "view" and call.inputs[0].name in known:
            seen = _viewed(known[call.inputs[0].name], call.inputs[0], call.out)
            if seen is not None:
                known[call.out.name] = seen
        kernel = kernels.get(number)
        if kernel is None:
            continue
        found = _found(module, call, kernel, known)
        sums += [Terms.of(number, made) for made in found.sums]
        outputs = zip(kernel.kernel.outputs, call.outs, strict=False)
        known |= {
            out.name: found.outputs[buffer.name]
            for buffer, out in outputs
            if buffer.name in found.outputs and found.outputs[buffer.name].tells(buffer.dtype)
        }
    return sums


def _found(module: Module, call: Call, kernel: Plain, known: Mapping[str, Known]) -> Found:
    names = [buffer.name for buffer in kernel.kernel.inputs]
    pairs = zip(names, call.inputs, strict=True)
    return evaluate(
        kernel, {name: known[value.name] for name, value in pairs if value.name in known},
        module.bounds,
    )  # fmt: skip


def _viewed(known: Known, source: Var, out: Var) -> Known | None:
    """The same numbers under another shape; None where that would need more memory."""
    pairs = pairs_of(source.type.shape, out.type.shape)
    before: list[int] = []
    after: list[int] = []
    whole = known.shape
    for left, right in pairs:
        sizes = [whole[axis] for axis in left]
        if all(size == 1 for size in sizes):
            before += [1] * len(left)
            after += [1] * len(right)
            continue
        if any(not source.type.shape[axis].is_constant for axis in left):
            return None
        before += [source.type.shape[axis].constant for axis in left]
        after += [out.type.shape[axis].constant for axis in right]
    if np.prod(before) > LARGEST:
        return None

    return known.each(lambda array: np.broadcast_to(array, before).reshape(after))


def _rewritten(
    module: Module,
    kernels: Mapping[int, Plain | None],
    sums: list[Terms],
    links: Links,
    gone: Array,
) -> Module:
    main = module.main
    names = {kernel.name for kernel in module.kernels} | set(module.constant_table)
    names |= {out.name for call in main.body for out in call.outs} | {p.name for p in main.params}
    work = Rewriter(links, gone, dict(module.constant_table), names)
    body = tuple(
        work.call(number, call, kernels.get(number), [t for t in sums if t.call == number])
        for number, call in enumerate(main.body)
    )
    if body == main.body:
        return module  # only places that no loop runs along are gone
    functions = (replace(main, body=body), *module.functions[1:])
    used = {value.name for f in functions for call in f.body for value in call.inputs}
    called = {
        c.ref("kernel") for f in functions for c in f.body if c.op in ("call_kernel", "guard")
    }
    return replace(
        module,
        functions=functions,
        kernels=tuple(k for k in (*module.kernels, *work.kernels) if k.name in called),
        constants=tuple(c for c in work.constants.values() if c.name in used),
    )
