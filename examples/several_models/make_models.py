# SPDX-License-Identifier: Apache-2.0
"""Writes the two small models that run with the gesture classifier.

python -m examples.several_models.make_models build/several
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from onnx import parser

SMOOTH = """
<ir_version: 8, opset_import: ["" : 17]>
smooth (float[n, 6] motion, float[2, 6] last) => (float[n, 6] smoothed, float[2, 6] lastN)
{
    both = Constant <value = int64[2] {0, 1}> ()
    joined = Concat <axis = 0> (last, motion)
    rows = Unsqueeze(joined, both)
    mean4 = AveragePool <kernel_shape = [3, 1]> (rows)
    smoothed = Squeeze(mean4, both)
    minus_two = Constant <value = int64[1] {-2}> ()
    end = Constant <value = int64[1] {9223372036854775807}> ()
    first = Constant <value = int64[1] {0}> ()
    lastN = Slice(joined, minus_two, end, first)
}
"""

ACTIVE = """
<ir_version: 8, opset_import: ["" : 17]>
active (float[n, 6] motion) => (bool[1] moving)
{
    one = Constant <value = int64[1] {1}> ()
    least = Constant <value = float[1] {0.01}> ()
    mean = ReduceMean <axes = [0], keepdims = 1> (motion)
    around = Sub(motion, mean)
    squares = Mul(around, around)
    spread = ReduceMean <axes = [0, 1], keepdims = 0> (squares)
    spread1 = Reshape(spread, one)
    moving = Greater(spread1, least)
}
"""


def smooth() -> onnx.ModelProto:
    """A mean over three samples that goes on from call to call: its state is the last two."""
    return _checked(SMOOTH)


def active() -> onnx.ModelProto:
    """Whether the device moves at all: the spread of a recording against a threshold."""
    return _checked(ACTIVE)


def _checked(text: str) -> onnx.ModelProto:
    made = parser.parse_model(text)
    for node in made.graph.node:
        node.name = f"/{node.output[0]}"
    onnx.checker.check_model(made, full_check=True)
    return made


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(smooth(), folder / "smooth.onnx")
    onnx.save(active(), folder / "active.onnx")
