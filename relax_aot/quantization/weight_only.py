# SPDX-License-Identifier: Apache-2.0
"""Weights of products as quantized values of 8 or 4 bits in groups; activations stay floats.

The products become `matmul_groups`, which decodes the weights while it reads them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Constant, Module, Var, attrs_of
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array

KINDS = {"int8w": 8, "int4w": 4}
GROUP = 32
"""So many weights along the inner axis share a scale."""


@dataclass
class _Work:
    bits: int
    constants: dict[str, Constant]
    count: int = 0

    def call(self, call: Call) -> tuple[Call, ...]:
        """What stands for a product with constant weights; another call as it is."""
        weights = self._weights(call)
        if weights is None:
            return (call,)
        transposed = call.op == "gemm" and bool(call.attr("trans_b"))
        self.count += 1
        scales, quantized = _grouped(weights if transposed else weights.T, 2 ** (self.bits - 1) - 1)
        kind = DType.I8 if self.bits == 8 else DType.I4
        parts = (
            self._constant(call, "codes", quantized.T.astype(kind.numpy)),
            self._constant(call, "scales", scales.T),
        )
        bias = (*call.args, None)[2]
        out = call.out if bias is None else Var(f"{call.out.name}.product", call.out.type)
        attrs = attrs_of({"group": GROUP})
        product = Call((out,), "matmul_groups", (call.args[0], *parts), attrs, call.origin)
        if bias is None:
            return (product,)
        return product, Call(call.outs, "add", (out, bias), (), call.origin)

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
    functions = tuple(
        replace(
            function,
            body=tuple(
                part
                for call in function.body
                for part in ((call,) if _is_kept(call, kept) else work.call(call))
            ),
        )
        for function in module.functions
    )
    constants = tuple(work.constants.values())
    return replace(module, functions=functions, constants=constants), work.count


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
