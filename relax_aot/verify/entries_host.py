# SPDX-License-Identifier: Apache-2.0
"""Several entries built with the host's compiler and called from Python; they share the state.

host = project.host()
host.prefill(x=...)
host.decode.at(m=7)(x=...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relax_aot.project.entries import EntriesProject
from relax_aot.verify.host import Held, HostModel, Runner, runner_of
from relax_aot.verify.program import Array, program_of
from relax_aot.verify.sizes import InputError, given_sizes, merged_sizes, require_shapes


class HostEntries:
    """Each entry is an attribute (or an item), called with arrays by input name. The first call or
    `reset` creates the state, which is kept until the next `reset`."""

    def __init__(
        self, project: EntriesProject, runner: Runner, sizes: Mapping[str, int] | None = None
    ) -> None:
        self.project = project
        self.runner = runner
        self._held = Held()
        self._entries = {
            name: HostEntry(project, name, runner, sizes or {}, self._held)
            for name in project.entries
        }

    @property
    def by_name(self) -> Mapping[str, HostEntry]:
        """The entries by name, in order."""
        return self._entries

    def __getitem__(self, name: str) -> HostEntry:
        if not isinstance(name, str) or name not in self._entries:
            raise InputError(f"unknown entry {name!r}; entries are {list(self._entries)}")
        return self._entries[name]

    def __getattr__(self, name: str) -> HostEntry:
        if name.startswith("_") or name not in self._entries:
            raise AttributeError(f"unknown entry {name!r}; entries are {self.entries}")
        return self._entries[name]

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the entries, in order."""
        return tuple(self.project.entries)

    def reset(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Clear the state before the next call. `sizes` are the sizes of the state that no input
        determines."""
        requested = merged_sizes(sizes, named)
        shared = self.project.shared
        self._held.chosen = given_sizes(shared.dims, requested, shared.fixed_sizes)
        self._held.sizes = None

    def run_at(
        self, entry: str, sizes: Mapping[str, int], inputs: Sequence[Array]
    ) -> dict[str, Array]:
        """Run an entry at sizes by their source names, with inputs in the order of its
        interface."""
        interface, fixed = self[entry].interface, self.project.shared.fixed_sizes
        sizes = given_sizes(self.project.bounded, merged_sizes(sizes, {}), fixed)
        named = {f.symbol.name: sizes[f.source] for f in interface.dims if f.source in sizes}
        require_shapes(interface, named, inputs)
        return self[entry].run_sized(sizes, inputs)

    def sizes_for(
        self, entry: str, inputs: Sequence[Array], given: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Return every size by its source name: from `given`, from the inputs, from the state, or
        from `reset`, in this order."""
        return self[entry].sizes_of(inputs, given or {})


class HostEntry(HostModel):
    """One entry: call it with arrays by input name; a dict of outputs by name comes back. `at`
    gives the sizes that no shape determines. All entries share the state."""

    def __init__(
        self,
        project: EntriesProject,
        name: str,
        runner: Runner,
        sizes: Mapping[str, int],
        held: Held,
    ) -> None:
        super().__init__(project.entries[name].interface, runner)
        self.name = self._entry = name
        self._program, self._held = program_of(project), held
        self._sizes = given_sizes(project.bounded, sizes, project.shared.fixed_sizes)


def entries_host(
    project: EntriesProject, *, sanitize: bool = False, sizes: Mapping[str, int] | None = None
) -> HostEntries:
    """Build (or find in the cache) and load. With `sanitize`, under ASan and UBSan. `sizes` are
    those that no shape determines, by the names of the source."""
    return HostEntries(project, runner_of(project, sanitize=sanitize), sizes)
