# SPDX-License-Identifier: Apache-2.0
"""What the templates of the host part of a model on a GPU see."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.arenas import LocalView
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.cuda_launcher import on_device
from relax_aot.emit.cuda_library import LibraryProduct
from relax_aot.emit.cuda_parts import PartView, parts_of
from relax_aot.emit.cuda_program import DeviceProgram
from relax_aot.emit.interface import Interface, Port
from relax_aot.emit.lengths import first_c, grown, header_c
from relax_aot.emit.step_code import mentioned
from relax_aot.emit.view import ModelView


@dataclass(frozen=True, slots=True)
class UploadView:
    """A constant on its way to the GPU."""

    source: str
    bytes: int
    offset: int


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
class OpeningView:
    """The sizes that the launches of an entry begin with, where init is not given all of them."""

    struct: str
    members: tuple[LocalView, ...]


@dataclass(frozen=True, slots=True)
class DeviceRunView:
    """A run: that of the model, or of one entry."""

    model: ModelView
    tail: str
    """What stands behind the names of functions and variables of this run."""
    parts: tuple[PartView, ...]
    products: tuple[LibraryProduct, ...]
    """What a library computes instead of parts."""
    classes: tuple[LocalView, ...]
    """The sizes of a class, for which the library is asked: C expressions over its number."""
    word_count: int
    most_words: int
    addresses: tuple[LocalView, ...]
    """Of memory on the GPU, as the launches speak of it."""
    locals: tuple[LocalView, ...]
    """Sizes that the launches speak of."""
    launch_parameters: str
    """Behind the block of the host, as C declares them."""
    opening: OpeningView | None
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
    keeps_dims: bool
    """The sizes of the last run are kept for the function that waits for it."""
    check_parameters: str
    run_arguments: str
    wait_result: str

    @property
    def models(self) -> tuple[ModelView]:
        """The one model, for templates that are shared with other targets and see a model."""
        return (self.model,)

    @property
    def transfers(self) -> tuple[TransferView, ...]:
        return self.inputs + self.outputs

    @property
    def call_count(self) -> int:
        return sum(len(part.calls) for part in self.parts)

    @property
    def array(self) -> str:
        """Behind the member with the graphs."""
        return f"[{len(self.parts)}]" if self.products else ""

    @property
    def start(self) -> str:
        """A call that starts the run, up to the stream."""
        if self.products:
            return f"start{self.tail}(device, "
        return f"raot_cuda_start(cuda, &device->run{self.tail}, "

    @property
    def product_count(self) -> int:
        return len(self.products)

    @property
    def asks_sizes(self) -> bool:
        """Whether launches depend on sizes, so that there are classes of them."""
        return "&sizes" in self.class_arguments

    @property
    def class_arguments(self) -> str:
        return names_of(self.launch_parameters, at=f"&at{self.tail}", dims="&sizes")

    @property
    def in_macro(self) -> str:
        """The constant where the copies of inputs end."""
        return f"COPIES_IN{self.tail.upper()}"

    @property
    def end_macro(self) -> str:
        return f"COPIES_END{self.tail.upper()}"

    @property
    def launch_arguments(self) -> str:
        return names_of(self.launch_parameters, at="&at")

    @property
    def open_arguments(self) -> str:
        """Where the model opens, sizes are in a variable of their own or those of init."""
        dims = f"&dims{self.tail}" if self.opening else "dims"
        return names_of(self.launch_parameters, at=f"&at{self.tail}", dims=dims)


@dataclass(frozen=True, slots=True)
class KernelView:
    """A function of the GPU, and the bytes of shared memory that a launch of it asks for."""

    name: str
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceView:
    """What the templates of the host part see besides the model."""

    sm: int
    cubins: tuple[CubinView, ...]
    functions: tuple[KernelView, ...]
    uploads: tuple[UploadView, ...]
    weights_bytes: int
    header_words: int
    state_bytes: str
    open_parameters: str
    runs: tuple[DeviceRunView, ...]

    @property
    def open_arguments(self) -> str:
        return names_of(self.open_parameters, weights="memory->weights")

    @property
    def products(self) -> tuple[LibraryProduct, ...]:
        """What a library computes in any run."""
        return tuple(product for run in self.runs for product in run.products)

    @property
    def required(self) -> int:
        """1 where there is no run without the library."""
        return int(any(product.required for product in self.products))

    @property
    def reads_constants(self) -> bool:
        """The C names constants of the project."""
        return bool(self.uploads) and "*weights" not in self.open_parameters

    @property
    def function_count(self) -> int:
        return len(self.functions)

    @property
    def most_words(self) -> int:
        return max(run.most_words for run in self.runs)

    @property
    def cubin_count(self) -> int:
        return len(self.cubins)

    @property
    def upload_count(self) -> int:
        return len(self.uploads)

    @property
    def input_bytes(self) -> str:
        """A constant expression: room for the copies of inputs of any run."""
        return _greatest([run.in_macro for run in self.runs])

    @property
    def output_bytes(self) -> str:
        """What all copies need besides."""
        return f"{_greatest([run.end_macro for run in self.runs])} - {self.input_bytes}"


def _greatest(macros: Sequence[str]) -> str:
    if len(macros) == 1:
        return macros[0]
    text = f"(size_t){macros[0]}"  # constants of two enumerations
    for macro in macros[1:]:
        text = f"RAOT_MAX({text}, (size_t){macro})"
    return text


def run_view(
    context: RunContext, program: DeviceProgram, functions: Sequence[str], view: ModelView
) -> DeviceRunView:
    """`functions` are those of all runs, in the order of their table."""
    interface = context.interface
    slots = {slot.c_name: f"arena + {slot.offset_macro}" for slot in view.slots}
    tail = f"_{interface.name.removeprefix(f'{interface.owner}_')}" if interface.common else ""
    parts = parts_of(program.calls, program.products, functions, slots, tail)
    calls = [call for part in parts for call in (*part.calls, part.product) if call]
    texts = [call.text for call in calls]
    copies = f"COPY{tail.upper()}"
    inputs, inputs_end = _transfers(context, "in", interface.inputs, "0", copies)
    outputs, outputs_end = _transfers(
        context, "out", interface.outputs, f"COPIES_IN{tail.upper()}", copies
    )
    growth = tuple(grown(context))
    given = _sizes(context)
    late = [
        LocalView(context.symbols[name], f"cuda->words[{word}]", "")
        for name, word in program.results.items()
    ]
    own = [replace(one, value=on_device(one.value)) for one in given]
    locals_ = mentioned(own, texts)
    dims = f", const struct {interface.name}_dims *dims"
    needs_dims = any(one.value.startswith("dims->") for one in locals_)
    at = f", const struct places{tail} *at" * any("at->" in text for text in texts)
    results = view.body.results
    late_names = {one.c_name: one.value for one in late}
    words = [len(call.words) for call in program.calls]
    sizes = [one.bytes for one in (*inputs, *outputs)]
    return DeviceRunView(
        model=view,
        tail=tail,
        parts=parts,
        products=program.products,
        classes=tuple(
            LocalView(f.c_name, f"raot_blas_size({f.symbol.low}, {f.macro}, i)", "")
            for f in interface.dims
        ),
        word_count=sum(words),
        most_words=max(words),
        addresses=mentioned([LocalView(n, f"device->cuda.{n}", "") for n in _BLOCKS], texts),
        locals=locals_,
        launch_parameters=(dims if needs_dims else "") + at,
        opening=_opening(interface) if needs_dims and interface.common else None,
        inputs=inputs,
        outputs=outputs,
        inputs_end=inputs_end,
        outputs_end=outputs_end,
        run_locals=mentioned(given, [*sizes, *growth]),
        late_locals=mentioned(late, [*sizes, *(r.value for r in results)]),
        grown_locals=mentioned(given, growth),
        results=results,
        wait_results=tuple(
            replace(
                r,
                value=late_names.get(r.value, r.value.replace("dims->", f"device->dims{tail}.")),
            )
            for r in results
        ),
        grown=growth,
        lengths=tuple(
            LocalView(header_c(interface, f, const=""), str(program.lengths[f.source]), "")
            for f in interface.all_lengths
        )
        + tuple(
            LocalView(first_c(interface, f, const=""), str(program.firsts[f.source]), "")
            for f in interface.windows
        ),
        keeps_dims=bool(results and interface.dims),
        check_parameters=interface.parameters(run=True),
        run_arguments=names_of(f", {interface.parameters(run=True)}").removeprefix("device, "),
        wait_result=f", struct {interface.name}_dims *result" if results else "",
    )


_BLOCKS = ("frame", "weights", "state", "arena")


def names_of(parameters: str, **others: str) -> str:
    """The arguments that hand parameters on, behind the block of the host."""
    names = re.findall(r"\w+(?=,|$)", parameters)
    return ", ".join(["device", *(others.get(name, name) for name in names)])


def _opening(interface: Interface) -> OpeningView:
    """The lowest sizes: a run changes the launches to its own."""
    members = (LocalView(f.c_name, str(f.symbol.low), "") for f in interface.dims)
    return OpeningView(f"{interface.name}_dims", tuple(members))


def _sizes(context: RunContext) -> list[LocalView]:
    """The sizes of a call, with where they stand."""
    interface = context.interface
    held = [(f, header_c(interface, f)) for f in interface.lengths]
    dims = [(f, f"dims->{f.c_name}") for f in interface.dims]
    return [LocalView(context.symbols[f.symbol.name], value, "") for f, value in (*held, *dims)]


def _transfers(
    context: RunContext, side: str, ports: Sequence[Port], start: str, copies: str
) -> tuple[tuple[TransferView, ...], str]:
    """The copies behind each other, and where they end."""
    views = []
    for port in ports:
        field = f"{side}_{port.c_name}"
        macro = f"{copies}_{field.upper()}"
        size = context.bytes(port.type.bytes)
        late = bool(port.type.symbols & context.plan.module.inner)
        room = port.macro if late else size
        views.append(TransferView(f"{side}->{port.c_name}", field, macro, start, size, room))
        start = f"{macro} + RAOT_CUDA_APART({port.macro})"
    return tuple(views), start
