"""Bytes -> ModelProto, and tensors -> arrays. Nothing in a file is trusted.

External data is read by our own code: a plain file inside the model's folder, reached
through no link, with offset and length inside it.
"""

from __future__ import annotations

import os
import stat
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, external_data_helper, numpy_helper
from onnx.inliner import inline_local_functions

from relax_aot.frontends import ModelError

Array = NDArray[Any]
GREATEST_ELEMENTS = 2**31 - 1


def read_model(source: Any) -> tuple[ModelProto, Path | None]:
    """The model, and the folder that its external data may lie in."""
    if isinstance(source, ModelProto):
        return _inlined(source, "model"), None
    name = "model" if isinstance(source, bytes) else str(source)
    folder = None if isinstance(source, bytes) else Path(source).resolve().parent
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {name}: {error.strerror}") from None
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # noqa: BLE001 - DecodeError, UnicodeDecodeError, RecursionError
        raise ModelError(f"{name} is not an ONNX model: {_line(error)}") from None
    if not model.HasField("graph") or not model.graph.output:
        raise ModelError(f"{name} is not an ONNX model: it has no graph with outputs")
    return _inlined(model, name), folder


def _inlined(model: ModelProto, name: str) -> ModelProto:
    if not model.functions:
        return model
    try:
        inlined: ModelProto = inline_local_functions(model)
        return inlined
    except Exception as error:  # noqa: BLE001 - the C++ binding raises several kinds
        raise ModelError(f"{name}: its functions cannot be inlined: {_line(error)}") from None


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def array_of(tensor: TensorProto, folder: Path | None) -> Array:
    """The elements of a tensor; ModelError where its bytes do not fit its shape."""
    if any(n < 0 for n in tensor.dims) or prod(tensor.dims) > GREATEST_ELEMENTS:
        raise ModelError(f"tensor {tensor.name!r} has impossible sizes {list(tensor.dims)}")
    try:
        if external_data_helper.uses_external_data(tensor):
            tensor = _with_external(tensor, folder)
        return np.asarray(numpy_helper.to_array(tensor))
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a hostile tensor provokes
        raise ModelError(f"tensor {tensor.name!r} cannot be read: {_line(error)}") from None


def _with_external(tensor: TensorProto, folder: Path | None) -> TensorProto:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    where = f"tensor {tensor.name!r}: external data {location!r}"
    if folder is None:
        raise ModelError(f"{where}: the model did not come from a file")
    path = _safe_path(folder, location, where)
    offset, length = _number(entries, "offset", 0, where), _number(entries, "length", -1, where)
    size = path.stat().st_size
    length = size - offset if length < 0 else length
    if offset + length > size:
        raise ModelError(f"{where}: bytes {offset}..{offset + length} are outside its {size}")
    expected = prod(tensor.dims) * max(_element_bits(tensor), 1) // 8
    if length < expected:
        raise ModelError(f"{where}: {length} bytes cannot hold {expected}")
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    plain = TensorProto()
    plain.CopyFrom(tensor)
    plain.ClearField("external_data")
    plain.data_location = TensorProto.DEFAULT
    plain.raw_data = data
    return plain


def _element_bits(tensor: TensorProto) -> int:
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        raise ModelError(f"tensor {tensor.name!r} has an unknown element type") from None
    return int(np.dtype(dtype).itemsize * 8)


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not text.isdigit():
        raise ModelError(f"{where}: {key} {text!r} is not a number")
    return int(text)


def _safe_path(folder: Path, location: str, where: str) -> Path:
    """A regular file strictly below `folder`, with no link on the way or to it."""
    parts = Path(location).parts
    if (
        not parts
        or Path(location).is_absolute()
        or ".." in parts
        or "\\" in location
        or ":" in location
    ):
        raise ModelError(f"{where}: only plain paths inside the model's folder are read")
    path = folder
    for part in parts:
        path = path / part
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            raise ModelError(f"{where}: there is no such file") from None
        if stat.S_ISLNK(status.st_mode):
            raise ModelError(f"{where}: links are not followed")
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise ModelError(f"{where}: it must be a regular file with one name")
    return path
