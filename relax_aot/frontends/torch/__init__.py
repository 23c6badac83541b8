# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a `torch.export.ExportedProgram`, through PyTorch's own ONNX exporter.

The ranges of its dynamic sizes become bounds. PyTorch is an extra: only functions that are
given its objects, or make them, import it.
"""

from __future__ import annotations

import sys
from typing import Any

from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.torch.program import Traced, load_program, traced
from relax_aot.ir.graph import Module

SUFFIXES = ()
"""A `.pt2` file holds pickled Python, which runs when it is read: who trusts it loads it."""


def accepts(source: Any) -> bool:
    return isinstance(source, Traced) or _is_program(source) or _is_module(source)


def load(source: Any, options: ImportOptions) -> Module:
    """The program as a module; sizes have the names that `dynamic_shapes` gave, or `s0`."""
    if _is_module(source):
        raise ModelError(
            "a torch.nn.Module does not define its inputs; give example inputs:"
            " load(module, (x,), dynamic_shapes={'x': {0: torch.export.Dim('n', min=1, max=64)}})"
        )
    return load_program(source if isinstance(source, Traced) else Traced(source), options)


def _is_program(source: Any) -> bool:
    # Who has such an object has imported torch.
    export = sys.modules.get("torch.export")
    return export is not None and isinstance(source, export.ExportedProgram)


def _is_module(source: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


__all__ = ["SUFFIXES", "accepts", "load", "traced"]
