# SPDX-License-Identifier: Apache-2.0
"""Solves for the symbols of a signature: which sizes make its types those of the arguments."""

from __future__ import annotations

from collections.abc import Iterable

from relax_aot.ir.dims import Dim, solve_for


def solve(pairs: Iterable[tuple[Dim, Dim]], known: dict[str, Dim]) -> None:
    """Add to `known` what follows from `pattern == actual`. Symbols of patterns are those of
    the signature, symbols of actual sizes those of the caller, also where they share names.

    A division that leaves a rest is solved too: whoever puts the solution into the pattern
    sees that it differs from the actual size.
    """
    pending = list(pairs)
    while True:
        before = len(known)
        for pattern, actual in pending:
            unknown = pattern.symbols - known.keys()
            if len(unknown) == 1:
                (symbol,) = unknown
                # The caller's sizes cannot contain this name.
                shown = pattern.substitute({**known, symbol: Dim.of("\0")})
                solution = solve_for(shown, "\0", actual)
                if solution is not None:
                    known[symbol] = solution[0]
        if len(known) == before:
            return
