# SPDX-License-Identifier: Apache-2.0
"""Parameter types: finite numbers, and boards and files with shell completion."""

from __future__ import annotations

from math import inf
from typing import Any

import click
from click.shell_completion import CompletionItem

from relax_aot.errors import RelaxAotError


class Files(click.types.StringParamType):
    """A path, or a string that contains one; its reader reports errors."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class BoardName(Files):
    """The name of a board, or the path of its file."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from relax_aot.project.board import list_boards

        try:
            names = [name for name in list_boards() if name.startswith(incomplete)]
        except RelaxAotError:
            names = []
        found = [CompletionItem(name) for name in names]
        return found or super().shell_complete(ctx, param, incomplete)


class FiniteNumber(click.types.FloatParamType):
    """A finite number of at least 0: a time in seconds, or a tolerance."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not 0 <= number < inf:
            self.fail(f"{value}: expected a finite number of at least 0", param, ctx)
        return number


FILES, BOARD, FINITE = Files(), BoardName(), FiniteNumber()
