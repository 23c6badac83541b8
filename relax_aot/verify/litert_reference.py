"""LiteRT (TensorFlow Lite) as the reference, with its reference kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends.tflite import accepts
from relax_aot.frontends.tflite.model import read_model
from relax_aot.verify.onnx_reference import ReferenceFailed

Array = NDArray[Any]


class LitertReference:
    """Runs the source model itself at the sizes of each call; states are filled in."""

    def __init__(self, source: Any, fix: Mapping[str, Any], state: Mapping[str, str]) -> None:
        data = _bytes_of(source)
        try:
            from ai_edge_litert import interpreter
        except ImportError:
            raise ReferenceFailed(
                "ai-edge-litert is not installed; pip install 'relax_aot[litert]', or use"
                " --reference numpy"
            ) from None
        graph = read_model(data)
        names = {i: graph.names.get(i) or graph.tensors[i].name for i in _ports(graph)}
        self._names: Mapping[int, str] = names
        self._fix, self._state = dict(fix), dict(state)
        self._held: dict[str, Array] = {}
        self._interpreter = _made(interpreter, data)

    def reset(self) -> None:
        """Begin with states of zeros."""
        self._held.clear()

    def __call__(
        self,
        inputs: Mapping[str, Array],
        state_shapes: Mapping[str, tuple[int, ...]],
        sizes: Mapping[str, int],
    ) -> dict[str, Array]:
        made = self._interpreter
        feed = {d["index"]: self._input(d, inputs, state_shapes) for d in made.get_input_details()}
        try:
            for index, array in feed.items():
                made.resize_tensor_input(index, array.shape)
            made.allocate_tensors()
            for index, array in feed.items():
                made.set_tensor(index, array)
            made.invoke()
            found = {
                self._names[d["index"]]: np.array(made.get_tensor(d["index"]))
                for d in made.get_output_details()
            }
        except (ValueError, RuntimeError) as error:
            raise ReferenceFailed(f"LiteRT cannot run these sizes: {error}") from None
        for name, output in self._state.items():
            if output in found:
                self._held[name] = found[output]
        return found

    def _input(
        self,
        detail: Mapping[str, Any],
        inputs: Mapping[str, Array],
        state_shapes: Mapping[str, tuple[int, ...]],
    ) -> Array:
        name, dtype = self._names[detail["index"]], detail["dtype"]
        if name in inputs:
            return np.ascontiguousarray(inputs[name])
        if name in self._state:
            return self._held.get(name, np.zeros(state_shapes[name], dtype))
        if name in self._fix:
            value = np.asarray(float(str(self._fix[name]))).astype(dtype)
            return np.broadcast_to(value, tuple(detail["shape"])).copy()
        raise ReferenceFailed(f"LiteRT's input {name!r} is no input of the compiled model")


def _bytes_of(source: Any) -> bytes:
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() == ".tflite":
        return Path(source).read_bytes()
    if accepts(source):
        data: bytes = source
        return data
    shown = Path(source).name if isinstance(source, str | os.PathLike) else type(source).__name__
    raise ReferenceFailed(
        f"--reference litert runs .tflite models, not {shown}: use onnxruntime or numpy"
    )


def _ports(graph: Any) -> list[int]:
    return [*graph.inputs, *graph.outputs]


def _made(module: Any, data: bytes) -> Any:
    """With the reference kernels; a few operators have none, and one kernel for all."""
    kinds = module.OpResolverType
    try:
        return module.Interpreter(
            model_content=data, experimental_op_resolver_type=kinds.BUILTIN_REF
        )
    except ValueError as error:
        if "Didn't find op" not in str(error):
            raise ReferenceFailed(f"LiteRT refuses the model: {error}") from None
    plain = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        return module.Interpreter(model_content=data, experimental_op_resolver_type=plain)
    except ValueError as error:
        raise ReferenceFailed(f"LiteRT refuses the model: {error}") from None
