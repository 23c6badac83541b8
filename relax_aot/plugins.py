# SPDX-License-Identifier: Apache-2.0
"""Plugins: ops, passes, boards, frontends, ONNX operators and libraries of other packages.

A package lists them as entry points in its settings:

    [project.entry-points."relax_aot.ops"]
    scale = "my_package.scale"

The module that uses a group defines what an entry must be. Every error of a plugin names its
package, because its user is often not its author. A broken entry is skipped with a warning, and
fails only the model or command that needs it. A broken pass fails every compilation, because a
skipped pass would change results silently.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from relax_aot.errors import RelaxAotError

GROUPS = ("ops", "passes", "boards", "frontends", "onnx", "libraries")
OURS = "relax_aot itself"
LOG = logging.getLogger("relax_aot")
Value = TypeVar("Value")


class PluginError(RelaxAotError):
    """Another package's entry point cannot be used."""


@dataclass(frozen=True)
class Plugin:
    """One entry point, loaded. `origin` names the package for messages."""

    name: str
    value: Any
    origin: str

    def fail(self, problem: str) -> PluginError:
        return PluginError(f"{self.origin}: {problem}")

    def guarded(
        self, what: str, function: Callable[..., Any], passing: tuple[type[Exception], ...] = ()
    ) -> Callable[..., Any]:
        """`function` whose unexpected exceptions become errors that name the package."""

        @wraps(function)
        def guard(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if isinstance(error, (RelaxAotError, *passing)):
                    raise
                raise self.fail(f"{what} failed: {type(error).__name__}: {error}") from error

        return guard


@dataclass(frozen=True)
class Found(Generic[Value]):
    """`values` of the usable entries of a group, and the `problems` of the broken ones."""

    values: tuple[Value, ...]
    problems: tuple[str, ...]


def plugins(group: str) -> tuple[Plugin, ...]:
    """All entries of a group, sorted by name. A broken entry or a duplicate name is an error."""
    assert group in GROUPS, group
    found = _entries(group)
    refuse_twice((entry.name, _origin(entry)) for entry in found)
    return tuple(_plugin(entry) for entry in found)


def usable(
    group: str, read: Callable[[Plugin], tuple[Sequence[str], Value]], ours: Iterable[str]
) -> Found[Value]:
    """The entries of a group that `read` accepts. It returns the names that an entry defines and
    its value, or raises PluginError. A name must not be among `ours` or of two packages."""
    assert group in GROUPS, group
    origins = defaultdict(list, {name: [OURS] for name in ours})
    entries, problems = [], []
    for entry in _entries(group):
        try:
            names, value = read(_plugin(entry))
        except PluginError as error:
            problems.append(str(error))
            continue
        entries.append((names, value))
        for name in names:
            origins[name].append(_origin(entry))
    values = []
    for names, value in entries:
        clashes = [_clash(name, origins[name]) for name in names if len(origins[name]) > 1]
        problems += [clash for clash in clashes if clash not in problems]
        values += [] if clashes else [value]
    for problem in problems:
        LOG.warning("ignored: %s", problem)
    return Found(tuple(values), tuple(problems))


def with_problems(message: str, problems: Sequence[str]) -> str:
    """`message` about something that is missing, with the broken plugins that may provide it."""
    if not problems:
        return message
    return "\n  ".join([f"{message}; these plugins are broken:", *problems])


def plugin_names(group: str) -> tuple[str, ...]:
    """`name (package version)`, without loading anything."""
    found = _entries(group)
    return tuple(f"{entry.name} ({_package(entry)})" for entry in found)


def entry_names(group: str) -> tuple[str, ...]:
    """The names of all entries, sorted, without loading anything."""
    return tuple(dict.fromkeys(entry.name for entry in _entries(group)))


def plugin_called(group: str, name: str) -> Plugin | None:
    """The entry of this name, the only one that is loaded."""
    found = [entry for entry in _entries(group) if entry.name == name]
    refuse_twice((entry.name, _origin(entry)) for entry in found)
    return _plugin(found[0]) if found else None


def _entries(group: str) -> tuple[EntryPoint, ...]:
    """Entry points of a group, sorted. Folders of packages are read again where they changed."""
    return _entries_in(group, tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=64)
def _entries_in(group: str, _folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    found = entry_points(group=f"relax_aot.{group}")
    return tuple(sorted(found, key=lambda e: (e.name, e.value)))


def _changed(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def plugin_path(plugin: Plugin) -> Path:
    """The TOML file that an entry point names, as a path or a string."""
    if not isinstance(plugin.value, str | os.PathLike):
        raise plugin.fail(f"expected the path of a TOML file, got {plugin.value!r}")
    path = Path(plugin.value)
    if path.suffix != ".toml" or not path.is_file():
        raise plugin.fail(f"the TOML file {path} does not exist; is it package data?")
    return path


def refuse_twice(named: Iterable[tuple[str, str]]) -> None:
    """`named` are names and where each comes from."""
    origins: dict[str, str] = {}
    for name, origin in named:
        if name in origins:
            raise PluginError(_clash(name, [origins[name], origin]))
        origins[name] = origin


def _clash(name: str, origins: Sequence[str]) -> str:
    return f"{name!r} comes from {' and from '.join(origins)}; uninstall one of them"


def _package(entry: EntryPoint) -> str:
    if entry.dist is None:
        return "a package without a name"
    return f"{entry.dist.name} {entry.dist.version}"


def _origin(entry: EntryPoint) -> str:
    return f"package {_package(entry)} ({entry.group}: {entry.name} = {entry.value})"


def _plugin(entry: EntryPoint) -> Plugin:
    try:
        return Plugin(entry.name, entry.load(), _origin(entry))
    except Exception as error:
        raise PluginError(
            f"{_origin(entry)} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
