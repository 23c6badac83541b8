# SPDX-License-Identifier: Apache-2.0
"""Caches that store numbers in half precision or in bytes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.api import EntriesProject
from relax_aot.verify.host import HostEntries
from relax_aot.verify.reference import NumpyReference
from tests.cuda.toolkits import needs_compilers
from tests.frontends.llm.checkpoints import Array, Llama
from tests.frontends.llm.meaning import logits
from tests.frontends.llm.models import MODELS

CONTEXT, CHUNK = 48, 24
TYPES = ("f16", "int8", "int16x8")
FAR = {"f16": 1e-3, "int8": 1e-2, "int16x8": 1e-2}
"""How far logits may be from those of unrounded caches, relative to the largest."""
NEAR = {"f16": 1e-4, "int8": 2e-3, "int16x8": 2e-3}
"""From those of rounded caches: some numbers are rounded the other way in single precision."""


def rounded(kind: str, rows: Array) -> Array:
    """Keys or values of a token, [heads, size]. int8: the largest of a head is 127 steps."""
    if kind == "f16":
        return rows.astype(np.float16).astype(np.float64)
    steps = np.abs(rows).max(axis=-1, keepdims=True) / 127
    return np.asarray(np.rint(rows / steps) * steps)


def entries(name: str, kind: str, context: int = CONTEXT, **options: Any) -> rx.Entries:
    with TemporaryDirectory() as folder:
        path = MODELS[name].write(Path(folder) / "tiny")
        return rx.load_llm(path, context=context, chunk=CHUNK, cache_type=kind, **options)


@cache
def compiled(name: str, kind: str, board: str = "host") -> EntriesProject:
    return rx.compile(entries(name, kind), board=board, name="tiny")


def text(count: int) -> Array:
    return np.random.default_rng(3).integers(0, Llama().words, count).astype(np.int32)


def check(found: Array, name: str, kind: str, tokens: Array) -> None:
    """The last rows of logits behind these tokens."""
    model, given = MODELS[name], tokens.tolist()
    exact = logits(model, given)[-len(found) :]
    near = logits(model, given, lambda rows: rounded(kind, rows))[-len(found) :]
    for wanted, most in ((exact, FAR), (near, NEAR)):
        assert np.abs(found - wanted).max() < most[kind] * np.abs(wanted).max()
    assert np.abs(found - exact).max() > 1e-6 * np.abs(exact).max()


@pytest.mark.parametrize("kind", TYPES)
def test_the_program_computes_the_logits(kind: str) -> None:
    """Before it is compiled, by the meaning of its ops."""
    module = dict(entries("tied", kind, logits="all").modules)["prefill"]
    tokens, sizes = text(20), {"m": 0, "n": 20}
    shapes = {p.name: tuple(d.evaluate(sizes) for d in p.type.shape) for p in module.main.params}
    found = NumpyReference(module)({"tokens": tokens}, shapes, sizes)["logits"]
    check(found, "tied", kind, tokens)


def follow(host: HostEntries, tokens: Array, *calls: int) -> Array:
    """The logits of the last prompt and of each later token."""
    host.reset()
    place = 0
    found = np.empty(0, np.float32)
    for rows in calls:
        found = host.prefill(tokens=tokens[place : place + rows])["logits"]
        place += rows
    return np.array([found, *(host.decode(token=token)["logits"] for token in tokens[place:])])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("tied", "int8", marks=pytest.mark.slow),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (
                ("tied", "f16"),
                ("bf16", "f16"),
                ("mistral", "int8"),
                ("gemma2", "int8"),
                ("tied", "int16x8"),
                ("mistral", "int16x8"),
            )
        ),
    ],
)
@pytest.mark.long
def test_the_c_computes_the_logits(name: str, kind: str) -> None:
    """With the same bits however the tokens are divided into calls."""
    host, tokens = compiled(name, kind).host(), text(CONTEXT)
    found = follow(host, tokens, 24)
    check(found, name, kind, tokens)
    for calls in ((7,), (11, 19)):
        assert follow(host, tokens, *calls)[-1].tobytes() == found[-1].tobytes()
    with pytest.raises(rx.StatusError, match="RAOT_ERR_CAPACITY"):
        host.decode(token=tokens[0])
    assert host.length("m") == CONTEXT


@pytest.mark.long
def test_memory() -> None:
    """Caches have so many bytes, and a decode step needs no more arena for them."""
    model, plain = MODELS["tied"], compiled("tied", "f32")
    heads = 2 * model.layers * model.keys * CONTEXT
    for kind, each in (("f16", 2 * model.size), ("int8", model.size + 4)):
        small = compiled("tied", kind)
        assert heads * each <= small.built.state_bytes <= heads * each + 64 * 4 * model.layers
        decode, wide = (p.entries["decode"].built.plan.arena_bytes for p in (small, plain))
        assert decode <= wide + 8 * model.size


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("window", {}),
        ("whole", {"numerics": "ordered"}),
        ("whole", {"threads": 2}),
        pytest.param("whole", {"board": "cuda-host"}, marks=needs_compilers),
    ],
    ids=["window", "ordered", "threads", "device"],
)
def test_options(form: str, options: dict[str, Any]) -> None:
    source, tokens = entries("mistral", "int8", cache=form), text(CONTEXT)
    host = rx.compile(source, name="tiny", **options).host()
    check(follow(host, tokens, 20), "mistral", "int8", tokens)


@pytest.mark.long
def test_a_prefix_and_proposals() -> None:
    """A text behind a computed prefix has the bits of one behind a prefill of it, and rows of
    `verify` have those of `decode`."""
    tokens, kinds = text(30), {"prefix": text(8).tolist(), "speculate": 3}
    host = rx.compile(entries("tied", "int8", **kinds), name="tiny", numerics="ordered").host()
    plain = rx.compile(entries("tied", "int8"), name="tiny", numerics="ordered").host()
    wanted = follow(plain, tokens, 8)
    assert host.verify(tokens=tokens[8:12])["logits"].tobytes() == wanted[1:5].tobytes()
    host.truncate(m=10)
    assert host.decode(token=tokens[10])["logits"].tobytes() == wanted[3].tobytes()


@pytest.mark.qemu
@pytest.mark.long
@pytest.mark.parametrize("kind", ["int8", "f16", "int16x8"])
def test_on_a_board(kind: str) -> None:
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    tokens = text(12)
    calls = [("prefill", {"tokens": tokens[:9]})]
    calls += [("decode", {"token": token}) for token in tokens[9:]]
    runs = list(compiled("tied", kind, "mps2-an500").emulate(calls))
    check(np.array([run.outputs["logits"] for run in runs]), "tied", kind, tokens)


def test_other_types_are_refused() -> None:
    with pytest.raises(rx.RelaxAotError, match="one of f32, f16, int8, int16x8, not 'q4_0'"):
        entries("tied", "q4_0")


def test_sums_of_integers_have_a_longest_context() -> None:
    with TemporaryDirectory() as folder:
        model = replace(MODELS["tied"], config={"max_position_embeddings": 1 << 15})
        path = model.write(Path(folder) / "tiny")
        with pytest.raises(rx.RelaxAotError, match="with int16x8, sums over at most 16529 keys"):
            rx.load_llm(path, context=1 << 15, cache_type="int16x8")
