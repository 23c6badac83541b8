"""ONNX models: files, or `onnx.ModelProto` values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnx import ModelProto

from relax_aot.frontends import ImportOptions
from relax_aot.frontends.onnx.importer import import_model
from relax_aot.frontends.onnx.protobuf import read_model
from relax_aot.frontends.onnx.table import supported
from relax_aot.ir.graph import Module

SUFFIXES = (".onnx",)


def accepts(source: Any) -> bool:
    return isinstance(source, ModelProto | bytes)


def load(source: Any, options: ImportOptions) -> Module:
    model, folder = read_model(source)
    name = Path(source).name if isinstance(source, str | Path) else model.graph.name or "model"
    return import_model(model, folder, name, options)


__all__ = ["SUFFIXES", "accepts", "load", "supported"]
