# SPDX-License-Identifier: Apache-2.0
"""Several entries of one model on the emulated GPU: shared weights, state, arena and failures."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.verify.job import Job, run_job
from tests.cuda.emulated import Emulated
from tests.cuda.test_host import CAPACITY, DEVICE, GROWING, INDEX, OK, parsed
from tests.end_to_end.growing_models import STATE, WIDTH, ByHand, attention, tokens
from tests.end_to_end.test_entries import BOUNDS, CALLS, MODELS, Sessions, rows
from tests.end_to_end.test_entries import STATE as HELD

pytestmark = pytest.mark.slow
BOARD = "jetson-orin-nano"
CHOOSE = parsed("""
agraph (float[n, 4] x, int64[1] row) => (float[1, 4] z)
{
    z = Gather (x, row)
}
""")
"""It can fail, and has no state."""


@pytest.fixture(scope="module")
def project() -> rx.EntriesProject:
    return rx.compile(
        MODELS, bounds=BOUNDS, state=HELD, name="llm", board=BOARD, emit="cuda-source"
    )


def test_a_sequence_of_entries_keeps_one_state(project: rx.EntriesProject) -> None:
    host = project.host()
    for n, m in ((1, 2), (9, 13), (4, 7)):
        host.reset(m=m)
        wanted = Sessions(m)
        for number, name in enumerate(CALLS):
            x = rows(100 * n + m + number, n if name == "prefill" else 1)
            np.testing.assert_allclose(host[name](x=x)["y"], wanted(name, x), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_entries_share_what_is_equal(project: rx.EntriesProject) -> None:
    needs = [one.plan.arena_bytes for one in project.built.entries.values()]
    assert project.built.arena_bytes == max(needs) < sum(needs)
    arrays = re.findall(
        r"^extern const float (\w+)\[", project.files["llm_weights.h"].decode(), re.M
    )
    assert len(arrays) == 5
    twice = rx.compile(
        dict.fromkeys(("decode", "again"), MODELS["decode"]), bounds={"m": (2, 13)}, state=HELD,
        name="llm", board=BOARD, emit="cuda-source",
    )  # fmt: skip
    once = rx.compile(
        {"decode": MODELS["decode"]}, bounds={"m": (2, 13)}, state=HELD, name="llm", board=BOARD,
        emit="cuda-source",
    )  # fmt: skip
    assert twice.files["llm.cu"].count(b"__global__") == once.files["llm.cu"].count(b"__global__")


@pytest.mark.long
def test_a_prompt_and_tokens_fill_one_cache() -> None:
    models = {"prefill": attention("s"), "decode": attention(1)}
    project = rx.compile(
        models, bounds={"m": 19, "s": 9}, state=STATE, name="llm", board=BOARD, emit="cuda-source"
    )
    host, wanted, rng = project.host(), ByHand(), np.random.default_rng(6)
    for entry, count in (("prefill", 7), ("decode", 1), ("decode", 1), ("prefill", 5)):
        x = tokens(rng, count)
        np.testing.assert_allclose(host[entry](x=x)["y"], wanted(x), rtol=1e-4, atol=1e-5)
        assert host.length("m") == wanted.length
        if count == 7:
            host.truncate(m=4)
            wanted.truncate(4)
    with pytest.raises(rx.StatusError, match="llm_prefill_run ended with RAOT_ERR_CAPACITY"):
        host.prefill(x=np.zeros((9, WIDTH), np.float32))
    assert host.length("m") == wanted.length


def test_verify_calls_all_entries(project: rx.EntriesProject) -> None:
    result = run_job(Job(MODELS, (project.built,), state=HELD, at=({"n": 5, "m": 7},)))
    said = result.as_json()["targets"][0]
    assert result.ok and said["emulated"] is True and said["runs"]
    assert said["memory"]["arena_bytes"] == project.built.arena_bytes
    assert said["memory"]["stack_bytes"] is None
    for run in result.targets[0].runs:
        assert [one.name for one in run.states] == ["k_next", "v_next"]


@pytest.fixture(scope="module")
def growing() -> rx.EntriesProject:
    return rx.compile(
        {"append": GROWING, "choose": CHOOSE}, bounds={"m": (0, 5), "n": (1, 9)},
        state={"past": "present"}, name="grow", board=BOARD, emit="cuda-source",
    )  # fmt: skip


def test_lengths_survive_the_failure_of_another_entry(growing: rx.EntriesProject) -> None:
    model = Emulated(growing.built)
    assert model.init() == OK
    at, y = np.zeros(1, np.int64), np.zeros(4, np.float32)
    x, row, z = np.ones((3, 4), np.float32), np.zeros(1, np.int64), np.full((1, 4), 7, np.float32)
    for _ in range(3):
        assert model.run([at], [y], entry="append") == OK, model.message
    assert model.run([x, row], [z], entry="choose", n=3) == OK and np.all(z == 1)
    assert model.truncate("m", 1) == OK
    row[0], z[:] = 3, 7
    assert model.run([x, row], [z], entry="choose", n=3) == INDEX
    assert np.all(z == 7) and model.length("m") == 1
    chosen, sums = model.alloc((1,), np.int64), model.alloc((4,), np.float32)
    held, wrong = model.alloc((3, 4), np.float32), model.alloc((1,), np.int64)
    found = model.alloc((1, 4), np.float32)
    chosen[:], held[:], wrong[:], found[:] = 1, 1, 9, 7
    assert model.run([chosen], [sums], stream=1, entry="append") == OK
    first = np.arange(1, 5) + np.arange(5, 9)
    assert model.run([held, wrong], [found], stream=1, entry="choose", n=3) == OK
    assert model.run([chosen], [sums], stream=1, entry="append") == OK
    assert model.wait(1, entry="append") == INDEX and model.length("m") == 2
    assert np.all(found == 7)
    np.testing.assert_array_equal(sums, first)
    for _ in range(3):
        assert model.run([at], [y], entry="append") == OK
    assert model.run([at], [y], entry="append") == CAPACITY
    model.close()
    assert model.live == 0


@pytest.mark.parametrize("name", ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate"])
def test_a_graph_of_any_entry_may_fail(growing: rx.EntriesProject, name: str) -> None:
    failed = 0
    for nth in range(1, 60):
        model = Emulated(growing.built)
        model.fail(name, nth)
        status = model.init()
        assert status in (OK, DEVICE)
        failed += status == DEVICE
        missed = model.calls(name) < nth
        model.driver.fake_reset()
        model.close()
        assert model.live == 0
        if missed:
            break
    assert missed and failed > 1
