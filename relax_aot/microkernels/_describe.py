"""Micro-kernels from their descriptions: sizes with their ranges, and the meaning as text.

Descriptions are short by these conventions:

- `$name` stands for a parameter of a family of micro-kernels;
- a range is `low..high`, `low..` or `low..~sampled`, with steps `by 16` (of elements of floats in
  millionths); `a | b` lists the choices, `~a | b` those of samples;
- `span(rows * step, columns * 1)` is how many elements an operand with these extents and strides
  covers: none where an extent (or an argument without a stride) is not positive;
- `up(count, 16)` is the next multiple of 16, `within(low, i, stop)` is `low <= i < stop`, and one
  `for` has several loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Template

from relax_aot.ir.dim_text import parse_dim
from relax_aot.ir.lexer import Cursor
from relax_aot.ir.microkernel import MOST_ARGUMENTS, MicroKernel, Range
from relax_aot.ir.parse_kernel import kernel

SAMPLED = 12
"""Samples of a size without a limit go so far above the lowest."""


def micro_kernel(
    header: str,
    sizes: str,
    meaning: str,
    *,
    struct: str = "",
    table: str = "",
    source: str = "",
    **family: str,
) -> MicroKernel:
    """The micro-kernel of a description. Ranges of operands' elements (`%weights -255..255`) stand
    among those of sizes. `struct` or `table`: the C struct of the sizes; a table lies in flash."""
    text = re.sub(r"->\s+", "-> ", Template(meaning).substitute(family))
    cursor = Cursor(expanded(text))
    cursor.skip_lines()
    assert cursor.take_word("kernel"), meaning
    body = kernel(cursor)
    parts = [part.strip() for part in _split(expanded(Template(sizes).substitute(family)), ",")]
    ranges = {name: _range(text) for name, _, text in (part.partition(" ") for part in parts)}
    named = {name: found for name, found in ranges.items() if name[0] != "%"}
    values = {name[1:]: found for name, found in ranges.items() if name[0] == "%"}
    many = len(body.buffers) + len(named) > MOST_ARGUMENTS
    assert bool(struct or table) >= many, (
        f"{body.name}: more than {MOST_ARGUMENTS} arguments, no struct"
    )
    return MicroKernel(body.name, header, named, body, values, struct or table, bool(table), source)


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


def _within(low: str, at: str, stop: str) -> str:
    return f"((index({low}) <= index({at})) && (index({at}) < index({stop})))"


_MACROS: Mapping[str, Callable[..., str]] = {"span": _span, "up": _up, "within": _within}
