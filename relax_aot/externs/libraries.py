# SPDX-License-Identifier: Apache-2.0
"""Libraries: tables of externs that come with a package and are named, not written.

A package gives the path of its table as an entry point of `relax_aot.libraries`. Its rules
are tried in order after those of the user's own tables; one that finds nothing to replace in
a model is no mistake. The table of cuBLASLt comes with the compiler.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from relax_aot.externs._error import ExternError
from relax_aot.plugins import entry_names, plugin_called, plugin_path

CUBLASLT = Path(__file__).with_name("cublaslt.toml")


def library_table(name: str) -> Path:
    """The table of a library; a name that ends in `.toml` is the path of a user's own."""
    if name.endswith(".toml"):
        return Path(name)
    if name == CUBLASLT.stem:
        return CUBLASLT
    if plugin := plugin_called("libraries", name):
        return plugin_path(plugin)
    known = [CUBLASLT.stem, *entry_names("libraries")]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ExternError(f"unknown library {name!r}; {hint}libraries are: {', '.join(known)}")
