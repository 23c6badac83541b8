# SPDX-License-Identifier: Apache-2.0
"""C functions of the user's in place of calls of the graph.

A table (toml.py) joins the prototypes of a C header (header.py) to patterns of calls
(pattern.py); `place` puts them into a module just before it is lowered, so that the calls
keep their meaning until then: what verifies a model still compares with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relax_aot.externs._error import ExternError
from relax_aot.externs.libraries import library_table
from relax_aot.externs.place import place
from relax_aot.externs.rule import ExternTable, TableFile
from relax_aot.externs.toml import read_table
from relax_aot.ir.graph import Module


def read_externs(tables: Sequence[Path], libraries: Sequence[str] = ()) -> ExternTable:
    """The tables of the user's, each rule of which must replace something, then libraries."""
    brought = [library_table(name) for name in libraries]
    read = [read_table(path, expected=True) for path in tables]
    read += [read_table(path, expected=False) for path in brought]
    _check_files(read)
    return ExternTable(tuple(read))


def for_some(table: ExternTable) -> ExternTable:
    """The same for one entry of several: its rules may replace something in another."""
    return ExternTable(
        tuple(
            replace(one, rules=tuple(replace(rule, expected=False) for rule in one.rules))
            for one in table.tables
        )
    )


def require_taken(table: ExternTable, modules: Sequence[Module]) -> None:
    """Each rule of the user's replaced something in one of these modules."""
    called = {(e.function, e.header) for module in modules for e in module.externs}
    for rule in table.rules:
        if rule.expected and (rule.extern.function, rule.extern.header) not in called:
            raise ExternError(
                f"{rule.where}: function {rule.prototype.name} matches no call in any entry; "
                "compile the entry alone to see why"
            )


def _check_files(tables: Sequence[TableFile]) -> None:
    """A generated project holds one file of each name."""
    first: dict[str, TableFile] = {}
    for table in tables:
        for name, content in table.files.items():
            other = first.setdefault(name, table)
            if other.files[name] != content:
                raise ExternError(
                    f"{table.path}: {name} differs from the file of that name next to {other.path};"
                    " a generated project holds one of each name, so rename one"
                )


__all__ = ["ExternError", "ExternTable", "for_some", "place", "read_externs", "require_taken"]
