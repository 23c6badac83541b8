# SPDX-License-Identifier: Apache-2.0
"""The command line: arguments -> Options -> driver; nothing else.

Exit codes: 0 success and equal results; 1 results differ, or a plan does not fit; 2 user
error; 3 missing tool; 130 interrupted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relax_aot.cli import progress as cli_progress
from relax_aot.cli import streams as cli_streams
from relax_aot.cli import tools
from relax_aot.cli.chat import chat
from relax_aot.cli.llm import llm
from relax_aot.cli.options import (
    entries_of,
    one_model,
    options_of,
    parse_at,
    read_inputs,
    require_use,
    tolerance_of,
)
from relax_aot.cli.output import DIFFERENT, end_verify, write_json
from relax_aot.cli.parameters import (
    board_option,
    common,
    entry_option,
    folder_option,
    inputs_option,
    json_option,
)
from relax_aot.cli.perplexity import perplexity
from relax_aot.cli.types import BOARD, FILES, FINITE
from relax_aot.errors import RelaxAotError
from relax_aot.project.packaging import NAMES as PACKAGES
from relax_aot.version import VERSION

if TYPE_CHECKING:
    from relax_aot.project import Project
    from relax_aot.verify.profile import Profile

REPORTS = ("html", "svg", "json", "txt")


def _options(chosen: dict[str, Any]) -> Any:
    chosen.pop("dump", None)
    return options_of(**chosen)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(VERSION, prog_name="relax-aot")
def cli() -> None:
    """Compile models with dynamic sizes to plain C with bounded memory."""


@cli.command("compile")
@click.argument("models", type=FILES, metavar="MODEL", nargs=-1, required=True)
@folder_option("the C project")
@board_option("host")
@click.option("--package", type=click.Choice(PACKAGES), default="flat", help="Build system.")
@json_option
@common
def compile_command(
    models: tuple[str, ...],
    output: str,
    board: str,
    package: str,
    json_file: str | None,
    **chosen: Any,
) -> None:
    """Generate the C project of MODEL.

    MODEL may be several entries (prefill=a.onnx decode=b.onnx).
    """
    from relax_aot import driver

    entries = entries_of(models)
    if entries is not None:
        from relax_aot.cli.entries import compile_several

        said, lines = compile_several(entries, output, board, package, chosen)
        if json_file:
            write_json(said, json_file)
        if json_file != "-":
            click.echo("\n".join(lines))
        return
    from relax_aot.project.folder import kept_edits

    (model,) = models
    dump = chosen.get("dump")
    project = driver.compile_model(model, board, _options(chosen), dump)
    folder = project.write(output, package)
    plan = project.plan
    figures = {
        "model": project.name,
        "folder": str(folder),
        "board": project.board.name,
        "numerics": project.view.numerics,
        "memory": {
            "arena_bytes": plan.arena_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "const_bytes": project.const_bytes,
        },
        "symbols": {f.source: [f.symbol.low, f.symbol.high] for f in project.interface.dims},
        "capacities": project.interface.capacities,
    }
    if json_file:
        write_json(figures, json_file)
    if json_file != "-":
        count = len(project.packaged(package))
        click.echo(f"{folder}: {count} files for {project.board.name}")
        click.echo(
            f"arena {plan.arena_bytes} bytes (lower bound {plan.lower_bound_bytes}),"
            f" constants {project.const_bytes} bytes"
        )
        for name in kept_edits(project.packaged(package), folder):
            click.echo(f"{folder}/{name}: your edit is kept; delete the file to generate it again")
        for line in project.quantized.lines() if project.quantized is not None else ():
            click.echo(line)
        for line in project.floats:
            click.echo(f"stays float: {line}")


@cli.command()
@click.argument("models", type=FILES, metavar="MODEL...", nargs=-1, required=True)
@click.option(
    "--board",
    type=BOARD,
    multiple=True,
    default=["host"],
    help="Board to run on, or a .toml file. Repeatable.",
)
@click.option(
    "--at",
    multiple=True,
    metavar="n=77,m=3",
    help="Sizes of a run. Repeatable.  [default: lowest, highest and random sizes]",
)
@inputs_option
@click.option(
    "--reference",
    type=FILES,
    metavar="onnxruntime|numpy|litert|torch|FILE.npz",
    help="Reference for the comparison.  [default: onnxruntime for .onnx, otherwise numpy]",
)
@click.option("--rtol", type=FINITE, help="Relative tolerance.  [default: the error model]")
@click.option("--atol", type=FINITE, help="Absolute tolerance.  [default: the error model]")
@click.option(
    "--labels",
    type=FILES,
    metavar="FILE.npz",
    help="Correct class of each sample of --inputs; prints accuracies.",
)
@click.option("--sanitize", is_flag=True, help="Run on the host under AddressSanitizer and UBSan.")
@click.option("--serial", "port", metavar="PORT", help="Run on a real board at this port.")
@click.option("--baud", type=int, default=115200, help="Speed of --serial in bits per second.")
@click.option(
    "--farm", is_flag=True, help="Distribute models, boards and sizes over cores or machines."
)
@click.option("--workers", type=int, help="Processes of --farm.  [default: number of cores]")
@click.option(
    "--scheduler", metavar="tcp://HOST:8786", help="Scheduler of a --farm of several machines."
)
@click.option("--retries", type=int, default=2, help="Attempts after a lost worker of --farm.")
@click.option("--per-value", is_flag=True, help="Name the first intermediate value that differs.")
@json_option
@common
def verify(
    models: tuple[str, ...],
    board: tuple[str, ...],
    at: tuple[str, ...],
    inputs: tuple[str, ...],
    reference: str | None,
    labels: str | None,
    farm: bool,
    per_value: bool,
    json_file: str | None,
    **chosen: Any,
) -> None:
    """Compile MODEL, run the C, and compare with a reference.

    The C runs on the host or on the boards of --board. MODEL may be several entries
    (prefill=a.onnx decode=b.onnx). With --farm, it may be several models and lists of models
    (.toml).
    """
    from relax_aot.cli.verify import verify_farm, verify_one, verify_values
    from relax_aot.verify.job import default_reference

    tolerance = tolerance_of(chosen.pop("rtol"), chosen.pop("atol"))
    settings = tuple(chosen.pop(name) for name in ("scheduler", "workers", "retries"))
    run = {name: chosen.pop(name) for name in ("sanitize", "port", "baud")}
    sanitize, port = run["sanitize"], run["port"]
    if farm:
        if inputs or labels or sanitize or port or per_value or chosen["calibrate"]:
            raise click.UsageError(
                "--farm accepts only --at and the options of compile, without --calibrate"
            )
        verify_farm(models, board, at, chosen, reference, tolerance, settings, json_file)
    _check_verify(models, board, port)
    entries = entries_of(models)
    if entries is not None and (port or per_value or labels):
        raise click.UsageError("--serial, --per-value and --labels accept one model, not entries")
    dump, options = chosen.get("dump"), _options(chosen)
    run |= {"at": tuple(map(parse_at, at)), "inputs": read_inputs(inputs), "tolerance": tolerance}
    if per_value:
        if sanitize or port or json_file or dump or labels:
            raise click.UsageError(
                "--per-value cannot be combined with --sanitize, --serial, --json, --dump or"
                " --labels"
            )
        reference = reference or ("numpy" if options.quantize else default_reference(models[0]))
        verify_values(models[0], board, options, run["at"], run["inputs"], tolerance, reference)
    model = models[0] if entries is None else entries
    run["cycles"] = json_file is not None
    end_verify(verify_one(model, board, options, dump, reference, labels, run), json_file)


def _check_verify(models: tuple[str, ...], board: tuple[str, ...], port: str | None) -> None:
    """Refuse options of `verify` that have no effect, and several models without --farm."""
    require_use("--farm", "workers", "scheduler", "retries")
    if port is None:
        require_use("--serial", "baud")
    if "host" not in board:
        require_use("--board host", "sanitize")
    listed = models[0].endswith(".toml") and "=" not in models[0]
    if listed or (len(models) != 1 and not any("=" in model for model in models)):
        raise click.UsageError(
            "several models or a list of models need --farm; entries are written NAME=MODEL"
        )


@cli.command()
@click.argument("model", type=FILES, nargs=-1, required=True, callback=one_model)
@board_option(None)
@folder_option("the runner")
@common
def runner(model: str, board: str, output: str, **chosen: Any) -> None:
    """Generate the firmware that runs MODEL for `verify --serial`."""
    from relax_aot import driver
    from relax_aot.verify.runner import write_runner

    dump = chosen.get("dump")
    project = driver.compile_model(model, board, _options(chosen), dump)
    for line in write_runner(project, Path(output)):
        click.echo(line)


@cli.command()
@click.argument("models", type=FILES, metavar="MODEL", nargs=-1, required=True)
@entry_option
@click.option(
    "-o",
    "output",
    type=FILES,
    required=True,
    metavar="FILE",
    help="Output file; - is standard output.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(REPORTS),
    help="Format of the report.  [default: suffix of FILE, otherwise html]",
)
@board_option("host")
@click.option(
    "--at",
    multiple=True,
    metavar="n=77,m=3",
    help="Sizes to show. Repeatable.  [default: lowest, middle, highest]",
)
@click.option("--count", is_flag=True, help="Also count instructions on the board's emulator.")
@common
def report(
    models: tuple[str, ...],
    entry: str | None,
    output: str,
    form: str | None,
    board: str,
    at: tuple[str, ...],
    count: bool,
    **chosen: Any,
) -> None:
    """Write a report: memory map, kernels, sizes and fusion."""
    from relax_aot.report import report_text, write_report

    sizes = [parse_at(text) for text in at]
    suffix = Path(output).suffix[1:].lower()
    form = form or (suffix if suffix in REPORTS else "html")
    project = _one_project(models, entry, board, chosen)
    counted = _profile(project, sizes[-1] if sizes else None, ()) if count else None
    if output == "-":
        click.echo(report_text(project, sizes, form, counted), nl=False)
        return
    path = write_report(project, output, sizes, form, counted)
    plan = project.plan
    click.echo(f"{path}: arena {plan.arena_bytes} bytes, {len(plan.slots)} slots")


@cli.command()
@click.argument("model", type=FILES, nargs=-1, required=True, callback=one_model)
@click.option("-o", "output", type=FILES, metavar="DIR", help="Output folder of the C project.")
@board_option("host")
@click.option("--seconds", type=FINITE, help="Time limit in seconds.  [default: none]")
@common
def prove(model: str, output: str | None, board: str, seconds: float | None, **chosen: Any) -> None:
    """Prove the absence of undefined behavior in the C of MODEL.

    Frama-C analyzes the C for all sizes and all inputs. MODEL may also be the folder of a project
    that `prove` wrote and that you have changed.
    """
    from relax_aot.verify import prove as prover

    folder = Path(model if output is None else output)
    if output is None:
        if not folder.is_dir():
            raise RelaxAotError(f"prove {model} needs -o DIR, the folder of the C project")
        proof = prover.prove_again(folder, seconds)
    else:
        project = _one_project((model,), None, board, {**chosen, "annotate": True})
        proof = prover.prove(project, seconds)
        prover.write(project, proof, folder)
    for line in (*proof.lines(), f"{folder}/proof: {len(proof.files)} files"):
        click.echo(line)
    sys.exit(0 if proof.ok else DIFFERENT)


@cli.command("profile")
@click.argument("models", type=FILES, metavar="MODEL", nargs=-1, required=True)
@entry_option
@board_option("mps2-an386", "Emulated board")
@click.option("--at", metavar="n=77,m=3", help="Sizes of the run.  [default: highest sizes]")
@inputs_option
@click.option("--cycles", is_flag=True, help="Also estimate the cycles of each kernel.")
@click.option(
    "--measured",
    type=FILES,
    metavar="FILE",
    help="Cycles of kernels on a board, a line NAME CYCLES each, to show next to the estimates.",
)
@json_option
@common
def profile_command(
    models: tuple[str, ...],
    entry: str | None,
    board: str,
    at: str | None,
    inputs: tuple[str, ...],
    cycles: bool,
    measured: str | None,
    json_file: str | None,
    **chosen: Any,
) -> None:
    """Count the instructions of each kernel on an emulated board."""
    from relax_aot.verify.profile import read_measured
    from relax_aot.verify.table import profile_lines

    times = None if measured is None else read_measured(Path(measured))
    project = _one_project(models, entry, board, chosen)
    estimates = cycles or times is not None
    found = _profile(project, parse_at(at) if at else None, inputs, cycles=estimates)
    if json_file:
        write_json(found.as_json() | ({"measured": times} if times else {}), json_file)
    if json_file != "-":
        for line in profile_lines(found, times):
            click.echo(line)


def _one_project(
    models: tuple[str, ...],
    entry: str | None,
    board: str,
    chosen: dict[str, Any],
) -> Project:
    """Return the project of a model, or of one of several entries."""
    from relax_aot import driver
    from relax_aot.cli.entries import entry_project

    sources, dump = entries_of(models), chosen.get("dump")
    if sources is not None:
        return entry_project(sources, entry, board, _options(chosen), dump)
    if entry is not None:
        raise click.UsageError("--entry needs several entries: NAME=MODEL")
    return driver.compile_model(models[0], board, _options(chosen), dump)


def _profile(
    project: Project,
    at: Mapping[str, int] | None,
    inputs: tuple[str, ...],
    *,
    cycles: bool = False,
) -> Profile:
    """Profile one call at these sizes, by default the highest."""
    from relax_aot.verify.profile import profile
    from relax_aot.verify.samples import cases_of

    cases = cases_of(project.interface, (at or {},), read_inputs(inputs))
    return profile(project, cases[0], cycles=cycles)


@cli.command()
@click.argument("model", type=FILES, nargs=-1, required=True, callback=one_model)
@folder_option("the reproducer")
@board_option("host")
@click.option("--at", multiple=True, metavar="n=77,m=3", help="Sizes of the failure. Repeatable.")
@click.option("--random-weights", is_flag=True, help="Replace all float weights by random numbers.")
@common
def bug(
    model: str, output: str, board: str, at: tuple[str, ...], random_weights: bool, **chosen: Any
) -> None:
    """Write the smallest failing part of MODEL, for a bug report."""
    from relax_aot import driver
    from relax_aot.diagnose.bug import minimize, with_random_weights, write_reproducer
    from relax_aot.project.board import load_board
    from relax_aot.verify.job import default_reference
    from relax_aot.verify.onnx_values import OnnxValues

    if chosen.get("dump"):
        raise click.UsageError(
            "bug does not support --dump; use it when you compile the reproducer"
        )
    options = _options(chosen)
    module = driver.load(model, options)
    outside = None
    if random_weights:
        module = with_random_weights(module)
    elif options.quantize is None and default_reference(model) == "onnxruntime":
        outside = OnnxValues(model, options.fix, module)
    module, _ = driver.coded(module, options)
    target = load_board(board)
    found = minimize(module, target, options, [parse_at(text) for text in at], outside)
    path = write_reproducer(found, target, options, Path(output))
    click.echo(f"{path}: {found.calls} of {found.of_calls} calls")
    click.echo(f"{found.failure.kind}: {found.failure.message}")


tools.add_to(cli)
cli.add_command(llm)
cli.add_command(chat)
cli.add_command(perplexity)
cli_progress.add_options([cli, *cli.commands.values()])


def main() -> int:
    """Run the command line and return its exit code. Every user error is one message."""
    complete = "_RELAX_AOT_COMPLETE"

    def run(shown: cli_progress.Shown) -> object:
        return cli(standalone_mode=False, prog_name="relax-aot", complete_var=complete, obj=shown)

    return cli_streams.exit_code(run)
