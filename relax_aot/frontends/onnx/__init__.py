# SPDX-License-Identifier: Apache-2.0
"""ONNX models: files, their bytes, or `onnx.ModelProto` values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from onnx import ModelProto

from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.onnx.importer import import_model
from relax_aot.frontends.onnx.protobuf import read_model
from relax_aot.frontends.onnx.table import supported
from relax_aot.ir.graph import Module

SUFFIXES = (".onnx",)


def accepts(source: Any) -> bool:
    """ONNX has no mark of its own: bytes are taken unless another format's mark is there."""
    marked = isinstance(source, bytes) and source[4:8] == b"TFL3"
    return isinstance(source, ModelProto | bytes) and not marked


def load(source: Any, options: ImportOptions) -> Module:
    """The model as a module; every name in it is an identifier, whatever the file says."""
    name = Path(source).name if isinstance(source, str | os.PathLike) else "the model"
    try:
        model, folder = read_model(source, name)
        return import_model(model, folder, name, options)
    except UnicodeDecodeError as error:
        # Text fields are decoded when they are first looked at, so this comes from anywhere.
        raise ModelError(f"{name} is damaged: a name in it is not UTF-8 ({error.reason})") from None
    except RecursionError:
        raise ModelError(f"{name} is damaged: its graphs are nested too deeply") from None


__all__ = ["SUFFIXES", "accepts", "load", "supported"]
