# SPDX-License-Identifier: Apache-2.0
"""Windows: growing states that keep their last rows, as `past = present[..., -W:, :]` by hand."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import relax_aot as rx
from relax_aot import driver, lowering
from relax_aot.cli.main import cli
from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.reference import evaluate
from relax_aot.ir.graph import Module
from relax_aot.ir.types import TensorType
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.verify.emulate import emulate_cases
from relax_aot.verify.host import HostModel, build_shared, library_files
from relax_aot.verify.library import Library
from relax_aot.verify.prove import prove
from relax_aot.verify.samples import Case
from tests.conftest import NO_FRAMA_C
from tests.emit.stepped import Run, Stepped, aligned
from tests.end_to_end.growing_models import (
    APPENDED,
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
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror",
         "-fsanitize=undefined", "-fno-sanitize-recover=all")  # fmt: skip
Values = np.ndarray[Any, Any]


class LastRows(ByHand):
    """ONNX Runtime by hand, where the caller keeps the last rows."""

    def __init__(self, window: int, heads: int = 1) -> None:
        super().__init__(heads)
        self._window = window

    def __call__(self, x: Values) -> Values:
        y = super().__call__(x)
        self.past = {name: array[:, :, -self._window :] for name, array in self.past.items()}
        return y


def compiled(window: int, rows: int | str = 1, most: int = 9, heads: int = 1, **more: Any) -> Any:
    bounds = {"s": most} if rows == "s" else {}
    model = attention(rows, heads)
    return rx.compile(model, bounds=bounds, state=STATE, window={"m": window}, name="att", **more)


def close(found: Values, wanted: Values) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_600_tokens_with_a_window_of_128() -> None:
    project = compiled(128)
    row_bytes, places = 2 * 4 * WIDTH, 128 + 1 + 16
    assert project.built.plan.arena_bytes <= 4096
    assert project.memory.state_bytes == 16 + places * row_bytes
    host, wanted, rng = project.host(), LastRows(128), np.random.default_rng(1)
    state = host.runner._state.data
    moved = 0
    for call in range(600):
        x, before = tokens(rng, 1), state.copy()
        close(host(x=x)["y"], wanted(x))
        assert host.length("m") == wanted.length == min(call + 1, 128)
        if call and np.count_nonzero(state != before) > row_bytes + 8:
            moved += 1
    assert moved == (600 - 128) // 17, "rows move once in 17 calls"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "most", "heads", "sanitize"),
    [
        (11, 9, 4, False),
        (5, 16, 2, False),
        pytest.param(11, 9, 4, True, marks=pytest.mark.long),
        pytest.param(1, 3, 1, True, marks=pytest.mark.long),
        pytest.param(24, 24, 2, True, marks=pytest.mark.long),
    ],
)
def test_calls_of_several_rows(window: int, most: int, heads: int, *, sanitize: bool) -> None:
    """Fewer rows than the window has left, as many, more, and more than the window keeps."""
    host = compiled(window, "s", most, heads).host(sanitize=sanitize)
    wanted, rng = LastRows(window, heads), np.random.default_rng(window)
    host(x=np.ones((most, WIDTH), np.float32))
    host.reset()
    for call in range(90):
        if call % 9 == 8:
            kept = int(rng.integers(0, wanted.length + 1))
            host.truncate(m=kept)
            wanted.truncate(kept)
        if call % 23 == 22:
            with pytest.raises(rx.StatusError, match="RAOT_ERR_SIZE"):
                host.truncate(m=wanted.length + 1)
        rows = most if call % 7 == 3 else int(rng.integers(1, most + 1))
        x = tokens(rng, rows)
        close(host(x=x)["y"], wanted(x))
        assert host.length("m") == wanted.length


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize(
    "board", ["mps2-an386", pytest.param("mps3-an547", marks=pytest.mark.long)]
)
def test_on_a_board(board: str) -> None:
    project = compiled(7, "s", 9, heads=2, board=board).built
    wanted, rng = LastRows(7, heads=2), np.random.default_rng(3)
    cases, answers = [], []
    for number, s in enumerate((3, 1, 1, 1, 1, 1, 2, 9, 1, 7, 1, 1, 1, 5, 1, 1, 8, 1, 1, 1)):
        if number in (9, 16):
            wanted.truncate(4)
        x = tokens(rng, s)
        cases.append(Case({"m": wanted.length, "s": s}, (x,)))
        answers.append(wanted(x))
    for run, y in zip(emulate_cases(project, cases), answers, strict=True):
        assert run.status == 0
        close(run.outputs["y"], y)


def follow(project: Project, calls: int = 40, library: Library | None = None) -> None:
    """Random calls, truncations between them, and the source module by the ops' references. The
    caller keeps the rows."""
    library = library or Library(build_shared(library_files(project), FLAGS))
    host, module = HostModel(project.interface, library), project.source_module
    rng, states = np.random.default_rng(5), module.states
    types = {param.name: param.type for param in module.main.params}
    empty = dict.fromkeys(module.lengths, 0)
    held = {s.input: zeros(types[s.input], empty) for s in states}
    for call in range(calls):
        if call % 5 == 4:
            kept = int(rng.integers(0, min(held[s.input].shape[s.axis] for s in states) + 1))
            host.truncate(dict.fromkeys(module.lengths, kept))
            held = {s.input: held[s.input].take(range(kept), s.axis) for s in states}
        sizes = {s.length: held[s.input].shape[s.axis] for s in states}
        sizes["s"] = int(rng.integers(1, 9))
        inputs = {
            name: np.asarray(rng.normal(size=zeros(type_, sizes).shape) * 2, type_.dtype.numpy)
            for name, type_ in types.items()
            if name not in held
        }
        wanted = evaluate(module, {**inputs, **held}, sizes)
        for name, value in host(inputs).items():
            np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6)
        for state in states:
            present = wanted[state.output]
            rows = present.shape[state.axis]
            first = max(rows - window_of(module)[state.length], 0)
            held[state.input] = present.take(range(first, rows), state.axis)
            assert host.length(state.length) == rows - first


def zeros(type_: TensorType, sizes: dict[str, int]) -> Values:
    return np.zeros([size.evaluate(sizes) for size in type_.shape], type_.dtype.numpy)


def window_of(module: Module) -> dict[str, int]:
    return {name: 9 if name == "k" else 6 for name in module.lengths}


def slid(name: str, **options: Any) -> Project:
    """A program whose lengths have windows."""
    module = rx.parse(PROGRAMS[name])
    module = rx.parse(PROGRAMS[name], window=window_of(module))
    assert rx.parse(str(module)) == module
    return rx.compile(module, name="slid", **options).built


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_in_text_form(name: str) -> None:
    project = slid(name)
    assert bool(project.plan.commits) == (name in STAGED)
    follow(project)


@pytest.mark.long
@pytest.mark.parametrize("options", [{"stepwise": True}, {"offsets": "dynamic"}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_forms_of_a_run(name: str, options: dict[str, Any]) -> None:
    follow(slid(name, **options))


# Several entries, threads, steps


@pytest.mark.slow
def test_entries_share_a_window() -> None:
    """A prompt of more rows than the window keeps, single tokens, and an entry that only reads."""
    score = """symbol m in 0..6
func @main(%past_k: f32[1, 1, m, 64], %q: f32[1, 1, 1, 64]) {
  %y: f32[1, 1, m, 64] = mul(%past_k, %q)
  return %y
}"""
    sources = {"prefill": attention("s"), "decode": attention(1), "score": rx.parse(score)}
    options: Any = {"bounds": {"s": 16}, "state": STATE, "window": {"m": 6}}
    entries = rx.load(sources, **options)
    assert rx.parse_entries(str(entries)) == entries
    project = rx.compile(sources, name="llm", **options)
    host, wanted, rng = project.host(), LastRows(6), np.random.default_rng(6)
    ones = np.ones((1, 1, 1, WIDTH), np.float32)
    for number, rows in enumerate((7, 1, 1, 16, 1, 1, 1, 1, 3, 1, 16, 16, 5)):
        x = tokens(rng, rows)
        close(host["decode" if rows == 1 else "prefill"](x=x)["y"], wanted(x))
        close(host.score(q=ones)["y"], wanted.past["past_k"])
        assert host.length("m") == wanted.length == 6
        if number % 5 == 4:
            host.truncate(m=number % 4)
            wanted.truncate(number % 4)
            host.decode(x=ones[0, 0])
            wanted(ones[0, 0])
            host.prefill(x=x)
            wanted(x)
            host.prefill(x=np.repeat(x, 16, axis=0)[:16])
            wanted(np.repeat(x, 16, axis=0)[:16])


def test_an_entry_without_past_replaces_all_rows() -> None:
    first = """symbol n in 1..16
func @main(%x: f32[2, n, 4]) {
  %present: f32[2, n, 4] = tanh(%x)
  %y: f32[2, n, 4] = mul(%present, %present)
  return %y, %present
}"""
    later = PLAIN.partition("state")[0] + PLAIN.partition("present\n")[2] + APPENDED
    later += "\n  %z: f32[2, m + s, 4] = exp(%present)\n  return %z, %present\n}"
    sources = {"first": rx.parse(first), "later": rx.parse(later)}
    project = rx.compile(sources, state={"past": "present"}, window={"m": 5}, name="llm")
    host, rng = project.host(), np.random.default_rng(7)
    for rows in (7, 16, 1, 3, 16, 16):
        x = rng.normal(size=(2, rows, 4)).astype(np.float32)
        held = np.tanh(x)
        np.testing.assert_allclose(host.first(x=x)["y"], held * held, rtol=1e-5)
        held = held[:, -5:]
        for new in (3, 1, 1, 8):
            x = rng.normal(size=(2, new, 4)).astype(np.float32)
            held = np.concatenate([held, x], axis=1)
            np.testing.assert_allclose(host.later(x=x)["z"], np.exp(held), rtol=1e-5)
            held = held[:, -5:]
        assert host.length("m") == held.shape[1]


@pytest.mark.slow
@pytest.mark.long
def test_threads_slide_the_same_window() -> None:
    host = compiled(40, "s", 24, 4, threads=2).host()
    alone, wanted = compiled(40, "s", 24, 4).host(), LastRows(40, 4)
    rng = np.random.default_rng(8)
    for rows in (24, 9, 24, 1, 1, 17, 24, 24, 2, 1):
        x = tokens(rng, rows)
        y = host(x=x)["y"]
        close(y, wanted(x))
        np.testing.assert_array_equal(y, alone(x=x)["y"])


def test_a_run_that_is_canceled_keeps_the_window() -> None:
    built = compiled(6, "s", 5, stepwise=True).built
    assert not built.plan.commits
    wanted, rng = LastRows(6), np.random.default_rng(4)
    model = Stepped(built)
    state = aligned(int(model.library.kept()))

    def run(x: Values) -> Run:
        interface = model.interface
        sizes = {"m": wanted.length, "s": len(x)}
        return Run(model, {p.source: x for p in interface.inputs}, state, sizes)

    assert run(tokens(rng, 1)).init() == 0
    for rows in (3, 5, 1, 1, 4, 5, 2, 1, 1, 1):
        x = tokens(rng, rows)
        canceled, whole, header = run(-x), run(x), state[:16].copy()
        assert canceled.begin() == 0
        steps = 0
        while canceled.running and steps < 2:
            assert canceled.step() == 0
            steps += 1
        np.testing.assert_array_equal(state[:16], header)
        assert whole.whole() == 0
        close(whole.values()["y"], wanted(x))
        assert int(state[4:8].view(np.int32)[0]) == wanted.length


FAILING = """symbol m in 0..4
symbol s in 1..3
state %past = %present
func @main(%past: f32[m, 3], %x: f32[s, 3]) {
  %present: f32[m + s, 3] = concat(%past, %x) {axis=0}
  %e: f32[m + s, 3] = exp(%present)
  %l: f32[1, 3] = slice(%present) {starts=[m + s - 1], lengths=[1], axes=[0], steps=[1]}
  %r: f32[3] = reshape(%l) {shape=[3]}
  %t: i32[3] = cast(%r) {to=i32}
  %y: f32[3, 3] = gather(%e, %t) {axis=0}
  return %y, %present
}"""
"""The last new row has the indices of the rows that are returned."""


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_fails_keeps_the_window(changed: bool) -> None:
    text = FAILING
    if changed:
        text = text.replace("%present: f32[m + s, 3] = concat(%past", "%c: f32[m, 3] = neg(%past")
        text = text.replace("neg(%past, %x) {axis=0}", "neg(%past)")
        joined = "  %present: f32[m + s, 3] = concat(%c, %x) {axis=0}\n"
        text = text.replace("  %e:", f"{joined}  %e:")
    host = rx.compile(rx.parse(text, window={"m": 4}), name="failing").host()
    rng, held = np.random.default_rng(9), np.zeros((0, 3), np.float32)
    for call in range(30):
        x = rng.normal(size=(call % 3 + 1, 3)).astype(np.float32)
        x[-1] = 0, len(held), 0
        if call:
            x[-1, 2] = 99
            with pytest.raises(rx.StatusError, match="RAOT_ERR_INDEX"):
                host(x=x)
            assert host.length("m") == len(held)
            x[-1, 2] = 0
        held = np.concatenate([-held if changed else held, x])
        found, (first, middle, _) = host(x=x)["y"], x[-1].astype(int)
        np.testing.assert_allclose(found, np.exp(held[[first, middle, 0]]), rtol=1e-5)
        held = held[-4:]


@pytest.mark.slow
def test_rows_of_a_dynamic_width() -> None:
    """The width is in the header of the state too; a first row that no run leaves is refused."""
    text = """symbol m in 0..5
symbol n in 1..5
symbol s in 1..4
state %past = %present
func @main(%past: f32[2, m, n], %x: f32[2, s, n]) {
  %old: f32[2, m, n] = neg(%past)
  %present: f32[2, m + s, n] = concat(%old, %x) {axis=1}
  %y: f32[2, n] = reduce(%present) {axes=[1], keepdims=false, kind="sum"}
  return %y, %present
}"""
    host, rng = (
        rx.compile(rx.parse(text, window={"m": 5}), name="wide").host(),
        np.random.default_rng(11),
    )
    for width in (1, 3, 5):
        host.reset()
        held = np.zeros((2, 0, width), np.float32)
        for _ in range(25):
            x = rng.normal(size=(2, int(rng.integers(1, 5)), width)).astype(np.float32)
            held = np.concatenate([-held, x], axis=1)
            close(host(x=x)["y"], held.sum(axis=1))
            held = held[:, -5:]
    assert isinstance(host.runner, Library)
    first = host.runner._state.data[12:16].view(np.int32)
    for row in (-1, 2):
        first[0] = row
        with pytest.raises(rx.StatusError, match="RAOT_ERR_STATE"):
            host(x=x)


@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["ordered", "blocked"])
def test_results_do_not_depend_on_where_rows_lie(numerics: str) -> None:
    """The bits are those of a state that never moved."""
    text = PLAIN + APPENDED + "\n" + TAIL
    host = rx.compile(rx.parse(text, window={"m": 9}), name="slid", numerics=numerics).host()
    other = rx.compile(rx.parse(text), name="grown", numerics=numerics).host()
    rng, held = np.random.default_rng(10), np.zeros((2, 0, 4), np.float32)
    for call in range(40):
        x = rng.normal(size=(2, call % 8 + 1, 4)).astype(np.float32)
        other.reset()
        for first in range(0, held.shape[1], 8):
            other(x=held[:, first : first + 8])
        np.testing.assert_array_equal(host(x=x)["y"], other(x=x)["y"])
        held = np.concatenate([held, x], axis=1)[:, -9:]


TAIL = """  %t: f32[2, 4, m + s] = transpose(%present) {perm=[0, 2, 1]}
  %p: f32[2, m + s, m + s] = matmul(%present, %t)
  %w: f32[2, m + s, m + s] = softmax(%p) {axis=2}
  %y: f32[2, m + s, 4] = matmul(%w, %present)
  return %y, %present
}"""


# Options


@pytest.mark.slow
@pytest.mark.parametrize(
    "m", [11, *(pytest.param(m, marks=pytest.mark.long) for m in (None, 0, 1, 24))]
)
def test_verify_with_a_window(m: int | None, tmp_path: Path) -> None:
    path, found = tmp_path / "att.onnx", tmp_path / "found.json"
    onnx.save(attention("s"), path)
    states = [f"--state={before}={after}" for before, after in STATE.items()]
    options = ["--window", "m=24", "--bound", "s=8", "--json", str(found)]
    options += [] if m is None else ["--at", f"m={m}"]
    done = CliRunner().invoke(cli, ["verify", str(path), *states, *options])
    assert done.exit_code == 0, done.output
    (target,) = json.loads(found.read_text())["targets"]
    assert target["ok"]
    rows = {tuple(state["shape"]) for run in target["runs"] for state in run["states"]}
    assert m is None or rows == {(1, 1, min(m + 8, 24), WIDTH)}
    assert all(shape[2] <= 24 for shape in rows)


@pytest.mark.slow
def test_bounds_that_the_window_rests_on_are_fixed() -> None:
    project = compiled(6, "s", 5).built
    for macro in ("ATT_M_MAX=7", "ATT_S_MAX=6"):
        with pytest.raises(RelaxAotError, match=r"(of|in) the generated code"):
            build_shared(library_files(project), ("-std=c11", "-O0", f"-D{macro}"))
    build_shared(library_files(project), ("-std=c11", "-O0", "-DATT_S_MAX=3"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": {"m": 6}, "bounds": {"m": 7, "s": 4}}, "the window determines the bound of m"),
        ({"window": {"m": 6}, "bounds": {"m": (2, 6), "s": 4}}, r"remove --bound m=2\.\.6"),
        ({"window": {"m": 0}}, "a window keeps at least 1 row"),
        ({"window": {"m": 2**31}}, "a window keeps at least 1 row and at most 2147483647"),
        ({"window": {"m": 2**30}}, r"smaller bound \(--bound\) or window \(--window\)"),
        (
            {"window": {"s": 6, "m": 4}, "bounds": {}},
            "s is not the length of a growing state .lengths are m",
        ),
        (
            {"window": {"m": 6}, "state": {}},
            "is not the length of a growing state .the model has no lengths",
        ),
        ({"window": {"m": "6"}}, "an integer"),
    ],
)
def test_windows_that_are_refused(options: dict[str, Any], message: str) -> None:
    given: Any = {"state": STATE, "bounds": {"s": 4}} | options
    with pytest.raises(RelaxAotError, match=message):
        rx.compile(attention("s"), **given)


TEXT = PROGRAMS["rows on the first axis"]


@pytest.mark.parametrize(
    "load",
    [
        lambda window: rx.load(
            attention("s"), bounds={"s": 4, "m": 30}, state=STATE, window=window
        ),
        lambda window: rx.parse(TEXT, window=window),
        lambda window: rx.load(rx.parse(TEXT), window=window),
        lambda window: rx.load({"a": rx.parse(TEXT), "b": rx.parse(TEXT)}, window=window),
        lambda window: rx.parse_entries(f"entry a\n{TEXT}\nentry b\n{TEXT}", window=window),
        lambda window: rx.load(lowering.lower(rx.parse(TEXT)), window=window),
    ],
    ids=["onnx", "text", "module", "entries", "text of entries", "kernels"],
)
@pytest.mark.parametrize("window", [{"s": 4}, {"q": 6}, {"m": 30}, {"m": 30, "q": 1}], ids=str)
def test_errors_name_the_window(load: Any, window: dict[str, int]) -> None:
    """The bound that a window determines is not an option that the user gave."""
    try:
        load(window)
    except RelaxAotError as error:
        assert re.match(r"--window (m=30|s=4|q=[16]): ", str(error)), error
        assert "the bound" not in str(error)
    else:
        assert window == {"m": 30}


def test_values_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.raot"
    path.write_text(TEXT)
    for option, values in (("--window", ("m=3", "m=4")), ("--bound", ("s=3", "s=1..4"))):
        given = [f"{option}={value}" for value in values]
        done = CliRunner().invoke(cli, ["compile", str(path), "-o", str(tmp_path / "o"), *given])
        assert f"{option} {values[0][0]}: given twice" in str(done.exception)
    done = CliRunner().invoke(cli, ["verify", str(path), "--window=m=3", "--at=m=4"])
    assert "give another --at or inputs, or --window m=4" in str(done.exception)
    done = CliRunner().invoke(cli, ["verify", str(path), "--window=m=3", "--at=m=2,m=3"])
    assert "--at m: given twice" in str(done.exception)


def test_a_loaded_module_keeps_its_windows() -> None:
    text = PROGRAMS["rows on the first axis"]
    loaded: Any = rx.parse(text, bounds={"m": (0, 9)})
    with pytest.raises(RelaxAotError, match="loaded without this window; load the model with it"):
        rx.compile(loaded, window={"m": 9})
    slid: Any = rx.parse(text, window={"m": 9})
    assert rx.compile(slid, window={"m": 9}).memory == rx.compile(slid).memory


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "rows that change",
        pytest.param("rows on the first axis", marks=pytest.mark.long),
        pytest.param("rows on a middle axis", marks=pytest.mark.long),
    ],
)
def test_proof_of_a_window(name: str) -> None:
    """Appends, moved rows, and the copy of a state whose old rows change."""
    if shutil.which("frama-c") is None:
        pytest.skip(NO_FRAMA_C)
    module = rx.parse(PROGRAMS[name], window={"m": 6})
    options = driver.Options(name="slid", annotate=True)
    proof = prove(driver.compile_module(module, load_board("host"), options))
    assert proof.ok, "\n".join(proof.lines())
