"""Integer contractions by the micro-kernels of a target."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256

from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Array, Call, Constant, Module, Var
from relax_aot.ir.loops import For, Kernel, Let, Load, Micro, Stmt, expressions, walk
from relax_aot.ir.types import TensorType, shape_of
from relax_aot.scheduling import (
    integer_alone,
    integer_channels,
    integer_depthwise,
    integer_dsp,
    integer_last,
    integer_mve,
    integer_quads,
)
from relax_aot.scheduling.integer_match import Contraction, contraction
from relax_aot.scheduling.integer_parts import FOURS, PAIRS, Derived, Form, Written, of_bytes
from relax_aot.scheduling.jam import Names
from relax_aot.scheduling.nest import names_in

LANES = {"pairs": PAIRS, "fours": FOURS}


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A kernel with micro-kernels, and the constants that it wants made."""

    kernel: Kernel
    derived: tuple[Derived, ...] = ()


def integer_kernel(
    kernel: Kernel, bounds: Bounds, constants: frozenset[str], form: str
) -> Scheduled:
    """The same bits. `constants`: inputs whose data are known. `form`: dsp, with 16-bit weights;
    dsp8, with 8-bit ones; mve; pairs or fours, vectors of 16-bit and of 8-bit numbers."""
    names = Names(names_in(kernel))
    body: list[Stmt] = []
    alone = sum(not isinstance(stmt, Let) for stmt in kernel.body) == 1
    found = Written()
    for stmt in kernel.body:
        if isinstance(stmt, Let) and stmt.value.symbols <= set(bounds):
            bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
        known = isinstance(stmt, For) and stmt.stop.symbols <= set(bounds)
        what = contraction(stmt, constants, bounds) if known else None
        written = _written(what, names, bounds, constants, form) if what is not None else None
        if written is None:
            body.append(stmt)
            continue
        body += written.body
        found.scratch += written.scratch
        found.derived += written.derived
        found.in_place = written.in_place if alone else ()
    if not found.derived:
        return Scheduled(kernel)
    read = _names_read(kernel.body) - _names_read(tuple(body))
    inputs = (*kernel.inputs, *(d.buffer for d in found.derived))
    kept = tuple(buffer for buffer in inputs if buffer.name not in read)
    pairs = tuple(pair for pair in kernel.in_place if pair[0] not in read)
    pairs += tuple(pair for pair in found.in_place if pair not in pairs)
    scratch = (*kernel.scratch, *found.scratch)
    made = replace(kernel, inputs=kept, scratch=scratch, body=tuple(body), in_place=pairs)
    return Scheduled(made, tuple(found.derived))


def _written(
    what: Contraction, names: Names, bounds: Bounds, constants: frozenset[str], form: str
) -> Written | None:
    if form in LANES:
        return _lanes(what, names, bounds, constants, LANES[form])
    if form == "mve" and integer_last.suits(what, constants):
        return integer_last.write(what, names, bounds, constants)
    if form == "mve" and integer_quads.suits(what, constants, bounds):
        return integer_quads.write(what, names, bounds, constants)
    if form == "mve" and integer_mve.suits(what, constants):
        return integer_mve.write(what, names, bounds)
    if integer_dsp.suits(what, constants):
        # Codes without their zero point need not be bytes any more.
        wide = form != "dsp8" or not of_bytes(what)
        return integer_dsp.write(what, names, bounds, wide)
    if integer_depthwise.suits(what, constants):
        return integer_depthwise.write(what, names, bounds)
    return None


def _lanes(
    what: Contraction, names: Names, bounds: Bounds, constants: frozenset[str], form: Form
) -> Written | None:
    """By vectors along what lies side by side in the result."""
    if integer_channels.depthwise_suits(what, constants):
        return integer_channels.depthwise(what, names, bounds)
    if form == FOURS and what.channel is not None and not of_bytes(what):
        return None
    rows = integer_channels.suits(what, constants)
    if rows and what.channel is not None and integer_channels.lies_last(what, what.channel):
        return integer_channels.write(what, names, bounds, form)
    if integer_alone.suits(what, constants):
        return integer_alone.write(what, names, bounds, form)
    return integer_channels.write(what, names, bounds, form) if rows else None


def _names_read(body: tuple[Stmt, ...]) -> set[str]:
    found = set()
    for stmt in walk(body):
        written = stmt.written if isinstance(stmt, Micro) else ()
        for expr in expressions(stmt):
            if isinstance(expr, Load) and expr not in written:
                found.add(expr.buffer.name)
    return found


@dataclass
class _Made:
    """Constants that are made, by what they hold, or by the call where that may be replaced."""

    replaceable: bool
    constants: dict[str, Constant] = field(default_factory=dict)

    def add(self, derived: Derived, data: Array, call: Call) -> Var:
        if self.replaceable:
            name = f"{call.outs[0].name}.{derived.buffer.name}"
        else:
            digest = sha256(data.tobytes() + str(data.shape).encode()).hexdigest()[:8]
            name = f"{derived.buffer.name}_{digest}"
        type_ = TensorType(derived.buffer.dtype, shape_of(*data.shape))
        self.constants.setdefault(name, Constant(name, type_, data))
        return self.constants[name].var


def integer_module(module: Module, form: str) -> Module:
    """Every kernel that has integer contractions, with its constants packed."""
    table = module.constant_table
    scheduled: dict[str, tuple[Kernel, Scheduled]] = {}
    for kernel in module.kernels:
        mine = module.kernel_calls[kernel.name]
        known = frozenset(
            buffer.name
            for position, buffer in enumerate(kernel.inputs)
            if all(call.inputs[position].name in table for call in mine)
        )
        scheduled[kernel.name] = (kernel, integer_kernel(kernel, module.bounds, known, form))
    made = _Made(module.replaceable)
    functions = tuple(
        replace(f, body=tuple(_call(call, scheduled, table, made) for call in f.body))
        for f in module.functions
    )
    used = {v.name for f in functions for c in f.body for v in c.inputs}
    constants = [c for c in (*module.constants, *made.constants.values()) if c.name in used]
    kernels = tuple(found.kernel for _, found in scheduled.values())
    return replace(module, functions=functions, kernels=kernels, constants=tuple(constants))


def _call(
    call: Call,
    scheduled: dict[str, tuple[Kernel, Scheduled]],
    table: dict[str, Constant],
    made: _Made,
) -> Call:
    """The call with the arguments and the scratch that its kernel now wants."""
    if call.op != "call_kernel":
        return call
    before, after = scheduled[call.ref("kernel")]
    if not after.derived:
        return call
    args = dict(zip((b.name for b in before.inputs), call.inputs, strict=True))
    data = {name: table[var.name].data for name, var in args.items() if var.name in table}
    for derived in after.derived:
        args[derived.buffer.name] = made.add(derived, derived.make(data), call)
    more = after.kernel.scratch[len(before.scratch) :]
    outs = (
        Var(f"{call.outs[0].name}.{buffer.name}", TensorType(buffer.dtype, buffer.shape))
        for buffer in more
    )
    inputs = tuple(args[buffer.name] for buffer in after.kernel.inputs)
    return replace(call, args=inputs, outs=(*call.outs, *outs))
