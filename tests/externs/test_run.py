# SPDX-License-Identifier: Apache-2.0
"""C functions of a user's, run inside a model."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.cli.main import cli
from relax_aot.driver import Options, compile_model
from relax_aot.externs import ExternError, place, read_externs
from relax_aot.ir.parse import parse
from relax_aot.ir.text import to_text
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.library import FILL
from tests.externs.routines import HEADER, SOURCE, rms_forward, rms_model, table, write
from tests.models.onnx_text import Array, model_of

BOUNDS = {"b": (1, 2), "n": (1, 9)}
SIZES = [(1, 1), (2, 9), (1, 4), (2, 7)]
STRICT = (
    "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wvla", "-Wdouble-promotion",
    "-Werror",
)  # fmt: skip


def run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def compiled(folder: Path, text: str | None = None, **files: str) -> rx.Project:
    return rx.compile(
        rms_model(), bounds=BOUNDS, name="net", externs=[write(folder, text, **files)]
    )


def values(b: int, n: int) -> Array:
    return np.random.default_rng(b + n).normal(size=(b, n, 10)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("sanitize", [False, True])
def test_a_routine_takes_the_place_of_a_chain(tmp_path: Path, sanitize: bool) -> None:
    project = compiled(tmp_path)
    host = project.host(sanitize=sanitize)
    for b, n in SIZES:
        x = values(b, n)
        np.testing.assert_allclose(host(x=x)["y"], rms_forward(x), rtol=1e-5, atol=1e-6)
    code = project.files["net.c"].decode()
    assert '#include "rms.h"' in code
    assert "fast_rms(b * n, 10, " in code
    assert "sqrt" not in code, "the chain is gone"


def test_scratch_is_planned(tmp_path: Path) -> None:
    with_scratch = compiled(tmp_path / "a")
    slots = {slot.var.name: slot.bytes for slot in with_scratch.built.plan.slots}
    # 10 floats, rounded up to 12 by the formula: 48 bytes.
    assert slots["w.work"] == 48


@pytest.mark.qemu
def test_a_routine_runs_on_a_board(tmp_path: Path) -> None:
    project = rx.compile(rms_model(), board="mps2-an386", bounds=BOUNDS, externs=[write(tmp_path)])
    x = values(2, 7)
    emulation = project.emulate(x=x)
    assert emulation.status == 0
    np.testing.assert_allclose(emulation.outputs["y"], rms_forward(x), rtol=1e-5, atol=1e-6)
    assert emulation.instructions


@pytest.mark.slow
def test_a_wrong_routine_is_seen_by_verify(tmp_path: Path) -> None:
    model = rms_model()
    for source, equal in ((SOURCE, True), (SOURCE.replace("1 / sqrtf", "1.01f / sqrtf"), False)):
        options = Options(bounds=BOUNDS, externs=(write(tmp_path, source=source),))
        for reference in ("onnxruntime", "numpy"):
            job = Job(model, (compile_model(model, "host", options),), reference=reference)
            assert run_job(job).ok is equal


@pytest.mark.slow
def test_every_build_compiles_the_routine(tmp_path: Path) -> None:
    folder = compiled(tmp_path / "in").write(tmp_path / "net")
    assert run(["gcc", *STRICT, "-c", "net.c", "net_weights.c", "main.c"], folder).stderr == ""
    made = run(["sh", "-c", "cc *.c -lm && ./a.out"], folder)
    assert (made.returncode, made.stderr) == (0, "")
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    for command in (["cmake", "-S", "net", "-B", "b"], ["cmake", "--build", "b"]):
        made = run(command, tmp_path)
        assert made.returncode == 0, made.stderr
    assert run([tmp_path / "b" / "net_example"], tmp_path).returncode == 0


def test_a_source_in_a_subfolder_finds_its_own_headers(tmp_path: Path) -> None:
    path = write(tmp_path / "in", table().replace('"rms.c"', '"src/impl.c"'))
    source = path.parent / "src" / "impl.c"
    source.parent.mkdir()
    source.write_text(SOURCE.replace('"rms.h"', '"../rms.h"\n#include "deep/own.h"'))
    (source.parent / "deep").mkdir()
    (source.parent / "deep" / "own.h").write_text("/* nothing */\n")
    project = rx.compile(rms_model(), bounds=BOUNDS, name="net", externs=[path])
    folder = project.write(tmp_path / "net")
    assert (folder / "src" / "deep" / "own.h").is_file()
    made = run(["sh", "-c", "cc *.c -lm && ./a.out"], folder)
    assert (made.returncode, made.stderr) == (0, "")
    x = values(1, 3)
    np.testing.assert_allclose(project.host()(x=x)["y"], rms_forward(x), rtol=1e-5, atol=1e-6)


def test_names_of_the_header_are_left_to_it(tmp_path: Path) -> None:
    header = HEADER.replace(
        "#include <stdint.h>",
        "#include <stdint.h>\n#define w 3\nstatic inline int tanh_y(void) { return w; }",
    )
    x = values(2, 5)
    y = compiled(tmp_path, header=header).host()(x=x)["y"]
    np.testing.assert_allclose(y, rms_forward(x), rtol=1e-5, atol=1e-6)


def test_a_macro_that_would_change_the_code_is_refused(tmp_path: Path) -> None:
    header = HEADER.replace("#include <stdint.h>", "#include <stdint.h>\n#define memory 3")
    with pytest.raises(rx.RelaxAotError, match="macro memory"):
        compiled(tmp_path, header=header)


def test_a_raised_bound_that_a_c_type_cannot_hold_does_not_build(tmp_path: Path) -> None:
    text = table(width="{ value = 10 }", rows='{ size = "m" }')
    header = HEADER.replace("int32_t rows", "uint8_t rows")
    source = SOURCE.replace("int32_t rows", "uint8_t rows")
    folder = compiled(tmp_path / "in", text, header=header, source=source).write(tmp_path / "net")
    assert run(["gcc", *STRICT, "-c", "net.c"], folder).returncode == 0
    refused = run(["gcc", "-DNET_N_MAX=128", "-c", "net.c"], folder)
    assert "rows of fast_rms must fit uint8_t" in refused.stderr
    assert run(["gcc", "-DNET_N_MAX=127", "-c", "net.c"], folder).returncode == 0


FALLIBLE = {
    "enum raot_status": ("RAOT_OK", "RAOT_ERR_CAPACITY", "RAOT_ERR_CAPACITY"),
    "int": ("0", "7", "RAOT_ERR_EXTERN"),
}


@pytest.mark.slow
@pytest.mark.parametrize("returns", FALLIBLE)
def test_a_routine_that_fails_changes_no_output(returns: str, tmp_path: Path) -> None:
    good, bad, status = FALLIBLE[returns]
    header = f'#include "raot/status.h"\n{returns} half(const float *x, int n, float *y);\n'
    source = f"""#include "half.h"
    {returns} half(const float *x, int n, float *y)
    {{
        for (int i = 0; i < n; i++) {{
            y[i] = x[i] / 2;
            if (x[i] > 100)
                return {bad};
        }}
        return {good};
    }}
    """
    (tmp_path / "half.h").write_text(header)
    (tmp_path / "half.c").write_text(source)
    said = "" if returns != "int" else 'returns = "code"'
    (tmp_path / "half.toml").write_text(f"""
        header = "half.h"
        sources = ["half.c"]
        [[extern]]
        function = "half"
        node = "/y/Mul"
        {said}
        [extern.arguments]
        x = {{ input = "f32[n]" }}
        n = {{ size = "n" }}
        y = {{ output = "f32[n]" }}
    """)
    model = model_of(
        "half (float[n] x) => (float[n] early, float[n] y)",
        "early = Relu(x)\ny = Mul(early, half)",
        {"half": np.array(0.5, np.float32)},
    )
    with pytest.raises(rx.RelaxAotError, match="2 inputs"):
        rx.compile(model, bounds={"n": 5}, externs=[tmp_path / "half.toml"])
    text = (tmp_path / "half.toml").read_text()
    pattern = 'replaces = "%y = mul(%x, 0.5)"'
    (tmp_path / "half.toml").write_text(text.replace('node = "/y/Mul"', pattern))
    project = rx.compile(model, bounds={"n": 5}, externs=[tmp_path / "half.toml"])
    host = project.host(sanitize=True)
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(host(x=x)["y"], x / 2)
    with pytest.raises(rx.StatusError) as failed:
        host(x=np.array([1, 200, 3], np.float32))
    assert failed.value.name == status
    raw = host.runner.run([3], [np.array([1, 200, 3], np.float32).view(np.uint8)])
    assert raw.status != 0
    assert len(raw.outputs) == 2
    for output in raw.outputs:
        assert set(output) == {FILL ^ 0xFF}, "outputs are staged until nothing can fail"


@pytest.mark.slow
def test_a_module_that_is_read_back_still_calls_the_routine(tmp_path: Path) -> None:
    path = write(tmp_path)
    loaded = rx.load(rms_model(), bounds=BOUNDS)
    placed = place(loaded, read_externs([path]))
    data = {c.name: c.data for c in placed.constants}
    again = parse(to_text(placed), data)
    assert again.externs == placed.externs
    project = rx.compile(again, name="net", externs=[path])
    x = values(2, 5)
    np.testing.assert_allclose(project.host()(x=x)["y"], rms_forward(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(ExternError, match=r"call_extern @fast_rms.* no table describes rms\.h"):
        rx.compile(again, name="net")
    text = to_text(placed).replace("rows=b*n, ", "")
    other = parse(to_text(placed).replace("value int32_t", "value int16_t"), data)
    with pytest.raises(ExternError, match=r"record differs from the table of rms\.h for fast_rms"):
        rx.compile(other, name="net", externs=[path])
    for wrong, said in (("1.5", "1.5 is not a value of int32_t"), ('"a"', "rows is not a number")):
        changed = parse(to_text(placed).replace("rows=b*n", f"rows={wrong}"), data)
        with pytest.raises(ExternError, match=said):
            rx.compile(changed, name="net", externs=[path])
    lacking = parse(text, data)
    with pytest.raises(ExternError, match=r"@fast_rms takes the values \['epsilon', 'rows', "):
        rx.compile(lacking, name="net", externs=[path])


@pytest.mark.slow
def test_the_command_line_takes_tables(tmp_path: Path) -> None:
    import onnx
    from click.testing import CliRunner

    onnx.save(rms_model(), tmp_path / "net.onnx")
    arguments = ["verify", str(tmp_path / "net.onnx"), "--bound", "n=5", "--bound", "b=1"]
    result = CliRunner().invoke(cli, [*arguments, "--extern", str(write(tmp_path / "t"))])
    assert result.exit_code == 0, result.output + str(result.exception)
    assert "equal" in result.output


# Other places in a model

TWICE_HEADER = """
void twice(const float *x, int n, float *y);
"""
TWICE_SOURCE = """
#include "twice.h"
void twice(const float *x, int n, float *y) { for (int i = 0; i < n; i++) y[i] = 2 * x[i]; }
"""


def twice(folder: Path, which: str, inputs: str = 'x = { input = "f32[*n]" }') -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "twice.h").write_text(TWICE_HEADER)
    (folder / "twice.c").write_text(TWICE_SOURCE)
    (folder / "twice.toml").write_text(f"""
        header = "twice.h"
        sources = ["twice.c"]
        [[extern]]
        function = "twice"
        {which}
        [extern.arguments]
        {inputs}
        n = {{ size = "n" }}
        y = {{ output = "f32[*n]" }}
    """)
    return folder / "twice.toml"


ADD_SELF = 'replaces = "%y = add(%x, %x)"'


def test_a_call_in_a_branch_is_replaced(tmp_path: Path) -> None:
    model = model_of(
        "branch (bool flag, float[n] x) => (float[n] y)",
        """
        y = If (flag) <
            then_branch = a () => (float[n] t) { t = Add(x, x) },
            else_branch = b () => (float[n] e) { e = Neg(x) }
        >
        """,
        {},
    )
    project = rx.compile(model, bounds={"n": 5}, name="m", externs=[twice(tmp_path, ADD_SELF)])
    assert b"twice(in->x, n, " in project.files["m.c"]
    host = project.host(sanitize=True)
    x = np.arange(4, dtype=np.float32)
    for flag in (True, False):
        y = host(flag=np.array(flag), x=x)["y"]
        np.testing.assert_array_equal(y, 2 * x if flag else -x)


def test_a_state_may_be_what_an_extern_writes(tmp_path: Path) -> None:
    model = model_of(
        "grow (float[3] x, float[3] s) => (float[3] y, float[3] s_next)",
        "y = Add(x, s)\ns_one = Add(s, one)\ns_next = Add(s_one, s_one)",
        {"one": np.ones(1, np.float32)},
    )
    project = rx.compile(
        model, name="m", state={"s": "s_next"}, externs=[twice(tmp_path, ADD_SELF)]
    )
    assert b"twice(" in project.files["m.c"]
    host = project.host()
    x = np.array([1, 2, 3], np.float32)
    for state in (0, 2, 6, 14):  # s becomes 2 * (s + 1)
        np.testing.assert_array_equal(host(x=x)["y"], x + state)


def test_a_whole_node_is_taken_by_its_name(tmp_path: Path) -> None:
    model = model_of("m (float[n, 4] x) => (float[n, 4] y)", "a = Relu(x)\ny = Add(a, a)", {})
    path = twice(tmp_path, 'node = "/y/Add"')
    project = rx.compile(model, bounds={"n": 5}, name="m", externs=[path])
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_array_equal(project.host()(x=x)["y"], 2 * np.maximum(x, 0))
    assert b"twice(a, n * 4, out->y);" in project.files["m.c"]


@pytest.mark.slow
def test_no_elements_are_no_trouble(tmp_path: Path) -> None:
    model = model_of("m (float[n] x) => (float[n] y)", "a = Relu(x)\ny = Add(a, a)", {})
    path = twice(tmp_path, ADD_SELF)
    host = rx.compile(model, bounds={"n": (0, 5)}, externs=[path]).host(sanitize=True)
    for size in (0, 1, 5):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(host(x=x)["y"], 2 * x)


@pytest.mark.slow
def test_the_report_names_the_extern_and_every_dump_compiles_again(tmp_path: Path) -> None:
    import onnx

    from relax_aot.report import write_report

    onnx.save(rms_model(), tmp_path / "net.onnx")
    options = Options(bounds=BOUNDS, externs=(write(tmp_path / "t"),))
    project = compile_model(tmp_path / "net.onnx", "host", options, tmp_path / "dump")
    write_report(project, tmp_path / "r.html")
    assert "fast_rms" in (tmp_path / "r.html").read_text()
    dumps = sorted((tmp_path / "dump").glob("*.raot"))
    placed = next(path.read_text() for path in dumps if path.stem.endswith("-externs"))
    assert "= call_extern(%z, %gain) {epsilon=" in placed
    assert 'extern @fast_rms = fast_rms("rms.h") (rows: value int32_t' in placed
    x = values(2, 5)
    for path in dumps:  # each stage compiles again, with the table for the files
        again = rx.compile(path, name="net", externs=options.externs)
        np.testing.assert_allclose(again.host()(x=x)["y"], rms_forward(x), rtol=1e-5, atol=1e-6)


def test_a_file_that_is_called_as_a_generated_one_is_refused(tmp_path: Path) -> None:
    header = HEADER.replace("RMS_H", "OTHER_H")
    path = write(tmp_path, header=header)
    with pytest.raises(rx.RelaxAotError, match=r"a file of an extern is called rms\.[ch]"):
        rx.compile(rms_model(), bounds=BOUNDS, name="rms", externs=[path])


def test_values_of_every_c_type_arrive(tmp_path: Path) -> None:
    types = [
        "bool", "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t",
        "uint64_t", "int", "unsigned", "long", "unsigned long", "long long", "size_t", "ptrdiff_t",
        "float", "double", "enum mode",
    ]  # fmt: skip
    sizes = types[1:-3]  # what can be a size as well
    params = ", ".join(
        [f"{t} v{i}" for i, t in enumerate(types)] + [f"{t} s{i}" for i, t in enumerate(sizes)]
    )
    declaration = f"void sum(const float *x, int n, float *y, {params})"
    total = " + ".join(
        [f"(float)v{i}" for i in range(len(types))] + [f"(float)s{i}" for i in range(len(sizes))]
    )
    (tmp_path / "sum.h").write_text(
        "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
        f"enum mode {{ OFF, ON }};\n{declaration};\n"
    )
    (tmp_path / "sum.c").write_text(
        f'#include "sum.h"\n{declaration}\n'
        f"{{ for (int i = 0; i < n; i++) y[i] = x[i] + {total}; }}\n"
    )
    values = "\n".join(f"v{i} = {{ value = 1 }}" for i in range(len(types)))
    given = "\n".join(f's{i} = {{ size = "n + {i}" }}' for i in range(len(sizes)))
    path = twice(tmp_path, ADD_SELF).rename(tmp_path / "sum.toml")
    text = path.read_text().replace("twice", "sum")
    path.write_text(f"{text}\n{values}\n{given}\n")
    model = model_of("m (float[n] x) => (float[n] y)", "y = Add(x, x)", {})
    project = rx.compile(model, bounds={"n": 5}, name="m", externs=[path])
    x = np.array([1, 2, 3], np.float32)
    wanted = x + len(types) + sum(3 + i for i in range(len(sizes)))
    np.testing.assert_array_equal(project.host()(x=x)["y"], wanted)
    folder = project.write(tmp_path / "m")
    for compiler in ("gcc", "clang"):
        if shutil.which(compiler) is not None:
            made = run([compiler, *STRICT, "-c", "m.c"], folder)
            assert (made.returncode, made.stderr) == (0, "")


CLIP_SOURCE = """
#include "clip.h"
void clip(float *data, int n, float top)
{
    for (int i = 0; i < n; i++)
        if (data[i] > top)
            data[i] = top;
}
"""


def clip(folder: Path) -> Path:
    """A routine that works in place, as many in libraries do."""
    (folder / "clip.h").write_text("void clip(float *data, int n, float top);\n")
    (folder / "clip.c").write_text(CLIP_SOURCE)
    (folder / "clip.toml").write_text("""
        header = "clip.h"
        sources = ["clip.c"]
        [[extern]]
        function = "clip"
        replaces = "%y = min(%x, %top)"
        [extern.arguments]
        data = { update = "f32[*n]", of = "x", to = "y" }
        n = { size = "n" }
        top = { constant = "top" }
    """)
    return folder / "clip.toml"


CLIPPED = {
    # What is updated is needed no more: it is updated where it lies.
    "dies": ("r = Relu(x)\ny = Min(r, one)", False),
    # An input of the model, and a value that others read, stay what they are.
    "an input": ("y = Min(x, one)", True),
    "read later": ("r = Relu(x)\nm = Min(r, one)\ny = Sub(m, r)", True),
    "read before": ("r = Relu(x)\nt = Neg(r)\nm = Min(r, one)\ny = Sub(m, t)", None),
}


@pytest.mark.parametrize("case", CLIPPED)
def test_a_routine_that_works_in_place(case: str, tmp_path: Path) -> None:
    from onnxruntime import InferenceSession

    body, copies = CLIPPED[case]
    model = model_of("m (float[n] x) => (float[n] y)", body, {"one": np.array(1, np.float32)})
    project = rx.compile(model, bounds={"n": (0, 9)}, name="m", externs=[clip(tmp_path)])
    code = project.files["m.c"].decode()
    assert "clip(" in code
    if copies is not None:
        assert ("memcpy(" in code) is copies
    truth = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    host = project.host(sanitize=case == "dies")
    for size in (1, 4, 9):
        x = np.linspace(-3, 5, size).astype(np.float32)
        kept = x.copy()
        np.testing.assert_array_equal(host(x=x)["y"], truth.run(["y"], {"x": x})[0])
        np.testing.assert_array_equal(x, kept)
    assert host(x=np.zeros(0, np.float32))["y"].shape == (0,)


def test_an_update_has_two_ends(tmp_path: Path) -> None:
    path = clip(tmp_path)
    text = path.read_text()
    wrong = {
        ', to = "y"': r"no %data that is made, only %y; say which with to = ",
        ', of = "x"': r"no %data that is read, only %x, %top; say which with of = ",
        ', of = "x", to = "y"': "an update reads one value and writes another",
    }
    for missing, said in wrong.items():
        path.write_text(text.replace(missing, ""))
        with pytest.raises(ExternError, match=said):
            read_externs([path])
    (tmp_path / "clip.h").write_text("void clip(const float *data, int n, float top);\n")
    path.write_text(text)
    with pytest.raises(ExternError, match=r"update is written: `float \*data`"):
        read_externs([path])


@pytest.mark.parametrize("requires", ["n <= 7", "100 - n >= 93"])
def test_what_rests_on_a_bound_is_checked_when_it_is_raised(requires: str, tmp_path: Path) -> None:
    model = model_of("m (float[n] x) => (float[n] y)", "y = Add(x, x)", {})
    path = twice(tmp_path, f'{ADD_SELF}\nrequires = "{requires}"')
    project = rx.compile(model, bounds={"n": 7}, name="m", externs=[path])
    folder = project.write(tmp_path / "m")
    (folder / "main.c").write_text("""
        #include "m.h"
        static float x[M_N_MAX], y[M_N_MAX];
        int main(void)
        {
            const struct m_memory memory = {0};
            const struct m_inputs in = {x};
            const struct m_outputs out = {y};
            const struct m_dims most = {M_N_MAX}, seven = {7};
            const enum raot_status at_seven = m_run(&memory, &seven, &in, &out);
            return -10 * at_seven - m_run(&memory, &most, &in, &out);
        }
    """)
    for bound, wanted in ((7, 0), (8, 5)):  # RAOT_ERR_MISMATCH is -5
        made = run(["sh", "-c", f"cc -DM_N_MAX={bound} *.c -lm && ./a.out"], folder)
        assert (made.returncode, made.stderr) == (wanted, "")


def test_a_size_that_data_decide_is_an_argument_like_any_other(tmp_path: Path) -> None:
    model = model_of(
        "m (float[n] x, bool[n] c) => (float[k] y)",
        "s = Compress <axis = 0> (x, c)\nr = Relu(s)\ny = Add(r, r)",
        {},
    )
    path = twice(tmp_path, ADD_SELF)
    project = rx.compile(model, bounds={"n": 9}, name="m", externs=[path])
    assert b"twice(" in project.files["m.c"]
    host = project.host()
    x = np.linspace(-2, 2, 9).astype(np.float32)
    for chosen in (x > 3, x > 0, x > -3):
        y = host(x=x, c=chosen)["y"]
        np.testing.assert_array_equal(y, 2 * np.maximum(x[chosen], 0))
