# SPDX-License-Identifier: Apache-2.0
"""Several entries built with the host's compiler and called from Python; they share the state.

host = project.host()
host.prefill(x=...)
host.decode.at(m=7)(x=...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.interface import Interface
from relax_aot.project.entries import EntriesProject
from relax_aot.verify.entries_adapter import entries_adapter_files
from relax_aot.verify.host import (
    Array,
    Child,
    HostCrash,
    Runner,
    SizedCall,
    StatusError,
    build_flagged,
    outputs_of,
    to_bytes,
    with_adapter,
)
from relax_aot.verify.library import Library, RawResult
from relax_aot.verify.sizes import (
    InputError,
    by_name,
    given_sizes,
    merged_sizes,
    ordered_inputs,
    require_shapes,
    sizes_of,
)

NOTHING: NDArray[np.uint8] = np.zeros(0, np.uint8)


class HostEntries:
    """Each entry is an attribute (or an item), called with arrays by input name. The first call or
    `reset` creates the state, which is kept until the next `reset`."""

    def __init__(
        self, project: EntriesProject, runner: Runner, sizes: Mapping[str, int] | None = None
    ) -> None:
        self.project = project
        self._given = given_sizes(project.bounded, sizes or {}, project.shared.fixed_sizes)
        self.runner = runner
        self._interfaces = {name: p.interface for name, p in project.entries.items()}
        self._held: dict[str, int] | None = None
        """The sizes that shape the state, by the names of the source, once there is one."""
        self._chosen: dict[str, int] = {}

    def __getitem__(self, name: str) -> HostEntry:
        if not isinstance(name, str) or name not in self._interfaces:
            raise InputError(f"unknown entry {name!r}; entries are {list(self._interfaces)}")
        return HostEntry(self, name)

    def __getattr__(self, name: str) -> HostEntry:
        if name.startswith("_") or name not in self._interfaces:
            raise AttributeError(f"unknown entry {name!r}; entries are {self.entries}")
        return HostEntry(self, name)

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the entries, in order."""
        return tuple(self.project.entries)

    def reset(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Clear the state before the next call. `sizes` are the sizes of the state that no input
        determines."""
        requested = merged_sizes(sizes, named)
        shared = self.project.shared
        self._held, self._chosen = None, given_sizes(shared.dims, requested, shared.fixed_sizes)

    def run_at(
        self, entry: str, sizes: Mapping[str, int], inputs: Sequence[Array]
    ) -> dict[str, Array]:
        """Run an entry at sizes by their source names, with inputs in the order of its
        interface."""
        interface = self[entry].interface
        sizes = given_sizes(
            self.project.bounded, merged_sizes(sizes, {}), self.project.shared.fixed_sizes
        )
        named = {f.symbol.name: sizes[f.source] for f in interface.dims if f.source in sizes}
        require_shapes(interface, named, inputs)
        dims = call_dims(self.project, entry, sizes)
        if self.project.shared.has_init and self._held is None:
            status = self.runner.init(dims)
            if status:
                raise StatusError(status, f"{self.project.name}_init")
            self._held = {f.source: sizes[f.source] for f in self.project.shared.dims}
        raw = self.runner.run(dims, call_inputs(self.project, entry, inputs))
        if raw.status:
            raise StatusError(raw.status, f"{interface.name}_run")
        if not raw.guards_ok:
            raise HostCrash(f"{interface.name}_run wrote outside its memory")
        return outputs_of(interface, named, own_result(self.project, entry, raw))

    def sizes_for(
        self, entry: str, inputs: Sequence[Array], given: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Return every size by its source name: from `given`, from the inputs, from the state, or
        from `reset`, in this order."""
        held = self._chosen if self._held is None else self._held
        anew = self.project.shared.has_init and self._held is None
        chosen = {**self._given, **(given or {})}
        return entry_sizes(self.project, entry, inputs, chosen, held, anew=anew)


class HostEntry:
    """One entry: call it with arrays by input name; a dict of outputs by name comes back. `at`
    gives the sizes that no shape determines."""

    def __init__(self, host: HostEntries, name: str) -> None:
        self._host = host
        self.name = name

    @property
    def interface(self) -> Interface:
        return self._host.project.entries[self.name].interface

    def __call__(self, /, *arrays: Mapping[str, Array] | None, **named: Array) -> dict[str, Array]:
        return self._call({}, by_name(arrays, named))

    def at(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> SizedCall:
        """What to call in place of this entry where the shapes of inputs do not determine all
        sizes: `host.decode.at(m=7)(x=...)`."""
        given = given_sizes(
            self.interface.bounded, merged_sizes(sizes, named), self.interface.fixed_sizes
        )
        return SizedCall(partial(self._call, given))

    def _call(self, given: Mapping[str, int], arrays: Mapping[str, Array]) -> dict[str, Array]:
        inputs = ordered_inputs(self.interface, arrays)
        sizes = self._host.sizes_for(self.name, inputs, given)
        return self._host.run_at(self.name, sizes, inputs)


def entries_host(
    project: EntriesProject, *, sanitize: bool = False, sizes: Mapping[str, int] | None = None
) -> HostEntries:
    """Build (or find in the cache) and load. With `sanitize`, under ASan and UBSan. `sizes` are
    those that no shape determines, by the names of the source."""
    files = with_adapter(project.files, entries_adapter_files(project))
    path = build_flagged(files, project.foreign, sanitize=sanitize)
    return HostEntries(project, Child(path) if sanitize else Library(path), sizes)


# One call through the table over all entries


def entry_sizes(
    project: EntriesProject,
    entry: str,
    inputs: Sequence[Array],
    given: Mapping[str, int],
    held: Mapping[str, int],
    *,
    anew: bool,
) -> dict[str, int]:
    """The sizes of all entries by the source's names. `held` are those of the state; where a
    state is made `anew`, every size that shapes it must be known. Sizes of other entries do not
    matter to this one."""
    interface = project.entries[entry].interface
    own = sizes_of(interface, inputs, given, held)
    known = {**held, **given, **{f.source: own[f.symbol.name] for f in interface.dims}}
    for field in project.shared.dims if anew else ():
        if field.source not in known:
            raise InputError(
                f"size {field.source} shapes the state and entry {entry} does not determine it:"
                f" give it before the first call, .reset({field.source}={field.symbol.high}) or"
                f" .{entry}.at({field.source}={field.symbol.high}) in Python"
            )
    return {f.source: known.get(f.source, f.symbol.low) for f in interface.bounded}


def call_dims(project: EntriesProject, entry: str, sizes: Mapping[str, int]) -> list[int]:
    """Which entry, and the sizes of all."""
    number = list(project.entries).index(entry)
    bounded = project.entries[entry].interface.bounded
    return [number, *(sizes[field.source] for field in bounded)]


def call_inputs(
    project: EntriesProject, entry: str, inputs: Sequence[Array]
) -> list[NDArray[np.uint8]]:
    """Nothing for the inputs of other entries."""
    given: list[NDArray[np.uint8]] = []
    for name, other in project.entries.items():
        given += map(to_bytes, inputs) if name == entry else [NOTHING] * len(other.interface.inputs)
    return given


def own_result(project: EntriesProject, entry: str, raw: RawResult) -> RawResult:
    """What of a call is the entry's."""
    outputs = results = 0
    for name, other in project.entries.items():
        if name == entry:
            break
        outputs += len(other.interface.outputs)
        results += len(other.interface.results)
    own = project.entries[entry].interface
    return replace(
        raw,
        outputs=raw.outputs[outputs : outputs + len(own.outputs)],
        sizes=raw.sizes[results : results + len(own.results)],
    )
