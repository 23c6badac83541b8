# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from relax_aot.cli.types import BOARD, FILES
from relax_aot.emit.layers import FUNCTIONS
from relax_aot.emit.weights import FORMS
from relax_aot.errors import RelaxAotError
from relax_aot.project.cuda_board import EMIT
from relax_aot.scheduling.threads import GREATEST

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

json_option = click.option(
    "--json",
    "json_file",
    type=FILES,
    metavar="FILE",
    help="Write the result as JSON; - is standard output.",
)
inputs_option = click.option(
    "--inputs",
    type=FILES,
    multiple=True,
    metavar="FILE.npz|x=FILE.npz:key",
    help="Inputs by name. Repeatable.  [default: random, with a fixed seed]",
)
entry_option = click.option("--entry", metavar="NAME", help="Name of one of several entries.")

prefix_option = click.option(
    "--prefix",
    type=FILES,
    metavar="FILE",
    help="Text that all texts begin with; its keys and values are computed while compiling.",
)

speculate_option = click.option(
    "--speculate",
    type=int,
    default=0,
    metavar="K",
    help="Propose up to K tokens that followed earlier in the text, and verify them in one call.",
)

draft_option = click.option(
    "--draft",
    metavar="MODEL",
    type=FILES,
    help="A smaller model with the same tokens, which proposes those of --speculate.",
)

cache_option = click.option(
    "--cache",
    type=click.Choice(["whole", "window"]),
    default="whole",
    help="window: layers with a sliding window keep the tokens that it sees. whole: all tokens.",
)

CACHE_TYPES = ("f32", "f16", "int8", "int16x8")

cache_type_option = click.option(
    "--cache-type",
    type=click.Choice(CACHE_TYPES),
    default="f32",
    help="How caches store numbers. int8: with one scale for each token and head. int16x8: the"
    " same, and attention multiplies them by integers.",
)

WEIGHTS_ALONE = ("int8w", "int4w", "int8d", "int4d", "q8_0", "q4_0", "q4_k")
"""Quantized forms that need no samples."""

quantize_option = click.option(
    "--quantize",
    type=click.Choice(WEIGHTS_ALONE),
    help="How weights of products are stored; int8d, int4d, q8_0, q4_0, q4_k: with quantized"
    " activations of these products, too.  [default: as floats]",
)


def read_prefix(file: str | None) -> bytes | None:
    """The text of `--prefix`."""
    try:
        return None if file is None else Path(file).read_bytes()
    except OSError as error:
        raise RelaxAotError(f"cannot read {file}: {error.strerror}") from error


def board_option(default: str | None, kind: str = "Target board") -> Decorator:
    """`--board`, which is required if it has no default."""
    text = f"{kind}, or a .toml file."
    # To Click, `default=None` is a default too, which makes the option no longer required.
    given = {"required": True} if default is None else {"default": default}
    return click.option("--board", type=BOARD, help=text, **given)


def folder_option(what: str) -> Decorator:
    """The required option `-o DIR`."""
    text = f"Output folder of {what}."
    return click.option("-o", "output", type=FILES, required=True, metavar="DIR", help=text)


SOURCE = (
    click.option(
        "--bound",
        multiple=True,
        metavar="n=128",
        help="Upper bound of a dynamic size; n=4..128 sets both bounds. Repeatable.",
    ),
    click.option(
        "--fix",
        multiple=True,
        metavar="sr=16000",
        help="Set an input to a constant. Repeatable.",
    ),
    click.option(
        "--state",
        multiple=True,
        metavar="in=out",
        help="Join an input and an output into one state buffer. Repeatable.",
    ),
    click.option(
        "--window",
        multiple=True,
        metavar="m=128",
        help="Number of last rows that growing states with this length keep. Repeatable.",
    ),
    click.option(
        "--assume",
        multiple=True,
        metavar="'n <= 2*m'",
        help="Relation between sizes, checked on entry. Repeatable.",
    ),
    click.option(
        "--quantize",
        type=click.Choice(["int8", "int8w", "int4w", "int8d", "int4d", "q8_0", "q4_0", "q4_k"]),
        help="int8: weights and activations. int8w, int4w: only weights of matrix products. int8d,"
        " int4d: activations of these products too, row by row while the model runs. q8_0, q4_0,"
        " q4_k: the block forms of GGUF, with activations in blocks."
        "  [default: no quantization]",
    ),
    click.option(
        "--calibrate",
        type=FILES,
        multiple=True,
        metavar="FILE.npz|x=FILE.npz:key",
        help="Sample inputs for --quantize int8. Repeatable.",
    ),
    click.option(
        "--calibration",
        type=click.Choice(["minmax", "percentile", "entropy"]),
        default="minmax",
        help="How --quantize int8 chooses the quantized range.",
    ),
    click.option(
        "--activations",
        type=click.Choice(["asymmetric", "symmetric"]),
        default="asymmetric",
        help="asymmetric: any zero point of quantized activations. symmetric: zero point 0.",
    ),
    click.option(
        "--keep-float",
        multiple=True,
        metavar="NAME",
        help="Result, node or operator that stays float. Repeatable.",
    ),
)
"""What is said of a model and its quantization."""

CODE = (
    click.option(
        "--optimize",
        type=click.Choice(["speed", "size", "memory"]),
        default="speed",
        help="What to minimize: instructions, code, or the arena.",
    ),
    click.option("--name", help="Prefix of all public C names.  [default: the file name]"),
    click.option(
        "--extern",
        type=FILES,
        multiple=True,
        metavar="my.toml",
        help="Table of C functions that replace calls. Repeatable.",
    ),
    click.option(
        "--library",
        type=FILES,
        multiple=True,
        metavar="NAME",
        help="C functions of an installed package. Repeatable.",
    ),
    click.option(
        "--weights",
        type=click.Choice(FORMS),
        default="auto",
        help="c: C text. asm: a file that the assembler includes. auto: c up to 512 KiB,"
        " otherwise asm. blob: a separate block, loaded at run time.",
    ),
    click.option(
        "--stepwise",
        is_flag=True,
        help="Also generate NAME_step, which runs one kernel per call.",
    ),
    click.option(
        "--offsets",
        type=click.Choice(["static", "dynamic"]),
        default="static",
        help="dynamic: every run computes where values lie for its sizes, so that small sizes need"
        " a small arena.",
    ),
    click.option(
        "--numerics",
        type=click.Choice(["blocked", "ordered", "tf32"]),
        default="blocked",
        help="blocked: float sums have a fixed number of partial sums, which vectors compute."
        " ordered: the order of the plain loops, and the same functions on every target."
        " tf32: as blocked, and products of floats on a GPU round their factors to 11 bits.",
    ),
    click.option(
        "--reassociate",
        is_flag=True,
        help="Multiply chains of matrices in the order with the fewest multiply-adds. Changes the"
        " rounding of floats.",
    ),
    click.option(
        "--functions",
        type=click.Choice(FUNCTIONS),
        default="auto",
        help="auto: layers that repeat are one C function, where that makes the code smaller."
        " inline: the run calls every kernel itself.",
    ),
    click.option(
        "--emit",
        type=click.Choice(EMIT),
        default="auto",
        help="The kernels of a GPU. cubin: machine code in C arrays. cuda-source: CUDA C++ for your"
        " nvcc. auto: cubin, where the board has it.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(1, GREATEST),
        default=1,
        metavar="N",
        help="Generate NAME_worker, with which up to N threads share the loops of a run.",
    ),
    click.option(
        "--check", is_flag=True, help="Check the compiler's invariants after every stage."
    ),
    click.option("--dump", type=FILES, metavar="DIR", help="Write the text form of every stage."),
)
"""What is said of the generated code."""


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all commands with a model share."""
    return _with(SOURCE, code(command))


def code(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the generated code."""
    return _with(CODE, command)


def _with(options: tuple[Decorator, ...], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command
