# SPDX-License-Identifier: Apache-2.0
"""Layers that repeat are one C function; ONNX Runtime says what they compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnxruntime import InferenceSession
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import relax_aot as rx
from relax_aot.emit import layers
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.scheduling import threads
from relax_aot.verify.host import build_library
from relax_aot.verify.library import Library
from relax_aot.verify.profile import profile
from relax_aot.verify.samples import cases_of
from tests.models.encoder import Variant, encoder
from tests.models.onnx_text import Array, model_of, random_weights

OK, ERR_SIZE, ERR_INDEX = 0, -4, -6
LAYERS, WIDTH, HIGH = 12, 8, 11
SIZES = (1, 2, 7, HIGH)

BLOCK = """
    normal = LayerNormalization <axis = -1> (x, scale, shift)
    up = MatMul(normal, first)
    above = Add(up, first_bias)
    curved = Tanh(above)
    down = MatMul(curved, second)
    moved = Add(down, second_bias)
    y = Add(x, moved)"""
WEIGHTS = ("scale", "shift", "first", "first_bias", "second", "second_bias")


def block_weights(rng: np.random.Generator, layer: int) -> dict[str, Array]:
    shapes = {"first": (WIDTH, 12), "second": (12, WIDTH), "first_bias": (12,)}
    return random_weights(
        rng, **{f"l{layer}_{name}": shapes.get(name, (WIDTH,)) for name in WEIGHTS}
    )


def renamed(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[a-z_]+\b", lambda found: names.get(found[0], found[0]), text)


def written_out() -> tuple[list[str], dict[str, Array]]:
    """LAYERS blocks from v0 to v<LAYERS>, and their weights."""
    rng = np.random.default_rng(3)
    weights: dict[str, Array] = {}
    lines = []
    for layer in range(LAYERS):
        weights |= block_weights(rng, layer)
        own = {name: f"t{layer}_{name}" for name in re.findall(r"\b[a-z_]{2,}\b", BLOCK)}
        own |= {name: f"l{layer}_{name}" for name in WEIGHTS}
        own |= {"x": f"v{layer}", "y": f"v{layer + 1}", "axis": "axis"}
        lines.append(renamed(BLOCK, own))
    return lines, weights


def stacked(*, local_functions: bool) -> onnx.ModelProto:
    """LAYERS blocks on v0: float[n, WIDTH], as calls of a local function or written out."""
    lines, weights = written_out()
    signature = f"stack (float[n, {WIDTH}] v0) => (float[n, {WIDTH}] v{LAYERS})"
    if not local_functions:
        return model_of(signature, "\n".join(lines), weights)
    calls = [
        f"v{n + 1} = local.Block({', '.join((f'v{n}', *(f'l{n}_{name}' for name in WEIGHTS)))})"
        for n in range(LAYERS)
    ]
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17, "local" : 1]> {signature} {{ {"".join(calls)} }}'
        f'<domain: "local", opset_import: ["" : 17]> Block (x, {", ".join(WEIGHTS)}) => (y)'
        f"{{ {BLOCK} }}"
    )
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in weights.items())
    return model


def reading() -> onnx.ModelProto:
    """Each layer reads rows of a table of its own, by indices that the layer computes."""
    rng = np.random.default_rng(4)
    weights: dict[str, Array] = {}
    lines = []
    for layer in range(LAYERS):
        p = f"l{layer}"
        weights |= random_weights(rng, **{f"{p}_table": (6, 4), f"{p}_bias": (4,)})
        weights[f"{p}_scale"] = rng.uniform(0.5, 1.5, 4).astype(np.float32)
        lines.append(f"""
            {p}_sum = Add(v{layer}, {p}_bias)
            {p}_peak = ReduceMax <axes = [1], keepdims = 0> ({p}_sum)
            {p}_at = Cast <to = 7> ({p}_peak)
            {p}_row = Gather <axis = 0> ({p}_table, {p}_at)
            {p}_scaled = Mul({p}_row, {p}_scale)
            v{layer + 1} = Add(v{layer}, {p}_scaled)""")
    signature = f"reading (float[n, 4] v0) => (float[n, 4] v{LAYERS}, float[n, 4] copy)"
    return model_of(signature, "copy = Neg(v0)" + "".join(lines), weights)


def remembering() -> onnx.ModelProto:
    """Each layer keeps a state: a sum that decays."""
    rng = np.random.default_rng(5)
    weights: dict[str, Array] = {}
    lines, states = [], range(LAYERS)
    for layer in states:
        p = f"l{layer}"
        weights |= block_weights(rng, layer)
        weights |= random_weights(rng, **{f"{p}_keep": (WIDTH,)})
        body = re.sub(r"\b(?!MatMul|Add|Tanh|axis|Layer)([a-z_]+)\b", rf"{p}_\1", BLOCK)
        lines.append(
            f"""{body}
            {p}_kept = Mul(h{layer}, {p}_keep)
            next{layer} = Add({p}_kept, {p}_y)
            {p}_end = Tanh(next{layer})""".replace(f"{p}_x", f"l{layer - 1}_end" if layer else "x")
        )
    inputs = ", ".join(f"float[{WIDTH}] h{layer}" for layer in states)
    outputs = ", ".join(f"float[1, {WIDTH}] next{layer}" for layer in states)
    inputs = inputs.replace(f"float[{WIDTH}]", f"float[1, {WIDTH}]")
    signature = (
        f"remembering (float[1, {WIDTH}] x, {inputs}) => "
        f"(float[1, {WIDTH}] l{LAYERS - 1}_end, {outputs})"
    )
    return model_of(signature, "".join(lines), weights)


@dataclass(frozen=True)
class Subject:
    model: Callable[[], onnx.ModelProto]
    options: Mapping[str, Any] = field(default_factory=dict)
    calls: int = LAYERS - 1
    """Of the function: the first layer reads the input, so it may differ."""


N: dict[str, Any] = {"bounds": {"n": HIGH}}
BATCHES: dict[str, Any] = {"bounds": {"n": HIGH, "batch": 2}}
STATES = {f"h{layer}": f"next{layer}" for layer in range(LAYERS)}
SUBJECTS = {
    "encoder": Subject(lambda: encoder(8, 2, 4, 12), BATCHES, 3),
    "encoder with masks": Subject(
        lambda: encoder(8, 2, 6, 12, variant=Variant("post", mask=True, causal=True)), BATCHES, 5
    ),
    "written out": Subject(lambda: stacked(local_functions=False), N),
    "local functions": Subject(lambda: stacked(local_functions=True), N),
    "weights in a block": Subject(lambda: stacked(local_functions=False), {**N, "weights": "blob"}),
    "computed offsets": Subject(
        lambda: stacked(local_functions=False), {**N, "offsets": "dynamic"}
    ),
    "small code": Subject(lambda: stacked(local_functions=False), {**N, "optimize": "size"}),
    "states": Subject(remembering, {"state": STATES}, LAYERS),
}


OFTEN = ("local functions", "states")
"""What each run of the tests builds; the others are long."""
CASES = [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.long]) for name in SUBJECTS]


@cache
def project_of(
    name: str, board: str = "host", functions: str = "auto", called: str = "m"
) -> rx.Project:
    subject = SUBJECTS[name]
    built = rx.compile(
        subject.model(), board=board, name=called, functions=functions, **subject.options
    )
    assert isinstance(built, rx.Project)
    return built


def text_of(project: rx.Project) -> str:
    return project.files["m.c"].decode()


def inputs_of(model: onnx.ModelProto, n: int) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    sizes = {"n": n, "batch": 1 + n % 2}
    feeds = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in dims]
        feeds[value.name] = rng.normal(size=shape).astype(np.float32)
    return feeds


@pytest.mark.parametrize("name", CASES)
@pytest.mark.long
def test_one_function_runs_all_layers(name: str) -> None:
    text = text_of(project_of(name))
    (layer,) = project_of(name).built.view.layers
    assert (
        len(re.findall(r"\bm_layer\(", text)) == 1 + SUBJECTS[name].calls == 1 + len(layer.layers)
    )
    inline = text_of(project_of(name, functions="inline"))
    assert "m_layer" not in inline and len(text) < len(inline)
    names = {name for one in layer.layers for name in one}
    called = re.findall(r"RAOT_PROFILE\(\s*(\w+),", inline)
    assert names <= set(called) and len(names) == sum(map(len, layer.layers))
    auto, plain = project_of(name).memory, project_of(name, functions="inline").memory
    assert auto.arena_bytes == plain.arena_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_layers_compute_what_onnx_runtime_does(name: str) -> None:
    """With sanitizers."""
    model = SUBJECTS[name].model()
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    host = project_of(name).host(sanitize=True)
    states = SUBJECTS[name].options.get("state", {})
    held = {one: np.zeros((1, WIDTH), np.float32) for one in states}
    for n in SIZES:
        feeds = inputs_of(model, n) | held
        names = [value.name for value in session.get_outputs()]
        expected = dict(zip(names, session.run(names, feeds), strict=True))
        given = {one: array for one, array in feeds.items() if one not in states}
        found = host(**given)
        assert found.keys() == expected.keys() - set(states.values())
        for one, array in found.items():
            np.testing.assert_allclose(array, expected[one], rtol=1e-4, atol=2e-5)
        held = {one: expected[after] for one, after in states.items()}


@pytest.mark.long
def test_layers_have_the_bits_of_kernels_that_the_run_calls() -> None:
    one, other = project_of("encoder").host(), project_of("encoder", functions="inline").host()
    for n in SIZES:
        x = np.random.default_rng(n).normal(size=(2, n, 8)).astype(np.float32)
        assert one(x=x)["y"].tobytes() == other(x=x)["y"].tobytes()


@pytest.mark.long
def test_local_functions_and_graphs_that_are_written_out_give_the_same_layers() -> None:
    def shape(name: str) -> list[str]:
        text = text_of(project_of(name))
        body = text[text.index("RAOT_NOINLINE static void m_layer(") :].partition("\n}")[0]
        return re.sub(r"\w*(_|\d)\w*", "name", body).split()

    assert shape("written out") == shape("local functions")


def test_a_size_out_of_bounds_is_a_status_and_touches_nothing() -> None:
    library = Library(build_library(project_of("local functions").built))
    x = np.zeros((1, WIDTH), np.float32).view(np.uint8).ravel()
    for n in (0, -1, HIGH + 1, 2**31 - 1):
        result = library.run([n], [x], arena_bytes=library.arena_bytes)
        assert (result.status, result.untouched, result.guards_ok) == (ERR_SIZE, True, True)


@pytest.mark.slow
def test_a_kernel_that_fails_inside_a_layer_ends_the_run() -> None:
    """The index of every layer may be wrong; what is written before stays unseen."""
    model = reading()
    built = rx.compile(model, name="m", bounds={"n": HIGH})
    assert isinstance(built, rx.Project)
    (layer,) = built.built.view.layers
    assert layer.fallible and layer.c_type == "enum raot_status"
    library = Library(build_library(built.built))
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    seen = set()
    for n in SIZES:
        for start in np.linspace(-1.0, 6.0, 29):
            x = np.full((n, 4), start, np.float32)
            x[n // 2] += 0.25
            result = library.run([n], [x.view(np.uint8).ravel()], arena_bytes=library.arena_bytes)
            try:
                expected = session.run(None, {"v0": x})
            except InvalidArgument:
                unseen = all(np.unique(out).size == 1 for out in result.outputs)
                assert (result.status, unseen, result.guards_ok) == (ERR_INDEX, True, True)
            else:
                assert result.status in (OK, ERR_INDEX)
                if result.status == OK:
                    y = np.frombuffer(result.outputs[0], np.float32)[: n * 4].reshape(n, 4)
                    np.testing.assert_allclose(y, expected[0], rtol=1e-5, atol=1e-5)
            seen.add(result.status)
    assert seen == {OK, ERR_INDEX}


def choosing() -> onnx.ModelProto:
    """A branch with LAYERS blocks, another with none, and a loop over blocks."""
    lines, weights = written_out()
    body = "\n".join(lines)
    looped = re.sub(r"\bv(\d+)\b", r"w\1", body)
    looped = re.sub(r"\bt(\d+)_", r"u\1_", looped)
    text = f"""
        c = If (choice) <then_branch = many () => (float[n, {WIDTH}] v{LAYERS}) {{ {body} }},
            else_branch = none () => (float[n, {WIDTH}] other) {{ other = Neg(v0) }}>
        yes = Constant <value = bool {{1}}> ()
        trips = Constant <value = int64 {{2}}> ()
        d = Loop (trips, yes, c) <body = again
            (int64 turn, bool going, float[n, {WIDTH}] w0)
            => (bool on, float[n, {WIDTH}] w{LAYERS})
            {{ on = Identity(going) {looped} }}>"""
    signature = f"choosing (bool choice, float[n, {WIDTH}] v0) => (float[n, {WIDTH}] d)"
    return model_of(signature, text, weights)


@pytest.mark.long
def test_layers_in_branches_and_loops() -> None:
    model = choosing()
    built = rx.compile(model, name="m", **N)
    assert isinstance(built, rx.Project)
    assert len(built.built.view.layers) == 2
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    host = built.host(sanitize=True)
    for n in SIZES:
        for choice in (True, False):
            x = np.random.default_rng(n).normal(size=(n, WIDTH)).astype(np.float32)
            feeds = {"choice": np.array(choice), "v0": x}
            (expected,) = session.run(None, feeds)
            np.testing.assert_allclose(host(**feeds)["d"], expected, rtol=1e-4, atol=2e-5)


@pytest.mark.long
def test_numbers_of_layers_are_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales and zero points differ from layer to layer."""
    monkeypatch.setattr(layers, "LEAST_SAVED", 0)
    samples = np.random.default_rng(0).normal(size=(4, 7, WIDTH)).astype(np.float32)
    options: dict[str, Any] = {
        **N,
        "optimize": "size",
        "quantize": "int8",
        "calibrate": {"v0": samples},
    }
    one, other = (
        rx.compile(stacked(local_functions=False), name="m", functions=functions, **options)
        for functions in ("auto", "inline")
    )
    assert isinstance(one, rx.Project) and isinstance(other, rx.Project)
    (layer, *_) = one.built.view.layers
    assert re.search(r"int(8|32)_t (?!n\b)\w+", layer.parameters)
    first, second = one.host(sanitize=True), other.host(sanitize=True)
    for n in SIZES:
        x = np.random.default_rng(n).normal(size=(n, WIDTH)).astype(np.float32)
        assert first(v0=x)[f"v{LAYERS}"].tobytes() == second(v0=x)[f"v{LAYERS}"].tobytes()


@pytest.mark.long
def test_threads_share_the_loops_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LEAST", 64)
    model = encoder(width=64, heads=8, layers=4, hidden=64)
    bounds = {"n": 40, "batch": 1}
    three = rx.compile(model, name="m", bounds=bounds, threads=3)
    one = rx.compile(model, name="m", bounds=bounds, functions="inline")
    assert isinstance(three, rx.Project) and isinstance(one, rx.Project)
    (layer,) = three.built.view.layers
    assert "struct raot_team *team" in layer.parameters
    with_three, alone = three.host(), one.host()
    for n in (1, 23, 40):
        x = np.random.default_rng(n).normal(size=(1, n, 64)).astype(np.float32)
        assert with_three(x=x)["y"].tobytes() == alone(x=x)["y"].tobytes()


@pytest.mark.long
def test_entries_have_layers_of_their_own() -> None:
    models = {"one": stacked(local_functions=False), "two": stacked(local_functions=True)}
    built = rx.compile(models, name="m", bounds=N["bounds"])
    assert isinstance(built, rx.EntriesProject)
    text = built.built.files["m.c"].decode()
    assert len(re.findall(r"static void m_(one|two)_layer\(", text)) == 2
    host = built.host()
    x = np.random.default_rng(0).normal(size=(5, WIDTH)).astype(np.float32)
    name = f"v{LAYERS}"
    assert host.one(v0=x)[name].tobytes() == host.two(v0=x)[name].tobytes()


@pytest.mark.slow
def test_a_run_that_returns_between_kernels_calls_each() -> None:
    built = rx.compile(stacked(local_functions=False), name="m", stepwise=True, **N)
    assert isinstance(built, rx.Project)
    assert "m_layer" not in built.files["m.c"].decode()


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("encoder with masks", "mps2-an386"),
        ("local functions", "aarch64-linux"),
        pytest.param("encoder with masks", "aarch64-linux", marks=pytest.mark.long),
        pytest.param("local functions", "mps2-an386", marks=pytest.mark.long),
    ],
)
@pytest.mark.long
def test_layers_on_boards(name: str, board: str) -> None:
    model = SUBJECTS[name].model()
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    project, inline = project_of(name, board), project_of(name, board, "inline")
    for n in (1, 7, HIGH):
        feeds = inputs_of(model, n)
        run = project.emulate(**feeds)
        (expected,) = session.run(None, feeds)
        ((_, found),) = run.outputs.items()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
    plain = inline.emulate(**inputs_of(model, HIGH))
    assert run.instructions is not None and plain.instructions is not None
    assert run.instructions < plain.instructions * 1.01 + 100
    code, longer = project.memory.code_bytes, inline.memory.code_bytes
    assert code and longer and code < longer


@pytest.mark.qemu
def test_profiles_name_the_kernels_of_each_layer() -> None:
    """Also where the name of a layer's function is on a line of its own."""
    project: Project = project_of("written out", "mps2-an386", called="m" * 70).built
    (case,) = cases_of(project.interface, [{"n": 3}], {})
    rows = {row.function: row for row in profile(project, case).kernels}
    (layer,) = project.view.layers
    for names in layer.layers:
        assert all(rows[name].instructions > 100 and rows[name].origin for name in names)
    assert load_board("mps2-an386") == project.board
