# SPDX-License-Identifier: Apache-2.0
"""The command `chat`: a language model on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

from relax_aot.cli.parameters import prefix_option, read_prefix
from relax_aot.cli.types import FILES
from relax_aot.errors import RelaxAotError


@click.command()
@click.argument("model", type=FILES)
@click.option("--context", type=int, metavar="N", help="Tokens that the caches hold.")
@click.option("--chunk", type=int, default=64, metavar="N", help="Most tokens of one prefill.")
@prefix_option
@click.option(
    "--template",
    metavar="TEXT",
    help="The text of each prompt, with {} for the line; \\n is a new line.  [default: the line]",
)
@click.option("--temperature", type=float, metavar="T", help="0: the most likely token.")
@click.option("--top-k", type=int, metavar="K", help="Only the most likely K tokens.")
@click.option("--top-p", type=float, metavar="P", help="Only tokens of this total probability.")
@click.option("--min-p", type=float, metavar="P", help="Only tokens this times as likely.")
@click.option("--repetition-penalty", type=float, metavar="R", help="Divides earlier logits.")
@click.option("--seed", type=int, metavar="S", help="Of the random numbers.")
@click.option("--max-tokens", type=int, metavar="N", help="Most tokens of one answer.")
def chat(
    model: str,
    context: int | None,
    chunk: int,
    prefix: str | None,
    template: str | None,
    **sampling: float | None,
) -> None:
    """Continue texts with the language model MODEL on this machine.

    Each line of standard input is a prompt. Its continuation goes to standard output, and figures
    of its time to standard error. Later prompts continue the text.
    """
    from relax_aot import driver
    from relax_aot.emit.c_names import identifier
    from relax_aot.frontends.llm import entries_of
    from relax_aot.project.board import load_board
    from relax_aot.project.llm import read_text_files, with_text
    from relax_aot.verify.chat import build_chat

    if template is not None and "{}" not in template:
        raise RelaxAotError(f"the template {template!r} has no {{}}, which stands for the line")
    start = time.monotonic()
    text = read_text_files(Path(model))
    if text is None:
        raise RelaxAotError(f"{model} has no tokenizer.json, which chat needs")
    sources = entries_of(model, context, chunk)
    name = identifier(sources["prefill"].checkpoint.name).lower()
    options = driver.Options(name=name)
    entries = driver.load_llm(sources, model, options, read_prefix(prefix))
    project = with_text(driver.compile_entries(entries, load_board("host"), options), text)
    program = build_chat(project)
    click.echo(f"ready after {time.monotonic() - start:.1f} s; a line is a prompt", err=True)
    arguments = [
        part
        for name, value in sampling.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    if template is not None:
        arguments += ["--template", template.replace("\\n", "\n")]
    code = subprocess.run([program, *arguments], check=False).returncode
    if code:
        raise RelaxAotError(f"the chat ended with {code}")
    sys.stdout.flush()
