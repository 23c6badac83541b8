# SPDX-License-Identifier: Apache-2.0
"""Quantizing after training: a module of floats and sample inputs -> a module of quantized values.

    int8     weights of i8, one scale per channel; activations of i8, with the ranges that samples
             show; biases of i32. Inputs and results of the model stay floats. Recurrent layers have
             weights of i8, one scale per row; each row of their activations is quantized while
             the model runs, and their gates and states stay floats.
    int8w    weights of products and recurrent layers alone, of 8 bits in groups
    int4w    the same of 4 bits, in smaller groups
    int8d    weights of 8 bits in the groups of int4w; activations of i8, each row quantized while
             the model runs
    int4d    the weights of int4w, with the activations of int8d
    q8_0     weights of 8 bits in the blocks of GGUF, and activations in blocks of i8; rows that are
             gathered from tables, too
    q4_0     the same with weights of 4 bits
    q4_k     the same with an offset for each block

See docs/how-to/quantize.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module
from relax_aot.ir.types import array_of
from relax_aot.quantization.choice import Choice, QuantizeError
from relax_aot.quantization.fold_norms import fold_norms
from relax_aot.quantization.insert import insert
from relax_aot.quantization.noise import noise
from relax_aot.quantization.ranges import CalibrationError, Sample, ranges
from relax_aot.quantization.recurrent import recurrent_in_rows
from relax_aot.quantization.summary import Quantized
from relax_aot.quantization.weight_only import KINDS, weight_only

__all__ = ["CalibrationError", "Choice", "QuantizeError", "quantize"]

Array = NDArray[Any]
SHOWN = 8


def quantize(
    module: Module, arrays: Mapping[str, Array], choice: Choice
) -> tuple[Module, Quantized]:
    """`arrays` are inputs by name, with a leading axis of samples."""
    module = fold_norms(module) if choice.kind == "int8" else module
    kept = _kept(module, choice.keep_float)
    if choice.kind in KINDS:
        changed, count, left = weight_only(module, choice.kind, kept)
        if not count:
            kind = KINDS[choice.kind]
            reasons = "".join(f"; {name}: {why}" for name, why in left.items())
            what = "matrix product or recurrent layer with constant weights of floats"
            if kind.form:
                what = (
                    "matrix product with constant weights of floats whose inner axis is a multiple"
                    f" of {kind.group}"
                )
            raise QuantizeError(
                f"the model has no {what}, and {choice.kind} quantizes no others; int8 quantizes"
                f" convolutions of f32 models, too{reasons}"
            )
        return changed, Quantized(choice.kind, left=left)
    samples = _samples(module, arrays)
    changed, recurrent = recurrent_in_rows(module, kept)
    inserted = insert(
        changed, ranges(changed, samples, choice.calibration), kept, symmetric=choice.symmetric
    )
    if not inserted.quantized and not recurrent.quantized:
        halves = any(v.type.dtype.is_half for f in module.functions for c in f.body for v in c.outs)
        way = "; values of half precision have none: convert the model to f32" if halves else ""
        raise QuantizeError(
            f"no operator of the model has an integer form, or all are kept in float{way}"
        )
    layers, spoiling = noise(module, inserted, samples, changed, recurrent.quantized)
    return inserted.module, Quantized(choice.kind, layers, spoiling, recurrent.left)


def _kept(module: Module, names: Sequence[str]) -> Collection[str]:
    """Results of calls that a user names by result, by node or by operator, ours or that of the
    source model. Several calls may compute the result of a node, and the first of them has its
    name."""
    calls = [call for f in module.functions for call in f.body if call.outs]
    operators = dict(module.operators)
    kept: set[str] = set()
    for name in names:
        results = [
            call
            for call in calls
            if name in (call.outs[0].name, module.source_name(call.outs[0].name))
        ]
        nodes = {call.origin for call in results} - {"", "result"}
        found = {call.outs[0].name for call in results} | {
            call.outs[0].name
            for call in calls
            if name == call.op
            or call.origin in nodes
            or any(name in (node, operators.get(node)) for node in call.origin.split(" + "))
        }
        if not found:
            shown = ", ".join(call.outs[0].name for call in calls[:SHOWN])
            kinds = ", ".join(dict.fromkeys(operators.values()) or sorted({c.op for c in calls}))
            raise QuantizeError(
                f"the model has no layer {name!r}; layers are {shown}, ...; operators are {kinds}"
            )
        kept |= found
    return kept


def _samples(module: Module, arrays: Mapping[str, Array]) -> list[Sample]:
    """One set of inputs for each sample; a state that is not given starts as zeros."""
    states = {state.input for state in module.states}
    found: dict[str, Array] = {}
    counts: set[int] = set()
    for param in module.main.params:
        source = module.source_name(param.name)
        given = arrays.get(source, arrays.get(param.name))
        if given is None:
            if param.name in states:
                if not all(size.is_constant for size in param.type.shape):
                    raise CalibrationError(
                        f"the state {source!r} ({param.type}) has a dynamic size,"
                        f" so it needs samples too: --calibrate {source}=FILE.npz:KEY"
                    )
                continue
            raise CalibrationError(
                f"the calibration data has no input {source!r} ({param.type}), only"
                f" {', '.join(sorted(arrays)) or 'nothing'}; give --calibrate {source}=FILE.npz:KEY"
            )
        try:
            array = array_of(param.type.dtype, given)
        except ValueError as error:
            raise CalibrationError(
                f"calibration data for {source!r} must be {param.type}: {error}"
            ) from None
        rank = param.type.rank
        if array.ndim == rank and rank and param.type.shape[0] == Dim.of(1) and len(array) > 1:
            array = array[:, None]
        if array.ndim == rank:
            array = array[None]
        if array.ndim != rank + 1 or not len(array):
            raise CalibrationError(
                f"calibration data for {source!r} must be {param.type} with a leading axis of "
                f"samples, got {list(array.shape)}"
            )
        found[param.name] = array
        counts.add(len(array))
    if len(counts) != 1:
        raise CalibrationError(f"inputs have different numbers of samples: {sorted(counts)}")
    (count,) = counts
    zeros = {
        p.name: np.zeros([n.constant for n in p.type.shape], p.type.dtype.numpy)
        for p in module.main.params
        if p.name not in found
    }
    return [{name: array[i] for name, array in found.items()} | zeros for i in range(count)]
