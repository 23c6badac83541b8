# SPDX-License-Identifier: Apache-2.0
"""A generated model behind one uniform C table, so that every harness can call it.

The table is `struct raot_model` of boards/families/common/raot_model.h.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.functions import length_functions
from relax_aot.emit.interface import DimField, Interface
from relax_aot.emit.render import render


@dataclass(frozen=True, slots=True)
class Part:
    """One arena of the model inside the block that a harness gives."""

    member: str
    start: str
    bytes: str


@dataclass(frozen=True, slots=True)
class InitSize:
    """A size that init is given."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Held:
    """A length of growing states: its functions, and where the sizes of a call have it."""

    get: str
    truncate: str
    place: int


@dataclass(frozen=True, slots=True)
class TableView:
    """What the tables of a model, of one entry and of all entries have in common."""

    interface: Interface
    """Whose memory and weights the table is called with."""
    interfaces: tuple[Interface, ...]
    """Whose inputs, outputs and result sizes it takes, in turn."""
    table: str
    """What the table is called: raot_model, where it is the program's."""
    dim_count: int
    greatest: str
    has_init: bool
    init_sizes: tuple[InitSize, ...]
    lengths: tuple[Held, ...]
    """Of growing states; one entry of several has those that it uses."""

    @property
    def run(self) -> str:
        """The function of adapter.c that runs a call."""
        return "run"

    @property
    def own_lengths(self) -> tuple[Held, ...]:
        """Those that the table has functions for: the table of one entry of several has none."""
        return self.lengths if self.interface.common is None else ()

    @property
    def input_sizes(self) -> tuple[str, ...]:
        return tuple(port.macro for one in self.interfaces for port in one.inputs)

    @property
    def output_sizes(self) -> tuple[str, ...]:
        return tuple(port.macro for one in self.interfaces for port in one.outputs)

    @property
    def input_count(self) -> int:
        return len(self.input_sizes)

    @property
    def output_count(self) -> int:
        return len(self.output_sizes)

    @property
    def result_count(self) -> int:
        return sum(len(one.results) for one in self.interfaces)

    @property
    def input_sum(self) -> str:
        return _sum(self.input_sizes)

    @property
    def output_sum(self) -> str:
        return _sum(self.output_sizes)

    @property
    def state_bytes(self) -> str:
        if self.interface.device:
            return f"{self.interface.owner_prefix}_DEVICE_BYTES"  # it is kept from call to call
        return f"{self.interface.owner_prefix}_STATE_BYTES" if self.interface.has_state else "0"

    @property
    def keeps_on_gpu(self) -> bool:
        """A state is read for the harness, by the table over several entries for all of them."""
        interface = self.interface
        return interface.device and interface.has_state and interface.common is None

    @property
    def first_state(self) -> str:
        """Where states begin, behind the header."""
        return self.interface.states[0].macro

    @property
    def links_block(self) -> bool:
        """The program has a separate block of weights that its harness may replace."""
        return self.interface.weights_apart and self.interface.weights_linked

    @property
    def need_depends(self) -> bool:
        """The arenas that a call needs depend on its sizes."""
        return bool(self.interface.dims and self.interface.arenas)

    @property
    def memory_const(self) -> str:
        """`const ` where no function changes the memory struct."""
        return "" if self.interface.threaded else "const "

    @property
    def init_arguments(self) -> str:
        return "&memory, &named" if self.init_sizes else "&memory"


@dataclass(frozen=True, slots=True)
class AdapterView(TableView):
    run_arguments: str
    need: str
    cuts: tuple[str, ...]
    """Statements that say where the block is cut into arenas."""
    parts: tuple[Part, ...]


def adapter_files(interface: Interface) -> dict[str, str]:
    """`adapter.c` and `model_sizes.h` for a generated project."""
    view = _view(interface)
    return {
        "adapter.c": render("verify/adapter.c.j2", adapter=view),
        "model_sizes.h": render("verify/model_sizes.h.j2", adapter=view),
    }


def entry_source(interface: Interface) -> str:
    """The table of one entry of several, under a name of its own; init is for all."""
    view = replace(_view(interface), table=entry_table(interface), has_init=False)
    return render("verify/adapter.c.j2", adapter=view)


def entry_table(interface: Interface) -> str:
    return f"raot_model_{interface.name}"


def _view(interface: Interface) -> AdapterView:
    given = (
        ("&memory", True),
        ("&named", interface.dims),
        ("&in", interface.inputs),
        ("&out", interface.outputs),
        ("&sizes", interface.results),
    )
    named = "&named" if interface.dims else ""
    return AdapterView(
        interface=interface,
        interfaces=(interface,),
        table="raot_model",
        dim_count=len(interface.sizes),
        greatest=" + ".join(f"{arena.macro}_BYTES" for arena in interface.arenas) or "0",
        has_init=interface.has_init,
        init_sizes=_init_sizes(interface),
        lengths=held_of(interface, interface.lengths, len(interface.dims)),
        run_arguments=", ".join(name for name, used in given if used),
        need=" + ".join(f"{arena.need}({named})" for arena in interface.arenas) or "0",
        cuts=tuple(_cuts(interface)),
        parts=tuple(_parts(interface)),
    )


def held_of(interface: Interface, fields: Sequence[DimField], first: int) -> tuple[Held, ...]:
    """The lengths, which stand from place `first` on."""
    return tuple(
        Held(get.name, truncate.name, place)
        for place, field in enumerate(fields, first)
        for get, truncate in [length_functions(interface, field)]
    )


def _init_sizes(interface: Interface) -> tuple[InitSize, ...]:
    """The model's sizes; of several entries those that shape the state, where what the entry
    itself does not have is the least."""
    own = {field.source: f"dims[{number}]" for number, field in enumerate(interface.dims)}
    requested = interface.dims if interface.common is None else interface.common.shaping
    return tuple(InitSize(f.c_name, own.get(f.source, str(f.symbol.low))) for f in requested)


def _cuts(interface: Interface) -> Iterator[str]:
    """Each arena but the last gets what it needs, as far as the block goes; the last the rest."""
    first = interface.arenas[:-1]
    if not first or not interface.dims:
        yield "(void)dims;"
    if first and interface.dims:
        yield f"const struct {interface.name}_dims named = dims_of(dims);"
    if first:
        yield "unsigned char *const block = buffers->arena;"
    taken = "0"
    for arena in first:
        need = f"{arena.need}({'&named' if interface.dims else ''})"
        yield f"const size_t need_{arena.member} = {need};"
        yield f"const size_t rest_{arena.member} = buffers->arena_bytes - ({taken});"
        yield (
            f"const size_t {arena.member}_bytes ="
            f" RAOT_MIN(need_{arena.member}, rest_{arena.member});"
        )
        taken = f"{taken} + {arena.member}_bytes"


def _parts(interface: Interface) -> Iterator[Part]:
    if interface.device:
        yield Part("device", "buffers->state", f"{interface.owner_prefix}_DEVICE_BYTES")
        return
    *first, last = interface.arenas
    if not first:
        yield Part(last.member, "buffers->arena", "buffers->arena_bytes")
        return
    start = "block"
    for arena in first:
        yield Part(arena.member, start, f"{arena.member}_bytes")
        start = f"{start} + {arena.member}_bytes"
    taken = " - ".join(["buffers->arena_bytes", *(f"{a.member}_bytes" for a in first)])
    yield Part(last.member, start, taken)


def _sum(macros: tuple[str, ...]) -> str:
    return " + ".join(f"RAOT_ROUND_UP_64({macro})" for macro in macros) or "0"
