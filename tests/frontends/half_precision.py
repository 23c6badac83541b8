# SPDX-License-Identifier: Apache-2.0
"""Models of one node, retyped: what an operator gives in half precision and in double."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.defs
from onnx import ModelProto, TensorProto, helper, numpy_helper

from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.reference import evaluate, sizes_shown
from relax_aot.frontends import ImportOptions
from relax_aot.frontends.onnx import load
from relax_aot.frontends.onnx.table import handlers
from relax_aot.ir.graph import Module
from relax_aot.ops._op import Array
from tests.conformance.cases import cases_of
from tests.ops import test_contrib

HALF: dict[int, str] = {
    TensorProto.FLOAT16: "tensor(float16)",
    TensorProto.BFLOAT16: "tensor(bfloat16)",
}


@dataclass(frozen=True)
class Retyped:
    """A model whose values `names` are of half precision; initializers may be among them."""

    name: str
    operator: str
    model: ModelProto
    arrays: Mapping[str, Any]
    kind: int
    names: frozenset[str]


def retyped(kind: int) -> Iterator[Retyped]:
    """ONNX's cases of one node with an input that may be of half precision, then ours of
    com.microsoft."""
    for case in cases_of("core"):
        nodes = case.model.graph.node
        if len(nodes) != 1 or case.model.functions or nodes[0].domain:
            continue
        names = _half_inputs(case.model, kind)
        if names:
            values = zip(case.model.graph.input, case.data[0][0], strict=False)
            arrays = {value.name: array for value, array in values}
            yield Retyped(case.name, nodes[0].op_type, case.model, arrays, kind, names)
    for number, sample in enumerate(test_contrib.CASES):
        model, given = test_contrib.model_of(sample)
        rng = np.random.default_rng(number)
        arrays = {name: x.array(2) for name, x in given.items()}
        for name, array in arrays.items():
            if array.dtype == np.float32:
                arrays[name] = rng.normal(size=array.shape).astype(np.float32)
            elif sample.op in ("Attention", "MultiHeadAttention"):
                # Where no key is seen, -10000 is added to all scores, which float32 rounds.
                arrays[name] = np.maximum(array, 1)
        for value, array in zip(model.graph.input, arrays.values(), strict=True):
            sizes = value.type.tensor_type.shape.dim
            for dim, size in zip(sizes, array.shape, strict=True):
                dim.dim_value = size
        single = {
            *(v.name for v in model.graph.input
              if v.type.tensor_type.elem_type == TensorProto.FLOAT),
            *(t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT),
        }  # fmt: skip
        label = f"{sample.op}_{number}"
        yield Retyped(label, sample.op, model, arrays, kind, frozenset(single))


def _half_inputs(model: ModelProto, kind: int) -> frozenset[str]:
    (node,) = model.graph.node
    opset = max(o.version for o in model.opset_import if not o.domain)
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return frozenset()
    if node.op_type not in handlers() and not schema.has_function:
        return frozenset()
    allowed = {t.type_param_str: t.allowed_type_strs for t in schema.type_constraints}
    declared = {v.name: v.type.tensor_type.elem_type for v in model.graph.input}
    formals = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(node.input))]
    return frozenset(
        name
        for name, formal in zip(node.input, formals, strict=True)
        if HALF[kind] in allowed.get(formal.type_str, ())
        and declared.get(name) == TensorProto.FLOAT
    )


def module_in(found: Retyped, kind: int) -> Module | None:
    """The model with these values of another type; None where the importer refuses it."""
    model = ModelProto()
    model.CopyFrom(found.model)
    for value in model.graph.input:
        if value.name in found.names:
            value.type.tensor_type.elem_type = kind
    for tensor in model.graph.initializer:
        if tensor.name in found.names:
            half = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(found.kind))
            wide = half.astype(helper.tensor_dtype_to_np_dtype(kind))
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for value in model.graph.output:
        value.ClearField("type")
    try:
        return load(model, ImportOptions())
    except RelaxAotError:
        return None


def inputs_of(found: Retyped, module: Module, scale: float) -> dict[str, Array]:
    """The inputs, exact in half precision, times `scale`, in the module's types."""
    half = helper.tensor_dtype_to_np_dtype(found.kind)
    arrays: dict[str, Array] = {}
    fed = [value.name for value in found.model.graph.input if value.name in found.arrays]
    for name, param in zip(fed, module.main.params, strict=True):
        given = np.asarray(found.arrays[name])
        if name in found.names:
            with np.errstate(over="ignore"):
                given = (given.astype(np.float64) * scale).astype(half)
        arrays[param.name] = given.astype(param.type.dtype.numpy)
    return arrays


def run(module: Module, inputs: Mapping[str, Array]) -> list[Array]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(evaluate(module, inputs, sizes_shown(module, inputs)).values())
