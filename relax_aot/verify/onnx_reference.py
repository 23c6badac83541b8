# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime as the reference."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto
from onnx.helper import make_node

from relax_aot.frontends.onnx.prepare import all_nodes, subgraphs
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
        try:
            model, folder = _precise(source)
            if folder is not None:
                options.add_session_config_entry(FOLDER, str(folder))
            self._session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - the binding's share no better base
            raise ReferenceFailed(f"ONNX Runtime refuses the model: {_reason(error)}") from None

    def run(self, given: Given, sizes: Mapping[str, int]) -> dict[str, Array]:
        feed = {
            declared.name: given(
                declared.name,
                _NUMPY.get(declared.type, np.float32),
                ["" if size is None else size for size in declared.shape],
            )
            for declared in self._session.get_inputs()
        }
        if any(array.size == 0 for array in feed.values()) or self._may_be_empty(sizes):
            self._survive(feed)
        try:
            values = self._session.run(None, feed)
        except Exception as error:  # noqa: BLE001 - as above
            raise ReferenceFailed(
                f"ONNX Runtime cannot run these sizes: {_reason(error)}"
            ) from None
        names = [o.name for o in self._session.get_outputs()]
        return dict(zip(names, (np.asarray(v) for v in values), strict=True))

    def _may_be_empty(self, sizes: Mapping[str, int]) -> bool:
        """Whether some value of the model may have no elements at these sizes."""
        functions = () if self._module is None else self._module.functions
        values = (out for f in functions for call in f.body for out in call.outs)
        dims = {dim for value in values for dim in value.type.shape}
        return any(not dim.symbols <= sizes.keys() or dim.evaluate(sizes) == 0 for dim in dims)

    def _survive(self, feed: Mapping[str, Array]) -> None:
        """Try it in a copy of this process. ONNX Runtime has kernels that stop the process where a
        value has no elements, such as those of GRU and LSTM in 1.31."""
        with warnings.catch_warnings():
            # The copy has this thread alone, which is all that a session with one thread needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            faulthandler.disable()
            with contextlib.suppress(BaseException):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                self._session.run(None, feed)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            raise ReferenceFailed(
                f"ONNX Runtime stops with {signal.Signals(os.WTERMSIG(status)).name} at a size of"
                " 0: use --reference numpy, or give sizes above 0 (--at, --bound)"
            )


FOLDER = "session.model_external_initializers_file_folder_path"
"""The option for where the external data of a model in memory are."""
ACCURACY = "accuracy_level"
"""The attribute of products with quantized weights (MatMulNBits) that lets ONNX Runtime round
activations to 8 bits. The operator is defined without this rounding."""
TRANSFORMS = ("DFT", "STFT")
"""Operators whose floats ONNX Runtime computes less exactly: where a length is no power of two, the
error of each result is up to a hundred roundings of the largest one."""


def _precise(source: Any) -> tuple[str | bytes, Path | None]:
    """The model without roundings that its operators do not have, and the folder of its external
    data where it is no file."""
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if path is not None:
        data = path.read_bytes()
    else:
        data = source if isinstance(source, bytes) else source.SerializeToString()
    if not any(word.encode() in data for word in (ACCURACY, *TRANSFORMS)):
        return data if path is None else str(path), None
    model = onnx.load_from_string(data)
    for node in all_nodes(model.graph.node):
        kept = [attribute for attribute in node.attribute if attribute.name != ACCURACY]
        del node.attribute[:]
        node.attribute.extend(kept)
    _transform_doubles(model.graph)
    return model.SerializeToString(), None if path is None else path.parent.resolve()


def _transform_doubles(graph: onnx.GraphProto) -> None:
    """Fourier transforms of the graph and its bodies take and give doubles inside."""
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        for inner in subgraphs(node):
            _transform_doubles(inner)
        if node.domain or node.op_type not in TRANSFORMS:
            graph.node.append(node)
            continue
        signal, result = node.input[0], node.output[0]
        floats = (0, 2) if node.op_type == "STFT" else (0,)  # the signal and its window
        for index in floats:
            if index < len(node.input) and node.input[index]:
                given, node.input[index] = node.input[index], f"{result}.{index}.double"
                cast = make_node("Cast", [given], [node.input[index]], to=TensorProto.DOUBLE)
                graph.node.append(cast)
        node.output[0] = f"{result}.double"
        graph.node.append(node)
        graph.node.append(make_node("CastLike", [node.output[0], signal], [result]))


def _reason(error: Exception) -> str:
    return f"{str(error).strip()}\nUse --reference numpy, or other sizes and inputs."


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
