# SPDX-License-Identifier: Apache-2.0
"""The page says what the plan says, at every size, and nothing that a model says harms it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from relax_aot import driver
from relax_aot.cli.main import cli
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.report import write_report
from relax_aot.report.headline import model_hash
from relax_aot.report.memory_map import (
    bytes_at,
    curves_of,
    lower_bound_at,
    maps_of,
    need_at,
    usual_sizes,
)
from relax_aot.verify.figures import memory_of
from relax_aot.verify.host import build_library
from relax_aot.verify.library import Library
from tests.end_to_end.subjects import project_of
from tests.models.encoder import encoder

HOSTILE = "</script><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """Tags that are opened, and whether each is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "rect", "line", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line", "polyline"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(project: Project, path: Path) -> Page:
    write_report(project, path)
    page = Page()
    page.feed(path.read_text())
    assert page.open == []
    return page


@pytest.mark.slow
def test_the_page_begins_with_the_figures_that_decide(tmp_path: Path) -> None:
    project = encoder_project()
    page = page_of(project, tmp_path / "r.html")
    ram = project.plan.arena_bytes + project.state_bytes
    assert f"{ram:,} bytes" in page.text and "Multiply-adds" in page.text
    assert model_hash(project) in page.text
    layers = sum(len(kernel.layers) for kernel in project.view.kernels)
    assert (tmp_path / "r.html").read_text().count("of the largest") == layers


@pytest.mark.slow
def test_the_hash_is_of_the_graph_and_of_every_constant() -> None:
    model = encoder(width=16, heads=2, layers=1, hidden=24)
    options = Options(bounds={"n": (1, 40), "batch": (1, 2)}, name="enc")
    first, again = (model_hash(driver.compile_model(model, "host", options)) for _ in range(2))
    weight = next(t for t in model.graph.initializer if t.raw_data and len(t.raw_data) > 64)
    weight.raw_data = weight.raw_data[:-1] + bytes([weight.raw_data[-1] ^ 1])
    assert first == again != model_hash(driver.compile_model(model, "host", options))


@pytest.mark.qemu
def test_flash_counts_the_code(tmp_path: Path) -> None:
    options = Options(bounds={"n": (1, 40), "batch": (1, 2)}, name="enc")
    model = encoder(width=16, heads=2, layers=1, hidden=24)
    project = driver.compile_model(model, "mps2-an386", options)
    memory = memory_of(project)
    page = page_of(project, tmp_path / "r.html")
    assert memory.code_bytes
    assert f"{memory.code_bytes + memory.const_bytes:,} bytes" in page.text
    assert f"code {memory.code_bytes:,}" in page.text


def encoder_project() -> Project:
    model = encoder(width=16, heads=2, layers=1, hidden=24)
    return driver.compile_model(
        model, "host", Options(bounds={"n": (1, 40), "batch": (1, 2)}, name="enc")
    )


@pytest.mark.slow
def test_the_page_holds_the_figures_of_the_plan(tmp_path: Path) -> None:
    project = encoder_project()
    page = page_of(project, tmp_path / "report.html")
    assert f"arena {project.plan.arena_bytes:,}" in page.text
    assert project.fusion is not None
    assert f"{project.fusion.before.calls} calls of kernels before fusion" in page.text
    largest = max(slot.greatest_bytes for slot in project.plan.slots)
    assert f"{largest:,}" in page.text.split("Largest values")[1].split("Slots of the arena")[0]
    assert page.tags.count("figure") == 4
    assert "script" not in page.tags and "img" not in page.tags


def test_blocks_alive_together_do_not_overlap_at_any_size() -> None:
    plan = encoder_project().plan
    for sizes in usual_sizes(plan):
        (drawn,) = maps_of(plan, [sizes])
        for n, one in enumerate(drawn.rectangles):
            for other in drawn.rectangles[:n]:
                beside = one.x + one.width <= other.x + 0.1 or other.x + other.width <= one.x + 0.1
                above = one.y + one.height <= other.y + 0.1 or other.y + other.height <= one.y + 0.1
                assert beside or above, (one.title, other.title)


def test_curves_are_what_the_generated_c_says() -> None:
    """`<name>_arena_bytes` of the compiled project, asked at each point."""
    project = project_of("small_encoder")
    library = Library(build_library(project))
    names = [f.symbol.name for f in project.interface.dims]
    highs = {f.symbol.name: f.symbol.high for f in project.interface.dims}
    curves = {curve.symbol: curve for curve in curves_of(project.plan)}
    assert set(curves) == set(names)
    for symbol, curve in curves.items():
        for value, need, bound, _ in curve.rows:
            dims = [value if name == symbol else highs[name] for name in names]
            assert library.arena_need(dims) == need >= bound > 0


def test_the_lower_bound_is_the_greatest_sum_alive() -> None:
    plan = encoder_project().plan
    for sizes in usual_sizes(plan):
        last = max(slot.lifetime.stop for slot in plan.slots)
        sums = [
            sum(
                bytes_at(s, sizes) for s in plan.slots if s.lifetime.start <= step < s.lifetime.stop
            )
            for step in range(last)
        ]
        assert lower_bound_at(plan, 0, sizes) == max(sums) <= need_at(plan, 0, sizes)


def hostile_model() -> onnx.ModelProto:
    x = helper.make_tensor_value_info(HOSTILE, TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    nodes = [
        helper.make_node("Softmax", [HOSTILE], ["a"], name=HOSTILE, axis=0),
        helper.make_node("Softmax", ["a"], ["y"], axis=1, doc_string=HOSTILE),
    ]
    graph = helper.make_graph(nodes, HOSTILE, [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_names_from_the_model_are_text(tmp_path: Path) -> None:
    project = driver.compile_model(hostile_model(), "host", Options(bounds={"n": (1, 5)}))
    page = page_of(project, tmp_path / "report.html")
    assert HOSTILE in page.text
    assert "img" not in page.tags and "script" not in page.tags


@pytest.mark.slow
def test_the_command_draws_the_sizes_that_are_asked_for(tmp_path: Path) -> None:
    model = tmp_path / "enc.onnx"
    onnx.save(encoder(width=16, heads=2, layers=1, hidden=24), model)
    page = tmp_path / "page.html"
    arguments = ["report", str(model), "--bound", "n=40", "--bound", "batch=2", "-o", str(page)]
    done = CliRunner().invoke(cli, [*arguments, "--at", "n=7"])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "n = 7" in text and text.count("memory map at") == 1


@pytest.mark.parametrize("count", [1, 3])
def test_sizes_that_do_not_vary_have_one_map(count: int) -> None:
    plan = project_of("gesture").plan if count == 3 else encoder_fixed().plan
    assert len(usual_sizes(plan)) == count
    assert np.all([m.width > 0 for m in maps_of(plan, usual_sizes(plan))])


def encoder_fixed() -> Project:
    model = encoder(width=16, heads=2, layers=1, hidden=24)
    return driver.compile_model(
        model, "host", Options(bounds={"n": (4, 4), "batch": (1, 1)}, name="enc")
    )
