# SPDX-License-Identifier: Apache-2.0
"""A tokenizer -> two C files, and a block of tables where these are large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.c_names import comment, identifier
from relax_aot.emit.render import render
from relax_aot.emit.weights import rows_of
from relax_aot.frontends.llm.tokenizer.points import Table
from relax_aot.frontends.llm.tokenizer.tables import Added, Tokenizer, Words, listed
from relax_aot.ir.types import C_TYPES, DType
from relax_aot.version import VERSION

TEXT_LIMIT_BYTES = 512 * 1024
"""Larger tables are a file that the assembler includes."""
_ALIGNMENT = 8
_TEXT_ROOM = 4
"""Bytes that decoding may hold back (`RAOT_TEXT_BYTES`)."""


@dataclass(frozen=True, slots=True)
class ArrayView:
    c_name: str
    c_type: str
    elements: int
    note: str
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenizerView:
    """What the templates in llm/ see."""

    name: str
    prefix: str
    version: str
    source: str
    count: int
    text_bytes: int
    frame: str
    words: str
    arrays: tuple[ArrayView, ...]
    definitions: tuple[str, ...]
    fields: tuple[str, ...]
    block_bytes: int
    table_bytes: int


@dataclass
class _Tables:
    """Arrays by name."""

    arrays: dict[str, tuple[NDArray[Any], str]] = field(default_factory=dict)

    def add(self, name: str, data: NDArray[Any], note: str) -> str:
        """Add an array; return its name in C."""
        name = f"table_{name}"
        filled = data if data.size else np.zeros(1, data.dtype)
        self.arrays[name] = (np.ascontiguousarray(filled).reshape(-1), note)
        return name

    def numbers(self, name: str, data: NDArray[Any] | Sequence[int], note: str) -> str:
        """The initializer of a `struct raot_numbers`."""
        numbers = np.array(data, np.uint32)
        width = 2 if numbers.size == 0 or int(numbers.max()) < 2**16 else 4
        kept = self.add(name, numbers.astype(np.uint16 if width == 2 else np.uint32), note)
        return f"{{{kept}, {width}}}"

    def points(self, name: str, table: Table, note: str) -> str:
        """The initializer of a `struct raot_point_table`."""
        blocks = self.add(f"{name}_blocks", table.blocks, f"blocks of {note}")
        values = self.add(f"{name}_values", table.values, f"{note} in each block")
        return f"{{{blocks}, {values}, {table.shift}u}}"

    def words(self, name: str, words: Words, note: str) -> str:
        """The initializer of a `struct raot_words`."""
        joined = np.frombuffer(b"".join(words.texts), np.uint8)
        # With two elements also where there are no words: compilers warn about accesses behind one.
        ends = np.cumsum([0, *map(len, words.texts or [b""])]).astype(np.uint32)
        kept = self.add(f"{name}_bytes", joined, f"bytes of {note}")
        starts = self.add(f"{name}_starts", ends, f"where {note} begin")
        order = self.numbers(f"{name}_sorted", words.listed, f"{note} in the order of their bytes")
        first = self.add(f"{name}_first", words.first, f"{note} below each first byte")
        return f"{{{kept}, {starts}, {order}, {first}}}"


@dataclass(frozen=True, slots=True)
class TokenizerSources:
    """C files by their names, and the block of tables, which may be empty."""

    files: dict[str, str]
    blocks: dict[str, bytes]
    unit: str
    """The C file to compile."""
    header: str
    block_macro: str
    readme: str
    text_bytes: int
    """Room for the text of one token."""


def emit_tokenizer(tokenizer: Tokenizer, name: str, form: str = "auto") -> TokenizerSources:
    """The C of a tokenizer with the public names `<name>_encode` and `<name>_decode_text`. Tables
    are text, or a block that the assembler includes, where they are large and `form` is auto."""
    name = identifier(name).lower()
    tables = _Tables()
    definitions: list[str] = []
    fields = [*_vocabulary(tokenizer, tables), *_division(tokenizer, tables, definitions)]
    total = sum(data.nbytes for data, _ in tables.arrays.values())
    block = b""
    arrays: tuple[ArrayView, ...] = ()
    if total > TEXT_LIMIT_BYTES and form == "auto":
        macros, block = _block(tables, name)
        definitions = [macros, *definitions]
    else:
        arrays = tuple(_array(*one) for one in tables.arrays.items())
    view = TokenizerView(
        name, name.upper(), VERSION, comment(Path(tokenizer.source).name), tokenizer.count,
        3 * (tokenizer.longest + _TEXT_ROOM), _frame(tokenizer), _words(tokenizer), arrays,
        tuple(definitions), tuple(fields), len(block), total,
    )  # fmt: skip
    files = {
        f"{name}_tokenizer{end}": render(f"llm/tokenizer{end}.j2", tokenizer=view)
        for end in (".h", ".c")
    }
    blocks = {f"{name}_tokenizer.bin": block} if block else {}
    return TokenizerSources(
        files, blocks, f"{name}_tokenizer.c", f"{name}_tokenizer.h",
        f"{view.prefix}_TOKENIZER_FILE", render("llm/tokenizer.md.j2", tokenizer=view),
        view.text_bytes,
    )  # fmt: skip


def _array(name: str, value: tuple[NDArray[Any], str]) -> ArrayView:
    data, note = value
    c_type = C_TYPES[DType.of(data.dtype)]
    return ArrayView(name, c_type, data.size, note, rows_of(data))


def _block(tables: _Tables, name: str) -> tuple[str, bytes]:
    """Macros that name the arrays in one block, and the block."""
    lines, block = [], bytearray()
    for array, (data, note) in tables.arrays.items():
        block += bytes(-len(block) % _ALIGNMENT)
        place = f"({name}_tokenizer_block + {len(block)})"
        c_type = C_TYPES[DType.of(data.dtype)]
        lines.append(f"#define {array} ((const {c_type} *)(const void *){place}) /* {note} */")
        block += data.astype(data.dtype.newbyteorder("<")).tobytes()
    return "\n".join(lines), bytes(block)


def _vocabulary(tokenizer: Tokenizer, tables: _Tables) -> list[str]:
    added = tokenizer.added
    names = listed([one.text for one in added], range(len(added)))
    special = np.zeros(-(-max(tokenizer.count, 1) // 8), np.uint8)
    for token in tokenizer.special:
        special[token // 8] |= 1 << token % 8
    fields = [
        f".words = {tables.words('token', tokenizer.words, 'tokens')}",
        f".added = {tables.words('added', names, 'added tokens')}",
    ]
    arrays: dict[str, tuple[NDArray[Any], str]] = {
        "added_tokens": (np.array([a.token for a in added], np.int32), "numbers of added tokens"),
        "added_flags": (np.array([_flags(a) for a in added], np.uint8), "RAOT_ADDED_*"),
        "special": (special, "a bit for each token: special"),
        "frame": (np.array([*tokenizer.before, *tokenizer.behind], np.int32), "around a text"),
    }
    if tokenizer.byte_tokens:
        arrays["byte_tokens"] = (np.array(tokenizer.byte_tokens, np.int32), "tokens of bytes")
    if tokenizer.merges is not None:
        fields.append(f".merges = {_merges(tokenizer, tables)}")
    else:
        exact = tokenizer.scores.astype(np.float32)
        single = bool((exact == tokenizer.scores).all())
        arrays["scores" if single else "scores64"] = (
            (exact if single else tokenizer.scores)[:-1], "scores of tokens",
        )  # fmt: skip
        fields.append(f".unknown_score = {float(tokenizer.scores[-1])!r}")
    fields += [f".{name} = {tables.add(name, *array)}" for name, array in arrays.items()]
    numbers = {
        "count": tokenizer.count, "added_count": len(added),
        "frame_before": len(tokenizer.before), "frame_behind": len(tokenizer.behind),
        "unknown": tokenizer.unknown, "fuses": int(tokenizer.fuses),
        "whole_words": int(tokenizer.whole_words), "model": f"RAOT_{tokenizer.model}",
        "spaces": f"RAOT_SPACES_{tokenizer.spaces}",
    }  # fmt: skip
    return fields + [f".{name} = {value}" for name, value in numbers.items()]


def _flags(added: Added) -> int:
    """What `raot/tokenizer.h` calls RAOT_ADDED_*."""
    return added.special + 2 * added.takes_before + 4 * added.takes_behind


def _merges(tokenizer: Tokenizer, tables: _Tables) -> str:
    assert tokenizer.merges is not None
    left, right, result, rank = tokenizer.merges.rows.T
    first = np.searchsorted(left, np.arange(tokenizer.count + 1)).astype(np.uint32)
    parts = [
        tables.add("merge_first", first, "merges by their left part"),
        tables.numbers("merge_right", right, "the right part of each merge"),
        tables.numbers("merge_result", result, "what each merge makes"),
        tables.numbers("merge_rank", rank, "merges of lower rank come first"),
    ]
    return f"{{{', '.join(parts)}}}"


def _division(tokenizer: Tokenizer, tables: _Tables, definitions: list[str]) -> list[str]:
    fields = []
    if tokenizer.classes is not None:
        names = [
            f"{{{tables.add(f'pattern_{number}', table, 'transitions')}, {table.shape[1] - 1}u}}"
            for number, table in enumerate(tokenizer.patterns)
        ]
        definitions.append(
            f"static const struct raot_pattern patterns[{len(names)}] = {{{', '.join(names)}}};"
        )
        classes = tables.points("class", tokenizer.classes, "classes of code points")
        fields += [
            f".classes = {classes}", ".patterns = patterns", f".pattern_count = {len(names)}",
        ]  # fmt: skip
    if tokenizer.nfc is not None:
        nfc = tokenizer.nfc
        parts = [
            tables.points("nfc_kind", nfc.kind_of, "kinds of code points"),
            tables.add("nfc_kinds", nfc.kinds, "combining classes and flags"),
            tables.add("nfc_decomposed", nfc.decomposed, "code points that decompose"),
            tables.add("nfc_starts", nfc.starts, "where their parts begin"),
            tables.add("nfc_parts", nfc.parts, "parts"),
            tables.add("nfc_pairs", nfc.pairs, "pairs, and what they compose to"),
            str(len(nfc.decomposed)),
            str(len(nfc.pairs)),
        ]
        definitions.append(f"static const struct raot_nfc_tables nfc = {{{', '.join(parts)}}};")
        fields.append(".nfc = &nfc")
    if tokenizer.replacements:
        rows = [
            f"{{{point}u, {len(text)}u, {{{', '.join(map(str, text))}}}}}"
            for point, text in tokenizer.replacements
        ]
        definitions.append(
            f"static const struct raot_replacement replacements[{len(rows)}]"
            f" = {{{', '.join(rows)}}};"
        )
        fields += [".replacements = replacements", f".replacement_count = {len(rows)}"]
    if tokenizer.prefix:
        prefix = tables.add("prefix", np.frombuffer(tokenizer.prefix, np.uint8), "of each part")
        fields += [
            f".prefix = {prefix}", f".prefix_bytes = {len(tokenizer.prefix)}",
            f".prefix_rule = RAOT_PREFIX_{tokenizer.prefix_rule}",
        ]  # fmt: skip
    return fields


def _frame(tokenizer: Tokenizer) -> str:
    def listed_tokens(tokens: Sequence[int]) -> str:
        return ", ".join(map(str, tokens)) or "none"

    before, behind = listed_tokens(tokenizer.before), listed_tokens(tokenizer.behind)
    return f"tokens before the text: {before}; behind it: {behind}"


def _words(tokenizer: Tokenizer) -> str:
    if tokenizer.patterns:
        return "Words are what the pre-tokenizer divides text into, with spaces or a mark."
    return "The whole text between added tokens is one word."
