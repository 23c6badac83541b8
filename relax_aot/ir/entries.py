"""Several modules that are one model: what they keep between calls, their weights and their
sizes are shared where they are the same."""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.ir.graph import Module


@dataclass(frozen=True)
class Entries:
    """Modules by the name of their entry, in the order in which the user gave them.

    Symbols that the source models call the same have the same range, and states that they
    call the same have the same type.
    """

    modules: tuple[tuple[str, Module], ...]

    def __str__(self) -> str:
        return "\n".join(f"entry {name}\n\n{module}" for name, module in self.modules)

    def __getitem__(self, name: str) -> Module:
        return dict(self.modules)[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.modules)
