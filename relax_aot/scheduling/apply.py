"""Finds the contractions of kernels, has strategies write them, and packs their constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

import numpy as np

from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Array, Call, Constant, Module, Var
from relax_aot.ir.loops import For, Kernel, Let, Load, Micro, Stmt, expressions, walk
from relax_aot.ir.types import DType, TensorType, shape_of
from relax_aot.scheduling.contraction import all_known, collapsed, contraction_of, weighted
from relax_aot.scheduling.nest import bounds_known, names_in
from relax_aot.scheduling.packing import Packed
from relax_aot.scheduling.strategies.f32_calls import calls
from relax_aot.scheduling.strategies.f32_tiles import REDUCTIONS
from relax_aot.scheduling.targets import Context, Emit
from relax_aot.scheduling.writer import Names, Writer


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A kernel, and the constants that it needs packed."""

    kernel: Kernel
    packed: tuple[Packed, ...] = ()


Match = Callable[[For, Writer, Context], Emit | None]


def schedule_integers(stmt: For, w: Writer, context: Context) -> Emit | None:
    """An integer contraction with known weights, by the strategies of the target."""
    found = contraction_of(stmt, w.bounds)
    roles = weighted(found, context.constants) if found is not None else None
    if roles is None:
        return None
    emits = (strategy(roles, w, context) for strategy in context.target.strategies)
    return next((emit for emit in emits if emit is not None), None)


def schedule_floats(stmt: For, w: Writer, context: Context) -> Emit | None:
    """A float contraction, by one function for small programs or by a strategy of the target."""
    found = contraction_of(stmt, w.bounds)
    if found is None or found.sum.dtype is not DType.F32 or len(found.reductions) > REDUCTIONS:
        return None
    if context.target.compact and (emit := calls(found, w, context)) is not None:
        return emit
    if not all_known(found, w.bounds):
        return None
    found = collapsed(found)
    emits = (strategy(found, w, context) for strategy in context.target.floats)
    return next((emit for emit in emits if emit is not None), None)


def apply(kernel: Kernel, bounds: Bounds, context: Context, match: Match) -> Scheduled:
    """The same results to the bit. Packed constants come behind the other inputs, and what is
    not read any more is no input."""
    w = Writer(Names(names_in(kernel)), bounds)
    with w.block() as body:
        matched = _block(kernel.body, w, context, match)
    if not matched:
        return Scheduled(kernel)
    gone = _names_read(kernel.body) - _names_read(body)
    inputs = (*kernel.inputs, *(packed.buffer for packed in w.packed))
    pairs = tuple(pair for pair in kernel.in_place if pair[0] not in gone)
    if sum(not isinstance(stmt, Let) for stmt in kernel.body) == 1:
        pairs += tuple(pair for pair in w.in_place if pair not in pairs)
    result = replace(
        kernel,
        inputs=tuple(buffer for buffer in inputs if buffer.name not in gone),
        scratch=(*kernel.scratch, *w.scratch),
        body=tuple(body),
        in_place=pairs,
    )
    return Scheduled(result, tuple(w.packed))


def _block(body: tuple[Stmt, ...], w: Writer, context: Context, match: Match) -> bool:
    matched = False
    for stmt in body:
        if isinstance(stmt, Let) and stmt.value.symbols <= set(w.bounds):
            w.bounds = w.bounds.with_value(stmt.name, stmt.value, stmt.value)
        if not isinstance(stmt, For) or not bounds_known(stmt, w.bounds):
            w.add(stmt)
            continue
        emit = match(stmt, w, context)
        if emit is not None:
            emit()
            matched = True
        elif match is schedule_integers:
            w.add(stmt)
        else:
            with w.loop(stmt.variable, stmt.start, stmt.stop):
                matched |= _block(stmt.body, w, context, match)
    return matched


def _names_read(body: Iterable[Stmt]) -> set[str]:
    found = set()
    for stmt in walk(body):
        written = stmt.written if isinstance(stmt, Micro) else ()
        for expr in expressions(stmt):
            if isinstance(expr, Load) and expr not in written:
                found.add(expr.buffer.name)
    return found


# Whole modules


def apply_module(
    module: Module, context: Context, match: Match, shares: dict[str, float]
) -> Module:
    """Every kernel, with its constants packed. `shares`: of the model's work, by kernel."""
    table = module.constant_table
    scheduled: dict[str, tuple[Kernel, Scheduled]] = {}
    for kernel in module.kernels:
        mine = module.kernel_calls[kernel.name]
        given = [{call.inputs[at].name for call in mine} for at in range(len(kernel.inputs))]
        pairs = list(zip(kernel.inputs, given, strict=True))
        known = frozenset(buffer.name for buffer, names in pairs if names <= table.keys())
        finite = frozenset(
            buffer.name
            for buffer, names in pairs
            if buffer.name in known and all(_is_finite(table[name]) for name in names)
        )
        own = replace(context, constants=known, finite=finite, share=shares.get(kernel.name, 1.0))
        scheduled[kernel.name] = (kernel, apply(kernel, module.bounds, own, match))
    made: dict[str, Constant] = {}

    def call(before: Call) -> Call:
        if before.op != "call_kernel":
            return before
        name = partial(_name, before, made, replaceable=module.replaceable)
        return _call(before, *scheduled[before.ref("kernel")], table, made, name)

    functions = tuple(replace(f, body=tuple(map(call, f.body))) for f in module.functions)
    used = {v.name for f in functions for c in f.body for v in c.inputs}
    constants = [c for c in (*module.constants, *made.values()) if c.name in used]
    kernels = tuple(found.kernel for _, found in scheduled.values())
    return replace(module, functions=functions, kernels=kernels, constants=tuple(constants))


def _is_finite(constant: Constant) -> bool:
    return constant.type.dtype.is_float and bool(np.isfinite(constant.data).all())


def _call(
    call: Call,
    before: Kernel,
    after: Scheduled,
    table: dict[str, Constant],
    made: dict[str, Constant],
    name: Callable[[Packed, Array, dict[str, Var]], tuple[str, str]],
) -> Call:
    """The call with the arguments and the scratch that its kernel now takes. Calls that pack
    one constant in one way share the result."""
    args = dict(zip((b.name for b in before.inputs), call.inputs, strict=True))
    data = {name: table[var.name].data for name, var in args.items() if var.name in table}
    for packed in after.packed:
        values = packed.data(data)
        type_ = TensorType(packed.buffer.dtype, shape_of(*values.shape))
        key, own = name(packed, values, args)
        args[packed.buffer.name] = made.setdefault(key, Constant(own, type_, values)).var
    more = after.kernel.scratch[len(before.scratch) :]
    outs = (Var(f"{call.outs[0].name}.{buffer.name}", buffer.type) for buffer in more)
    inputs = tuple(args[buffer.name] for buffer in after.kernel.inputs)
    return replace(call, args=inputs, outs=(*call.outs, *outs))


def _name(
    call: Call,
    made: dict[str, Constant],
    packed: Packed,
    values: Array,
    args: dict[str, Var],
    *,
    replaceable: bool,
) -> tuple[str, str]:
    """A key for equal constants, and a name. Data that may be replaced are in no name."""
    digest = sha256(values.tobytes() + str(values.shape).encode()).hexdigest()[:8]
    if packed.origin:
        stem = f"{args[packed.origin].name}.packed"
        count = 1 + sum(one.name.startswith(stem) for one in made.values())
        return f"{stem}_{digest}", f"{stem}_{count if replaceable else digest}"
    name = f"{packed.buffer.name}_{digest}"
    if replaceable:
        name = f"{call.outs[0].name}.{packed.buffer.name}"
    return name, name
