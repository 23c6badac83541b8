# SPDX-License-Identifier: Apache-2.0
"""How a checkpoint writes conversations as text."""

from __future__ import annotations

from pathlib import Path

from relax_aot.frontends.llm.chat.source import read_source
from relax_aot.frontends.llm.chat.table import Chat, chat_of, plain


def read_chat(folder: Path, template: str | None) -> Chat:
    """The chat of a checkpoint, or of the `template` that a user gives instead. Without either,
    messages are continued as they are."""
    if template is not None:
        return plain("--template", template.replace("\\n", "\n"))
    source = read_source(folder)
    return plain("no chat template") if source is None else chat_of(source)
