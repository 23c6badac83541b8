# SPDX-License-Identifier: Apache-2.0
"""The records that templates see: finished text in frozen fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.arenas import ArenaView, LocalView, SlotView, arena_views, slot_views
from relax_aot.emit.bounds import BoundView, bound_views, fixed_views
from relax_aot.emit.c_names import comment
from relax_aot.emit.contexts import Layer, RunContext
from relax_aot.emit.entry_checks import ChecksView
from relax_aot.emit.extern_code import extern_steps
from relax_aot.emit.fits import index_reach
from relax_aot.emit.functions import (
    PublicView,
    RenamingView,
    functions_of,
)
from relax_aot.emit.header import (
    MemberView,
    SizeView,
    arena_sizes,
    device_sizes,
    memory_sizes,
    port_sizes,
)
from relax_aot.emit.interface import Interface, StatePart
from relax_aot.emit.kernels import (
    IncludesView,
    KernelView,
    graph_lines,
    kernel_views,
)
from relax_aot.emit.layers import layers_of
from relax_aot.emit.lengths import LengthView, bytes_before, first_row, header_c, length_views
from relax_aot.emit.parts import PartsView, parts_of
from relax_aot.emit.run_code import Statements
from relax_aot.emit.step_code import StepView, mentioned, words_of
from relax_aot.emit.weights import Weights
from relax_aot.ir.dims import interval
from relax_aot.ir.extern import Returns
from relax_aot.ir.loops import Multiply, walk
from relax_aot.ir.types import C_TYPES
from relax_aot.planning import Plan, require_addressable
from relax_aot.version import VERSION


@dataclass(frozen=True, slots=True)
class StateView:
    c_name: str
    c_type: str
    offset_macro: str
    offset: str
    note: str
    first: str = ""
    """What the address of its first row adds to the offset, in C."""


@dataclass(frozen=True, slots=True)
class RunView:
    """The body of a run: its variables, its calls, and what it reports."""

    locals: tuple[LocalView, ...]
    """Sizes of this call, in the function that checks them."""
    inner: tuple[LocalView, ...]
    results: tuple[LocalView, ...]
    slots: tuple[SlotView, ...]
    """The values in the arena that it speaks of."""
    states: tuple[str, ...]
    """What the states are called that it speaks of: one without elements is only a length."""
    steps: tuple[str, ...]
    can_fail: bool
    parts: PartsView | None
    """How calls are divided, where they are."""
    step: StepView | None
    """The form of the run that returns between kernels, where it was requested."""


@dataclass(frozen=True, slots=True)
class ModelView:
    """A model, one entry of several, or what the entries share."""

    interface: Interface
    name: str
    prefix: str
    version: str
    interface_version: int
    options: str
    """What it was compiled with."""
    source: str
    small: bool
    """Whether code is made small rather than fast."""
    level: str
    """How compilers are to optimize it."""
    ordered: int
    """1 if float sums have the order of the plain loops, else 0."""
    thumb1: bool
    """The core may have Thumb-1 alone. GCC 12 releases locals there by `pop {r0, r1, ...}`, and
    still lets callers rely on these registers (-fipa-ra)."""
    separate: bool
    """Tiles round products before they add them."""
    steps: int
    """The most steps of a tile's innermost loop; 0 where its bounds do not say."""
    tf32: bool
    """Whether products of floats round their factors."""
    graph: tuple[str, ...]
    bounds: tuple[BoundView, ...]
    fixed: tuple[LocalView, ...]
    lengths: tuple[LengthView, ...]
    """Of growing states, for the functions that read and truncate them."""
    renaming: RenamingView | None
    """None where no bound can change."""
    functions: tuple[PublicView, ...]
    linked_run: str
    """What the run is called in an object file, at the bounds as generated."""
    run: PublicView
    init: str
    """The declaration of init."""
    members: tuple[BoundView, ...]
    """Of the struct of sizes."""
    sizes: tuple[SizeView, ...]
    """Public constants."""
    inputs: tuple[MemberView, ...]
    outputs: tuple[MemberView, ...]
    arenas: tuple[ArenaView, ...]
    alignment: int
    slots: tuple[SlotView, ...]
    within: LocalView | None
    """Whether the bounds are at most the declared ones, where the greatest size of something is
    known from relations only then."""
    states: tuple[StateView, ...]
    run_arguments: str
    init_arguments: str
    checks: ChecksView
    body: RunView
    includes: IncludesView
    kernels: tuple[KernelView, ...]
    layers: tuple[Layer, ...]
    weights: Weights
    index_reach: str
    """A constant expression that no size or index on the way passes; nothing for one number."""
    gpu_arena: ArenaView | None
    """The arena of a model whose kernels run on a GPU."""
    extern_units: tuple[str, ...]
    """C files of externs that are compiled with the model."""
    initial: tuple[str, ...] = ()
    """Statements of init that copy the first contents of states."""

    @property
    def numerics(self) -> str:
        return "ordered" if self.ordered else "tf32" if self.tf32 else "blocked"

    @property
    def unsigned(self) -> ModelView:
        """The code without what says where it came from: that may change between two exports."""
        kernels = tuple(replace(kernel, ir="", origin="") for kernel in self.kernels)
        layers = tuple(replace(layer, origin="") for layer in self.layers)
        return replace(self, version="", source="", graph=(), kernels=kernels, layers=layers)

    @property
    def arena_parts(self) -> tuple[LocalView, ...]:
        """Constants that the sizes of arenas are made of."""
        arenas = self.arenas if self.gpu_arena is None else (self.gpu_arena,)
        return tuple(part for arena in arenas for part in arena.parts)

    @property
    def memory_const(self) -> str:
        """`const ` where no function changes the memory struct."""
        is_changed = self.interface.weights_apart or self.interface.threaded
        return "" if is_changed else "const "

    @property
    def body_states(self) -> tuple[StateView, ...]:
        """The states that the run speaks of."""
        return tuple(state for state in self.states if state.c_name in self.body.states)

    @property
    def step(self) -> StepView | None:
        return self.body.step

    @property
    def parts(self) -> PartsView | None:
        return self.body.parts

    @property
    def layout(self) -> tuple[SizeView, ...]:
        """The public constants that follow the bounds."""
        return tuple(size for size in self.sizes if not size.fixed)

    @property
    def has_layout(self) -> bool:
        """It has constants that are no macros."""
        return bool(self.slots or self.layout or (self.states and self.owns_memory))

    @property
    def owns_memory(self) -> bool:
        """Its memory struct is its own: it is no entry of several."""
        return self.interface.common is None


def model_view(
    context: RunContext,
    weights: Weights,
    units: tuple[str, ...] = (),
    options: str = "",
    *,
    small: bool = False,
    ordered: bool = False,
    thumb1: bool = False,
    tf32: bool = False,
    device_bytes: int = 0,
) -> ModelView:
    """Of a model, or of one entry of several; `units` are C files of externs. A model on a GPU has
    a block of `device_bytes` on the host."""
    plan, interface = context.plan, context.interface
    slots = slot_views(context)
    arenas = arena_views(context, slots)
    gpu_arena = arenas[0] if interface.device else None
    arenas = () if interface.device else arenas
    states, state = _states(context)
    reach = index_reach(plan)
    bounds = bound_views(interface, plan, reach)
    checks, body = _checks_and_body(context, slots)
    functions = tuple(functions_of(interface))
    sizes = _sizes(context, state, weights.block_bytes, arenas, body.step)
    if gpu_arena:
        sizes += device_sizes(interface, gpu_arena, device_bytes)
    return ModelView(
        interface=interface,
        name=interface.name,
        prefix=interface.prefix,
        version=VERSION,
        interface_version=2,
        options=options,
        source=comment(plan.module.source),
        small=small,
        level="-Os" if small else "-O2",
        ordered=int(ordered),
        thumb1=thumb1,
        separate=any(tile.separate for tile in _tiles(plan)),
        steps=_steps(plan),
        tf32=tf32,
        graph=graph_lines(plan),
        bounds=bounds,
        fixed=fixed_views(interface),
        lengths=length_views(interface),
        renaming=RenamingView.of(interface),
        functions=functions,
        linked_run=interface.linked_run,
        run=next(f for f in functions if f.name == f"{interface.name}_run"),
        init=interface.parameters(run=False),
        members=bounds,
        sizes=sizes,
        inputs=tuple(MemberView.of(port, context) for port in interface.inputs),
        outputs=tuple(MemberView.of(port, context) for port in interface.outputs),
        arenas=arenas,
        alignment=plan.alignment,
        slots=slots,
        within=_within(context, (*(s.size for s in slots), *(s.expression for s in sizes))),
        states=states,
        run_arguments=interface.arguments(run=True),
        init_arguments=interface.arguments(run=False),
        checks=checks,
        body=body,
        includes=IncludesView.of(context),
        kernels=kernel_views(context),
        layers=tuple(layers_of(context)),
        weights=weights,
        gpu_arena=gpu_arena,
        index_reach="" if reach.is_constant else context.box_constant(reach),
        extern_units=units,
    )


def _within(context: RunContext, constants: Sequence[str]) -> LocalView | None:
    if not any(context.within in text for text in constants):
        return None
    fields = (f for f in context.interface.dims if not f.pinned)
    parts = " && ".join(f"{f.macro} <= {f.symbol.high}" for f in fields)
    return LocalView(context.within, parts, "")


def _sizes(
    context: RunContext,
    state: SizeView | None,
    block_bytes: int,
    arenas: Sequence[ArenaView],
    step: StepView | None,
) -> tuple[SizeView, ...]:
    interface = context.interface
    own = state if interface.common is None else None
    memory = memory_sizes(interface, context.plan.alignment, own, block_bytes)
    steps = [] if step is None else [step.size]
    return (*memory, *port_sizes(context), *arena_sizes(arenas), *steps)


def _checks_and_body(
    context: RunContext, slots: tuple[SlotView, ...]
) -> tuple[ChecksView, RunView]:
    interface, plan = context.interface, context.plan
    entry, inner, results = _locals(context), _inner(context), _results(context)
    checks = ChecksView.of(context)
    step = None
    if interface.device:
        entry = mentioned(entry, _checked(checks))
        return checks, RunView(
            entry, inner, results, (), (), (), can_fail=False, parts=None, step=None
        )
    if interface.stepwise:
        step = StepView.of(context, inner, entry, results)
        entry = mentioned(entry, _checked(checks))
    can_fail = any(k.fallible for k in plan.kernels) or any(
        step.extern.returns is Returns.STATUS for step in extern_steps(plan)
    )
    steps = tuple(Statements(context).steps())
    spoken = words_of(steps)
    used = tuple(slot for slot in slots if slot.c_name in spoken)
    states = tuple(context.values[part.input] for part in interface.states)
    named = tuple(name for name in states if name in spoken)
    parts = parts_of(context, entry, steps)
    if parts is not None:
        kept = (parts.rows, *(length.value for length in parts.lengths))
        entry = mentioned(entry, (*_checked(checks), *kept))
    return checks, RunView(entry, inner, results, used, named, steps, can_fail, parts, step)


def _checked(checks: ChecksView) -> tuple[str, ...]:
    """The texts of checks that speak of sizes."""
    relations = (check.condition for check in checks.relations)
    lengths = (text for one in checks.lengths for text in (one.c_name, one.full))
    return (*relations, *lengths, *checks.data_null, *checks.writes, *checks.reads)


def _states(context: RunContext) -> tuple[tuple[StateView, ...], SizeView | None]:
    interface = context.interface
    sizes = {part.input: context.rounded(part.type.bytes) for part in interface.states}
    names = {part.input: context.values[part.input] for part in interface.states}
    first = interface.header_bytes(context.plan.alignment)
    views, size = state_views(interface.states, names, sizes, first, interface.prefix)
    placed = zip(views, interface.states, strict=True)
    moved = (
        replace(view, first=f" + {bytes_before(context, part)}")
        if first_row(context, part)
        else view
        for view, part in placed
    )
    return tuple(moved), size


def state_views(
    parts: Sequence[StatePart],
    names: Mapping[str, str],
    sizes: Mapping[str, tuple[str, int]],
    first: int,
    prefix: str,
) -> tuple[tuple[StateView, ...], SizeView | None]:
    """One part behind the other from byte `first` on, and the size of the whole; what the parts
    are called in C and their sizes, as an expression and a number, are given by their input."""
    if not parts:
        return (), None
    offset, number = str(first), first
    views = []
    for part in parts:
        note = f"{part.type}"
        if part.length:
            note += f", the first rows on axis {part.axis} are used"
        note = comment(note)
        c_type = C_TYPES[part.type.dtype]
        views.append(StateView(names[part.input], c_type, part.macro, offset, note))
        size, most = sizes[part.input]
        offset = f"(long long){part.macro} + {size}"
        number += most
    require_addressable(number, "the state")
    whole = offset if any(not size.isdigit() for size, _ in sizes.values()) else str(number)
    note = "bytes of memory.state"
    return tuple(views), SizeView(f"{prefix}_STATE_BYTES", whole, number, note)


def _tiles(plan: Plan) -> list[Multiply]:
    statements = (stmt for kernel in plan.module.kernels for stmt in walk(kernel.body))
    return [stmt for stmt in statements if isinstance(stmt, Multiply)]


def _steps(plan: Plan) -> int:
    """The most steps of a tile's innermost loop; 0 where a loop of the kernel limits them."""
    counts = [tile.levels[-1][0] for tile in _tiles(plan)]
    bounds = plan.module.bounds
    if any(not count.symbols <= set(bounds) for count in counts):
        return 0
    return max((interval(count, bounds)[1] for count in counts), default=0)


def _locals(context: RunContext) -> tuple[LocalView, ...]:
    interface = context.interface
    given = [(f, f"dims->{f.c_name}") for f in interface.dims]
    held = [(f, header_c(interface, f)) for f in interface.lengths]
    return tuple(
        LocalView(context.symbols[f.symbol.name], value, "")
        for f, value in (*held, *given)
        if f.symbol.name in context.used
    )


def _inner(context: RunContext) -> tuple[LocalView, ...]:
    return tuple(
        LocalView(context.symbols[s.name], "0", comment(s.origin))
        for s in context.plan.module.symbols
        if s.inner and s.name in context.used
    )


def _results(context: RunContext) -> tuple[LocalView, ...]:
    interface = context.interface
    if not interface.results:
        return ()
    copied = [LocalView(f.c_name, f"dims->{f.c_name}", "") for f in interface.dims]
    computed = [LocalView(f.c_name, context.symbols[f.symbol.name], "") for f in interface.results]
    return tuple(copied + computed)
