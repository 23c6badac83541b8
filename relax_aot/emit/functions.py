# SPDX-License-Identifier: Apache-2.0
"""The public functions of a generated project: their names, and what a call of each is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relax_aot.emit.interface import DimField, Interface


@dataclass(frozen=True, slots=True)
class PublicView:
    """A public function: its plain name, its declaration, the arguments that hand its parameters
    on, and what it does."""

    name: str
    returns: str
    parameters: str
    arguments: str
    note: str

    @property
    def hands_back(self) -> str:
        """What stands before a call of it in a function that returns the same."""
        return "" if self.returns == "void" else "return "

    @property
    def declaration(self) -> str:
        space = "" if self.returns.endswith("*") else " "
        return f"{self.returns}{space}{self.name}({self.parameters})"


@dataclass(frozen=True, slots=True)
class RenamingView:
    """How the bounds enter the names of public functions: the parameters of a macro, what
    it pastes together, and the macros of the bounds."""

    parameters: str
    pasted: str
    bounds: str

    @classmethod
    def of(cls, interface: Interface) -> RenamingView | None:
        """None where no bound can change."""
        fields = interface.movable
        if not fields:
            return None
        values = [f"value{number}" for number in range(len(fields))]
        return cls(
            ", ".join(["name", *values]),
            "".join(f"##_{f.c_name}##{v}" for f, v in zip(fields, values, strict=True)),
            ", ".join(f.macro for f in fields),
        )


def functions_of(interface: Interface) -> Iterator[PublicView]:
    """All of a model, or those of an entry."""
    sizes = f"const struct {interface.name}_dims *dims" if interface.dims else "void"
    bytes_arguments = "dims" if interface.dims else ""
    for arena in interface.arenas:
        most = f"{arena.macro}_BYTES"
        need = f"the bytes of memory.{arena.member} that a run needs"
        note = f"Returns {need}: {most}."
        if interface.dims:
            note = (
                f"Returns {need} at these sizes, at most {most}."
                f" For sizes out of range it returns {most}."
            )
        yield PublicView(arena.need, "size_t", sizes, bytes_arguments, note)
    if interface.common is None:
        yield from shared_functions(interface)
    name = interface.name
    run = interface.parameters(run=True)
    given = interface.arguments(run=True).replace("&", "")
    note = "Runs the model once. If the status is not RAOT_OK, outputs and state are unchanged."
    if interface.results:
        note += " `result` receives all sizes of this call."
        note += " Data-dependent members of `dims` need not be set."
    yield PublicView(f"{name}_run", "enum raot_status", run, given, note)
    if interface.device:
        yield from _stream_functions(interface, run, given)
    if interface.stepwise:
        yield from _step_functions(interface, run, given)


def _stream_functions(interface: Interface, run: str, given: str) -> Iterator[PublicView]:
    name = interface.name
    stream = "void *stream"
    result = bool(interface.results)
    yield PublicView(
        f"{name}_run_on",
        "enum raot_status",
        f"{stream}, {run}",
        f"stream, {given}",
        f"Starts a run in a CUDA stream and returns. Inputs and outputs are in memory of the GPU, "
        f"or mapped, and aligned to {interface.prefix}_ALIGNMENT."
        + (" Runs of all entries use one stream, or are ordered." if interface.common else "")
        + (" `result` is not used." if result else ""),
    )
    yield PublicView(
        f"{name}_wait",
        "enum raot_status",
        f"const struct {interface.owner}_memory *memory, {stream}"
        + (f", struct {name}_dims *result" if result else ""),
        "memory, stream" + (", result" if result else ""),
        f"Waits for the runs that {name}_run_on started in the stream. The status is that of the"
        " first that failed; the runs behind it did nothing."
        + (" `result` receives the sizes of the last run." if result else ""),
    )


def _device_functions(interface: Interface) -> Iterator[PublicView]:
    """What a model on a GPU has besides its runs."""
    name = interface.name
    memory = f"const struct {name}_memory *memory"
    yield PublicView(
        f"{name}_close",
        "void",
        memory,
        "memory",
        f"Gives back all that the model has on the GPU, and all mapped memory. Failures of the"
        f" driver on the way are in {name}_device_message.",
    )
    yield PublicView(
        f"{name}_alloc",
        "void *",
        f"{memory}, size_t bytes",
        "memory, bytes",
        f"Memory that CPU and GPU share, or null. {name}_run copies inputs and outputs that lie"
        " elsewhere.",
    )
    yield PublicView(
        f"{name}_free",
        "void",
        f"{memory}, void *pointer",
        "memory, pointer",
        f"Gives back memory of {name}_alloc.",
    )
    yield PublicView(
        f"{name}_device_message",
        "const char *",
        memory,
        "memory",
        "Says in words why a call returned RAOT_ERR_DEVICE.",
    )


def _step_functions(interface: Interface, run: str, given: str) -> Iterator[PublicView]:
    name = interface.name
    place = f"struct {name}_position *position"
    yield PublicView(
        f"{name}_begin",
        "enum raot_status",
        f"{place}, {run}",
        f"position, {given}",
        f"Begins a run that returns between kernels: performs every check of {name}_run and copies"
        " the arguments. The buffers belong to the run until `running` is 0.",
    )
    yield PublicView(
        f"{name}_step",
        "enum raot_status",
        place,
        "position",
        f"Runs the next kernel. Call it while position->running is not 0: at most"
        f" {interface.prefix}_STEPS times. State changes only in the last step, so a run may be"
        " canceled at any time.",
    )
    yield PublicView(
        f"{name}_step_name",
        "const char *",
        f"const {place}",
        "position",
        "Returns the name of the next step: a kernel as RAOT_PROFILE names it, (control),"
        " (commit), or nothing at the end.",
    )


def shared_functions(interface: Interface) -> Iterator[PublicView]:
    """What prepares the memory of a model, or of all entries."""
    name = interface.name
    if interface.weights_apart:
        yield PublicView(
            f"{name}_bind_weights",
            "enum raot_status",
            f"struct {name}_memory *memory, const void *block, size_t bytes",
            "memory, block, bytes",
            f"Checks `bytes` bytes at `block`, the contents of {name}_weights.bin, and sets"
            " memory->weights. RAOT_ERR_WEIGHTS means that they are damaged, truncated or"
            " generated for other code; memory is then unchanged.",
        )
    if interface.threaded:
        memory = f"const struct {name}_memory *memory"
        yield PublicView(
            f"{name}_worker",
            "enum raot_status",
            f"{memory}, int32_t worker",
            "memory, worker",
            f"Shares the loops of runs with this memory until {name}_stop. Each of up to"
            f" {interface.threads - 1} further threads calls it once, with its number from 1 on."
            " Runs are complete without it. RAOT_ERR_SIZE: the number is out of range or taken.",
        )
        yield PublicView(
            f"{name}_stop",
            "void",
            memory,
            "memory",
            f"Ends {name}_worker in all threads, also during a run. memory->team must be zero"
            " again before the next worker.",
        )
    if interface.device:
        yield from _device_functions(interface)
    if interface.has_init:
        init = [interface.parameters(run=False), interface.arguments(run=False)]
        checks = "Checks the weights. " if interface.weights_apart else ""
        if interface.device:
            copied = "Checks the weights and copies them there. " if interface.weights_apart else ""
            checks = f"Opens the GPU. {copied}"
        clears = "Clears the state and sets the sizes in its shape. " if interface.states else ""
        note = f"{checks}{clears}Call it before the first run"
        note += ", and to start again from a cleared state." if interface.states else "."
        yield PublicView(
            f"{name}_init", "enum raot_status", init[0], init[1].replace("&", ""), note
        )
    for field in interface.all_lengths:
        yield from length_functions(interface, field)


def length_functions(interface: Interface, field: DimField) -> tuple[PublicView, PublicView]:
    """What reads a length of growing states, and what truncates it."""
    name, memory = interface.owner, f"const struct {interface.owner}_memory *memory"
    states = ", ".join(p.c_name for p in interface.states if p.length == field.symbol.name)
    window = ", whose oldest rows calls drop" if field in interface.windows else ""
    rows = f"the rows of the growing state{'s' if ',' in states else ''} {states}".rstrip()
    return (
        PublicView(
            f"{name}_get_{field.c_name}",
            "int32_t",
            memory,
            "memory",
            f"Returns the number of {rows}: 0 to {field.macro}. A negative result is a status:"
            " RAOT_ERR_STATE before the first call of init.",
        ),
        PublicView(
            f"{name}_truncate_{field.c_name}",
            "enum raot_status",
            f"{memory}, int32_t length",
            "memory, length",
            f"Keeps the first `length` of {rows}{window}. RAOT_ERR_SIZE if `length` is negative or"
            " more than the state holds; nothing is changed then.",
        ),
    )
