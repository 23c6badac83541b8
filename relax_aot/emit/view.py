"""The records that templates see: finished text in frozen fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit import blob, c_windows, run_code
from relax_aot.emit.arenas import (
    ArenaView,
    LocalView,
    SlotView,
    arena_views,
    constant_size,
    slot_views,
)
from relax_aot.emit.c_dims import bound_limits, greatest_c
from relax_aot.emit.c_names import comment
from relax_aot.emit.extern_code import extern_sizes, extern_steps, value_checks
from relax_aot.emit.fits import index_reach
from relax_aot.emit.functions import (
    PublicView,
    RenamingView,
    arguments,
    functions_of,
    parameters,
    renaming,
)
from relax_aot.emit.interface import (
    STEP_FUNCTIONS,
    DimField,
    Interface,
    Port,
    StatePart,
    header_bytes,
    linked_name,
)
from relax_aot.emit.run_code import RunContext, make_contexts
from relax_aot.emit.step_code import StepView, mentioned, step_view
from relax_aot.emit.weights import ConstantView, Weights, place_macro, weights_of
from relax_aot.externs import ExternTable
from relax_aot.ir.dims import Dim
from relax_aot.ir.extern import Returns
from relax_aot.ir.graph import Call, Var
from relax_aot.ir.loops import For, Kernel, Micro, Multiply, expressions, walk
from relax_aot.ir.text import attr_text
from relax_aot.ir.types import C_TYPES, DType
from relax_aot.planning import Plan, at_most, inner_sizes
from relax_aot.planning.regions import Region
from relax_aot.planning.steps import Step, walk_steps
from relax_aot.version import VERSION

INTERFACE_VERSION = 1


@dataclass(frozen=True, slots=True)
class FixedView:
    """A size of one value, of which only the macro is left."""

    macro: str
    value: int
    note: str


@dataclass(frozen=True, slots=True)
class BoundView:
    c_name: str
    macro: str
    low: int
    high: int
    limit: int
    """The highest bound for which sizes can be computed, though they may be refused."""
    has_made_for: bool
    made_for: int
    """The highest bound that the code is right for, where a proof rests on it."""
    note: str
    pinned: bool
    entry: bool
    """False for sizes that the model computes: a member, but not a parameter."""


@dataclass(frozen=True, slots=True)
class MemberView:
    c_name: str
    c_type: str
    macro: str
    greatest: str
    note: str


@dataclass(frozen=True, slots=True)
class CheckView:
    condition: str
    note: str


@dataclass(frozen=True, slots=True)
class StateView:
    c_name: str
    c_type: str
    offset_macro: str
    offset: str
    size: str
    note: str


@dataclass(frozen=True, slots=True)
class KernelView:
    ir: str
    origin: str
    c_name: str
    c_type: str
    parameters: str
    body: str


@dataclass(frozen=True, slots=True)
class ModelView:
    name: str
    prefix: str
    version: str
    interface_version: int
    source: str
    small: bool
    """Whether code is made small rather than fast."""
    level: str
    """How compilers are to optimize it."""
    ir_lines: tuple[str, ...]
    bounds: tuple[BoundView, ...]
    fixed: tuple[FixedView, ...]
    bounds_overridable: bool
    renaming: RenamingView | None
    """None where no bound can change."""
    functions: tuple[PublicView, ...]
    plain_run: str
    linked_run: str
    """What the run is called in an object file, at the bounds as generated."""
    has_dims: bool
    """Run takes the entry's sizes."""
    has_results: bool
    has_members: bool
    """There is a struct of sizes."""
    inputs: tuple[MemberView, ...]
    outputs: tuple[MemberView, ...]
    has_state: bool
    owns_state: bool
    """There is a state, and it is not what several entries share."""
    owns_weights: bool
    """The same of weights that the program gives."""
    arenas: tuple[ArenaView, ...]
    has_init: bool
    init_note: str
    init_null_check: str
    alignment: int
    slots: tuple[SlotView, ...]
    states: tuple[StateView, ...]
    state_bytes: str
    state_header: tuple[LocalView, ...]
    run_parameters: str
    init_parameters: str
    run_arguments: str
    run_passed: str
    """The same from a function that was given them."""
    init_arguments: str
    null_check: str
    data_null_checks: tuple[str, ...]
    alignment_checks: tuple[str, ...]
    size_checks: tuple[str, ...]
    condition_checks: tuple[CheckView, ...]
    locals: tuple[LocalView, ...]
    """Sizes of this call, in the function that checks them."""
    inner: tuple[LocalView, ...]
    results: tuple[LocalView, ...]
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    write_count: int
    read_count: int
    uses_narrow: bool
    uses_double: bool
    uses_tiles: bool
    micro_headers: tuple[str, ...]
    can_fail: bool
    kernels: tuple[KernelView, ...]
    steps: tuple[str, ...]
    step: StepView | None
    """The form of the run that returns between kernels, where it was asked for."""
    constants: tuple[ConstantView, ...]
    constant_places: tuple[LocalView, ...]
    """Macros that put constants into regions, and what they stand for."""
    weights_section: str
    weights_label: str
    """What the linker calls the bytes that the assembler includes."""
    weights_in_block: bool
    weights_block_bytes: int
    memory_const: str
    """`const ` where no function changes the memory struct."""
    weights_apart: bool
    """The program gives the weights, as a block that is checked."""
    weights_identity: tuple[str, ...]
    """Rows of the bytes that such a block must start with."""
    identity_bytes: int
    weights_limits: tuple[str, ...]
    """Of quantization parameters in the block: rows of C."""
    limits_count: int
    index_reach: str
    """A constant expression that no size or index on the way passes."""
    sizes_checked: tuple[str, ...]
    """Macros of byte sizes that must fit an int32."""
    extern_headers: tuple[str, ...]
    extern_checks: tuple[CheckView, ...]
    extern_units: tuple[str, ...]
    """C files of externs that are compiled with the model."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What goes into the templates, and the binary block beside them."""

    model: ModelView
    block: bytes
    const_bytes: int
    layout: blob.Layout | None
    """Of a block that lies apart from the code: it is packed when the code is known."""


def view_of(
    plan: Plan, interface: Interface, externs: ExternTable, form: str, sharing: str = "same"
) -> Rendered:
    weights = weights_of(
        plan.module.constants, interface.name, plan.alignment, plan.constant_regions, form,
        STEP_FUNCTIONS if interface.stepwise else (),
    )  # fmt: skip
    foreign = externs.names | externs.macros
    (context,) = make_contexts([(plan, interface, weights.names)], foreign, sharing)
    model = model_view(context, weights, externs, sharing)
    return Rendered(model, weights.block, weights.total_bytes, weights.layout)


def model_view(
    context: RunContext, weights: Weights, externs: ExternTable, sharing: str
) -> ModelView:
    """Of a model, or of one entry of several."""
    plan, interface = context.plan, context.interface
    macros = {f.symbol.name: f.macro for f in interface.dims}
    slots = slot_views(context, macros)
    writes, reads = run_code.spans(context)
    states, state_bytes = _states(context, macros)
    outputs = tuple(_member(port, context, macros) for port in interface.outputs)
    inputs = tuple(_member(port, context, macros) for port in interface.inputs)
    dtypes = {dtype for kernel in plan.kernels for dtype in _dtypes(kernel)}
    reach = index_reach(plan)
    checks = tuple(CheckView(*c) for c in run_code.condition_checks(context))
    null_checks = tuple(run_code.data_null_checks(context))
    entry, inner, results = _locals(context), _inner(context), _results(context)
    step = None
    if interface.stepwise:
        step = step_view(context, inner, entry, results)
        checked = (*(check.condition for check in checks), *null_checks, *writes, *reads)
        entry = mentioned(entry, checked)
    return ModelView(
        name=interface.name,
        prefix=interface.prefix,
        version=VERSION,
        interface_version=INTERFACE_VERSION,
        source=comment(plan.module.source),
        small=sharing == "all",
        level="-Os" if sharing == "all" else "-O2",
        ir_lines=tuple(_ir_lines(plan)),
        bounds=_bounds(interface, plan, reach),
        fixed=tuple(
            FixedView(f.macro, f.symbol.low, comment(_bound_note(f, entry=True)))
            for f in interface.fixed
        ),
        bounds_overridable=any(not f.pinned for f in interface.dims),
        renaming=renaming(interface),
        functions=tuple(functions_of(interface)),
        plain_run=f"{interface.name}_run",
        linked_run=linked_name(interface, "run"),
        has_dims=bool(interface.dims),
        has_results=bool(interface.results),
        has_members=bool(interface.dims or interface.results),
        inputs=inputs,
        outputs=outputs,
        has_state=interface.has_state,
        owns_state=interface.has_state and interface.common is None,
        owns_weights=interface.weights_apart and interface.common is None,
        arenas=arena_views(context, slots),
        has_init=interface.has_init,
        init_note=init_note(interface),
        init_null_check=run_code.init_null_check(interface),
        alignment=plan.alignment,
        slots=slots,
        states=states,
        state_bytes=state_bytes,
        state_header=tuple(
            LocalView(index, value, "") for index, value in run_code.state_checks(context)
        ),
        run_parameters=parameters(interface, run=True),
        init_parameters=parameters(interface, run=False),
        run_arguments=arguments(interface, run=True),
        run_passed=arguments(interface, run=True).replace("&", ""),
        init_arguments=arguments(interface, run=False),
        null_check=run_code.null_checks(context),
        data_null_checks=null_checks,
        alignment_checks=tuple(_alignment_checks(interface)),
        size_checks=tuple(run_code.size_checks(interface)),
        condition_checks=checks,
        locals=entry,
        inner=inner,
        results=results,
        writes=tuple(writes),
        reads=tuple(reads),
        write_count=len(writes),
        read_count=len(reads),
        uses_narrow=any(dtype.is_storage for dtype in dtypes),
        uses_double=DType.F64 in dtypes,
        uses_tiles=any(isinstance(stmt, Multiply) for k in plan.kernels for stmt in walk(k.body)),
        micro_headers=_micro_headers(plan),
        can_fail=any(k.fallible for k in plan.kernels)
        or any(extern.returns is Returns.STATUS for extern, _ in extern_steps(plan)),
        kernels=tuple(_kernels(context)),
        steps=tuple(run_code.steps(context)),
        step=step,
        constants=weights.constants,
        constant_places=places(plan.constant_regions, interface.owner),
        weights_section=section(plan.constant_regions, interface.owner),
        weights_label=f"{interface.owner}_weights{'_block' if interface.weights_apart else ''}",
        weights_in_block=bool(weights.block) or weights.layout is not None,
        weights_block_bytes=weights.layout.total_bytes if weights.layout else len(weights.block),
        memory_const="" if interface.weights_apart else "const ",
        weights_apart=interface.weights_apart,
        weights_identity=(),
        identity_bytes=blob.IDENTITY_BYTES,
        weights_limits=weights.limits,
        limits_count=len(weights.limits),
        index_reach=greatest_c(reach, macros, plan.module.bounds),
        sizes_checked=_checked(interface, plan),
        extern_headers=tuple(dict.fromkeys(e.header for e, _ in extern_steps(plan))),
        extern_checks=tuple(CheckView(*c) for c in value_checks(plan, macros)),
        extern_units=externs.units,
    )


def _alignment_checks(interface: Interface) -> list[str]:
    """One C condition per input and output: it is not aligned as its element type. Bytes are
    always, and so is the null pointer of zero elements. (Frama-C does not know _Alignof.)"""
    sides = (("in", interface.inputs), ("out", interface.outputs))
    return [
        f"!raot_is_aligned({side}->{port.c_name}, sizeof({port.c_type}))"
        for side, ports in sides
        for port in ports
        if port.type.dtype.bytes > 1
    ]


def _micro_headers(plan: Plan) -> tuple[str, ...]:
    statements = [stmt for kernel in plan.kernels for stmt in walk(kernel.body)]
    found = {stmt.kernel.header for stmt in statements if isinstance(stmt, Micro)}
    if any(c_windows.window_of(stmt) is not None for stmt in statements if isinstance(stmt, For)):
        found.add(c_windows.HEADER)
    return tuple(sorted(found))


def places(placed: Mapping[str, Region], prefix: str) -> tuple[LocalView, ...]:
    regions = {region.name: region for region in placed.values()}
    return tuple(
        LocalView(
            place_macro(prefix, region),
            f'__attribute__((section("{region.section}")))' if region.section else "",
            "",
        )
        for _, region in sorted(regions.items())
    )


def init_note(interface: Interface) -> str:
    weights = "Checks the weights. " if interface.weights_apart else ""
    state = "Clears the state and fixes its sizes. " if interface.has_state else ""
    again = ", and to start anew" if interface.has_state else ""
    return f"{weights}{state}Call it before the first run{again}."


def section(placed: Mapping[str, Region], prefix: str) -> str:
    """The section of a block of constants, all of which lie in one region."""
    sections = [region.section for region in placed.values() if region.section]
    return sections[0] if sections else f".rodata.{prefix}_weights"


def _bounds(interface: Interface, plan: Plan, reach: Dim) -> tuple[BoundView, ...]:
    fields = [(f, True) for f in interface.dims] + [(f, False) for f in interface.results]
    sizes = [*_sizes(interface, plan), reach]
    limits = bound_limits(sizes, plan.module.bounds, len(plan.slots) + 8)
    return tuple(
        BoundView(
            f.c_name, f.macro, f.symbol.low, f.symbol.high,
            limits.get(f.symbol.name, 0), _made_for(interface, f) > 0, _made_for(interface, f),
            comment(_bound_note(f, entry=entry)),
            f.pinned and entry, entry,
        )
        for f, entry in fields
    )  # fmt: skip


def _bound_note(field: DimField, *, entry: bool) -> str:
    decided = "" if entry else ", decided by data and told in `result`"
    symbol = field.symbol
    return f"{field.source}: {symbol.origin}, {symbol.low}..{symbol.high}{decided}"


def _made_for(interface: Interface, field: DimField) -> int:
    """What conditions that only a raised bound could break leave of it; else 0."""
    symbol = Dim.of(field.symbol.name)
    limits = [
        c.right.constant
        for c in interface.conditions
        if (c.relation, c.left) == ("<=", symbol) and c.right.is_constant
    ]
    return min((limit for limit in limits if limit >= field.symbol.high), default=0)


def _sizes(interface: Interface, plan: Plan) -> list[Dim]:
    """All sizes that are constant expressions over the bounds: bytes, and arguments of externs."""
    inner = inner_sizes(plan.program, plan.module.bounds)
    types = [port.type for port in (*interface.inputs, *interface.outputs)]
    types += [part.type for part in interface.states]
    return (
        [slot.bytes for slot in plan.slots]
        + extern_sizes(plan)
        + [-(-type_.bytes.substitute(inner) // plan.alignment) * plan.alignment for type_ in types]
    )


def _checked(interface: Interface, plan: Plan) -> tuple[str, ...]:
    """Macros of sizes that must fit an int32; the arena is no smaller than any slot."""
    ports = [port.macro for port in (*interface.inputs, *interface.outputs)]
    owned = interface.has_state and interface.common is None
    state = [f"{interface.prefix}_STATE_BYTES"] if owned else []
    steps = [f"{interface.prefix}_STEPS"] if interface.stepwise else []
    return (*ports, *state, *steps, *(f"{arena.macro}_BYTES" for arena in interface.arenas))


def _member(port: Port, context: RunContext, macros: dict[str, str]) -> MemberView:
    bounds = context.plan.module.bounds
    size = at_most(port.type.bytes, inner_sizes(context.plan.program, bounds), bounds)
    return MemberView(
        port.c_name,
        port.c_type,
        port.macro,
        constant_size(size, context, macros),
        comment(_said_of(port)),
    )


def _said_of(port: Port) -> str:
    source = f", in the model: {port.source}" if port.source != port.c_name else ""
    return f"{port.type}{source}" + (f"  {port.meaning}" if port.meaning else "")


def _states(context: RunContext, macros: dict[str, str]) -> tuple[tuple[StateView, ...], str]:
    interface, plan = context.interface, context.plan
    sizes = {
        part.input: constant_size(
            -(-part.type.bytes // plan.alignment) * plan.alignment, context, macros
        )
        for part in interface.states
    }
    names = {part.input: context.values[part.input] for part in interface.states}
    return state_views(interface.states, names, sizes, header_bytes(interface, plan.alignment))


def state_views(
    parts: Sequence[StatePart], names: Mapping[str, str], sizes: Mapping[str, str], first: int
) -> tuple[tuple[StateView, ...], str]:
    """One part behind the other from byte `first` on, and where they end; what the parts are
    called in C and their sizes are given by their input."""
    offset = str(first)
    views = []
    for part in parts:
        size = sizes[part.input]
        note = comment(f"{part.type}")
        c_type = C_TYPES[part.type.dtype]
        views.append(StateView(names[part.input], c_type, part.macro, offset, size, note))
        offset = f"(long long){part.macro} + {size}"
    return tuple(views), offset if views else "0"


def _locals(context: RunContext) -> tuple[LocalView, ...]:
    return tuple(
        LocalView(context.symbols[f.symbol.name], f"dims->{f.c_name}", "")
        for f in run_code.locals_of_symbols(context)
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


def _dtypes(kernel: Kernel) -> set[DType]:
    """Of the buffers, and of what is computed in between: fusion leaves no buffer for it."""
    between = {expr.dtype for stmt in walk(kernel.body) for expr in expressions(stmt)}
    return between | {buffer.dtype for buffer in kernel.buffers}


def _kernels(context: RunContext) -> list[KernelView]:
    calls = {
        node.callee.name: node.call
        for node in walk_steps(context.plan.program.nodes)
        if isinstance(node, Step) and isinstance(node.callee, Kernel)
    }
    return [
        _kernel(kernel, calls, context)
        for kernel in context.plan.kernels
        if kernel.name in calls and context.kernels[kernel.name].owner
    ]


def _kernel(kernel: Kernel, calls: Mapping[str, Call], context: RunContext) -> KernelView:
    """The function of a kernel, and of those that share it."""
    text = context.kernels[kernel.name]
    parameters = run_code.kernel_parameters(kernel, context)
    mine = [call for name, call in calls.items() if context.kernels[name].c_name == text.c_name]
    origins = dict.fromkeys(call.origin or "the compiler" for call in mine)
    return KernelView(
        comment(call_text(calls[kernel.name], context.plan)),
        comment(", ".join(origins)),
        text.c_name,
        "enum raot_status" if kernel.fallible else "void",
        ", ".join(parameters),
        text.body,
    )


def call_text(call: Call, plan: Plan) -> str:
    """A call as one line of the text form, without its origin."""
    outs = ", ".join(f"%{o.name}: {o.type}" for o in call.outs if plan is not None)
    args = ", ".join(f"%{a.name}" if isinstance(a, Var) else "_" for a in call.args)
    if call.op == "call_kernel":
        return f"{outs} = call_kernel @{call.ref('kernel')}({args})"
    if call.op == "call_extern":
        values = ", ".join(f"{k}={attr_text(v)}" for k, v in call.attrs if k != "extern")
        return f"{outs} = call_extern @{call.ref('extern')}({args}) {{{values}}}"
    return f"{outs} = {call.op}({args})"


def _ir_lines(plan: Plan) -> list[str]:
    main = plan.module.main
    params = ", ".join(f"%{p.name}: {p.type}" for p in main.params)
    lines = [f"func @{main.name}({params}) {{"]
    for call in main.body:
        origin = f"  # {call.origin}" if call.origin else ""
        lines.append(f"  {call_text(call, plan)}{origin}")
    results = ", ".join(f"%{r.name}" for r in main.results)
    return [comment(line) for line in [*lines, f"  return {results}", "}"]]


def unsigned(model: ModelView) -> ModelView:
    """The code without what says where it came from: that may change between two exports."""
    kernels = tuple(replace(kernel, ir="", origin="") for kernel in model.kernels)
    return replace(model, version="", source="", ir_lines=(), kernels=kernels)
