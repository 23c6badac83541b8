# SPDX-License-Identifier: Apache-2.0
"""The values inside an ONNX model as ONNX Runtime computes them, by the names of the module."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relax_aot.inference.sizes import value_name
from relax_aot.ir.graph import Module
from relax_aot.verify.onnx_reference import OnnxReference

Array = NDArray[Any]


class OnnxValues:
    """Runs the source model with the results of its nodes as outputs.

    A value of the module is known here where it is the result of a node: the last call from that
    node made it, under the node's name of it.
    """

    def __init__(self, source: Any, fix: Mapping[str, Any], module: Module) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(_loaded(source))
        names = [name for node in model.graph.node for name in node.output if name]
        self._tensors = _known(module, names)
        have = {output.name for output in model.graph.output}
        for name in self._tensors.values():
            if name not in have:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
        self._module = module
        self._reference = OnnxReference(model, fix, {})

    def __call__(self, inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        """For inputs (states among them) by the names of the source."""
        found = self._reference(inputs, {}, sizes)
        return {name: np.asarray(found[tensor]) for name, tensor in self._tensors.items()}


def _loaded(source: Any) -> onnx.ModelProto:
    model: onnx.ModelProto = source
    if isinstance(source, str | os.PathLike):
        model = onnx.load(Path(source))
    elif isinstance(source, bytes):
        model = onnx.ModelProto.FromString(source)
    return model


def _known(module: Module, names: list[str]) -> dict[str, str]:
    """Tensors by the names of the values that they are."""
    legal = [value_name(name) for name in names]
    last = {call.origin: call for call in module.main.body}
    made = {out.name for call in last.values() for out in call.outs}
    return {
        value: name
        for value, name in zip(legal, names, strict=True)
        if value in made and legal.count(value) == 1
    }
