# SPDX-License-Identifier: Apache-2.0
"""Several texts share caches: each call says at which places its tokens are."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.api import EntriesProject
from relax_aot.verify.host import HostEntries
from tests.cli.in_process import relax_aot
from tests.cuda.toolkits import needs_compilers
from tests.frontends.llm.checkpoints import Array, Llama
from tests.frontends.llm.meaning import logits
from tests.frontends.llm.models import MODELS

CONTEXT, CHUNK, POOL = 40, 16, 64
PLACES = np.random.default_rng(5).permutation(POOL).astype(np.int32)
TOKENS = np.random.default_rng(6).integers(0, Llama().words, CONTEXT).astype(np.int32)


def entries(name: str, **options: Any) -> rx.Entries:
    with TemporaryDirectory() as folder:
        path = MODELS[name].write(Path(folder) / "tiny")
        return rx.load_llm(path, context=CONTEXT, chunk=CHUNK, **options)


@cache
def pooled(board: str = "host") -> EntriesProject:
    return rx.compile(entries("tied", pool=POOL), board=board, name="tiny")


def call(host: HostEntries, tokens: Array, places: Array) -> Array:
    """The new tokens of a text are those that its places go beyond."""
    if len(tokens) == 1:
        return host.decode(token=tokens[0], places=places)["logits"]
    return host.prefill(tokens=tokens, places=places)["logits"]


CALLS = (9, 1, 1, 16, 1, 5, 1, 1, 1)


@pytest.mark.parametrize(
    ("name", "loading", "options"),
    [
        pytest.param("tied", {}, {}, marks=pytest.mark.slow),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (
                ("mistral", {}, {}),
                ("bf16", {"cache_type": "f16"}, {"numerics": "ordered"}),
                ("tied", {"cache_type": "int8"}, {"threads": 2}),
                ("mixtral", {}, {"quantize": "q8_0"}),
            )
        ),
    ],
    ids=["plain", "window", "f16", "int8", "quantized"],
)
@pytest.mark.long
def test_bits_are_those_of_a_cache_for_one_text(
    name: str, loading: dict[str, Any], options: dict[str, Any]
) -> None:
    whole, shared = (
        rx.compile(entries(name, **loading, **more), name="tiny", **options).host()
        for more in ({}, {"pool": POOL})
    )
    start = 0
    for rows in CALLS:
        new, start = TOKENS[start : start + rows], start + rows
        wanted = whole.prefill(tokens=new) if rows > 1 else whole.decode(token=new[0])
        found = call(shared, new, PLACES[:start])
        assert found.tobytes() == wanted["logits"].tobytes()


def two_texts(host: HostEntries) -> None:
    """Texts with one beginning, which take tokens in turn."""
    first, second = TOKENS.tolist(), [*TOKENS[:7].tolist(), *TOKENS[20:40].tolist()]
    tables = [PLACES[:30], np.concatenate([PLACES[:7], PLACES[30:60]])]
    call(host, TOKENS[:7], PLACES[:7])
    for place in range(7, 20):
        for text, table in zip((first, second), tables, strict=True):
            token = np.array(text[place : place + 1], np.int32)
            found = call(host, token, table[: place + 1])
            wanted = logits(MODELS["tied"], text[: place + 1])[-1]
            np.testing.assert_allclose(found, wanted, 1e-4, 1e-5 * np.abs(wanted).max())


@pytest.mark.slow
def test_texts_share_their_beginning() -> None:
    two_texts(pooled().host())


@pytest.mark.long
@needs_compilers
def test_on_a_device() -> None:
    two_texts(pooled("cuda-host").host())


@pytest.mark.slow
def test_wrong_calls_change_nothing() -> None:
    host = pooled().host()
    wanted = [call(host, TOKENS[:9], PLACES[:9]), call(host, TOKENS[9:10], PLACES[:10])]
    call(host, TOKENS[:9], PLACES[:9])
    wrong = [
        (TOKENS[:1], np.array([*PLACES[:9], POOL], np.int32), "INDEX"),
        (TOKENS[:1], np.array([-1, *PLACES[1:10]], np.int32), "INDEX"),
        (np.array([200], np.int32), PLACES[:9], "INDEX"),
        (TOKENS[:1], np.zeros(CONTEXT + 1, np.int32), "SIZE"),
        (TOKENS[:2], np.zeros(CONTEXT + 1, np.int32), "MISMATCH"),
        (TOKENS[:5], PLACES[:4], "SIZE"),
    ]
    for tokens, places, status in wrong:
        with pytest.raises(rx.StatusError, match=f"RAOT_ERR_{status}"):
            call(host, tokens, places)
    assert call(host, TOKENS[9:10], PLACES[:10]).tobytes() == wanted[1].tobytes()
    assert call(host, TOKENS[:9], PLACES[:9]).tobytes() == wanted[0].tobytes()


@pytest.mark.slow
def test_the_state_is_the_pool() -> None:
    model = MODELS["tied"]
    size = 2 * 4 * model.layers * model.keys * model.size * POOL
    assert size <= pooled().built.state_bytes <= size + 64


@pytest.mark.qemu
@pytest.mark.long
def test_on_a_board() -> None:
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm is not installed")
    calls: list[tuple[str, dict[str, Array]]] = [
        ("prefill", {"tokens": TOKENS[:9], "places": PLACES[:9]})
    ]
    calls += [("decode", {"token": TOKENS[n], "places": PLACES[: n + 1]}) for n in (9, 10)]
    wanted = logits(MODELS["tied"], TOKENS[:11].tolist())
    for place, run in enumerate(pooled("mps2-an500").emulate(calls), 8):
        scale = np.abs(wanted[place]).max()
        np.testing.assert_allclose(run.outputs["logits"], wanted[place], 1e-4, 1e-5 * scale)


@pytest.mark.long
def test_the_command_writes_a_header(tmp_path: Path) -> None:
    folder = MODELS["tied"].write(tmp_path / "tiny")
    done = relax_aot("llm", folder, "--context", "32", "--pool", "96", "-o", tmp_path / "out",
                     folder=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "#define TINY_POOL_PLACES 96" in (tmp_path / "out" / "tiny_pool.h").read_text()
    assert (tmp_path / "out" / "raot" / "pool.h").is_file()
    assert "pool of TINY_POOL_PLACES places" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"pool": 0}, "a pool of 0 tokens: it has 1 to"),
        ({"pool": 2**40}, "a pool of 1099511627776 tokens"),
        ({"pool": 64, "cache": "window"}, "goes without the cache window"),
        ({"pool": 64, "prefix": [1, 2]}, "a pool begins empty"),
    ],
    ids=["empty", "large", "window", "prefix"],
)
def test_other_forms_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(rx.RelaxAotError, match=why):
        entries("mistral", **options)
