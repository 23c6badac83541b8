# SPDX-License-Identifier: Apache-2.0
"""What the project of a language model has in addition to its entries."""

from __future__ import annotations

from pathlib import Path

from relax_aot.emit.tokenizer import emit_tokenizer
from relax_aot.frontends.llm.tokenizer import FILE, read_tokenizer
from relax_aot.project.companions import Companion


def companions_of(folder: Path, name: str, form: str = "auto") -> tuple[Companion, ...]:
    """The tokenizer of a checkpoint, if it has one. Its tables are text if `form` is c."""
    if not (folder / FILE).is_file():
        return ()
    sources = emit_tokenizer(read_tokenizer(folder), name, form)
    files = {path: text.encode() for path, text in sources.files.items()} | sources.blocks
    return (
        Companion(
            sources.unit, sources.header, files, sources.readme, next(iter(sources.blocks), ""),
            sources.block_macro,
        ),
    )  # fmt: skip
