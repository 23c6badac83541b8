# SPDX-License-Identifier: Apache-2.0
"""Growing states at the stride of their capacity.

After this pass, a growing state has its capacity on the axis of its rows, before and after a call:
row `i` has one place in memory, whatever the length. A window has the rows that it has memory for;
only the C knows the place of its first row, at which the pointers of a call begin. Kernels keep
their loops, which end at the length. Views keep the stride where they can; other uses get a copy of
the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Function, Module, State, Var, attrs_of
from relax_aot.ir.loops import Buffer, Kernel, Micro, Multiply, walk
from relax_aot.ir.names import unused_name
from relax_aot.ir.rewrite import map_buffers
from relax_aot.ir.types import Ref, Shape, TensorType


@dataclass(frozen=True, slots=True)
class _Rows:
    """A type with rows on `axis`, of which `capacity` have a place."""

    axis: int
    capacity: int

    def of(self, type_: TensorType) -> TensorType:
        shape = list(type_.shape)
        shape[self.axis] = Dim.of(self.capacity)
        return TensorType(type_.dtype, tuple(shape))


def at_capacity(module: Module) -> Module:
    """The lowered module, whose growing states have their capacity in their types."""
    growing = [s for s in module.states if s.length and _has_length(module, s)]
    return _Pass(module, growing).run() if growing else module


def _has_length(module: Module, state: State) -> bool:
    """Not so in a text that was lowered before."""
    (param,) = (v for v in module.main.params if v.name == state.input)
    return param.type.shape[state.axis] == Dim.of(state.length)


@dataclass
class _Pass:
    """Rewrites the entry function in order."""

    module: Module
    growing: list[State]
    rows: dict[str, _Rows] = field(default_factory=dict)
    """Of each value at the stride of a capacity."""
    copies: dict[str, Var] = field(default_factory=dict)
    """Values without that stride, for uses that need all elements in a row."""

    def run(self) -> Module:
        module = self.module
        self.kernels = dict(module.kernel_table)
        self.calls = {name: len(calls) for name, calls in module.kernel_calls.items()}
        self.taken = {*self.kernels, *module.lengths, *(s.name for s in module.symbols)}
        for function in module.functions:
            self.taken |= {v.name for v in function.params}
            self.taken |= {v.name for call in function.body for v in call.outs}
        for state in self.growing:
            self.rows[state.input] = _Rows(state.axis, module.lengths[state.length].rows)
        makers = {out.name: call for call in module.main.body for out in call.outs}
        for state in self.growing:
            if state.output != state.input:
                self._results(state.output, self.rows[state.input], makers)
        body = tuple(self._body())
        main = replace(
            module.main,
            params=tuple(map(self._physical, module.main.params)),
            body=body,
            results=tuple(map(self._physical, module.main.results)),
        )
        others = tuple(map(self._with_copies, module.functions[1:]))
        return replace(module, functions=(main, *others), kernels=tuple(self.kernels.values()))

    def _results(self, name: str, rows: _Rows, makers: Mapping[str, Call]) -> None:
        """The value, and those that it is a view of, are written at their stride."""
        self.rows[name] = rows
        call = makers[name]
        if call.op == "view" and call.inputs[0].name in makers:
            source = call.inputs[0]
            own = _viewed(call.out.type.shape, rows, source.type.shape)
            if own is not None and source.name not in self.rows:
                self._results(source.name, own, makers)

    def _body(self) -> Iterator[Call]:
        for call in self.module.main.body:
            if call.op == "view" and call.inputs[0].name in self.rows:
                yield from self._view(call)
            elif call.op == "call_kernel" and self._plain(call):
                yield self._kernel(call)
            else:
                yield from self._elsewhere(call)

    def _plain(self, call: Call) -> bool:
        """Micro-kernels have strides of their own."""
        body = self.kernels[call.ref("kernel")].body
        return not any(isinstance(stmt, Micro | Multiply) for stmt in walk(body))

    def _view(self, call: Call) -> Iterator[Call]:
        source, rows = call.inputs[0], self.rows[call.inputs[0].name]
        own = _viewed(source.type.shape, rows, call.out.type.shape)
        if own is not None and self.rows.get(call.out.name, own) == own:
            self.rows[call.out.name] = own
            yield replace(call, args=(self._physical(source),), outs=(self._physical(call.out),))
        else:
            yield from self._elsewhere(call)

    def _kernel(self, call: Call) -> Call:
        """The call of a kernel whose buffers have the strides of its values."""
        kernel = self.kernels[call.ref("kernel")]
        values = (*call.inputs, *call.outs)
        changed = {
            buffer.name: self.rows[value.name]
            for buffer, value in zip(kernel.buffers, values, strict=True)
            if value.name in self.rows
        }
        if not changed:
            return call
        if self.calls[kernel.name] > 1:
            kernel = replace(kernel, name=self._name(kernel.name))
            call = replace(call, attrs=attrs_of({"kernel": Ref(kernel.name)}))
        self.kernels[kernel.name] = _strided(kernel, changed)
        args = tuple(None if arg is None else self._physical(arg) for arg in call.args)
        return replace(call, args=args, outs=tuple(map(self._physical, call.outs)))

    def _elsewhere(self, call: Call) -> Iterator[Call]:
        """The call, with copies of the rows of its operands before it, and of its results after."""
        for arg in dict.fromkeys(call.inputs):
            if arg.name in self.rows and arg.name not in self.copies:
                self.copies[arg.name] = Var(self._name(f"{arg.name}.rows"), arg.type)
                yield self._copy(self._physical(arg), self.copies[arg.name], arg.type.shape)
        outs, after = [], []
        for out in call.outs:
            if out.name in self.rows:
                made = Var(self._name(f"{out.name}.rows"), out.type)
                after.append(self._copy(made, self._physical(out), out.type.shape))
                out = made
            outs.append(out)
        args = tuple(None if a is None else self.copies.get(a.name, a) for a in call.args)
        yield replace(call, args=args, outs=tuple(outs))
        yield from after

    def _copy(self, source: Var, target: Var, shape: Shape) -> Call:
        name = self._name(f"copy_{target.name}")
        one, other = (
            Buffer(label, v.type.dtype, v.type.shape) for label, v in (("x", source), ("y", target))
        )
        builder = KernelBuilder(name, [one], [other])
        with builder.loops(*shape) as at:
            builder.store(other[at], one[at])
        self.kernels[name] = builder.finish()
        return Call((target,), "call_kernel", (source,), attrs_of({"kernel": Ref(name)}), "rows")

    def _with_copies(self, function: Function) -> Function:
        """Branches and bodies of loops name values of the entry."""

        def var(value: Var) -> Var:
            return self.copies.get(value.name, value)

        def call(line: Call) -> Call:
            args = tuple(None if arg is None else var(arg) for arg in line.args)
            return replace(line, args=args)

        return replace(
            function,
            params=tuple(map(var, function.params)),
            body=tuple(map(call, function.body)),
            results=tuple(map(var, function.results)),
        )

    def _physical(self, value: Var) -> Var:
        rows = self.rows.get(value.name)
        return value if rows is None else replace(value, type=rows.of(value.type))

    def _name(self, requested: str) -> str:
        name = unused_name(requested, self.taken)
        self.taken.add(name)
        return name


def _viewed(before: Shape, rows: _Rows, after: Shape) -> _Rows | None:
    """The rows of a view, where their places are those of the viewed value."""
    size, outer = before[rows.axis], _product(before[: rows.axis])
    for axis, other in enumerate(after):
        if not other.symbols & size.symbols or _product(after[:axis]) != outer:
            continue
        for count in _ratio(other, size):
            return _Rows(axis, rows.capacity * count)
        for count in _ratio(size, other):
            return _Rows(axis, rows.capacity // count)
    return None


def _ratio(one: Dim, other: Dim) -> Iterator[int]:
    """The number by which `other` is multiplied to give `one`, if it is one."""
    (first, factors), *_ = one.terms
    scale = {f: c for c, f in other.terms}.get(factors)
    if scale and first % scale == 0 and other * (first // scale) == one:
        yield first // scale


def _product(shape: Shape) -> Dim:
    total = Dim.of(1)
    for size in shape:
        total = total * size
    return total


def _strided(kernel: Kernel, rows: Mapping[str, _Rows]) -> Kernel:
    def buffer(old: Buffer) -> Buffer:
        if old.name not in rows:
            return old
        return replace(old, shape=rows[old.name].of(old.type).shape)

    return replace(
        kernel,
        inputs=tuple(map(buffer, kernel.inputs)),
        outputs=tuple(map(buffer, kernel.outputs)),
        scratch=tuple(map(buffer, kernel.scratch)),
        body=map_buffers(kernel.body, buffer),
    )
