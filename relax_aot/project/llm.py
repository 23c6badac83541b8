# SPDX-License-Identifier: Apache-2.0
"""What the project of a language model has in addition to its entries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax_aot.emit.generate import emit_generate
from relax_aot.emit.tokenizer import emit_tokenizer
from relax_aot.frontends.llm.chat import read_chat
from relax_aot.frontends.llm.chat.source import read_source
from relax_aot.frontends.llm.chat.table import Chat
from relax_aot.frontends.llm.checkpoint import GGUF
from relax_aot.frontends.llm.ends import end_tokens
from relax_aot.frontends.llm.gguf import read_gguf
from relax_aot.frontends.llm.gguf_text import gguf_ends, gguf_source
from relax_aot.frontends.llm.llama2c import SUFFIX, llama2c_text, read_llama2c
from relax_aot.frontends.llm.tokenizer import FILE, read_tokenizer
from relax_aot.frontends.llm.tokenizer.gguf import gguf_tokenizer
from relax_aot.frontends.llm.tokenizer.tables import Tokenizer
from relax_aot.project.companions import Companion, with_companions
from relax_aot.project.entries import EntriesProject

HOSTED = ("host", "linux", "cuda")
"""Families of boards with standard input."""


@dataclass(frozen=True, slots=True)
class TextFiles:
    """The tokenizer of a checkpoint, the tokens that end a text, and what is written around the
    messages of a conversation."""

    tokenizer: Tokenizer
    ends: tuple[int, ...]
    chat: Chat


def tokenizer_of(model: Path) -> Tokenizer | None:
    """Of a folder or a file; None if it has no tokenizer."""
    metadata = _metadata(model)
    if metadata is not None:
        return gguf_tokenizer(str(model), metadata)
    return read_tokenizer(model) if (model / FILE).is_file() else None


def read_text_files(model: Path, template: str | None = None) -> TextFiles | None:
    """None if the checkpoint has no tokenizer. A `template` replaces that of the checkpoint."""
    tokenizer = tokenizer_of(model)
    if tokenizer is None:
        return None
    metadata = _metadata(model)
    if metadata is None:
        ends, chat = end_tokens(model), read_chat(lambda: read_source(model), template)
    else:
        ends = gguf_ends(str(model), metadata)
        chat = read_chat(lambda: gguf_source(str(model), metadata), template)
    return TextFiles(tokenizer, ends, chat)


def _metadata(model: Path) -> dict[str, Any] | None:
    """What a GGUF file says of its tokenizer, or would say; None of a folder."""
    if model.suffix == SUFFIX:
        return llama2c_text(model, read_llama2c(model)[0]["vocab_size"]) or {}
    return read_gguf(model)[0] if model.suffix == GGUF else None


def with_text(
    project: EntriesProject, text: TextFiles, form: str = "auto", *, generates: bool = True
) -> EntriesProject:
    """The project with a tokenizer, whose tables are text if `form` is c, and with a function that
    generates text, if it `generates`."""
    sources = emit_tokenizer(text.tokenizer, project.name, form)
    files = {path: content.encode() for path, content in sources.files.items()} | sources.blocks
    block = next(iter(sources.blocks), "")
    parts = [
        Companion(
            sources.unit, sources.header, files, sources.readme, block, sources.block_macro
        )
    ]  # fmt: skip
    if generates:
        interfaces = {name: one.interface for name, one in project.entries.items()}
        prefill, verify = interfaces["prefill"], interfaces.get("verify")
        loop = emit_generate(project.shared, prefill, text.ends, text.chat, verify)
        chats = project.board.family in HOSTED and not project.shared.weights_apart
        texts = loop.files | (loop.chat if chats else {})
        code = {path: content.encode() for path, content in texts.items()}
        cmake = loop.chat_cmake if chats else ""
        parts.append(Companion(loop.unit, loop.header, code, loop.readme, cmake=cmake))
    return with_companions(project, parts)
