# SPDX-License-Identifier: Apache-2.0
"""Every transform, merger of fusion and schedule does what its own examples say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import relax_aot
from relax_aot import fusion, scheduling
from relax_aot.fusion import Policy
from relax_aot.inference.refine import refine
from relax_aot.ir.check import check
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ops import deduce
from relax_aot.scheduling.targets import all_targets
from relax_aot.transforms import PIPELINE, interface
from tests.transforms.examples import agrees, example_module, shown

TARGETS = {target.name: target for target in all_targets(device=True)}
Run = Callable[[ModuleType, Module, Example], tuple[Module, str]]
"""The module after a pass, and the reasons that it gives for what it left."""


def transformed(file: ModuleType, module: Module, _: Example) -> tuple[Module, str]:
    return file.run(module), ""


def merged(file: ModuleType, module: Module, _: Example) -> tuple[Module, str]:
    fused = fusion.fuse(module, Policy(mergers=(file,)))
    return fused.module, "; ".join(note.reason for note in fused.summary.apart)


def scheduled(file: ModuleType, module: Module, example: Example) -> tuple[Module, str]:
    """By the strategies of the file alone, which may be partial functions."""
    target = TARGETS[example.target]
    alone = replace(
        target,
        strategies=tuple(
            s for s in target.strategies if getattr(s, "func", s).__module__ == file.__name__
        ),
        floats=tuple(s for s in target.floats if s.__module__ == file.__name__),
        compact=file.__name__.endswith("calls"),
    )
    return scheduling.schedule_contractions(module, alone), ""


def rescheduled(file: ModuleType, module: Module, example: Example) -> tuple[Module, str]:
    return file.run(module, TARGETS[example.target]), ""


FOLDERS: dict[str, Run] = {
    "transforms": transformed,
    "fusion.mergers": merged,
    "scheduling.passes": rescheduled,
    "scheduling.strategies": scheduled,
}
"""Folders of passes: every file and folder in them, except those with a leading underscore."""


def passes_of(folder: str, root: Path) -> Iterator[str]:
    for path in sorted((root / folder.replace(".", "/")).iterdir()):
        if not path.name.startswith(("_", ".")) and (path.is_dir() or path.suffix == ".py"):
            yield f"{folder}.{path.stem}"


PASSES = [
    (name, run)
    for folder, run in FOLDERS.items()
    for name in passes_of(folder, Path(relax_aot.__file__).parent)
]


def imported(name: str) -> ModuleType:
    return import_module(f"relax_aot.{name}")


def examples_of(file: ModuleType) -> tuple[Example, ...]:
    """At least one of them shows a change."""
    found: tuple[Example, ...] = getattr(file, "EXAMPLES", ())
    assert any(example.after for example in found), f"{file.__name__}: EXAMPLES shows no change"
    return found


def test_every_pass_shows_what_it_changes() -> None:
    """One test, which no sample of the gate leaves out."""
    for name, _ in PASSES:
        examples_of(imported(name))


def test_a_file_without_examples_is_found(tmp_path: Path) -> None:
    (tmp_path / "transforms").mkdir()
    for name in ("_helper.py", "fold.py", "__init__.py"):
        (tmp_path / "transforms" / name).touch()
    assert list(passes_of("transforms", tmp_path)) == ["transforms.fold"]
    with pytest.raises(AssertionError, match="EXAMPLES shows no change"):
        examples_of(ModuleType("transforms.fold"))


def test_every_transform_has_its_place_in_the_pipeline() -> None:
    files = {name for name, _ in PASSES if name.startswith("transforms.")}
    assert {f"transforms.{name}" for name, _ in PIPELINE} == files


CASES = [
    pytest.param(imported(name), run, example, id=f"{name}: {example.why}")
    for name, run in PASSES
    for example in getattr(imported(name), "EXAMPLES", ())
]


@pytest.mark.parametrize(("file", "run", "example"), CASES)
def test_example(file: ModuleType, run: Run, example: Example) -> None:
    before = refine(example_module(example.before))
    after, reasons = run(file, before, example)
    assert agrees(after, example), f"got\n{shown(after, example)}"
    assert reasons == example.refused
    check(after, deduce)
    assert interface(after) == interface(before), "inputs, results and states keep their names"
    again, _ = run(file, after, example)
    assert again == after


WITHOUT_RESULT = """
inner symbol k in 0..8

func @main(%x: f32[8], %count: i64[1]) {
  define(%count) {defines=["k"], element=0, low=0, most=8}
  %part: f32[k] = slice(%x) {starts=[0], lengths=[k], axes=[0], steps=[1]}
  %y: f32[k] = relu(%part)
  return %y
}
"""


@pytest.mark.parametrize("name", [name for name, _ in PIPELINE])
def test_a_call_without_results_stays(name: str) -> None:
    module = example_module(WITHOUT_RESULT)
    after = imported(f"transforms.{name}").run(module)
    assert [call.op for call in after.functions[0].body].count("define") == 1
