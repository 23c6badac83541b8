# SPDX-License-Identifier: Apache-2.0
"""The files of a generated model."""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.emit.header import HeaderView
from relax_aot.emit.interface import Interface
from relax_aot.emit.view import ModelView


@dataclass(frozen=True, slots=True)
class Sources:
    """The C files of a model (path -> text), the weights block, and what they were made of."""

    files: dict[str, str]
    blocks: dict[str, bytes]
    interface: Interface
    """Of a model, or of the memory that its entries share."""
    view: ModelView
    header: HeaderView
    entries: tuple[ModelView, ...] = ()

    @property
    def const_bytes(self) -> int:
        return self.view.weights.total_bytes
