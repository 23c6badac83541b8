# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime as the reference."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relax_aot.verify.reference import Given, Reference, ReferenceFailed

Array = NDArray[Any]


class OnnxReference(Reference):
    """Runs the source model itself, at the sizes of the given shapes."""

    def __init__(
        self,
        source: Any,
        fix: Mapping[str, Any],
        state: Mapping[str, str],
        held: dict[str, Array] | None = None,
    ) -> None:
        super().__init__(fix, state, held)
        try:
            import onnxruntime
        except ImportError:
            raise ReferenceFailed(
                "onnxruntime is not installed; pip install 'relax_aot[verify]', or use"
                " --reference numpy"
            ) from None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        # Optimized, quantized operators are merged and round elsewhere.
        off = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = off
        model = source
        if isinstance(source, str | os.PathLike):
            model = str(Path(source))
        elif not isinstance(source, bytes):
            model = source.SerializeToString()
        try:
            self._session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - the binding's share no better base
            raise ReferenceFailed(f"ONNX Runtime refuses the model: {error}") from None
        self._source = source

    def run(self, given: Given, sizes: Mapping[str, int]) -> dict[str, Array]:
        feed = {
            declared.name: given(
                declared.name, _NUMPY.get(declared.type, np.float32), declared.shape
            )
            for declared in self._session.get_inputs()
        }
        if any(array.size == 0 for array in feed.values()) and _aborts(self._source):
            raise ReferenceFailed(
                "ONNX Runtime aborts for a GRU or LSTM with a size of 0: use --reference"
                " numpy, or give sizes above 0 (--at, --bound)"
            )
        try:
            values = self._session.run(None, feed)
        except Exception as error:  # noqa: BLE001 - as above
            raise ReferenceFailed(f"ONNX Runtime cannot run these sizes: {error}") from None
        names = [o.name for o in self._session.get_outputs()]
        return dict(zip(names, (np.asarray(v) for v in values), strict=True))


_NUMPY: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint64)": np.uint64,
    "tensor(uint32)": np.uint32,
    "tensor(uint16)": np.uint16,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def _aborts(source: Any) -> bool:
    """Whether the model has an operator that ONNX Runtime 1.31 does not survive without steps or
    rows."""
    if isinstance(source, str | os.PathLike):
        model = onnx.load(source, load_external_data=False)
    else:
        model = onnx.ModelProto.FromString(source) if isinstance(source, bytes) else source
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        for node in waiting.pop():
            if node.op_type in ("GRU", "LSTM"):
                return True
            waiting += [attribute.g.node for attribute in node.attribute]
            waiting += [graph.node for attribute in node.attribute for graph in attribute.graphs]
    return False
