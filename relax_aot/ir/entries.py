# SPDX-License-Identifier: Apache-2.0
"""Several modules that are one model: what they keep between calls, their weights and their
sizes are shared where they are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relax_aot.ir.graph import Array, Module

EntryCall = tuple[str, Mapping[str, Array]]
"""The name of an entry, and its inputs by name."""


@dataclass(frozen=True)
class Entries:
    """Modules by the names of their entries, in the order of the user. Symbols with the same source
    name have the same range, and states with the same source name have the same type."""

    modules: tuple[tuple[str, Module], ...]
    """Pairs of name and module."""
    prelude: tuple[EntryCall, ...] = field(default=(), compare=False, repr=False)
    """Calls that are made while compiling: init sets the state as they leave it."""

    def __str__(self) -> str:
        return "\n".join(f"entry {name}\n\n{module}" for name, module in self.modules)

    def __getitem__(self, name: str) -> Module:
        return dict(self.modules)[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entries, in order."""
        return tuple(name for name, _ in self.modules)
