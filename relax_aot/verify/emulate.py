# SPDX-License-Identifier: Apache-2.0
"""A project on an emulated board: built with the harness, run, outputs as arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relax_aot.binaries.stack import frame_of
from relax_aot.emit.interface import Interface
from relax_aot.emit.view import ModelView
from relax_aot.emulation.harness import HarnessCall, HarnessResult
from relax_aot.emulation.qemu import require_emulator, run_image
from relax_aot.errors import RelaxAotError
from relax_aot.project import Project
from relax_aot.project.board import Board
from relax_aot.toolchain.build import FILES, Image, build_target
from relax_aot.verify.adapter import adapter_files
from relax_aot.verify.host import outputs_of, to_bytes
from relax_aot.verify.library import RawResult
from relax_aot.verify.samples import Case
from relax_aot.verify.sizes import given_sizes, ordered_inputs, require_shapes, sizes_of

Array = NDArray[Any]
SMALL_FLAGS = ("-Os",)
TIMEOUT_SECONDS = 600.0
ADAPTER_RUN = "run"
"""The function of adapter.c that calls the model."""


class GuardError(RelaxAotError):
    """The generated code wrote outside the memory that it was given."""


@dataclass(frozen=True)
class Emulation:
    """One run on an emulated board."""

    status: int
    """The status of `<name>_run`: 0 is `RAOT_OK`."""
    outputs: dict[str, Array]
    """Arrays by output name."""
    instructions: int | None
    """Instructions of `<name>_run` alone; None if the emulator does not count them."""
    stack_bytes: int
    """The measured stack of `<name>_run`."""
    state: bytes = b""
    """The state block after the run."""


def emulate(
    project: Project,
    samples: Sequence[Mapping[str, Array]],
    sizes: Mapping[str, int] | None = None,
) -> list[Emulation]:
    """Consecutive runs in one program, by arrays; a state is kept from run to run. `sizes` are
    those that no shape determines, by the names of the source."""
    interface = project.interface
    given = given_sizes(interface.dims, sizes or {}, interface.fixed_sizes)
    cases: list[Case] = []
    for arrays in samples:
        inputs = ordered_inputs(interface, arrays)
        held = _state_sizes(interface, cases[0]) if cases else {}
        cases.append(Case(sizes_of(interface, inputs, given, held), tuple(inputs)))
    return emulate_cases(project, cases)


def _state_sizes(interface: Interface, first: Case) -> dict[str, int]:
    return {f.source: first.sizes[f.symbol.name] for f in interface.state_symbols}


Runner = Callable[[Image, Board, Sequence[HarnessCall]], list[HarnessResult]]
"""Where an image's calls are run: an emulator, or a board at the end of a line."""


def emulate_cases(project: Project, cases: Sequence[Case]) -> list[Emulation]:
    require_emulator(project.board)
    return run_cases(project, cases, partial(run_image, timeout=TIMEOUT_SECONDS))


def run_cases(project: Project, cases: Sequence[Case], runner: Runner) -> list[Emulation]:
    interface = project.interface
    for case in cases:
        require_shapes(interface, case.sizes, case.inputs)
    calls = [
        HarnessCall(
            dims=tuple(case.sizes[f.symbol.name] for f in interface.dims),
            inputs=tuple(to_bytes(a).tobytes() for a in case.inputs),
            init=interface.has_init and (case.anew or number == 0),
        )
        for number, case in enumerate(cases)
    ]
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        image = build_image(project, Path(scratch))
        results = runner(image, project.board, calls)
        above = frame_of(image.stack_files, ADAPTER_RUN)
    return [_emulation(project, c, r, above) for c, r in zip(cases, results, strict=True)]


def _emulation(project: Project, case: Case, result: HarnessResult, above: int) -> Emulation:
    """`above` are the bytes of stack that the adapter takes before it calls the model."""
    if not result.guards_ok:
        raise GuardError(
            f"{project.name} on {project.board.name} wrote outside its memory:"
            f" {', '.join(result.broken)}"
        )
    outputs: dict[str, Array] = {}
    if result.status == 0:
        raw = RawResult(
            0,
            result.sizes,
            tuple(np.frombuffer(data, np.uint8) for data in result.outputs),
            guards_ok=True,
            untouched=False,
        )
        outputs = outputs_of(project.interface, case.sizes, raw)
    stack = max(result.stack_bytes - above, 0)
    return Emulation(result.status, outputs, result.instructions, stack, result.state)


def build_image(project: Project, folder: Path, outside: str = FILES) -> Image:
    """The project with harness and adapter, cross-compiled. Builds are cached by content."""
    return build_adapted(project, adapter_files(project.interface), folder, outside)


class Built(Protocol):
    """What of a project an image is made of."""

    @property
    def files(self) -> dict[str, bytes]: ...
    @property
    def units(self) -> tuple[str, ...]: ...
    @property
    def board(self) -> Board: ...
    @property
    def view(self) -> ModelView: ...


def build_adapted(
    project: Built, adapter: Mapping[str, str], folder: Path, outside: str = FILES
) -> Image:
    sources = folder / "project"
    support = folder / "support"
    for name, content in project.files.items():
        _write(sources / name, content)
    for name, text in adapter.items():
        _write(support / name, text.encode())
    return build_target(
        project.board,
        [sources / unit for unit in project.units],
        [sources],
        folder / "image",
        SMALL_FLAGS if project.view.small else (),
        support=[support / name for name in adapter if name.endswith(".c")],
        outside=outside,
    )


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
