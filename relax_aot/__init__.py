# SPDX-License-Identifier: Apache-2.0
"""relax_aot: a compiler from models with dynamic sizes to plain C with bounded memory.

import relax_aot as rx
project = rx.compile("kws.onnx", board="mps2-an386", bounds={"n": (1, 128)})
project.write("out")
"""

from __future__ import annotations

from relax_aot.errors import RelaxAotError
from relax_aot.version import VERSION as __version__

TYPE_CHECKING = False  # `typing` takes a while to import
if TYPE_CHECKING:
    from typing import Any

    from relax_aot.api import (
        EntriesProject,
        Project,
        compile,
        load,
        load_llm,
        parse,
        parse_entries,
        save,
    )
    from relax_aot.ir.entries import Entries
    from relax_aot.ir.graph import Module
    from relax_aot.verify.host import StatusError

__all__ = [
    "Entries",
    "EntriesProject",
    "Module",
    "Project",
    "RelaxAotError",
    "StatusError",
    "__version__",
    "compile",
    "load",
    "load_llm",
    "parse",
    "parse_entries",
    "save",
]

_HOMES = {
    "EntriesProject": "relax_aot.api",
    "Project": "relax_aot.api",
    "compile": "relax_aot.api",
    "load": "relax_aot.api",
    "load_llm": "relax_aot.api",
    "parse": "relax_aot.api",
    "parse_entries": "relax_aot.api",
    "save": "relax_aot.api",
    "Entries": "relax_aot.ir.entries",
    "Module": "relax_aot.ir.graph",
    "StatusError": "relax_aot.verify.host",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `import relax_aot` is quick."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'relax_aot' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
