# SPDX-License-Identifier: Apache-2.0
"""The host part of a model on a GPU: plain C that opens the driver and starts the launches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.arenas import LocalView
from relax_aot.emit.c_names import comment
from relax_aot.emit.contexts import RunContext, device_context
from relax_aot.emit.cuda_control import Call
from relax_aot.emit.cuda_program import DeviceProgram, device_program
from relax_aot.emit.header import HeaderView
from relax_aot.emit.interface import Interface, Port, interface_of
from relax_aot.emit.lengths import grown, header_c
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
_LAUNCH_BYTES = 16
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Machine:
    """What kernels are compiled for: ten times the compute capability, and the major versions of
    CUDA whose compilers do so; none where the user compiles them."""

    sm: int
    toolkits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UploadView:
    source: str
    bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class CallView:
    note: str
    text: str


@dataclass(frozen=True, slots=True)
class TransferView:
    """An input or output on its way between the memories."""

    member: str
    field: str
    """The member of the struct of addresses."""
    macro: str
    offset: str
    """A constant: where its copy lies."""
    bytes: str
    """Of this call."""
    room: str
    """What the memory of the caller has at least."""


@dataclass(frozen=True, slots=True)
class CubinView:
    toolkit: int
    label: str


@dataclass(frozen=True, slots=True)
class DeviceView:
    """What the templates of the host part see besides the model."""

    sm: int
    cubins: tuple[CubinView, ...]
    functions: tuple[str, ...]
    uploads: tuple[UploadView, ...]
    weights_bytes: int
    calls: tuple[CallView, ...]
    addresses: tuple[LocalView, ...]
    """Of memory on the GPU, as the launches speak of it."""
    locals: tuple[LocalView, ...]
    """Sizes that the launches speak of."""
    launch_parameters: str
    """Behind the block of the host, as C declares them."""
    open_parameters: str
    inputs: tuple[TransferView, ...]
    outputs: tuple[TransferView, ...]
    inputs_end: str
    outputs_end: str
    run_locals: tuple[LocalView, ...]
    """Sizes that the copies speak of."""
    late_locals: tuple[LocalView, ...]
    """Sizes from data that the copies of outputs speak of."""
    grown_locals: tuple[LocalView, ...]
    results: tuple[LocalView, ...]
    wait_results: tuple[LocalView, ...]
    grown: tuple[str, ...]
    """Statements behind a successful run: the lengths of states."""
    lengths: tuple[LocalView, ...]
    """Lengths in the header, and the words that hold them after a run that failed."""
    word_count: int
    most_words: int
    header_words: int
    keeps_dims: bool
    """The sizes of the last run are kept for the function that waits for it."""
    state_bytes: str
    check_parameters: str
    run_arguments: str
    wait_result: str

    @property
    def transfers(self) -> tuple[TransferView, ...]:
        return self.inputs + self.outputs

    @property
    def launch_arguments(self) -> str:
        return _names(self.launch_parameters, at="&at")

    @property
    def open_arguments(self) -> str:
        return _names(self.open_parameters)

    @property
    def function_count(self) -> int:
        return len(self.functions)

    @property
    def call_count(self) -> int:
        return len(self.calls)

    @property
    def cubin_count(self) -> int:
        return len(self.cubins)

    @property
    def upload_count(self) -> int:
        return len(self.uploads)


def emit_device(
    plan: Plan,
    name: str,
    machine: Machine,
    weights: str = "auto",
    meanings: Mapping[str, str] | None = None,
    *,
    options: str = "",
    ordered: bool = False,
) -> Sources:
    """The C and CUDA C++ of a planned module whose kernels are in the device form."""
    interface = interface_of(plan, name, meanings=meanings, device=True)
    stored = weights_of(
        plan.module.constants, interface.name, plan.alignment, {}, weights, ("cubin",)
    )
    interface = replace(interface, weights_linked=stored.linked)
    uploads, places, weights_bytes = _uploads(plan.module.constants, stored)
    context = device_context(plan, interface, places)
    taken = [*interface.own_functions, *context.symbols.values()]
    program = device_program(context, interface.name, taken)
    block = _block_bytes(program, interface, plan.alignment)
    view = model_view(context, stored, (), options, ordered=ordered, device_bytes=block)
    shown = _view(context, program, machine, uploads, weights_bytes, view)
    return _rendered(view, shown, program)


def _uploads(
    constants: Sequence[Constant], stored: Weights
) -> tuple[tuple[UploadView, ...], dict[str, str], int]:
    """Each constant with its place on the GPU, the C of that place by name, and all bytes."""
    rows, places, offset = [], {}, 0
    for constant in constants:
        size = constant.type.bytes.constant
        places[constant.name] = f"weights + {offset}u"
        if size:
            rows.append(UploadView(stored.names[constant.name], size, offset))
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    return tuple(rows), places, offset


def _block_bytes(program: DeviceProgram, interface: Interface, alignment: int) -> int:
    calls = program.calls
    words = sum(len(call.words) for call in calls) + max(len(call.words) for call in calls)
    functions = len({call.function for call in calls})
    total = _BLOCK_BYTES + _LAUNCH_BYTES * len(calls) + _WORD_BYTES * (words + functions)
    total += interface.header_bytes(alignment) + 4 * len(interface.dims)
    return -(-total // 64) * 64


def _view(
    context: RunContext,
    program: DeviceProgram,
    machine: Machine,
    uploads: tuple[UploadView, ...],
    weights_bytes: int,
    view: ModelView,
) -> DeviceView:
    interface = context.interface
    functions = tuple(dict.fromkeys(call.function for call in program.calls))
    slots = {slot.c_name: f"arena + {slot.offset_macro}" for slot in view.slots}
    calls = tuple(_call(call, functions, slots) for call in program.calls)
    texts = [call.text for call in calls]
    inputs, inputs_end = _transfers(context, "in", interface.inputs, "0")
    outputs, outputs_end = _transfers(context, "out", interface.outputs, "COPIES_IN")
    growth = tuple(grown(context))
    given = _sizes(context)
    late = [
        LocalView(context.symbols[name], f"cuda->words[{word}]", "")
        for name, word in program.results.items()
    ]
    own = [replace(one, value=one.value.replace(_HEADER, "device->header")) for one in given]
    locals_ = mentioned(own, texts)
    dims = f", const struct {interface.name}_dims *dims"
    needs_dims = any(one.value.startswith("dims->") for one in locals_)
    at = ", const struct places *at" * any("at->" in text for text in texts)
    opening = dims if needs_dims else ""
    results = view.body.results
    late_names = {one.c_name: one.value for one in late}
    words = [len(call.words) for call in program.calls]
    sizes = [one.bytes for one in (*inputs, *outputs)]
    return DeviceView(
        sm=machine.sm,
        cubins=tuple(CubinView(t, f"{interface.name}_cubin_{t}") for t in machine.toolkits or (0,)),
        functions=functions,
        uploads=uploads,
        weights_bytes=weights_bytes,
        calls=calls,
        addresses=mentioned([LocalView(n, f"device->cuda.{n}", "") for n in _BLOCKS], texts),
        locals=locals_,
        launch_parameters=opening + at,
        open_parameters=opening,
        inputs=inputs,
        outputs=outputs,
        inputs_end=inputs_end,
        outputs_end=outputs_end,
        run_locals=mentioned(given, [*sizes, *growth]),
        late_locals=mentioned(late, [*sizes, *(r.value for r in results)]),
        grown_locals=mentioned(given, growth),
        results=results,
        wait_results=tuple(
            replace(r, value=late_names.get(r.value, r.value.replace("dims->", "device->dims.")))
            for r in results
        ),
        grown=growth,
        lengths=tuple(
            LocalView(header_c(interface, f, const=""), str(program.lengths[f.symbol.name]), "")
            for f in interface.lengths
        ),
        word_count=sum(words),
        most_words=max(words),
        header_words=interface.header_bytes(context.plan.alignment) // 4,
        keeps_dims=bool(results and interface.dims),
        state_bytes=f"{interface.prefix}_STATE_BYTES" if interface.has_state else "0u",
        check_parameters=interface.parameters(run=True),
        run_arguments=_names(f", {interface.parameters(run=True)}").removeprefix("device, "),
        wait_result=f", struct {interface.name}_dims *result" if results else "",
    )


_BLOCKS = ("frame", "weights", "state", "arena")
_HEADER = "((const int32_t *)memory->device)"


def _names(parameters: str, **others: str) -> str:
    """The arguments that hand parameters on, behind the block of the host."""
    names = re.findall(r"\w+(?=,|$)", parameters)
    return ", ".join(["device", *(others.get(name, name) for name in names)])


def _sizes(context: RunContext) -> list[LocalView]:
    """The sizes of a call, with where they stand."""
    interface = context.interface
    held = [(f, header_c(interface, f)) for f in interface.lengths]
    dims = [(f, f"dims->{f.c_name}") for f in interface.dims]
    return [LocalView(context.symbols[f.symbol.name], value, "") for f, value in (*held, *dims)]


def _call(call: Call, functions: Sequence[str], slots: Mapping[str, str]) -> CallView:
    words = ", ".join(slots.get(word, word) for word in call.words)
    text = (
        f"raot_launch(&device->cuda, &device->run, {functions.index(call.function)}u, {call.grid},"
        f" {call.threads}u, (const raot_address[]){{{words}}}, {len(call.words)}u);"
    )
    return CallView(comment(f"{call.function}: {call.note}".removesuffix(": ")), text)


def _transfers(
    context: RunContext, side: str, ports: Sequence[Port], start: str
) -> tuple[tuple[TransferView, ...], str]:
    """The copies behind each other, and where they end."""
    views = []
    for port in ports:
        field = f"{side}_{port.c_name}"
        macro = f"COPY_{field.upper()}"
        size = context.bytes(port.type.bytes)
        late = bool(port.type.symbols & context.plan.module.inner)
        room = port.macro if late else size
        views.append(TransferView(f"{side}->{port.c_name}", field, macro, start, size, room))
        start = f"{macro} + RAOT_CUDA_APART({port.macro})"
    return tuple(views), start


def _rendered(view: ModelView, device: DeviceView, program: DeviceProgram) -> Sources:
    name = view.name
    code = render("cuda/host.c.j2", model=view, device=device)
    example = render("cuda/example.c.j2", model=view)
    header = HeaderView.of(view.interface, view.sizes, code, example)
    files = {
        f"{name}.h": render("model.h.j2", model=view, entries=(), header=header),
        f"{name}_layout.h": render("layout.h.j2", model=view, entries=()),
        f"{name}.c": code,
        f"{name}.cu": program.text,
        f"{name}_weights.h": render("weights.h.j2", model=view),
        f"{name}_weights.c": render("weights.c.j2", model=view),
    }
    if view.bounds:
        files[f"{name}_config.h"] = render("config.h.j2", model=view)
    blocks = {f"{name}_weights.bin": view.weights.block} if view.weights.block else {}
    return Sources(files, blocks, view.interface, view, header)
