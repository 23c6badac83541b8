# SPDX-License-Identifier: Apache-2.0
"""What runs behind the table of raot_model.h: one model, or several entries that share a state.

The table over several entries takes the number of the entry as its first size, then the sizes of
all entries; its inputs, outputs and result sizes are those of all entries in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import DimField, Interface, Port
from relax_aot.errors import RelaxAotError
from relax_aot.ir.types import DType
from relax_aot.project import Project
from relax_aot.project.entries import EntriesProject
from relax_aot.scheduling.targets import find as find_target
from relax_aot.verify.adapter import adapter_files
from relax_aot.verify.entries_adapter import entries_adapter_files
from relax_aot.verify.library import Bytes, RawResult
from relax_aot.verify.samples import Case
from relax_aot.verify.sizes import InputError, require_shapes, sizes_of

Array = NDArray[Any]
Built = Project | EntriesProject
NOTHING: Bytes = np.zeros(0, np.uint8)


def has_partial_sums(project: Built) -> bool:
    """Whether float sums may have another order than that of the plain loops."""
    target = find_target(project.board.family, project.board.features)
    return project.view.numerics != "ordered" and target.partial_sums > 1


def has_vector_functions(project: Built) -> bool:
    """Whether elementary functions may be those of raot/vector_functions.h."""
    target = find_target(project.board.family, project.board.features)
    return has_partial_sums(project) or (
        project.view.numerics != "ordered" and (target.functions > 0 or "fpu" in target.needs)
    )


def rounds_factors(project: Built) -> bool:
    """Whether products of floats round their factors to TF32."""
    return project.view.numerics == "tf32"


def rounds_weights(project: Built) -> bool:
    """Whether products of half precision round packed weights that they decode to their type."""
    target = find_target(project.board.family, project.board.features)
    return has_partial_sums(project) and any(kind.is_half for kind in target.matrices)


def require_linked(project: Built, what: str) -> None:
    """Weights that are too large to be linked run on the host alone."""
    shared = program_of(project).shared
    if not shared.weights_linked:
        raise RelaxAotError(
            f"{what} links the weights of {shared.name} into a program, which cannot hold 2 GiB;"
            " use verify --board host"
        )


@dataclass(frozen=True)
class Program:
    """The interfaces by entry; a model alone is the entry ''."""

    shared: Interface
    """Whose memory and init it is."""
    interfaces: Mapping[str, Interface]

    @property
    def several(self) -> bool:
        return "" not in self.interfaces

    @property
    def adapter(self) -> dict[str, str]:
        """The C files of the table, by name."""
        if self.several:
            return entries_adapter_files(self.shared, list(self.interfaces.values()))
        return adapter_files(self.shared)

    def fields(self, entry: str) -> tuple[DimField, ...]:
        """The sizes of the table, without the number of the entry: those of its struct, and the
        lengths to which growing states are truncated before the call."""
        interface = self.interfaces[entry]
        own = interface.bounded if self.several else interface.dims
        return own + interface.all_lengths

    @property
    def shaping(self) -> tuple[DimField, ...]:
        """The sizes that shape the state."""
        return self.shared.dims if self.several else self.shared.state_symbols

    def sizes(
        self,
        entry: str,
        inputs: Sequence[Array],
        given: Mapping[str, int],
        held: Mapping[str, int] | None,
        *,
        anew: bool,
    ) -> dict[str, int]:
        """The sizes of the table by the names of the source. `held` are those of the state; where
        a state is made `anew`, every size that shapes it must be known. Sizes of other entries do
        not matter to this one."""
        interface = self.interfaces[entry]
        own = sizes_of(interface, inputs, given, held)
        known = {**(held or {}), **given}
        known |= {f.source: own[f.symbol.name] for f in interface.sizes}
        for field in self.shaping if anew and self.shared.has_init else ():
            if field.source not in known:
                raise InputError(
                    f"size {field.source} shapes the state and entry {entry} does not determine it:"
                    f" give it before the first call, .reset({field.source}={field.symbol.high}) or"
                    f" .{entry}.at({field.source}={field.symbol.high}) in Python"
                )
        return {f.source: known.get(f.source, f.symbol.low) for f in self.fields(entry)}

    def case_sizes(self, case: Case) -> dict[str, int]:
        """As `sizes`, of a case whose inputs have the shapes that its sizes give."""
        interface = self.interfaces[case.entry]
        require_shapes(interface, case.sizes, case.inputs)
        known = dict(case.others)
        known |= {f.source: int(case.sizes[f.symbol.name]) for f in interface.sizes}
        return {f.source: known.get(f.source, f.symbol.low) for f in self.fields(case.entry)}

    def dims(self, entry: str, sizes: Mapping[str, int]) -> list[int]:
        number = [list(self.interfaces).index(entry)] if self.several else []
        return [*number, *(sizes[field.source] for field in self.fields(entry))]

    def lengths_after(self, entry: str, sizes: Mapping[str, int]) -> dict[str, int]:
        """The lengths that a call of these sizes leaves, all by the names of the source."""
        interface = self.interfaces[entry]
        return lengths_after(interface, {f.symbol.name: sizes[f.source] for f in interface.sizes})

    def inputs(self, entry: str, inputs: Sequence[Array]) -> list[Bytes]:
        """Nothing for the inputs of other entries."""
        given: list[Bytes] = []
        for name, other in self.interfaces.items():
            given += map(to_bytes, inputs) if name == entry else [NOTHING] * len(other.inputs)
        return given

    def outputs(self, entry: str, sizes: Mapping[str, int], raw: RawResult) -> dict[str, Array]:
        """The entry's outputs by name, at the sizes of a call."""
        names = list(self.interfaces)
        before = [self.interfaces[name] for name in names[: names.index(entry)]]
        own = self.interfaces[entry]
        first = sum(len(interface.outputs) for interface in before)
        first_size = sum(len(interface.results) for interface in before)
        raw = replace(
            raw,
            outputs=raw.outputs[first : first + len(own.outputs)],
            sizes=raw.sizes[first_size : first_size + len(own.results)],
        )
        return outputs_of(own, {f.symbol.name: sizes[f.source] for f in own.sizes}, raw)


def lengths_after(interface: Interface, sizes: Mapping[str, int]) -> dict[str, int]:
    """The lengths of growing states after a call of these sizes (by symbol), by source names."""
    growths = [(f.source, f.symbol.growth) for f in interface.lengths]
    return {source: growth.kept(sizes) for source, growth in growths if growth}


def alone(interface: Interface) -> Program:
    return Program(interface, {"": interface})


def program_of(built: Built) -> Program:
    if isinstance(built, Project):
        return alone(built.interface)
    return Program(built.shared, {name: one.interface for name, one in built.entries.items()})


def parts_of(built: Built) -> dict[str, Project]:
    """The projects by entry."""
    return {"": built} if isinstance(built, Project) else built.entries


# Arrays


def to_bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def outputs_of(interface: Interface, sizes: Mapping[str, int], raw: RawResult) -> dict[str, Array]:
    """Outputs by source name, cut to their sizes of this call."""
    known = dict(sizes)
    known |= {f.symbol.name: v for f, v in zip(interface.results, raw.sizes, strict=True)}
    return {
        port.source: _shaped(port, interface.shape(port, known), data)
        for port, data in zip(interface.outputs, raw.outputs, strict=True)
    }


def _shaped(port: Port, shape: tuple[int, ...], data: Bytes) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    dtype = np.dtype(np.uint8) if port.type.dtype is DType.BOOL else port.type.dtype.numpy
    values = data[: count * dtype.itemsize].copy().view(dtype).reshape(shape)
    return values.astype(np.bool_) if port.type.dtype is DType.BOOL else values
