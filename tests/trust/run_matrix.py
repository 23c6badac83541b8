# SPDX-License-Identifier: Apache-2.0
"""Runs of the matrix: a cell's program on its emulated core or on this machine, against a
reference that is not ours."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax_aot.cache import cached_folder, digest_of
from relax_aot.evaluation.reference import evaluate
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.toolchain.compilers import (
    CLANG_HARNESS_FLAGS,
    GCC_HARNESS_FLAGS,
    Compiler,
    CrossCompiler,
)
from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.emulate import emulate_cases
from relax_aot.verify.host import HostModel, build_shared, library_files
from relax_aot.verify.library import Library
from relax_aot.verify.onnx_reference import OnnxReference
from relax_aot.verify.samples import Case, cases_of
from tests.frontends.tflite_models import truth
from tests.models.every_kernel import SUBJECTS
from tests.trust.build_matrix import (
    BARE,
    BOARDS,
    Cell,
    compiler,
    flags,
    project,
    source,
)

Array = np.ndarray[Any, Any]
FLOATS = Tolerance(rtol=1e-4, atol=1e-5)
HALVES = Tolerance(rtol=4e-3, atol=1e-3)
"""Two units in the last place of float16, over a sum of few products."""


@cache
def cases(model: str) -> tuple[Case, ...]:
    subject = SUBJECTS[model]
    interface = project(model, "host").interface
    return tuple(cases_of(interface, subject.at, {}, 5))


@cache
def expected(model: str) -> tuple[dict[str, Array], ...]:
    """ONNX Runtime's results, or those of LiteRT's reference kernels. Weights that the compiler
    quantizes have the results of the quantized module."""
    read, interface = source(model), project(model, "host").interface
    if SUBJECTS[model].group == "weights":
        module = project(model, "host").source_module
        given = [dict(zip((p.name for p in module.main.params), c.inputs, strict=True))
                 for c in cases(model)]  # fmt: skip
        return tuple(
            evaluate(module, arrays, case.sizes)
            for arrays, case in zip(given, cases(model), strict=True)
        )
    if isinstance(read, Path):
        (names,) = [[port.source for port in interface.outputs]]
        made = read.read_bytes()
        runs = [truth(made, [list(case.inputs)])[0] for case in cases(model)]
        return tuple(dict(zip(names, run, strict=True)) for run in runs)
    reference = OnnxReference(read, {}, {})
    return tuple(
        reference(
            {p.source: a for p, a in zip(interface.inputs, case.inputs, strict=True)},
            {},
            case.sizes,
        )
        for case in cases(model)
    )


def wrong(model: str, outputs: Sequence[dict[str, Array]]) -> list[str]:
    """What differs from the reference."""
    tolerance = HALVES if SUBJECTS[model].group == "fp16" else FLOATS
    found = []
    for case, got, wanted in zip(cases(model), outputs, expected(model), strict=True):
        for name, value in got.items():
            difference = compare(name, value, wanted[name], tolerance)
            if not difference.ok:
                found.append(f"{model} {case.shown} {name}: {difference}")
    return found


def run(cell: Cell, model: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Array]]:
    made = project(model, cell.target)
    if cell.target == "host":
        return _on_host(cell, made, cases(model), monkeypatch)
    chosen = tools(cell)
    monkeypatch.setattr("relax_aot.toolchain.build.cross_compiler", lambda _: chosen)
    results = emulate_cases(made, cases(model))
    assert all(result.status == 0 for result in results), results
    return [result.outputs for result in results]


def _on_host(
    cell: Cell, made: Project, these: Sequence[Case], monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Array]]:
    monkeypatch.setattr("relax_aot.verify.host.host_compiler", lambda: compiler(cell))
    monkeypatch.setattr("relax_aot.verify.host.host_flags", lambda _: ())
    path = build_shared(library_files(made), flags(cell))
    model = HostModel(made.interface, Library(path), None)
    return [model.run_at(case.sizes, case.inputs) for case in these]


def tools(cell: Cell) -> CrossCompiler:
    """The cell's compiler; where it is Clang, GCC links its objects with its C library."""
    board = load_board(BOARDS[cell.target])
    chosen = compiler(cell)
    mine = flags(cell)
    linked = (*board.flags, *board.link_flags, "-Wl,-Map=image.map")
    linked += ("-Wl,--no-warn-rwx-segments",) if cell.target in BARE else ()
    linked += (*mine, "-Wl,-u,raot_model") if cell.level == "LTO" else ()
    harness: tuple[str, ...] = GCC_HARNESS_FLAGS if cell.compiler == "gcc" else CLANG_HARNESS_FLAGS
    # The harness tells stack and bounds by reading memory that is no object of C.
    harness += ("-fno-sanitize=all",) if cell.extra == "undefined" else ()
    if cell.compiler == "gcc":
        return CrossCompiler(chosen, mine, linked, harness, ("-lm",))
    compile_ = shlex.join(chosen.command)
    text = (
        "#!/bin/sh\nfor word; do\n"
        f'    if [ "$word" = -c ]; then exec {compile_} "$@"; fi\ndone\n'
        f'exec {board.prefix}gcc "$@"\n'
    )

    def write(folder: Path) -> None:
        (folder / "cc").write_text(text)
        (folder / "cc").chmod(0o755)

    script = cached_folder("matrix-cc", digest_of([text]), write) / "cc"
    both = Compiler((str(script),), "clang", chosen.identity, chosen.environment)
    return CrossCompiler(both, mine, linked, harness, ("-lm",))
