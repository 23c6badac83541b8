"""The ops: one file each, or one file for a family that differs in a formula only.

A file defines `OP` or `OPS`; files that define neither are shared parts.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from relax_aot.ops._op import Op


@cache
def all_ops() -> dict[str, Op]:
    """Every op by name, sorted; a name that is defined twice is refused."""
    found: dict[str, Op] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        single = (module.OP,) if hasattr(module, "OP") else ()
        for op in getattr(module, "OPS", single):
            assert op.name not in found, f"op {op.name} is defined twice"
            found[op.name] = op
    return dict(sorted(found.items()))
