# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime computes what the NumPy form of the encoder says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime import InferenceSession

from tests.models.encoder import MASKED, Variant, encoder, encoder_forward, encoder_weights

VARIANTS = [
    Variant(),
    Variant(norm="post"),
    Variant(mask=True),
    Variant(causal=True),
    Variant(norm="post", mask=True, causal=True),
]


def check(model: onnx.ModelProto, heads: int, variant: Variant, batch: int, n: int) -> None:
    rng = np.random.default_rng(batch * 1000 + n)
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    width = weights["l0_query_bias"].size
    feeds = {"x": rng.normal(size=(batch, n, width)).astype(np.float32)}
    if variant.mask:
        seen = rng.random((batch, n)) < 0.7
        seen[:, 0] = True
        feeds["mask"] = np.where(seen, 0.0, MASKED).astype(np.float32)
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, feeds)
    expected = encoder_forward(weights, feeds["x"], heads, variant, feeds.get("mask"))
    assert y.shape == (batch, n, width)
    assert 0.3 < np.abs(expected).mean() < 3.0
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "n"), [(1, 1), (3, 2), (1, 17), (2, 64)])
def test_the_encoder_of_full_size(batch: int, n: int) -> None:
    check(encoder(), 4, Variant(), batch, n)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize(("batch", "n"), [(1, 1), (2, 3), (3, 9), (1, 33)])
def test_every_variant(variant: Variant, batch: int, n: int) -> None:
    check(encoder(24, 3, 2, 40, 5, variant), 3, variant, batch, n)


def test_a_causal_encoder_does_not_see_what_comes_later() -> None:
    weights = encoder_weights(8, 1, 12, 0)
    x = np.random.default_rng(0).normal(size=(1, 6, 8))
    changed = x.copy()
    changed[0, 4, 0] += 1.0
    before = encoder_forward(weights, x, 2, Variant(causal=True))
    after = encoder_forward(weights, changed, 2, Variant(causal=True))
    assert np.array_equal(before[0, :4], after[0, :4])
    assert not np.allclose(before[0, 4], after[0, 4])


def test_sizes_are_symbolic_and_the_same_seed_gives_the_same_model() -> None:
    model = encoder(8, 2, 1, 12)
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        assert [d.dim_param for d in dims] == ["batch", "n", ""]
    again, other = encoder(8, 2, 1, 12), encoder(8, 2, 1, 12, seed=1)
    assert model.SerializeToString() == again.SerializeToString() != other.SerializeToString()
