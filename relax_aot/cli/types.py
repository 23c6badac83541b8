"""What a shell completes: names of boards, and files where an argument is a plain text."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from relax_aot.errors import RelaxAotError


class Files(click.types.StringParamType):
    """A path, or a text with one in it; what is wrong with it is said where it is read."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class BoardName(Files):
    """A board by its name, or the path of its file."""

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


FILES, BOARD = Files(), BoardName()
