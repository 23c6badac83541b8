# SPDX-License-Identifier: Apache-2.0
"""The micro-kernels of the C runtime, one file per instruction set.

Each file describes its micro-kernels once, by their meaning (`relax_aot/ir/microkernel.py`).
Interpretation, access ranges, multiply-adds, random samples, tests and the reference page
(docs/reference/micro_kernels.md) are derived.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from relax_aot.ir.dims import ZERO, Dim
from relax_aot.ir.loops import Buffer, Load, Micro
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.microkernels._describe import micro_kernels

__all__ = ["all_micro_kernels", "call", "instruction_sets", "micro_kernels"]


@lru_cache(maxsize=1)
def all_micro_kernels() -> dict[str, MicroKernel]:
    """By name, of every instruction set."""
    found: dict[str, MicroKernel] = {}
    for module in instruction_sets().values():
        for kernel in module.MICRO_KERNELS:
            assert kernel.name not in found, f"{kernel.name} is described twice"
            found[kernel.name] = kernel
    return found


def instruction_sets() -> dict[str, ModuleType]:
    """The files of this folder, by name."""
    names = sorted(module.name for module in iter_modules(__path__) if module.name[0] != "_")
    return {name: import_module(f"{__name__}.{name}") for name in names}


def call(name: str, **arguments: Load | Buffer | Dim | int) -> Micro:
    """A call of a micro-kernel of the runtime, its operands and sizes by name. A buffer stands for
    its first element."""
    loads = {
        key: value[(ZERO,) * value.rank] if isinstance(value, Buffer) else value
        for key, value in arguments.items()
    }
    return Micro.of(all_micro_kernels()[name], **loads)
