# SPDX-License-Identifier: Apache-2.0
"""Language models: a folder in the layout of Hugging Face -> the entries `prefill` and `decode`.

`prefill(tokens[n])` and `decode(token)` append to the same caches of keys and values, states that
grow to the capacity `m`. Both return logits. `verify(tokens[k])` is a prefill with the logits of
all tokens, some of which are proposed. Weights have one form for all boards here; schedules
pack them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from relax_aot.frontends import ImportOptions, ModelError
from relax_aot.frontends.bounds import WrongBound
from relax_aot.frontends.llm.architectures import shape_of
from relax_aot.frontends.llm.checkpoint import Checkpoint, read_checkpoint
from relax_aot.frontends.llm.decoder import Shape, arranged, build, ignored, separate, within
from relax_aot.frontends.llm.layers import LONGEST_SCALED, STORED, Net
from relax_aot.frontends.llm.widths import unequal
from relax_aot.inference.build import FunctionBuilder
from relax_aot.inference.sizes import Shared
from relax_aot.ir.dims import Dim
from relax_aot.ir.entries import EntryCall
from relax_aot.ir.graph import Division, Growth, Module, Symbol
from relax_aot.ir.types import DType, TensorType

SUFFIXES = ()
"""A language model is a folder with several entries: `entries_of` reads it."""
CONTEXT, CHUNK = 1024, 64
"""The capacity of the caches, and the most tokens of one call."""
ROWS = 16
"""The tokens that a thread computes at a time."""
LOGITS = ("last", "all")
CACHES = ("whole", "window")
"""Whether caches of layers with a window keep all tokens, or those that the window sees."""
MOST_PLACES = 2**24
"""Of a pool."""
DRAFT, DRAFT_LENGTH = "draft_", "d"
"""The first part of names of entries and caches of a draft model, and the symbol of its tokens."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a language model. `chunk`: the most new tokens of a call; None for one token.
    `rows`: the symbol of their number."""

    checkpoint: Checkpoint
    shape: Shape
    context: int
    chunk: int | None
    every_row: bool
    rows: str = "n"
    part: int | None = None
    """The tokens of a call that are computed at a time; None: all of them."""
    kept: Mapping[int, int] = field(default_factory=dict)
    """The rows that the caches of layers keep, by their windows; others keep all."""
    stored: str = "f32"
    """The form of the numbers in caches."""
    pool: int | None = None
    """The tokens that several texts have room for together, each at a place of its own; None where
    caches hold one text."""
    length: str = "m"
    """The symbol of the tokens in the caches."""
    label: str = ""
    """What the names of caches begin with."""


def entries_of(
    folder: str | os.PathLike[str],
    context: int | None = None,
    chunk: int = CHUNK,
    logits: str = "last",
    speculate: int = 0,
    cache: str = "whole",
    cache_type: str = "f32",
    pool: int | None = None,
    part: int = ROWS,
) -> dict[str, Entry]:
    """The entries of the model in a folder. Without a `context`, it is that of the model, at most
    CONTEXT. With `speculate`, an entry verifies so many proposed tokens. `cache`: one of CACHES.
    `cache_type`: one of STORED. `pool`: the tokens of several texts that caches hold.
    `part`: the tokens of a prefill that a thread computes at a time."""
    checkpoint = read_checkpoint(Path(folder))
    shape = shape_of(checkpoint.config)
    context = min(CONTEXT, shape.longest) if context is None else context
    if not 1 <= context <= shape.longest:
        raise WrongBound(
            f"the context {context}: {checkpoint.name} is compiled for 1 to {shape.longest} tokens,"
            " for which it was trained"
        )
    if chunk < 1:
        raise WrongBound(f"the chunk {chunk}: a prefill has at least 1 token")
    if part < 1:
        raise WrongBound(f"{part} rows: a prefill computes at least 1 token at a time")
    if logits not in LOGITS:
        raise ModelError(f"logits is one of {', '.join(LOGITS)}, not {logits!r}")
    if not 0 <= speculate < context:
        raise WrongBound(
            f"to speculate with {speculate} tokens: with a context of {context}, at most"
            f" {context - 1} are verified at a time"
        )
    checkpoint = arranged(checkpoint, shape)
    shape = separate(checkpoint, shape)
    shape = unequal(checkpoint, within(shape, context))
    if cache_type not in STORED:
        raise ModelError(f"the type of caches is one of {', '.join(STORED)}, not {cache_type!r}")
    if cache_type == "int16x8" and context > LONGEST_SCALED:
        raise ModelError(
            f"the context {context}: with int16x8, sums over at most {LONGEST_SCALED} keys have 32"
            " bits"
        )
    if pool is not None and not 1 <= pool <= MOST_PLACES:
        raise ModelError(f"a pool of {pool} tokens: it has 1 to {MOST_PLACES}")
    if pool is not None and cache != "whole":
        raise ModelError(f"a pool holds whole texts: it goes without the cache {cache}")
    kept = _kept(shape, context, speculate, cache)
    decode = Entry(
        checkpoint, shape, context, None, False, kept=kept, stored=cache_type, pool=pool
    )  # fmt: skip
    prefill = replace(decode, chunk=min(chunk, context), every_row=logits == "all", part=part)
    entries = {"prefill": prefill, "decode": decode}
    if speculate:
        entries["verify"] = replace(decode, chunk=speculate + 1, every_row=True, rows="k")
    return entries


def with_draft(entries: Mapping[str, Entry], folder: str | os.PathLike[str]) -> dict[str, Entry]:
    """With the entries of a smaller model, whose tokens `verify` checks."""
    one, chunk = entries["decode"], entries["prefill"].chunk
    if "verify" not in entries or one.pool is not None or chunk is None:
        raise ModelError(
            "a draft model proposes tokens: give --speculate (speculate=), and no pool"
        )
    found = entries_of(
        folder, one.context, chunk, cache_type=one.stored, part=entries["prefill"].part or chunk
    )
    words = found["decode"].shape.words
    if words != one.shape.words:
        raise ModelError(
            f"{found['decode'].checkpoint.name} has {words} tokens, but"
            f" {one.checkpoint.name} {one.shape.words}: a draft model has the same ones"
        )
    own = {
        DRAFT + name: replace(entry, length=DRAFT_LENGTH, label=DRAFT)
        for name, entry in found.items()
    }
    return {**entries, **own}


def _kept(shape: Shape, context: int, speculate: int, cache: str) -> dict[int, int]:
    """The rows that windows see in front of a token, and those that may be removed again."""
    if cache not in CACHES:
        raise ModelError(f"the cache is one of {', '.join(CACHES)}, not {cache!r}")
    windows = {layer.window for layer in shape.layers if layer.window is not None}
    if cache == "window" and not windows:
        raise ModelError(
            f"no layer has a window that is smaller than the context {context}: the cache is whole"
        )
    rows = {window: max(window - 1 + speculate, 1) for window in sorted(windows)}
    return {window: one for window, one in rows.items() if cache == "window" and one < context}


def prefix_calls(entries: Mapping[str, Entry], tokens: Sequence[int]) -> tuple[EntryCall, ...]:
    """The calls that read a prefix, which all texts begin with."""
    entry = entries["prefill"]
    assert entry.chunk is not None
    if entry.pool is not None:
        raise ModelError(
            "a pool begins empty: read the prefix once, and let texts share its places"
        )
    if not 1 <= len(tokens) < entry.context:
        raise WrongBound(
            f"the prefix has {len(tokens)} tokens: with a context of {entry.context}, it has 1 to"
            f" {entry.context - 1}, so that a prompt has room"
        )
    unknown = [token for token in tokens if not 0 <= token < entry.shape.words]
    if unknown:
        raise ModelError(
            f"the prefix has the token {unknown[0]}, but {entry.checkpoint.name} knows 0 to"
            f" {entry.shape.words - 1}"
        )
    parts = (tokens[start : start + entry.chunk] for start in range(0, len(tokens), entry.chunk))
    names = [name for name in entries if name.endswith("prefill")]
    return tuple(
        (name, {"tokens": np.array(part, np.int32)}) for part in parts for name in names
    )  # fmt: skip


def accepts(source: Any) -> bool:
    return isinstance(source, Entry)


def load(source: Entry, options: ImportOptions) -> Module:
    """The module of an entry; its bounds are those of the entry."""
    checkpoint = source.checkpoint
    builder = FunctionBuilder("main", Shared(replaceable=options.replaceable, keeps_half=True))
    most = source.context if source.pool is None else source.context - 1
    past = builder.symbol(Symbol(source.length, 0, most, "tokens in the caches"))
    if source.chunk is None:
        rows, tokens = Dim.of(1), builder.param("token", TensorType(DType.I32, ()))
    else:
        rows = builder.symbol(_rows(source, source.chunk))
        tokens = builder.param("tokens", TensorType(DType.I32, (rows,)))
    names = ["w"] if len(source.kept) == 1 else [f"w{window}" for window in source.kept]
    windows = {
        window: builder.symbol(_window(name, kept, rows))
        for name, (window, kept) in zip(names, source.kept.items(), strict=True)
    }
    net = Net(builder, checkpoint, past, rows, windows, source.stored, source.label, source.context)
    if source.pool is not None:
        net.share(source.pool, source.context)
    scores = build(net, source.shape, tokens, every_row=source.every_row)
    checkpoint.require_used(net.used, lambda name: ignored(source.shape, name))
    sizes = scores.type.shape if source.every_row else scores.type.shape[1:]
    (logits,) = builder.call("reshape", scores, name="logits", origin="logits", shape=sizes)
    return builder.module([logits, *net.caches], net.states, (), checkpoint.name)


def _rows(source: Entry, chunk: int) -> Symbol:
    """The new tokens of a call. A prefill with logits of the last one can be divided, unless texts
    share a pool, or windows drop tokens: a call that fails could not bring these back."""
    symbol = Symbol(source.rows, 1, chunk, "input tokens, axis 0")
    whole = source.every_row or source.pool is not None or source.kept
    if source.part is None or source.part >= chunk or whole:
        return symbol
    return replace(symbol, division=Division(source.part, chunk))


def _window(name: str, kept: int, rows: Dim) -> Symbol:
    """The length of caches that keep the last rows."""
    growth = Growth(Dim.of(name) + rows, kept, kept)
    return Symbol(name, 0, kept, "tokens in the caches of windows", growth=growth)
