# SPDX-License-Identifier: Apache-2.0
"""How a checkpoint writes conversations as text."""

from __future__ import annotations

from collections.abc import Callable

from relax_aot.frontends.llm.chat.source import Source
from relax_aot.frontends.llm.chat.table import Chat, chat_of, plain


def read_chat(source: Callable[[], Source | None], template: str | None) -> Chat:
    """The chat of what `source` reads, or of the `template` that a user gives instead. Without
    either, messages are continued as they are."""
    if template is not None:
        return plain("--template", template.replace("\\n", "\n"))
    found = source()
    return plain("no chat template") if found is None else chat_of(found)
