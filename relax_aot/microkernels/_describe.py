# SPDX-License-Identifier: Apache-2.0
"""Micro-kernels from their descriptions: sizes with their ranges, and the meaning as text.

Descriptions are short by these conventions:

- sizes with their ranges come first, then the meaning;
- `$name` stands for a parameter. One with several values makes a micro-kernel of each;
- a range is `low..high`, `low..` or `low..~sampled`, with steps `by 16` (of elements of floats in
  millionths); `a | b` lists the choices, `~a | b` those of samples;
- `span(rows * step, columns * 1)` is how many elements an operand with these extents and strides
  covers: none where an extent (or an argument without a stride) is not positive;
- `up(count, 16)` is the next multiple of 16, `within(0 <= i < rows, ...)` says that all of these
  hold, and one `for` has several loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import product
from string import Template

from relax_aot.ir.dim_text import parse_dim
from relax_aot.ir.lexer import Cursor
from relax_aot.ir.microkernel import Contract, MicroKernel, Range
from relax_aot.ir.parse_kernel import kernel

MOST_ARGUMENTS = 8
"""A C function with more takes its sizes as one struct."""

SAMPLED = 12
"""Samples of a size without a limit go so far above the lowest."""

Parameters = Mapping[str, str | tuple[str, ...]]
BYTES: Parameters = {
    "S": ("s8", "u8"), "T": ("i8", "u8"), "U": ("", "_u8"), "flip": ("0", "128"),
    "lift": ("-128", "0"), "low": ("-128..-100", "0..28"), "high_limit": ("90..127", "218..255"),
    "zeros": ("-128..127", "0..255"),
}  # fmt: skip
"""Signed and unsigned bytes: suffix of micro-kernels, element type, suffix of those that are
signed without one, what is subtracted to make a signed or an unsigned one of it, limits that
results are clipped to, and zero points."""


def micro_kernels(
    header: str,
    text: str,
    *parameters: Parameters,
    struct: str = "",
    table: str = "",
    source: str = "",
) -> tuple[MicroKernel, ...]:
    """The micro-kernels of a description. Ranges of operands' elements (`%weights -255..255`) stand
    among those of sizes. `struct` or `table`: the C struct of the sizes; a table lies in flash."""
    made = []
    for choice in product(*map(_rows, parameters)):
        filled, values = text, {name: value for row in choice for name, value in row.items()}
        while "$" in filled:
            filled = Template(filled).substitute(values)
        c_struct = Template(struct).substitute(values)
        made.append(_micro_kernel(header, filled, c_struct, table, source))
    return tuple(made)


def _rows(parameters: Parameters) -> list[dict[str, str]]:
    """The first values of all parameters, the second ones, and so on."""
    counts = [len(value) for value in parameters.values() if isinstance(value, tuple)]
    return [
        {name: v if isinstance(v, str) else v[at] for name, v in parameters.items()}
        for at in range(max(counts, default=1))
    ]


def _micro_kernel(header: str, text: str, struct: str, table: str, source: str) -> MicroKernel:
    named = re.search(r"\bkernel @(\w+)", text)
    assert named, text
    describe = partial(_contract, text, bool(struct or table))
    return MicroKernel(named[1], header, describe, struct or table, bool(table), source)


def _contract(text: str, has_struct: bool) -> Contract:
    sizes, word, meaning = expanded(re.sub(r"->\s+", "-> ", text)).partition("kernel ")
    body = kernel(Cursor(word + meaning))
    parts = filter(None, _split(" ".join(sizes.split()), ","))
    ranges = {
        name: _range(text) for name, _, text in (part.strip().partition(" ") for part in parts)
    }
    named = {name: found for name, found in ranges.items() if name[0] != "%"}
    values = {name[1:]: found for name, found in ranges.items() if name[0] == "%"}
    assert has_struct or len(body.buffers) + len(named) <= MOST_ARGUMENTS, (
        f"{body.name}: more than {MOST_ARGUMENTS} arguments, no struct"
    )
    return Contract(named, body, values)


def _range(text: str) -> Range:
    text, _, step = text.partition(" by ")
    if ".." not in text:
        choices = tuple(parse_dim(part) for part in text.lstrip("~").split("|"))
        return Range(choices, free=text.startswith("~"))
    low, _, high = text.partition("..")
    start = parse_dim(low)
    if not high or high.startswith("~"):
        sampled = parse_dim(high[1:]) if high else start + SAMPLED * int(step or 1)
        return Range(low=start, sampled=sampled, step=int(step or 1))
    return Range((), start, parse_dim(high), parse_dim(high), int(step or 1))


def expanded(text: str) -> str:
    """Text without the abbreviations."""
    while call := re.search(r"\b(span|up|within)\(", text):
        end = _closing(text, call.end())
        parts = [part.strip() for part in _split(expanded(text[call.end() : end]), ",")]
        text = text[: call.start()] + _MACROS[call.group(1)](*parts) + text[end + 1 :]
    while loops := re.search(r"for ([^,{]+),\s+([^{]+) \{\n", text):
        end = _closing(text, loops.end(), "{}")
        first, rest = loops.groups()
        inner = f"for {first} {{\nfor {rest} {{\n{text[loops.end() : end]}}}\n"
        text = text[: loops.start()] + inner + text[end:]
    return text


def _split(text: str, mark: str) -> list[str]:
    """Parts between marks outside parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _closing(text: str, start: int, pair: str = "()") -> int:
    depth = 1
    for at in range(start, len(text)):
        depth += {pair[0]: 1, pair[1]: -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise AssertionError(f"no closing {pair[1]}: {text[start:]}")


def _span(*parts: str) -> str:
    strided = [_split(part, "*") for part in parts]
    extents = ", ".join(f"({part[0]})" for part in strided)
    far = " + ".join(f"(({p[0]}) - 1) * ({'*'.join(p[1:])})" for p in strided if len(p) > 1)
    return f"(max(0, min(1, {extents})) * ({far} + 1))"


def _up(count: str, to: str) -> str:
    return f"((({count}) + ({to}) - 1) // ({to}) * ({to}))"


def _within(*conditions: str) -> str:
    parts = (re.fullmatch("(.*) <= (.*) < (.*)", condition) for condition in conditions)
    texts = [
        f"((index({m[1]}) <= index({m[2]})) && (index({m[2]}) < index({m[3]})))" for m in parts if m
    ]
    return reduce(lambda a, b: f"({a} && {b})", texts)


_MACROS: Mapping[str, Callable[..., str]] = {"span": _span, "up": _up, "within": _within}
