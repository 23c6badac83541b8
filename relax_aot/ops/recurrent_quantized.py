# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and simple RNN with quantized weights: `qlstm`, `qgru` and `qrnn`. Gates, states and
results are f32, as those of `lstm`, `gru` and `rnn`, whose attributes they have.

The arguments are x, b?, rb?, lens?, h0?, for qlstm c0? and p?, and for each direction w and its
scales, and the recurrent weights r and their scales; qgru has them for both other gates together
and for the last one.

Shapes: w [in, gates*hidden] and r [hidden, columns], integers of 8 or 4 bits; scales [groups,
columns], one for each `group` of rows (0: all rows); b [directions, gates*hidden], the sum of both
biases; rb [directions, hidden], the recurrent bias of qgru's last gate with linear_before_reset.

With `tabulated`, sigmoid and tanh come from a table (_gates.py), with errors of up to 2.5e-4.

With `dynamic`, a product takes rows of bytes as `quantize_rows` makes them: of the input and of the
state of each step, each with its own scale. Without, it decodes its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim, ceildiv, dim_min
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast, Expr, Lit, Load, Operand, apply, binary
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._gates import gate_sigmoid, gate_tanh
from relax_aot.ops._op import Array, Op, Sample, Trait, must_fit, require, require_one_type
from relax_aot.ops._recurrent import (
    DIRECTIONS,
    GATES,
    STATES,
    Cell,
    Products,
    reference_by,
)
from relax_aot.ops._recurrent_steps import Steps, direction
from relax_aot.ops._samples import normals
from relax_aot.ops.matmul_groups import GREATEST_GROUP, quantized_row, rows_in_bytes

STEPS = 3
"""Steps whose inputs are one product: on Cortex-M4, two tiles of three rows."""
TABULATED = {"sigmoid": gate_sigmoid, "tanh": gate_tanh}
KINDS = {"qlstm": "lstm", "qgru": "gru", "qrnn": "rnn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedCell(Cell):
    """The attributes of a recurrent op with quantized weights."""

    group: int = 0
    dynamic: bool = True
    tabulated: bool = False


def parts_of(kind: str, hidden: int) -> list[int]:
    """Columns of the recurrent weights: GRU's last gate may see another state than the others."""
    return [2 * hidden, hidden] if kind == "gru" else [GATES[kind] * hidden]


def argument_names(kind: str, ways: int) -> tuple[str, ...]:
    base = ["x", "b", "rb", "lens", "h0", *(["c0", "p"] if kind == "lstm" else [])]
    for way in range(ways):
        matrices = [f"w{way}", *(f"r{way}_{part}" for part in range(len(parts_of(kind, 1))))]
        base += [name for matrix in matrices for name in (matrix, f"{matrix}_scales")]
    return tuple(base)


def _named(kind: str, cell: QuantizedCell, args: tuple[Any, ...]) -> dict[str, Any]:
    names = argument_names(kind, len(cell.reverses))
    require(len(args) == len(names), f"q{kind} takes {', '.join(names)}; got {len(args)} arguments")
    return dict(zip(names, args, strict=True))


def _deduce(kind: str) -> Callable[..., tuple[TensorType, ...]]:
    def deduce(cell: QuantizedCell, *args: TensorType | None) -> tuple[TensorType, ...]:
        named = _named(kind, cell, args)
        x: TensorType = named["x"]
        require(x is not None and x.rank == 3 and x.dtype is DType.F32, f"q{kind} of {x}")
        require(0 <= cell.group <= GREATEST_GROUP, f"q{kind} with groups of {cell.group}")
        others = {name: t for name, t in named.items() if name[0] not in "wr" or name == "rb"}
        require_one_type(f"q{kind}", *(t for name, t in others.items() if name != "lens"))
        for name, type_ in named.items():
            if name in others:
                continue
            require(type_ is not None and type_.rank == 2, f"q{kind}: {name} is {type_}")
            types = (DType.F32,) if name.endswith("_scales") else (DType.I8, DType.I4)
            require(type_.dtype in types, f"q{kind}: {name} is {type_}")
        ways, hidden = Dim.of(len(cell.reverses)), Dim.of(cell.hidden)
        seq, batch, depth = x.shape
        whole = cell.group > 0 or not cell.dynamic
        fits = whole or (depth.is_constant and max(depth.constant, cell.hidden) <= GREATEST_GROUP)
        require(fits, f"q{kind}: rows of {depth} and {hidden} need groups")
        state = TensorType(DType.F32, (ways, batch, hidden))
        return (TensorType(DType.F32, (seq, ways, batch, hidden)), *[state] * STATES[kind])

    return deduce


def _conditions(kind: str) -> Callable[..., list[Condition]]:
    def conditions(cell: QuantizedCell, *args: TensorType | None) -> list[Condition]:
        named = _named(kind, cell, args)
        count, hidden = len(cell.reverses), Dim.of(cell.hidden)
        ways, (_, batch, width) = Dim.of(count), named["x"].shape
        columns = Dim.of(GATES[kind]) * hidden
        expected: dict[str, tuple[Dim, ...]] = {
            "b": (ways, columns),
            "rb": (ways, hidden),
            "lens": (batch,),
            "h0": (ways, batch, hidden),
            "c0": (ways, batch, hidden),
            "p": (ways, Dim.of(3) * hidden),
        }
        for way in range(count):
            matrices = {f"w{way}": (width, columns)}
            for part, size in enumerate(parts_of(kind, cell.hidden)):
                matrices[f"r{way}_{part}"] = (hidden, Dim.of(size))
            for name, (depth, size_of) in matrices.items():
                groups = ceildiv(depth, cell.group) if cell.group else Dim.of(1)
                expected |= {name: (depth, size_of), f"{name}_scales": (groups, size_of)}
        found: list[Condition] = []
        for name, shape in expected.items():
            found += must_fit(named.get(name), shape, f"sizes of q{kind}'s {name}")
        return found

    return conditions


# The loops


@dataclass(frozen=True)
class _Rows:
    """Rows of bytes in scratch, with a scale for each."""

    values: Buffer
    scales: Buffer


@dataclass(frozen=True)
class _Steps(Steps):
    """`inputs_in_bytes` and `state_in_bytes` where rows are quantized."""

    inputs_in_bytes: _Rows | None = None
    state_in_bytes: _Rows | None = None

    def inputs(self, count: Dim, place: Callable[[Dim], Dim]) -> None:
        x, rows = self.given["x"], self.inputs_in_bytes
        assert x is not None
        if rows is not None:
            with self.k.loops(count) as (s,), self.each(1) as (n, own, _):
                self._quantize(rows, (s, own), x.shape[2], lambda i: x[(place(s), n, i)])
        with self.k.loops(count) as (s,), self.each(GATES[self.kind] * self.cell.hidden) as at:
            n, own, gate = at
            b = self.given["b"]
            start: Operand = 0.0 if b is None else b[(self.d, gate)]
            self._product(
                f"w{self.way}", gate, lambda i: x[(place(s), n, i)], rows, (s, own), start,
                self.before[(s, own, gate)],
            )  # fmt: skip

    def activation(self, text: str) -> Callable[[Expr], Expr]:
        assert isinstance(self.cell, QuantizedCell)
        if self.cell.tabulated and text in TABULATED:
            return lambda x: apply(f"gate_{text}", x)
        return super().activation(text)

    def bias(self, row: Dim, *, both: bool, half: int = 0) -> Operand:
        rb = self.given["rb"]
        return 0.0 if rb is None else rb[(self.d, row - 2 * self.cell.hidden)]

    def sums(
        self, part: int, start: Callable[[Dim, Dim], Operand], scaled: Buffer | None = None
    ) -> None:
        (first, size), h, rows = self.parts()[part], self.states[0], self.state_in_bytes

        def state(n: Dim, own: Dim, i: Dim) -> Expr:
            return h[(self.d, n, i)] if scaled is None else scaled[(own, i)]

        if rows is not None and (part == 0 or scaled is not None):
            with self.each(1) as (n, own, _):
                hidden = Dim.of(self.cell.hidden)
                self._quantize(rows, (own,), hidden, lambda i: state(n, own, i))
        with self.each(size) as (n, own, row):
            gate = row + first
            self._product(
                f"r{self.way}_{part}", row, lambda i: state(n, own, i), rows, (own,),
                start(own, gate), self.gates[(own, gate)],
            )  # fmt: skip

    def _quantize(
        self, rows: _Rows, at: tuple[Dim, ...], depth: Dim, x: Callable[[Dim], Expr]
    ) -> None:
        quantized_row(self.k, depth, x, lambda j: rows.values[(*at, j)], rows.scales[at])

    def _product(
        self, name: str, column: Dim, x: Callable[[Dim], Expr], rows: _Rows | None,
        at: tuple[Dim, ...], start: Operand, target: Load,
    ) -> None:  # fmt: skip
        """The sum of products of a row and a column of weights, which is added to `start`."""
        k, cell = self.k, self.cell
        weights, scales = self.given[name], self.given[f"{name}_scales"]
        assert isinstance(cell, QuantizedCell) and weights is not None and scales is not None
        kind = DType.F32 if rows is None else DType.I32
        zero = Lit(0.0, kind) if rows is None else Lit(0, kind)

        def added(total: Expr, i: Dim) -> Expr:
            left = x(i) if rows is None else Cast(rows.values[(*at, i)], kind)
            return total + left * Cast(weights[(i, column)], kind)

        def stored(total: Expr) -> None:
            scaled = total if rows is None else total * rows.scales[at]
            k.store(target, binary("+", scaled, start))

        depth = weights.shape[0]
        if scales.shape[0] == 1 and rows is not None:
            sum_ = k.local("sum", kind, zero)
            with k.loops(depth) as (i,):
                k.assign(sum_, added(sum_, i))
            stored(Cast(sum_, DType.F32) * scales[(Dim.of(0), column)])
            return
        total, size = k.local("total", DType.F32, 0.0), Dim.of(cell.group) if cell.group else depth
        with k.loops(scales.shape[0]) as (part,):
            sum_ = k.local("sum", kind, zero)
            first = k.let("start", part * size)
            with k.loops(dim_min(size, depth - first)) as (i,):
                k.assign(sum_, added(sum_, first + i))
            group: Expr = sum_ if rows is None else Cast(sum_, DType.F32)
            k.assign(total, total + group * scales[(part, column)])
        stored(total)


def _lower(kind: str) -> Callable[..., None]:
    def lower(cell: QuantizedCell, k: KernelBuilder, *buffers: Buffer | None) -> None:
        count = len(buffers) - 1 - STATES[kind]
        given, (y, *states) = _named(kind, cell, buffers[:count]), buffers[count:]

        def steps_of(*base: Any) -> Steps:
            *_, before, gates, way = base
            if not cell.dynamic:
                return _Steps(*base)

            def rows(name: str, lead: tuple[Dim, ...], depth: Dim) -> _Rows:
                whole = ceildiv(depth, cell.group) * cell.group if cell.group else depth
                return _Rows(
                    k.scratch(f"{name}_bytes{way}", DType.I8, (*lead, whole)),
                    k.scratch(f"{name}_scales{way}", DType.F32, lead),
                )

            inputs = rows("input", before.shape[:2], given["x"].shape[2])
            state = rows("state", gates.shape[:1], Dim.of(cell.hidden))
            return replace(_Steps(*base), inputs_in_bytes=inputs, state_in_bytes=state)

        held = [state for state in states if state is not None]
        for way, reverse in enumerate(cell.reverses):
            direction(k, kind, cell, given, y, held, way, reverse, steps_of, STEPS)

    return lower


# The meaning, in NumPy


def _reference(kind: str) -> Callable[..., tuple[Array, ...]]:
    def reference(cell: QuantizedCell, *args: Array | None) -> tuple[Array, ...]:
        named = _named(kind, cell, args)
        matrices = {
            name: _decoded(named[name], named[f"{name}_scales"], cell.group)
            for name in named
            if f"{name}_scales" in named
        }

        def seen(row: Array) -> Array:
            if not cell.dynamic:
                return row
            values, scale = rows_in_bytes(row)
            return np.asarray(values * scale)

        def products(_: Cell, arrays: dict[str, Array | None], way: int) -> Products:
            b, rb = arrays["b"], arrays["rb"]
            parts = [matrices[f"r{way}_{n}"] for n in range(len(parts_of(kind, 1)))]
            start = 0.0 if b is None else b[way]
            late = np.zeros(sum(part.shape[1] for part in parts))
            if rb is not None:
                late[-cell.hidden :] = rb[way]
            return Products(
                lambda x: seen(x) @ matrices[f"w{way}"] + start,
                lambda h: seen(h) @ np.concatenate(parts, axis=1) + late,
                lambda scaled: seen(scaled) @ parts[-1],
            )

        floats: Mapping[str, Array | None] = {n: a for n, a in named.items() if n not in matrices}
        return reference_by(kind, cell, floats, products, TABULATED if cell.tabulated else {})

    return reference


def _decoded(values: Array, scales: Array, group: int) -> Array:
    wide = np.repeat(scales.astype(np.float64), group or len(values), axis=0)
    return np.asarray(values.astype(np.float64) * wide[: len(values)])


def _samples(kind: str) -> Callable[[np.random.Generator], list[Sample]]:
    usual = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}

    def samples(rng: np.random.Generator) -> list[Sample]:
        normal = normals(rng, 0.5)

        def case(
            seq: int, batch: int, size: int, hidden: int, ways: int = 1, **more: Any
        ) -> Sample:
            group, bits = more.get("group", 0), more.pop("bits", 8)
            most, dtype = 2 ** (bits - 1) - 1, DType.I8 if bits == 8 else DType.I4

            def matrix(depth: int, columns: int) -> list[Array]:
                values = rng.integers(-most, most + 1, (depth, columns)).astype(np.int8)
                groups = -(-depth // group) if group else 1
                scales = rng.uniform(0.2, 1.0, (groups, columns)).astype(np.float32)
                return [values.astype(dtype.numpy), scales / np.float32(most)]

            state = (ways, batch, hidden)
            initial, last = more.pop("initial", False), more.get("linear_before_reset", False)
            args: list[Array | None] = [
                normal(seq, batch, size),
                normal(ways, GATES[kind] * hidden) if more.pop("bias", True) else None,
                normal(ways, hidden) if last else None,
                more.pop("lens", None),
                normal(*state) if initial else None,
            ]
            if kind == "lstm":
                args.append(normal(*state) if initial else None)
                args.append(normal(ways, 3 * hidden) if initial else None)
            for _ in range(ways):
                args += matrix(size, GATES[kind] * hidden)
                for columns in parts_of(kind, hidden):
                    args += matrix(hidden, columns)
            attrs = {"hidden": hidden, "direction": "forward", "activations": usual[kind] * ways}
            return Sample(tuple(args), attrs | more, symbolic=False, rtol=1e-4, atol=1e-4)

        cases = [
            case(5, 2, 3, 8),
            case(7, 1, 6, 5, bias=False, direction="reverse", initial=True),
            case(4, 3, 2, 5, 2, direction="bidirectional", lens=np.array([4, 1, 3], np.int32)),
            case(5, 2, 9, 10, group=4, tabulated=True),
            case(3, 2, 9, 10, group=4, bits=4),
            case(3, 2, 9, 10, group=4, bits=4, dynamic=False),
            case(3, 2, 9, 10, dynamic=False, initial=True),
            case(0, 2, 3, 4, initial=True),
        ]
        if kind == "gru":
            cases.append(case(4, 2, 3, 4, linear_before_reset=True, initial=True))
        return cases

    return samples


OPS = tuple(
    Op(
        name, _deduce(kind), _lower(kind), _reference(kind), _samples(kind),
        conditions=_conditions(kind), record=QuantizedCell, values={"direction": DIRECTIONS},
        any_type=True, traits=Trait.QUANTIZED | Trait.ROUNDS | Trait.REQUANTIZES,
    )
    for name, kind in KINDS.items()
)  # fmt: skip
