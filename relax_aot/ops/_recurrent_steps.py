# SPDX-License-Identifier: Apache-2.0
"""The loops of recurrent ops over the steps of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from relax_aot.ir.builder import At, KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv, dim_max, dim_min
from relax_aot.ir.loops import Buffer, Cast, Expr, Operand, Select, apply, as_expr, binary
from relax_aot.ir.types import DType
from relax_aot.ops._recurrent import GATES, PARAMETERS, Cell, shared_activations

Buffers = dict[str, "Buffer | Widened | None"]
STEPS = 4
"""The products of so many steps' inputs are one matrix product: weights are read once for them.
Those of more steps where they fill the rows of a tile."""

PLAIN: dict[str, Callable[[Expr], Expr]] = {
    "sigmoid": lambda x: apply("sigmoid", x),
    "tanh": lambda x: apply("tanh", x),
    "relu": lambda x: apply("max", x, 0.0),
    "softsign": lambda x: binary("/", x, apply("abs", x) + 1.0),
    "softplus": lambda x: apply("max", x, 0.0) + apply("log1p", apply("exp", -apply("abs", x))),
}
ACTIVATIONS = (*PLAIN, *PARAMETERS)


def activation_of(text: str) -> Callable[[Expr], Expr]:
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


def _as(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype is dtype else Cast(value, dtype)


class Widened:
    """A buffer of half precision, read as float32."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.shape = buffer.shape
        self.dtype = DType.F32

    def __getitem__(self, at: Any) -> Expr:
        return Cast(self.buffer[at], DType.F32)


def direction(
    k: KernelBuilder,
    kind: str,
    cell: Cell,
    given: Buffers,
    y: Buffer | None,
    held: list[Buffer],
    way: int,
    reverse: bool,
    steps_of: Callable[..., Steps] | None = None,
    most: int = 0,
) -> None:
    """One direction: states start in the result buffers and are updated step by step; in
    scratch of float32 where they are of half precision. The products of `most` steps' inputs (0:
    of as many as are worth it) are one matrix product. With lengths, sequences of a batch take
    their steps one after another, in blocks of the positions of all."""
    x = given["x"]
    assert x is not None and y is not None
    seq, batch, _ = x.shape
    lens = given["lens"]
    sequences = 1 if lens is not None else batch.constant if batch.is_constant else k.tile_rows
    most = most or max(STEPS, k.tile_rows // max(sequences, 1))
    if lens is not None and not k.tile_rows:
        most = 1  # where memory counts, as it is for each sequence
    d = Dim.of(way)
    for state, first in zip(held, ("h0", "c0"), strict=False):
        start = given[first]
        with k.loops(batch, cell.hidden) as (n, j):
            k.store(state[(d, n, j)], 0.0 if start is None else start[(d, n, j)])
    rows = GATES[kind] * cell.hidden
    own = batch if lens is None else Dim.of(1)
    before = k.scratch(f"inputs{way}", held[0].dtype, (dim_min(seq, most), own, rows))
    gates = k.scratch(f"gates{way}", held[0].dtype, (own, rows))
    steps = (steps_of or Steps)(k, kind, cell, given, y, held, before, gates, way)
    if lens is None:
        with k.loops(ceildiv(seq, most)) as (block,):
            start_at = block * most
            count = k.let("steps", dim_min(seq - start_at, most))
            last = seq - 1 - start_at
            steps.inputs(count, lambda s: last - s if reverse else start_at + s)
            with k.loops(count) as (s,):
                steps.step(s, k.let("t", last - s) if reverse else start_at + s)
        return
    blocks = ceildiv(seq, most)
    with k.loops(batch) as (n,):
        length = k.index("length", Cast(lens[(n,)], DType.I64), 0, seq)
        alone = replace(steps, one=n)
        with k.loops(blocks) as (block,):
            low = (blocks - 1 - block if reverse else block) * most
            with k.when(binary("<", low, length)):
                some = dim_max(dim_min(length - low, most), 0)
                count = k.let("steps", some if most > 1 else 1)
                alone.inputs(count, lambda s: low + s)
                with k.loops(count) as (s,):
                    at = k.let("s", count - 1 - s) if reverse else s
                    alone.step(at, low + at)
        with k.loops(seq - length, cell.hidden) as (t, j):
            k.store(y[(length + t, d, n, j)], 0.0)


@dataclass(frozen=True)
class Steps:
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
        for first, rows in self.parts():
            both = first == 0 or not self.cell.linear_before_reset
            with self.k.loops(count) as (s,), self.each(rows) as (n, own, row):
                gate = row + first
                total = self.k.local("sum", self.gates.dtype, self.bias(gate, both=both))
                with self.k.loops(x.shape[2]) as (i,):
                    factor = x[(place(s), n, i)]
                    self.k.assign(total, total + binary("*", w[(self.d, gate, i)], factor))
                self.k.store(self.before[(s, own, gate)], total)

    def step(self, s: Dim, t: Dim) -> None:
        """The step `s` of those whose inputs are summed, which is `t` of the sequence."""
        h, gates, hidden = self.states[0], self.gates, self.cell.hidden
        self.sums(0, lambda own, gate: self.before[(s, own, gate)])
        if self.kind == "gru":
            self._gru(s, t)
            return
        with self.each(hidden) as (n, own, j):
            functions = self._functions
            if self.kind == "rnn":
                value = functions[0](clipped(gates[(own, j)], self.cell))
            else:
                value = self._lstm(n, own, j)
            self.k.store(h[(self.d, n, j)], value)
            self._result(t, n, j)

    def _result(self, t: Dim, n: Dim, j: Dim) -> None:
        state = self.states[0][(self.d, n, j)]
        self.k.store(self.y[(t, self.d, n, j)], _as(state, self.y.dtype))

    def parts(self) -> list[tuple[int, int]]:
        """First row and number of rows: gates that see the state directly; GRU's last one waits
        for the reset gate."""
        hidden = self.cell.hidden
        if self.kind != "gru":
            return [(0, GATES[self.kind] * hidden)]
        return [(0, 2 * hidden), (2 * hidden, hidden)]

    @property
    def _functions(self) -> Sequence[Callable[[Expr], Expr]]:
        count = len(shared_activations(self.kind))
        return [self.activation(text) for text in self.cell.activations[self.way * count :]]

    def activation(self, text: str) -> Callable[[Expr], Expr]:
        return activation_of(text)

    @contextmanager
    def each(self, size: int) -> Iterator[tuple[Dim, Dim, Dim]]:
        """Sequence, its place in scratch, and an index below `size`."""
        if self.one is not None:
            with self.k.loops(size) as (j,):
                yield self.one, Dim.of(0), j
            return
        with self.k.loops(self.gates.shape[0], size) as (n, j):
            yield n, n, j

    def bias(self, row: Dim, *, both: bool, half: int = 0) -> Operand:
        b, other = self.given["b"], GATES[self.kind] * self.cell.hidden
        if b is None:
            return 0.0
        first = b[(self.d, row + half * other)]
        return first + b[(self.d, row + other)] if both else first

    def sums(
        self, part: int, start: Callable[[Dim, Dim], Operand], scaled: Buffer | None = None
    ) -> None:
        """The gates of a part: the products of rows of weights and the state, or the state scaled
        by the reset gate in its place. `start`: what a sequence and a gate begin with."""
        first, rows = self.parts()[part]
        r, h = self.given["r"], self.states[0]
        assert r is not None
        with self.each(rows) as (n, own, row):
            gate = row + first
            total = self.k.local("sum", self.gates.dtype, start(own, gate))
            with self.k.loops(self.cell.hidden) as (i,):
                factor = h[(self.d, n, i)] if scaled is None else scaled[(own, i)]
                self.k.assign(total, total + binary("*", r[(self.d, gate, i)], factor))
            self.k.store(self.gates[(own, gate)], total)

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
            return clipped(value, cell)

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
        with self.each(2 * hidden) as (_, own, row):
            k.store(gates[(own, row)], f(clipped(gates[(own, row)], cell)))
        if cell.linear_before_reset:
            self.sums(1, lambda _, gate: self.bias(gate, both=False, half=1))
        else:
            scaled = k.scratch(f"scaled{self.way}", gates.dtype, (gates.shape[0], hidden))
            with self.each(hidden) as (n, own, j):
                reset = gates[(own, j + hidden)]
                k.store(scaled[(own, j)], binary("*", reset, h[(self.d, n, j)]))
            self.sums(1, lambda own, gate: self.before[(s, own, gate)], scaled)
        with self.each(hidden) as (n, own, j):
            value: Expr = gates[(own, j + 2 * hidden)]
            if cell.linear_before_reset:
                reset = gates[(own, j + hidden)]
                value = self.before[(s, own, j + 2 * hidden)] + binary("*", reset, value)
            update = k.local("update", h.dtype, gates[(own, j)])
            fresh = k.local("fresh", h.dtype, g(clipped(value, cell)))
            state = h[(self.d, n, j)]
            k.store(state, (1.0 - update) * fresh + update * state)
            self._result(t, n, j)


def clipped(value: Expr, cell: Cell) -> Expr:
    return value if cell.clip <= 0 else apply("max", apply("min", value, cell.clip), -cell.clip)
