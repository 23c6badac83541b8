# SPDX-License-Identifier: Apache-2.0
"""A small language model in two entries, prefill and decode, over one cache of keys and values.

ONNX Runtime reads the whole text at once with the graph of prefill; the C reads a prompt, then
goes on token by token, and must say the same of every token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import relax_aot as rx
from relax_aot.verify.host import STATUS_NAMES
from tests.models.onnx_text import model_of, random_weights, sizes

WIDTH, TOKENS, LAYERS = 16, 11, 2
CAPACITY = 12
Array = np.ndarray[Any, Any]


def weights() -> dict[str, Array]:
    shapes: dict[str, tuple[int, ...]] = {"table": (TOKENS, WIDTH)}
    for layer in range(LAYERS):
        shapes |= {f"{kind}{layer}": (WIDTH, WIDTH) for kind in ("wq", "wk", "wv", "wo", "up")}
    found = random_weights(np.random.default_rng(5), **shapes)
    found |= {"gain": np.ones(WIDTH, np.float32), "low": np.array(-1e9, np.float32)}
    return found | {
        "zero": np.array(0, np.int64), "one": np.array(1, np.int64),
        "first": np.array([0], np.int64), "second": np.array([1], np.int64),
    }  # fmt: skip


def layer_text(layer: int) -> str:
    """Keys and values go to the rows of their tokens; a token sees those up to its own."""
    return f"""
    h{layer} = LayerNormalization <axis = -1> (x{layer}, gain)
    q{layer} = MatMul(h{layer}, wq{layer})
    nk{layer} = MatMul(h{layer}, wk{layer})
    nv{layer} = MatMul(h{layer}, wv{layer})
    k{layer}_next = ScatterND(k{layer}, rows, nk{layer})
    v{layer}_next = ScatterND(v{layer}, rows, nv{layer})
    kt{layer} = Transpose <perm = [1, 0]> (k{layer}_next)
    s{layer} = MatMul(q{layer}, kt{layer})
    m{layer} = Where(seen, s{layer}, low)
    p{layer} = Softmax <axis = -1> (m{layer})
    c{layer} = MatMul(p{layer}, v{layer}_next)
    o{layer} = MatMul(c{layer}, wo{layer})
    r{layer} = Add(x{layer}, o{layer})
    u{layer} = MatMul(r{layer}, up{layer})
    g{layer} = Tanh(u{layer})
    x{layer + 1} = Add(r{layer}, g{layer})
    """


def graph(name: str, rows: str) -> onnx.ModelProto:
    caches = [f"{kind}{layer}" for layer in range(LAYERS) for kind in "kv"]
    inputs = ", ".join(f"float[m,{WIDTH}] {cache}" for cache in caches)
    outputs = ", ".join(f"float[m,{WIDTH}] {cache}_next" for cache in caches)
    body = f"""
    x0 = Gather <axis = 0> (table, tokens)
    {sizes("tokens", 0)}
    {sizes("k0", 0)}
    steps = Range(zero, tokens_scalar0, one)
    at = Add(steps, place)
    rows = Unsqueeze(at, second)
    place_next = Add(place, tokens_size0)
    columns = Range(zero, k0_scalar0, one)
    line = Unsqueeze(columns, first)
    seen = LessOrEqual(line, rows)
    {"".join(layer_text(layer) for layer in range(LAYERS))}
    turned = Transpose <perm = [1, 0]> (table)
    logits = MatMul(x{LAYERS}, turned)
    """
    signature = (
        f"{name} (int64[{rows}] tokens, int64[1] place, {inputs})"
        f" => (float[{rows},{TOKENS}] logits, int64[1] place_next, {outputs})"
    )
    return model_of(signature, body, weights())


PREFILL, DECODE = graph("prefill", "n"), graph("decode", "1")
STATE = {"place": "place_next"} | {
    f"{kind}{layer}": f"{kind}{layer}_next" for layer in range(LAYERS) for kind in "kv"
}


@pytest.fixture(scope="module")
def project() -> rx.EntriesProject:
    return rx.compile(
        {"prefill": PREFILL, "decode": DECODE},
        bounds={"n": (1, CAPACITY), "m": CAPACITY}, state=STATE, name="lm",
    )  # fmt: skip


def whole(tokens: Array) -> Array:
    """What ONNX Runtime says of every token of a text, read at once into an empty cache."""
    session = ort.InferenceSession(PREFILL.SerializeToString())
    empty = {name: np.zeros((CAPACITY, WIDTH), np.float32) for name in STATE if name != "place"}
    feed = {"tokens": tokens, "place": np.zeros(1, np.int64), **empty}
    return np.asarray(session.run(["logits"], feed)[0])


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [1, 5, CAPACITY - 1])
def test_decoding_goes_on_where_prefill_ended(project: rx.EntriesProject, prompt: int) -> None:
    tokens = np.random.default_rng(prompt).integers(0, TOKENS, CAPACITY)
    wanted = whole(tokens)
    host = project.host()
    host.reset(m=CAPACITY)
    found = [host.prefill(tokens=tokens[:prompt])["logits"]]
    found += [host.decode(tokens=tokens[t : t + 1])["logits"] for t in range(prompt, CAPACITY)]
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_full_cache_is_a_status_and_leaves_the_state(project: rx.EntriesProject) -> None:
    """The row behind the last one does not exist: the call fails, and nothing has changed, so
    that a shorter text goes on as if it had not been tried."""
    tokens = np.random.default_rng(1).integers(0, TOKENS, CAPACITY)
    host = project.host()
    host.reset(m=CAPACITY)
    host.prefill(tokens=tokens[:8])
    with pytest.raises(rx.StatusError) as refused:
        host.prefill(tokens=tokens[:5])
    assert refused.value.name == STATUS_NAMES[-6]
    found = [host.decode(tokens=tokens[t : t + 1])["logits"] for t in range(8, CAPACITY)]
    np.testing.assert_allclose(np.concatenate(found), whole(tokens)[8:], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_both_entries_read_one_set_of_weights(project: rx.EntriesProject) -> None:
    alone = rx.compile(PREFILL, bounds={"n": CAPACITY, "m": CAPACITY}, state=STATE)
    assert project.built.const_bytes == alone.built.const_bytes
