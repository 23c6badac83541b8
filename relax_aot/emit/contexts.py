# SPDX-License-Identifier: Apache-2.0
"""The names that the statements of a run use, and its kernels as C functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from relax_aot.emit.c_code import KernelCode, print_kernel
from relax_aot.emit.c_dims import dim_c, greatest_c
from relax_aot.emit.c_names import Names
from relax_aot.emit.c_outline import flattened
from relax_aot.emit.c_parallel import NAMES, TEAM, serial
from relax_aot.emit.c_proof import Hints
from relax_aot.emit.extern_code import ExternCall
from relax_aot.emit.interface import ArenaPort, DimField, Interface
from relax_aot.emit.sharing import Parameter, Shared, shared
from relax_aot.ir.dims import Bounds, Dim, dim_max, interval, maximize, prove_le
from relax_aot.ir.extern import Extern
from relax_aot.ir.loops import Kernel
from relax_aot.ir.types import C_TYPES
from relax_aot.planning import GREATEST_BYTES, Home, Plan, Slot, at_most, inner_sizes
from relax_aot.planning.allowed import most_by_relations
from relax_aot.planning.steps import (
    Branch,
    Check,
    Define,
    End,
    Node,
    Repeat,
    Step,
    walk_steps,
)


@dataclass(frozen=True, slots=True)
class Reserved:
    """Names that headers of externs declare, and those of our functions and variables."""

    foreign: frozenset[str]
    functions: frozenset[str]

    def and_functions(self, names: Iterable[str]) -> Reserved:
        return replace(self, functions=self.functions.union(names))

    def without(self, names: Iterable[str]) -> Reserved:
        return replace(self, functions=self.functions.difference(names))


@dataclass(frozen=True, slots=True)
class Form:
    """How kernels are printed: with what helps a value analysis, and for several threads."""

    annotate: bool = False
    threads: bool = False


@dataclass(frozen=True, slots=True)
class KernelText:
    """One kernel as C: its name, the symbols that its text uses, its buffers."""

    c_name: str
    layer: str
    """Its own name in profiles, also where it shares the function `c_name`."""
    symbols: tuple[str, ...]
    buffers: dict[str, str]
    code: KernelCode
    numbers: tuple[str, ...] = ()
    """Parameters of a function that several kernels share, as C declares them."""
    arguments: tuple[str, ...] = ()
    """What the kernel gives for them."""
    owner: bool = True
    """Whether the function stands in the text by this kernel's name."""

    @property
    def has_team(self) -> bool:
        """Whether threads share a loop of the function."""
        return f"raot_parallel({TEAM}" in self.code.text


@dataclass(frozen=True, slots=True)
class Place:
    """A value in the arena that a layer's function addresses."""

    declaration: str
    address: str
    note: str


@dataclass(frozen=True, slots=True)
class Layer:
    """Kernels that several layers of a model have in common, as one C function."""

    c_name: str
    parameters: str
    places: tuple[Place, ...]
    lines: tuple[str, ...]
    fallible: bool
    layers: tuple[tuple[str, ...], ...]
    """Of each call, the names of its kernels in profiles."""
    origin: str

    @property
    def count(self) -> int:
        return len(self.layers)

    @property
    def c_type(self) -> str:
        return "enum raot_status" if self.fallible else "void"


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call of a layer's function, in the place of `length` steps."""

    layer: Layer
    length: int
    arguments: tuple[str, ...]
    tables: tuple[str, ...]
    """Declarations of numbers that are passed by their address."""


@dataclass(frozen=True)
class RunContext:
    """Names that the statements of one model use."""

    plan: Plan
    interface: Interface
    symbols: dict[str, str]
    """Symbol -> C name of the local variable."""
    values: dict[str, str]
    """Storage root -> C expression of its pointer."""
    kernels: dict[str, KernelText]
    annotate: bool = False
    """The text helps a value analysis."""
    layers: Mapping[str, LayerCall] = field(default_factory=dict)
    """Calls of layers, by the name of the first of their steps."""
    merged: Mapping[str, str] = field(default_factory=dict)
    """Slots that the C does not name: each has the place and size of another slot."""

    @cached_property
    def macros(self) -> dict[str, str]:
        """Symbol -> its bound in C."""
        bounds = {f.symbol.name: f.most for f in self.interface.dims}
        return bounds | {f.symbol.name: greatest_length(f) for f in self.interface.lengths}

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Slots with constants of their own, bottom-up."""
        return tuple(slot for slot in self.plan.slots if slot.var.name not in self.merged)

    @cached_property
    def arenas(self) -> tuple[ArenaPort, ...]:
        """In the memory struct, or the one on a GPU."""
        return (gpu_port(self.interface),) if self.interface.device else self.interface.arenas

    @cached_property
    def arenas_used(self) -> set[int]:
        """Arenas that hold anything at all."""
        return {slot.region for slot in self.plan.slots if slot.greatest_bytes > 0}

    @cached_property
    def used(self) -> frozenset[str]:
        """Symbols that the run needs as variables."""
        return frozenset(_used_symbols(self))

    def dim(self, dim: Dim) -> str:
        return dim_c(dim, self.symbols, self.plan.module.bounds.lows)

    def constant(self, size: Dim) -> str:
        """The greatest value of a size of a call that passed the checks on entry, as a constant
        expression in the bounds."""
        text = self.box_constant(size)
        related = most_by_relations(size, self.plan.module)
        if related is None:
            return text
        declared, raised = (str(max(most, 0)) for most in related)
        raised = "INT32_MAX" if related[1] > GREATEST_BYTES else raised
        most = declared if declared == raised else f"{self.within} ? {declared} : {raised}"
        return f"RAOT_MIN({text}, {most})"

    def box_constant(self, size: Dim) -> str:
        """The greatest value for all sizes in their ranges, also those that relations exclude."""
        if size.is_constant:
            return str(size.constant)
        return greatest_c(size, self.macros, self.plan.module.bounds)

    def of_call(self, size: Dim) -> tuple[str, int]:
        """The greatest value of a size that callers see, which a run may compute in parts: as a
        constant expression, and at the declared bounds."""
        field, bounds = self.interface.divided, self.plan.module.bounds
        if field is None or field.symbol.name not in size.symbols:
            return self.constant(size), interval(size, bounds)[1]
        whole = bounds.with_ranges({field.symbol.name: (field.symbol.low, field.symbol.high)})
        macros = self.macros | {field.symbol.name: field.macro}
        return greatest_c(size, macros, whole), interval(size, whole)[1]

    def for_any_length(self, size: Dim) -> Dim:
        """The size where growing states are as long as a call may find them: for functions that
        see the sizes of a call, but not the state."""
        values = {}
        for name, growth in self.plan.module.lengths.items():
            if growth.is_window or name not in growth.after.symbols:
                values[name] = Dim.of(growth.capacity)
                continue
            longest = growth.capacity - (growth.after - Dim.of(name))
            fits = prove_le(0, longest, self.plan.module.bounds.open)
            values[name] = longest if fits else dim_max(longest, 0)
        return size.substitute(values)

    @property
    def within(self) -> str:
        """A constant: no bound is above the declared one."""
        return f"{self.interface.prefix}_WITHIN_BOUNDS"

    def rounded(self, size: Dim) -> tuple[str, int]:
        """The size in whole alignments, as a constant expression and at the declared bounds."""
        rounded = -(-size // self.plan.alignment) * self.plan.alignment
        bounds = self.plan.module.bounds
        highs = {name: bounds.range(name)[1] for name in size.symbols}
        return self.box_constant(rounded), maximize(rounded, bounds).evaluate(highs)

    def greatest(self, size: Dim) -> Dim:
        """Over the entry's symbols alone."""
        bounds = self.plan.module.bounds
        return at_most(size, inner_sizes(self.plan.program, bounds), bounds)

    def parameters(self, kernel: Kernel) -> list[str]:
        """`int32_t n`, then inputs, then outputs and scratch, then numbers."""
        text = self.kernels[kernel.name]
        parameters = [f"int32_t {self.symbols[s]}" for s in text.symbols]
        for buffer in kernel.inputs:
            name = text.buffers[buffer.name]
            parameters.append(f"const {C_TYPES[buffer.dtype]} *restrict {name}")
        for buffer in (*kernel.outputs, *kernel.scratch):
            parameters.append(f"{C_TYPES[buffer.dtype]} *restrict {text.buffers[buffer.name]}")
        team = ["struct raot_team *team"] if text.has_team else []
        return [*parameters, *text.numbers, *team]

    def bytes(self, dim: Dim) -> str:
        """A size, as size_t."""
        text = self.dim(dim)
        return text if text.isdigit() else f"(size_t)({text})"


def gpu_port(interface: Interface) -> ArenaPort:
    """The arena on a GPU."""
    return ArenaPort("arena", f"{interface.prefix}_ARENA", "")


def greatest_length(field: DimField) -> str:
    """The greatest length before a call, in C: the call adds rows up to the capacity."""
    assert field.symbol.growth is not None
    least = field.symbol.growth.capacity - field.symbol.high
    return f"({field.macro} - {least})" if least else field.macro


def make_contexts(
    parts: Sequence[tuple[Plan, Interface, dict[str, str]]],
    foreign: frozenset[str],
    sharing: str = "same",
    *,
    annotate: bool = False,
) -> tuple[RunContext, ...]:
    """For each plan with its interface and its constants; they stand in one file and share
    kernels. `foreign` are names that headers of externs declare: ours are others. With
    `annotate` the text holds what helps a value analysis."""
    form = Form(annotate, any(interface.threaded for _, interface, _ in parts))
    if form.threads:
        foreign |= {*NAMES}
    scopes = [_values(plan, interface, values, foreign) for plan, interface, values in parts]
    taken = [name for symbols, _ in scopes for name in symbols.values()]
    for _, interface, _ in parts:
        taken += [*interface.own_functions, *interface.own_variables]
    functions = Names([*taken, *foreign])
    named = [
        {k.name: functions.claim(_apart(k.name, interface)) for k in plan.kernels}
        for plan, interface, _ in parts
    ]
    reserved = Reserved(foreign, frozenset([*taken, *(c for one in named for c in one.values())]))
    contexts = []
    for (plan, interface, _), (symbols, values), c_names in zip(parts, scopes, named, strict=True):
        kernels: dict[str, KernelText] = {}
        for k in plan.kernels:
            text = _kernel_text(k, c_names[k.name], symbols, plan.module.bounds, reserved, form)
            kernels[k.name] = text
            reserved = reserved.and_functions(text.code.functions)
        contexts.append(RunContext(plan, interface, symbols, values, kernels, annotate))
    return _shared(contexts, reserved, sharing, form)


def device_context(plan: Plan, interface: Interface, constants: Mapping[str, str]) -> RunContext:
    """The names of a run whose kernels are functions of a GPU; their text is no C of the host.
    `constants` are C expressions of their addresses there."""
    symbols, values = _values(plan, interface, dict(constants), frozenset())
    values |= {p.name: f"at->in_{p.c_name}" for p in interface.inputs}
    outputs = (p for p in interface.outputs if plan.homes.get(p.name) is Home.OUTPUT)
    values |= {p.name: f"at->out_{p.c_name}" for p in outputs}
    values |= {part.input: f"state + {part.macro}" for part in interface.states}
    kernels = {
        kernel.name: KernelText(
            kernel.name, kernel.name, tuple(kernel.free_symbols),
            {buffer.name: buffer.name for buffer in kernel.buffers},
            KernelCode("", ""),
        )
        for kernel in plan.kernels
    }  # fmt: skip
    return RunContext(plan, interface, symbols, values, kernels)


def _values(
    plan: Plan, interface: Interface, constants: dict[str, str], foreign: frozenset[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What symbols and storage roots are called in the run."""
    scope = Names([*foreign, *interface.own_variables])
    fields = (*interface.sizes, *interface.results)
    symbols = {f.symbol.name: scope.claim(f.c_name) for f in fields}
    for symbol in plan.module.symbols:
        if symbol.name not in symbols:
            symbols[symbol.name] = scope.claim(symbol.name)
    values = dict(constants)
    values |= {p.name: f"in->{p.c_name}" for p in interface.inputs}
    values |= {
        p.name: f"out->{p.c_name}"
        for p in interface.outputs
        if plan.homes.get(p.name) is Home.OUTPUT
    }
    for part in interface.states:
        values[part.input] = scope.claim(part.c_name)
    for slot in plan.slots:
        values[slot.var.name] = scope.claim(slot.var.name)
    return symbols, values


def _shared(
    contexts: Sequence[RunContext], reserved: Reserved, sharing: str, form: Form
) -> tuple[RunContext, ...]:
    """The same, where kernels that differ by numbers alone are one function."""
    owners: dict[str, tuple[RunContext, Kernel]] = {}
    for number, context in enumerate(contexts):
        called = {
            node.callee.name
            for node in walk_steps(context.plan.program.nodes)
            if isinstance(node, Step) and isinstance(node.callee, Kernel)
        }
        kernels = [kernel for kernel in context.plan.kernels if kernel.name in called]
        owners |= {f"{number} {kernel.name}": (context, kernel) for kernel in kernels}

    def body(general: Kernel, numbers: Sequence[Parameter]) -> KernelCode:
        context, kernel = owners[general.name]
        text = context.kernels[kernel.name]
        general = replace(general, name=text.c_name)
        bounds = context.plan.module.bounds
        others = reserved.without(text.code.functions)
        return _code(general, text.buffers, context.symbols, bounds, others, form, numbers)

    marked = [
        (
            replace(kernel, name=name),
            # What the text of a kernel rests on, besides the kernel.
            tuple(context.plan.module.bounds.range(symbol)[0] for symbol in kernel.free_symbols),
        )
        for name, (context, kernel) in owners.items()
    ]
    taken = reserved.foreign.union(
        *(context.symbols.values() for context in contexts),
        *(context.values.values() for context in contexts),
        *(text.buffers.values() for context in contexts for text in context.kernels.values()),
    )
    found = shared(marked, sharing, body, taken)
    texts = {name: context.kernels[kernel.name] for name, (context, kernel) in owners.items()}
    return tuple(
        _with_shared(context, str(number), found, texts) for number, context in enumerate(contexts)
    )


def _with_shared(
    context: RunContext, mark: str, found: Mapping[str, Shared], texts: Mapping[str, KernelText]
) -> RunContext:
    kernels = dict(context.kernels)
    for name, text in kernels.items():
        key = f"{mark} {name}"
        one = found.get(key)
        if one is not None:
            kernels[name] = replace(
                text,
                c_name=texts[one.owner].c_name,
                symbols=one.symbols,
                code=one.code,
                numbers=one.parameters,
                arguments=one.arguments,
                owner=one.owner == key,
            )
    return replace(context, kernels=kernels)


def _apart(kernel: str, interface: Interface) -> str:
    """No kernel is called as a public function could be with other bounds."""
    return f"k_{kernel}" if kernel.lower().startswith(f"{interface.owner}_") else kernel


def _kernel_text(
    kernel: Kernel,
    c_name: str,
    symbols: dict[str, str],
    bounds: Bounds,
    reserved: Reserved,
    form: Form,
) -> KernelText:
    free = {name: symbols[name] for name in kernel.free_symbols}
    scope = Names([*free.values(), *reserved.foreign])
    buffers = {b.name: scope.claim(b.name) for b in kernel.buffers}
    named = replace(kernel, name=c_name)
    code = _code(named, buffers, symbols, bounds, reserved, form)
    words = set(re.findall(r"\w+", code.body))
    used = tuple(name for name, text in free.items() if text in words)
    return KernelText(c_name, c_name, used, buffers, code)


def _code(
    kernel: Kernel,
    buffers: Mapping[str, str],
    symbols: Mapping[str, str],
    bounds: Bounds,
    reserved: Reserved,
    form: Form,
    numbers: Sequence[Parameter] = (),
) -> KernelCode:
    """Highs may be raised when the project is built, so nothing rests on them but how threads
    share loops."""
    kernel = serial(kernel, threads=form.threads)
    kernel = replace(kernel, body=flattened(kernel.body))
    given = {number.name: number.range for number in numbers}
    free = {name: symbols[name] for name in kernel.free_symbols if name not in given}
    hints = Hints(kernel, tuple(free), bounds.with_ranges(given)) if form.annotate else None
    declarations = {number.name: number.declaration for number in numbers}
    return print_kernel(
        kernel, buffers, free, bounds.lows, reserved.foreign, reserved.functions, given,
        declarations, hints, bounds.with_ranges(given) if form.threads else None,
    )  # fmt: skip


def _used_symbols(context: RunContext) -> set[str]:
    plan = context.plan
    used: set[str] = set()
    for node in walk_steps(plan.program.nodes):
        used |= _symbols_of(context, node)
    for condition in context.interface.conditions:
        used |= condition.left.symbols | condition.right.symbols
    for port in (*context.interface.inputs, *context.interface.outputs):
        used |= port.type.elements.symbols
    for commit in plan.commits:
        used |= plan.program.values[commit.source].type.symbols
    for name, growth in plan.module.lengths.items():
        used |= {name} | growth.after.symbols
    return used | {field.symbol.name for field in context.interface.results}


def _symbols_of(context: RunContext, node: Node | End) -> set[str]:
    """Sizes that the C text of a node speaks of, those that it defines left out."""
    match node:
        case Branch():
            return set[str]().union(*(s.then.symbols | s.otherwise.symbols for s in node.sizes))
        case Define():
            return set(node.most.symbols)
        case Check():
            return set(node.condition.left.symbols | node.condition.right.symbols)
        case Repeat():
            sizes = [node.loop.trips, *(t.type.bytes for t in node.first)]
            sizes += [
                dim for _, first, later, most in node.loop.sizes for dim in (first, later, most)
            ]
            return set[str]().union(*(size.symbols for size in sizes)) | {node.loop.turn}
        case End():
            moved = (*node.repeat.following, *node.repeat.rows)
            return set[str]().union(*(t.type.bytes.symbols for t in moved))
        case Step() if isinstance(node.callee, Extern):
            return set(ExternCall(node.callee, node.call).symbols)
        case Step():
            return set(context.kernels[node.callee.name].symbols)
