# SPDX-License-Identifier: Apache-2.0
"""A network whose weights have half precision, of floats or of half precision: dense, strided,
depthwise, pointwise and one-dimensional convolutions, a product by a constant on the left, and one
by a constant on the right."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tests.models.onnx_text import Array, model_of


@cache
def filters() -> dict[str, Array]:
    rng = np.random.default_rng(7)
    shapes = {
        "first": (22, 3, 3, 3), "strided": (24, 22, 3, 2), "depth": (24, 1, 5, 5),
        "point": (30, 24, 1, 1), "line": (17, 30, 3), "left": (34, 17), "right": (34, 25),
    }  # fmt: skip
    normal = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return {name: (a / np.sqrt(a[0].size)).astype(np.float16) for name, a in normal.items()}


@cache
def half_weights(kind: str = "float") -> Any:
    """`kind` is that of the values between weights, which are cast to it."""
    to = {"float": 1, "float16": 10}[kind]
    casts = [f"f_{name} = Cast <to = {to}> ({name})" for name in filters()]
    body = """
        a = Conv <pads = [1, 1, 1, 1]> (x, f_first)
        b = Conv <pads = [1, 0, 1, 1], strides = [2, 1]> (a, f_strided)
        c = Conv <pads = [2, 2, 2, 2], group = 24> (b, f_depth)
        d = Conv (c, f_point)
        e = ReduceMean <axes = [3], keepdims = 0> (d)
        f = Conv <pads = [1, 1]> (e, f_line)
        g = MatMul (f_left, f)
        rows = Transpose <perm = [0, 2, 1]> (g)
        y = MatMul (rows, f_right)"""
    signature = f"net ({kind}[1, 3, n, 9] x) => ({kind}[1, h, 25] y)"
    return model_of(signature, "\n".join([*casts, body]), filters())


@cache
def half_product() -> Any:
    """Rows of floats by a constant matrix of half precision, which so many rows convert once."""
    weights = {"w": np.random.default_rng(8).normal(size=(20, 24)).astype(np.float16)}
    body = """
        f_w = Cast <to = 1> (w)
        y = MatMul (x, f_w)"""
    return model_of("net (float[n, 20] x) => (float[n, 24] y)", body, weights)
