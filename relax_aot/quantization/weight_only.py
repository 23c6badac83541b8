# SPDX-License-Identifier: Apache-2.0
"""Weights of products as quantized values of 8 or 4 bits in groups.

The products become `matmul_groups`. Activations stay floats, and the product decodes the weights
while it reads them; or each row of them is quantized while the model runs (`quantize_rows`), and
the product sums integers. In the block forms of GGUF, each block of a row has its own scale, and
tables from which rows are gathered, such as embeddings, are quantized too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relax_aot.ir.dims import Dim, ceildiv
from relax_aot.ir.graph import Call, Constant, Module, Var, attrs_of
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array
from relax_aot.quantization.blocks import (
    BLOCK,
    FORMS,
    Quantized,
    gathered_rows,
    quantized_rows,
    sums_of_blocks,
)
from relax_aot.quantization.recurrent import OPS, Layers, Weights


@dataclass(frozen=True, slots=True)
class Kind:
    """`dynamic`: activations are quantized while the model runs. `form`: that of GGUF. `group`: so
    many weights along the inner axis share a scale."""

    bits: int
    dynamic: bool = False
    form: str = ""
    group: int = BLOCK

    @property
    def most(self) -> int:
        """The greatest magnitude of a quantized weight."""
        return int(2 ** (self.bits - 1)) - 1

    @property
    def error(self) -> str:
        """How far a weight is off."""
        if self.form == "q4_k":
            return f"a weight is off by about 1/30 of the span of its block of {self.group} and 0"
        # A weight of q4_0 may have the largest magnitude with the other sign, which has 7 steps.
        least = 8 if self.form == "q4_0" else 2 * self.most
        part = f"1/{least} of the largest magnitude in its group of {self.group}"
        return f"a weight is off by at most {part}"


KINDS = {
    "int8w": Kind(8, group=128),
    "int4w": Kind(4),
    "int8d": Kind(8, dynamic=True),
    "int4d": Kind(4, dynamic=True),
    "q8_0": Kind(8, dynamic=True, form="q8_0"),
    "q4_0": Kind(4, dynamic=True, form="q4_0"),
    "q4_k": Kind(4, dynamic=True, form="q4_k"),
}


@dataclass
class _Work:
    kind: Kind
    constants: dict[str, Constant]
    count: int = 0
    rows: dict[str, tuple[Var, Var]] = field(default_factory=dict)
    """Values that are quantized, with their scales, by the name of the float value."""
    sums: dict[str, Var] = field(default_factory=dict)
    """The sums of their blocks, by the same names."""
    layers: Layers | None = None
    """Rewrites recurrent layers; None in the forms of GGUF."""
    halves: dict[str, Array] = field(default_factory=dict)
    """Constants of half precision in f32, by the name of the value."""
    wide: dict[str, Var] = field(default_factory=dict)
    """Gathered rows in f32, by the name of the value in half precision."""

    def call(self, call: Call) -> tuple[Call, ...]:
        """What stands for a product with constant weights; another call as it is."""
        if self.layers is not None and call.op in OPS:
            return self._layer(call, self.layers)
        if self.kind.form:
            if call.op == "cast" and call.inputs[0].name in self.wide:
                return _renamed(self.wide[call.inputs[0].name], call)
            self._hold(call)
            if (gathered := self._rows(call)) is not None:
                return gathered
        if (widened := self._widened(call)) is not None:
            return widened
        weights = self._weights(call)
        if weights is None:
            return (call,)
        transposed = call.op == "gemm" and bool(call.attr("trans_b"))
        self.count += 1
        rows = weights if transposed else weights.T
        made = FORMS[self.kind.form](rows) if self.kind.form else _grouped(self.kind, rows)
        type_ = DType.I8 if self.kind.bits == 8 else DType.I4
        parts = (
            self._constant(call, "codes", made.codes.T.astype(type_.numpy)),
            self._constant(call, "scales", made.scales.T),
        )
        (x, *row_scales), before = self._activations(call)
        args, attrs = (x, *parts, *row_scales), attrs_of({"group": self.kind.group})
        calls = [*before]
        terms = [term for term in (*call.args, None)[2:3] if term is not None]
        if made.offsets is not None:
            term, more = self._offsets(call, made.offsets.T)
            terms, calls = [term, *terms], [*calls, *more]
        outs = [Var(f"{call.out.name}.part{n}", call.out.type) for n in range(len(terms))]
        outs.append(call.out)
        calls.append(Call((outs[0],), "matmul_groups", args, attrs, call.origin))
        for number, term in enumerate(terms):
            pair = outs[number], term
            calls.append(Call((outs[number + 1],), "add", pair, (), call.origin))
        return tuple(calls)

    def _layer(self, call: Call, layers: Layers) -> tuple[Call, ...]:
        """A recurrent layer with quantized weights; one of half precision is computed in f32."""
        wide, before, after = call, list[Call](), list[Call]()
        if call.outs[0].type.dtype.is_half:
            args = list(call.args)
            for at, arg in enumerate(call.args):
                if arg is None or not arg.type.dtype.is_half:
                    continue
                x = Var(f"{call.outs[0].name}.wide{at}", replace(arg.type, dtype=DType.F32))
                layers.widen(arg, x)
                before.append(_cast(arg, x, call))
                args[at] = x
            outs = [
                Var(f"{out.name}.wide", replace(out.type, dtype=DType.F32)) for out in call.outs
            ]
            wide = replace(call, outs=tuple(outs), args=tuple(args))
            after += [_cast(x, out, call) for x, out in zip(outs, call.outs, strict=True)]
        changed = layers.call(wide)
        if changed is wide:
            return (call,)
        self.count += 1
        read = {arg.name for arg in changed.inputs}
        return (*(cast for cast in before if cast.out.name in read), changed, *after)

    def _widened(self, call: Call) -> tuple[Call, ...] | None:
        """A product of values of half precision, computed in f32; None where it is another call."""
        if call.op not in ("matmul", "gemm") or not call.out.type.dtype.is_half:
            return None
        weights = self.constants.get(call.inputs[1].name)
        if weights is None or weights.type.rank != 2:
            return None
        self.halves[weights.name] = weights.data.astype(np.float32)
        args, before = list(call.args), list[Call]()
        for at, arg in enumerate(call.args):
            if arg is not None and at != 1:
                wide = Var(f"{call.out.name}.wide{at}", replace(arg.type, dtype=DType.F32))
                before.append(_cast(arg, wide, call))
                args[at] = wide
        result = Var(f"{call.out.name}.wide", replace(call.out.type, dtype=DType.F32))
        product = replace(call, outs=(result,), args=tuple(args))
        made = self.call(product)
        return None if made == (product,) else (*before, *made, _cast(result, call.out, call))

    def _offsets(self, call: Call, offsets: Array) -> tuple[Var, list[Call]]:
        """The product of the sums of each block of the activations and the offsets."""
        x, calls = call.inputs[0], list[Call]()
        if x.name not in self.sums:
            self.sums[x.name], before = sums_of_blocks(x, call)
            calls += before
        halves = self._constant(call, "offsets", offsets)
        wide = Var(f"{call.out.name}.wide", TensorType(DType.F32, halves.type.shape))
        calls.append(_cast(halves, wide, call))
        out = Var(f"{call.out.name}.shift", call.out.type)
        calls.append(Call((out,), "matmul", (self.sums[x.name], wide), (), call.origin))
        return out, calls

    def _activations(self, call: Call) -> tuple[tuple[Var, ...], tuple[Call, ...]]:
        """What a product multiplies by its weights, and the call that computes it."""
        x = call.inputs[0]
        if not self.kind.dynamic:
            return (x,), ()
        if x.name in self.rows:
            return self.rows[x.name], ()
        if self.kind.form:
            self.rows[x.name], before = quantized_rows(x, call)
            return self.rows[x.name], before
        *rows, depth = x.type.shape
        group = self.kind.group
        types = (
            TensorType(DType.I8, (*rows, ceildiv(depth, group) * group)),
            TensorType(DType.F32, tuple(rows)),
        )
        values, scales = (
            Var(f"{x.name}.{part}", type_)
            for part, type_ in zip(("rows", "steps"), types, strict=True)
        )
        attrs = attrs_of({"multiple": group})
        self.rows[x.name] = values, scales
        return (values, scales), (
            Call((values, scales), "quantize_rows", (x,), attrs, call.origin),
        )

    def _weights(self, call: Call) -> Array | None:
        if call.op not in ("matmul", "gemm") or len(call.inputs) < 2:
            return None
        data = self._data(call.inputs[1])
        attrs: dict[str, Any] = dict(call.attrs)
        plain = not attrs.get("trans_a") and attrs.get("alpha", 1.0) == attrs.get("beta", 1.0) == 1
        if data is None or not plain:
            return None
        depth = data.shape[1 if attrs.get("trans_b") else 0]
        return None if self.kind.form and depth % BLOCK else data

    def _data(self, var: Var) -> Array | None:
        """A constant matrix in f32; where blocks are made, one that is only widened, too."""
        found = self.constants.get(var.name)
        if found is None or found.type.dtype is not DType.F32:
            return self.halves.get(var.name)
        return np.asarray(found.data) if found.type.rank == 2 else None

    def _hold(self, call: Call) -> None:
        """Constants of half precision that a call transposes or widens."""
        if call.op in ("cast", "transpose") and call.inputs:
            name = call.inputs[0].name
            found = self.constants.get(name)
            data = self.halves.get(name)
            if found is not None and found.type.dtype.is_half and found.type.rank == 2:
                data = found.data.astype(np.float32)
            target = call.out.type.dtype
            if data is not None and (target.is_half or target is DType.F32):
                self.halves[call.out.name] = data.T if call.op == "transpose" else data

    def _rows(self, call: Call) -> tuple[Call, ...] | None:
        """Rows of a table as those of a quantized one."""
        if call.op != "gather" or dict(call.attrs).get("axis", 0) != 0:
            return None
        table = self.constants.get(call.inputs[0].name)
        if table is None or table.type.rank != 2 or not table.type.dtype.is_float:
            return None
        if table.type.dtype is DType.F64 or table.data.shape[1] % BLOCK:
            return None
        made = FORMS[self.kind.form](table.data.astype(np.float32))
        type_ = DType.I8 if self.kind.bits == 8 else DType.I4
        parts = [
            self._constant(call, "codes", made.codes.astype(type_.numpy)),
            self._constant(call, "scales", made.scales),
        ]
        if made.offsets is not None:
            parts.append(self._constant(call, "offsets", made.offsets))
        wide, calls = gathered_rows(call, *parts)
        half = call.out.type.dtype.is_half
        if half:
            self.wide[call.out.name] = wide
        last = _cast(wide, call.out, call)
        return (*calls, last) if half else (*calls[:-1], replace(calls[-1], outs=(call.out,)))

    def _constant(self, call: Call, part: str, data: Array) -> Var:
        name = f"{call.out.name}.{part}"
        type_ = TensorType(DType.of(data.dtype), tuple(Dim.of(int(n)) for n in data.shape))
        self.constants[name] = Constant(name, type_, np.ascontiguousarray(data))
        return Var(name, type_)


def weight_only(
    module: Module, kind: str, kept: Collection[str]
) -> tuple[Module, int, Mapping[str, str]]:
    """The module, how many products and recurrent layers have quantized values as weights now, and
    which recurrent layers have not, with why."""
    work = _Work(KINDS[kind], dict(module.constant_table))
    if not work.kind.form:
        work.layers = Layers(_in_groups(work.kind), work.constants)
    functions = []
    for function in module.functions:
        work.rows.clear()
        work.sums.clear()
        work.halves.clear()
        calls = ((call,) if _is_kept(call, kept) else work.call(call) for call in function.body)
        functions.append(replace(function, body=tuple(part for parts in calls for part in parts)))
    constants = tuple(work.constants.values())
    made = replace(module, functions=tuple(functions), constants=constants)
    return made, work.count, work.layers.left if work.layers is not None else {}


def _in_groups(kind: Kind) -> Weights:
    """Those of recurrent layers."""

    def rows(matrix: Array) -> tuple[Array, Array]:
        made = _grouped(kind, matrix)
        return made.codes, made.scales

    return Weights(rows, kind.group, kind.bits, kind.dynamic)


def _cast(value: Var, to: Var, call: Call) -> Call:
    attrs = attrs_of({"to": to.type.dtype, "saturate": False})
    return Call((to,), "cast", (value,), attrs, call.origin)


def _renamed(value: Var, call: Call) -> tuple[Call, ...]:
    """The value under the name of the result of a call."""
    attrs = attrs_of({"shape": value.type.shape})
    return (Call(call.outs, "reshape", (value,), attrs, call.origin),)


def _is_kept(call: Call, kept: Collection[str]) -> bool:
    return any(out.name in kept for out in call.outs)


def _grouped(kind: Kind, rows: Array) -> Quantized:
    """Symmetric scales of the groups of each row."""
    count, size = rows.shape
    groups, most = -(-size // kind.group), kind.most
    padded = np.zeros((count, groups * kind.group))
    padded[:, :size] = rows
    blocks = padded.reshape(count, groups, kind.group)
    scales = np.abs(blocks).max(axis=2) / most
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    quantized = np.clip(np.rint(blocks / scales[:, :, None]), -most, most)
    return Quantized(scales, quantized.reshape(count, -1)[:, :size].astype(np.int8))
