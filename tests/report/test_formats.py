# SPDX-License-Identifier: Apache-2.0
"""Every form of the report says the same, and mistakes end with one message."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from click.testing import CliRunner

import relax_aot as rx
from relax_aot import driver
from relax_aot.cli.main import cli
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.project import Project
from relax_aot.report import report_text
from relax_aot.report.figures import SizeError, chosen_sizes, figures
from relax_aot.report.memory_map import need_of_bounds
from relax_aot.report.terminal import terminal_text
from relax_aot.verify.host import build_library
from relax_aot.verify.library import Library
from tests.end_to_end.subjects import project_of
from tests.models.encoder import encoder
from tests.report.test_report import HOSTILE, hostile_model


@pytest.mark.slow
def test_json_says_what_the_plan_and_the_compiled_c_say() -> None:
    project = project_of("small_encoder")
    library = Library(build_library(project))
    data = json.loads(report_text(project, (), "json"))
    assert data["schema"] == 1
    assert data["memory"]["arena_bytes"] == project.plan.arena_bytes
    assert len(data["values"]) == len(project.plan.slots)
    names = [f.symbol.name for f in project.interface.dims]
    for entry in data["regions"][0]["at"]:
        need = library.arena_need([entry["sizes"][name] for name in names])
        assert entry["arena_bytes"] == need
    assert {k["dtype"] for k in data["constants"]} == {"f32"}


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 17, 64])
def test_bytes_of_other_bounds_are_those_of_a_build_with_them(n: int) -> None:
    """The compiler of C works the arena out again; so it is asked."""
    project = project_of("small_encoder")
    header = re.sub(
        rb"(#define ENC_N_MAX\s+)\d+", rb"\g<1>" + str(n).encode(), project.files["enc_config.h"]
    )
    assert header != project.files["enc_config.h"]
    library = Library(build_library_with(project, header))
    highs = {f.symbol.name: f.symbol.high for f in project.interface.dims} | {"n": n}
    names = [f.symbol.name for f in project.interface.dims]
    assert need_of_bounds(project.plan, highs) == library.arena_need([highs[x] for x in names])


def build_library_with(project: Project, header: bytes) -> Path:
    return build_library(replace(project, files=project.files | {"enc_config.h": header}))


def test_svg_is_xml_with_one_block_for_each_value() -> None:
    project = project_of("small_encoder")
    root = ElementTree.fromstring(report_text(project, [{"n": 7}], "svg"))
    rects = root.findall(".//{*}g/{*}rect")
    assert len(rects) == len(project.plan.slots)


@pytest.mark.parametrize("form", ["html", "svg", "json", "txt"])
def test_hostile_names_harm_no_form(form: str) -> None:
    project = driver.compile_model(hostile_model(), "host", Options(bounds={"n": (1, 5)}))
    text = report_text(project, (), form)
    if form in ("html", "svg"):
        assert "<img" not in text and "</script" not in text
    if form == "json":
        assert HOSTILE in json.loads(text)["kernels"][0]["origin"]
    assert "\x1b" not in text


@pytest.mark.slow
def test_a_terminal_sees_no_control_characters() -> None:
    project = project_of("gesture")
    data = figures(project)
    data["model"] = "a\x1b[31mb\n"
    assert "\x1b" not in terminal_text(data)


def test_python_writes_the_report(tmp_path: Path) -> None:
    project = rx.Project(project_of("gesture"))
    path = project.report(tmp_path / "deep" / "page.json", at=[{"n": 77}], format="json")
    assert json.loads(path.read_text())["regions"][0]["at"][0]["sizes"] == {"n": 77}
    with pytest.raises(RelaxAotError, match="known are html, svg, json, txt"):
        project.report(tmp_path / "x", format="pdf")


def test_sizes_that_do_not_exist_are_refused() -> None:
    plan = project_of("gesture").plan
    with pytest.raises(SizeError, match="no such symbol; known are: n"):
        chosen_sizes(plan, [{"m": 1}])
    with pytest.raises(SizeError, match=r"bounds are 1\.\.128"):
        chosen_sizes(plan, [{"n": 129}])


@pytest.mark.slow
def test_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "enc.onnx"
    onnx.save(encoder(width=16, heads=2, layers=1, hidden=24), model)
    common = ["report", str(model), "--bound", "n=40", "--bound", "batch=2"]
    for form in ("html", "svg", "json", "txt"):
        done = CliRunner().invoke(cli, [*common, "-o", str(tmp_path / form), "--format", form])
        assert done.exit_code == 0 and (tmp_path / form).stat().st_size > 500, done.output
    shown = CliRunner().invoke(cli, [*common, "-o", "-", "--format", "txt"])
    assert shown.exit_code == 0 and "largest values" in shown.output
    bad = CliRunner().invoke(cli, [*common, "-o", "-", "--at", "n=41"])
    assert isinstance(bad.exception, SizeError)
    assert CliRunner().invoke(cli, [*common, "-o", "-", "--format", "pdf"]).exit_code == 2
