# SPDX-License-Identifier: Apache-2.0
"""The C interface of a compiled module, as data: what templates, harnesses and the host
runner all agree on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.emit.c_names import Names, identifier
from relax_aot.ir.graph import Condition, Module, Symbol, Var, attr_symbols
from relax_aot.ir.types import C_TYPES, TensorType
from relax_aot.planning import Plan

STEP_FUNCTIONS = ("begin", "step", "step_name", "next", "check_entry")
"""What stands behind the model's name in the functions of a run that returns between kernels."""

TAKEN_MACROS = ("ALIGNMENT", "ARENA_BYTES", "ARENA", "H", "CONFIG_H", "LAYOUT_H", "VERSION")
"""What every header calls so behind the model's name."""

_STREAM_FUNCTIONS = ("run_on", "wait")
"""What stands behind the name of a model on a GPU, or of each of its entries."""
_MEMORY_FUNCTIONS = ("alloc", "free", "close", "device_message")
"""What stands behind the name of a model on a GPU."""
_PART_VARIABLES = ("part", "from", "done", "is_last")
_DEVICE_VARIABLES = (
    "device", "cuda", "run", "at", "frame", "weights", "state", "arena", "stream", "started",
    "functions", "launch", "opened", "check_call",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DimField:
    """A symbol as a member of `struct <name>_dims` (or of the result, if inner)."""

    symbol: Symbol
    source: str
    c_name: str
    macro: str
    first: int = 0
    """Of a length, the rows that init sets."""
    part: int = 0
    """What a run computes at a time, where it divides calls; 0 where it does not."""

    @classmethod
    def of(cls, symbol: Symbol, source: str, c_name: str, macro: str) -> DimField:
        part = 0 if symbol.division is None else symbol.high
        return cls(symbol.whole, source, c_name, macro, part=part)

    @property
    def most(self) -> str:
        """In C, the greatest value for which the values of a run have places."""
        return f"RAOT_MIN({self.macro}, {self.part})" if self.part else self.macro

    @property
    def pinned(self) -> bool:
        return self.symbol.low == self.symbol.high


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output: a member of the struct of inputs or outputs."""

    name: str
    source: str
    c_name: str
    macro: str
    """Its greatest size in bytes."""
    type: TensorType
    meaning: str = ""
    """The formula of the real value of a quantized element."""
    count_macro: str = ""
    """Its greatest number of elements."""

    @property
    def c_type(self) -> str:
        return C_TYPES[self.type.dtype]


@dataclass(frozen=True, slots=True)
class StatePart:
    """One state inside the state block, after the header."""

    input: str
    output: str
    source: str
    c_name: str
    type: TensorType
    macro: str
    """Where it begins in the block."""
    length: str = ""
    """The symbol of the rows that a growing state holds."""
    axis: int = 0

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Its shape before a call of these sizes, by symbol."""
        shape = [size.evaluate(sizes) for size in self.type.shape]
        if self.length:
            shape[self.axis] = sizes[self.length]
        return tuple(shape)


@dataclass(frozen=True, slots=True)
class ArenaPort:
    """How the C spells one arena: member of the memory struct, macro, function of its need."""

    member: str
    macro: str
    need: str


@dataclass(frozen=True, slots=True)
class CommonInterface:
    """What the entries of one model share: names, sizes, and the state block."""

    name: str
    prefix: str
    dims: tuple[DimField, ...]
    """The sizes of all entries; those of one name are one."""
    states: tuple[StatePart, ...]
    """Every state once, in the order in which they lie in the block."""
    shaping: tuple[DimField, ...]
    """The sizes that shape the state, in the order of its header."""
    state_bytes: int
    """The state block at the declared bounds."""
    fixed: tuple[DimField, ...] = ()
    """Sizes of one value that no entry depends on any more."""
    lengths: tuple[DimField, ...] = ()
    """The lengths of growing states, which follow `shaping` in the header."""


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    prefix: str
    arenas: tuple[ArenaPort, ...]
    """One for each region that is used; the main one is always there."""
    dims: tuple[DimField, ...]
    """Members of the dims struct: the entry's symbols, in order."""
    results: tuple[DimField, ...]
    """Inner symbols that shape an output; they come back in `result`."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[StatePart, ...]
    conditions: tuple[Condition, ...]
    weights_apart: bool = False
    """The program gives the weights, as a block that is checked."""
    common: CommonInterface | None = None
    """What it shares, where it is one entry of several."""
    stepwise: bool = False
    """There is a form of the run that returns between kernels."""
    fixed: tuple[DimField, ...] = ()
    """Sizes of one value that nothing depends on any more: no members of the dims struct."""
    lengths: tuple[DimField, ...] = ()
    """The lengths of growing states: sizes of a call that the state holds."""
    threads: int = 1
    """That share the loops of a run at most."""
    weights_linked: bool = True
    """The project has a C file with the weights; larger ones are loaded."""
    device: bool = False
    """Kernels run on a GPU: arena and state lie there, and the memory struct has no arenas."""

    @property
    def threaded(self) -> bool:
        """Whether threads share loops."""
        return self.threads > 1

    @property
    def workers(self) -> int:
        """The threads in addition to the one that calls a run."""
        return self.threads - 1

    @property
    def owner(self) -> str:
        """Whose memory, weights and header they are: the model's, or the common's."""
        return self.name if self.common is None else self.common.name

    @property
    def owner_prefix(self) -> str:
        return self.prefix if self.common is None else self.common.prefix

    @property
    def sizes(self) -> tuple[DimField, ...]:
        """All sizes of a call that are known before it."""
        return self.dims + self.lengths

    @property
    def all_lengths(self) -> tuple[DimField, ...]:
        """Those that the header of the state block holds, in order, behind `state_header`."""
        return self.lengths if self.common is None else self.common.lengths

    @property
    def windows(self) -> tuple[DimField, ...]:
        """The lengths of windows, whose first rows follow `all_lengths` in the header."""
        return tuple(f for f in self.all_lengths if f.symbol.growth and f.symbol.growth.is_window)

    @property
    def capacities(self) -> dict[str, int]:
        """The rows that growing states hold at most, by the source name of their length."""
        growths = [(f.source, f.symbol.growth) for f in self.all_lengths]
        return {source: growth.capacity for source, growth in growths if growth is not None}

    @property
    def bounded(self) -> tuple[DimField, ...]:
        """All sizes that the header has bounds of."""
        return self.dims if self.common is None else self.common.dims

    @property
    def divided(self) -> DimField | None:
        """The rows of a call that a run computes in parts."""
        return next((field for field in self.dims if field.part), None)

    @property
    def fixed_sizes(self) -> dict[str, int]:
        """By the names of the source."""
        return {field.source: field.symbol.low for field in self.fixed}

    @property
    def has_state(self) -> bool:
        return bool(self.states)

    @property
    def owner_has_state(self) -> bool:
        """This entry or another one keeps a state."""
        return self.has_state or (self.common is not None and bool(self.common.states))

    @property
    def has_host_state(self) -> bool:
        """The program gives the memory of the state."""
        return self.has_state and not self.device

    @property
    def reads_weights(self) -> bool:
        """Runs read the weights where the program has them; a GPU has a copy."""
        return self.weights_apart and not self.device

    @property
    def has_init(self) -> bool:
        """Something has to be prepared or checked before the first run."""
        return self.has_state or self.weights_apart or self.device

    @property
    def own_variables(self) -> list[str]:
        """What the templates of a run call variables: no size, value or kernel has such a name."""
        needs = [f"{kind}_{arena.member}" for arena in self.arenas for kind in ("need", "offsets")]
        steps = ["position", "name"] if self.stepwise else []
        steps += ["total", "rows", "first"] if self.windows else []
        steps += _PART_VARIABLES if self.divided else ()
        steps += _DEVICE_VARIABLES if self.device else ()
        return ["header", "writes", "reads", "length", *steps, *needs]

    @property
    def own_functions(self) -> list[str]:
        """What the functions are called that no kernel may be called like."""
        verbs = ("run", *STEP_FUNCTIONS) if self.stepwise else ("run",)
        verbs = (*verbs, *_STREAM_FUNCTIONS) if self.device else verbs
        verbs = (*verbs, "part") if self.divided else verbs
        names = [f.c_name for f in self.all_lengths]
        held = [f"{self.owner}_{verb}_{n}" for n in names for verb in ("get", "truncate")]
        shared = ("init", "worker", "stop") if self.threaded else ("init",)
        shared = (*shared, *_MEMORY_FUNCTIONS) if self.device else shared
        return [
            *(f"{self.owner}_{verb}" for verb in shared),
            *held,
            *(f"{self.name}_{verb}" for verb in verbs),
        ]

    @property
    def movable(self) -> tuple[DimField, ...]:
        """The sizes whose bound may be changed when the project is compiled."""
        return tuple(field for field in self.bounded if not field.pinned)

    @property
    def linked_run(self) -> str:
        """What the run is called in an object file, at the bounds of the generated header. The
        bounds are part of it, so that files built with different ones do not link."""
        return f"{self.name}_run" + "".join(f"_{f.c_name}{f.symbol.high}" for f in self.movable)

    @property
    def header_member(self) -> str:
        """The member of the memory struct that begins with the header of the state."""
        return "device" if self.device else "state"

    @property
    def state_symbols(self) -> tuple[DimField, ...]:
        """The sizes that shape the state: fixed by init, compared by every run."""
        used = frozenset[str]().union(*(part.type.symbols for part in self.states))
        return tuple(field for field in self.dims if field.symbol.name in used)

    @property
    def state_header(self) -> tuple[DimField, ...]:
        """The sizes in the header of the state block, in order: those that shape any state."""
        return self.state_symbols if self.common is None else self.common.shaping

    def header_bytes(self, alignment: int) -> int:
        """A mark that init has run, and one int32 per symbol that shapes the state."""
        words = len(self.state_header) + len(self.all_lengths) + len(self.windows)
        return padded_header(words, alignment)

    def parameters(self, *, run: bool) -> str:
        """As C declares them, of a run or of what prepares its memory."""
        parts = [f"const struct {self.owner}_memory *memory"]
        if self.dims:
            parts.append(f"const struct {self.name}_dims *dims")
        if run and self.inputs:
            parts.append(f"const struct {self.name}_inputs *in")
        if run and self.outputs:
            parts.append(f"const struct {self.name}_outputs *out")
        if run and self.results:
            parts.append(f"struct {self.name}_dims *result")
        return ", ".join(parts)

    def arguments(self, *, run: bool) -> str:
        """Addresses of the variables that main.c declares."""
        names = re.findall(r"\w+(?=,|$)", self.parameters(run=run))
        return ", ".join(f"&{name}" for name in names)

    def port(self, name: str) -> Port:
        return next(p for p in (*self.inputs, *self.outputs) if p.source == name or p.name == name)

    def shape(self, port: Port, dims: dict[str, int]) -> tuple[int, ...]:
        """The shape of a port at given sizes (by symbol name, inner ones included)."""
        return tuple(size.evaluate(dims) for size in port.type.shape)


def interface_of(
    plan: Plan,
    name: str,
    *,
    weights_apart: bool = False,
    meanings: Mapping[str, str] | None = None,
    common: CommonInterface | None = None,
    stepwise: bool = False,
    threads: int = 1,
    device: bool = False,
) -> Interface:
    """Names are legal and unique; they depend on the model alone. The names of sizes and
    states of an entry are those of `common`."""
    module, said = plan.module, meanings or {}
    c_name = identifier(name).lower()
    prefix = c_name.upper()
    known = () if common is None else (*common.dims, *common.lengths)
    shared = {field.source: field for field in known}
    macros = Names(TAKEN_MACROS, before=f"{prefix}_")
    if module.states:
        macros.claim("STATE_BYTES")
    if weights_apart:
        macros.claim("WEIGHTS_BYTES")
    if device:
        macros.claim("DEVICE_BYTES")
    regions = [] if device else [arena.region.name for arena in plan.arenas]
    arenas = tuple(_arena(name, n, c_name, macros) for n, name in enumerate(regions))
    state_inputs = {s.input for s in module.states}
    state_outputs = {s.output for s in module.states}
    fields = Names((field.c_name for field in shared.values()), reserved=())
    fixed = fixed_symbols(module)
    sizes = tuple(
        _own(shared[module.source_name(s.name)], s)
        if common is not None
        else _dim_field(s, module.source_name(s.name), fields, macros, prefix)
        for s in module.symbols
        if not s.inner and s not in fixed
    )
    shown = frozenset[str]().union(*(r.type.symbols for r in module.main.results))
    results = tuple(
        _dim_field(s, module.source_name(s.name), fields, macros, prefix)
        for s in module.symbols
        if s.inner and s.name in shown
    )

    return Interface(
        c_name,
        prefix,
        arenas,
        tuple(field for field in sizes if field.symbol.growth is None),
        results,
        _ports(module.main.params, state_inputs, module, macros, prefix, said),
        _ports(module.main.results, state_outputs, module, macros, prefix, said),
        state_parts(module, prefix) if common is None else _parts_of(module, common),
        module.conditions,
        weights_apart,
        common,
        stepwise,
        tuple(_dim_field(s, module.source_name(s.name), Names(), macros, prefix) for s in fixed)
        if common is None
        else common.fixed,
        tuple(field for field in sizes if field.symbol.growth is not None),
        threads,
        device=device,
    )


def _ports(
    values: tuple[Var, ...],
    states: set[str],
    module: Module,
    macros: Names,
    prefix: str,
    meanings: Mapping[str, str],
) -> tuple[Port, ...]:
    """Inputs or outputs that are not in `states`."""
    members = Names(reserved=())
    ports = []
    for value in values:
        if value.name in states:
            continue
        source = module.source_name(value.name)
        macro = f"{prefix}_{macros.claim(source.upper() + '_BYTES')}"
        count = f"{prefix}_{macros.claim(source.upper() + '_COUNT')}"
        meaning = meanings.get(value.name, "")
        member = members.claim(source)
        ports.append(Port(value.name, source, member, macro, value.type, meaning, count))
    return tuple(ports)


def fixed_symbols(module: Module) -> tuple[Symbol, ...]:
    """The sizes of one value that no type, attribute or condition depends on."""
    used = frozenset[str]().union(*(c.left.symbols | c.right.symbols for c in module.conditions))
    for function in module.functions:
        values = (*function.params, *(out for call in function.body for out in call.outs))
        used = used.union(*(value.type.symbols for value in values))
        attrs = (value for call in function.body for _, value in call.attrs)
        used = used.union(*map(attr_symbols, attrs))
    single = (s for s in module.symbols if s.low == s.high and not s.inner and not s.growth)
    return tuple(s for s in single if s.name not in used)


def state_parts(module: Module, prefix: str) -> tuple[StatePart, ...]:
    """The states of a module, with names of their own."""
    names, offsets = Names(), Names(before=f"{prefix}_STATE_OFFSET_")
    table = {v.name: v for v in (*module.main.params, *module.main.results)}
    parts = []
    for state in module.states:
        source = module.source_name(state.input)
        c_name = names.claim(source)
        macro = f"{prefix}_STATE_OFFSET_{offsets.claim(c_name).upper()}"
        type_ = table[state.input].type
        parts.append(
            StatePart(
                state.input, state.output, source, c_name, type_, macro, state.length, state.axis
            )
        )  # fmt: skip
    return tuple(parts)


def _parts_of(module: Module, common: CommonInterface) -> tuple[StatePart, ...]:
    """An entry's states: the common's names, the entry's own sizes."""
    shared = {part.source: part for part in common.states}
    own = state_parts(module, common.prefix)
    return tuple(
        replace(part, c_name=shared[part.source].c_name, macro=shared[part.source].macro)
        for part in own
    )


def _arena(region: str, number: int, name: str, macros: Names) -> ArenaPort:
    if number == 0:
        return ArenaPort("arena", f"{name.upper()}_ARENA", f"{name}_arena_bytes")
    member = f"arena_{identifier(region).lower()}"
    macros.claim(f"{member.upper()}_BYTES")
    return ArenaPort(member, f"{name.upper()}_{member.upper()}", f"{name}_{member}_bytes")


def _dim_field(symbol: Symbol, source: str, fields: Names, macros: Names, prefix: str) -> DimField:
    c_name = fields.claim(source)
    return DimField.of(symbol, source, c_name, f"{prefix}_{macros.claim(c_name.upper() + '_MAX')}")


def _own(field: DimField, symbol: Symbol) -> DimField:
    """The field of an entry, whose symbol this is."""
    own = DimField.of(symbol, field.source, field.c_name, field.macro)
    return replace(own, first=field.first)


def padded_header(sizes: int, alignment: int) -> int:
    return -(-4 * (1 + sizes) // alignment) * alignment
