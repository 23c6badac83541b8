# SPDX-License-Identifier: Apache-2.0
"""Small TensorFlow Lite models made on the spot, and what its own reference kernels make of them.

Both come from the package ai-edge-litert: the schema's classes write the file, the interpreter
with the BUILTIN_REF kernels is the truth. Where it is not installed, the tests are skipped.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relax_aot as rx
from relax_aot.evaluation.reference import evaluate, sizes_shown
from relax_aot.ir.graph import Module

Array = NDArray[Any]
NO_LITERT = "ai-edge-litert is not installed"
TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int32": "INT32", "uint8": "UINT8",
    "int64": "INT64", "bool": "BOOL", "int16": "INT16", "int8": "INT8", "uint32": "UINT32",
}  # fmt: skip


def litert(module: str) -> Any:
    try:
        return importlib.import_module(f"ai_edge_litert.{module}")
    except ImportError:
        pytest.skip(NO_LITERT)


@dataclass
class Maker:
    """A model under construction; tensors go by number."""

    tensors: list[Any] = field(default_factory=list)
    buffers: list[Any] = field(default_factory=list)
    codes: list[Any] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.schema = litert("schema_py_generated")
        self.buffers.append(self.schema.BufferT())

    def tensor(
        self,
        shape: tuple[int, ...],
        dtype: Any = np.float32,
        scale: Any = None,
        zero: Any = 0,
        *,
        axis: int = 0,
        data: Array | None = None,
        variable: bool = False,
        signature: tuple[int, ...] | None = None,
    ) -> int:
        made = self.schema.TensorT()
        made.name = f"t{len(self.tensors)}"
        made.shape = np.array(shape, np.int32)
        made.type = getattr(self.schema.TensorType, TYPES[np.dtype(dtype).name])
        made.isVariable = variable
        made.buffer = 0
        made.hasRank = True
        if signature is not None:
            made.shapeSignature = np.array(signature, np.int32)
        if data is not None:
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data, dtype).tobytes(), np.uint8)
            made.buffer = len(self.buffers)
            self.buffers.append(buffer)
        if scale is not None:
            quantization = self.schema.QuantizationParametersT()
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            quantization.scale = scales
            zeros = np.broadcast_to(np.asarray(zero, np.int64), scales.shape)
            quantization.zeroPoint = zeros.copy()
            quantization.quantizedDimension = axis
            made.quantization = quantization
        self.tensors.append(made)
        return len(self.tensors) - 1

    def constant(self, data: Array, scale: Any = None, zero: Any = 0, *, axis: int = 0) -> int:
        return self.tensor(data.shape, data.dtype, scale, zero, axis=axis, data=data)

    def operator(
        self,
        name: str,
        inputs: list[int],
        outputs: list[int],
        options: str = "",
        *,
        version: int = 1,
        intermediates: list[int] | None = None,
        **values: Any,
    ) -> None:
        """`options` is the table of the schema, such as Conv2DOptions."""
        code = self.schema.OperatorCodeT()
        number = getattr(self.schema.BuiltinOperator, name)
        code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
        code.version = version
        made = self.schema.OperatorT()
        made.opcodeIndex = len(self.codes)
        self.codes.append(code)
        made.inputs, made.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        if intermediates:
            made.intermediates = np.array(intermediates, np.int32)
        if options:
            table = getattr(self.schema, f"{options}T")()
            for key, value in values.items():
                assert hasattr(table, key), (options, key)
                setattr(table, key, value)
            made.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
            made.builtinOptions = table
        self.operators.append(made)

    def build(self, inputs: list[int], outputs: list[int]) -> bytes:
        flatbuffers = pytest.importorskip("flatbuffers", reason=NO_LITERT)
        graph = self.schema.SubGraphT()
        graph.tensors, graph.operators = self.tensors, self.operators
        graph.inputs, graph.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        model = self.schema.ModelT()
        model.version = 3
        model.subgraphs, model.buffers, model.operatorCodes = [graph], self.buffers, self.codes
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _interpreter(model: bytes) -> Any:
    """With the reference kernels; a few operators have none, and one kernel for all."""
    module = litert("interpreter")
    kinds = module.OpResolverType
    for kind in (kinds.BUILTIN_REF, kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
        try:
            return module.Interpreter(model_content=model, experimental_op_resolver_type=kind)
        except ValueError as error:
            if kind is not kinds.BUILTIN_REF or "Didn't find op" not in str(error):
                raise
    raise AssertionError


def truth(model: bytes, runs: list[list[Array]]) -> list[list[Array]]:
    """What the reference kernels give, one run after the other."""
    made = _interpreter(model)
    found = []
    details = made.get_input_details()
    for detail, array in zip(details, runs[0], strict=True):
        if tuple(detail["shape"]) != array.shape:
            made.resize_tensor_input(detail["index"], array.shape)
    made.allocate_tensors()
    for inputs in runs:
        for detail, array in zip(made.get_input_details(), inputs, strict=True):
            made.set_tensor(detail["index"], array)
        made.invoke()
        found.append([made.get_tensor(d["index"]).copy() for d in made.get_output_details()])
    return found


def ours(module: Module, inputs: list[Array]) -> list[Array]:
    """What the module means, by the ops' references; C is compared with these elsewhere."""
    named = {p.name: a for p, a in zip(module.main.params, inputs, strict=True)}
    results = evaluate(module, named, sizes_shown(module, named))
    return [results[var.name] for var in module.main.results]


def check_model(
    model: bytes, inputs: list[Array], *, atol: float = 0.0, bounds: Any = None
) -> list[Array]:
    """Asserts that both agree; exactly unless `atol` says else."""
    (expected,) = truth(model, [inputs])
    found = ours(rx.load(model, bounds=bounds), inputs)
    for theirs, mine in zip(expected, found, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        if atol == 0.0:
            np.testing.assert_array_equal(mine, theirs)
        else:
            np.testing.assert_allclose(mine, theirs, atol=atol, rtol=1e-5)
    return expected
