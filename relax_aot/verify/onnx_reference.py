"""ONNX Runtime as the reference, with states carried from call to call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError

Array = NDArray[Any]


class ReferenceFailed(RelaxAotError):
    """The reference is missing, or refused the model."""


class OnnxReference:
    """Runs the source model itself; inputs that were fixed and states are filled in."""

    def __init__(
        self,
        source: Any,
        fix: Mapping[str, Any],
        state: Mapping[str, str],
        held: dict[str, Array] | None = None,
    ) -> None:
        """`held` are states by the input's name, where several models share them."""
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
        self._fix = dict(fix)
        self._state = dict(state)
        self._held: dict[str, Array] = {} if held is None else held

    def reset(self) -> None:
        """Begin with states of zeros."""
        self._held.clear()

    def __call__(
        self,
        inputs: Mapping[str, Array],
        state_shapes: Mapping[str, tuple[int, ...]],
        sizes: Mapping[str, int] | None = None,
    ) -> dict[str, Array]:
        """ONNX Runtime takes sizes from shapes: `sizes` are for other references."""
        del sizes
        feed: dict[str, Array] = {}
        for declared in self._session.get_inputs():
            name = declared.name
            dtype = _NUMPY.get(declared.type, np.float32)
            if name in inputs:
                feed[name] = inputs[name]
            elif name in self._state:
                shape = state_shapes[name]
                feed[name] = self._held.get(name, np.zeros(shape, dtype))
            elif name in self._fix:
                fixed = [n if isinstance(n, int) else 1 for n in declared.shape]
                value = np.asarray(self._fix[name])
                if value.dtype.kind in "US":
                    value = np.asarray(float(str(value)))
                feed[name] = np.broadcast_to(value.astype(dtype), fixed).copy()
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
        results = dict(zip(names, (np.asarray(v) for v in values), strict=True))
        for name, output in self._state.items():
            if output in results:
                self._held[name] = results[output]
        return results


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
