# SPDX-License-Identifier: Apache-2.0
"""A folder with a C routine and its table, from pieces that a test may change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from tests.models.onnx_text import Array, model_of

HEADER = """
#ifndef RMS_H
#define RMS_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* y = x / sqrt(mean(x * x) + epsilon) * gain, row by row; work holds one row. */
void fast_rms(int32_t rows, uint16_t width, const float *restrict x, const float *restrict gain,
              float epsilon, float *restrict work, float *restrict y);
#ifdef __cplusplus
}
#endif
#endif
"""

SOURCE = """
#include "rms.h"

#include <math.h>

void fast_rms(int32_t rows, uint16_t width, const float *restrict x, const float *restrict gain,
              float epsilon, float *restrict work, float *restrict y)
{
    for (int32_t r = 0; r < rows; r++) {
        float sum = 0;
        for (int k = 0; k < width; k++) {
            work[k] = x[r * width + k];
            sum += work[k] * work[k];
        }
        const float factor = 1 / sqrtf(sum / width + epsilon);
        for (int k = 0; k < width; k++)
            y[r * width + k] = work[k] * factor * gain[k];
    }
}
"""

PATTERN = """
%s = mul(%x, %x)
%m = reduce(%s) {kind="mean"}
%a = add(%m, %e)
%q = sqrt(%a)
%d = div(%x, %q)
%y = mul(%d, %gain)
"""

ARGUMENTS = {
    "rows": '{ size = "m" }',
    "width": '{ size = "k" }',
    "x": '{ input = "f32[*m, k]" }',
    "gain": '{ input = "f32[k]" }',
    "epsilon": '{ constant = "e" }',
    "work": '{ scratch = "f32[ceildiv(k, 4)*4]" }',
    "y": '{ output = "f32[*m, k]" }',
}

EPSILON = 1e-5


def table(extra: str = "", **changed: str | None) -> str:
    """The table for `fast_rms`; `changed` arguments are put in, None takes one out."""
    arguments = {**ARGUMENTS, **changed}
    lines = "\n".join(f"{k} = {v}" for k, v in arguments.items() if v is not None)
    return f"""
header = "rms.h"
sources = ["rms.c"]

[[extern]]
function = "fast_rms"
replaces = '''{PATTERN}'''
{extra}
[extern.arguments]
{lines}
"""


def write(
    folder: Path, text: str | None = None, header: str = HEADER, source: str = SOURCE
) -> Path:
    """The routine in `folder`; returns the path of its table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rms.h").write_text(header)
    (folder / "rms.c").write_text(source)
    (folder / "my.toml").write_text(table() if text is None else text)
    return folder / "my.toml"


def gain(width: int = 10) -> Array:
    return np.linspace(0.5, 2, width).astype(np.float32)


def rms_model(width: int = 10) -> onnx.ModelProto:
    """y = tanh(rms(relu(x)) * gain), written out as exporters do."""
    return model_of(
        f"rms (float[b, n, {width}] x) => (float[b, n, {width}] y)",
        """
        z = Relu(x)
        s = Mul(z, z)
        m = ReduceMean <axes = [-1], keepdims = 1> (s)
        a = Add(m, e)
        q = Sqrt(a)
        d = Div(z, q)
        w = Mul(d, gain)
        y = Tanh(w)
        """,
        {"e": np.array(EPSILON, np.float32), "gain": gain(width)},
    )


def rms_forward(x: Array) -> Array:
    """The model in double precision."""
    z = np.maximum(x.astype(np.float64), 0)
    mean = (z * z).mean(axis=-1, keepdims=True)
    return np.asarray(np.tanh(z / np.sqrt(mean + EPSILON) * gain(x.shape[-1])))
