# SPDX-License-Identifier: Apache-2.0
"""Where the instructions go: each kernel of a model, counted on an emulated board.

Layers that share a function are counted in a build in which each has a function of its own. What a
kernel takes from the C library counts as the library's.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from relax_aot.emit.contexts import Layer
from relax_aot.emulation.cycles import NoEstimate
from relax_aot.emulation.harness import FunctionCost, HarnessCall, HarnessResult
from relax_aot.emulation.qemu import EmulatorError, require_emulator, run_image
from relax_aot.errors import RelaxAotError
from relax_aot.project import Project
from relax_aot.verify.emulate import TIMEOUT_SECONDS, build_image
from relax_aot.verify.host import StatusError
from relax_aot.verify.program import to_bytes
from relax_aot.verify.samples import Case
from relax_aot.verify.sequences import filling
from relax_aot.verify.sizes import require_shapes

UNMERGED = "#ifndef __clang__\n__attribute__((no_icf))\n#endif\n"
"""GCC makes one function of equal ones else."""


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """`origin` names the nodes of the source model; nothing for what is no kernel."""

    function: str
    origin: str
    instructions: int
    share: float
    cycles_estimated: int | None = None
    with_callees: int | None = None
    """An estimate of the cycles of a kernel and of all that it calls, as a hook around it takes."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One call. `instructions` are all of it; `as_shipped` those of the build without this
    profile's changes. Cycles are estimates, where they were asked for."""

    model: str
    board: str
    dims: Mapping[str, int]
    instructions: int
    as_shipped: int
    kernels: tuple[KernelProfile, ...]
    cycles_estimated: int | None = None
    cycles_as_shipped: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def profile(project: Project, case: Case, *, cycles: bool = False) -> Profile:
    """Runs `case` once; kernels that cost most come first. `cycles` estimates these, too."""
    require_emulator(project.board)
    layers = [layer for kernel in project.view.kernels for layer, _ in kernel.layers]
    counted = _run(_apart(project), case, cycles, layers if cycles else ())
    shipped = _run(project, case, cycles)
    total = counted.instructions
    if total is None or shipped.instructions is None:
        raise EmulatorError(
            f"the emulator of {project.board.name} cannot count instructions:"
            " it supports no plugins"
        )
    if cycles and counted.cycles is None:
        raise NoEstimate(
            f"cycles of {project.board.name} cannot be estimated: its emulator does not count"
            " jumps and reads of flash; install qemu-system-arm"
        )
    origins = dict(layer for kernel in project.view.kernels for layer in kernel.layers)
    found = _by_name(counted.functions)
    whole = _by_name(counted.marked)
    rows = tuple(
        KernelProfile(
            name,
            origins.get(name, ""),
            count,
            count / max(total, 1),
            estimate if cycles else None,
            whole[name][1] if name in whole else None,
        )
        for name, (count, estimate) in sorted(
            found.items(), key=lambda row: (-row[1][cycles], row[0])
        )
    )
    dims = {f.source: case.sizes[f.symbol.name] for f in project.interface.sizes}
    return Profile(
        project.name,
        project.board.name,
        dims,
        total,
        shipped.instructions,
        rows,
        counted.cycles,
        shipped.cycles,
    )


def _by_name(costs: Sequence[FunctionCost]) -> dict[str, tuple[int, int]]:
    """Instructions and cycles. The compiler appends to the names of functions that it made for
    fixed arguments."""
    counts: dict[str, tuple[int, int]] = {}
    for cost in costs:
        name = cost.name.partition(".")[0]
        if cost.instructions:
            count, cycles = counts.get(name, (0, 0))
            counts[name] = count + cost.instructions, cycles + (cost.cycles or 0)
    return counts


def read_measured(path: Path) -> dict[str, float]:
    """Cycles of kernels as a board printed them: a line `NAME CYCLES` for each, with spaces, a
    comma or a colon between. Other lines are skipped; the mean where a name comes again."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RelaxAotError(f"cannot read {path}: {error.strerror}") from error
    cycles: dict[str, list[int]] = {}
    for line in text.splitlines():
        found = re.fullmatch(r"\s*([A-Za-z_]\w*)[\s,:=]+(\d+)\s*", line)
        if found:
            cycles.setdefault(found[1], []).append(int(found[2]))
    if not cycles:
        raise RelaxAotError(f"{path}: no line is the name of a kernel and its cycles")
    return {name: sum(each) / len(each) for name, each in cycles.items()}


def _apart(project: Project) -> Project:
    """Layers that share a function have one each: a copy with the layer's name."""
    path = f"{project.interface.owner}.c"
    text = _with_copies(project.files[path].decode(), project.view.layers)
    for kernel in project.view.kernels:
        head = rf"RAOT_NOINLINE static (?:void|enum raot_status) {kernel.c_name}\("
        found = re.search(rf"^{head}.*?^\}}\n", text, re.M | re.S)
        for layer, _ in kernel.layers:
            if found is None or layer == kernel.c_name:
                continue
            copy = f"{UNMERGED}{found[0]}".replace(f" {kernel.c_name}(", f" {layer}(", 1)
            text = text.replace(found[0], f"{found[0]}\n{copy}", 1)
            call = rf"(RAOT_PROFILE\({layer},\s+(?:status = )?){kernel.c_name}\("
            text = re.sub(call, rf"\g<1>{layer}(", text)
    return replace(project, files=project.files | {path: text.encode()})


def _with_copies(text: str, layers: Sequence[Layer]) -> str:
    """The C where each call of a layer's function calls one of its own, whose kernels have the
    names of that layer."""
    for layer in layers:
        head = rf"^RAOT_NOINLINE static [\w ]+\s{layer.c_name}\(.*?^\}}\n"
        found = re.search(head, text, re.M | re.S)
        assert found is not None, layer.c_name
        before, *calls = re.split(rf"\b{layer.c_name}\(", text[found.end() :])
        copies = [found[0]]
        for number, names in enumerate(layer.layers[1:], 2):
            copy = re.sub(rf"\b{layer.c_name}\(", f"{layer.c_name}_{number}(", found[0], count=1)
            for first, own in zip(layer.layers[0], names, strict=True):
                copy = re.sub(rf"(?<=RAOT_PROFILE\()(\s*){first},", rf"\g<1>{own},", copy)
            copies.append(f"{UNMERGED}{copy}")
        numbered = [layer.c_name, *(f"{layer.c_name}_{n}" for n in range(2, len(calls) + 1))]
        rest = "".join(f"{name}({call}" for name, call in zip(numbered, calls, strict=True))
        text = text[: found.start()] + "\n".join(copies) + before + rest
    return text


def _run(project: Project, case: Case, cycles: bool, marked: Sequence[str] = ()) -> HarnessResult:
    interface = project.interface
    require_shapes(interface, case.sizes, case.inputs)
    calls = [
        HarnessCall(
            dims=tuple(one.sizes[f.symbol.name] for f in interface.sizes),
            inputs=tuple(to_bytes(a).tobytes() for a in one.inputs),
            init=interface.has_init and number == 0,
        )
        for number, one in enumerate([*filling(interface, case), case])
    ]
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        image = build_image(project, Path(scratch))
        *_, result = run_image(
            image, project.board, calls, TIMEOUT_SECONDS,
            functions=True, cycles=cycles, marked=marked,
        )  # fmt: skip
    if result.status:
        raise StatusError(result.status, f"{interface.name}_run")
    return result
