# SPDX-License-Identifier: Apache-2.0
"""The types of tensors in GGUF files, and what quantized blocks stand for.

    Q8_0   f16 scale | 32 x i8                              scale * q
    Q4_0   f16 scale | 32 halves of bytes                   scale * (q - 8)
    Q4_1   f16 scale, least | 32 halves                     scale * q + least
    Q4_K   f16 scale, least | 8 x 6 bits of each | 256 halves   scale * s * q - least * m
    Q6_K   256 x 4 bits | 256 x 2 bits | 16 x i8 | f16 scale    scale * s * (q - 32)

Source: block_q8_0 and the others of ggml's src/ggml-common.h, dequantize_row_q8_0 and the others of
src/ggml-quants.c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from relax_aot.ops._op import Array


@dataclass(frozen=True, slots=True)
class Kind:
    """A type: blocks of `elements` take `bytes`. `decode`: bytes to elements, None where we have
    none."""

    name: str
    elements: int
    bytes: int
    decode: Callable[[Array], Array] | None = None


def _floats(dtype: np.dtype[np.generic]) -> Callable[[Array], Array]:
    def decode(data: Array) -> Array:
        values: Array = np.ascontiguousarray(data).view(dtype)
        return values

    return decode


def _half(columns: Array) -> Array:
    """Two bytes of each block as a number, [blocks, 1]."""
    return np.asarray(np.ascontiguousarray(columns).view("<f2").astype(np.float32))


def _halves(columns: Array) -> Array:
    """The low halves of bytes, then the high ones."""
    return np.concatenate([columns & np.uint8(15), columns >> np.uint8(4)], axis=-1)


def _q8_0(data: Array) -> Array:
    blocks = data.reshape(-1, 34)
    values = np.ascontiguousarray(blocks[:, 2:]).view(np.int8)
    return np.asarray(_half(blocks[:, :2]) * values.astype(np.float32))


def _q4_0(data: Array) -> Array:
    blocks = data.reshape(-1, 18)
    values = _halves(blocks[:, 2:]).astype(np.float32) - np.float32(8)
    return np.asarray(_half(blocks[:, :2]) * values)


def _q4_1(data: Array) -> Array:
    blocks = data.reshape(-1, 20)
    values = _halves(blocks[:, 4:]).astype(np.float32)
    return _half(blocks[:, :2]) * values + _half(blocks[:, 2:4])


def _q4_k(data: Array) -> Array:
    blocks = data.reshape(-1, 144)
    packed = blocks[:, 4:16].reshape(-1, 3, 4)
    low, least, both = packed[:, 0], packed[:, 1], packed[:, 2]
    six, two = np.uint8(63), np.uint8(6)
    high_scales = (both & np.uint8(15)) | (low >> two << np.uint8(4))
    high_least = (both >> np.uint8(4)) | (least >> two << np.uint8(4))
    scales = np.concatenate([low & six, high_scales], axis=1).astype(np.float32)
    leasts = np.concatenate([least & six, high_least], axis=1).astype(np.float32)
    values = _halves(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32).astype(np.float32)
    step = (_half(blocks[:, :2]) * scales)[:, :, None]
    return step * values - (_half(blocks[:, 2:4]) * leasts)[:, :, None]


def _q6_k(data: Array) -> Array:
    blocks = data.reshape(-1, 210)
    low = _halves(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & np.uint8(3)
    values = (low | high << np.uint8(4)).astype(np.float32) - np.float32(32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    step = _half(blocks[:, 208:]) * scales
    return np.asarray(step[:, :, None] * values.reshape(-1, 16, 16))


KINDS = {
    0: Kind("F32", 1, 4, _floats(np.dtype("<f4"))),
    1: Kind("F16", 1, 2, _floats(np.dtype("<f2"))),
    2: Kind("Q4_0", 32, 18, _q4_0),
    3: Kind("Q4_1", 32, 20, _q4_1),
    6: Kind("Q5_0", 32, 22),
    7: Kind("Q5_1", 32, 24),
    8: Kind("Q8_0", 32, 34, _q8_0),
    10: Kind("Q2_K", 256, 84),
    11: Kind("Q3_K", 256, 110),
    12: Kind("Q4_K", 256, 144, _q4_k),
    13: Kind("Q5_K", 256, 176),
    14: Kind("Q6_K", 256, 210, _q6_k),
    30: Kind("BF16", 1, 2, _floats(np.dtype(ml_dtypes.bfloat16))),
}
"""By the numbers of `enum ggml_type`."""
