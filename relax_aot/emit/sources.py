# SPDX-License-Identifier: Apache-2.0
"""The files of a generated model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.emit.cuda_module import DeviceLaunch
from relax_aot.emit.header import HeaderView
from relax_aot.emit.interface import Interface
from relax_aot.emit.view import ModelView
from relax_aot.files import Block


@dataclass(frozen=True, slots=True)
class Sources:
    """The C files of a model (path -> text), the weights block, and what they were made of."""

    files: dict[str, str]
    blocks: dict[str, Block]
    interface: Interface
    """Of a model, or of the memory that its entries share."""
    view: ModelView
    header: HeaderView
    entries: tuple[ModelView, ...] = ()
    runs: tuple[Mapping[str, tuple[DeviceLaunch, ...]], ...] = ()
    """Of a GPU: the launches of each kernel, for each run."""

    @property
    def const_bytes(self) -> int:
        return self.view.weights.total_bytes
