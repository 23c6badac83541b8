# SPDX-License-Identifier: Apache-2.0
"""`--offsets dynamic`: a run computes where values lie, so small sizes need a small arena."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.planning import Plan
from relax_aot.project import Project
from relax_aot.report.memory_map import need_at
from relax_aot.verify.host import (
    STRICT_FLAGS,
    HostModel,
    build_shared,
    host_model,
    library_files,
)
from relax_aot.verify.library import Library
from relax_aot.verify.program import to_bytes
from tests.conftest import QUICK_FLAGS, ROOT
from tests.models.encoder import encoder

OK, ERR_ARENA = 0, -2
HIGH = 40
SIZES = (1, 2, 13, 39, 40)
REGIONS = """
[[region]]
name = "dtcm"
size = "8K"

[[region]]
name = "sram"
size = "1M"
"""


@cache
def model() -> Any:
    return encoder(width=16, heads=2, layers=1, hidden=32)


@cache
def compiled(*, stepwise: bool = False, board: str = "host") -> Project:
    options = Options(
        bounds={"n": (1, HIGH), "batch": (1, 1)}, name="enc", offsets="dynamic", stepwise=stepwise
    )
    return driver.compile_model(model(), board, options)


def frames(n: int) -> Any:
    return np.random.default_rng(n).normal(size=(1, n, 16)).astype(np.float32)


@cache
def wanted(n: int) -> Any:
    session = onnxruntime.InferenceSession(model().SerializeToString())
    return session.run(None, {"x": frames(n)})[0]


def longest_path(plan: Plan, n: int) -> int:
    ends: dict[str, int] = {}
    for slot in plan.slots:
        under = max((ends[name] for name in slot.below), default=0)
        ends[slot.var.name] = under + slot.bytes.evaluate({"n": n, "batch": 1})
    return max(ends.values())


@pytest.mark.slow
@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize("bound", [20, HIGH, 100])
def test_a_run_needs_only_what_its_sizes_need(bound: int, stepwise: bool) -> None:
    """With exactly these bytes, between guards; with one byte less it is refused."""
    project = compiled(stepwise=stepwise)
    flags = (*STRICT_FLAGS, *QUICK_FLAGS, f"-DENC_N_MAX={bound}")
    one = Library(build_shared(library_files(project), flags))
    assert one.arena_bytes == longest_path(project.plan, bound)
    for n in (n for n in (*SIZES, bound) if n <= bound):
        need = one.arena_need([n])
        assert (
            need == longest_path(project.plan, n) == need_at(project.plan, 0, {"n": n, "batch": 1})
        )
        done = one.run([n], [to_bytes(frames(n))], arena_bytes=need)
        assert (done.status, done.guards_ok) == (OK, True)
        found = done.outputs[0].view(np.float32)[: wanted(n).size].reshape(wanted(n).shape)
        np.testing.assert_allclose(found, wanted(n), atol=1e-5)
        less = one.run([n], [to_bytes(frames(n))], arena_bytes=need - 1)
        assert (less.status, less.untouched) == (ERR_ARENA, True)


@pytest.mark.slow
def test_the_encoder_needs_5120_bytes_for_one_frame() -> None:
    """1,073,168 with static offsets."""
    project = rx.compile(encoder(), bounds={"n": 256, "batch": 1}, offsets="dynamic").built
    assert need_at(project.plan, 0, {"n": 1, "batch": 1}) == 5_120
    assert project.plan.arena_bytes == need_at(project.plan, 0, {"n": 256, "batch": 1})


@pytest.mark.long
def test_two_arenas_have_tables_of_their_own(tmp_path: Path) -> None:
    board = tmp_path / "two.toml"
    board.write_text((ROOT / "boards" / "host.toml").read_text() + REGIONS)
    project = compiled(board=str(board))
    assert len(project.plan.arenas) == 2
    run = host_model(project, sanitize=True)
    for n in SIZES:
        np.testing.assert_allclose(run(x=frames(n))["y"], wanted(n), atol=1e-5)


@pytest.mark.long
def test_the_sanitizers_find_nothing() -> None:
    run: HostModel = host_model(compiled(), sanitize=True)
    for n in SIZES:
        np.testing.assert_allclose(run(x=frames(n))["y"], wanted(n), atol=1e-5)


def test_a_model_of_fixed_sizes_has_no_table() -> None:
    options = Options(bounds={"n": (8, 8), "batch": (1, 1)}, name="enc")
    fixed = driver.compile_model(model(), "host", options)
    text = fixed.files["enc.c"].decode()
    assert "raot_place" not in text and "raot/place.h" not in fixed.files


def test_unknown_offsets_are_refused() -> None:
    with pytest.raises(RelaxAotError, match="offsets is one of static, dynamic, not 'auto'"):
        rx.compile(model(), bounds={"n": 4, "batch": 1}, offsets="auto")


@pytest.mark.long
def test_entries_have_tables_of_their_own() -> None:
    bounds = {"n": (1, HIGH), "batch": (1, 1)}
    wide = encoder(width=32, heads=2, layers=1, hidden=64)
    models = {"narrow": model(), "wide": wide}
    host = rx.compile(models, bounds=bounds, name="two", offsets="dynamic").host(sanitize=True)
    session = onnxruntime.InferenceSession(wide.SerializeToString())
    for n in SIZES:
        np.testing.assert_allclose(host.narrow(x=frames(n))["y"], wanted(n), atol=1e-5)
        x = np.random.default_rng(n).normal(size=(1, n, 32)).astype(np.float32)
        np.testing.assert_allclose(host.wide(x=x)["y"], session.run(None, {"x": x})[0], atol=1e-5)


@pytest.mark.qemu
@pytest.mark.parametrize("stepwise", [False, True])
def test_a_microcontroller_computes_the_same(stepwise: bool) -> None:
    project = rx.Project(compiled(stepwise=stepwise, board="mps2-an386"))
    for n in (1, 13):
        np.testing.assert_allclose(project.emulate(x=frames(n)).outputs["y"], wanted(n), atol=1e-5)
