# SPDX-License-Identifier: Apache-2.0
"""Names, documentation and metadata of a model are not trusted: they reach C as comments and
identifiers alone, and no file but the project's own is written."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.emit.c_names import Names
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.bounds import MissingBound
from relax_aot.project.packaging import NAMES
from tests.models.onnx_text import model_of

BOMB = "RAOT_INJECTED"
PIECES = (
    "*/", "/*", "//", "\n", "\r\n", "\\\n", "??/", "??/\n", "'", '"', '"; int x;', "\0", "\t",
    "../", "../../etc/x", "/", "$(touch injected)", "`touch injected`", "${IFS}", "%s%n", "{{ 7 }}",
    "{% x %}", "{# x #}", "int", "for", "while", "static", "struct", "main", "double", "NULL",
    "memory", "dims", "in", "out", "result", "status", "arena", "need", "_Generic", "__asm__",
    "errno", "I", "complex", "tanh", "memcpy", "exp", "INT32_MAX", "RAOT_OK", "class", "template",
    "\u00e9", "\u6a21\u578b", "\u202e", "\ufeff", "\U0001f600", "\ud7ff", "a" * 300, " ", "", "1",
    "#define", "#include </etc/passwd>", f"*/ int {BOMB}; /*", f"\n#define {BOMB} 1\n",
    f"??/\n*/{BOMB}()//", ";}", "]]>", "<script>", "&amp;", "@", ":", "=", ",", "n", "N", "n_max",
)  # fmt: skip


def word(rng: np.random.Generator) -> str:
    count = int(rng.integers(1, 4))
    return "".join(PIECES[i] for i in rng.integers(0, len(PIECES), count))


def hostile(seed: int) -> onnx.ModelProto:
    """out = tanh(x @ w) + b with hostile names for everything that has one."""
    rng = np.random.default_rng(seed)
    names: dict[str, str] = {}

    def name(role: str) -> str:
        text = word(rng)
        while not text or text in names.values():
            text += word(rng) or "_"
        names[role] = text
        return text

    x, w, b, y = (name(role) for role in ("x", "w", "b", "y"))
    product, bent, symbol = name("product"), name("bent"), name("symbol")
    nodes = [
        helper.make_node("MatMul", [x, w], [product], name=word(rng), doc_string=word(rng)),
        helper.make_node("Tanh", [product], [bent], name=word(rng), doc_string=word(rng)),
        helper.make_node("Add", [bent, b], [y], name=word(rng)),
    ]
    graph = helper.make_graph(
        nodes,
        word(rng) or "g",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [symbol, 3], word(rng))],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [symbol, 2], word(rng))],
        [
            numpy_helper.from_array(np.ones((3, 2), np.float32), w),
            numpy_helper.from_array(np.ones(2, np.float32), b),
        ],
        doc_string=word(rng),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.doc_string, model.producer_name, model.domain = word(rng), word(rng), word(rng)
    entry = model.metadata_props.add()
    entry.key, entry.value = word(rng), word(rng)
    return model


def compiled(seed: int, name: str | None = None, model: onnx.ModelProto | None = None) -> Any:
    """With the bounds that the message asks for, under the names that it gives them."""
    model = model or hostile(seed)
    options = Options(name=f"m{seed}" if name is None else name)
    try:
        return driver.compile_model(model, "host", options)
    except MissingBound as error:
        wanted = re.findall(r"--bound (\S+)=128", str(error))
    assert wanted
    bounds = dict.fromkeys(wanted, (1, 4))
    return driver.compile_model(model, "host", replace(options, bounds=bounds))


def check_many(seeds: range, folder: Path) -> None:
    """All are compiled by us and by gcc, linked into one program, and run."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    for seed in seeds:
        project = compiled(seed)
        at = project.write(folder / f"m{seed}")
        written = {str(p.relative_to(at)) for p in at.rglob("*") if p.is_file()}
        assert written == set(project.files)
        assert all(re.fullmatch(r"[A-Za-z0-9_./-]+", path) for path in written)
        (at / "main.c").rename(at / "once.inc")
        # One unit for each model. The mains have static arrays of the same names.
        units = "".join(f'#include "m{seed}/{unit}"\n' for unit in project.units)
        (folder / f"run{seed}.c").write_text(
            f'{units}int main{seed}(void);\n#define main main{seed}\n#include "m{seed}/once.inc"\n'
        )
    calls = "\n".join(f"    failed += main{seed}();" for seed in seeds)
    declared = "\n".join(f"int main{seed}(void);" for seed in seeds)
    (folder / "all.c").write_text(
        f"{declared}\nint main(void)\n{{\n    int failed = 0;\n{calls}\n    return failed;\n}}\n"
    )
    strict = ["-std=c11", "-trigraphs", "-Wall", "-Wextra", "-Wno-trigraphs", "-Werror"]
    includes = [f"-I{folder / f'm{seed}'}" for seed in seeds]
    runs = [f"run{seed}.c" for seed in seeds]
    command = ["gcc", *strict, *includes, *runs, "all.c", "-o", "all", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    symbols = subprocess.run(["nm", "all"], cwd=folder, capture_output=True, text=True, check=True)
    assert not re.search(rf"\b{BOMB}$", symbols.stdout, re.M)
    assert subprocess.run([folder / "all"], cwd=folder, check=False).returncode == 0
    known = {"all", "all.c", *runs, *(f"m{seed}" for seed in seeds)}
    assert {path.name for path in folder.iterdir()} == known


@pytest.mark.slow
def test_twenty_hostile_models_compile_and_run(tmp_path: Path) -> None:
    assert len({word(np.random.default_rng(n)) for n in range(100)}) > 80
    check_many(range(20), tmp_path)
    assert not list(Path.cwd().glob("injected*"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_five_thousand_hostile_models_compile_and_run(part: int, tmp_path: Path) -> None:
    for start in range(250 * part, 250 * (part + 1), 50):
        folder = tmp_path / str(start)
        folder.mkdir()
        check_many(range(start, start + 50), folder)
    assert not list(Path.cwd().glob("injected*"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_hostile_names_reach_no_manifest(kind: str) -> None:
    for seed in range(40, 60):
        project = compiled(seed)
        for path, content in project.packaged(kind).items():
            if path.endswith((".yml", ".json", ".properties", ".txt", "Kconfig", ".pdsc", ".ino")):
                text = content.decode()
                assert "$(touch" not in text or path == "relax_aot.json", path


@pytest.mark.parametrize("name", ["../x", "a/b", "int", "*/", "", "1", "\u6a21", "a" * 500])
def test_a_hostile_prefix_is_an_identifier_or_refused(name: str, tmp_path: Path) -> None:
    try:
        project = compiled(0, name)
    except RelaxAotError as error:
        assert "name" in str(error)
        return
    assert re.fullmatch(r"[a-z_][a-z0-9_]*", project.name)
    at = project.write(tmp_path / "out")
    command = ["gcc", "-std=c11", "-c", f"{project.name}.c", "-o", "x.o"]
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:1000]


def test_the_same_words_under_other_roles_do_not_clash(tmp_path: Path) -> None:
    """Names that only differ in what no C identifier can hold stay apart."""
    model = hostile(1)
    renamed = dict(
        zip(
            [n for node in model.graph.node for n in node.output],
            ("a-b", "a_b", "a+b"),
            strict=True,
        )
    )
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [renamed.get(value, value) for value in values]
    model.graph.output[0].name = renamed[model.graph.output[0].name]
    at = compiled(1, "clash", model).write(tmp_path / "out")
    done = subprocess.run(
        ["sh", "-c", "gcc *.c -lm && ./a.out"], cwd=at, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:1000]


def test_a_value_may_be_called_like_working_memory() -> None:
    """The rest of the matrix of a determinant y is y.rest."""
    model = model_of("g (float[3, 3] x) => (float y, float[3, 3] u)", "y = Det(x)\nu = Sin(x)", {})
    model.graph.node[1].output[0] = model.graph.output[1].name = "y.rest"
    plan = driver.compile_model(model, "host", Options()).plan
    values = [var.name for call in plan.module.main.body for var in call.outs]
    assert "y.rest" in values and len(values) == len(set(values))


@pytest.mark.parametrize("header", ["stdint.h", "stddef.h", "string.h", "math.h"])
def test_no_macro_of_a_standard_header_is_a_name(header: str) -> None:
    """The compiler itself says what its headers define."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    command = ["gcc", "-std=gnu11", "-dM", "-E", "-include", header, "-x", "c", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    macros = set(re.findall(r"^#define ([A-Za-z]\w*)", done.stdout, re.M))
    assert macros
    clashes = sorted(macro for macro in macros if Names().claim(macro) == macro)
    assert clashes == []
