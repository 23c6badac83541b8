# SPDX-License-Identifier: Apache-2.0
"""How much quantization adds to each value: signal to noise in decibels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.graph import Call, Module
from relax_aot.ops import all_ops, has
from relax_aot.ops._op import Trait
from relax_aot.quantization.insert import Inserted
from relax_aot.quantization.ranges import Sample, values
from relax_aot.quantization.summary import Layer
from relax_aot.quantization.values import Step, decoded, encoded

Array = NDArray[Any]
BEST = 150.0
"""What is said of values without noise."""
WORST = -150.0
"""What is said of values that are no longer numbers, or noise where nothing was."""


class _Sums:
    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, exact: Array, found: Array) -> None:
        wide = exact.astype(np.float64)
        changed = ~_same(exact, found)
        self.signal += float((wide[np.isfinite(wide)] ** 2).sum())
        with np.errstate(invalid="ignore"):
            self.noise += float(((wide[changed] - found[changed]) ** 2).sum())

    @property
    def decibels(self) -> float:
        if self.noise == 0:
            return BEST
        if not np.isfinite(self.noise) or self.signal == 0:
            return WORST
        return min(max(round(10 * float(np.log10(self.signal / self.noise)), 2), WORST), BEST)


def _same(exact: Array, found: Array) -> Array:
    """NaN is the same as NaN."""
    return np.asarray((exact == found) | (np.isnan(exact) & np.isnan(found)))


def noise(
    module: Module,
    inserted: Inserted,
    samples: Sequence[Sample],
    changed: Module,
    recurrent: Collection[str],
) -> tuple[tuple[Layer, ...], tuple[str, ...]]:
    """For each call that works on quantized values: the noise of its result in the whole quantized
    model, and the noise that it adds by itself, from exact operands. And the calls because of which
    results are infinite or NaN that were not. `recurrent`: results of the recurrent layers that
    have quantized weights in `changed`, in which no other layer is quantized."""
    order = {out.name: at for at, call in enumerate(module.main.body) for out in call.outs}
    names = sorted({*inserted.quantized, *recurrent}, key=lambda name: order[name])
    layers = {call.outs[0].name: call for call in changed.main.body if call.outs}
    whole = {name: _Sums() for name in names}
    alone = {name: _Sums() for name in names}
    calls = {call.outs[0].name: call for call in module.main.body if call.outs}
    weights = _decoded_constants(inserted.module)
    quantized = {c.outs[0].name: c for c in inserted.module.main.body if c.outs}
    pairs = zip(samples, values(module, samples), values(inserted.module, samples), strict=True)
    spoilt: dict[str, None] = {}
    for sample, exact, found in pairs:
        spoilt.update(dict.fromkeys(_spoilt(module, exact, found)))
        for name in names:
            whole[name].add(exact[name], found[name])
            if name in recurrent:
                known = {**weights, **sample, **exact}
                result = _layer_alone(layers[name], known)
                alone[name].add(exact[name], found[name] if result is None else result)
            elif has(calls[name].op, Trait.CONTRACTION):
                result = _alone(calls[name], quantized[name], exact, inserted.steps, weights)
                alone[name].add(exact[name], exact[name] if result is None else result)
    found_layers = tuple(
        Layer(
            module.source_name(name), calls[name].op, calls[name].origin, whole[name].decibels,
            alone[name].decibels
            if name in recurrent or has(calls[name].op, Trait.CONTRACTION) else None,
        )
        for name in names
    )  # fmt: skip
    spoiling = dict.fromkeys(x for name in spoilt for x in _spoiling(module, inserted, name))
    return found_layers, tuple(module.source_name(name) for name in spoiling)


def _spoilt(module: Module, exact: Mapping[str, Array], found: Mapping[str, Array]) -> list[str]:
    """The first values on each way through the model that are not finite where they were."""
    broken = {
        name
        for name in exact.keys() & found.keys()
        if (np.isfinite(exact[name]) & ~np.isfinite(found[name])).any()
    }
    return [
        out.name
        for call in module.main.body
        for out in call.outs
        if out.name in broken and not any(arg.name in broken for arg in call.inputs)
    ]


def _spoiling(module: Module, inserted: Inserted, name: str) -> list[str]:
    """Of calls on quantized values, those that hand a value its noise: the call that makes it, else
    who else wants quantized values of its operands, else the calls before it that work on quantized
    values."""
    if name in inserted.quantized:
        return [name]
    makers = {out.name: call for call in module.main.body for out in call.outs}
    if name not in makers:
        return []
    operands = [arg.name for arg in makers[name].inputs]
    coded = {operand for operand in operands if operand in inserted.steps}
    readers = [
        call.out.name
        for call in module.main.body
        if call.outs and any(arg.name in coded for arg in call.inputs)
    ]
    found = [reader for reader in readers if reader in inserted.quantized]
    return found or [x for operand in operands for x in _spoiling(module, inserted, operand)]


def _decoded_constants(module: Module) -> dict[str, Array]:
    """What constant quantized values stand for, and plain constants."""
    found: dict[str, Array] = {c.name: np.asarray(c.data) for c in module.constants}
    for call in module.main.body:
        known = all(arg.name in found for arg in call.inputs)
        if call.op == "dequantize" and known:
            args = [None if arg is None else found[arg.name] for arg in call.args]
            result = all_ops()["dequantize"].reference(*args, **dict(call.attrs))
            found[call.out.name] = np.asarray(result)
    return found


def _alone(
    call: Call,
    quantized: Call,
    exact: Mapping[str, Array],
    steps: Mapping[str, Step],
    constants: Mapping[str, Array],
) -> Array | None:
    """The call's result from exact operands that pass through quantized values."""
    operands: list[Array | None] = []
    for plain, placed in zip(call.args, quantized.args, strict=True):
        if plain is None or placed is None:
            operands.append(None)
        elif placed.name in constants:
            operands.append(constants[placed.name])
        elif plain.name in steps and plain.name in exact:
            step = steps[plain.name]
            operands.append(decoded(encoded(exact[plain.name], step), step))
        else:
            return None
    return np.asarray(all_ops()[call.op].reference(*operands, **dict(call.attrs)))


def _layer_alone(call: Call, known: Mapping[str, Array]) -> Array | None:
    """The first result of a recurrent layer with quantized weights, from exact operands; None where
    one is not known."""
    if not all(arg.name in known for arg in call.inputs):
        return None
    operands = [None if arg is None else known[arg.name] for arg in call.args]
    return np.asarray(all_ops()[call.op].reference(*operands, **dict(call.attrs))[0])
