# SPDX-License-Identifier: Apache-2.0
"""Bytes -> ModelProto, and tensors -> arrays. Nothing in a file is trusted.

External data is read by our own code: a plain file inside the model's folder, reached
through no link, with offset and length inside it.
"""

from __future__ import annotations

import os
import stat
import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no types shipped
from numpy.typing import NDArray
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    TensorProto,
    external_data_helper,
    helper,
    numpy_helper,
)

from relax_aot.frontends import ModelError, file_bytes
from relax_aot.frontends.onnx.model_file import element_bits, without_weights

Array = NDArray[Any]
GREATEST_ELEMENTS = 2**31 - 1


def read_model(source: Any, name: str) -> tuple[ModelProto, Path | None]:
    """The model, and the folder that its external data may lie in."""
    if isinstance(source, ModelProto):
        model, folder = source, None
    else:
        folder = None if isinstance(source, bytes) else Path(source).resolve().parent
        try:
            model = (
                ModelProto.FromString(source)
                if isinstance(source, bytes)
                else without_weights(Path(source).resolve())
                or ModelProto.FromString(file_bytes(Path(source)))
            )
        except (DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ModelError(f"{name} is not an ONNX model: {_line(error)}") from None
    if not model.HasField("graph") or not model.graph.output:
        raise ModelError(f"{name} is not an ONNX model: it has no graph with outputs")
    if not _is_text(model.graph):
        raise ModelError(f"{name} is not an ONNX model: a name in it is not UTF-8 text")
    return model, folder


def _is_text(graph: GraphProto) -> bool:
    """Names that are not UTF-8 come as bytes; nothing after this has to reckon with them."""
    stored = (*graph.initializer, *(one.values for one in graph.sparse_initializer))
    values = (*graph.input, *graph.output, *graph.value_info, *stored)
    names: list[object] = [value.name for value in values]
    for value in (*graph.input, *graph.output):
        names += [d.dim_param for d in value.type.tensor_type.shape.dim]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
        if not all(_is_text(a.g) for a in node.attribute if a.type == AttributeProto.GRAPH):
            return False
    return all(isinstance(name, str) for name in names)


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:200] if text else type(error).__name__


def array_of(tensor: TensorProto, folder: Path | None) -> Array:
    """The elements of a tensor; ModelError where its bytes do not fit its shape."""
    where = f"tensor {tensor.name!r}"
    if any(n < 0 for n in tensor.dims) or prod(tensor.dims) > GREATEST_ELEMENTS:
        raise ModelError(f"{where} has impossible sizes {list(tensor.dims)}")
    if tensor.data_type == TensorProto.STRING:
        raise ModelError(f"{where} contains strings")
    bits = element_bits(tensor)
    if bits is None:
        raise ModelError(f"{where} has an unknown element type")
    try:
        if external_data_helper.uses_external_data(tensor):
            return _external(tensor, bits, folder)
        if tensor.HasField("raw_data") and len(tensor.raw_data) < prod(tensor.dims) * bits // 8:
            raise ModelError(f"{where}: {len(tensor.raw_data)} bytes are too few")
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OverflowError, onnx.checker.ValidationError) as error:
        raise ModelError(f"{where} cannot be read: {_line(error)}") from None


def _external(tensor: TensorProto, bits: int, folder: Path | None) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    where = f"tensor {tensor.name!r}: external data {location!r}"
    if folder is None:
        raise ModelError(f"{where}: only a model that is read from a file can have some")
    offset, length = _number(entries, "offset", 0, where), _number(entries, "length", -1, where)
    needed = -(-prod(tensor.dims) * bits // 8)
    with _open_below(folder, location, where) as file:
        size = os.fstat(file.fileno()).st_size
        length = max(size - offset, 0) if length < 0 else length
        if offset + length > size:
            raise ModelError(f"{where}: bytes {offset}..{offset + length} of a file of {size}")
        if length < needed:
            raise ModelError(f"{where}: {length} bytes, {needed} are needed")
        file.seek(offset)
        data = file.read(needed)
    if bits >= 8 and sys.byteorder == "little":  # a message would have a copy of the bytes
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        return np.frombuffer(data, dtype).reshape(tensor.dims)
    plain = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=data)
    return np.asarray(numpy_helper.to_array(plain))


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"{where}: {key} {text!r} is not a number of bytes")
    return int(text)


def _open_below(folder: Path, location: str, where: str) -> Any:
    """A regular file strictly below `folder`, with no link on the way or to it, opened."""
    parts = Path(location).parts
    strange = "\\" in location or ":" in location or "\0" in location
    if not parts or Path(location).is_absolute() or ".." in parts or strange:
        raise ModelError(f"{where}: only plain paths inside the model's folder are read")
    path = folder
    try:
        for part in parts:
            path = path / part
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind):
                raise ModelError(f"{where}: links are not followed; put the file itself there")
        if not stat.S_ISREG(kind):
            raise ModelError(f"{where}: it must be a regular file")
        file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb")
    except OSError as error:
        raise ModelError(f"{where}: {error.strerror}") from None
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        file.close()
        raise ModelError(f"{where}: the file has a second name; hard links are not followed")
    return file
