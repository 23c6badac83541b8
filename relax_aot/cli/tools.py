# SPDX-License-Identifier: Apache-2.0
"""Commands without a model: boards, operators, memory plans, installed tools."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from relax_aot.cli.output import DIFFERENT, write_json
from relax_aot.cli.parameters import json_option
from relax_aot.cli.types import BOARD, FILES, FINITE


@click.command()
@click.argument("old", type=FILES)
@click.argument("new", type=FILES)
def compare(old: str, new: str) -> None:
    """List the differences between the projects OLD and NEW.

    Both are folders that `compile` wrote. Exit code 1 means that they differ.
    """
    from relax_aot.diagnose.changes import changes

    lines = changes(Path(old), Path(new))
    for line in lines or ["no change"]:
        click.echo(line)
    sys.exit(DIFFERENT if lines else 0)


@click.command()
@click.argument("name", type=BOARD, required=False)
@json_option
def boards(name: str | None, json_file: str | None) -> None:
    """List all boards, or show the board NAME."""
    from relax_aot.verify.table import board_figures, board_lines

    if json_file:
        write_json(board_figures(name), json_file)
    if json_file != "-":
        for line in board_lines(name):
            click.echo(line)


@click.command("new-board")
@click.argument("name")
@click.option("--cpu", default="cortex-m4", help="Core of the board.")
@click.option("-o", "folder", type=FILES, default=".", metavar="DIR", help="Output folder.")
def new_board_command(name: str, cpu: str, folder: str) -> None:
    """Write the commented board file NAME.toml as a starting point."""
    from relax_aot.project.new_board import new_board

    board = new_board(name, cpu, Path(folder))
    path = Path(folder) / f"{board.name}.toml"
    click.echo(f"{path}: edit title, source and memories, then use --board {path}")


@click.command()
@click.option(
    "--format",
    "source_format",
    default="onnx",
    type=click.Choice(["onnx", "tflite"]),
    help="Format of the models.",
)
@click.option("--markdown", is_flag=True, help="Print a Markdown page with element types.")
def ops(source_format: str, markdown: bool) -> None:
    """List the supported operators with their versions and limits."""
    if source_format == "tflite":
        from relax_aot.frontends.tflite.page import lines

        click.echo("\n".join(lines(markdown)))
        return

    from relax_aot.frontends.onnx import supported

    if markdown:
        from relax_aot.verify.operators import page

        click.echo(page(), nl=False)
        return

    for row in supported():
        click.echo(f"{row.operator:28} {row.versions:12} {row.limits}".rstrip())


@click.command()
@click.argument("table", type=FILES)
@click.option(
    "--capacity",
    type=click.IntRange(min=0),
    help="Accept any plan of at most this many bytes. Exit code 1 if none is found.",
)
@click.option(
    "--time",
    "seconds",
    type=FINITE,
    help="Time limit of the search in seconds.  [default: a fixed amount of work]",
)
@click.option("-o", "output", type=FILES, metavar="OUT.csv", help="Output table with offsets.")
def plan(table: str, capacity: int | None, seconds: float | None, output: str | None) -> None:
    """Plan the memory of the buffers in a CSV table.

    The columns of TABLE are id, lower, upper and size. A buffer of `size` bytes is alive from
    `lower` up to, but not including, `upper`.
    """
    from relax_aot.planning.csv_plan import plan_csv

    found = plan_csv(Path(table), Path(output) if output else None, capacity, seconds)
    height = found.packing.height
    proved = ", proved lowest" if found.proved else ""
    click.echo(f"height {height} bytes, lower bound {found.lower_bound}{proved}")
    if capacity is not None and height > capacity:
        impossible = ", and no plan fits" if found.lower_bound > capacity else ""
        over = height - capacity
        click.echo(f"does not fit: {over} bytes over {capacity}{impossible}", err=True)
        sys.exit(DIFFERENT)


@click.command()
def doctor() -> None:
    """List compilers and emulators, and how to install missing ones."""
    from relax_aot.verify.table import doctor_lines

    for line in doctor_lines():
        click.echo(line)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "relax-aot", "_RELAX_AOT_COMPLETE").source())


@click.command()
@click.option(
    "-o", "output", type=FILES, default="build/demo", metavar="DIR", help="Folder of the project."
)
def demo(output: str) -> None:
    """Compile the example and run it on host and emulated boards."""
    from relax_aot.cli.demo import run_demo

    sys.exit(0 if run_demo(Path(output)) else DIFFERENT)


COMMANDS = (compare, boards, new_board_command, ops, plan, doctor, completion, demo)


def add_to(group: click.Group) -> None:
    for command in COMMANDS:
        group.add_command(command)
