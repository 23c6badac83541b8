# SPDX-License-Identifier: Apache-2.0
"""Several entries in one project share weights, state and arena; ONNX Runtime, with the state
carried by hand, says what each call must answer."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from click.testing import CliRunner, Result

import relax_aot as rx
from examples.extern_routine import make_model
from relax_aot import driver
from relax_aot.cli.main import cli
from relax_aot.project.board import load_board
from relax_aot.toolchain.compilers import host_compiler
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.samples import SizeChoiceError
from relax_aot.verify.sizes import InputError
from tests.conftest import ROOT
from tests.models.onnx_text import model_of, random_weights, sizes

WIDTH = 8
BOUNDS = {"n": (1, 9), "m": (2, 13)}
STATE = {"k": "k_next", "v": "v_next"}
# The window holds the last m rows of keys and values, whatever entry made them.
ATTEND = f"""
    q = MatMul(x, wq)
    new_k = MatMul(x, wk)
    new_v = MatMul(x, wv)
    all_k = Concat <axis = 0> (k, new_k)
    all_v = Concat <axis = 0> (v, new_v)
    {sizes("x", 0)}
    far = Constant <value = int64[1] {{9223372036854775807}}> ()
    k_next = Slice(all_k, x_size0, far)
    v_next = Slice(all_v, x_size0, far)
    turned = Transpose <perm = [1, 0]> (k_next)
    scores = MatMul(q, turned)
    shares = Softmax <axis = -1> (scores)
    seen = MatMul(shares, v_next)
"""
WEIGHTS = random_weights(
    np.random.default_rng(3),
    wq=(WIDTH, WIDTH), wk=(WIDTH, WIDTH), wv=(WIDTH, WIDTH), wo=(WIDTH, WIDTH), bo=(WIDTH,),
)  # fmt: skip


def entry(name: str, rows: str, end: str, bias: bool) -> onnx.ModelProto:
    signature = (
        f"{name} (float[{rows},{WIDTH}] x, float[m,{WIDTH}] k, float[m,{WIDTH}] v) =>"
        f" (float[{rows},{WIDTH}] y, float[m,{WIDTH}] k_next, float[m,{WIDTH}] v_next)"
    )
    own = {n: a for n, a in WEIGHTS.items() if bias or n != "bo"}
    return model_of(signature, ATTEND + end, own)


PREFILL = entry("prefill", "n", "y = MatMul(seen, wo)", bias=False)
DECODE = entry("decode", "1", "z = MatMul(seen, wo)\n y = Add(z, bo)", bias=True)
MODELS = {"prefill": PREFILL, "decode": DECODE}


class Sessions:
    """The same entries in ONNX Runtime; what one call leaves is given to the next."""

    def __init__(self, m: int, models: dict[str, onnx.ModelProto] = MODELS) -> None:
        self._sessions = {
            name: ort.InferenceSession(model.SerializeToString()) for name, model in models.items()
        }
        self._held = {name: np.zeros((m, WIDTH), np.float32) for name in STATE}

    def __call__(self, name: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        names = ["y", *STATE.values()]
        y, *held = self._sessions[name].run(names, {"x": x, **self._held})
        self._held = dict(zip(STATE, held, strict=True))
        return np.asarray(y)


def rows(seed: int, count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def project() -> rx.EntriesProject:
    return rx.compile(MODELS, bounds=BOUNDS, state=STATE, name="llm")


CALLS = ("prefill", "decode", "decode", "prefill", "decode")


@pytest.mark.parametrize("sanitize", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sequence_of_entries_keeps_one_state(project: rx.EntriesProject, sanitize: bool) -> None:
    host = project.host(sanitize=sanitize)
    for n, m in ((1, 2), (9, 13), (4, 7), (9, 2), (1, 13)):
        host.reset(m=m)
        wanted = Sessions(m)
        for number, name in enumerate(CALLS):
            x = rows(100 * n + m + number, n if name == "prefill" else 1)
            np.testing.assert_allclose(host[name](x=x)["y"], wanted(name, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fixed", ["m", "n"])
def test_a_size_of_one_value_is_no_member_of_dims(fixed: str) -> None:
    value = 4
    bounds = {**BOUNDS, fixed: (value, value)}
    project = rx.compile(MODELS, bounds=bounds, state=STATE, name="llm")
    header = project.files["llm.h"].decode()
    structs = re.findall(r"^struct llm\w*_dims \{(.*?)^\};", header, re.S | re.M)
    members = {name for text in structs for name in re.findall(r"int32_t (\w+);", text)}
    assert members == {"n", "m"} - {fixed}
    layout = project.files["llm_layout.h"].decode()
    macro = f"LLM_{fixed.upper()}_MAX"
    assert f"#define {macro} {value}" in layout
    assert f"RAOT_STATIC_ASSERT({macro} == {value}" in layout
    n, m = (value if name == fixed else 3 for name in "nm")
    host = project.host()
    host.reset(m=m)
    wanted = Sessions(m)
    for name in CALLS:
        x = rows(n, n if name == "prefill" else 1)
        np.testing.assert_allclose(host[name](x=x)["y"], wanted(name, x), rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=fixed):
        host.reset({"m": m, fixed: value + 1})


def test_sizes_of_the_state_are_given_and_never_guessed(project: rx.EntriesProject) -> None:
    host, x = project.host(), rows(0, 1)
    with pytest.raises(InputError, match=r"size m.*\.at\(m="):
        host.decode(x=x)
    np.testing.assert_allclose(
        host.decode.at(m=7)(x=x)["y"], Sessions(7)("decode", x), rtol=1e-4, atol=1e-5
    )
    assert host.prefill(x=rows(1, 4))["y"].shape[0] == 4
    with pytest.raises(rx.StatusError, match="RAOT_ERR_MISMATCH"):
        host.decode.at(m=8)(x=x)
    with pytest.raises(InputError, match="no size 'q'"):
        host.reset(q=7)
    with pytest.raises(InputError, match="whole number"):
        host.run_at("decode", {"n": 1}, [x])
    with pytest.raises(InputError, match="no size 'q'"):
        project.at(q=7)
    at_seven = project.at(m=7).host()
    for _ in range(2):
        at_seven.reset()
        assert at_seven.decode(x=x)["y"].shape[0] == 1
    with pytest.raises(InputError, match="size m"):
        project.emulate([("decode", {"x": x})])
    with pytest.raises(InputError, match="a call is"):
        project.emulate([("decode",)])  # type: ignore[list-item]  # what the test is about


@pytest.mark.parametrize("weights", ["blob", pytest.param("asm", marks=pytest.mark.slow)])
def test_weights_apart_from_the_text(weights: str) -> None:
    project = rx.compile(MODELS, bounds=BOUNDS, state=STATE, name="llm", weights=weights)
    host, wanted = project.host(), Sessions(7)
    host.reset(m=7)
    for number, name in enumerate(CALLS):
        x = rows(number, 5 if name == "prefill" else 1)
        np.testing.assert_allclose(host[name](x=x)["y"], wanted(name, x), rtol=1e-4, atol=1e-5)
    names = {path for path in project.files if path.endswith(".bin")}
    assert names == {"llm_weights.bin"}


@pytest.mark.slow
def test_equal_weights_are_stored_once(project: rx.EntriesProject) -> None:
    alone = {
        name: rx.compile(model, bounds=BOUNDS if name == "prefill" else {"m": 13}, state=STATE)
        for name, model in MODELS.items()
    }
    greatest = max(one.built.const_bytes for one in alone.values())
    assert project.built.const_bytes <= greatest + 4 * WIDTH
    arrays = re.findall(
        r"^extern const float (\w+)\[", project.files["llm_weights.h"].decode(), re.M
    )
    assert len([name for name in arrays if "packed" in name]) == 4


def test_equal_kernels_are_one_function() -> None:
    """The same model as a second entry adds no kernel."""
    text = {}
    for names in (("decode",), ("decode", "again")):
        models = dict.fromkeys(names, DECODE)
        project = rx.compile(models, bounds={"m": (2, 13)}, state=STATE, name="llm")
        text[names] = project.files["llm.c"].decode()
    one, two = (text_.count("RAOT_NOINLINE static") for text_ in text.values())
    assert one == two > 3


def test_the_arena_is_the_greatest_need(project: rx.EntriesProject) -> None:
    needs = [one.plan.arena_bytes for one in project.built.entries.values()]
    assert project.built.arena_bytes == max(needs) < sum(needs)
    assert project.built.state_bytes == 16 + 2 * -(-13 * WIDTH * 4 // 16) * 16


@pytest.mark.parametrize("bounds", ["-DLLM_N_MAX=3", "-DLLM_N_MAX=40"])
def test_the_program_builds_at_other_bounds(
    project: rx.EntriesProject, bounds: str, tmp_path: Path
) -> None:
    folder = project.write(tmp_path / "out")
    compiler = host_compiler()
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    flags += ["-ffp-contract=off", "-fno-strict-aliasing"]
    units = ["llm.c", "llm_weights.c", "main.c"]
    command = [*compiler.command, *flags, *bounds.split(), *units, "-o", "example", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    assert subprocess.run([folder / "example"], check=False).returncode == 0


STEPS = """
#include <stdio.h>
#include <string.h>
#include "llm.h"
LLM_ARENA(static, arena);
RAOT_ALIGNAS(LLM_ALIGNMENT) static unsigned char state[LLM_STATE_BYTES];
static const struct llm_memory memory = {
    .arena = arena, .arena_bytes = sizeof arena, .state = state
};
static float x[72], y[2][72], z[2][8];

static int sequence(int by_steps, float *prefilled, float *decoded)
{
    const struct llm_dims held = {.m = 7};
    const struct llm_prefill_dims many = {.n = 5, .m = 7};
    const struct llm_decode_dims one = {.m = 7};
    const struct llm_prefill_inputs prompt = {.x = x};
    const struct llm_prefill_outputs read = {.y = prefilled};
    const struct llm_decode_inputs last = {.x = x + 8};
    const struct llm_decode_outputs next = {.y = decoded};
    int status = llm_init(&memory, &held);
    if (!by_steps) {
        status |= llm_prefill_run(&memory, &many, &prompt, &read);
        return status | llm_decode_run(&memory, &one, &last, &next);
    }
    struct llm_prefill_position reading;
    struct llm_decode_position writing;
    status |= llm_prefill_begin(&reading, &memory, &many, &prompt, &read);
    while (reading.running) {
        status |= llm_prefill_step(&reading);
    }
    status |= llm_decode_begin(&writing, &memory, &one, &last, &next);
    while (writing.running) {
        status |= llm_decode_step(&writing);
    }
    return status;
}

int main(void)
{
    for (int i = 0; i < 72; i++) {
        x[i] = (float)(i * 37 % 19) / 9.0f - 1.0f;
    }
    const int whole = sequence(0, y[0], z[0]), stepped = sequence(1, y[1], z[1]);
    printf("%d %d %g %g\\n", whole, stepped, (double)y[0][0], (double)z[0][0]);
    return memcmp(y[0], y[1], sizeof y[0]) != 0 || memcmp(z[0], z[1], sizeof z[0]) != 0;
}
"""


@pytest.mark.slow
def test_entries_run_in_steps(tmp_path: Path) -> None:
    project = rx.compile(MODELS, bounds=BOUNDS, state=STATE, name="llm", stepwise=True)
    folder = project.write(tmp_path / "out")
    (folder / "steps.c").write_text(STEPS)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-strict-aliasing"]
    command = [*host_compiler().command, *flags, "steps.c", "llm.c", "llm_weights.c", "-lm"]
    subprocess.run([*command, "-o", "steps"], cwd=folder, check=True)
    done = subprocess.run([folder / "steps"], capture_output=True, text=True, check=True)
    whole, stepped, first, last = map(float, done.stdout.split())
    assert (whole, stepped) == (0, 0)
    x = np.array([(i * 37 % 19) / 9 - 1 for i in range(72)], np.float32).reshape(9, WIDTH)
    wanted = Sessions(7)
    assert first == pytest.approx(wanted("prefill", x[:5])[0, 0], abs=1e-5)
    assert last == pytest.approx(wanted("decode", x[1:2])[0, 0], abs=1e-5)


ENCODE = model_of(
    f"encode (float[n,{WIDTH}] x) => (float[1,{WIDTH}] context)",
    "t = MatMul(x, wk)\n axes = Constant <value = int64[1] {0}> ()\n context = ReduceSum(t, axes)",
    {"wk": WEIGHTS["wk"]},
)
ANSWER = model_of(
    f"answer (float[q,{WIDTH}] x, float[1,{WIDTH}] c) => (float[q,{WIDTH}] y)",
    "t = MatMul(x, wk)\n y = Add(t, c)",
    {"wk": WEIGHTS["wk"]},
)


def test_one_entry_writes_a_state_that_another_reads() -> None:
    project = rx.compile(
        {"encode": ENCODE, "answer": ANSWER}, bounds={"n": 9, "q": 5}, state={"c": "context"}
    )
    host = project.host()
    encode, answer = (ort.InferenceSession(m.SerializeToString()) for m in (ENCODE, ANSWER))
    assert not project.built.entries["encode"].interface.outputs
    for n, q in ((1, 5), (9, 1), (4, 3)):
        assert host.encode(x=rows(n, n)) == {}
        (context,) = encode.run(None, {"x": rows(n, n)})
        for seed in (q, q + 1):
            (y,) = answer.run(None, {"x": rows(seed, q), "c": context})
            found = host.answer(x=rows(seed, q))["y"]
            np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-5)


def test_the_text_form_shows_every_entry() -> None:
    entries = rx.load(MODELS, bounds=BOUNDS, state=STATE)
    assert re.findall(r"^entry (\w+)$|^func @(\w+)", str(entries), re.M) == [
        ("prefill", ""), ("", "prefill"), ("decode", ""), ("", "decode"),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_text_form_is_read_back(tmp_path: Path) -> None:
    entries = rx.load(MODELS, bounds=BOUNDS, state=STATE)
    path = rx.save(entries, tmp_path / "llm.raot")
    with np.load(tmp_path / "llm.npz") as stored:
        assert len(stored.files) == 4
        data = {name.removeprefix("%"): stored[name] for name in stored.files}
    again = rx.parse_entries(path.read_text(), constants=data)
    assert again == entries
    files = [dict(rx.compile(one, name="llm").files) for one in (entries, again)]
    assert files[0] == files[1]
    found = run("compile", path, "-o", tmp_path / "out", "--name", "llm")
    assert found.exit_code == 0, found.output
    assert (tmp_path / "out" / "llm.c").read_bytes() == files[0]["llm.c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entry a\nfunc @f(%x: f32[2]) {\n  return %y\n}\n", "line 3"),
        ("symbol n in 1..2\nentry a\n", "line 1: this stands before the first entry"),
        ("entry a\nentry a\n", "line 2: duplicate entry a"),
        ("entry a\n", "expected a function"),
        ("func @f(%x: f32[2]) {\n}\n", "at least one entry"),
    ],
)
def test_texts_that_are_no_entries(text: str, message: str) -> None:
    with pytest.raises(rx.RelaxAotError, match=message):
        rx.parse_entries(text)


def test_a_text_of_entries_is_no_module() -> None:
    with pytest.raises(rx.RelaxAotError, match="parse_entries"):
        rx.parse(str(rx.load(MODELS, bounds=BOUNDS, state=STATE)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "int8w"])
def test_entries_of_codes_stay_close_to_floats(kind: str) -> None:
    m = 7
    samples = {
        "prefill.x": np.stack([rows(seed, 5) for seed in range(20)]),
        "decode.x": np.stack([rows(seed, 1) for seed in range(20)]),
    }
    samples |= {
        f"{name}.{state}": np.stack(
            [rows(30 + seed, m) @ WEIGHTS[f"w{state}"] for seed in range(20)]
        )
        for name in MODELS
        for state in STATE
    }
    given = samples if kind == "int8" else None
    project = rx.compile(
        MODELS, bounds=BOUNDS, state=STATE, quantize=kind, calibrate=given, name="llm"
    )
    host, wanted = project.host(), Sessions(m)
    host.reset(m=m)
    for number, name in enumerate(CALLS):
        x = rows(number, 5 if name == "prefill" else 1)
        y = wanted(name, x)
        assert np.abs(host[name](x=x)["y"] - y).max() < 0.1 * np.abs(y).max()


@pytest.mark.qemu
@pytest.mark.slow
def test_on_a_board() -> None:
    project = rx.compile(MODELS, board="mps2-an386", bounds=BOUNDS, state=STATE, name="llm")
    calls, wanted, sessions = [], [], Sessions(2)
    for number, name in enumerate(CALLS):
        x = rows(number, 5 if name == "prefill" else 1)
        calls.append((name, {"x": x}))
        wanted.append(sessions(name, x))
    runs = project.at(m=2).emulate(calls)
    for run, y in zip(runs, wanted, strict=True):
        assert run.status == 0
        np.testing.assert_allclose(run.outputs["y"], y, rtol=1e-4, atol=1e-5)
    bound = project.memory.stack_bytes
    assert bound and max(run.stack_bytes for run in runs) <= bound


# What is refused


@pytest.mark.parametrize(
    "name", ["", "Prefill", "pre fill", "../up", "a__b", "_a", "1st", "a;b", "é", "a" * 33, "run\n"]
)
def test_names_that_are_no_c_names(name: str) -> None:
    with pytest.raises(rx.RelaxAotError, match="is not a valid name of an entry"):
        rx.load({name: DECODE}, bounds=BOUNDS)


@pytest.mark.parametrize("name", ["init", "arena", "state", "weights_2", "in", "memory"])
def test_names_that_all_entries_share(name: str) -> None:
    with pytest.raises(rx.RelaxAotError, match="for names that all entries share"):
        rx.load({name: DECODE}, bounds={"m": 13})


def test_a_name_that_begins_as_another() -> None:
    with pytest.raises(rx.RelaxAotError, match=r"the name of the entry 'a_b' begins with 'a'"):
        rx.load({"a": DECODE, "a_b": DECODE}, bounds={"m": 13})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": {**BOUNDS, "o": (1, 2)}}, "the model has no such symbol"),
        ({"bounds": BOUNDS, "fix": {"w": 1}}, "the model has no input 'w'"),
        ({"bounds": BOUNDS, "state": {"w": "k_next"}}, "the model has no input 'w'"),
        ({"bounds": BOUNDS, "state": {"k": "w"}}, "the model has no output 'w'"),
        ({"bounds": BOUNDS, "assume": ("n <= o",)}, "no entry has all of these sizes"),
        ({"bounds": {"n": 9}}, "an upper bound is needed"),
    ],
)
def test_an_option_that_no_entry_has_a_use_for(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rx.RelaxAotError, match=message):
        rx.load(MODELS, **options)


def test_a_state_of_two_types() -> None:
    other = model_of("o (float[4] k) => (float[4] k_next)", "k_next = Tanh(k)", {})
    with pytest.raises(rx.RelaxAotError, match="a state has one type in all entries"):
        rx.load({"decode": DECODE, "other": other}, bounds={"m": 13}, state=STATE)


def test_sizes_of_one_name_with_two_bounds() -> None:
    one = rx.load(DECODE, bounds={"m": (2, 13)})
    other = rx.load(DECODE, bounds={"m": (2, 12)})
    with pytest.raises(rx.RelaxAotError, match="sizes with the same name need the same bound"):
        rx.load({"one": one, "other": other})
    entries = rx.load({"one": one, "other": other}, bounds={"m": (2, 11)})
    assert [s.high for name in entries.names for s in entries[name].symbols] == [11, 11]


def test_an_arduino_library_is_refused(project: rx.EntriesProject, tmp_path: Path) -> None:
    with pytest.raises(rx.RelaxAotError, match="--package flat"):
        project.write(tmp_path / "out", "arduino")


def test_samples_that_an_entry_lacks() -> None:
    with pytest.raises(rx.RelaxAotError, match="no input 'x'") as found:
        samples = dict.fromkeys(("prefill.x", "k", "v"), rows(0, 5)[None])
        rx.compile(MODELS, bounds=BOUNDS, state=STATE, quantize="int8", calibrate=samples)
    assert found.value.__notes__ == ["in the entry decode"]


ENVELOPE = ROOT / "examples" / "extern_routine" / "envelope.toml"


@pytest.mark.slow
def test_an_extern_takes_a_call_of_one_entry() -> None:
    models = {"decode": DECODE, "peaks": make_model.model(), "again": make_model.model()}
    bounds = {"m": (2, 13), "n": (1, 50), "b": (1, 2)}
    project = rx.compile(models, bounds=bounds, state=STATE, externs=[ENVELOPE])
    assert {name for name in project.files if "envelope" in name} == {"envelope.c", "envelope.h"}
    text = project.files["model.c"].decode()
    assert text.count("    sliding_max(") == 2
    assert text.count('#include "envelope.h"') == 1
    with pytest.raises(rx.RelaxAotError, match="matches no call in any entry"):
        rx.compile({"decode": DECODE}, bounds={"m": 13}, state=STATE, externs=[ENVELOPE])


# The command line


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


OPTIONS = ("--bound", "n=9", "--bound", "m=2..13", "--state", "k=k_next", "--state", "v=v_next")


def saved(folder: Path) -> list[str]:
    for name, model in MODELS.items():
        onnx.save(model, folder / f"{name}.onnx")
    return [f"{name}={folder}/{name}.onnx" for name in MODELS]


def test_the_command_line_compiles_entries(tmp_path: Path) -> None:
    found = run("compile", *saved(tmp_path), "-o", tmp_path / "out", "--name", "llm", *OPTIONS)
    assert found.exit_code == 0, found.output
    assert "project: arena" in found.output
    assert (tmp_path / "out" / "llm.h").is_file()


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (("a=x.onnx", "a=y.onnx"), "duplicate entry a"),
        (("a=x.onnx", "y.onnx"), "must be entries with names"),
        (("x.onnx", "y.onnx"), "must be entries with names"),
        (("a=",), "must be entries with names"),
    ],
)
def test_the_command_line_refuses(models: tuple[str, ...], message: str, tmp_path: Path) -> None:
    found = run("compile", *models, "-o", tmp_path / "out")
    assert isinstance(found.exception, rx.RelaxAotError)
    assert message in str(found.exception)


@pytest.mark.slow
def test_verify_compares_sequences_of_calls(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    found = run("verify", *saved(tmp_path), *OPTIONS, "--at", "n=5,m=7", "--json", file)
    assert found.exit_code == 0, found.output
    (target,) = json.loads(file.read_text())["targets"]
    assert [one["entry"] for one in target["runs"]] == ["prefill", "decode"] * 2
    assert all(one["outputs"][0]["shape"][0] in (1, 5) for one in target["runs"])


@pytest.mark.slow
@pytest.mark.long
def test_verify_sees_a_state_that_is_not_carried(tmp_path: Path) -> None:
    """The reference is a model whose decode forgets what prefill left: every answer of decode
    differs, and none of prefill's first."""
    entries = saved(tmp_path)
    project = driver.compile_entries(
        driver.load_entries(dict(MODELS), driver.Options(bounds=BOUNDS, state=STATE)),
        load_board("host"),
        driver.Options(),
    )
    forgets = model_of(
        f"decode (float[1,{WIDTH}] x, float[m,{WIDTH}] k, float[m,{WIDTH}] v) =>"
        f" (float[1,{WIDTH}] y, float[m,{WIDTH}] k_next, float[m,{WIDTH}] v_next)",
        " none = Constant <value = float {0}> ()\n old_k = Mul(k, none)\n old_v = Mul(v, none)"
        + ATTEND.replace("(k, new_k)", "(old_k, new_k)").replace("(v, new_v)", "(old_v, new_v)")
        + "z = MatMul(seen, wo)\n y = Add(z, bo)",
        WEIGHTS,
    )
    sources = {"prefill": entries[0].partition("=")[2], "decode": forgets}
    at = ({"n": 5, "m": 7},)
    result = run_job(Job(sources, (project,), state=STATE, at=at))
    assert [one.ok for one in result.targets[0].runs] == [True, False, False, False]


@pytest.mark.slow
def test_verify_compares_the_state_that_an_entry_leaves(project: rx.EntriesProject) -> None:
    """The reference gives the same output, and other keys to the next call."""
    doubled = ATTEND.replace("(k_next)", "(kept)").replace("k_next = ", "kept = ")
    signature = (
        f"decode (float[1,{WIDTH}] x, float[m,{WIDTH}] k, float[m,{WIDTH}] v) =>"
        f" (float[1,{WIDTH}] y, float[m,{WIDTH}] k_next, float[m,{WIDTH}] v_next)"
    )
    end = "z = MatMul(seen, wo)\n y = Add(z, bo)\n k_next = Add(kept, kept)"
    sources = {"prefill": PREFILL, "decode": model_of(signature, doubled + end, WEIGHTS)}
    result = run_job(Job(sources, (project.built,), state=STATE, at=({"n": 5, "m": 7},)))
    first, second = result.targets[0].runs[:2]
    assert first.ok and all(one.ok for one in second.outputs)
    assert [(one.name, one.ok) for one in second.states] == [("k_next", False), ("v_next", True)]


def test_verify_refuses_sizes_outside_the_bounds(project: rx.EntriesProject) -> None:
    with pytest.raises(SizeChoiceError, match=r"n=10: the bounds are 1\.\.9"):
        run_job(Job({}, (project.built,), at=({"n": 10},)))


def test_a_report_is_of_one_entry(tmp_path: Path) -> None:
    file = tmp_path / "decode.json"
    entries = saved(tmp_path)
    found = run("report", *entries, *OPTIONS, "--name", "llm", "--entry", "decode", "-o", file)
    assert found.exit_code == 0, found.output
    said = json.loads(file.read_text())
    assert said["model"] == "llm_decode"
    assert said["memory"]["state_bytes"] == 16 + 2 * -(-13 * WIDTH * 4 // 16) * 16
    for wrong in ((), ("--entry", "other")):
        found = run("report", *entries, *OPTIONS, *wrong, "-o", file)
        assert "entries are prefill, decode" in str(found.exception)


@pytest.mark.parametrize("verb", ["prove", "bug", "runner"])
def test_verbs_of_one_model(verb: str, tmp_path: Path) -> None:
    found = run(verb, *saved(tmp_path), "-o", tmp_path / "out", "--board", "mps2-an386")
    assert f"{verb} accepts one model, not several entries" in str(found.exception)


@pytest.mark.qemu
@pytest.mark.long
def test_an_entry_is_profiled(tmp_path: Path) -> None:
    found = run("profile", *saved(tmp_path), *OPTIONS, "--entry", "decode")
    assert found.exit_code == 0, found.output
    assert "model_decode on mps2-an386 at m=13" in found.output
    assert "matmul" in found.output
