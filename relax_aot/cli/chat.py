# SPDX-License-Identifier: Apache-2.0
"""The command `chat`: a language model on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

from relax_aot.cli.parameters import (
    cache_option,
    cache_type_option,
    draft_option,
    prefix_option,
    quantize_option,
    read_prefix,
    speculate_option,
)
from relax_aot.cli.types import FILES
from relax_aot.errors import RelaxAotError

AMOUNT, COUNT = click.FloatRange(0, 1e9), click.IntRange(0, 2**31 - 1)
SEED = click.IntRange(0, 2**64 - 1)


@click.command()
@click.argument("model", type=FILES)
@click.option("--context", type=int, metavar="N", help="Tokens that the caches hold.")
@click.option("--chunk", type=int, default=64, metavar="N", help="Most tokens of one prefill.")
@quantize_option
@prefix_option
@speculate_option
@draft_option
@cache_option
@cache_type_option
@click.option(
    "--template",
    metavar="TEXT",
    help="The text of each message, with {} for the line; \\n is a new line.  [default: that of "
    "the checkpoint, else the line]",
)
@click.option("--system", metavar="TEXT", help="What the system says before the first message.")
@click.option("--temperature", type=AMOUNT, metavar="T", help="0: the most likely token.")
@click.option("--top-k", type=COUNT, metavar="K", help="Only the most likely K tokens.")
@click.option("--top-p", type=AMOUNT, metavar="P", help="Only tokens of this total probability.")
@click.option("--min-p", type=AMOUNT, metavar="P", help="Only tokens this times as likely.")
@click.option("--repetition-penalty", type=AMOUNT, metavar="R", help="Divides earlier logits.")
@click.option("--seed", type=SEED, metavar="S", help="Of the random numbers.")
@click.option("--max-tokens", type=COUNT, metavar="N", help="Most tokens of one answer.")
def chat(
    model: str,
    context: int | None,
    chunk: int,
    quantize: str | None,
    prefix: str | None,
    speculate: int,
    draft: str | None,
    cache: str,
    cache_type: str,
    template: str | None,
    **given: str | float | None,
) -> None:
    """Answer messages with the language model MODEL on this machine.

    Each line of standard input is a message. Its answer goes to standard output, and figures of its
    time to standard error. Later messages continue the conversation.
    """
    from relax_aot import driver
    from relax_aot.emit.c_names import identifier
    from relax_aot.frontends.llm import entries_of, with_draft
    from relax_aot.frontends.llm.text_files import read_text_files
    from relax_aot.project.board import load_board
    from relax_aot.quantization import Choice
    from relax_aot.verify.chat import build_chat

    start = time.monotonic()
    text = read_text_files(Path(model), template)
    if text is None:
        raise RelaxAotError(f"{model} has no tokenizer, which chat needs")
    if given["system"] and text.chat.system is None:
        raise RelaxAotError(f"--system: {text.chat.no_system}")
    sources = entries_of(
        model, context, chunk, speculate=speculate, cache=cache, cache_type=cache_type, part=chunk
    )
    sources = sources if draft is None else with_draft(sources, draft)
    name = identifier(sources["prefill"].checkpoint.name).lower()
    options = driver.Options(name=name, quantize=Choice(quantize) if quantize else None)
    entries = driver.load_llm(sources, model, options, read_prefix(prefix), text)
    project = driver.compile_entries(entries, load_board("host"), options)
    program = build_chat(project)
    click.echo(f"ready after {time.monotonic() - start:.1f} s; a line is a message", err=True)
    arguments = [
        part
        for name, value in given.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    code = subprocess.run([program, *arguments], check=False).returncode
    if code:
        raise RelaxAotError(f"the chat ended with {code}")
    sys.stdout.flush()
