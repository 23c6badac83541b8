# SPDX-License-Identifier: Apache-2.0
"""States that grow: rows are appended in place, as ONNX Runtime's past and present by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import relax_aot as rx
from relax_aot.errors import RelaxAotError
from relax_aot.project import Project
from relax_aot.verify.emulate import emulate_cases
from relax_aot.verify.host import HostModel, build_shared, library_files
from relax_aot.verify.library import Library
from relax_aot.verify.reference import NumpyReference
from relax_aot.verify.samples import Case
from tests.emit.stepped import Run, Stepped, aligned
from tests.end_to_end.growing_models import (
    APPENDED,
    HEAD,
    PLAIN,
    PROGRAMS,
    STAGED,
    STATE,
    WIDTH,
    ByHand,
    attention,
    tokens,
)

pytest.importorskip("onnxruntime")
CAPACITY = 512
ROW_BYTES = 2 * 4 * WIDTH
"""A key and a value."""
ERR_SIZE, ERR_CAPACITY = -4, -7


def compiled(rows: int | str = 1, heads: int = 1, capacity: int = CAPACITY, **options: Any) -> Any:
    bounds = {"m": capacity} | ({"s": 9} if rows == "s" else {})
    return rx.compile(attention(rows, heads), bounds=bounds, state=STATE, name="att", **options)


@pytest.mark.slow
def test_600_appends_end_with_a_status_at_the_513th() -> None:
    project = compiled()
    assert project.built.plan.arena_bytes <= 4096
    host, wanted, rng = project.host(), ByHand(), np.random.default_rng(1)
    state = host.runner._state.data
    refused = 0
    for call in range(600):
        x, before = tokens(rng, 1), state.copy()
        try:
            y = host(x=x)["y"]
        except rx.StatusError as error:
            assert error.status == ERR_CAPACITY and call >= CAPACITY
            np.testing.assert_array_equal(state, before)
            refused += 1
            continue
        np.testing.assert_allclose(y, wanted(x), rtol=1e-4, atol=1e-5)
        if call:
            changed = np.count_nonzero(state != before)
            assert 0 < changed <= ROW_BYTES + 4, "the new rows and the length"
        assert host.length("m") == call + 1
    assert refused == 600 - CAPACITY

    host.truncate(m=3)
    wanted.truncate(3)
    x = tokens(rng, 1)
    np.testing.assert_allclose(host(x=x)["y"], wanted(x), rtol=1e-4, atol=1e-5)
    assert host.length("m") == 4


def test_heads_use_one_row_of_scores_after_another() -> None:
    assert compiled(heads=4).built.plan.arena_bytes <= 4096


@pytest.mark.slow
def test_prefill_decode_and_rollback_under_sanitizers() -> None:
    host, wanted = compiled("s", heads=4, capacity=40).host(sanitize=True), ByHand(heads=4)
    rng = np.random.default_rng(2)
    keep = {3: 7, 6: 19, 9: 2, 13: 0}
    for number, rows in enumerate((9, 1, 1, 4, 3, 9, 2, 5, 1, 7, 9, 9, 9, 9, 9, 9, 9, 9)):
        if number in keep:
            host.truncate(m=keep[number])
            wanted.truncate(keep[number])
        if wanted.length + rows > 40:
            with pytest.raises(rx.StatusError, match="RAOT_ERR_CAPACITY"):
                host(x=tokens(rng, rows))
        else:
            x = tokens(rng, rows)
            np.testing.assert_allclose(host(x=x)["y"], wanted(x), rtol=1e-4, atol=1e-5)
        assert host.length("m") == wanted.length


def test_truncation_to_lengths_that_the_state_does_not_hold() -> None:
    host = compiled(capacity=8).host()
    assert host.length("m") == 0
    host.truncate(m=0)
    for length in (1, -1):
        with pytest.raises(rx.StatusError, match="att_truncate_m ended with RAOT_ERR_SIZE"):
            host.truncate(m=length)
    host(x=np.ones((1, WIDTH), np.float32))
    for length in (2, -1):
        with pytest.raises(rx.StatusError, match="att_truncate_m ended with RAOT_ERR_SIZE"):
            host.truncate(m=length)
    assert host.length("m") == 1
    with pytest.raises(RelaxAotError, match="no length 'n'"):
        host.length("n")
    with pytest.raises(RelaxAotError, match="no size 'n'"):
        host.truncate(n=0)
    with pytest.raises(RelaxAotError, match="the state holds 1 rows"):
        host.at(m=0)(x=np.ones((1, WIDTH), np.float32))
    host.reset()
    assert host.length("m") == 0


@pytest.mark.qemu
@pytest.mark.slow
def test_on_a_cortex_m4() -> None:
    project = compiled("s", heads=2, capacity=24, board="mps2-an386").built
    wanted, rng = ByHand(heads=2), np.random.default_rng(3)
    cases, answers = [], []
    for m, s in ((0, 7), (7, 1), (8, 1), (9, 9), (12, 3), (15, 9), (24, 1), (2, 8)):
        x = tokens(rng, s)
        cases.append(Case({"m": m, "s": s}, (x,)))
        wanted.truncate(m)
        answers.append(wanted(x) if m + s <= 24 else None)
    for run, y in zip(emulate_cases(project, cases), answers, strict=True):
        assert run.status == (ERR_CAPACITY if y is None else 0)
        if y is not None:
            np.testing.assert_allclose(run.outputs["y"], y, rtol=1e-4, atol=1e-5)


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547"])
def test_600_appends_on_a_board(board: str) -> None:
    project, wanted = compiled(board=board).built, ByHand()
    rng = np.random.default_rng(8)
    inputs = [tokens(rng, 1) for _ in range(600)]
    cases = [Case({"m": min(call, CAPACITY)}, (x,)) for call, x in enumerate(inputs)]
    runs = emulate_cases(project, cases)
    for run, x in zip(runs[:CAPACITY], inputs[:CAPACITY], strict=True):
        assert run.status == 0
        np.testing.assert_allclose(run.outputs["y"], wanted(x), rtol=1e-4, atol=1e-5)
    assert {run.status for run in runs[CAPACITY:]} == {ERR_CAPACITY}
    assert len({run.state for run in runs[CAPACITY - 1 :]}) == 1


@pytest.mark.qemu
@pytest.mark.long
def test_entries_on_a_cortex_m4() -> None:
    sources = {"prefill": attention("s"), "decode": attention(1)}
    bounds = {"m": 12, "s": 9}
    project = rx.compile(sources, board="mps2-an386", bounds=bounds, state=STATE, name="llm")
    wanted, rng = ByHand(), np.random.default_rng(9)
    inputs = [(entry, tokens(rng, rows)) for entry, rows in (("prefill", 9), ("decode", 1))]
    inputs += [("prefill", tokens(rng, 5)), ("decode", tokens(rng, 1)), ("prefill", tokens(rng, 4))]
    calls: list[Any] = [(entry, {"x": x}) for entry, x in inputs]
    calls[4] = (*calls[4], {"m": 8})
    runs = project.emulate(calls)
    assert [run.status for run in runs] == [0, 0, ERR_CAPACITY, 0, 0]
    for number, (run, (_, x)) in enumerate(zip(runs, inputs, strict=True)):
        if number == 4:
            wanted.truncate(8)
        if number != 2:
            np.testing.assert_allclose(run.outputs["y"], wanted(x), rtol=1e-4, atol=1e-5)


def test_a_run_that_is_canceled_keeps_the_state() -> None:
    built = compiled("s", capacity=16, stepwise=True).built
    assert not built.plan.commits
    wanted, rng = ByHand(), np.random.default_rng(4)
    model = Stepped(built)
    state = aligned(int(model.library.kept()))

    def run(x: np.ndarray[Any, Any]) -> Run:
        interface = model.interface
        sizes = {"m": wanted.length, "s": len(x)}
        return Run(model, {p.source: x for p in interface.inputs}, state, sizes)

    first = tokens(rng, 3)
    assert run(first).init() == 0
    for x in (first, tokens(rng, 5)):
        canceled, whole = run(-x), run(x)
        assert canceled.begin() == 0
        steps = 0
        while canceled.running and steps < 2:
            assert canceled.step() == 0
            steps += 1
        assert whole.whole() == 0
        np.testing.assert_allclose(whole.values()["y"], wanted(x), rtol=1e-4, atol=1e-5)
        assert int(state[4:8].view(np.int32)[0]) == wanted.length
    assert run(tokens(rng, 9)).begin() == ERR_CAPACITY


def follow(project: Project, calls: int = 19) -> None:
    """Random calls, truncations between them, and the reference of the source module."""
    flags = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
    host = HostModel(project.interface, Library(build_shared(library_files(project), flags)))
    reference, rng = NumpyReference(project.source_module), np.random.default_rng(5)
    symbols = [field.symbol for field in project.interface.lengths]
    held = dict.fromkeys((symbol.name for symbol in symbols), 0)
    refused = 0
    for call in range(calls):
        if call % 5 == 4:
            cut = int(rng.integers(0, min(held.values()) + 1))
            host.truncate(dict.fromkeys(held, cut))
            held = dict.fromkeys(held, cut)
        sizes = {"s": int(rng.integers(1, 9)), **held}
        inputs = {}
        for port in project.interface.inputs:
            array = rng.normal(size=project.interface.shape(port, sizes)) * 2
            inputs[port.source] = array.astype(port.type.dtype.numpy)
        growths = {s.name: s.growth for s in symbols if s.growth is not None}
        after = {name: growth.after.evaluate(sizes) for name, growth in growths.items()}
        if any(length > growths[name].capacity for name, length in after.items()):
            refused += 1
            with pytest.raises(rx.StatusError, match="RAOT_ERR_CAPACITY"):
                host(inputs)
            continue
        shapes = {part.source: part.shape(sizes) for part in project.interface.states}
        wanted = reference(inputs, shapes, sizes)
        for name, value in host(inputs).items():
            np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6)
        held = after
        assert {name: host.length(name) for name in held} == held
    assert refused


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_in_text_form(name: str) -> None:
    project = rx.compile(rx.parse(PROGRAMS[name]), name="grown").built
    assert bool(project.plan.commits) == (name in STAGED)
    follow(project)


@pytest.mark.long
@pytest.mark.parametrize("options", [{"stepwise": True}, {"offsets": "dynamic"}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_forms_of_a_run(name: str, options: dict[str, Any]) -> None:
    follow(rx.compile(rx.parse(PROGRAMS[name]), name="grown", **options).built)


@pytest.mark.slow
def test_entries_share_rows_and_length() -> None:
    """`score` reads the rows of the others and appends none."""
    score = """symbol m in 0..19
func @main(%past_k: f32[1, 1, m, 64], %q: f32[1, 1, 1, 64]) {
  %y: f32[1, 1, m, 64] = mul(%past_k, %q)
  return %y
}"""
    sources = {"prefill": attention("s"), "decode": attention(1), "score": rx.parse(score)}
    project = rx.compile(sources, bounds={"m": 19, "s": 9}, state=STATE, name="llm")
    assert "int32_t llm_get_m(const struct llm_memory *memory);" in str(project.files["llm.h"])
    host, wanted, rng = project.host(), ByHand(), np.random.default_rng(6)
    ones = np.ones((1, 1, 1, WIDTH), np.float32)
    for entry, rows in (("prefill", 7), ("decode", 1), ("decode", 1), ("prefill", 5)):
        x = tokens(rng, rows)
        np.testing.assert_allclose(host[entry](x=x)["y"], wanted(x), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(host.score(q=ones)["y"], wanted.past["past_k"], atol=1e-5)
        assert host.length("m") == wanted.length
        if rows == 7:
            host.truncate(m=4)
            wanted.truncate(4)
    with pytest.raises(rx.StatusError, match="llm_prefill_run ended with RAOT_ERR_CAPACITY"):
        host.prefill(x=tokens(rng, 9))
    assert host.length("m") == wanted.length


def test_an_entry_without_past_replaces_all_rows() -> None:
    """As exports have it whose first call has no `past`."""
    first = """symbol n in 1..16
func @main(%x: f32[2, n, 4]) {
  %present: f32[2, n, 4] = tanh(%x)
  %y: f32[2, n, 4] = mul(%present, %present)
  return %y, %present
}"""
    later = PLAIN.partition("state")[0] + PLAIN.partition("present\n")[2] + APPENDED
    later += "\n  %z: f32[2, m + s, 4] = exp(%present)\n  return %z, %present\n}"
    sources = {"first": rx.parse(first), "later": rx.parse(later)}
    project = rx.compile(sources, state={"past": "present"}, name="llm")
    host, rng = project.host(), np.random.default_rng(7)
    for rows in (7, 16, 1):
        x = rng.normal(size=(2, rows, 4)).astype(np.float32)
        held = np.tanh(x)
        np.testing.assert_allclose(host.first(x=x)["y"], held * held, rtol=1e-5)
        for new in (3, 1):
            x = rng.normal(size=(2, new, 4)).astype(np.float32)
            held = np.concatenate([held, x], axis=1)
            np.testing.assert_allclose(host.later(x=x)["z"], np.exp(held), rtol=1e-5)
        assert host.length("m") == held.shape[1]
    entries = rx.load(sources, state={"past": "present"})
    assert rx.parse_entries(str(entries)) == entries


@pytest.mark.slow
@pytest.mark.parametrize(
    "m", [22, *(pytest.param(m, marks=pytest.mark.long) for m in (0, 1, 11, 23))]
)
def test_verify_fills_the_state_first(m: int, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from relax_aot.cli.main import cli

    path, found = tmp_path / "att.onnx", tmp_path / "found.json"
    onnx.save(attention("s"), path)
    states = [f"--state={before}={after}" for before, after in STATE.items()]
    options = ["--bound", "m=24", "--bound", "s=8", "--at", f"m={m}", "--json", str(found)]
    done = CliRunner().invoke(cli, ["verify", str(path), *states, *options])
    assert done.exit_code == 0, done.output
    (target,) = json.loads(found.read_text())["targets"]
    assert target["ok"]
    assert {run["dims"]["m"] for run in target["runs"]} == {m}
    rows = {tuple(state["shape"]) for run in target["runs"] for state in run["states"]}
    assert rows == {(1, 1, min(m + 8, 24), WIDTH)}


def test_a_capacity_is_fixed_in_the_generated_code() -> None:
    project = compiled(capacity=8).built
    flags = ("-std=c11", "-O0", "-DATT_M_MAX=9")
    with pytest.raises(RelaxAotError, match="ATT_M_MAX is fixed in the generated code"):
        build_shared(library_files(project), flags)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            PLAIN
            + "%present: f32[2, m + s, 5] = pad(%past)"
            + ' {before=[0, s, 0], after=[0, 0, 1], mode="constant"}',
            "a state keeps its type, or grows on one axis",
        ),
        (
            HEAD + "func @main(%past: f32[m, m], %x: f32[s, 4]) {\n"
            "  %present: f32[m, 2*m] = concat(%past, %past) {axis=1}",
            "a state keeps its type, or grows on one axis",
        ),
        (
            HEAD + "func @main(%past: f32[2*m, 4], %x: f32[s, 4]) {\n"
            "  %present: f32[2*m + s, 4] = concat(%past, %x) {axis=0}",
            "a state keeps its type, or grows on one axis",
        ),
        (
            HEAD + "state %b = %c\n"
            "func @main(%past: f32[m, 4], %b: f32[m, 4], %x: f32[s, 4]) {\n"
            "  %c: f32[m, 4] = add(%past, %b)\n"
            "  %present: f32[m + s, 4] = concat(%past, %x) {axis=0}",
            "its size m is the length of a growing state",
        ),
        (
            HEAD + "state %b = %c\n"
            "func @main(%past: f32[m, 4], %b: f32[m, 4], %x: f32[s, 4]) {\n"
            "  %present: f32[m + s, 4] = concat(%past, %x) {axis=0}\n"
            "  %c: f32[m + 2*s, 4] = concat(%b, %x, %x) {axis=0}",
            "states with one length grow by the same number of rows",
        ),
        (
            HEAD.replace("0..24", "0..2").replace("1..8", "3..8")
            + "func @main(%past: f32[2, m, 4], %x: f32[2, s, 4]) {\n  "
            + APPENDED,
            "a call stores at least 3 rows, but the capacity m is 2",
        ),
        (
            HEAD.replace("0..24", "4..24")
            + "func @main(%past: f32[2, m, 4], %x: f32[2, s, 4]) {\n  "
            + APPENDED,
            "the length of a growing state, which starts at 0",
        ),
    ],
)
def test_states_that_do_not_grow_by_rows(text: str, message: str) -> None:
    results = ", ".join(f"%{name}" for name in ("present", "c") if f"%{name}: " in text)
    with pytest.raises(RelaxAotError, match=message):
        rx.parse(f"{text}\n  return {results}\n}}")
