# SPDX-License-Identifier: Apache-2.0
"""What the project of a language model has in addition to its entries."""

from __future__ import annotations

from dataclasses import replace

from relax_aot.emit.generate import emit_generate, generate_bytes
from relax_aot.emit.render import render
from relax_aot.emit.tokenizer import emit_tokenizer
from relax_aot.frontends.llm import DRAFT, DRAFT_LENGTH
from relax_aot.frontends.llm.text_files import TextFiles
from relax_aot.project import runtime_headers
from relax_aot.project.board_program import BoardProgram, board_program, has_board_program
from relax_aot.project.companions import Companion, with_companions, with_sections
from relax_aot.project.entries import EntriesProject
from relax_aot.version import VERSION

HOSTED = ("host", "linux", "cuda")
"""Families of boards with standard input."""


def with_text(project: EntriesProject, text: TextFiles, form: str = "auto") -> EntriesProject:
    """The project with a tokenizer, whose tables are text if `form` is c, and with a function that
    generates text, if a prefill returns the logits of one token, and caches are those of a text."""
    sources = emit_tokenizer(text.tokenizer, project.name, form)
    files = {path: content.encode() for path, content in sources.files.items()} | sources.blocks
    block = next(iter(sources.blocks), "")
    parts = [
        Companion(
            sources.unit, sources.header, files, sources.readme, block, sources.block_macro
        )
    ]  # fmt: skip
    interfaces = {name: one.interface for name, one in project.entries.items()}
    prefill, verify = interfaces["prefill"], interfaces.get("verify")
    if prefill.outputs[0].type.rank == 1 and project.shared.lengths:
        drafted = DRAFT_LENGTH if DRAFT + "decode" in interfaces else ""
        loop = emit_generate(project.shared, prefill, text.ends, text.chat, verify, drafted)
        chats = project.board.family in HOSTED
        program = BoardProgram({}, "")
        if has_board_program(project):
            units = [*project.units, sources.unit, loop.unit]
            program = board_program(project, loop.view, units)
        texts = loop.files | program.files | (loop.chat if chats else {})
        code = {path: content.encode() for path, content in texts.items()}
        cmake = loop.chat_cmake if chats else ""
        readme = loop.readme + (loop.chat_readme if chats else "") + program.readme
        parts.append(Companion(loop.unit, loop.header, code, readme, cmake=cmake))
        if not project.shared.device:
            rows = 1 if verify is None else verify.dims[0].symbol.high
            words = prefill.outputs[0].type.elements.constant
            context = max(project.shared.capacities.values())
            need = generate_bytes(project.arena_bytes, rows, words, context, sources.text_bytes)
            project = replace(project, generate_bytes=need)
    return with_companions(project, parts)


def with_pool(project: EntriesProject, pool: int, context: int) -> EntriesProject:
    """The project with a header about the places of a pool."""
    shared = project.shared
    header = render(
        "llm/pool.h.j2", name=shared.name, prefix=shared.prefix, version=VERSION, pool=pool,
        context=context,
    )  # fmt: skip
    section = render("llm/pool.md.j2", name=shared.name, prefix=shared.prefix)
    readme = with_sections(project.files["README.md"], [section])
    files = project.files | {f"{shared.name}_pool.h": header.encode(), "README.md": readme}
    return replace(project, files=files | runtime_headers(files))
