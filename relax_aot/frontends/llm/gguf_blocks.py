# SPDX-License-Identifier: Apache-2.0
"""The types of tensors in GGUF files, and what quantized blocks stand for.

    Q8_0   f16 scale | 32 x i8                              scale * q
    Q4_0   f16 scale | 32 halves of bytes                   scale * (q - 8)
    Q4_1   f16 scale, least | 32 halves                     scale * q + least
    Q5_0   f16 scale | 32 high bits | 32 halves             scale * (q - 16)
    Q5_1   f16 scale, least | 32 high bits | 32 halves      scale * q + least
    IQ4_NL f16 scale | 32 halves                            scale * level[q]
    Q2_K   16 x 4 bits of each | 256 x 2 bits | f16 scale, least    scale * s * q - least * m
    Q3_K   256 high bits | 256 x 2 bits | 16 x 6 bits | f16 scale   scale * (s - 32) * (q - 4)
    Q4_K   f16 scale, least | 8 x 6 bits of each | 256 halves   scale * s * q - least * m
    Q5_K   as Q4_K, with 256 high bits in front of the halves
    Q6_K   256 x 4 bits | 256 x 2 bits | 16 x i8 | f16 scale    scale * s * (q - 32)
    IQ4_XS f16 scale | 8 x 6 bits | 256 halves              scale * (s - 32) * level[q]

Source: block_q8_0 and the others of ggml's src/ggml-common.h, dequantize_row_q8_0 and the others of
src/ggml-quants.c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from relax_aot.ops._op import Array

LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""Of IQ4_NL and IQ4_XS: `kvalues_iq4nl`."""


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


def _bits(columns: Array) -> Array:
    """Four bytes as 32 bits, the lowest first."""
    return np.unpackbits(np.ascontiguousarray(columns), axis=-1, bitorder="little")


def _q5_0(data: Array) -> Array:
    blocks = data.reshape(-1, 22)
    values = _halves(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << np.uint8(4)
    return np.asarray(_half(blocks[:, :2]) * (values.astype(np.float32) - np.float32(16)))


def _q5_1(data: Array) -> Array:
    blocks = data.reshape(-1, 24)
    values = _halves(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << np.uint8(4)
    values = values.astype(np.float32)
    return np.asarray(_half(blocks[:, :2]) * values + _half(blocks[:, 2:4]))


def _iq4_nl(data: Array) -> Array:
    blocks = data.reshape(-1, 18)
    return np.asarray(_half(blocks[:, :2]) * LEVELS[_halves(blocks[:, 2:])])


def _iq4_xs(data: Array) -> Array:
    blocks = data.reshape(-1, 136)
    places = np.arange(8, dtype=np.uint16)
    high = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> 2 * places & 3
    low = np.repeat(blocks[:, 4:8], 2, axis=1) >> (4 * (places % 2)).astype(np.uint8) & np.uint8(15)
    scales = (low | high << 4).astype(np.float32) - np.float32(32)
    values = LEVELS[_halves(blocks[:, 8:].reshape(-1, 8, 16))]
    return np.asarray((_half(blocks[:, :2]) * scales)[:, :, None] * values)


def _pairs(data: Array) -> Array:
    """Two groups of 32 bytes as 4 x 32 numbers of 2 bits each, [blocks, 16, 16]."""
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return (data.reshape(-1, 2, 1, 32) >> shifts & np.uint8(3)).reshape(-1, 16, 16)


def _q2_k(data: Array) -> Array:
    blocks = data.reshape(-1, 84)
    scales = (blocks[:, :16] & np.uint8(15)).astype(np.float32)
    leasts = (blocks[:, :16] >> np.uint8(4)).astype(np.float32)
    step = (_half(blocks[:, 80:82]) * scales)[:, :, None]
    least = (_half(blocks[:, 82:84]) * leasts)[:, :, None]
    return np.asarray(step * _pairs(blocks[:, 16:80]).astype(np.float32) - least)


def _q3_k(data: Array) -> Array:
    blocks = data.reshape(-1, 110)
    low, high = _halves(blocks[:, 96:104]), blocks[:, None, 104:108]
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = (high >> shifts & np.uint8(3)).reshape(-1, 16)
    scales = (low | high << np.uint8(4)).astype(np.float32) - np.float32(32)
    places = np.arange(8, dtype=np.uint8)[:, None]
    bits = (blocks[:, None, :32] >> places & np.uint8(1)).reshape(-1, 16, 16)
    values = (_pairs(blocks[:, 32:96]) | bits << np.uint8(2)).astype(np.float32) - np.float32(4)
    return np.asarray((_half(blocks[:, 108:]) * scales)[:, :, None] * values)


def _q4_k(data: Array) -> Array:
    blocks = data.reshape(-1, 144)
    return _in_eighths(blocks, _halves(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _q5_k(data: Array) -> Array:
    blocks = data.reshape(-1, 176)
    places = np.arange(8, dtype=np.uint8)[:, None]
    high = blocks[:, None, 16:48] >> places & np.uint8(1)
    low = _halves(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return _in_eighths(blocks, low | high << np.uint8(4))


def _in_eighths(blocks: Array, values: Array) -> Array:
    """Quantized values [blocks, 8, 32], times a scale less a least number of each eighth."""
    packed = blocks[:, 4:16].reshape(-1, 3, 4)
    low, least, both = packed[:, 0], packed[:, 1], packed[:, 2]
    six, two = np.uint8(63), np.uint8(6)
    high_scales = (both & np.uint8(15)) | (low >> two << np.uint8(4))
    high_least = (both >> np.uint8(4)) | (least >> two << np.uint8(4))
    scales = np.concatenate([low & six, high_scales], axis=1).astype(np.float32)
    leasts = np.concatenate([least & six, high_least], axis=1).astype(np.float32)
    step = (_half(blocks[:, :2]) * scales)[:, :, None]
    return step * values.astype(np.float32) - (_half(blocks[:, 2:4]) * leasts)[:, :, None]


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
    6: Kind("Q5_0", 32, 22, _q5_0),
    7: Kind("Q5_1", 32, 24, _q5_1),
    8: Kind("Q8_0", 32, 34, _q8_0),
    10: Kind("Q2_K", 256, 84, _q2_k),
    11: Kind("Q3_K", 256, 110, _q3_k),
    12: Kind("Q4_K", 256, 144, _q4_k),
    13: Kind("Q5_K", 256, 176, _q5_k),
    14: Kind("Q6_K", 256, 210, _q6_k),
    16: Kind("IQ2_XXS", 256, 66),
    17: Kind("IQ2_XS", 256, 74),
    18: Kind("IQ3_XXS", 256, 98),
    19: Kind("IQ1_S", 256, 50),
    20: Kind("IQ4_NL", 32, 18, _iq4_nl),
    21: Kind("IQ3_S", 256, 110),
    22: Kind("IQ2_S", 256, 82),
    23: Kind("IQ4_XS", 256, 136, _iq4_xs),
    29: Kind("IQ1_M", 256, 56),
    30: Kind("BF16", 1, 2, _floats(np.dtype(ml_dtypes.bfloat16))),
    34: Kind("TQ1_0", 256, 54),
    35: Kind("TQ2_0", 256, 66),
    39: Kind("MXFP4", 32, 17),
}
"""By the numbers of `enum ggml_type`."""
