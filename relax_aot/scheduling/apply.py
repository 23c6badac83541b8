# SPDX-License-Identifier: Apache-2.0
"""Finds the contractions of kernels, has strategies write them, and packs their constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256

from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Array, Call, Constant, Function, Module, Var, bytes_of
from relax_aot.ir.loops import Bind, For, If, Kernel, Let, Load, Micro, Stmt, expressions, walk
from relax_aot.ir.names import names_of, scratch_of
from relax_aot.ir.rewrite import rewrite_module
from relax_aot.ir.types import DType, TensorType, shape_of
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.microkernels.integers import TALL, words
from relax_aot.scheduling.contraction import (
    Contraction,
    Weighted,
    collapsed,
    contraction_of,
    weighted,
    with_columns_as_one,
    with_taken,
)
from relax_aot.scheduling.cost import work_of
from relax_aot.scheduling.grouped import grouped_of
from relax_aot.scheduling.nest import bounds_known, names_in
from relax_aot.scheduling.packing import Packed
from relax_aot.scheduling.room import room_of
from relax_aot.scheduling.strategies._sums import LEVELS
from relax_aot.scheduling.strategies.byte_rows import byte_rows
from relax_aot.scheduling.strategies.f32_calls import calls
from relax_aot.scheduling.strategies.f32_tiles import im2col, tiles
from relax_aot.scheduling.strategies.groups import groups
from relax_aot.scheduling.strategies.wide_rows import wide_rows
from relax_aot.scheduling.targets import Context, Emit, FloatStrategy, Target
from relax_aot.scheduling.writer import Writer

LEAN_PANEL = 1024
"""Bytes of a panel of floats in a kernel that keeps little scratch."""
TALL_BYTES = DType.F32.bytes * (TALL * COLUMNS + words(TALL))
"""Bytes of sums and integers of a tall tile of integers."""


def schedule_groups(stmt: For, w: Writer, context: Context) -> Emit | None:
    """A product with quantized weights in groups."""
    found = grouped_of(stmt, w.bounds, context.constants)
    return groups(found, w, context) if found is not None else None


def schedule_integers(stmt: For, w: Writer, context: Context) -> Emit | None:
    """An integer contraction with known weights, by the strategies of the target, or of two
    computed factors. Weights depend on no loop around the contraction."""
    found = contraction_of(stmt, w.bounds)
    if found is None:
        return wide_rows(stmt, w, context) if context.target.wide_rows else None
    ways = (found, with_columns_as_one(found), with_columns_as_one(found.swapped))
    matches = ((way, r) for way in ways if (r := weighted(way, context.constants)) is not None)
    found, roles = next(matches, (found, None))
    if roles is not None:
        joined = collapsed(found)
        if joined is not found:
            roles = replace(roles, collapsed=weighted(joined, context.constants))
        forms = [form for form in (_with_taken(roles), roles) if form is not None]
        for strategy in context.target.strategies:
            for form in forms:
                if emit := strategy(form, w, context):
                    return emit
    elif context.target.byte_rows and (emit := byte_rows(found, w, context)):
        return emit
    return partial(w.add, stmt)


def _with_taken(roles: Weighted) -> Weighted | None:
    """`with_taken`, with two loops over positions as one, too."""
    form = with_taken(roles)
    if form is None or roles.collapsed is None:
        return form
    return replace(form, collapsed=with_taken(roles.collapsed))


def schedule_floats(stmt: For, w: Writer, context: Context) -> Emit | None:
    """A float contraction, by one function for small programs or by a strategy of the target.
    The micro-kernel sums over at most three loops, or windows with more that are gathered."""
    found = contraction_of(stmt, w.bounds)
    if found is None or found.sum.dtype is not DType.F32:
        return None
    strategies, few = context.target.floats, len(found.reductions) <= LEVELS
    if found.computed or not few:
        usual = (im2col, tiles) if few else (im2col,)
        strategies = tuple(one for one in strategies if one in usual)
    whole = context.target.compact and not found.computed and few
    emit = _best((calls,), found, w, context) if whole else None
    if emit is None and found.is_regular(w.bounds):
        emit = _best(strategies, collapsed(found), w, context)
    return emit


def _best(
    strategies: Sequence[FloatStrategy], found: Contraction, w: Writer, context: Context
) -> Emit | None:
    """By the first strategy that matches, with either factor as its left operand."""
    for strategy in strategies:
        matches = [strategy(way, w, context) for way in (found, found.swapped)]
        ranked = [match for match in matches if match is not None]
        if ranked:
            return max(ranked, key=lambda match: match[0])[1]
    return None


def rewrite_nests(
    body: Iterable[Stmt],
    w: Writer,
    match: Callable[[For, tuple[For, ...]], Emit | None],
    around: tuple[For, ...] = (),
) -> None:
    """Adds the statements, with the outermost loops that match as they are emitted. `match` is
    given a loop and the loops around it."""
    for stmt in body:
        if isinstance(stmt, Let) and stmt.value.symbols <= set(w.bounds):
            w.bounds = w.bounds.with_value(stmt.name, stmt.value, stmt.value)
        if isinstance(stmt, Bind) and stmt.low.symbols | stmt.high.symbols <= set(w.bounds):
            w.bounds = w.bounds.with_value(stmt.name, stmt.low, stmt.high)
        if isinstance(stmt, If):
            with w.block() as then:
                rewrite_nests(stmt.then, w, match, around)
            with w.block() as otherwise:
                rewrite_nests(stmt.otherwise, w, match, around)
            w.add(replace(stmt, then=tuple(then), otherwise=tuple(otherwise)))
        elif not isinstance(stmt, For) or not bounds_known(stmt, w.bounds):
            w.add(stmt)
        elif emit := match(stmt, around):
            emit()
        else:
            with w.loop(stmt.variable, stmt.start, stmt.stop):
                rewrite_nests(stmt.body, w, match, (*around, stmt))


def with_nests(
    kernel: Kernel, bounds: Bounds, match: Callable[[For, Writer], Emit | None]
) -> Kernel:
    """A kernel for one thread, with the outermost loops that match as they are emitted."""
    if kernel.parallel:
        return kernel
    w = Writer(names_in(kernel), bounds)
    with w.block() as body:
        rewrite_nests(kernel.body, w, lambda stmt, _: match(stmt, w))
    return replace(kernel, body=tuple(body))


Match = Callable[[For, Writer, Context], Emit | None]


def apply(
    kernel: Kernel, bounds: Bounds, context: Context, match: Match
) -> tuple[Kernel, tuple[Packed, ...]]:
    """The same results to the bit, and the constants to pack. These come behind the other
    inputs; what is no longer read is no input. A kernel with parallel loops is scheduled
    already."""
    if kernel.parallel:
        return kernel, ()
    w = Writer(names_in(kernel), bounds)

    def matched(stmt: For, around: tuple[For, ...]) -> Emit | None:
        w.complete()
        emit = match(stmt, w, context)
        return partial(_inside, emit, w) if emit is not None and around else emit

    with w.block() as body:
        rewrite_nests(kernel.body, w, matched)
    gone = names_read(kernel.body) - names_read(body)
    inputs = (*kernel.inputs, *(packed.buffer for packed in w.packed))
    pairs = [pair for pair in kernel.in_place if pair[0] not in gone]
    if sum(not isinstance(stmt, Let) for stmt in kernel.body) == 1:
        pairs += w.in_place
    result = replace(
        kernel,
        inputs=tuple(buffer for buffer in inputs if buffer.name not in gone),
        scratch=(*kernel.scratch, *w.scratch),
        body=tuple(body),
        in_place=tuple(dict.fromkeys(pairs)),
    )
    return result, tuple(w.packed)


def _inside(emit: Emit, w: Writer) -> None:
    """What shares memory in a single iteration of a loop says nothing of all of them."""
    in_place = w.in_place
    emit()
    w.in_place = in_place


def names_read(body: Iterable[Stmt]) -> set[str]:
    """The buffers that statements read."""
    names = set[str]()
    for stmt in walk(body):
        written = stmt.written if isinstance(stmt, Micro) else ()
        loads = (expr for expr in expressions(stmt) if isinstance(expr, Load))
        names.update(load.buffer.name for load in loads if load not in written)
    return names


def apply_module(module: Module, target: Target, match: Match) -> Module:
    """Every kernel, with its constants packed. Calls that pack one constant in one way share the
    result."""
    table, bounds = module.constant_table, module.bounds
    work = {k.name: work_of(k.body, bounds) for k in module.kernels} if target.compact else {}
    room = room_of(module) if target.spare_panel else {}
    scheduled: dict[str, tuple[Kernel, tuple[Packed, ...]]] = {}
    for kernel in module.kernels:
        calls = module.kernel_calls[kernel.name]
        given = {b.name: {c.inputs[at].name for c in calls} for at, b in enumerate(kernel.inputs)}
        known = {name: vars_ for name, vars_ in given.items() if vars_ <= table.keys()}
        finite = {name for name, vars_ in known.items() if all(table[v].is_finite for v in vars_)}
        share = work[kernel.name] / max(sum(work.values()), 1) if work else 1.0
        balanced = {n for n, vars_ in known.items() if all(table[v].is_balanced for v in vars_)}
        lean = kernel.name in target.lean
        free = room.get(kernel.name, 0)
        rows = TALL if target.integers and free >= TALL_BYTES else target.rows
        spare = min(free - (TALL_BYTES if target.integers else 0), target.spare_panel)
        panel = LEAN_PANEL if lean else max(target.panel, spare)
        own = replace(target, panel=panel, rows=rows)
        arrays = () if module.replaceable else tuple(_data(table, kernel, one) for one in calls)
        context = Context(
            own, frozenset(known), frozenset(finite), share, frozenset(balanced), arrays, lean,
            free,
        )  # fmt: skip
        scheduled[kernel.name] = apply(kernel, bounds, context, match)
    made: dict[str, Constant] = {}
    names = names_of(module)

    def call(_: Function, before: Call) -> Call:
        if before.op != "call_kernel":
            return before
        kernel, packed = scheduled[before.ref("kernel")]
        more = kernel.scratch[len(module.kernel_table[kernel.name].scratch) :]
        outs = scratch_of(before, more, names)
        inputs = packed_inputs(module, before, kernel, packed, made)
        return replace(before, args=inputs, outs=(*before.outs, *outs))

    functions = rewrite_module(module, call).functions
    used = {v.name for f in functions for c in f.body for v in c.inputs}
    constants = tuple(c for c in (*module.constants, *made.values()) if c.name in used)
    kernels = tuple(kernel for kernel, _ in scheduled.values())
    return replace(module, functions=functions, kernels=kernels, constants=constants)


def packed_inputs(
    module: Module, call: Call, kernel: Kernel, packed: Sequence[Packed], made: dict[str, Constant]
) -> tuple[Var, ...]:
    """What a call of the module gives to the scheduled kernel, with constants that are packed,
    which `made` gets."""
    old = module.kernel_table[kernel.name]
    args = dict(zip((b.name for b in old.inputs), call.inputs, strict=True))
    data = _data(module.constant_table, old, call)
    for one in packed:
        values = one.data(data)
        key, own = _name(call, module, made, one, values, args)
        constant = Constant(own, TensorType(one.buffer.dtype, shape_of(*values.shape)), values)
        earlier = module.constant_table.get(own)  # of another pass
        if earlier is None or not _is_same(earlier, constant):
            earlier = made.setdefault(key, constant)
        args[one.buffer.name] = earlier.var
    return tuple(args[buffer.name] for buffer in kernel.inputs)


def _data(table: Mapping[str, Constant], kernel: Kernel, call: Call) -> dict[str, Array]:
    """The constants that a call gives to a kernel, by the names of its inputs."""
    pairs = zip(kernel.inputs, call.inputs, strict=True)
    return {buffer.name: table[var.name].data for buffer, var in pairs if var.name in table}


def _is_same(one: Constant, other: Constant) -> bool:
    return one.type == other.type and one.digest == other.digest


def _name(
    call: Call,
    module: Module,
    made: dict[str, Constant],
    packed: Packed,
    values: Array,
    args: dict[str, Var],
) -> tuple[str, str]:
    """A key for equal constants, and a name. Data that may be replaced are in no name."""
    content = sha256(bytes_of(values))
    content.update(str(values.shape).encode())
    digest = content.hexdigest()[:8]
    if packed.origin:
        stem = f"{args[packed.origin].name}.packed"
        constants = (*module.constants, *made.values())
        count = 1 + sum(one.name.startswith(stem) for one in constants)
        return f"{stem}_{digest}", f"{stem}_{count if module.replaceable else digest}"
    name = f"{packed.buffer.name}_{digest}"
    if module.replaceable:
        name = f"{call.outs[0].name}.{packed.buffer.name}"
    return name, name
