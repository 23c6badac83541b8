# SPDX-License-Identifier: Apache-2.0
"""What a user may say wrongly about sizes, for all formats."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from relax_aot.errors import RelaxAotError

GREATEST = 2**31 - 1
"""Sizes are int32 in the C interface."""


class MissingBound(RelaxAotError):
    """Symbols without an upper bound: all of them, with the options to add."""


class WrongBound(RelaxAotError):
    """A bound for a symbol that the model does not have, or that contains no size."""


def checked_range(name: str, low: int, high: int, said: str) -> tuple[int, int]:
    """Both ends of a bound, which the user wrote as `said`."""
    if high == 0 and low == 1:
        raise WrongBound(
            f"the bound {said}: the maximum must be at least 1; for a size that is always 0 write "
            f"--bound {name}=0..0, in Python bounds={{{name!r}: (0, 0)}}"
        )
    if low > high or low < 0:
        raise WrongBound(f"the bound {said}: the range {low}..{high} contains no size")
    if high > GREATEST:
        raise WrongBound(f"the bound {said}: sizes are at most {GREATEST}")
    return low, high


def missing_bounds(origins: Mapping[str, str], unknown: Collection[str] = ()) -> MissingBound:
    """`origins` says for each symbol where it comes from. `unknown`: other names with bounds."""
    lines = [f"  --bound {name}=128    ({origin})" for name, origin in origins.items()]
    if unknown:
        lines.append(f"No input has a size {' or '.join(map(printable, unknown))}.")
    return MissingBound(
        "an upper bound is needed for each dynamic size; add, with the"
        " numbers that you need:\n" + "\n".join(lines)
    )


def no_such_symbol(said: str, name: str, known: Collection[str]) -> str:
    """That the symbol of an option, which the user wrote as `said`, is unknown."""
    close = difflib.get_close_matches(name, list(known), 3)
    hint = f"; did you mean {' or '.join(map(printable, close))}?" if close else ""
    listed = ", ".join(map(printable, sorted(known)))
    has = f"its symbols are {listed}" if known else "all its sizes are fixed"
    return f"{said}: the model has no such symbol, {has}{hint}"


def printable(name: str) -> str:
    """A name from a file, fit for one line of a message."""
    return "".join(c if c.isprintable() else "?" for c in name)[:120]
