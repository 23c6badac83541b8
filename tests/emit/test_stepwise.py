# SPDX-License-Identifier: Apache-2.0
"""A run that returns between kernels: what ONNX Runtime computes, whatever runs in between."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import relax_aot as rx
from relax_aot.errors import RelaxAotError
from relax_aot.verify.prove import prove
from tests.conftest import ROOT
from tests.emit.stepped import Run, Stepped, aligned, finished
from tests.end_to_end.test_captured import HEADER, NESTED
from tests.end_to_end.test_entries import BOUNDS, MODELS, STATE, Sessions, rows
from tests.end_to_end.test_loops import GROWN, HALVED, SCANNED

onnxruntime = pytest.importorskip("onnxruntime")

GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"
PAGE = ROOT / "docs" / "how-to" / "return_between_kernels.md"
Feeds = dict[str, np.ndarray[Any, Any]]


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def lstm() -> onnx.ModelProto:
    """Frames of three numbers, four cells; what they hold comes in and goes out."""
    model = parser.parse_model(f"""{HEADER}
        (float[T,1,3] x, float[1,1,4] h, float[1,1,4] c)
            => (float[T,1,1,4] y, float[1,1,4] hN, float[1,1,4] cN)
        {{ y, hN, cN = LSTM <hidden_size = 4> (x, W, R, B, , h, c) }}""")
    for name, shape in (("W", (1, 16, 3)), ("R", (1, 16, 4)), ("B", (1, 32))):
        model.graph.initializer.append(numpy_helper.from_array(random(*shape), name))
    return model


def codes() -> onnx.ModelProto:
    """A convolution and a product of bytes."""
    model = parser.parse_model(f"""{HEADER} (float[1,3,N] x) => (float[1,5,N] y)
        <float s = {{0.05}}, uint8 z = {{120}}, float t = {{0.1}}, uint8 u = {{128}},
         float ws = {{0.01}}, int8 wz = {{0}}>
        {{ q = QuantizeLinear(x, s, z)
           r = QLinearConv<pads = [1, 1]>(q, s, z, w, ws, wz, t, u)
           f = DequantizeLinear(r, t, u)
           y = Relu(f) }}""")
    w = np.random.default_rng(1).integers(-128, 128, (5, 3, 3), np.int8)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return model


NON_ZERO = parser.parse_model(f"""{HEADER} (float[N,3] x) => (float[K] y, float total)
    {{ at = NonZero(x) rows = Transpose<perm = [1, 0]>(at) found = GatherND(x, rows)
       y = Sin(found) total = ReduceSum<keepdims = 0>(y) }}""")


def sparse(n: int, seed: int) -> np.ndarray[Any, Any]:
    x = random(n, 3, seed=seed)
    x[x < 0.3] = 0
    return x


def halved(n: int, limit: float, most: int, seed: int = 0) -> Feeds:
    return {
        "x": np.abs(random(n, seed=seed)) + 1,
        "limit": np.array(limit, np.float32),
        "most": np.array(most, np.int64),
    }


def grown(n: int, m: int, rounds: int) -> Feeds:
    return {"x": random(n, 2), "extra": random(m), "rounds": np.array(rounds, np.int64)}


def scanned(b: int, t: int) -> Feeds:
    return {"x": random(b, t, 3), "gate": random(t, b, seed=1), "h": random(b, 3, seed=2)}


def nested(n: int, f: bool, g: bool) -> Feeds:
    return {"x": random(n, 4, seed=n), "f": np.array(f), "g": np.array(g)}


CASES: dict[str, tuple[Any, dict[str, Any], list[Feeds]]] = {
    "network": (
        GESTURE, {"bounds": {"n": (1, 40)}},
        [{"motion": random(n, 6, seed=n)} for n in (1, 17, 40)],
    ),
    "codes": (
        codes(), {"bounds": {"N": (1, 20)}},
        [{"x": random(1, 3, n, seed=n)} for n in (1, 11, 20)],
    ),
    "data": (
        NON_ZERO, {"bounds": {"N": (1, 9)}},
        [{"x": sparse(n, n)} for n in (1, 6, 9)] + [{"x": np.zeros((4, 3), np.float32)}],
    ),
    "loop": (
        HALVED, {"bounds": {"n": 6, "all_0": (0, 8)}},
        [halved(1, 0.3, 8), halved(6, -1, 8, 1), halved(3, 9, 8, 2), halved(5, -1, 5, 3)],
    ),
    "growing": (
        GROWN, {"bounds": {"n": 4, "m": 3, "y_0": 9}},
        [grown(1, 1, 0), grown(4, 3, 5), grown(2, 2, 3), grown(1, 3, 8)],
    ),
    "scan": (
        SCANNED, {"bounds": {"b": 3, "t": 7}},
        [scanned(1, 1), scanned(3, 7), scanned(2, 5)],
    ),
    "branches": (
        parser.parse_model(f"{HEADER} {NESTED}"), {"bounds": {"N": (1, 5)}},
        [nested(1, True, True), nested(5, True, False), nested(4, False, True)],
    ),
}  # fmt: skip


def stepped(source: object, *flags: str, **options: Any) -> Stepped:
    project = rx.compile(source, stepwise=True, **options)
    return Stepped(project.built, flags)


@pytest.fixture(scope="module")
def models() -> dict[str, Stepped]:
    return {}


def model_of(models: dict[str, Stepped], name: str) -> Stepped:
    if name not in models:
        source, options, _ = CASES[name]
        models[name] = stepped(source, name=name, **options)
    return models[name]


def expected(source: object, feeds: Feeds) -> Feeds:
    data = source.SerializeToString() if isinstance(source, onnx.ModelProto) else str(source)
    session = onnxruntime.InferenceSession(data)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def check(run: Run, theirs: Feeds) -> None:
    found = run.values()
    for name, values in theirs.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_runs_that_take_turns_compute_what_onnx_runtime_does(
    models: dict[str, Stepped], name: str
) -> None:
    model, (source, _, feeds) = model_of(models, name), CASES[name]
    runs = [Run(model, given) for given in feeds]
    for run in runs:
        assert run.begin() == 0 and run.running
    counts = [0] * len(runs)
    while any(run.running for run in runs):
        for number, run in enumerate(runs):
            if run.running:
                assert run.step() == 0
                counts[number] += 1
    assert max(counts) <= model.most
    for run, given in zip(runs, feeds, strict=True):
        check(run, expected(source, given))
        whole = Run(model, given)
        assert whole.whole() == 0
        check(whole, expected(source, given))


def test_steps_are_counted_and_named(models: dict[str, Stepped]) -> None:
    """No run has more than the header says, and one at the bounds has as many."""
    loop = model_of(models, "loop")
    run = Run(loop, halved(6, -1, 8))
    assert run.begin() == 0 and finished(run) == loop.most
    assert finished(run) == 0 and run.step() == 0 and run.following == ""
    none, one, two = (steps_of(Run(loop, halved(6, -1, turns))) for turns in (0, 1, 2))
    assert two - one == one - none == (loop.most - none) // 8

    network = model_of(models, "network")
    run, names = Run(network, CASES["network"][2][0]), []
    run.begin()
    while run.running:
        names.append(run.following)
        run.step()
    assert len(names) == network.most
    assert set(names) == {kernel.c_name for kernel in network.project.view.kernels}


def steps_of(run: Run) -> int:
    assert run.begin() == 0
    return finished(run)


@pytest.fixture(scope="module")
def recurrent() -> Stepped:
    state = {"h": "hN", "c": "cN"}
    return stepped(lstm(), name="lstm", state=state, bounds={"T": 9})


def test_a_run_with_state_may_be_given_up_and_begun_anew(recurrent: Stepped) -> None:
    state = aligned(int(recurrent.library.kept()))
    carried = {"h": np.zeros((1, 1, 4), np.float32), "c": np.zeros((1, 1, 4), np.float32)}
    first = Run(recurrent, {"x": random(4, 1, 3)}, state)
    assert first.begin() == -10, "the state is not initialized"
    assert first.init() == 0
    for number, frames in enumerate((4, 1, 9)):
        x = random(frames, 1, 3, seed=number)
        before = state.copy()
        steps = recurrent.most
        for left_after in range(steps):
            lost = Run(recurrent, {"x": random(5, 1, 3, seed=99)}, state)
            assert lost.begin() == 0
            assert [lost.step() for _ in range(left_after)] == [0] * left_after
            assert lost.running and (state == before).all()
        run = Run(recurrent, {"x": x}, state)
        assert run.begin() == 0 and 1 < finished(run) == steps
        theirs = expected(lstm(), {"x": x, **carried})
        check(run, {"y": theirs["y"]})
        carried = {"h": theirs["hN"], "c": theirs["cN"]}


def test_what_is_wrong_on_entry_has_the_status_of_a_run(models: dict[str, Stepped]) -> None:
    model, null = model_of(models, "network"), models["network"].ffi.NULL

    def refused(change: Any) -> list[int]:
        answers = []
        for stepwise in (False, True):
            run = Run(model, {"motion": random(5, 6)})
            change(run)
            answers.append(run.begin() if stepwise else run.whole())
            assert run.untouched and not run.running
            if stepwise:
                assert run.step() == answers[-1] == run.position.status and run.untouched
        return answers

    def members(what: str, **values: Any) -> Any:
        def change(run: Run) -> None:
            for name, value in values.items():
                setattr(getattr(run, what), name, value)

        return change

    assert refused(members("dims", n=0)) == [-4, -4]
    assert refused(members("dims", n=41)) == [-4, -4]
    assert refused(members("memory", arena=null)) == [-1, -1]
    assert refused(members("memory", arena_bytes=1)) == [-2, -2]
    assert refused(lambda run: setattr(run.memory, "arena", run.memory.arena + 1)) == [-3, -3]
    assert refused(members("_in", motion=null)) == [-1, -1]
    run = Run(model, {"motion": random(5, 6)})
    assert model.call("begin", null, *run._given) == -1 and model.call("step", null) == -1
    assert model.ffi.string(model.call("step_name", null)) == b""
    run.begin()
    run.position.next = 1000
    assert run.step() == -10 and not run.running


def test_what_goes_wrong_on_the_way_changes_no_output(models: dict[str, Stepped]) -> None:
    model, feeds, status = model_of(models, "loop"), halved(3, -1, 9), -7
    whole, run = Run(model, feeds), Run(model, feeds)
    assert whole.whole() == status and whole.untouched
    assert run.begin() == 0
    while run.running:
        run.step()
    assert run.position.status == run.step() == status and run.untouched
    assert run.begin() == 0 and run.running, "the same position serves again"


def test_a_value_that_outgrows_memory_late_changes_no_output(models: dict[str, Stepped]) -> None:
    run = Run(model_of(models, "growing"), grown(4, 1, 6))
    assert run.begin() == 0
    steps = 0
    while run.running:
        run.step()
        steps += 1
    assert run.position.status == -7 and steps > 3 and run.untouched


def test_sizes_may_be_called_like_members_and_be_used_for_results_alone() -> None:
    """Each function has the variables that it needs, and no others: they would be warnings."""
    model = parser.parse_model(f"""{HEADER} (float[in] out, float[x,2] x) => (float[in] y, int64 k)
        {{ y = Identity(out) k = Size(x) }}""")
    feeds = {"out": random(4), "x": random(3, 2)}
    run = Run(stepped(model, name="m", bounds={"in": 6, "x": 3}), feeds)
    assert run.begin() == 0 and finished(run) > 0
    check(run, expected(model, feeds))


@pytest.mark.parametrize("stepwise", [False, True])
def test_sizes_and_values_may_be_called_like_variables_of_the_run(stepwise: bool) -> None:
    names = ("header", "writes", "reads", "need_arena", "position")
    inputs = ", ".join(f"float[{name}] in_{name}" for name in names)
    outputs = ", ".join(f"float[{name}] out_{name}" for name in names)
    lines = " ".join(
        f"{n} = Sin(in_{n}) r_{n} = ReduceMax<keepdims = 1>({n}) out_{n} = Add({n}, r_{n})"
        for n in names
    )
    model: object = parser.parse_model(
        f"{HEADER} ({inputs}, float[4] s) => ({outputs}, float[4] t)"
        f" {{ {lines} t = Add(s, r_header) }}"
    )
    bounds = dict.fromkeys(names, 5)
    project = rx.compile(model, bounds=bounds, state={"s": "t"}, name="m", stepwise=stepwise)
    given = {f"in_{name}": random(number + 1) for number, name in enumerate(names)}
    found = project.host()(given)
    theirs = expected(model, {**given, "s": np.zeros(4, np.float32)})
    for name in found:
        np.testing.assert_allclose(found[name], theirs[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_bound_that_is_raised_raises_the_number_of_steps() -> None:
    source, options, feeds = CASES["scan"]
    at = {t: stepped(source, f"-DSCAN_T_MAX={t}", name="scan", **options) for t in (1, 7, 50)}
    one, seven, fifty = (model.most for model in at.values())
    assert fifty - seven == 43 * (seven - one) // 6 > 0
    assert steps_of(Run(at[7], feeds[1])) == seven


def test_a_constant_may_be_called_like_a_function() -> None:
    model = parser.parse_model(f"""{HEADER} (float[position] x) => (float[position] y)
        <float[1] step = {{2.0}}, float[1] begin = {{3.0}}, float[1] next = {{5.0}}>
        {{ a = Mul(x, step) b = Sin(a) c = Add(b, begin) y = Mul(c, next) }}""")
    run = Run(stepped(model, name="m", bounds={"position": 6}, weights="c"), {"x": random(6)})
    assert run.begin() == 0 and finished(run) > 0
    check(run, expected(model, {"x": random(6)}))


@pytest.mark.slow
def test_entries_have_steps_each_and_share_one_state() -> None:
    project = rx.compile(MODELS, bounds=BOUNDS, state=STATE, name="llm", stepwise=True)
    header = project.files["llm.h"].decode()
    for verb in ("prefill", "decode"):
        assert header.count(f"enum raot_status llm_{verb}_step(") == 1
        assert f"LLM_{verb.upper()}_STEPS " in header
    host, theirs = project.host(), Sessions(7)
    host.reset(m=7)
    for number, name in enumerate(("prefill", "decode", "prefill", "decode")):
        x = rows(number, 5 if name == "prefill" else 1)
        np.testing.assert_allclose(host[name](x=x)["y"], theirs(name, x), rtol=1e-4, atol=1e-5)


def test_more_steps_than_can_be_counted_are_refused() -> None:
    model = parser.parse_model(f"""{HEADER} (float[N] x, int64 a, int64 b) => (float[N] y)
        {{ y = Loop<body = outer (int64 i, bool go, float[N] s) => (bool on, float[N] t)
             {{ on = Identity(go)
                t = Loop<body = inner (int64 j, bool go2, float[N] u) => (bool on2, float[N] v)
                    {{ on2 = Identity(go2) v = Sin(u) }}>(b, , s) }}>(a, , x) }}""")
    rx.compile(model, bounds={"N": 4})
    with pytest.raises(RelaxAotError, match="--stepwise"):
        rx.compile(model, bounds={"N": 4}, stepwise=True)


def test_a_proof_is_of_the_form_without_steps() -> None:
    project = rx.compile(GESTURE, bounds={"n": 4}, stepwise=True)
    with pytest.raises(RelaxAotError, match="--stepwise"):
        prove(project.built)


@pytest.mark.slow
def test_without_the_option_nothing_is_added() -> None:
    plain, also = (
        rx.compile(GESTURE, bounds={"n": 9}, stepwise=stepwise).files for stepwise in (False, True)
    )
    assert plain.keys() == also.keys()
    changed = {path for path in plain if plain[path] != also[path]}
    assert {path for path in changed if not path.startswith("x86_64/")} == {
        "gesture.c", "gesture.h", "gesture_layout.h", "README.md",
    }  # fmt: skip
    for path in changed:
        assert not re.search(rb"\bposition\b|_step\(|_step_", plain[path])


def examples() -> list[str]:
    return re.findall(r"^```c\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("compiler", ["gcc -std=c11", "clang -std=c11", "g++ -std=c++20"])
def test_the_header_and_the_examples_of_the_document_compile(compiler: str, tmp_path: Path) -> None:
    name, standard = compiler.split()
    if shutil.which(name) is None:
        pytest.skip(f"{name} not installed")
    rx.compile(GESTURE, bounds={"n": 9}, stepwise=True).write(tmp_path / "made")
    sources = [] if name == "g++" else ["made/gesture.c"]
    for number, text in enumerate(examples()):
        sources.append(f"example{number}.{'cpp' if name == 'g++' else 'c'}")
        (tmp_path / sources[-1]).write_text(text)
    assert len(examples()) == 2
    strict = (
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wconversion",
        "-Wshadow",
        "-Wmissing-declarations",
        "-Werror",
    )
    done = subprocess.run(
        [name, standard, *strict, "-Imade", "-fsyntax-only", *sources],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.qemu
def test_steps_on_a_board() -> None:
    """There too the run is a loop over the steps."""
    project = rx.compile(
        GESTURE, bounds={"n": 40}, board="mps2-an386", stepwise=True, optimize="size"
    )
    feeds = {"motion": random(17, 6)}
    run = project.emulate(**feeds)
    for name, values in expected(GESTURE, feeds).items():
        np.testing.assert_allclose(run.outputs[name], values, rtol=1e-4, atol=1e-5)


def test_every_form_of_a_run_checks_the_alignment_of_inputs_and_outputs() -> None:
    text = "func @main(%x: f32[3], %b: i8[3]) {\n  %y: f32[3] = relu(%x)\n  return %y, %b\n}\n"
    module = rx.parse(text)
    one = rx.compile(module, name="a", stepwise=True).files["a.c"].decode()
    two = rx.compile({"one": module, "two": module}, name="b", stepwise=True).files["b.c"].decode()
    for source, count in ((one, 2), (two, 4)):
        checks = re.findall(r"raot_is_aligned\((in|out)->(\w+), sizeof\((\w+)\)\)", source)
        assert sorted(set(checks)) == [("in", "x", "float"), ("out", "y", "float")]
        assert len(checks) == count
