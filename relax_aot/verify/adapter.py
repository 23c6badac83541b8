# SPDX-License-Identifier: Apache-2.0
"""A generated model behind one uniform C table, so that every harness can call it.

The table is `struct raot_model` of boards/families/common/raot_model.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from relax_aot.emit.interface import Interface, Port
from relax_aot.emit.render import render


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    position: int


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
class AdapterView:
    name: str
    owner: str
    """Whose header, memory and weights they are: the model's, or those of all entries."""
    table: str
    """What the table is called: raot_model, where it is the program's."""
    prefix: str
    has_state: bool
    has_init: bool
    init_sizes: tuple[InitSize, ...]
    weights_apart: bool
    dims: tuple[Member, ...]
    results: tuple[Member, ...]
    inputs: tuple[Member, ...]
    outputs: tuple[Member, ...]
    input_sizes: tuple[str, ...]
    output_sizes: tuple[str, ...]
    input_sum: str
    output_sum: str
    input_table: str
    output_table: str
    dim_count: int
    input_count: int
    output_count: int
    result_count: int
    state_bytes: str
    init: str
    init_arguments: str
    run_arguments: str
    need: str
    need_at: str
    greatest: str
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
    view = replace(_view(interface), table=entry_table(interface), has_init=False, init="NULL")
    return render("verify/adapter.c.j2", adapter=view)


def entry_table(interface: Interface) -> str:
    return f"raot_model_{interface.name}"


def _view(interface: Interface) -> AdapterView:
    arguments = ["&memory"] + (["&named"] if interface.dims else [])
    sizes = _init_sizes(interface)
    run = list(arguments)
    run += ["&in"] if interface.inputs else []
    run += ["&out"] if interface.outputs else []
    run += ["&sizes"] if interface.results else []
    return AdapterView(
        name=interface.name,
        owner=interface.owner,
        table="raot_model",
        prefix=interface.prefix,
        has_state=interface.has_state,
        has_init=interface.has_init,
        init_sizes=sizes,
        weights_apart=interface.weights_apart,
        dims=_members([f.c_name for f in interface.dims]),
        results=_members([f.c_name for f in interface.results]),
        inputs=_members([p.c_name for p in interface.inputs]),
        outputs=_members([p.c_name for p in interface.outputs]),
        input_sizes=tuple(p.macro for p in interface.inputs),
        output_sizes=tuple(p.macro for p in interface.outputs),
        input_sum=_sum(interface.inputs),
        output_sum=_sum(interface.outputs),
        input_table="input_bytes" if interface.inputs else "NULL",
        output_table="output_bytes" if interface.outputs else "NULL",
        dim_count=len(interface.dims),
        input_count=len(interface.inputs),
        output_count=len(interface.outputs),
        result_count=len(interface.results),
        state_bytes=f"{interface.owner_prefix}_STATE_BYTES" if interface.has_state else "0",
        init="init" if interface.has_init else "NULL",
        init_arguments="&memory, &named" if sizes else "&memory",
        run_arguments=", ".join(run),
        need=" + ".join(f"{arena.need}()" for arena in interface.arenas),
        need_at=" + ".join(f"{arena.need}(&named)" for arena in interface.arenas),
        greatest=" + ".join(f"{arena.macro}_BYTES" for arena in interface.arenas),
        cuts=tuple(_cuts(interface)),
        parts=tuple(_parts(interface)),
    )


def _init_sizes(interface: Interface) -> tuple[InitSize, ...]:
    """The model's sizes; of several entries those that shape the state, where what the entry
    itself does not have is the least."""
    own = {field.source: f"dims[{number}]" for number, field in enumerate(interface.dims)}
    requested = interface.dims if interface.common is None else interface.common.shaping
    return tuple(InitSize(f.c_name, own.get(f.source, str(f.symbol.low))) for f in requested)


def _cuts(interface: Interface) -> Iterator[str]:
    """Each arena but the last gets what it needs, as far as the block goes; the last the rest."""
    *first, _ = interface.arenas
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


def _members(names: list[str]) -> tuple[Member, ...]:
    return tuple(Member(name, position) for position, name in enumerate(names))


def _sum(ports: tuple[Port, ...]) -> str:
    return " + ".join(f"RAOT_ROUND_UP_64({p.macro})" for p in ports) or "0"
