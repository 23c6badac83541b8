# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and simple RNN as ONNX defines them, as loops over the sequence. The arguments are
x, w, r, b?, lens?, h0?, and for lstm c0? and peepholes?.

Shapes: x [seq, batch, in]; w [directions, gates*hidden, in]; r [directions, gates*hidden,
hidden]; b [directions, 2*gates*hidden]; lens [batch]; h0, c0 [directions, batch, hidden];
p [directions, 3*hidden]. Results: y [seq, directions, batch, hidden], then the last
states [directions, batch, hidden]. Beyond a sequence's length y is 0 and states stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Operand, Select, apply, as_expr, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, must_fit, require
from relax_aot.ops._recurrent import (
    DIRECTIONS,
    GATES,
    PARAMETERS,
    STATES,
    Cell,
    argument_names,
    reference_of,
    shared_activations,
)
from relax_aot.ops._samples import normals

Buffers = dict[str, "Buffer | _Widened | None"]
STEPS = 4
"""The products of so many steps' inputs are one matrix product: weights are read once for them."""

MEANING = {
    "w": "input weights",
    "r": "recurrent weights",
    "b": "bias",
    "lens": "sequence lengths",
    "h0": "initial state",
    "c0": "initial cell state",
    "p": "peephole weights",
}


def _deduce(kind: str) -> Callable[..., tuple[TensorType, ...]]:
    def deduce(cell: Cell, *args: TensorType | None) -> tuple[TensorType, ...]:
        x, w = args[0], args[1]
        assert x is not None and w is not None
        require(x.rank == 3 and w.rank == 3, f"{kind} needs x and w of rank 3, got {x} and {w}")
        require(x.dtype.is_float, f"{kind} needs float tensors, got {x}")
        gates = Dim.of(GATES[kind] * cell.hidden)
        require(w.shape[1] == gates, f"{kind}: w has {w.shape[1]} rows, expected {gates}")
        ways, hidden = Dim.of(len(cell.reverses)), Dim.of(cell.hidden)
        seq, batch = x.shape[:2]
        state = TensorType(x.dtype, (ways, batch, hidden))
        y = TensorType(x.dtype, (seq, ways, batch, hidden))
        return (y, *[state] * STATES[kind])

    return deduce


def _conditions(kind: str) -> Callable[..., list[Condition]]:
    def conditions(cell: Cell, *args: TensorType | None) -> list[Condition]:
        named = dict(zip(argument_names(kind), args, strict=False))
        x = named["x"]
        assert x is not None
        ways, hidden = Dim.of(len(cell.reverses)), Dim.of(cell.hidden)
        gates, (_, batch, width) = Dim.of(GATES[kind]) * hidden, x.shape
        expected = {
            "w": (ways, gates, width),
            "r": (ways, gates, hidden),
            "b": (ways, gates + gates),
            "lens": (batch,),
            "h0": (ways, batch, hidden),
            "c0": (ways, batch, hidden),
            "p": (ways, Dim.of(3) * hidden),
        }
        found: list[Condition] = []
        for name, shape in expected.items():
            found += must_fit(named.get(name), shape, f"{kind}'s {MEANING[name]}")
        return found

    return conditions


PLAIN: dict[str, Callable[[Expr], Expr]] = {
    "sigmoid": lambda x: apply("sigmoid", x),
    "tanh": lambda x: apply("tanh", x),
    "relu": lambda x: apply("max", x, 0.0),
    "softsign": lambda x: binary("/", x, apply("abs", x) + 1.0),
    "softplus": lambda x: apply("max", x, 0.0) + apply("log1p", apply("exp", -apply("abs", x))),
}
ACTIVATIONS = (*PLAIN, *PARAMETERS)


def _activation(text: str) -> Callable[[Expr], Expr]:
    """`tanh`, or with parameters `leakyrelu 0.2`."""
    name, *values = text.split()
    if name in PLAIN:
        return PLAIN[name]
    alpha, *rest = [float(value) for value in values] or PARAMETERS[name]
    beta = rest[0] if rest else 0.0
    return lambda x: _parametric(name, x, alpha, beta)


def _parametric(name: str, x: Expr, alpha: float, beta: float) -> Expr:
    match name:
        case "affine":
            return binary("*", x, alpha) + beta
        case "elu":
            return Select(x < 0.0, binary("*", apply("expm1", x), alpha), x)
        case "hardsigmoid":
            return apply("max", apply("min", binary("*", x, alpha) + beta, 1.0), 0.0)
        case "leakyrelu":
            return Select(x < 0.0, binary("*", x, alpha), x)
        case "scaledtanh":
            return binary("*", apply("tanh", binary("*", x, beta)), alpha)
        case "thresholdedrelu":
            return Select(x < alpha, as_expr(0.0, x.dtype), x)
    raise AssertionError(name)


def _lower(kind: str) -> Callable[..., None]:
    def lower(cell: Cell, k: KernelBuilder, *buffers: Buffer | None) -> None:
        names = argument_names(kind)
        count = len(buffers) - 1 - STATES[kind]
        given: Buffers = dict.fromkeys(names)
        given |= dict(zip(names, buffers[:count], strict=False))
        outputs = buffers[count:]
        x = given["x"]
        assert x is not None
        narrow = x.dtype in (DType.F16, DType.BF16)
        states = [
            k.scratch(f"state{i}", DType.F32, state.shape) if narrow else state
            for i, state in enumerate(s for s in outputs[1:] if s is not None)
        ]
        if narrow:
            given = {
                name: _Widened(b) if isinstance(b, Buffer) and b.dtype is x.dtype else b
                for name, b in given.items()
            }
        for way, reverse in enumerate(cell.reverses):
            _direction(k, kind, cell, given, outputs[0], states, way, reverse)
        if narrow:
            # States are rounded to half precision once, after the last step.
            for rounded, state in zip([s for s in outputs[1:] if s], states, strict=True):
                with k.loops(*state.shape) as at:
                    k.store(rounded[at], Cast(state[at], rounded.dtype))

    return lower


def _as(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype is dtype else Cast(value, dtype)


class _Widened:
    """A buffer of half precision, read as float32."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.shape = buffer.shape
        self.dtype = DType.F32

    def __getitem__(self, at: Any) -> Expr:
        return Cast(self.buffer[at], DType.F32)


def _direction(
    k: KernelBuilder,
    kind: str,
    cell: Cell,
    given: Buffers,
    y: Buffer | None,
    held: list[Buffer],
    way: int,
    reverse: bool,
) -> None:
    """One direction: states start in the result buffers and are updated step by step; in
    scratch of float32 where they are of half precision. The products of some steps' inputs are
    one matrix product. With lengths, each sequence of a batch takes its steps on its own."""
    x = given["x"]
    assert x is not None and y is not None
    seq, batch, _ = x.shape
    d = Dim.of(way)
    for state, first in zip(held, ("h0", "c0"), strict=False):
        start = given[first]
        with k.loops(batch, cell.hidden) as (n, j):
            k.store(state[(d, n, j)], 0.0 if start is None else start[(d, n, j)])
    rows, lens = GATES[kind] * cell.hidden, given["lens"]
    together = (dim_min(seq, STEPS), batch) if lens is None else (Dim.of(1), Dim.of(1))
    before = k.scratch(f"inputs{way}", held[0].dtype, (*together, rows))
    gates = k.scratch(f"gates{way}", held[0].dtype, (together[1], rows))
    steps = _Steps(k, kind, cell, given, y, held, before, gates, way)
    if lens is None:
        with k.loops(ceildiv(seq, STEPS)) as (block,):
            start_at = block * STEPS
            count = k.let("steps", dim_min(seq - start_at, STEPS))
            last = seq - 1 - start_at
            steps.inputs(count, lambda s: last - s if reverse else start_at + s)
            with k.loops(count) as (s,):
                steps.step(s, k.let("t", last - s) if reverse else start_at + s)
        return
    with k.loops(seq, batch) as (t, n):
        length = k.index("length", Cast(lens[(n,)], DType.I64), 0, seq)
        with k.when(binary("<", t, length)):
            place = k.let("t", length - 1 - t) if reverse else t
            alone = replace(steps, one=n)
            alone.inputs(Dim.of(1), lambda _: place)
            alone.step(Dim.of(0), place)
        with k.otherwise(), k.loops(cell.hidden) as (j,):
            k.store(y[(t, d, n, j)], 0.0)


@dataclass(frozen=True)
class _Steps:
    """Loops of one direction, for all sequences of a batch or for `one`. `before` are sums of
    the bias and the products of inputs, `gates` those of the step."""

    k: KernelBuilder
    kind: str
    cell: Cell
    given: Buffers
    y: Buffer
    states: list[Buffer]
    before: Buffer
    gates: Buffer
    way: int
    one: Dim | None = None

    @property
    def d(self) -> Dim:
        return Dim.of(self.way)

    def inputs(self, count: Dim, place: Callable[[Dim], Dim]) -> None:
        """The sums of `count` steps, whose inputs are at `place`."""
        x, w = self.given["x"], self.given["w"]
        assert x is not None and w is not None
        for first, rows in self._parts():
            both = first == 0 or not self.cell.linear_before_reset
            with self.k.loops(count) as (s,), self._each(rows) as (n, own, row):
                gate = row + first
                total = self.k.local("sum", self.gates.dtype, self._bias(gate, both=both))
                with self.k.loops(x.shape[2]) as (i,):
                    factor = x[(place(s), n, i)]
                    self.k.assign(total, total + binary("*", w[(self.d, gate, i)], factor))
                self.k.store(self.before[(s, own, gate)], total)

    def step(self, s: Dim, t: Dim) -> None:
        """The step `s` of those whose inputs are summed, which is `t` of the sequence."""
        h, gates, hidden = self.states[0], self.gates, self.cell.hidden
        ((first, rows), *_) = self._parts()
        with self._each(rows) as (n, own, row):
            gate = row + first
            self._add(self.before[(s, own, gate)], n, own, gate)
        if self.kind == "gru":
            self._gru(s, t)
            return
        with self._each(hidden) as (n, own, j):
            functions = self._functions
            if self.kind == "rnn":
                value = functions[0](_clipped(gates[(own, j)], self.cell))
            else:
                value = self._lstm(n, own, j)
            self.k.store(h[(self.d, n, j)], value)
            self._result(t, n, j)

    def _result(self, t: Dim, n: Dim, j: Dim) -> None:
        state = self.states[0][(self.d, n, j)]
        self.k.store(self.y[(t, self.d, n, j)], _as(state, self.y.dtype))

    def _parts(self) -> list[tuple[int, int]]:
        """First row and number of rows: gates that see the state directly; GRU's last one waits
        for the reset gate."""
        hidden = self.cell.hidden
        if self.kind != "gru":
            return [(0, GATES[self.kind] * hidden)]
        return [(0, 2 * hidden), (2 * hidden, hidden)]

    @property
    def _functions(self) -> Sequence[Callable[[Expr], Expr]]:
        count = len(shared_activations(self.kind))
        return [_activation(text) for text in self.cell.activations[self.way * count :]]

    @contextmanager
    def _each(self, size: int) -> Iterator[tuple[Dim, Dim, Dim]]:
        """Sequence, its place in scratch, and an index below `size`."""
        if self.one is not None:
            with self.k.loops(size) as (j,):
                yield self.one, Dim.of(0), j
            return
        with self.k.loops(self.gates.shape[0], size) as (n, j):
            yield n, n, j

    def _bias(self, row: Dim, *, both: bool, half: int = 0) -> Operand:
        b, other = self.given["b"], GATES[self.kind] * self.cell.hidden
        if b is None:
            return 0.0
        first = b[(self.d, row + half * other)]
        return first + b[(self.d, row + other)] if both else first

    def _add(self, start: Operand, n: Dim, own: Dim, row: Dim, state: Buffer | None = None) -> None:
        """A gate: the products of a row of weights and the state, or scratch in its place."""
        r, h, total = self.given["r"], self.states[0], self.k.local("sum", self.gates.dtype, start)
        assert r is not None
        with self.k.loops(self.cell.hidden) as (i,):
            factor = h[(self.d, n, i)] if state is None else state[(own, i)]
            self.k.assign(total, total + binary("*", r[(self.d, row, i)], factor))
        self.k.store(self.gates[(own, row)], total)

    def _lstm(self, n: Dim, own: Dim, j: Dim) -> Expr:
        """Gates in ONNX's order: input, output, forget, cell; peepholes likewise i, o, f."""
        cell, k, c, p = self.cell, self.k, self.states[1], self.given["p"]
        f, g, h = self._functions[:3]
        at: At = (self.d, n, j)

        def gate(which: int, peephole: int | None, state: Expr) -> Expr:
            value: Expr = self.gates[(own, j + which * cell.hidden)]
            if p is not None and peephole is not None:
                weight = p[(self.d, j + peephole * cell.hidden)]
                value = binary("+", value, binary("*", weight, state))
            return _clipped(value, cell)

        before = k.local("previous_cell", c.dtype, c[at])
        enter = k.local("input_gate", c.dtype, f(gate(0, 0, before)))
        kept = 1.0 - enter if cell.input_forget else f(gate(2, 2, before))
        forget = k.local("forget_gate", c.dtype, kept)
        fresh = k.local("candidate", c.dtype, g(gate(3, None, before)))
        value: Expr = forget * before + enter * fresh
        if cell.cell_clip > 0:
            value = apply("max", apply("min", value, cell.cell_clip), -cell.cell_clip)
        after = k.local("cell", c.dtype, value)
        k.store(c[at], after)
        return binary("*", f(gate(1, 1, after)), h(after))

    def _gru(self, s: Dim, t: Dim) -> None:
        """Gates in ONNX's order: update z, reset r, hidden. The new state is complete before
        the old one is overwritten, since every row reads all of it."""
        cell, k, gates, h = self.cell, self.k, self.gates, self.states[0]
        hidden = cell.hidden
        f, g = self._functions[:2]
        with self._each(2 * hidden) as (_, own, row):
            k.store(gates[(own, row)], f(_clipped(gates[(own, row)], cell)))
        if cell.linear_before_reset:
            with self._each(hidden) as (n, own, j):
                row = j + 2 * hidden
                self._add(self._bias(row, both=False, half=1), n, own, row)
        else:
            scaled = k.scratch(f"scaled{self.way}", gates.dtype, (gates.shape[0], hidden))
            with self._each(hidden) as (n, own, j):
                reset = gates[(own, j + hidden)]
                k.store(scaled[(own, j)], binary("*", reset, h[(self.d, n, j)]))
            with self._each(hidden) as (n, own, j):
                row = j + 2 * hidden
                self._add(self.before[(s, own, row)], n, own, row, scaled)
        with self._each(hidden) as (n, own, j):
            value: Expr = gates[(own, j + 2 * hidden)]
            if cell.linear_before_reset:
                reset = gates[(own, j + hidden)]
                value = self.before[(s, own, j + 2 * hidden)] + binary("*", reset, value)
            update = k.local("update", h.dtype, gates[(own, j)])
            fresh = k.local("fresh", h.dtype, g(_clipped(value, cell)))
            state = h[(self.d, n, j)]
            k.store(state, (1.0 - update) * fresh + update * state)
            self._result(t, n, j)


def _clipped(value: Expr, cell: Cell) -> Expr:
    return value if cell.clip <= 0 else apply("max", apply("min", value, cell.clip), -cell.clip)


def _samples(kind: str) -> Callable[[np.random.Generator], list[Sample]]:
    usual = {
        "lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",),
    }[kind]  # fmt: skip

    def samples(rng: np.random.Generator) -> list[Sample]:
        gates = GATES[kind]

        def case(
            seq: int, batch: int, size: int, hidden: int, ways: int = 1, **more: Any
        ) -> Sample:
            normal = normals(rng, 0.5)
            args: list[Array | None] = [
                normal(seq, batch, size),
                normal(ways, gates * hidden, size),
                normal(ways, gates * hidden, hidden),
                normal(ways, 2 * gates * hidden) if more.pop("bias", True) else None,
                more.pop("lens", None),
            ]
            if more.pop("initial", False):
                args += [normal(ways, batch, hidden) for _ in range(STATES[kind])]
            if more.pop("peepholes", False):
                args += [normal(ways, 3 * hidden)]
            attrs = {"hidden": hidden, "direction": "forward", "activations": usual * ways}
            return Sample(tuple(args), attrs | more, symbolic=False)

        cases = [
            case(5, 2, 3, 4),
            case(5, 2, 3, 4, bias=False, direction="reverse", initial=True),
            case(4, 3, 2, 5, 2, direction="bidirectional", lens=np.array([4, 1, 3], np.int32)),
            case(3, 1, 2, 3, clip=0.3),
            *(
                case(3, 1, 2, 3, activations=(name,) * len(usual))
                for name in (*ACTIVATIONS, "leakyrelu 0.3", "scaledtanh 1.5 0.5", "affine 0.5 0.1")
            ),
            case(0, 2, 3, 4, initial=True),
        ]
        if kind == "lstm":
            cases.append(case(3, 2, 2, 3, input_forget=True))
            cases.append(case(3, 2, 2, 3, initial=True, peepholes=True))
        if kind == "gru":
            cases.append(case(4, 2, 3, 4, linear_before_reset=True, initial=True))
        return cases

    return samples


OPS = tuple(
    Op(
        kind, _deduce(kind), _lower(kind), reference_of(kind), _samples(kind),
        conditions=_conditions(kind), record=Cell, values={"direction": DIRECTIONS},
    )
    for kind in GATES
)  # fmt: skip
