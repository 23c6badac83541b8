# SPDX-License-Identifier: Apache-2.0
"""Constants as C: text where they are small, one binary block where they are not.

C text of a large constant is slow to compile and needs much memory, so above
`_TEXT_LIMIT_BYTES` in all, the constants are one file that the assembler includes. On request
they are a block apart from the code (blob.py), which the program is given when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from relax_aot.emit.arenas import LocalView
from relax_aot.emit.blob import IDENTITY, LINE_BYTES, Layout, lay_out, unit_of
from relax_aot.emit.c_expr import literal, single_texts
from relax_aot.emit.c_names import Names, comment
from relax_aot.emit.wrap import noted
from relax_aot.errors import RelaxAotError
from relax_aot.files import Block
from relax_aot.ir.graph import Array, Constant
from relax_aot.ir.loops import Lit
from relax_aot.ir.types import C_TYPES, DType
from relax_aot.planning.regions import NoRoom, Region

_TEXT_LIMIT_BYTES = 512 * 1024
_MOST_TEXT_BYTES = 16 * 2**20
"""No more is written as C text: GCC takes some sixty times as much memory to read it."""
LINKED_BYTES = 2**31 - 1
"""Larger blocks are loaded: a linker's relocations have 32 bits."""
_WORD_BYTES = 4
FORMS = ("auto", "c", "asm", "blob")
"""How weights reach a program: as C text, included by the assembler, or apart from the code."""
_ROW_COLUMNS = 95
"""What the elements of one row take, without the indent and the comma at its end."""


@dataclass(frozen=True, slots=True)
class ConstantView:
    """One constant array."""

    c_name: str
    c_type: str
    elements: int
    note: str
    rows: tuple[str, ...]
    """The elements as C text, a line each; empty when they are in the block."""
    offset: int
    """Where it begins in the block."""
    alignment: int
    place: str = ""
    """A macro that puts it into its region, with a space behind; nothing where none is named."""


@dataclass(frozen=True, slots=True)
class Weights:
    constants: tuple[ConstantView, ...]
    prefix: str
    names: dict[str, str]
    """Constant -> C expression of type `const T *`."""
    block: Block | None
    """Contents of the binary file; None where all constants are text, or it is not packed yet."""
    total_bytes: int
    label: str
    """What the linker calls the bytes that the assembler includes."""
    section: str
    alignment: int
    """Of the first byte of that block."""
    places: tuple[LocalView, ...]
    """Macros that put constants into regions, and what they stand for."""
    layout: Layout | None = None
    """Of the block that lies apart from the code: it is packed when the code is known."""
    limits: tuple[str, ...] = ()
    """Limits of quantization parameters in that block, as C text."""
    identity: tuple[str, ...] = ()
    """Rows of the bytes that such a block must start with."""

    @property
    def apart(self) -> bool:
        """The program gives the weights, as a block that is checked."""
        return self.layout is not None

    @property
    def declarations(self) -> tuple[str, ...]:
        rows = [
            (f"extern const {c.c_type} {c.c_name}[{c.elements}];", c.note) for c in self.constants
        ]
        return noted(rows)

    @property
    def in_block(self) -> bool:
        return self.block is not None or self.apart

    @property
    def linked(self) -> bool:
        """The project has a C file with the constants."""
        return self.block_bytes <= LINKED_BYTES

    @property
    def unit(self) -> str:
        """The C file with the constants, behind a space, as one more source of a library."""
        return f" {self.reader}" if self.linked else ""

    @property
    def reader(self) -> str:
        """The C file that names the binary file."""
        return f"{self.prefix}_weights.c" if self.linked else "main.c"

    @property
    def block_bytes(self) -> int:
        if self.layout is not None:
            return self.layout.total_bytes
        return 0 if self.block is None else self.block.size

    @property
    def identity_bytes(self) -> int:
        return IDENTITY.size

    @property
    def limits_count(self) -> int:
        return len(self.limits)

    def packed(self, code: str) -> Weights:
        """A block apart from the code knows that code by its hash."""
        if self.layout is None:
            return self
        expected = self.layout.identity(code)
        rows = (expected[start : start + 13] for start in range(0, len(expected), 13))
        identity = tuple(", ".join(f"0x{byte:02x}" for byte in row) for row in rows)
        return replace(self, identity=identity, block=self.layout.packed(expected))


def weights_of(
    constants: Sequence[Constant],
    prefix: str,
    alignment: int,
    regions: Mapping[str, Region],
    form: str,
    taken: Sequence[str] = (),
) -> Weights:
    """Lay out the constants in one of `FORMS`; splats among them are written out. Public
    functions have the names in `taken`. Where regions are named, they were filled with constants
    at multiples of `alignment`."""
    total = sum(c.type.bytes.constant for c in constants)
    if form not in FORMS:
        raise RelaxAotError(f"weights are one of {', '.join(FORMS)}, not {form!r}")
    as_text = total <= _TEXT_LIMIT_BYTES if form == "auto" else form == "c"
    if as_text and total > _MOST_TEXT_BYTES:
        raise RelaxAotError(
            f"weights of {total} bytes are too large for C text, which can hold {_MOST_TEXT_BYTES};"
            " take --weights asm, which GCC's and Clang's assemblers include, or --weights blob, a "
            "file that the program loads"
        )
    if form in ("auto", "asm") and not as_text and len({r.name for r in regions.values()}) > 1:
        raise NoRoom(
            f"constants of {total} bytes are one block, which cannot lie in several regions; give "
            "the board one region that can hold all constants"
        )
    arrays = [_bits(constant) for constant in constants]
    stored = [data.data.cast("B") if data.size else b"" for data in arrays]
    dtypes = [constant.type.dtype for constant in constants]
    line = alignment if regions else LINE_BYTES
    layout = lay_out([*zip(dtypes, stored, strict=True)], alignment, line)
    apart, start = form == "blob", layout.data_offset
    if not apart and layout.total_bytes > LINKED_BYTES:
        raise RelaxAotError(
            f"weights of {total} bytes cannot be linked into a program, which can hold"
            f" {LINKED_BYTES}; use --weights blob, a file that the program maps into memory"
        )
    block = None if as_text or apart else layout.block(start)
    names = Names(["run", "init", "arena_bytes", "weights", *taken], before=f"{prefix}_")
    views, expressions = [], {}
    for constant, data, part in zip(constants, arrays, layout.parts, strict=True):
        c_type = C_TYPES[constant.type.dtype]
        c_name = f"{prefix}_{constant.name if apart else names.claim(constant.name)}"
        offset = 0 if as_text else part.offset if apart else part.offset - start
        if apart:
            expression = f"(const {c_type} *)raot_at_const(memory->weights, {offset})"
        else:
            inside = f"(const {c_type} *)(const void *)({prefix}_weights + {offset})"
            expression = c_name if as_text else inside
        expressions[constant.name] = expression
        rows = rows_of(data) if as_text else ()
        region = None if apart else regions.get(constant.name)
        place = "" if region is None else f"{_place_macro(prefix, region)} "
        note = comment(f"{constant.type}")
        unit = unit_of(data.nbytes, alignment, line)
        view = ConstantView(c_name, c_type, max(data.size, 1), note, rows, offset, unit, place)
        views.append(view)
    return Weights(
        tuple(views), prefix, expressions, block, total,
        f"{prefix}_weights{'_block' * apart}", _section(regions, prefix),
        max((view.alignment for view in views), default=alignment), _places(regions, prefix),
        layout if apart else None, tuple(_limit_rows(constants, layout)) if apart else (),
    )  # fmt: skip


def _places(placed: Mapping[str, Region], prefix: str) -> tuple[LocalView, ...]:
    regions = {region.name: region for region in placed.values()}
    return tuple(
        LocalView(
            _place_macro(prefix, region),
            f'__attribute__((section("{region.section}")))' if region.section else "",
            "",
        )
        for _, region in sorted(regions.items())
    )


def _section(placed: Mapping[str, Region], prefix: str) -> str:
    """The section of a block of constants, all of which lie in one region."""
    sections = [region.section for region in placed.values() if region.section]
    return sections[0] if sections else f".rodata.{prefix}_weights"


def _limit_rows(constants: Sequence[Constant], layout: Layout) -> Iterator[str]:
    """Offset, count, lowest and highest: neighbors with equal limits are one row."""
    for constant, part in zip(constants, layout.parts, strict=True):
        limits = constant.limits
        if len(limits) == 1:
            limits = limits * constant.data.size
        offset = part.offset
        for (low, high), equal in groupby(limits):
            count = len(list(equal))
            yield f"{{{offset}u, {count}u, {low}, {high}}}"
            offset += _WORD_BYTES * count


def _place_macro(prefix: str, region: Region) -> str:
    return f"{prefix.upper()}_IN_{region.name.upper()}"


def _bits(constant: Constant) -> Array:
    """Little-endian elements as the generated C stores them (bool 0/1, halves as bits)."""
    data = np.ascontiguousarray(constant.data).reshape(-1)
    if constant.type.dtype is DType.BOOL:
        return data.astype(np.uint8)
    if constant.type.dtype.is_half:
        return data.view(np.uint16)
    if constant.type.dtype.is_storage:
        return data.view(np.uint8)
    return data.astype(data.dtype.newbyteorder("<"), copy=False)


def _texts(values: list[int | float], dtype: DType) -> list[str]:
    """Numbers as C writes them. There are few integers, and each is written once."""
    if dtype.is_float:
        return [literal(Lit(value, dtype)) for value in values]
    known = {value: literal(Lit(value, dtype)) for value in set(values)}
    return [known[value] for value in values]


def rows_of(data: Array) -> tuple[str, ...]:
    if data.size == 0:
        return ("0",)
    dtype = DType.of(data.dtype)
    texts = single_texts(data) if dtype is DType.F32 else _texts(data.tolist(), dtype)
    rows: list[list[str]] = []
    room = 0
    for text in texts:
        if len(text) + 2 > room:
            rows.append([])
            room = _ROW_COLUMNS
        rows[-1].append(text)
        room -= len(text) + 2
    return tuple(", ".join(row) for row in rows)
