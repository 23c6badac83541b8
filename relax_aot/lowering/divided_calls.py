# SPDX-License-Identifier: Apache-2.0
"""What one part of a call computes, where calls are divided by their rows (`Division`)."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.ir.graph import Module, Symbol


def one_part(module: Module, threads: int, *, undivided: bool) -> Module:
    """Each thread has rows of its own. A module that is `undivided` computes whole calls; one that
    is divided stays so."""

    def divided(symbol: Symbol) -> Symbol:
        division = symbol.division
        if division is None or symbol.high < division.whole:
            return symbol
        most = division.part * threads
        if undivided or most >= division.whole:
            return replace(symbol, division=None)
        return replace(symbol, high=most)

    return replace(module, symbols=tuple(divided(symbol) for symbol in module.symbols))
