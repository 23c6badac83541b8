# SPDX-License-Identifier: Apache-2.0
"""Batch normalization becomes part of the convolution before it.

Coded apart from it, the convolution's result would need a range of its own, and floats between.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Constant, Module, Var
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array


def fold_norms(module: Module) -> Module:
    """Where weights and statistics are constants of f32 and no other call reads the convolution."""
    main = module.main
    constants = dict(module.constant_table)
    makers = {out.name: call for call in main.body for out in call.outs}
    readers: dict[str, int] = {}
    for value in (*(v for call in main.body for v in call.inputs), *main.results):
        readers[value.name] = readers.get(value.name, 0) + 1
    gone: set[str] = set()
    body: list[Call] = []
    for call in main.body:
        conv = makers.get(call.inputs[0].name) if call.op == "batch_norm" else None
        if conv is None or conv.op not in ("conv", "conv_transpose") or readers[conv.out.name] != 1:
            body.append(call)
            continue
        folded = _folded(call, conv, constants)
        if folded is None:
            body.append(call)
            continue
        gone.add(conv.out.name)
        body.append(folded)
    kept = tuple(c for c in body if not (len(c.outs) == 1 and c.out.name in gone))
    functions = (replace(main, body=kept), *module.functions[1:])
    return replace(module, functions=functions, constants=tuple(constants.values()))


def _folded(norm: Call, conv: Call, constants: dict[str, Constant]) -> Call | None:
    def data(value: Var | None) -> Array | None:
        found = None if value is None else constants.get(value.name)
        single = found is not None and found.type.dtype is DType.F32
        return np.asarray(found.data, np.float64) if found is not None and single else None

    weights, bias = data(conv.args[1]), data((*conv.args, None)[2])
    scale, shift, mean, variance = (data(arg) for arg in norm.args[1:5])
    if weights is None or scale is None or shift is None or mean is None or variance is None:
        return None
    if (*conv.args, None)[2] is not None and bias is None:
        return None
    epsilon = norm.attr("epsilon")
    assert isinstance(epsilon, int | float)
    factor = scale / np.sqrt(variance + epsilon)
    moved = ((0.0 if bias is None else bias) - mean) * factor + shift
    spread = weights * _of_filters(conv, factor, weights)
    parts = []
    for name, array in (("weights", spread), ("bias", moved)):
        type_ = TensorType(DType.F32, tuple(Dim.of(int(n)) for n in array.shape))
        made = Constant(f"{norm.out.name}.{name}.folded", type_, array.astype(np.float32))
        constants[made.name] = made
        parts.append(made.var)
    origin = f"{conv.origin} + {norm.origin}"
    return replace(conv, outs=norm.outs, args=(conv.args[0], *parts), origin=origin)


def _of_filters(conv: Call, factor: Array, weights: Array) -> Array:
    """The numbers of output channels, as they multiply filters."""
    ones = [1] * (weights.ndim - 2)
    if conv.op == "conv":
        return factor.reshape(-1, 1, *ones)
    group = conv.attr("group")
    assert isinstance(group, int)
    rows = np.repeat(factor.reshape(group, -1), len(weights) // group, axis=0)
    return rows.reshape(*rows.shape, *ones)
