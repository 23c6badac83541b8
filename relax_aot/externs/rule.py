# SPDX-License-Identifier: Apache-2.0
"""What a table of externs says, checked against the C header: the values that others use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from relax_aot.externs.header import Prototype
from relax_aot.externs.pattern import Pattern
from relax_aot.ir.dims import Dim
from relax_aot.ir.extern import Extern
from relax_aot.ir.graph import Module
from relax_aot.ir.types import DType


class Kind(Enum):
    """What a table can say about a C parameter; the value is the key that says it."""

    INPUT = "input"
    OUTPUT = "output"
    UPDATE = "update"
    SCRATCH = "scratch"
    SIZE = "size"
    ATTRIBUTE = "attribute"
    VALUE = "value"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Axis:
    """A size; `many` (`*m`) is the product of any number of leading axes."""

    size: Dim
    many: bool = False


@dataclass(frozen=True, slots=True)
class TypeRule:
    """`f32[*m, k]`: the type of an argument, over symbols of the extern's own."""

    dtype: DType
    axes: tuple[Axis, ...]
    text: str

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset[str]().union(*(axis.size.symbols for axis in self.axes))


@dataclass(frozen=True, slots=True)
class Argument:
    """One C parameter. `name` is a value of the pattern, and `made` the one that is written;
    `attribute` an attribute, perhaps with the index of an element; `literal` a number for
    every call."""

    param: str
    kind: Kind
    c_type: str
    where: str
    type: TypeRule | None = None
    name: str = ""
    made: str = ""
    size: Dim = field(default_factory=lambda: Dim.of(0))
    attribute: tuple[str, int | None] = ("", None)
    literal: int | float | bool = 0


@dataclass(frozen=True, slots=True)
class Requirement:
    """What must hold for every size of a call: `k % 4 == 0`."""

    relation: str
    difference: Dim
    text: str


@dataclass(frozen=True)
class Rule:
    """One `[[extern]]`: its record for the module, and the calls that it stands for.

    `expected` rules must replace something; those of a library need not.
    """

    extern: Extern
    prototype: Prototype
    arguments: tuple[Argument, ...]
    pattern: Pattern | None
    nodes: tuple[str, ...]
    requires: tuple[Requirement, ...]
    where: str
    expected: bool

    @property
    def reading(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.kind in (Kind.INPUT, Kind.UPDATE))

    @property
    def writing(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.kind in (Kind.OUTPUT, Kind.UPDATE))


@dataclass(frozen=True, slots=True)
class ProductRule:
    """One `[[product]]`: products of matrices that a library of a GPU computes.

    `types` are those of the factors. `requires` is over `rows`, `columns`, `steps` and `batch`.
    Where the library is absent, the kernels of the project compute them, unless it is `required`.
    """

    library: str
    types: tuple[DType, ...]
    requires: tuple[Requirement, ...]
    required: bool
    workspace: int
    """Bytes on the GPU that the library may use during a product."""


@dataclass(frozen=True)
class TableFile:
    """One file of rules, and the C files that they need.

    `files` maps paths in the generated project to contents, `units` are those to compile;
    `names` are identifiers that the header declares, `macros` those that it defines.
    """

    path: Path
    rules: tuple[Rule, ...]
    header: str
    files: Mapping[str, bytes]
    units: tuple[str, ...]
    names: frozenset[str]
    macros: frozenset[str]
    products: tuple[ProductRule, ...] = ()


@dataclass(frozen=True)
class ExternTable:
    """Rules in the order in which they are tried, and the C files of all of them."""

    tables: tuple[TableFile, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(rule for table in self.tables for rule in table.rules)

    @property
    def products(self) -> tuple[ProductRule, ...]:
        return tuple(rule for table in self.tables for rule in table.products)

    @property
    def files(self) -> dict[str, bytes]:
        return {name: text for table in self.tables for name, text in table.files.items()}

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(unit for table in self.tables for unit in table.units))

    @property
    def names(self) -> frozenset[str]:
        return frozenset[str]().union(*(table.names for table in self.tables))

    @property
    def macros(self) -> frozenset[str]:
        return frozenset[str]().union(*(table.macros for table in self.tables))

    def used_by(self, module: Module) -> ExternTable:
        """Without the files of which the module uses nothing."""
        headers = {extern.header for extern in module.externs}
        return ExternTable(tuple(table for table in self.tables if table.header in headers))
