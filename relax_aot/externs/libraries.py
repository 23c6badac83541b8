# SPDX-License-Identifier: Apache-2.0
"""Libraries: tables of externs that come with a package and are named, not written.

A package gives the path of its table as an entry point of `relax_aot.libraries`. Its rules
are tried in order after those of the user's own tables; one that finds nothing to replace in
a model is no mistake.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from relax_aot.externs._error import ExternError
from relax_aot.plugins import entry_names, plugin_called, plugin_path


def library_table(name: str) -> Path:
    """The table of a library; a name that ends in `.toml` is the path of a user's own."""
    if name.endswith(".toml"):
        return Path(name)
    if plugin := plugin_called("libraries", name):
        return plugin_path(plugin)
    known = entry_names("libraries")
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    listed = f"libraries are: {', '.join(known)}" if known else "no installed package provides one"
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ExternError(f"unknown library {name!r}; {hint}{listed}")
