# SPDX-License-Identifier: Apache-2.0
"""States that do not begin with zeros: constants that init copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from relax_aot.emit.interface import CommonInterface, StatePart
from relax_aot.emit.lengths import row_sizes
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Array, Constant
from relax_aot.ir.types import TensorType


@dataclass(frozen=True)
class Initial:
    """What init sets, by the names of the source."""

    states: Mapping[str, Array] = field(default_factory=dict)
    """Contents; those of a growing state are its first rows."""
    lengths: Mapping[str, int] = field(default_factory=dict)

    def constants(self, common: CommonInterface) -> tuple[Constant, ...]:
        """The contents that are not zeros, in the order of the states."""
        return tuple(
            Constant(
                _name(part),
                TensorType(part.type.dtype, tuple(map(Dim.of, self.states[part.source].shape))),
                self.states[part.source],
            )
            for part in common.states
            if part.source in self.states and self.states[part.source].any()
        )

    def of_lengths(self, common: CommonInterface) -> CommonInterface:
        """The names and sizes, with the lengths that init sets."""
        lengths = (replace(f, first=self.lengths.get(f.source, 0)) for f in common.lengths)
        return replace(common, lengths=tuple(lengths))

    def statements(self, common: CommonInterface, names: Mapping[str, str]) -> Iterator[str]:
        """The last ones of init, behind those that clear the state; `names` are what constants
        are called in C."""
        for part in common.states:
            constant = names.get(_name(part))
            if constant is None:
                continue
            blocks, row, places, rows = _rows(part, self.states[part.source])
            start = f"raot_at(memory->state, {part.macro})"
            yield f"raot_place_rows({start}, {blocks}, {row}, {places}, {constant}, {rows});"
        for index, length in enumerate(common.lengths, 1 + len(common.shaping)):
            if length.first:
                yield f"header[{index}] = {length.first};"


NOTHING = Initial()


def _name(part: StatePart) -> str:
    return f"initial {part.source}"


def _rows(part: StatePart, data: Array) -> tuple[int, int, int, int]:
    """The blocks of rows, the bytes of a row, the rows that a block has memory for, and those that
    it begins with."""
    if not part.length:
        return 1, part.type.bytes.constant, 1, 1
    blocks, row = row_sizes(part)
    places = part.type.shape[part.axis].constant
    return blocks.constant, row.constant, places, data.shape[part.axis]
