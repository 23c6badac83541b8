# SPDX-License-Identifier: Apache-2.0
"""What other packages bring is used, and what is wrong with it is said with their names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import relax_aot as rx
from relax_aot import frontends, transforms
from relax_aot.externs import ExternError
from relax_aot.externs.libraries import library_table
from relax_aot.frontends.onnx import table
from relax_aot.ir.graph import Module
from relax_aot.ops import all_ops
from relax_aot.plugins import PluginError, plugins
from relax_aot.project.board import all_boards, list_boards, load_board
from relax_aot.verify.job import default_reference
from tests.conftest import ROOT
from tests.models.onnx_text import model_of

Install = Callable[..., None]
CACHED = (all_ops, transforms.pipeline, frontends.formats, table.handlers, table._brought)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is found is remembered for the process: not beyond one test."""
    before = set(sys.modules)
    for function in CACHED:
        function.cache_clear()
    yield
    for function in CACHED:
        function.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("plug_"):
            del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install("one", "ops", text)`: a package one 1.0 whose module is an entry `entry`."""

    def made(package: str, group: str, text: str, entry: str = "entry", value: str = "") -> None:
        site = tmp_path / package
        info = site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"plug_{package}.py").write_text(text)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[relax_aot.{group}]\n{entry} = plug_{package}{value}\n"
        )
        monkeypatch.syspath_prepend(str(site))

    return made


OP = "from relax_aot.ops.softmax import OP as SOFTMAX\nfrom dataclasses import replace\n"
GOOD_OP = OP + "OP = replace(SOFTMAX, name='mine')\n"


def message_of(group: str, folder: Path) -> str:
    """The error of something that only the group's missing entry could provide."""
    model = folder / "model.missing"
    model.touch()
    needs: dict[str, Callable[[], object]] = {
        "ops": lambda: all_ops()["missing"],
        "passes": transforms.pipeline,
        "frontends": lambda: rx.load(model),
        "onnx": lambda: rx.load(foreign("Missing"), bounds={"n": 4}),
        "boards": lambda: load_board("entry"),
    }
    with pytest.raises(rx.RelaxAotError) as refused:
        needs[group]()
    return str(refused.value)


WRONG = {
    "import that fails": ("ops", "import no_such_module", "cannot be loaded: ModuleNotFoundError"),
    "error while importing": ("passes", "1 / 0", "cannot be loaded: ZeroDivisionError"),
    "no op": ("ops", "OP = 3", "expected an Op, several, or a module with OP or OPS; got 3"),
    "op of ours": ("ops", OP + "OP = SOFTMAX", "'softmax' comes from relax_aot itself and from"),
    "op without a good name": (
        "ops", OP + "OP = replace(SOFTMAX, name='a b')", "must be an identifier, got 'a b'",
    ),
    "pass without run": ("passes", "AFTER = 'drop_noop'", "a pass has `run"),
    "pass without place": ("passes", "def run(module): return module", "AFTER or BEFORE"),
    "pass with two places": (
        "passes", "AFTER = BEFORE = 'drop_noop'\ndef run(module): return module", "AFTER or BEFORE",
    ),
    "pass without a neighbor": (
        "passes", "AFTER = 'no'\ndef run(module): return module", "unknown pass 'no'",
    ),
    "frontend without load": (
        "frontends", "SUFFIXES = ()\ndef accepts(source): return False", "load is missing",
    ),
    "frontend of our suffix": (
        "frontends", "SUFFIXES = ('.onnx',)\naccepts = load = print", "'.onnx' comes from relax",
    ),
    "no handlers": ("onnx", "HANDLERS = 3", "expected HANDLERS, a mapping"),
    "operator of ours": ("onnx", "HANDLERS = {'Relu': print}", "'Relu' comes from relax_aot"),
    "board that is no path": ("boards", "", "expected the path of a TOML file, got <module"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_needs_a_broken_plugin_fails_with_its_name(
    case: str, install: Install, tmp_path: Path
) -> None:
    group, text, message = WRONG[case]
    install("one", group, text)
    said = message_of(group, tmp_path)
    assert message in said
    assert f"package one 1.0 (relax_aot.{group}: entry = plug_one)" in said


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in WRONG if WRONG[case][0] != "passes"])
def test_what_does_not_need_a_broken_plugin_works(
    case: str, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    group, text, message = WRONG[case]
    install("one", group, text)
    rx.compile(relu(), bounds={"n": 4}, board="mps2-an386")
    assert len(all_boards()) > 10
    assert "Relu" in table.handlers()
    warnings = [record.getMessage() for record in caplog.records]
    assert [w for w in warnings if message in w and "package one 1.0" in w]


@pytest.mark.parametrize("group", ["ops", "passes", "boards", "frontends", "onnx", "libraries"])
def test_a_name_of_two_packages_is_refused_with_both(group: str, install: Install) -> None:
    install("one", group, "")
    install("two", group, "")
    with pytest.raises(PluginError, match=r"'entry' comes from package one 1.0 .* package two 1.0"):
        plugins(group)


def test_an_op_of_two_packages_is_refused_with_both(install: Install) -> None:
    install("one", "ops", GOOD_OP, "a")
    install("two", "ops", GOOD_OP, "b")
    with pytest.raises(PluginError, match=r"'mine' comes from package one 1.0 .* package two 1.0"):
        all_ops()["mine"]
    assert "softmax" in all_ops()


@pytest.mark.slow
def test_a_broken_package_is_one_warning_on_the_command_line(
    install: Install,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    from relax_aot.cli import main as cli

    install("one", "ops", "import no_such_module")
    model = str(ROOT / "examples" / "gesture" / "gesture.onnx")
    command = ["relax-aot", "compile", model, "--bound", "n=9", "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    assert cli.main() == 0
    said = capsys.readouterr().err
    assert said.count("package one 1.0") == 1
    assert "Traceback" not in said


RAISES = "{}def {}(*args, **kwargs): raise KeyError('lost')\n{}"


def test_an_exception_in_a_handler_names_its_package(install: Install) -> None:
    install("one", "onnx", RAISES.format("", "handle", "HANDLERS = {'example.Mine': handle}"))
    with pytest.raises(
        PluginError, match=r"the handler of example\.Mine failed: KeyError"
    ) as error:
        rx.load(foreign("Mine"), bounds={"n": 4})
    assert "package one 1.0" in str(error.value)


def test_a_handler_that_returns_nothing_names_its_package(install: Install) -> None:
    install("one", "onnx", "HANDLERS = {'example.Mine': lambda node: None}")
    with pytest.raises(PluginError, match=r"the handler of example\.Mine returned NoneType"):
        rx.load(foreign("Mine"), bounds={"n": 4})


@pytest.mark.parametrize("function", ["deduce", "lower", "conditions"])
def test_an_exception_in_an_op_names_its_package(function: str, install: Install) -> None:
    made = f"OP = replace(SOFTMAX, name='mine', {function}=broken)"
    install("one", "ops", RAISES.format(OP, "broken", made))
    text = """
        func @main(%x: f32[4]) {
          %y: f32[4] = mine(%x) {axis=-1}
          return %y
        }"""
    with pytest.raises(rx.RelaxAotError, match=f"{function} of op mine failed: KeyError") as error:
        rx.compile(rx.parse(text), name="m")
    assert "package one 1.0" in str(error.value)


def test_an_exception_in_a_pass_names_its_package(install: Install) -> None:
    install("one", "passes", RAISES.format("", "run", "AFTER = 'drop_dead'"))
    with pytest.raises(PluginError, match="the pass failed: KeyError") as error:
        rx.compile(relu(), bounds={"n": 4})
    assert "package one 1.0" in str(error.value)


def test_an_exception_in_a_frontend_names_its_package(install: Install, tmp_path: Path) -> None:
    head = "SUFFIXES = ('.toy',)\ndef accepts(source): return False\n"
    install("one", "frontends", RAISES.format(head, "load", ""))
    (tmp_path / "net.toy").write_text("")
    with pytest.raises(PluginError, match="load failed: KeyError") as error:
        rx.load(tmp_path / "net.toy")
    assert "package one 1.0" in str(error.value)


def foreign(operator: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "example" : 1]>
        m (float[n] x) => (float[n] y) {{ y = example.{operator}(x) }}
    """)


# Passes

PASS = """
from dataclasses import replace
{place}
RAN = []
def run(module):
    RAN.append(1)
    return {result}
"""


def test_passes_stand_where_they_say(install: Install) -> None:
    install("one", "passes", PASS.format(place="AFTER = 'b'", result="module"), "a")
    install("two", "passes", PASS.format(place="BEFORE = 'drop_noop'", result="module"), "b")
    install("three", "passes", PASS.format(place="AFTER = 'drop_dead'", result="module"), "c")
    names = [name for name, _ in transforms.pipeline()]
    ours = [name for name, _ in transforms.PIPELINE]
    at = ours.index("drop_noop")
    expected = [*ours[:at], "b", "a", *ours[at:]]
    expected.insert(expected.index("drop_dead") + 1, "c")
    assert names == expected
    rx.compile(relu(), bounds={"n": 4})
    assert [len(sys.modules[f"plug_{p}"].RAN) for p in ("one", "two", "three")] == [1, 1, 1]


def test_passes_that_stand_beside_each_other_only_are_refused(install: Install) -> None:
    install("one", "passes", PASS.format(place="AFTER = 'b'", result="module"), "a")
    install("two", "passes", PASS.format(place="AFTER = 'a'", result="module"), "b")
    with pytest.raises(PluginError, match="unknown pass 'b' in AFTER or BEFORE"):
        transforms.pipeline()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("None", "the pass returned NoneType, not a Module"),
        (
            "replace(module, functions=(replace(module.main, results=()),))",
            "the pass changed inputs, results or states",
        ),
        (
            "replace(module, functions=(replace(module.main, body=()),))",
            "the pass returned an invalid program: func @main: .*%y",
        ),
        (
            (
                "replace(module, functions=(replace(module.main, body=(replace(module.main.body[0],"
                " op='no_such'),)),))"
            ),
            "the pass returned an invalid program: .*no_such",
        ),
    ],
)
def test_a_pass_keeps_the_interface(result: str, message: str, install: Install) -> None:
    install("one", "passes", PASS.format(place="AFTER = 'drop_dead'", result=result))
    with pytest.raises(PluginError, match=message) as refused:
        rx.compile(relu(), bounds={"n": 4})
    assert "package one 1.0" in str(refused.value)


def relu() -> object:
    return model_of("m (float[n] x) => (float[n] y)", "y = Relu(x)", {})


# Frontends


def test_a_frontend_reads_files_of_its_suffix(install: Install, tmp_path: Path) -> None:
    text = """
from pathlib import Path
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Function, Module, Symbol, Var
from relax_aot.ir.types import DType, TensorType

SUFFIXES = (".toy",)

def accepts(source):
    return False

def load(source, options):
    type_ = TensorType(DType.F32, (Dim.of("n"),))
    x, y = Var("x", type_), Var("y", type_)
    main = Function("main", (x,), (Call((y,), Path(source).read_text().strip(), (x,)),), (y,))
    return Module((main,), symbols=(Symbol("n", *options.bounds["n"]),))
"""
    install("one", "frontends", text)
    (tmp_path / "net.toy").write_text("abs\n")
    project = rx.compile(tmp_path / "net.toy", bounds={"n": 4})
    assert "net.h" in project.files, "the file names the project"
    assert project.host()(x=np.array([-1, 2], np.float32))["y"].tolist() == [1, 2]
    assert default_reference(tmp_path / "net.toy") == "numpy", "ONNX Runtime does not read it"


# Boards and libraries


def test_a_board_is_called_as_its_entry_and_its_file(install: Install, tmp_path: Path) -> None:
    board = (ROOT / "boards" / "mps2-an386.toml").read_text()
    (tmp_path / "mine.toml").write_text(board)
    path = str(tmp_path / "mine.toml")
    install("one", "boards", f"BOARD = {path!r}", "mine", ":BOARD")
    assert "mine" in list_boards()
    assert load_board("mine").cpu == "cortex-m4"
    assert list_boards()[0] == "host"


@pytest.mark.parametrize(
    ("entry", "file", "message"),
    [
        ("other", "mine.toml", "the board's file is mine.toml; it must be other.toml"),
        ("mine", "no.toml", "no.toml does not exist; is it package data"),
        ("mine", "mine.toml", "mine.toml: family: expected one of"),
        ("mps2-an386", "mine.toml", "'mps2-an386' comes from .*mps2-an386.toml and from package"),
    ],
)
def test_boards_that_are_refused(
    entry: str, file: str, message: str, install: Install, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text("")
    install("one", "boards", f"BOARD = {str(tmp_path / file)!r}", entry, ":BOARD")
    with pytest.raises(PluginError, match=message) as refused:
        load_board(entry)
    assert "package one 1.0" in str(refused.value)
    assert load_board("microbit").name in list_boards()


def test_libraries_that_are_not_there(install: Install, tmp_path: Path) -> None:
    with pytest.raises(ExternError, match="libraries are: cublaslt"):
        library_table("scale")
    (tmp_path / "scale.toml").write_text("")
    install("one", "libraries", f"TABLE = {str(tmp_path / 'scale.toml')!r}", "scale", ":TABLE")
    assert library_table("scale") == tmp_path / "scale.toml"
    with pytest.raises(ExternError, match="did you mean 'scale'"):
        library_table("scales")
    assert library_table("my/own.toml") == Path("my/own.toml")


def test_a_library_that_fits_nothing_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "f.h").write_text("void f(const float *x, int n, float *y);\n")
    (tmp_path / "f.toml").write_text("""
        header = "f.h"
        [[extern]]
        function = "f"
        replaces = "%y = tanh(%x)"
        [extern.arguments]
        x = { input = "f32[*n]" }
        n = { size = "n" }
        y = { output = "f32[*n]" }
    """)
    table_path = str(tmp_path / "f.toml")
    plain = rx.compile(relu(), bounds={"n": 4}, name="m", libraries=[table_path])
    assert b"f.h" not in plain.files["m.c"]
    assert "f.h" not in plain.files
    with pytest.raises(rx.RelaxAotError, match="matches no call"):
        rx.compile(relu(), bounds={"n": 4}, name="m", externs=[table_path])


def test_an_op_of_a_package_stands_in_modules(install: Install) -> None:
    install("one", "ops", GOOD_OP)
    assert all_ops()["mine"].name == "mine"
    assert isinstance(rx.load(relu(), bounds={"n": 4}), Module)
