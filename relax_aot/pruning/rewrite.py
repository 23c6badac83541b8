# SPDX-License-Identifier: Apache-2.0
"""The same calls on arrays without some of their places, in loops without some iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Constant, Var, attrs_of
from relax_aot.ir.loops import (
    BODIES,
    PARTS,
    Buffer,
    Declare,
    Expr,
    For,
    Kernel,
    Lit,
    Load,
    Stmt,
    Store,
    binary,
    mapped,
    walk,
)
from relax_aot.ir.names import unused_name
from relax_aot.ir.types import DType, Ref, TensorType
from relax_aot.ops._op import Array
from relax_aot.pruning.decide import Terms
from relax_aot.pruning.links import Key, Links, along, named
from relax_aot.pruning.plain import Plain, loads_of, span


class Uneven(Exception):
    """The places that stay on an axis are at no even distance for a loop."""

    def __init__(self, key: Key) -> None:
        super().__init__(str(key))
        self.key = key


@dataclass
class Rewriter:
    """Makes the calls, with kernels and constants of their own where anything goes."""

    links: Links
    gone: Array
    constants: dict[str, Constant]
    names: set[str]
    kernels: list[Kernel] = field(default_factory=list)
    made: dict[tuple[str, tuple[object, ...]], Constant] = field(default_factory=dict)

    def shape(self, name: str, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        sizes = []
        for axis, size in enumerate(shape):
            stays = self.stays(self.links.axis(name, axis))
            sizes.append(size if stays is None else Dim.of(int(stays.sum())))
        return tuple(sizes)

    def stays(self, key: Key) -> Array | None:
        """None where everything stays."""
        if key not in self.links.first:
            return None
        found = ~self.gone[self.links.places(key)]
        return None if found.all() else found

    def var(self, value: Var) -> Var:
        return replace(
            value, type=replace(value.type, shape=self.shape(value.name, value.type.shape))
        )

    def constant(self, name: str, source: Constant) -> Constant:
        """What stays of a constant, as one call reads it."""
        kept = [self.stays(self.links.axis(name, axis)) for axis in range(source.data.ndim)]
        if all(stays is None for stays in kept):
            return source
        data = np.asarray(source.data)
        for axis, stays in enumerate(kept):
            if stays is not None:
                data = np.compress(stays, data, axis)
        key = source.name, tuple(None if s is None else s.tobytes() for s in kept)
        if key not in self.made:
            self.made[key] = self.new(f"{source.name}.kept", data, source.type.dtype)
        return self.made[key]

    def new(self, name: str, data: Array, dtype: DType) -> Constant:
        type_ = TensorType(dtype, tuple(Dim.of(size) for size in data.shape))
        found = Constant(unused_name(name, self.names), type_, np.ascontiguousarray(data))
        self.names.add(found.name)
        self.constants[found.name] = found
        return found

    def call(self, number: int, call: Call, plain: Plain | None, sums: Sequence[Terms]) -> Call:
        outs = tuple(map(self.var, call.outs))
        if plain is None:
            args = tuple(None if arg is None else self.var(arg) for arg in call.args)
            if call.op == "view" and call.inputs[0].name in self.constants:
                name = named(call, number, self.constants)[0]
                args = (self.constant(name, self.constants[call.inputs[0].name]).var,)
            return replace(call, outs=outs, args=args)
        names = named(call, number, self.constants)
        given = [
            self.constant(name, self.constants[value.name]).var
            if value.name in self.constants
            else self.var(value)
            for name, value in zip(names, call.inputs, strict=True)
        ]
        work = _Kernel(self, number, plain, names, call, sums)
        if not work.changes:
            return replace(call, outs=outs, args=tuple(given))
        kernel, given = work.rewritten(given)
        self.kernels.append(kernel)
        attrs = attrs_of({**dict(call.attrs), "kernel": Ref(kernel.name)})
        return replace(call, outs=outs, args=tuple(given), attrs=attrs)


class _Kernel:
    def __init__(
        self,
        to: Rewriter,
        number: int,
        plain: Plain,
        names: list[str],
        call: Call,
        sums: Sequence[Terms],
    ) -> None:
        self.to, self.number, self.plain, self.call, self.sums = to, number, plain, call, sums
        kernel = plain.kernel
        self.buffers = dict(zip((b.name for b in kernel.inputs), names, strict=True))
        outs = (o.name for o in call.outs)
        written = (b.name for b in (*kernel.outputs, *kernel.scratch))
        self.buffers |= dict(zip(written, outs, strict=True))
        self.count = 0
        self.extra: list[tuple[Buffer, Var]] = []
        self.replaced: dict[str, tuple[Buffer, Var]] = {}
        self.numbers: dict[str, Lit] = {}
        self.deltas: dict[str, tuple[Array, list[str]]] = {}
        for terms in sums:
            self.note(terms)

    @property
    def changes(self) -> bool:
        keys: list[Key] = [("loop", self.number, n) for n in range(len(self.plain.loops))]
        for buffer in self.plain.kernel.buffers:
            name = self.buffers[buffer.name]
            keys += [self.to.links.axis(name, axis) for axis in range(buffer.rank)]
        return any(self.to.stays(key) is not None for key in keys)

    def note(self, terms: Terms) -> None:
        """What the terms that go add to a sum: an array along the loops around it."""
        made = terms.sum
        loops = [f for f in made.frames if f.number >= 0]
        outer = sum(f.number >= 0 for f in made.frames[: made.outer])
        stays = [self.to.stays(("loop", self.number, frame.number)) for frame in loops]
        if all(part is None for part in stays[outer:]) or not made.exact:
            return
        goes = np.zeros((1,) * len(loops), np.bool_)
        value = np.where(made.term.known, made.term.value, 0)
        sizes = [*value.shape[:outer], *(frame.size for frame in loops[outer:])]
        repeats = made.repeats
        for axis in range(outer, len(loops)):
            part = stays[axis]
            if part is not None:
                goes = goes | ~part.reshape([-1 if a == axis else 1 for a in range(len(loops))])
                repeats //= part.size // sizes[axis]  # one element may stand for all iterations
                sizes[axis] = part.size
        whole = np.where(goes, np.broadcast_to(value, sizes), 0)
        total = whole.sum(axis=tuple(range(outer, len(loops)))) * repeats
        for axis in range(outer):
            part = stays[axis]
            if part is not None and total.shape[axis] > 1:
                total = np.compress(part, total, axis)
        if total.any():
            variables = [frame.variable for frame in loops[:outer]]
            known = self.deltas.get(made.local)
            self.deltas[made.local] = (total if known is None else total + known[0]), variables

    def rewritten(self, given: list[Var]) -> tuple[Kernel, list[Var]]:
        kernel = self.plain.kernel
        self.numbers = self.single(given)
        body = self.block(kernel.body, {})
        name = unused_name(f"{kernel.name}_kept", self.to.names)
        self.to.names.add(name)
        inputs: list[Buffer] = []
        args: list[Var] = []
        for buffer, value in zip(kernel.inputs, given, strict=True):
            if buffer.name in self.numbers:
                continue
            one, other = self.replaced.get(buffer.name, (self.buffer(buffer), value))
            inputs.append(one)
            args.append(other)
        for one, other in self.extra:
            inputs.append(one)
            args.append(other)
        new = replace(
            kernel,
            name=name,
            inputs=tuple(inputs),
            outputs=tuple(map(self.buffer, kernel.outputs)),
            scratch=tuple(map(self.buffer, kernel.scratch)),
            body=body,
        )
        return new, args

    def single(self, given: Sequence[Var]) -> dict[str, Lit]:
        """Lists of integers of which the same number stays for each channel, by buffer, as a shift
        of which only channels that go had another one."""
        found: dict[str, Lit] = {}
        begun = {
            load.buffer.name
            for stmt in walk(self.plain.body)
            if isinstance(stmt, Declare) and stmt.local.name in self.deltas
            for load in loads_of(stmt)
        }
        for buffer, old, value in zip(
            self.plain.kernel.inputs, self.call.inputs, given, strict=True
        ):
            constant = self.to.constants.get(value.name)
            if value == old or constant is None or buffer.name in begun:
                continue
            data = np.asarray(constant.data)
            if data.ndim == 1 and buffer.dtype.is_int and (data == data[0]).all():
                found[buffer.name] = Lit(int(data[0]), buffer.dtype)
        return found

    def buffer(self, old: Buffer) -> Buffer:
        if old.name in self.replaced:
            return self.replaced[old.name][0]
        return replace(old, shape=self.to.shape(self.buffers[old.name], old.shape))

    def block(self, body: tuple[Stmt, ...], loops: dict[str, For]) -> tuple[Stmt, ...]:
        return tuple(self.statement(stmt, loops) for stmt in body)

    def statement(self, stmt: Stmt, loops: dict[str, For]) -> Stmt:
        def expr(part: Expr) -> Expr:
            part = mapped(part, PARTS, expr)
            if isinstance(part, Load):
                if part.buffer.name in self.numbers:
                    return self.numbers[part.buffer.name]
                return Load(self.buffer(part.buffer), self.index(part.buffer, part.index, loops))
            return part

        if isinstance(stmt, For):
            number, self.count = self.count, self.count + 1
            plain = self.plain.loops[number]
            body = self.block(stmt.body, {**loops, stmt.variable: plain})
            stays = self.to.stays(("loop", self.number, number))
            if stays is None:
                return replace(stmt, body=body)
            return replace(stmt, start=Dim.of(0), stop=Dim.of(int(stays.sum())), body=body)
        if isinstance(stmt, Declare) and stmt.local.name in self.deltas:
            return Declare(stmt.local, self.begun(stmt, expr))
        if isinstance(stmt, Store):
            at = self.index(stmt.buffer, stmt.index, loops)
            return Store(self.buffer(stmt.buffer), at, expr(stmt.value))
        stmt = mapped(stmt, BODIES, lambda inner: self.statement(inner, loops))
        return mapped(stmt, PARTS, expr)

    def begun(self, stmt: Declare, expr: Callable[[Expr], Expr]) -> Expr:
        """What a sum begins with: its bias takes what the terms that go add."""
        delta, variables = self.deltas.pop(stmt.local.name)
        dtype = stmt.local.dtype
        along_ = [name for name, size in zip(variables, delta.shape, strict=True) if size > 1]
        delta = np.squeeze(delta).astype(dtype.numpy)
        if not along_:
            return binary("+", expr(stmt.value), Lit(int(delta), dtype))
        at = tuple(map(Dim.of, along_))
        value = stmt.value
        source = self.source(value, at) if isinstance(value, Load) else None
        if source is not None and isinstance(value, Load):
            made = self.to.new(f"{source.name}.kept", source.data + delta, dtype)
            buffer = replace(value.buffer, shape=made.type.shape)
            self.replaced[buffer.name] = buffer, made.var
            return Load(buffer, value.index)
        taken = {b.name for b in self.plain.kernel.buffers} | self.to.names
        made = self.to.new(f"{self.call.outs[0].name}.bias", delta, dtype)
        buffer = Buffer(unused_name("bias", taken), dtype, made.type.shape)
        self.extra.append((buffer, made.var))
        begun = Load(buffer, at)
        nothing = isinstance(value, Lit) and value.value == 0
        return begun if nothing else binary("+", expr(value), begun)

    def source(self, load: Load, at: tuple[Dim, ...]) -> Constant | None:
        """The constant that is read, where it is read here alone and at the same places."""
        inputs = [buffer.name for buffer in self.plain.kernel.inputs]
        value = self.call.inputs[inputs.index(load.buffer.name)]
        constant = self.to.constants.get(value.name)
        reads = [
            part
            for stmt in walk(self.plain.body)
            for part in loads_of(stmt)
            if part.buffer.name == load.buffer.name
        ]
        if constant is None or load.index != at or len(reads) != 1:
            return None
        return self.to.constant(self.buffers[load.buffer.name], constant)

    # Places

    def index(
        self, buffer: Buffer, index: tuple[Dim, ...], loops: dict[str, For]
    ) -> tuple[Dim, ...]:
        name = self.buffers[buffer.name]
        return tuple(
            self.place(self.to.links.axis(name, axis), dim, loops) for axis, dim in enumerate(index)
        )

    def place(self, key: Key, dim: Dim, loops: dict[str, For]) -> Dim:
        """Where what was at a place is now."""
        stays = self.to.stays(key)
        if stays is None:
            return dim
        ranks = np.cumsum(stays) - 1
        plain = dim.substitute(self.plain.lets)
        if plain.is_constant:
            return Dim.of(int(ranks[plain.constant]))
        found = along(plain, loops)
        assert found is not None, f"{dim} runs along an axis of which places go"
        loop = loops[found.variable]
        iterations = span(loop)
        assert iterations is not None
        left = self.to.stays(("loop", self.number, self.plain.numbers[id(loop)]))
        old = np.array(iterations) if left is None else np.array(iterations)[left]
        new = np.arange(old.size) if left is not None else old
        places = ranks[old * found.factor + found.start]
        step = int(places[1] - places[0]) if places.size > 1 else found.factor
        first = int(places[0]) - step * int(new[0])
        even = (places == first + step * new).all() and (found.block == 1 or step == found.factor)
        if not even:
            raise Uneven(key)
        variable = Dim.of(found.variable)
        rest = plain - variable * found.factor - found.start
        moved = variable * step + first + rest
        return dim if moved == plain else moved
