# SPDX-License-Identifier: Apache-2.0
"""What surrounds the model in a `tokenizer.json`: normalizer, pre-tokenizer, post-processor and
decoder. Every component that is not compiled is an error that names it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends import ModelError, UnsupportedError
from relax_aot.frontends.llm.tokenizer import automaton, regex
from relax_aot.frontends.llm.tokenizer.part import Part, part, shown
from relax_aot.frontends.llm.tokenizer.points import Table, partition
from relax_aot.frontends.llm.tokenizer.points import table_of as points_table

MARK = "\u2581"
"""What SentencePiece writes for a space."""
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The pattern of the component ByteLevel."""
MOST_REPLACED, MOST_REPLACEMENTS, MOST_PATTERNS = 12, 8, 8
"""Bytes for one code point, replaced code points, and patterns (`raot/tokenizer.h`)."""


@dataclass
class Division:
    """How text becomes words; filled by one component after the other."""

    nfc: bool = False
    replaced: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    prefix_rule: str = "NEVER"
    byte_level: bool = False
    sets: regex.Sets = field(default_factory=regex.Sets)
    patterns: list[tuple[str, regex.Node, bool]] = field(default_factory=list)
    """Where each is from, its tree, and whether it drops what it does not match."""

    def replace(self, where: Part, char: str, text: str) -> None:
        """Replace a code point in the text, after all that was replaced before."""
        if len(char) != 1 or not 0 < len(text.encode()) <= MOST_REPLACED:
            raise UnsupportedError(
                f"{where.where}: {shown(char)!r} replaced by {shown(text)!r} is unsupported: only "
                f"one character by a text of 1 to {MOST_REPLACED} bytes"
            )
        self.replaced = {k: v.replace(char, text) for k, v in self.replaced.items()}
        self.replaced.setdefault(char, text)
        self.prefix = self.prefix.replace(char, text)
        longest = max(len(v.encode()) for v in (*self.replaced.values(), self.prefix))
        if len(self.replaced) > MOST_REPLACEMENTS or longest > MOST_REPLACED:
            raise UnsupportedError(f"{where.where}: replacements are too many or too long")

    def begin(self, where: Part, text: str, rule: str) -> None:
        """Begin each part of a text with a prefix."""
        if self.prefix or not 0 < len(text.encode()) <= MOST_REPLACED:
            raise UnsupportedError(f"{where.where}: this prefix is not supported: {shown(text)!r}")
        self.prefix, self.prefix_rule = text, rule

    def divide(self, where: str, pattern: str, *, drops: bool = False) -> None:
        if len(self.patterns) == MOST_PATTERNS:
            raise UnsupportedError(f"{where}: at most {MOST_PATTERNS} patterns are supported")
        self.patterns.append((where, regex.parse(pattern, where, self.sets), drops))

    def automata(self) -> tuple[Table | None, tuple[NDArray[np.uint16], ...]]:
        """The classes of code points and the table of each pattern."""
        if not self.patterns:
            return None, ()
        try:
            classes, contained = partition(self.sets.all)
        except OverflowError:
            where = self.patterns[0][0]
            raise UnsupportedError(f"{where}: patterns tell too many classes apart") from None
        tables = []
        for where, node, drops in self.patterns:
            table = automaton.table_of(node, contained, where)
            if drops and not automaton.matches_everywhere(table):
                raise UnsupportedError(
                    f"{where}: text that the pattern does not match would be dropped, which is not "
                    "supported"
                )
            tables.append(table)
        return points_table(classes), tuple(tables)


def normalize(root: Part, to: Division) -> None:
    for step in root.steps("normalizer"):
        if step.type == "NFC" and not to.replaced and not to.prefix:
            to.nfc = True
        elif step.type == "Prepend":
            to.begin(step, step.text("prepend"), "ALWAYS")
        elif step.type == "Replace":
            to.replace(step, _string(step), step.text("content"))
        else:
            raise step.unsupported("NFC as the first one, Prepend, Replace")


def _string(step: Part) -> str:
    pattern = step.object("pattern")
    if set(pattern.fields) != {"String"}:
        raise UnsupportedError(f"{step.where}: only a pattern of the kind String is supported")
    return pattern.text("String")


def divide(root: Part, to: Division) -> None:
    steps = root.steps("pre_tokenizer")
    for number, step in enumerate(steps):
        if to.byte_level:
            raise UnsupportedError(f"{step.where}: a component behind ByteLevel is not supported")
        if step.type == "ByteLevel":
            to.byte_level = True
            if step.flag("add_prefix_space", default=True):
                if number:
                    raise UnsupportedError(f"{step.where}: add_prefix_space is not supported here")
                to.begin(step, " ", "ONCE")
            if step.flag("use_regex", default=True):
                to.divide(step.where, GPT2)
        elif step.type == "Split":
            _split(step, to)
        elif step.type == "Digits":
            single = step.flag("individual_digits")
            to.divide(step.where, r"\p{N}" if single else r"\p{N}+")
        elif step.type == "Metaspace" and len(steps) == 1:
            _metaspace(step, to)
        else:
            raise step.unsupported("Split, Digits, ByteLevel, and Metaspace as the only one")


def _split(step: Part, to: Division) -> None:
    pattern = step.object("pattern")
    behavior, invert = step.text("behavior"), step.flag("invert")
    kind = next(iter(pattern.fields), "")
    if len(pattern.fields) != 1 or kind not in ("Regex", "String"):
        raise ModelError(f"{step.where}: pattern is {shown(dict(pattern.fields))}")
    text = pattern.text(kind)
    if kind == "String":
        written = (to.prefix, *to.replaced.values())
        if text in to.replaced and not any(text in one for one in written):
            return  # No text has it any more.
        text = "".join(f"\\{c}" if c.isascii() and not c.isalnum() else c for c in text)
    if (behavior, invert) not in (("Isolated", False), ("Removed", True)):
        raise UnsupportedError(
            f"{step.where}: behavior {shown(behavior)} with invert={invert} is not supported, only "
            "Isolated, and Removed with invert=True"
        )
    to.divide(step.where, text, drops=behavior == "Removed")


def _metaspace(step: Part, to: Division) -> None:
    mark = step.text("replacement")
    # Older files have a flag instead.
    first = "always" if step.flag("add_prefix_space", default=True) else "never"
    scheme = step.text("prepend_scheme", first)
    rules = {"always": "ONCE", "first": "FIRST", "never": "NEVER"}
    if scheme not in rules or len(mark) != 1:
        raise ModelError(f"{step.where}: prepend_scheme or replacement is wrong")
    to.replace(step, " ", mark)
    if scheme != "never":
        to.begin(step, mark, rules[scheme])
    if step.flag("split", default=True):
        to.divide(step.where, f"\\{mark}[^{mark}]*|[^{mark}]+" if mark.isascii() else
                  f"{mark}[^{mark}]*|[^{mark}]+")  # fmt: skip


def frame(root: Part) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens that a post-processor adds before and behind a text."""
    templates: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for step in root.steps("post_processor"):
        if step.type == "TemplateProcessing" and not templates:
            templates.append(_template(step))
        elif step.type != "ByteLevel":
            raise step.unsupported("ByteLevel, and one TemplateProcessing")
    return templates[0] if templates else ((), ())


def _template(step: Part) -> tuple[tuple[int, ...], tuple[int, ...]]:
    known = step.object("special_tokens")
    sides: list[list[int]] = [[]]
    for number, value in enumerate(step.values("single")):
        piece = part(value, f"{step.where}, single[{number}]")
        if set(piece.fields) == {"Sequence"} and len(sides) == 1:
            piece.object("Sequence").only("id", "A")
            sides.append([])
        elif set(piece.fields) == {"SpecialToken"}:
            named = known.object(piece.object("SpecialToken").text("id"))
            ids = named.values("ids")
            sides[-1] += [Part(named.where, {"ids": one}).number("ids") for one in ids]
        else:
            raise ModelError(f"{piece.where} is {shown(value)}")
    if len(sides) != 2 or sum(map(len, sides)) > 100:
        raise ModelError(f"{step.where}: single has no place for the text, or many tokens")
    return tuple(sides[0]), tuple(sides[1])


def spaces(root: Part, *, byte_level: bool, has_bytes: bool) -> str:
    """How tokens become text; one of tables.SPACES."""
    steps = root.steps("decoder")
    kinds = [step.type for step in steps]
    known = "ByteLevel; Replace with optional ByteFallback, Fuse and Strip in this order; Metaspace"
    if byte_level or kinds == ["ByteLevel"]:
        if kinds != ["ByteLevel"] or not byte_level:
            raise UnsupportedError(
                f"{root.where}: ByteLevel is supported as the decoder of a pre-tokenizer ByteLevel"
            )
        return "PLAIN"
    if kinds == ["Metaspace"] and not has_bytes:
        steps[0].only("replacement", MARK)
        always = "always" if steps[0].flag("add_prefix_space", default=True) else "never"
        return "MARKED" if steps[0].text("prepend_scheme", always) == "never" else "STRIP_TOKEN"
    full = ["Replace", "ByteFallback", "Fuse", "Strip"]
    if (
        not kinds
        or [k for k in full if k in kinds] != kinds
        or kinds[0] != "Replace"
        or (has_bytes and "ByteFallback" not in kinds)
        or ("Strip" in kinds and "Fuse" not in kinds)
    ):
        raise UnsupportedError(
            f"{root.where}, decoder: {shown(', '.join(kinds) or 'none')} is not supported; "
            f"supported: {known}"
        )
    if _string(steps[0]) != MARK or steps[0].text("content") != " ":
        raise UnsupportedError(f"{steps[0].where}: only {MARK} becomes a space")
    if kinds[-1] != "Strip":
        return "MARKED"
    steps[-1].only("content", " ")
    steps[-1].only("stop", 0)
    steps[-1].only("start", 0, 1)
    return "STRIP_TEXT" if steps[-1].number("start") else "MARKED"
