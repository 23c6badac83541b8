# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite models: `.tflite` files, or their bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from relax_aot.frontends import ImportOptions, ModelError, file_bytes
from relax_aot.frontends.tflite.importer import import_graph
from relax_aot.frontends.tflite.model import read_model
from relax_aot.frontends.tflite.schema import IDENTIFIER
from relax_aot.frontends.tflite.table import supported
from relax_aot.ir.graph import Module

SUFFIXES = (".tflite",)


def accepts(source: Any) -> bool:
    return isinstance(source, bytes) and source[4:8] == IDENTIFIER


def load(source: Any, options: ImportOptions) -> Module:
    """The model as a module; every name in it is an identifier, whatever the file says."""
    is_path = isinstance(source, str | os.PathLike)
    name = Path(source).name if is_path else "the model"
    data = file_bytes(Path(source)) if is_path else source
    try:
        graph = read_model(data)
    except ModelError as error:
        raise ModelError(f"{name} cannot be read: {error}") from None
    return import_graph(graph, name, options)


__all__ = ["SUFFIXES", "accepts", "load", "supported"]
