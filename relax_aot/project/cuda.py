# SPDX-License-Identifier: Apache-2.0
"""The project of a model on a GPU: C for the host, kernels as source and as machine code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from relax_aot.emit.cuda_host import Machine, emit_device
from relax_aot.emit.render import render
from relax_aot.emit.sources import Sources
from relax_aot.errors import RelaxAotError
from relax_aot.ir.graph import Module
from relax_aot.planning import Plan
from relax_aot.project import (
    Project,
    figures,
    micro_kernel_headers,
    options_text,
    runtime_headers,
)
from relax_aot.project.board import Board
from relax_aot.project.fit import Need, needs_of
from relax_aot.project.packaging import MARKER, PACKAGE_VERSION
from relax_aot.transforms.integers.meanings import meanings

_ROW = 24
"""Bytes of machine code in a line of C."""

Compile = Callable[[str, str, int, int], bytes]
"""CUDA C++, the name of its file, ten times a compute capability, a toolkit -> a cubin."""


@dataclass(frozen=True, slots=True)
class CubinView:
    """Machine code as C text."""

    toolkit: int
    rows: tuple[str, ...]


class NotOnDevice(RelaxAotError):
    """A model that a GPU cannot run yet."""


def assemble_device(
    module: Module,
    plan: Plan,
    name: str,
    board: Board,
    compile_kernels: Compile,
    weights: str = "auto",
    optimize: str = "speed",
    *,
    emit: str = "auto",
    ordered: bool = False,
    also: Sequence[str] = (),
) -> Project:
    """`compile_kernels` makes the machine code, unless `emit` leaves that to the user."""
    cuda = board.cuda
    assert cuda is not None
    if weights == "blob":
        raise NotOnDevice("--weights blob is not supported on a GPU: weights are copied to it")
    if any(growth.is_window for growth in plan.module.lengths.values()):
        raise NotOnDevice("--window is not supported on a GPU; use a growing state without it")
    source_only = emit == "cuda-source"
    sources = emit_device(
        plan, name, Machine(cuda.sm, () if source_only else cuda.toolkits), weights,
        meanings(module), ordered=ordered,
        options=options_text(board, optimize, weights, also, stepwise=False),
    )  # fmt: skip
    prefix = sources.interface.name
    needs = needs_of(board, [(plan, sources.interface)], sources.const_bytes)
    text = sources.files[f"{prefix}.cu"]
    cubins = {
        toolkit: compile_kernels(text, prefix, cuda.sm, toolkit)
        for toolkit in (() if source_only else cuda.toolkits)
    }
    units = [f"{prefix}.c", f"{prefix}_cubin.c"]
    units += [f"{prefix}_weights.c"] if plan.module.constants else []
    bytes_ = {need.what: need.bytes for need in needs}
    said = figures(board, sources, bytes_, {"": sources.interface})
    return Project(
        prefix,
        _files(board, sources, plan, cubins, needs, said),
        module,
        plan,
        sources.interface,
        board,
        sources.const_bytes,
        tuple(units),
        sources.view,
    )


def _files(
    board: Board,
    sources: Sources,
    plan: Plan,
    cubins: Mapping[int, bytes],
    needs: tuple[Need, ...],
    said: Mapping[str, object],
) -> dict[str, bytes]:
    view, name = sources.view, sources.view.name
    texts = dict(sources.files)
    rows = tuple(CubinView(toolkit, _rows(cubin)) for toolkit, cubin in cubins.items())
    assert board.cuda is not None
    texts[f"{name}_cubin.c"] = render(
        "cuda/cubin.c.j2", model=view, capability=board.cuda.capability, cubins=rows
    )
    texts["main.c"] = render("main.c.j2", model=view, header=sources.header)
    shown = {
        "model": view, "board": board, "needs": needs, "cubins": rows,
        "toolkits": " and ".join(map(str, cubins)), "package_version": PACKAGE_VERSION,
    }  # fmt: skip
    texts["CMakeLists.txt"] = render("cuda/CMakeLists.txt.j2", **shown)
    texts["README.md"] = render("cuda/README.md.j2", **shown)
    files = {path: text.encode() for path, text in texts.items()} | sources.blocks
    files[MARKER] = (json.dumps(said, indent=1) + "\n").encode()
    headers = micro_kernel_headers([plan])
    files |= runtime_headers(files | headers)
    return dict(sorted(files.items()))


def _rows(cubin: bytes) -> tuple[str, ...]:
    return tuple(
        ", ".join(map(str, cubin[start : start + _ROW])) for start in range(0, len(cubin), _ROW)
    )
