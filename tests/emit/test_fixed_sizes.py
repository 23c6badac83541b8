# SPDX-License-Identifier: Apache-2.0
"""A size of one value is a number and no member of the struct; it may still be given."""

from __future__ import annotations

import numpy as np
import pytest

import relax_aot as rx
from tests.models.onnx_text import model_of

MODEL = model_of("scaled (float[batch, n, 3] x) => (float[batch, n, 3] y)", "y = Add(x, x)", {})
TEXT = """
symbol batch in 2..2
symbol n in 1..6
func @main(%x: f32[batch, n]) {
  %y: f32[batch, n] = relu(%x)
  return %y
}
"""


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_size_of_one_value_is_no_member(batch: int) -> None:
    bounds = {"batch": (batch, batch), "n": (1, 6)}
    project = rx.compile(MODEL, bounds=bounds, name="scaled")
    header = project.files["scaled.h"].decode()
    members = header.partition("struct scaled_dims {")[2].partition("};")[0]
    assert "int32_t n;" in members and "batch;" not in members
    host = project.host()
    for n in (1, 5, 6):
        x = np.random.default_rng(n).normal(size=(batch, n, 3)).astype(np.float32)
        assert np.array_equal(host(x=x)["y"], x + x)
        assert np.array_equal(host.at(batch=batch)(x=x)["y"], x + x)
    with pytest.raises(rx.RelaxAotError, match=rf"compiled only for {batch}"):
        host.at(batch=batch + 1)
    with pytest.raises(rx.RelaxAotError, match="axis 0"):
        host(x=np.zeros((batch + 1, 2, 3), np.float32))


def test_without_other_sizes_there_is_no_struct() -> None:
    project = rx.compile(MODEL, bounds={"batch": (1, 1), "n": (4, 4)}, name="scaled")
    assert "dims" not in project.files["scaled.h"].decode()
    x = np.ones((1, 4, 3), np.float32)
    assert np.array_equal(project.host()(x=x)["y"], x + x)


def test_a_size_of_the_text_form_is_a_number_too() -> None:
    project = rx.compile(rx.parse(TEXT), name="text")
    header = project.files["text.h"].decode()
    assert "batch;" not in header and "int32_t n;" in header
    x = np.array([[1.0, -1.0], [-2.0, 2.0]], np.float32)
    assert np.array_equal(project.host()(x=x)["y"], np.maximum(x, 0))
