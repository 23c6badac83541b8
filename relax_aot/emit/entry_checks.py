# SPDX-License-Identifier: Apache-2.0
"""What a call checks before it writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from relax_aot.emit.arenas import LocalView
from relax_aot.emit.c_names import comment
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.interface import Interface, Port
from relax_aot.emit.kernels import CheckView
from relax_aot.emit.lengths import GrowthView, growth_views
from relax_aot.ir.dims import Dim, interval
from relax_aot.ir.graph import ASSUMED


@dataclass(frozen=True, slots=True)
class ChecksView:
    """What a call checks before it writes: C conditions that hold where it is refused, and the
    spans of memory that must not overlap."""

    init_null: str
    null: str
    data_null: tuple[str, ...]
    alignment: tuple[str, ...]
    sizes: tuple[str, ...]
    relations: tuple[CheckView, ...]
    related: tuple[CheckView, ...]
    """The relations between members of the struct of sizes."""
    lengths: tuple[GrowthView, ...]
    state: tuple[LocalView, ...]
    writes: tuple[str, ...]
    reads: tuple[str, ...]

    @property
    def write_count(self) -> int:
        return len(self.writes)

    @property
    def read_count(self) -> int:
        return len(self.reads)

    def of_init(self, interface: Interface) -> ChecksView:
        """Those of the function that prepares the memory of several entries."""
        fields = enumerate(interface.state_header, 1)
        state = tuple(LocalView(str(index), f"dims->{f.c_name}", "") for index, f in fields)
        return replace(
            self, init_null=_init_null(interface), sizes=_sizes(interface), relations=(),
            related=(), lengths=(), state=state,
        )  # fmt: skip

    @classmethod
    def of(cls, context: RunContext) -> ChecksView:
        interface = context.interface
        writes, reads = _spans(context)
        return cls(
            _init_null(interface),
            _null(interface),
            tuple(_data_null(context)),
            tuple(_alignment_checks(interface)),
            _sizes(interface),
            tuple(_relations(context, frozenset())),
            tuple(_relations(context, frozenset(context.plan.module.lengths))),
            growth_views(context),
            tuple(_state(interface)),
            tuple(writes),
            tuple(reads),
        )


def _null(interface: Interface) -> str:
    """A C condition: some pointer that must not be null is."""
    parts = ["memory == NULL"]
    parts += ["dims == NULL"] if interface.dims else []
    parts += ["in == NULL"] if interface.inputs else []
    parts += ["out == NULL"] if interface.outputs else []
    parts += ["result == NULL"] if interface.results else []
    return " || ".join(parts)


def _init_null(interface: Interface) -> str:
    """A C condition: some pointer that init needs is null."""
    parts = ["memory == NULL"]
    parts += ["memory->device == NULL"] if interface.device else []
    parts += ["memory->state == NULL"] if interface.has_state and not interface.device else []
    parts += ["memory->weights == NULL"] if interface.weights_apart else []
    return " || ".join(parts)


def _data_null(context: RunContext) -> list[str]:
    """One C condition per buffer; zero elements may be a null pointer."""
    interface = context.interface
    checks = []
    for side, ports in (("in", interface.inputs), ("out", interface.outputs)):
        for port in ports:
            checks.append(_null_check(context, f"{side}->{port.c_name}", port.type.elements))
    used = context.arenas_used
    checks += [f"memory->{a.member} == NULL" for n, a in enumerate(interface.arenas) if n in used]
    if interface.has_state and not interface.lengths and not interface.device:
        checks.append("memory->state == NULL")
    if interface.reads_weights:
        checks.append("memory->weights == NULL")
    return checks


def _null_check(context: RunContext, pointer: str, elements: Dim) -> str:
    bounds = context.plan.module.bounds
    if elements.symbols & context.plan.module.inner or interval(elements, bounds)[0] > 0:
        return f"{pointer} == NULL"
    return f"({pointer} == NULL && {context.dim(elements)} > 0)"


def _sizes(interface: Interface) -> tuple[str, ...]:
    """One C condition per symbol: it is outside its bounds."""
    return tuple(
        f"dims->{f.c_name} < {f.symbol.low} || dims->{f.c_name} > {f.macro}" for f in interface.dims
    )


def _relations(context: RunContext, without: frozenset[str]) -> Iterator[CheckView]:
    """C conditions that are true where sizes disagree, with what has to hold and why; those of
    sizes in `without` are left out. A capacity has a status of its own."""
    capacities = [growth.condition for growth in context.plan.module.lengths.values()]
    for condition in context.interface.conditions:
        if condition in capacities or (condition.left - condition.right).symbols & without:
            continue
        left, right = context.dim(condition.left), context.dim(condition.right)
        failing = "!=" if condition.relation == "==" else ">"
        origin = condition.origin
        said = origin if origin.startswith(ASSUMED) else f"{condition}: {origin}"
        yield CheckView(f"{left} {failing} {right}", comment(said.removesuffix(": ")))


def _spans(context: RunContext) -> tuple[list[str], list[str]]:
    """Initializers `{start, bytes}` of the memory that a run writes, and that it reads."""
    interface = context.interface

    def of(side: str, port: Port) -> str:
        greatest = port.type.symbols & context.plan.module.inner
        size = port.macro if greatest else context.bytes(port.type.bytes)
        return f"{{{side}->{port.c_name}, {size}}}"

    writes = [of("out", port) for port in interface.outputs]
    used = context.arenas_used
    writes += [
        f"{{memory->{a.member}, need_{a.member}}}"
        for n, a in enumerate(interface.arenas)
        if n in used
    ]
    if interface.has_state and not interface.device:
        writes.append(f"{{memory->state, {interface.owner_prefix}_STATE_BYTES}}")
    reads = [of("in", port) for port in interface.inputs]
    if interface.reads_weights:
        reads.append(f"{{memory->weights, {interface.owner_prefix}_WEIGHTS_BYTES}}")
    return writes, reads


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


def _state(interface: Interface) -> Iterator[LocalView]:
    """Index in the header, and the C expression it must equal, of sizes that shape the state."""
    order = [field.source for field in interface.state_header]
    for field in interface.state_symbols:
        yield LocalView(str(order.index(field.source) + 1), f"dims->{field.c_name}", "")
