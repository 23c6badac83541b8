# SPDX-License-Identifier: Apache-2.0
"""Several planned modules -> the C of one model with several entries.

Weights whose bytes are equal are stored once, states of one name are one buffer, sizes of one
name have one bound, and kernels that come out the same are one function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit import rendered
from relax_aot.emit.arenas import ArenaView, greatest_of
from relax_aot.emit.bounds import BoundView
from relax_aot.emit.c_names import Names, comment, identifier
from relax_aot.emit.contexts import RunContext, gpu_port, make_contexts
from relax_aot.emit.functions import shared_functions
from relax_aot.emit.header import SizeView, arena_sizes, device_sizes, memory_sizes
from relax_aot.emit.initial import NOTHING, Initial
from relax_aot.emit.interface import (
    STEP_FUNCTIONS,
    TAKEN_MACROS,
    ArenaPort,
    CommonInterface,
    DimField,
    Interface,
    StatePart,
    fixed_symbols,
    interface_of,
    padded_header,
    state_parts,
)
from relax_aot.emit.layers import with_layers
from relax_aot.emit.lengths import length_views
from relax_aot.emit.sources import Sources
from relax_aot.emit.view import ModelView, StateView, model_view, state_views
from relax_aot.emit.weights import Weights, weights_of
from relax_aot.externs import ExternTable
from relax_aot.ir.dims import interval
from relax_aot.ir.graph import Constant
from relax_aot.planning import Plan
from relax_aot.planning.regions import Region, place_constants


@dataclass(frozen=True, slots=True)
class Part:
    """One entry: its name, its plan, and the formulas of quantized inputs and results."""

    name: str
    plan: Plan
    meanings: Mapping[str, str]


def emit_entries(
    parts: Sequence[Part],
    name: str,
    externs: ExternTable,
    weights: str,
    sharing: str,
    regions: Sequence[Region] = (),
    *,
    stepwise: bool = False,
    options: str = "",
    threads: int = 1,
    ordered: bool = False,
    thumb1: bool = False,
    functions: str = "auto",
    initial: Initial = NOTHING,
) -> Sources:
    """The C of these entries; `regions` are the board's, of which some hold constants."""
    common = initial.of_lengths(common_interface(parts, identifier(name).lower()))
    constants, same = common_constants(parts)
    constants += initial.constants(common)
    apart = weights == "blob" and bool(constants)
    interfaces = tuple(
        interface_of(
            part.plan,
            f"{common.name}_{part.name}",
            weights_apart=apart,
            meanings=part.meanings,
            common=common,
            stepwise=stepwise,
            threads=threads,
        )
        for part in parts
    )
    alignment = max(part.plan.alignment for part in parts)
    placed = place_constants(constants, [r for r in regions if r.constants], alignment)
    form = "auto" if weights == "blob" and not apart else weights
    verbs = ("run", "arena_bytes", *(STEP_FUNCTIONS if stepwise else ()))
    taken = [f"{part.name}_{verb}" for part in parts for verb in verbs]
    stored = weights_of(constants, common.name, alignment, placed, form, taken)
    interfaces = tuple(replace(one, weights_linked=stored.linked) for one in interfaces)
    contexts = make_contexts(
        [
            (part.plan, interface, {own: stored.names[one] for own, one in table.items()})
            for part, interface, table in zip(parts, interfaces, same, strict=True)
        ],
        externs.names | externs.macros,
        sharing,
    )
    if functions == "auto":
        contexts = with_layers(contexts, externs.names | externs.macros)
    views = tuple(
        model_view(
            context,
            stored,
            externs.units,
            options,
            small=sharing == "all",
            ordered=ordered,
            thumb1=thumb1,
        )
        for context in contexts
    )
    shared = shared_view(shared_interface(common, interfaces), contexts, views, stored)
    first = tuple(initial.statements(common, stored.names))
    return rendered(replace(shared, initial=first), views, externs)


# What is shared


def common_interface(parts: Sequence[Part], name: str) -> CommonInterface:
    prefix = name.upper()
    fields = Names(reserved=())
    macros = Names(TAKEN_MACROS, before=f"{prefix}_")
    dims: dict[str, DimField] = {}
    fixed: dict[str, DimField] = {}
    lengths: dict[str, DimField] = {}
    states: dict[str, StatePart] = {}
    shaping: set[str] = set()
    offsets = Names(before=f"{prefix}_STATE_OFFSET_")
    alignment = max(part.plan.alignment for part in parts)
    bytes_of: dict[str, int] = {}
    for part in parts:
        module = part.plan.module
        for symbol in module.symbols:
            source = module.source_name(symbol.name)
            if symbol.inner or source in dims or source in fixed or source in lengths:
                continue
            held = symbol in fixed_symbols(module)
            c_name = (Names() if held else fields).claim(source)
            # A macro of a size is none of an entry's, whatever the entry is called.
            spelt = c_name.upper()
            if any(spelt.startswith(f"{other.name.upper()}_") for other in parts):
                spelt = f"SIZE_{spelt}"
            macro = f"{prefix}_{macros.claim(spelt + '_MAX')}"
            found = fixed if held else lengths if symbol.growth is not None else dims
            found[source] = DimField.of(symbol, source, c_name, macro)
        for own in state_parts(module, prefix):
            shaping |= {module.source_name(symbol) for symbol in own.type.symbols}
            if own.source not in states:
                c_name = offsets.claim(own.source)
                macro = f"{prefix}_STATE_OFFSET_{c_name.upper()}"
                states[own.source] = replace(own, input=own.source, c_name=c_name, macro=macro)
                greatest = interval(own.type.bytes, module.bounds)[1]
                bytes_of[own.source] = -(-greatest // alignment) * alignment
    order = tuple(dims.values())
    header = tuple(field for field in order if field.source in shaping)
    windows = [f for f in lengths.values() if f.symbol.growth and f.symbol.growth.is_window]
    words = len(header) + len(lengths) + len(windows)
    return CommonInterface(
        name,
        prefix,
        order,
        tuple(states.values()),
        header,
        padded_header(words, alignment) + sum(bytes_of.values()) if states else 0,
        tuple(fixed.values()),
        tuple(lengths.values()),
    )


def common_constants(
    parts: Sequence[Part],
) -> tuple[tuple[Constant, ...], list[dict[str, str]]]:
    """Constants of different bytes, and for each entry which of them its own are."""
    names = Names()
    found: dict[tuple[str, int, str], Constant] = {}
    same: list[dict[str, str]] = []
    for part in parts:
        table: dict[str, str] = {}
        for constant in part.plan.module.constants:
            type_ = constant.type
            own = f"{part.name} {constant.name}" if constant.limits else ""
            key = (type_.dtype.value, type_.elements.constant, own or constant.digest)
            if key not in found:
                found[key] = replace(constant, name=names.claim(constant.name))
            table[constant.name] = found[key].name
        same.append(table)
    return tuple(found.values()), same


def shared_interface(common: CommonInterface, interfaces: Sequence[Interface]) -> Interface:
    """The memory of all entries, and the sizes that init is given."""
    arenas: dict[str, ArenaPort] = {}
    for interface in interfaces:
        for arena in interface.arenas:
            stem = f"{common.name}_{arena.member}"
            port = ArenaPort(arena.member, stem.upper(), f"{stem}_bytes")
            arenas.setdefault(arena.member, port)
    return Interface(
        common.name,
        common.prefix,
        tuple(arenas.values()),
        common.shaping,
        (),
        (),
        (),
        common.states,
        (),
        interfaces[0].weights_apart,
        stepwise=interfaces[0].stepwise,
        fixed=common.fixed,
        lengths=common.lengths,
        threads=interfaces[0].threads,
        weights_linked=interfaces[0].weights_linked,
        device=interfaces[0].device,
    )


# What templates see


def shared_view(
    shared: Interface,
    contexts: Sequence[RunContext],
    views: Sequence[ModelView],
    stored: Weights,
    device_bytes: int = 0,
) -> ModelView:
    """What of the text belongs to no entry alone."""
    first = views[0]
    states, state = _states(shared, contexts)
    bounds = _bounds(views)
    arenas = _arenas(shared, views)
    alignment = max(view.alignment for view in views)
    sizes = [*memory_sizes(shared, alignment, state, stored.block_bytes), *arena_sizes(arenas)]
    on_gpu = [view.gpu_arena for view in views if view.gpu_arena]
    gpu_arena = _greatest_arena(gpu_port(shared), on_gpu) if on_gpu else None
    sizes += device_sizes(shared, gpu_arena, device_bytes) if gpu_arena else ()
    shaping = {field.macro for field in shared.dims}
    functions = [function for view in views for function in view.functions]
    return replace(
        first,
        interface=shared,
        name=shared.name,
        prefix=shared.prefix,
        source=comment(", ".join(dict.fromkeys(view.source for view in views))),
        graph=tuple(line for view in views for line in view.graph),
        bounds=bounds,
        lengths=length_views(shared),
        functions=(*shared_functions(shared), *functions),
        init=shared.parameters(run=False),
        members=tuple(bound for bound in bounds if bound.macro in shaping),
        sizes=tuple(sizes),
        inputs=(),
        outputs=(),
        arenas=arenas,
        alignment=alignment,
        slots=(),
        within=None,
        states=states,
        init_arguments=shared.arguments(run=False),
        checks=first.checks.of_init(shared),
        body=replace(first.body, parts=None, step=None),
        includes=replace(
            first.includes,
            micro=tuple(sorted({h for view in views for h in view.includes.micro})),
            externs=tuple(dict.fromkeys(h for view in views for h in view.includes.externs)),
            checks=tuple(dict.fromkeys(c for view in views for c in view.includes.checks)),
        ),
        kernels=tuple(kernel for view in views for kernel in view.kernels),
        layers=tuple(layer for view in views for layer in view.layers),
        index_reach="",
        gpu_arena=gpu_arena,
    )


def _bounds(views: Sequence[ModelView]) -> tuple[BoundView, ...]:
    """Each size once; every entry must be able to bear a bound that is raised."""
    found: dict[str, BoundView] = {}
    for view in views:
        for bound in view.bounds:
            if not bound.entry:
                continue
            known = found.setdefault(bound.macro, bound)
            made = [b.made_for for b in (known, bound) if b.has_made_for]
            found[bound.macro] = replace(
                known,
                limit=min(known.limit, bound.limit),
                has_made_for=bool(made),
                made_for=min(made, default=0),
            )
    return tuple(found.values())


def _states(
    shared: Interface, contexts: Sequence[RunContext]
) -> tuple[tuple[StateView, ...], SizeView | None]:
    """Sizes are worked out in an entry that has the state: its symbols are those of the type."""
    sizes: dict[str, tuple[str, int]] = {}
    for context in contexts:
        for part in context.interface.states:
            sizes.setdefault(part.source, context.rounded(part.type.bytes))
    names = {part.source: part.c_name for part in shared.states}
    first = shared.header_bytes(contexts[0].plan.alignment)
    return state_views(shared.states, names, sizes, first, shared.prefix)


def _arenas(shared: Interface, views: Sequence[ModelView]) -> tuple[ArenaView, ...]:
    """One arena serves all entries, one at a time: what the greatest of them needs."""
    return tuple(
        _greatest_arena(port, [a for view in views for a in view.arenas if a.member == port.member])
        for port in shared.arenas
    )


def _greatest_arena(port: ArenaPort, own: Sequence[ArenaView]) -> ArenaView:
    stem = f"{port.macro.removesuffix('_ARENA')}_GREATEST"
    size = max(arena.bytes for arena in own)
    parts, greatest = greatest_of(stem, [f"(long long){arena.macro}_BYTES" for arena in own])
    if all(arena.greatest.isdigit() for arena in own):
        parts, greatest = (), str(size)
    used = any(arena.used for arena in own)
    return replace(
        own[0], macro=port.macro, function=port.need, used=used, bytes=size, parts=parts,
        greatest=greatest,
    )  # fmt: skip
