"""The public functions of a generated project: their names, and what a call of each is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relax_aot.emit.interface import Interface, movable


@dataclass(frozen=True, slots=True)
class PublicView:
    """A public function: its plain name, and what a call of it is made of."""

    name: str
    returns: str
    parameters: str
    arguments: str


@dataclass(frozen=True, slots=True)
class RenamingView:
    """How the bounds enter the names of public functions: the parameters of a macro, what
    it pastes together, and the macros of the bounds."""

    parameters: str
    pasted: str
    bounds: str


def renaming(interface: Interface) -> RenamingView | None:
    """None where no bound can change."""
    fields = movable(interface)
    if not fields:
        return None
    values = [f"value{number}" for number in range(len(fields))]
    return RenamingView(
        ", ".join(["name", *values]),
        "".join(f"##_{f.c_name}##{v}" for f, v in zip(fields, values, strict=True)),
        ", ".join(f.macro for f in fields),
    )


def functions_of(interface: Interface) -> Iterator[PublicView]:
    """All of a model, or those of an entry."""
    sizes = f"const struct {interface.name}_dims *dims" if interface.dims else "void"
    bytes_arguments = "dims" if interface.dims else ""
    for arena in interface.arenas:
        yield PublicView(arena.need, "size_t", sizes, bytes_arguments)
    if interface.common is None:
        yield from shared_functions(interface)
    name = interface.name
    run = [parameters(interface, run=True), arguments(interface, run=True).replace("&", "")]
    yield PublicView(f"{name}_run", "enum raot_status", *run)
    if interface.stepwise:
        place = f"struct {name}_position *position"
        begun = (f"{place}, {run[0]}", f"position, {run[1]}")
        yield PublicView(f"{name}_begin", "enum raot_status", *begun)
        yield PublicView(f"{name}_step", "enum raot_status", place, "position")
        yield PublicView(f"{name}_step_name", "const char *", f"const {place}", "position")


def shared_functions(interface: Interface) -> Iterator[PublicView]:
    """What prepares the memory of a model, or of all entries."""
    name = interface.name
    if interface.weights_apart:
        yield PublicView(
            f"{name}_bind_weights",
            "enum raot_status",
            f"struct {name}_memory *memory, const void *block, size_t bytes",
            "memory, block, bytes",
        )
    if interface.has_init:
        init = [parameters(interface, run=False), arguments(interface, run=False)]
        yield PublicView(f"{name}_init", "enum raot_status", init[0], init[1].replace("&", ""))


def parameters(interface: Interface, *, run: bool) -> str:
    """As C declares them, of a run or of what prepares its memory."""
    name = interface.name
    parts = [f"const struct {interface.owner}_memory *memory"]
    if interface.dims:
        parts.append(f"const struct {name}_dims *dims")
    if run and interface.inputs:
        parts.append(f"const struct {name}_inputs *in")
    if run and interface.outputs:
        parts.append(f"const struct {name}_outputs *out")
    if run and interface.results:
        parts.append(f"struct {name}_dims *result")
    return ", ".join(parts)


def arguments(interface: Interface, *, run: bool) -> str:
    """Addresses of the variables that main.c declares."""
    parts = ["memory"] + (["dims"] if interface.dims else [])
    if run:
        parts += ["in"] if interface.inputs else []
        parts += ["out"] if interface.outputs else []
        parts += ["result"] if interface.results else []
    return ", ".join(f"&{part}" for part in parts)
