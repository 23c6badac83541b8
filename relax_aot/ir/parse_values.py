# SPDX-License-Identifier: Apache-2.0
"""Text -> types, numbers and the data of constants. Part of parse.py."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.dim_text import dim, integer
from relax_aot.ir.dims import Dim
from relax_aot.ir.lexer import Cursor
from relax_aot.ir.loops import Number
from relax_aot.ir.types import (
    Annotation,
    CoarseType,
    DType,
    FunctionType,
    ShapeType,
    TensorType,
    TupleType,
)

DTYPES = {dtype.value: dtype for dtype in DType}
WORDS = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}


def dtype(cursor: Cursor) -> DType:
    return DTYPES[cursor.one_of(DTYPES, "an element type")]


def dims(cursor: Cursor) -> tuple[Dim, ...]:
    """`[n, 4]`."""
    cursor.expect("[")
    return cursor.listed("]", lambda: dim(cursor))


def tensor_type(cursor: Cursor) -> TensorType:
    return TensorType(dtype(cursor), dims(cursor))


def annotation(cursor: Cursor) -> Annotation:
    """A type, or what is known of one: `f32[?, 4]`, `f32`, `?`, `shape[n]`, `scalar[n]`,
    `(f32[n], i64[])`, `(f32[n]) -> f32[n]`."""
    if cursor.take("("):
        parts = cursor.listed(")", lambda: annotation(cursor))
        return FunctionType(parts, annotation(cursor)) if cursor.take("->") else TupleType(parts)
    if cursor.at_word("shape", "scalar"):
        start = cursor.advance()
        sizes = dims(cursor)
        if start.text == "shape":
            return ShapeType(sizes)
        if len(sizes) != 1:
            raise cursor.error(start, "a scalar has one value: scalar[2*n]")
        return ShapeType(sizes, rank=0)
    kind = None if cursor.take("?") else dtype(cursor)
    if not cursor.take("["):
        return CoarseType(kind)
    shape = cursor.listed("]", lambda: None if cursor.take("?") else dim(cursor))
    exact = tuple(size for size in shape if size is not None)
    if kind is None or len(exact) < len(shape):
        return CoarseType(kind, shape)
    return TensorType(kind, exact)


def number(cursor: Cursor) -> Number:
    """A number with its sign, `inf`, `nan`, `true` or `false`; `1` is an int, `1.0` is none."""
    if cursor.at_word("true", "false"):
        return WORDS[cursor.advance().text]
    negative = bool(cursor.take("-"))
    if cursor.at_word("inf", "nan"):
        value: Number = WORDS[cursor.advance().text]
    elif cursor.token.kind != "number":
        cursor.fail("a number")
    elif cursor.token.text.isdigit():
        value = integer(cursor)
    else:
        value = float(cursor.advance().text)
    return -value if negative else value


def at_number(cursor: Cursor) -> bool:
    first = cursor.token
    signed = first.is_mark("-")
    token = cursor.ahead if signed else first
    return token.kind == "number" or (token.kind == "name" and token.text in WORDS)


def inline_data(cursor: Cursor, type_: TensorType) -> NDArray[np.generic] | None:
    """`[1.0, 2.0]` (all elements, row-major) or `splat 0.0`; None where neither stands here."""
    shape = [size.constant for size in type_.shape]
    if cursor.take_word("splat"):
        return np.broadcast_to(_array(cursor, [_element(cursor, type_.dtype)], type_.dtype), shape)
    start = cursor.token
    if not cursor.take("["):
        return None
    values = cursor.listed("]", lambda: _element(cursor, type_.dtype))
    if len(values) != prod(shape):
        raise cursor.error(start, f"{type_} has {prod(shape)} elements, got {len(values)}")
    return _array(cursor, values, type_.dtype).reshape(shape)


def _element(cursor: Cursor, kind: DType) -> Number:
    start = cursor.token
    value = number(cursor)
    fits = (
        isinstance(value, bool)
        if kind is DType.BOOL
        else type(value) is int
        if _is_whole(kind)
        else not isinstance(value, bool)
    )
    if fits and _is_whole(kind):
        fits = kind.limits[0] <= value <= kind.limits[1]
    if not fits:
        raise cursor.error(start, f"{number_text(value)} is not a value of type {kind.value}")
    return value


def _array(cursor: Cursor, values: Sequence[Number], kind: DType) -> NDArray[np.generic]:
    try:
        with np.errstate(all="ignore"):
            return array_of(values, kind)
    except OverflowError:
        raise cursor.error(cursor.token, f"a number too large for {kind.value}") from None


def _is_whole(kind: DType) -> bool:
    return kind.is_int or kind.is_stored_int


def array_of(values: Sequence[Number], kind: DType) -> NDArray[np.generic]:
    """The array that a list of numbers in text means."""
    exact = kind is DType.BOOL or kind.is_int
    return np.array(values, kind.numpy if exact else np.float64).astype(kind.numpy)


def numbers_of(array: NDArray[np.generic], kind: DType) -> list[Number]:
    """The elements as Python's numbers, row-major."""
    read: type[Number] = bool if kind is DType.BOOL else int if _is_whole(kind) else float
    return [read(value) for value in array.reshape(-1)]


def number_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
