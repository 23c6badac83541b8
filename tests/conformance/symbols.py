# SPDX-License-Identifier: Apache-2.0
"""The same cases with every axis of every input unknown, and data of other sizes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from tests.conformance.cases import Case, fed_inputs

# Operators whose operands beyond the first are parameters, and the axis of the first operand
# that these fix: its channels or features.
PARAMETER_AXIS = {
    **dict.fromkeys(
        (
            "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv",
            "BatchNormalization", "InstanceNormalization", "GroupNormalization",
        ),
        1,
    ),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "LayerNormalization", "RMSNormalization"), -1),
}  # fmt: skip


@dataclass(frozen=True)
class Symbolic:
    """A case whose axes are symbols, and the size of each in the case's data."""

    case: Case
    model: ModelProto
    sizes: Mapping[str, int]
    scaled: frozenset[str]
    """Those that may change together: a list of axes of twice the length says nothing."""

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Twice the case's own sizes."""
        return {name: (min(1, size), 2 * size) for name, size in self.sizes.items()}

    def at(self, size: Callable[[int], int]) -> dict[str, int]:
        """Sizes that make sense together, some of them changed."""
        return {n: size(own) if n in self.scaled else own for n, own in self.sizes.items()}


def opened(case: Case) -> Symbolic | None:
    """Axes longer than one become symbols, those of one size the same symbol, so that sizes
    which have to agree do. Weights, the channels that they fix, and vectors of 64-bit integers
    (shapes) stay. None where no axis is left, or ONNX cannot say what the types then are."""
    model = ModelProto()
    model.CopyFrom(case.model)
    inputs, _ = case.data[0]
    fixed = _fixed_axes(model)
    sizes: dict[str, int] = {}
    for value, data in zip(fed_inputs(model), inputs, strict=False):
        if value.type.WhichOneof("value") != "tensor_type" or not isinstance(data, np.ndarray):
            return None
        free = _free_axes(value, data, fixed)
        if free is None:
            continue
        shape = value.type.tensor_type.shape
        shape.ClearField("dim")
        shape.SetInParent()
        for axis, size in enumerate(data.shape):
            dim = shape.dim.add()
            if axis in free:
                dim.dim_param = f"d{size}"
                sizes[dim.dim_param] = size
            else:
                dim.dim_value = size
    if not sizes:
        return None
    _forget_results(model, case)
    try:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (RuntimeError, ValueError):
        return None
    return Symbolic(case, model, sizes, frozenset(sizes))


def _free_axes(value: Any, data: Any, fixed: Mapping[str, int | None]) -> set[int] | None:
    """Those that may be longer or shorter; None where the whole shape stays."""
    if data.ndim == 0 or (data.ndim == 1 and data.dtype == np.int64):
        return None
    kept = fixed.get(value.name, data.ndim)
    if kept is None:
        return None
    return {
        a for a, size in enumerate(data.shape) if size > 1 and a not in (kept, kept + data.ndim)
    }


def _forget_results(model: ModelProto, case: Case) -> None:
    """Of results the rank alone is kept: with other sizes, theirs are others."""
    del model.graph.value_info[:]
    for value, data in zip(model.graph.output, case.data[0][1], strict=False):
        if value.type.WhichOneof("value") == "tensor_type":
            shape = value.type.tensor_type.shape
            shape.ClearField("dim")
            shape.SetInParent()
            for _ in np.shape(data):
                shape.dim.add()


def apart(case: Case) -> Symbolic | None:
    """Every axis of every input a symbol of its own. None where there is no axis."""
    model = ModelProto()
    model.CopyFrom(case.model)
    fixed = _fixed_axes(model)
    sizes: dict[str, int] = {}
    scaled: set[str] = set()
    for number, (value, data) in enumerate(zip(fed_inputs(model), case.data[0][0], strict=False)):
        if value.type.WhichOneof("value") != "tensor_type" or not isinstance(data, np.ndarray):
            return None
        shape = value.type.tensor_type.shape
        shape.ClearField("dim")
        shape.SetInParent()
        free = _free_axes(value, data, fixed) or set()
        scaled |= {f"i{number}a{axis}" for axis in free}
        for axis, size in enumerate(data.shape):
            shape.dim.add().dim_param = f"i{number}a{axis}"
            sizes[f"i{number}a{axis}"] = size
    _forget_results(model, case)
    return Symbolic(case, model, sizes, frozenset(scaled)) if sizes else None


def _fixed_axes(model: ModelProto) -> dict[str, int | None]:
    """By input that feeds such an operator: the axis that stays, None where all do."""
    fixed: dict[str, int | None] = {}
    for node in model.graph.node:
        if node.op_type in PARAMETER_AXIS:
            fixed[node.input[0]] = PARAMETER_AXIS[node.op_type]
            fixed.update(dict.fromkeys(node.input[1:]))
    return fixed


def resized(symbolic: Symbolic, sizes: Mapping[str, int]) -> list[Any]:
    """The case's inputs at other sizes: its own values, cut or repeated, so that indices and
    the like stay sensible."""
    inputs, _ = symbolic.case.data[0]
    arrays = []
    for value, data in zip(fed_inputs(symbolic.model), inputs, strict=False):
        array = np.asarray(data)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param in sizes and axis < array.ndim:
                indices = np.arange(sizes[dim.dim_param]) % max(array.shape[axis], 1)
                array = np.take(array, indices, axis)
        arrays.append(array)
    return arrays
