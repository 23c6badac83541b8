# SPDX-License-Identifier: Apache-2.0
"""The project of a model on a GPU: C for the host, kernels as source and as machine code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.cuda_host import Machine, emit_device, emit_device_entries
from relax_aot.emit.entries import Part
from relax_aot.emit.interface import Interface
from relax_aot.emit.render import render
from relax_aot.emit.sources import Sources
from relax_aot.files import Files
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
from relax_aot.project.crowded import FREE, Crowded
from relax_aot.project.cuda_board import Cuda
from relax_aot.project.entries import Compiled, EntriesProject, entries_project
from relax_aot.project.fit import needs_of
from relax_aot.project.packaging import MARKER, PACKAGE_VERSION
from relax_aot.transforms.integers.meanings import meanings

_ROW = 19
"""Bytes of machine code in a row, which is no longer than a line of C then."""

QUARTERS = 4
"""Into which the blocks that are resident at once are divided."""

PART = 4
"""A part of the threads of a processor, with which they hide the latency of memory."""

Compile = Callable[[str, str, int, int], bytes]
"""CUDA C++, the name of its file, ten times a compute capability, a toolkit -> a cubin."""
Spilled = Callable[[bytes], Mapping[str, int]]
"""A cubin -> the bytes of local memory of a thread, by the functions that have any."""


@dataclass(frozen=True, slots=True)
class CubinView:
    """Machine code as C text."""

    toolkit: int
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Device:
    """What the kernels of a project are made for; `compile_kernels` makes their machine code,
    which `spilled` reads. `source_only` leaves machine code to the user; the compilers of the
    toolkits `here` then tell which functions spill. The other options are those of the command
    line, `further` as the header lists them."""

    board: Board
    cuda: Cuda
    compile_kernels: Compile
    spilled: Spilled
    source_only: bool
    here: tuple[int, ...]
    weights: str
    optimize: str
    numerics: str
    further: tuple[str, ...]

    @property
    def toolkits(self) -> tuple[int, ...]:
        return () if self.source_only else self.cuda.toolkits

    @property
    def machine(self) -> Machine:
        return Machine(self.cuda.sm, self.toolkits)

    @property
    def options(self) -> str:
        """As the header of a project tells them."""
        return options_text(self.board, self.optimize, self.weights, self.further, stepwise=False)


def assemble_device(module: Module, plan: Plan, name: str, device: Device) -> Project:
    """The project of one model."""
    board = device.board
    sources, cubins, crowded = _compiled(
        device,
        lambda machine: emit_device(
            plan, name, machine, device.weights, meanings(module), numerics=device.numerics,
            options=device.options,
        ),
    )  # fmt: skip
    files = _files(device, sources, cubins, [(plan, sources.interface)], {"": sources.interface})
    return Project(
        sources.interface.name, files, module, plan, sources.interface, board,
        sources.const_bytes, _units(sources), sources.view, launches=sources.runs[0],
        crowded=crowded,
    )  # fmt: skip


def assemble_device_entries(parts: Sequence[Compiled], name: str, device: Device) -> EntriesProject:
    """The project of several entries."""
    emitted = [Part(part.name, part.plan, meanings(part.original)) for part in parts]
    sources, cubins, crowded = _compiled(
        device,
        lambda machine: emit_device_entries(
            emitted, name, machine, device.weights, numerics=device.numerics,
            options=device.options,
        ),
    )  # fmt: skip
    interfaces = {
        part.name: view.interface for part, view in zip(parts, sources.entries, strict=True)
    }
    planned = list(zip((part.plan for part in parts), interfaces.values(), strict=True))
    files = _files(device, sources, cubins, planned, interfaces)
    made = entries_project(parts, sources, files, device.board, _units(sources))
    return replace(made, crowded=crowded)


def _units(sources: Sources) -> tuple[str, ...]:
    name, weights = sources.view.name, sources.view.weights
    stored = (f"{name}_weights.c",) if weights.constants and weights.linked else ()
    return (f"{name}.c", f"{name}_cubin.c", *stored)


def _compiled(
    device: Device, emitted: Callable[[Machine], Sources]
) -> tuple[Sources, Mapping[int, bytes], Crowded]:
    """The sources, the machine code that each toolkit makes of them, if it is a part of the
    project, and the launches for which registers do not suffice. A function that spills registers
    is made again with more and more of them, as long as it spills less then: arrays that are
    indexed by variables stay in local memory."""
    machine, kept = device.machine, dict[str, int]()
    sources = first = emitted(machine)
    cubins = _cubins(device, sources)
    least = _spilled(device, cubins)
    tried = set(least)
    for quarters in range(1, QUARTERS):
        if not tried:
            break
        roomy = kept | dict.fromkeys(tried, quarters)
        made = emitted(replace(machine, roomy=roomy))
        after = _spilled(device, found := _cubins(device, made))
        fewer = {name for name in tried if after.get(name, 0) < least[name]}
        kept |= dict.fromkeys(fewer, quarters)
        least |= {name: after.get(name, 0) for name in fewer}
        if fewer == tried:
            sources, cubins = made, found
        elif fewer:
            sources = emitted(replace(machine, roomy=kept))
            cubins = _cubins(device, sources)
        tried = {name for name in fewer if least[name]}
    crowded = _crowded(first, sources, least, _threads(device.cuda.sm))
    return sources, {} if device.source_only else cubins, crowded


def _threads(sm: int) -> int:
    """That a processor holds (CUDA C++ Programming Guide, compute capabilities)."""
    if sm == 75:
        return 1024
    return 1536 if sm in (86, 87, 89) or sm >= 110 else 2048


def _crowded(first: Sources, sources: Sources, spilled: Mapping[str, int], threads: int) -> Crowded:
    """`first`: with all blocks; `threads`: that a processor holds."""
    found: dict[tuple[str, int], tuple[int, bool]] = {}
    for before, after in zip(first.runs, sources.runs, strict=True):
        for name, launches in after.items():
            for number, (whole, one) in enumerate(zip(before[name], launches, strict=True)):
                fewer = one.resident < whole.resident
                few = fewer and one.resident * one.threads * PART < threads
                cost = spilled.get(one.c_name, 0), few
                if cost != FREE:
                    found[name, number] = max(cost, found.get((name, number), FREE))
    return found


def _cubins(device: Device, sources: Sources) -> dict[int, bytes]:
    name = sources.view.name
    text = sources.files[f"{name}.cu"]
    return {
        toolkit: device.compile_kernels(text, name, device.cuda.sm, toolkit)
        for toolkit in (device.here if device.source_only else device.toolkits)
    }


def _spilled(device: Device, cubins: Mapping[int, bytes]) -> dict[str, int]:
    """The most local bytes of each function."""
    found: dict[str, int] = {}
    for cubin in cubins.values():
        for name, count in device.spilled(cubin).items():
            found[name] = max(count, found.get(name, 0))
    return found


def _files(
    device: Device,
    sources: Sources,
    cubins: Mapping[int, bytes],
    planned: Sequence[tuple[Plan, Interface]],
    interfaces: Mapping[str, Interface],
) -> Files:
    view, name, board = sources.view, sources.view.name, device.board
    texts = dict(sources.files)
    needs = needs_of(board, planned, sources.const_bytes)
    rows = tuple(CubinView(toolkit, _rows(cubin)) for toolkit, cubin in cubins.items())
    texts[f"{name}_cubin.c"] = render(
        "cuda/cubin.c.j2", model=view, capability=device.cuda.capability, sm=device.cuda.sm,
        cubins=rows,
    )  # fmt: skip
    texts["main.c"] = render("main.c.j2", model=view, header=sources.header)
    shown = {
        "model": view, "board": board, "needs": needs, "cubins": rows,
        "toolkits": " and ".join(map(str, cubins)), "package_version": PACKAGE_VERSION,
        "entries": sources.entries, "runs": sources.entries or (view,),
    }  # fmt: skip
    texts["CMakeLists.txt"] = render("cuda/CMakeLists.txt.j2", **shown)
    texts["README.md"] = render("cuda/README.md.j2", **shown)
    files = {path: text.encode() for path, text in texts.items()}
    said = figures(board, sources, {need.what: need.bytes for need in needs}, interfaces)
    files[MARKER] = (json.dumps(said, indent=1) + "\n").encode()
    headers = micro_kernel_headers([plan for plan, _ in planned])
    files |= runtime_headers(files | headers)
    return Files(files, sources.blocks)


def _rows(cubin: bytes) -> tuple[str, ...]:
    return tuple(
        ", ".join(map(str, cubin[start : start + _ROW])) for start in range(0, len(cubin), _ROW)
    )
