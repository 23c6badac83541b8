# SPDX-License-Identifier: Apache-2.0
"""Sizes that broadcast only if they are 1 at run time, compared with NumPy and ONNX Runtime."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.verify.host import StatusError
from tests.models.onnx_text import model_of

Array = Any
STRETCHED = "raot_min_i32(1, "
"""How the C multiplies an index by 0 or 1."""


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def added() -> Any:
    return model_of(
        "a (float[n, k] x, float[m, l] y) => (float[o, p] z)", "z = Add(x, y)", {}
    )  # fmt: skip


@pytest.mark.slow
def test_two_dynamic_sizes_broadcast_as_in_numpy() -> None:
    """Every pair of sizes from 0 on, also 0 with 1; the result broadcasts again."""
    body = "sum = Add(x, y)\n z = Mul(sum, y)"
    model = model_of("a (float[n, k] x, float[m, l] y) => (float[o, p] z)", body, {})
    bounds = dict.fromkeys("nmkl", (0, 3))
    host = rx.compile(model, bounds=bounds, name="twice").host(sanitize=True)
    refused = 0
    for n, m, k, length in product(range(4), repeat=4):
        x, y = normal(n, k), normal(m, length)
        try:
            expected = (x + y) * y
        except ValueError:
            refused += 1
            with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
                host(x=x, y=y)
        else:
            np.testing.assert_array_equal(host(x=x, y=y)["z"], expected)
    assert refused == 4**4 - 10**2


@pytest.mark.slow
def test_every_kind_of_broadcasting_stretches() -> None:
    """Batches of MatMul, the bias of Gemm, scales of LayerNormalization, Where, Expand; a constant
    of 4 with a dynamic size."""
    body = """
        product = MatMul(p, q)
        affine = Gemm(u, v, w)
        normed = LayerNormalization(u, s)
        chosen = Where(c, u, v)
        shape = Shape(g)
        wide = Expand(e, shape)
        fourfold = Mul(e, four)
    """
    signature = (
        "b (float[n1, 2, 3] p, float[n2, 3, 2] q, float[4, 4] u, float[4, 4] v, float[r, t] w,"
        " float[z] s, bool[h, i] c, float[e1, e2] e, float[g1, g2] g) => (float[a1, 2, 2] product,"
        " float[4, 4] affine, float[4, 4] normed, float[4, 4] chosen, float[w1, w2] wide,"
        " float[f1, f2] fourfold)"
    )
    model = model_of(signature, body, {"four": normal(4)})
    names = ("n1", "n2", "r", "t", "z", "h", "i", "e1", "e2", "g1", "g2")
    host = rx.compile(model, bounds=dict.fromkeys(names, (1, 5)), name="kinds").host(sanitize=True)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString())
    results = [result.name for result in model.graph.output]
    for n1, n2, r, t, z, h, i, e1, e2, g1, g2 in (
        (1, 5, 1, 4, 1, 1, 4, 1, 4, 3, 4),
        (5, 1, 4, 1, 4, 4, 1, 3, 1, 1, 4),
        (3, 3, 4, 4, 4, 4, 4, 5, 4, 5, 1),
        (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    ):
        inputs = {
            "p": normal(n1, 2, 3), "q": normal(n2, 3, 2), "u": normal(4, 4), "v": normal(4, 4) + 1,
            "w": normal(r, t), "s": normal(z), "c": normal(h, i) > 0, "e": normal(e1, e2),
            "g": normal(g1, g2),
        }  # fmt: skip
        actual = host(**inputs)
        for name, expected in zip(results, session.run(results, inputs), strict=True):
            assert actual[name].shape == expected.shape
            np.testing.assert_allclose(actual[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_size_from_data_broadcasts() -> None:
    body = "part = Compress <axis = 0> (y, keep)\n z = Add(x, part)"
    model = model_of("d (float[n] x, float[m] y, bool[m] keep) => (float[k] z)", body, {})
    host = rx.compile(model, bounds={"n": (1, 4), "m": 4}, name="kept").host(sanitize=True)
    y = normal(4)
    for n, kept in product((1, 2, 4), range(5)):
        keep, x = np.arange(4) < kept, normal(n)
        if n != kept and 1 not in (n, kept):
            with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
                host(x=x, y=y, keep=keep)
        else:
            np.testing.assert_array_equal(host(x=x, y=y, keep=keep)["z"], x + y[keep])


@pytest.mark.parametrize(
    ("low", "assume", "stretched"),
    [(1, (), True), (2, (), False), (1, ("n == m", "k == l"), False), (1, ("n >= 2", "m >= 2",
                                                                        "k == l"), False)],
)  # fmt: skip
def test_only_sizes_that_may_be_1_and_may_differ_stretch(
    low: int, assume: tuple[str, ...], stretched: bool
) -> None:
    bounds = dict.fromkeys("nmkl", (low, 8))
    project = rx.compile(added(), bounds=bounds, assume=assume, name="added")
    assert (STRETCHED in project.files["added.c"].decode()) == stretched


def test_sizes_that_another_call_needs_equal_do_not_stretch() -> None:
    body = "product = MatMul(x, y)\n sum = ReduceSum(x)\n z = Add(u, v)"
    signature = (
        "m (float[2, n] x, float[m, 2] y, float[n] u, float[m] v)"
        " => (float[2, 2] product, float[1, 1] sum, float[k] z)"
    )
    project = rx.compile(model_of(signature, body, {}), bounds={"n": 8, "m": 8}, name="both")
    assert STRETCHED not in project.files["both.c"].decode()


ROWS = {
    "from a position on": ("m", "m + t"),
    "up to a position": ("zero", "t"),
    "counted from the end": ("minus t", "far"),
}


@pytest.mark.slow
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
def test_rows_that_are_cut_from_a_table_do_not_stretch(rows: tuple[str, str]) -> None:
    """As learned positions behind `m` earlier tokens: within the bounds, the clamped slice has
    the rows of `x`, also where these may be one."""
    values = {
        "m": "m = Shape <start = 0, end = 1> (past)",
        "m + t": "more = Shape <start = 0, end = 1> (past)\n behind = Add(more, t)",
        "minus t": "before = Neg(t)",
        "zero": "", "t": "", "far": "",
    }  # fmt: skip
    names = {"m + t": "behind", "minus t": "before"}
    begin, end = (names.get(name, name) for name in rows)
    body = f"""
        t = Shape <start = 1, end = 2> (x)
        {values[rows[0]]}
        {values[rows[1]]}
        part = Slice(table, {begin}, {end}, zero)
        sum = Add(x, part)
        z = Mul(part, sum)
    """
    signature = "rows (float[b, t, 3] x, float[m, 3] past) => (float[o, p, 3] z, float[m, 3] kept)"
    body += "\n kept = Identity(past)"
    weights = {"table": normal(24, 3), "zero": np.array([0]), "far": np.array([2**62])}
    model = model_of(signature, body, weights)
    project = rx.compile(model, bounds={"b": 2, "t": 4, "m": 20}, name="rows")
    assert STRETCHED not in project.files["rows.c"].decode()
    host = project.host()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString())
    for b, t, m in ((1, 1, 1), (2, 3, 7), (2, 4, 20), (1, 1, 20)):
        feeds = {"x": normal(b, t, 3), "past": normal(m, 3)}
        (expected,) = session.run(["z"], feeds)
        np.testing.assert_array_equal(host(**feeds)["z"], expected)


def test_a_size_that_equals_another_and_broadcasts_limits_loops_of_transposed_windows() -> None:
    """Joining x and y says that k is n; the loops over the sum end at the larger of k and m."""
    model = model_of(
        "a (float[k, 1, t] x, float[n, 1, t] y, float[m, 1, 1] b) => (float[o, 3, p] z)",
        """joined = Concat <axis = 1> (x, y)
           sum = Add(joined, b)
           z = ConvTranspose <strides = [2]> (sum, w)""",
        {"w": normal(2, 3, 4)},
    )
    bounds = {"n": (1, 3), "k": (1, 3), "m": (1, 3), "t": (1, 6)}
    host = rx.compile(model, bounds=bounds, name="stretched").host()
    session = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
    for n, m, t in ((3, 1, 5), (1, 3, 6), (2, 2, 1)):
        arrays = {"x": normal(n, 1, t), "y": normal(n, 1, t), "b": normal(m, 1, 1)}
        (expected,) = session.run(None, arrays)
        np.testing.assert_allclose(host(**arrays)["z"], expected, rtol=1e-5, atol=1e-6)
