# SPDX-License-Identifier: Apache-2.0
"""Writes peaks.onnx: how peaked a signal is over its last 64 samples, for any length.

python -m examples.extern_routine.make_model build/peaks.onnx
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from onnx import parser

WINDOW = 64

GRAPH = f"""
<ir_version: 8, opset_import: ["" : 17]>
peaks (float[b, 3, n] signal) => (float[b, 3, n] crest, float[b, 3] loudest)
{{
    size = Abs(signal)
    envelope = MaxPool <kernel_shape = [{WINDOW}], pads = [{WINDOW - 1}, 0]> (size)
    mean = AveragePool <kernel_shape = [3], pads = [1, 1]> (envelope)
    one = Constant <value_float = 1.0> ()
    floor = Add(mean, one)
    crest = Div(size, floor)
    loudest = ReduceMax <axes = [2], keepdims = 0> (envelope)
}}
"""


def model() -> onnx.ModelProto:
    made = parser.parse_model(GRAPH)
    for node in made.graph.node:
        node.name = f"/{node.output[0]}"
    onnx.checker.check_model(made, full_check=True)
    return made


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model(), target)
