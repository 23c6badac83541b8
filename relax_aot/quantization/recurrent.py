# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers with quantized weights: `lstm`, `gru` and `rnn` become `qlstm`, `qgru` and
`qrnn`. Gates and states stay floats."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Constant, Module, Var, attrs_of
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array
from relax_aot.ops._recurrent import DIRECTIONS, GATES
from relax_aot.ops._recurrent import argument_names as float_names
from relax_aot.ops.matmul_groups import GREATEST_GROUP
from relax_aot.ops.recurrent_quantized import argument_names, parts_of

MEANING = {"w": "input weights", "r": "recurrent weights", "b": "biases"}
OPS = {"lstm": "qlstm", "gru": "qgru", "rnn": "qrnn"}


@dataclass(frozen=True, slots=True)
class Weights:
    """How matrices are quantized: `rows` gives the integers [columns, depth] and the scales
    [columns, groups] of the rows of a matrix, in groups of `group` (0: a row has one scale)."""

    rows: Callable[[Array], tuple[Array, Array]]
    group: int
    bits: int
    dynamic: bool


def whole_rows(rows: Array) -> tuple[Array, Array]:
    """Bytes with one scale for a row."""
    most = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64) / 127
    scales = np.where(most > 0, most, 1.0).astype(np.float32)
    values = np.clip(np.rint(rows / scales.astype(np.float64)), -127, 127)
    return values.astype(np.int8), scales


IN_ROWS = Weights(whole_rows, 0, 8, dynamic=True)


@dataclass
class Layers:
    """Rewrites recurrent layers. `left` are the results of those that stay floats, with why."""

    weights: Weights
    constants: dict[str, Constant]
    quantized: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    widened: dict[str, Array] = field(default_factory=dict)
    """Constants of half precision in f32, by the name of the value."""

    def call(self, call: Call) -> Call:
        """The call with quantized weights; one that has none as it is."""
        if call.op == "cast" and call.out.type.dtype is DType.F32 and not self.weights.group:
            self.widen(call.inputs[0], call.out)
        if call.op not in OPS:
            return call
        names = dict(zip(float_names(call.op), call.args, strict=False))
        problem = self._problem(call, names)
        if problem:
            self.left[call.outs[0].name] = problem
            return call
        self.quantized.append(call.outs[0].name)
        return self._quantized(call, names)

    def widen(self, half: Var, wide: Var) -> None:
        """Reads a constant of half precision under the name of its values in f32."""
        found = self.constants.get(half.name)
        if found is not None and found.type.dtype.is_half:
            self.widened[wide.name] = np.asarray(found.data).astype(np.float32)

    def _problem(self, call: Call, names: dict[str, Var | None]) -> str:
        if call.outs[0].type.dtype is not DType.F32:
            return f"its values are {call.outs[0].type.dtype.value}"
        given = {name: MEANING[name] for name in ("w", "r", "b") if names.get(name) is not None}
        for name, meaning in given.items():
            data = self._data(names[name])
            if data is None:
                return f"its {meaning} are no constants of f32"
            if not np.isfinite(data).all():
                return f"its {meaning} are not finite"
            if name != "b" and not self.weights.group and data.shape[2] > GREATEST_GROUP:
                return f"its {meaning} have rows of more than {GREATEST_GROUP}"
        return ""

    def _data(self, var: Var | None) -> Array | None:
        if var is None:
            return None
        found = self.constants.get(var.name)
        if found is None or found.type.dtype is not DType.F32:
            return self.widened.get(var.name)
        return np.asarray(found.data)

    def _quantized(self, call: Call, names: dict[str, Var | None]) -> Call:
        attrs, kind = dict(call.attrs), call.op
        hidden, ways = int(str(attrs["hidden"])), len(DIRECTIONS[str(attrs["direction"])])
        w, r, b = (self._data(names.get(name)) for name in ("w", "r", "b"))
        assert w is not None and r is not None
        given: dict[str, Var | None] = dict.fromkeys(argument_names(kind, ways))
        given |= {name: names[name] for name in given.keys() & names.keys()}
        if b is not None:
            given |= self._biases(call, b, GATES[kind] * hidden)
        for way in range(ways):
            matrices, first = {f"w{way}": w[way]}, 0
            for part, size in enumerate(parts_of(kind, hidden)):
                matrices[f"r{way}_{part}"] = r[way][first : first + size]
                first += size
            for name, rows in matrices.items():
                values, scales = self.weights.rows(rows)
                dtype = DType.I8 if self.weights.bits == 8 else DType.I4
                given[name] = self._constant(call, name, values.T.astype(dtype.numpy))
                given[f"{name}_scales"] = self._constant(call, f"{name}_scales", scales.T)
        more = {"group": self.weights.group, "dynamic": self.weights.dynamic}
        more["tabulated"] = self.weights.dynamic
        return replace(call, op=OPS[kind], args=tuple(given.values()), attrs=attrs_of(attrs | more))

    def _biases(self, call: Call, b: Array, rows: int) -> dict[str, Var | None]:
        """Both biases as one; that of the state apart where GRU's reset gate scales it."""
        attrs, both = dict(call.attrs), b[:, :rows] + b[:, rows:]
        if not attrs.get("linear_before_reset"):
            return {"b": self._constant(call, "b", both)}
        last = int(str(attrs["hidden"]))
        both[:, rows - last :] = b[:, rows - last : rows]
        late = self._constant(call, "rb", b[:, 2 * rows - last :])
        return {"b": self._constant(call, "b", both), "rb": late}

    def _constant(self, call: Call, part: str, data: Array) -> Var:
        name = f"{call.outs[0].name}.{part}"
        type_ = TensorType(DType.of(data.dtype), tuple(Dim.of(int(n)) for n in data.shape))
        self.constants[name] = Constant(name, type_, np.ascontiguousarray(data))
        return Var(name, type_)


def recurrent_in_rows(module: Module, kept: Collection[str]) -> tuple[Module, Layers]:
    """The module whose recurrent layers have bytes as weights, with one scale for a row, and
    quantize each row of their activations while the model runs."""
    layers = Layers(IN_ROWS, dict(module.constant_table))
    functions = []
    for function in module.functions:
        body = tuple(
            call if any(out.name in kept for out in call.outs) else layers.call(call)
            for call in function.body
        )
        functions.append(replace(function, body=body))
    constants = tuple(layers.constants.values())
    return replace(module, functions=tuple(functions), constants=constants), layers
