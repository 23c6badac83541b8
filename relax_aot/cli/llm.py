# SPDX-License-Identifier: Apache-2.0
"""The command `llm`: a language model -> a C project with the entries prefill and decode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from relax_aot.cli.output import write_json
from relax_aot.cli.parameters import (
    board_option,
    cache_option,
    cache_type_option,
    code,
    draft_option,
    folder_option,
    json_option,
    prefix_option,
    quantize_option,
    read_prefix,
    speculate_option,
)
from relax_aot.cli.types import FILES
from relax_aot.project.packaging import NAMES as PACKAGES


@click.command()
@click.argument("model", type=FILES)
@folder_option("the C project")
@board_option("host")
@click.option(
    "--context",
    type=int,
    metavar="N",
    help="Tokens that the caches hold.  [default: those of the model, at most 1024]",
)
@click.option("--chunk", type=int, default=64, metavar="N", help="Most tokens of one prefill.")
@click.option(
    "--rows",
    type=int,
    default=16,
    metavar="N",
    help="Tokens of a prefill that each thread computes at a time: fewer take a smaller arena, more"
    " are faster on hosts.",
)
@click.option(
    "--logits",
    type=click.Choice(["last", "all"]),
    default="last",
    help="last: prefill returns the logits of its last token. all: of all tokens.",
)
@click.option(
    "--tokenizer/--no-tokenizer",
    default=True,
    help="Add the tokenizer of MODEL and NAME_generate, or leave them out.",
)
@quantize_option
@prefix_option
@speculate_option
@draft_option
@cache_option
@cache_type_option
@click.option(
    "--pool",
    metavar="N",
    type=click.IntRange(1),
    help="Caches have room for N tokens of several texts; each call says where its tokens are.",
)
@click.option(
    "--template",
    metavar="TEXT",
    help="The text of each message, with {} for what is said; \\n is a new line.  [default: that "
    "of the checkpoint, else the message]",
)
@click.option("--package", type=click.Choice(PACKAGES), default="flat", help="Build system.")
@json_option
@code
def llm(
    model: str,
    output: str,
    board: str,
    context: int | None,
    chunk: int,
    rows: int,
    logits: str,
    tokenizer: bool,
    prefix: str | None,
    speculate: int,
    draft: str | None,
    cache: str,
    cache_type: str,
    pool: int | None,
    template: str | None,
    package: str,
    json_file: str | None,
    **chosen: Any,
) -> None:
    """Generate the C project of the language model MODEL.

    MODEL is a folder in Hugging Face layout: config.json, safetensors files and tokenizer.json; or
    a GGUF file, or *.bin of llama2.c. The entries prefill and decode take numbers of tokens and
    return logits. NAME_generate continues a text, and NAME_answer a conversation.
    """
    from relax_aot import driver
    from relax_aot.cli.entries import write_several
    from relax_aot.cli.options import options_of
    from relax_aot.emit.c_names import identifier
    from relax_aot.frontends.llm import entries_of, with_draft
    from relax_aot.frontends.llm.text_files import read_text_files
    from relax_aot.project.board import load_board

    dump = chosen.pop("dump")
    options = options_of((), (), (), (), **chosen)
    sources = entries_of(model, context, chunk, logits, speculate, cache, cache_type, pool, rows)
    sources = sources if draft is None else with_draft(sources, draft)
    name = options.name or identifier(sources["prefill"].checkpoint.name).lower()
    text = read_text_files(Path(model), template) if tokenizer else None
    entries = driver.load_llm(sources, model, options, read_prefix(prefix), text)
    options, tables = replace(options, name=name), "auto" if package == "flat" else "c"
    project = driver.compile_entries(entries, load_board(board), options, dump, tables)
    said, lines = write_several(project, output, package)
    if json_file:
        write_json(said, json_file)
    if tokenizer and text is None:
        lines.append(f"{model} has no tokenizer: the project has neither tokenizer nor loop")
    if json_file != "-":
        click.echo("\n".join(lines))
