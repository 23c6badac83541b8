# SPDX-License-Identifier: Apache-2.0
"""The command `perplexity`: what the quantization of weights and caches costs on a text."""

from __future__ import annotations

import math
from pathlib import Path

import click

from relax_aot.cli.output import write_json
from relax_aot.cli.parameters import CACHE_TYPES, WEIGHTS_ALONE, json_option
from relax_aot.cli.types import FILES
from relax_aot.errors import RelaxAotError


@click.command()
@click.argument("model", type=FILES)
@click.argument("text", type=FILES)
@click.option(
    "--quantize",
    "forms",
    type=click.Choice(WEIGHTS_ALONE),
    multiple=True,
    help="Also with weights of this form. Repeatable.",
)
@click.option(
    "--cache-type",
    "caches",
    type=click.Choice(CACHE_TYPES),
    multiple=True,
    help="Also with keys and values that are stored so. Repeatable.",
)
@click.option("--context", type=int, metavar="N", help="Tokens that are read together.")
@click.option("--chunk", type=int, default=64, metavar="N", help="Most tokens of one prefill.")
@json_option
def perplexity(
    model: str,
    text: str,
    forms: tuple[str, ...],
    caches: tuple[str, ...],
    context: int | None,
    chunk: int,
    json_file: str | None,
) -> None:
    """Measure how well the language model MODEL predicts TEXT.

    It runs on this machine. The perplexity is that of the weights as they are stored and of caches
    of float32, then with each --quantize and each --cache-type. Lower is better; a model that
    knows nothing has that of its number of tokens.
    """
    import numpy as np

    from relax_aot import driver
    from relax_aot.frontends.llm import entries_of
    from relax_aot.frontends.llm.text_files import tokenizer_of
    from relax_aot.project.board import load_board
    from relax_aot.quantization import Choice
    from relax_aot.verify.host import entries_host
    from relax_aot.verify.perplexity import parts_of
    from relax_aot.verify.perplexity import perplexity as measured
    from relax_aot.verify.text import HostTokenizer

    tables = tokenizer_of(Path(model))
    if tables is None:
        raise RelaxAotError(f"{model} has no tokenizer, which perplexity needs")
    try:
        content = Path(text).read_bytes()
    except OSError as error:
        raise RelaxAotError(f"cannot read {text}: {error.strerror}") from None
    tokenizer = HostTokenizer(tables)
    tokens = tokenizer.encode(content, frame=False)
    first = np.array(tables.before, np.int32)
    rows = []
    for stored in ("f32", *(name for name in caches if name != "f32")):
        sources = entries_of(model, context, chunk, "all", cache_type=stored)
        entry = sources["prefill"]
        words = entry.shape.words
        if tokens.max(initial=-1) >= words:
            raise RelaxAotError(
                f"{text} has the token {tokens.max()}, but {model} is a model of {words} words"
            )
        parts = parts_of(tokens, first, entry.context)
        for form in (None, *forms):
            options = driver.Options(name="model", quantize=Choice(form) if form else None)
            entries = driver.load_entries(sources, options)
            project = driver.compile_entries(entries, load_board("host"), options)
            result = measured(entries_host(project), parts, first.size, entry.chunk or 1)
            rows.append({
                "weights": form or "as stored", "bytes": project.const_bytes, "caches": stored,
                "tokens": result.tokens, "perplexity": result.value,
            })  # fmt: skip
    if json_file:
        write_json([row | {"perplexity": _finite(row["perplexity"])} for row in rows], json_file)
    if json_file != "-":
        click.echo(
            f"{'weights':10}  {'bytes':>13}  {'caches':7}  {'tokens':>9}  {'perplexity':>10}"
        )
        for row in rows:
            click.echo(
                f"{row['weights']:10}  {row['bytes']:13,}  {row['caches']:7}"
                f"  {row['tokens']:9,}  {row['perplexity']:10.4f}"
            )


def _finite(value: object) -> object:
    """JSON has no infinity."""
    return value if not isinstance(value, float) or math.isfinite(value) else None
