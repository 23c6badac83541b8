# SPDX-License-Identifier: Apache-2.0
"""Weights of products as quantized values of 8 or 4 bits in groups; activations stay floats.

The product decodes them as it reads (int8w by fusion, int4w as matmul_nbits), so that flash
holds quantized values alone.
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
        rows = weights if transposed else weights.T
        self.count += 1
        most = 2 ** (self.bits - 1) - 1
        scales, quantized = _grouped(rows, most)
        return self._packed(call, scales, quantized) if self.bits == 4 else (
            self._decoded(call, scales, quantized, transposed=transposed)
        )  # fmt: skip

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

    def _decoded(
        self, call: Call, scales: Array, quantized: Array, *, transposed: bool
    ) -> tuple[Call, ...]:
        kept = (quantized, scales) if transposed else (quantized.T, scales.T)
        parts = [
            self._constant(call, name, data)
            for name, data in zip(("codes", "scales"), kept, strict=True)
        ]
        attrs: dict[str, Any] = {"axis": int(transposed), "block": GROUP, "to": DType.F32}
        out = Var(f"{call.out.name}.weights", call.inputs[1].type)
        decode = Call((out,), "dequantize", tuple(parts), attrs_of(attrs), call.origin)
        return decode, replace(call, args=(call.args[0], out, *call.args[2:]))

    def _packed(self, call: Call, scales: Array, quantized: Array) -> tuple[Call, ...]:
        """Two quantized values per byte, the first in the low half; 8 represents 0."""
        rows, size = quantized.shape
        blocks = -(-size // GROUP)
        places = np.full((rows, blocks * GROUP), 8, np.uint8)
        places[:, :size] = quantized + 8
        packed = (places[:, 0::2] | places[:, 1::2] << 4).reshape(rows, blocks, GROUP // 2)
        args = (call.args[0], self._constant(call, "codes", packed),
                self._constant(call, "scales", scales))  # fmt: skip
        attrs = attrs_of({"bits": 4, "block": GROUP})
        bias = (*call.args, None)[2]
        if bias is None:
            return (Call(call.outs, "matmul_nbits", args, attrs, call.origin),)
        product = Var(f"{call.out.name}.product", call.out.type)
        return (
            Call((product,), "matmul_nbits", args, attrs, call.origin),
            Call(call.outs, "add", (product, bias), (), call.origin),
        )


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
