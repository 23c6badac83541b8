# SPDX-License-Identifier: Apache-2.0
"""Weights of products as quantized values of 8 or 4 bits in groups.

The products become `matmul_groups`. Activations stay floats, and the product decodes the weights
while it reads them; or each row of them is quantized while the model runs (`quantize_rows`), and
the product sums integers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relax_aot.ir.dims import Dim, ceildiv
from relax_aot.ir.graph import Call, Constant, Module, Var, attrs_of
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array


@dataclass(frozen=True, slots=True)
class Kind:
    """`dynamic`: activations are quantized while the model runs."""

    bits: int
    dynamic: bool = False

    @property
    def most(self) -> int:
        """The greatest magnitude of a quantized weight."""
        return int(2 ** (self.bits - 1)) - 1


KINDS = {
    "int8w": Kind(8),
    "int4w": Kind(4),
    "int8d": Kind(8, dynamic=True),
    "int4d": Kind(4, dynamic=True),
}
GROUP = 32
"""So many weights along the inner axis share a scale."""


@dataclass
class _Work:
    kind: Kind
    constants: dict[str, Constant]
    count: int = 0
    rows: dict[str, tuple[Var, Var]] = field(default_factory=dict)
    """Values that are quantized, with their scales, by the name of the float value."""

    def call(self, call: Call) -> tuple[Call, ...]:
        """What stands for a product with constant weights; another call as it is."""
        weights = self._weights(call)
        if weights is None:
            return (call,)
        transposed = call.op == "gemm" and bool(call.attr("trans_b"))
        self.count += 1
        scales, quantized = _grouped(weights if transposed else weights.T, self.kind.most)
        type_ = DType.I8 if self.kind.bits == 8 else DType.I4
        parts = (
            self._constant(call, "codes", quantized.T.astype(type_.numpy)),
            self._constant(call, "scales", scales.T),
        )
        (x, *row_scales), before = self._activations(call)
        bias = (*call.args, None)[2]
        out = call.out if bias is None else Var(f"{call.out.name}.product", call.out.type)
        args, attrs = (x, *parts, *row_scales), attrs_of({"group": GROUP})
        product = Call((out,), "matmul_groups", args, attrs, call.origin)
        if bias is None:
            return (*before, product)
        return *before, product, Call(call.outs, "add", (out, bias), (), call.origin)

    def _activations(self, call: Call) -> tuple[tuple[Var, ...], tuple[Call, ...]]:
        """What a product multiplies by its weights, and the call that computes it."""
        x = call.inputs[0]
        if not self.kind.dynamic:
            return (x,), ()
        if x.name in self.rows:
            return self.rows[x.name], ()
        *rows, depth = x.type.shape
        types = (
            TensorType(DType.I8, (*rows, ceildiv(depth, GROUP) * GROUP)),
            TensorType(DType.F32, tuple(rows)),
        )
        values, scales = (
            Var(f"{x.name}.{part}", type_)
            for part, type_ in zip(("rows", "steps"), types, strict=True)
        )
        attrs = attrs_of({"multiple": GROUP})
        self.rows[x.name] = values, scales
        return (values, scales), (
            Call((values, scales), "quantize_rows", (x,), attrs, call.origin),
        )

    def _weights(self, call: Call) -> Array | None:
        if call.op not in ("matmul", "gemm") or len(call.inputs) < 2:
            return None
        found = self.constants.get(call.inputs[1].name)
        if found is None or found.type.dtype is not DType.F32 or found.type.rank != 2:
            return None
        attrs: dict[str, Any] = dict(call.attrs)
        plain = not attrs.get("trans_a") and attrs.get("alpha", 1.0) == attrs.get("beta", 1.0) == 1
        return np.asarray(found.data) if plain else None

    def _constant(self, call: Call, part: str, data: Array) -> Var:
        name = f"{call.out.name}.{part}"
        type_ = TensorType(DType.of(data.dtype), tuple(Dim.of(int(n)) for n in data.shape))
        self.constants[name] = Constant(name, type_, np.ascontiguousarray(data))
        return Var(name, type_)


def weight_only(module: Module, kind: str, kept: Collection[str]) -> tuple[Module, int]:
    """The module, and how many products have quantized values as weights now."""
    work = _Work(KINDS[kind], dict(module.constant_table))
    functions = []
    for function in module.functions:
        work.rows.clear()
        calls = ((call,) if _is_kept(call, kept) else work.call(call) for call in function.body)
        functions.append(replace(function, body=tuple(part for parts in calls for part in parts)))
    constants = tuple(work.constants.values())
    return replace(module, functions=tuple(functions), constants=constants), work.count


def _is_kept(call: Call, kept: Collection[str]) -> bool:
    return any(out.name in kept for out in call.outs)


def _grouped(rows: Array, most: int) -> tuple[Array, Array]:
    """Symmetric scales of the groups of each row, and quantized values."""
    count, size = rows.shape
    groups = -(-size // GROUP)
    padded = np.zeros((count, groups * GROUP))
    padded[:, :size] = rows
    blocks = padded.reshape(count, groups, GROUP)
    scales = np.abs(blocks).max(axis=2) / most
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    quantized = np.clip(np.rint(blocks / scales[:, :, None]), -most, most)
    return scales, quantized.reshape(count, -1)[:, :size].astype(np.int8)
