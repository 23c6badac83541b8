# SPDX-License-Identifier: Apache-2.0
"""LiteRT (TensorFlow Lite) as the reference, with its reference kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends.tflite import accepts
from relax_aot.frontends.tflite.model import read_model
from relax_aot.verify.reference import Given, Reference, ReferenceFailed

Array = NDArray[Any]


class LitertReference(Reference):
    """Runs the source model itself, at the sizes of the given shapes."""

    def __init__(self, source: Any, fix: Mapping[str, Any], state: Mapping[str, str]) -> None:
        super().__init__(fix, state)
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
        self._interpreter = _made(interpreter, data)

    def run(self, given: Given, sizes: Mapping[str, int]) -> dict[str, Array]:
        made = self._interpreter
        feed = {
            d["index"]: given(self._names[d["index"]], d["dtype"], _axes(d["shape_signature"]))
            for d in made.get_input_details()
        }
        try:
            for index, array in feed.items():
                made.resize_tensor_input(index, array.shape)
            made.allocate_tensors()
            for index, array in feed.items():
                made.set_tensor(index, array)
            made.invoke()
            return {
                self._names[d["index"]]: np.array(made.get_tensor(d["index"]))
                for d in made.get_output_details()
            }
        except (ValueError, RuntimeError) as error:
            raise ReferenceFailed(f"LiteRT cannot run these sizes: {error}") from None


def _axes(signature: Sequence[int]) -> list[int | str]:
    return [int(size) if size >= 0 else "" for size in signature]


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
