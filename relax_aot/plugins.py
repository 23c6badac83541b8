"""What other Python packages bring: ops, passes, boards, frontends, ONNX operators, libraries.

A package names them as entry points in its own settings:

    [project.entry-points."relax_aot.ops"]
    scale = "my_package.scale"

Each group's owner says what an entry must be. Whatever is wrong with one is said with the
name of the package, because its user is often not its author.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from relax_aot.errors import RelaxAotError

GROUPS = ("ops", "passes", "boards", "frontends", "onnx", "libraries")
OURS = "relax_aot itself"


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


def plugins(group: str) -> tuple[Plugin, ...]:
    """What installed packages give for a group, sorted by name; a name of two is refused."""
    assert group in GROUPS, group
    found = _entries(group)
    refuse_twice((entry.name, _origin(entry)) for entry in found)
    return tuple(Plugin(entry.name, _loaded(entry), _origin(entry)) for entry in found)


def plugin_names(group: str) -> tuple[str, ...]:
    """`name  package version`, without loading anything."""
    found = _entries(group)
    return tuple(f"{entry.name} ({_package(entry)})" for entry in found)


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
    """The TOML file that an entry point names, as a path or the text of one."""
    if not isinstance(plugin.value, str | os.PathLike):
        raise plugin.fail(f"expected the path of a TOML file, got {plugin.value!r}")
    path = Path(plugin.value)
    if path.suffix != ".toml" or not path.is_file():
        raise plugin.fail(f"there is no TOML file {path}")
    return path


def refuse_twice(named: Iterable[tuple[str, str]]) -> None:
    """`named` are names and where each comes from."""
    origins: dict[str, str] = {}
    for name, origin in named:
        if name in origins:
            raise PluginError(
                f"{name!r} comes from {origins[name]} and from {origin}; uninstall one of them"
            )
        origins[name] = origin


def _package(entry: EntryPoint) -> str:
    if entry.dist is None:
        return "a package without a name"
    return f"{entry.dist.name} {entry.dist.version}"


def _origin(entry: EntryPoint) -> str:
    return f"package {_package(entry)} ({entry.group}: {entry.name} = {entry.value})"


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise PluginError(
            f"{_origin(entry)} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
