# SPDX-License-Identifier: Apache-2.0
"""The host part of a model on a GPU: plain C that opens the driver and starts the launches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from relax_aot.emit.c_names import identifier
from relax_aot.emit.contexts import RunContext, device_context
from relax_aot.emit.cuda_program import DeviceProgram, device_programs
from relax_aot.emit.cuda_view import CubinView, DeviceView, KernelView, UploadView, run_view
from relax_aot.emit.entries import (
    Part,
    common_constants,
    common_interface,
    shared_interface,
    shared_view,
)
from relax_aot.emit.header import HeaderView
from relax_aot.emit.interface import Interface, interface_of
from relax_aot.emit.render import render
from relax_aot.emit.sources import Sources
from relax_aot.emit.step_code import mentioned
from relax_aot.emit.view import ModelView, model_view
from relax_aot.emit.weights import Weights, weights_of
from relax_aot.ir.graph import Constant
from relax_aot.planning import Plan

_ALIGNMENT = 256
"""Of constants on the GPU."""
_BLOCK_BYTES = 1024
"""More than the fixed part of the block on the host takes, on 64-bit machines."""
_RUN_BYTES = 64
_LAUNCH_BYTES = 16
_WORD_BYTES = 8
_LIBRARY_BYTES = 256
_PRODUCT_BYTES = 1280


@dataclass(frozen=True, slots=True)
class Machine:
    """What kernels are compiled for: ten times the compute capability, and the major versions of
    CUDA whose compilers do so; none where the user compiles them. `roomy`: by how many quarters
    fewer blocks of a function are resident, so that threads have more registers."""

    sm: int
    toolkits: tuple[int, ...]
    roomy: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Constants:
    """Constants as the project stores them, and on the GPU: what is copied there, and all
    bytes."""

    stored: Weights
    uploads: tuple[UploadView, ...]
    places: Mapping[str, str]
    """The C of each place, by name."""
    bytes: int


def emit_device(
    plan: Plan,
    name: str,
    machine: Machine,
    weights: str = "auto",
    meanings: Mapping[str, str] | None = None,
    *,
    options: str = "",
    numerics: str = "blocked",
) -> Sources:
    """The C and CUDA C++ of a planned module whose kernels are in the device form."""
    own = _constants(plan.module.constants, identifier(name).lower(), plan.alignment, weights)
    interface = interface_of(
        plan, name, weights_apart=own.stored.apart, meanings=meanings, device=True
    )
    interface = replace(interface, weights_linked=own.stored.linked)
    context = device_context(plan, interface, own.places)
    programs, text = _programs([context], interface, machine)
    block = _block_bytes(programs, [interface], plan.alignment)
    view = _checking(
        model_view(context, own.stored, (), options, **_chosen(numerics), device_bytes=block)
    )
    device = _view(view, [context], [view], programs, machine, own)
    return replace(_rendered(view, (), device, text), runs=(programs[0].launches,))


def emit_device_entries(
    parts: Sequence[Part],
    name: str,
    machine: Machine,
    weights: str = "auto",
    *,
    options: str = "",
    numerics: str = "blocked",
) -> Sources:
    """The same of several entries, which share weights, state, arena and functions."""
    common = common_interface(parts, identifier(name).lower())
    constants, same = common_constants(parts)
    alignment = max(part.plan.alignment for part in parts)
    own = _constants(constants, common.name, alignment, weights)
    contexts = []
    for part, table in zip(parts, same, strict=True):
        entry = f"{common.name}_{part.name}"
        interface = interface_of(
            part.plan, entry, weights_apart=own.stored.apart, meanings=part.meanings,
            common=common, device=True,
        )  # fmt: skip
        interface = replace(interface, weights_linked=own.stored.linked)
        places = {mine: own.places[one] for mine, one in table.items()}
        contexts.append(device_context(part.plan, interface, places))
    shared = shared_interface(common, [context.interface for context in contexts])
    programs, text = _programs(contexts, shared, machine)
    views = [
        _checking(model_view(one, own.stored, (), options, **_chosen(numerics))) for one in contexts
    ]
    block = _block_bytes(programs, [context.interface for context in contexts], alignment)
    view = shared_view(shared, contexts, views, own.stored, block)
    device = _view(view, contexts, views, programs, machine, own)
    runs = tuple(program.launches for program in programs)
    return replace(_rendered(view, views, device, text), runs=runs)


def _chosen(numerics: str) -> dict[str, bool]:
    return {"ordered": numerics == "ordered", "tf32": numerics == "tf32"}


def _checking(view: ModelView) -> ModelView:
    """With the sizes alone that the checks of a call speak of: the rest of a run is elsewhere."""
    checks = view.checks
    texts = [*checks.data_null, *checks.alignment, *checks.writes]
    texts += checks.reads if checks.writes else ()
    texts += [check.condition for check in checks.relations]
    texts += [text for one in checks.lengths for text in (one.c_name, one.full, one.first)]
    return replace(view, body=replace(view.body, locals=mentioned(view.body.locals, texts)))


def _constants(constants: Sequence[Constant], name: str, alignment: int, form: str) -> _Constants:
    if form == "blob" and not constants:
        form = "auto"
    stored = weights_of(constants, name, alignment, {}, form, ("cubin",))
    if stored.layout:
        parts = zip(constants, stored.layout.parts, strict=True)
        at = {constant.name: f"weights + {part.offset}u" for constant, part in parts}
        whole = UploadView("weights", stored.block_bytes, 0)
        return _Constants(stored, (whole,), at, stored.block_bytes)
    rows, places, offset = [], {}, 0
    for constant in constants:
        size = constant.type.bytes.constant
        places[constant.name] = f"weights + {offset}u"
        if size:
            rows.append(UploadView(stored.names[constant.name], size, offset))
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    return _Constants(stored, tuple(rows), places, offset)


def _programs(
    contexts: Sequence[RunContext], shared: Interface, machine: Machine
) -> tuple[tuple[DeviceProgram, ...], str]:
    interfaces = [context.interface for context in contexts]
    taken = [name for one in (shared, *interfaces) for name in one.own_functions]
    taken += [name for context in contexts for name in context.symbols.values()]
    return device_programs(contexts, shared.name, taken, machine.roomy)


def _block_bytes(
    programs: Sequence[DeviceProgram], interfaces: Sequence[Interface], alignment: int
) -> int:
    """Of the struct that cuda/block.c.j2 declares, at most."""
    calls = [call for program in programs for call in program.calls]
    words = sum(len(call.words) for call in calls) + max(len(call.words) for call in calls)
    functions = len({call.function for call in calls})
    total = _BLOCK_BYTES + _LAUNCH_BYTES * len(calls) + _WORD_BYTES * (words + functions)
    total += interfaces[0].header_bytes(alignment)
    total += sum(_RUN_BYTES + 4 * len(interface.dims) for interface in interfaces)
    products = [product for program in programs for product in program.products]
    if products:
        total += _LIBRARY_BYTES + (_PRODUCT_BYTES + 2 * _RUN_BYTES) * len(products)
    return -(-total // 64) * 64


def _view(
    shown: ModelView,
    contexts: Sequence[RunContext],
    views: Sequence[ModelView],
    programs: Sequence[DeviceProgram],
    machine: Machine,
    own: _Constants,
) -> DeviceView:
    interface = shown.interface
    calls = (call for program in programs for call in program.calls)
    functions = {call.function: call.dynamic_bytes for call in calls}
    names, parts = tuple(functions), zip(contexts, programs, views, strict=True)
    runs = tuple(run_view(context, program, names, view) for context, program, view in parts)
    needs_dims = any("dims" in run.launch_parameters and not run.opening for run in runs)
    opening = [f", const struct {interface.name}_dims *dims"] * needs_dims
    opening += [", const void *weights"] * interface.weights_apart
    return DeviceView(
        sm=machine.sm,
        cubins=tuple(CubinView(t, f"{interface.name}_cubin_{t}") for t in machine.toolkits or (0,)),
        functions=tuple(KernelView(*pair) for pair in functions.items()),
        uploads=own.uploads,
        weights_bytes=own.bytes,
        header_words=interface.header_bytes(shown.alignment) // 4,
        state_bytes=f"{interface.prefix}_STATE_BYTES" if interface.has_state else "0u",
        open_parameters="".join(opening),
        runs=runs,
    )


def _rendered(
    view: ModelView, entries: Sequence[ModelView], device: DeviceView, text: str
) -> Sources:
    name = view.name
    bare = render("cuda/host.c.j2", model=view, device=device) + text
    view = replace(view, weights=view.weights.packed(re.sub(r"/\*.*?\*/", "", bare, flags=re.S)))
    code = render("cuda/host.c.j2", model=view, device=device)
    template = "cuda/entries_example.c.j2" if entries else "cuda/example.c.j2"
    example = render(template, model=view, entries=entries)
    sizes = [size for one in (view, *entries) for size in one.sizes]
    told = ["RAOT_ERR_DEVICE", *re.findall(r"frame(?:, |\[0\] = )(RAOT_ERR_\w+)", text)]
    header = HeaderView.of(view.interface, sizes, " ".join([code, *told]), example)
    files = {
        f"{name}.h": render("model.h.j2", model=view, entries=entries, header=header),
        f"{name}_layout.h": render("layout.h.j2", model=view, entries=entries),
        f"{name}.c": code,
        f"{name}.cu": text,
    }
    if view.weights.linked:
        files[f"{name}_weights.h"] = render("weights.h.j2", model=view)
        files[f"{name}_weights.c"] = render("weights.c.j2", model=view)
    if view.bounds:
        files[f"{name}_config.h"] = render("config.h.j2", model=view)
    block = view.weights.block
    blocks = {} if block is None else {f"{name}_weights.bin": block}
    return Sources(files, blocks, view.interface, view, header, tuple(entries))
