"""The command line: arguments -> Options -> driver; nothing else.

Exit codes: 0 done and equal; 1 results differ (or a plan does not fit); 2 the user can
mend it; 3 a tool is missing; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relax_aot.cli import progress as cli_progress
from relax_aot.cli import streams as cli_streams
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
from relax_aot.cli.types import BOARD, FILES
from relax_aot.emit.weights import FORMS
from relax_aot.errors import RelaxAotError
from relax_aot.project.packaging import NAMES as PACKAGES
from relax_aot.version import VERSION

if TYPE_CHECKING:
    from relax_aot.project import Project
    from relax_aot.verify.profile import Profile

REPORTS = ("html", "svg", "json", "txt")


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every verb with a model takes."""
    options = [
        click.option("--bound", multiple=True, metavar="n=128", help="Upper bound, or n=4..128."),
        click.option("--fix", multiple=True, metavar="sr=16000", help="Bind an input to a value."),
        click.option("--state", multiple=True, metavar="in=out", help="One state buffer."),
        click.option("--assume", multiple=True, metavar="'n <= 2*m'", help="A relation of sizes."),
        click.option(
            "--quantize",
            type=click.Choice(["int8", "int8w", "int4w"]),
            help="Weights and activations, or weights of products alone.",
        ),
        click.option(
            "--calibrate",
            type=FILES,
            multiple=True,
            metavar="FILE.npz|x=FILE.npz:key",
            help="Sample inputs.",
        ),
        click.option(
            "--calibration",
            type=click.Choice(["minmax", "percentile", "entropy"]),
            default="minmax",
            help="Which range of numbers codes cover.",
        ),
        click.option(
            "--activations",
            type=click.Choice(["asymmetric", "symmetric"]),
            default="asymmetric",
            help="Whether 0 is the middle code.",
        ),
        click.option(
            "--keep-float", multiple=True, metavar="NAME", help="A layer, node or op to leave."
        ),
        click.option("--optimize", type=click.Choice(["speed", "size", "memory"]), default="speed"),
        click.option("--name", help="Prefix of every public C name."),
        click.option(
            "--extern", type=FILES, multiple=True, metavar="my.toml", help="C functions of yours."
        ),
        click.option(
            "--library", type=FILES, multiple=True, metavar="NAME", help="C functions of a package."
        ),
        click.option(
            "--weights",
            type=click.Choice(FORMS),
            default="auto",
            help="C text, included by the assembler, or a checked block apart from the code.",
        ),
        click.option(
            "--stepwise", is_flag=True, help="Also a run that returns between kernels: NAME_step."
        ),
        click.option("--check", is_flag=True, help="Check the program after every stage."),
        click.option("--dump", type=FILES, metavar="DIR", help="Write every stage as text."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _options(chosen: dict[str, Any]) -> Any:
    chosen.pop("dump", None)
    return options_of(**chosen)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="relax-aot")
def cli() -> None:
    """Models whose sizes are unknown until run time, as plain, bounded, readable C."""


@cli.command("compile")
@click.argument("models", type=FILES, metavar="MODEL", nargs=-1, required=True)
@click.option(
    "-o", "output", type=FILES, required=True, metavar="DIR", help="Folder of the C project."
)
@click.option("--board", type=BOARD, default="host")
@click.option("--package", type=click.Choice(PACKAGES), default="flat", help="For which build.")
@click.option(
    "--json",
    "json_file",
    type=FILES,
    metavar="FILE",
    help="Figures as JSON; - for standard output.",
)
@common
def compile_command(
    models: tuple[str, ...],
    output: str,
    board: str,
    package: str,
    json_file: str | None,
    **chosen: Any,
) -> None:
    """Generate the C project of MODEL, or of several entries: prefill=a.onnx decode=b.onnx."""
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
        "memory": {
            "arena_bytes": plan.arena_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "const_bytes": project.const_bytes,
        },
        "symbols": {f.source: [f.symbol.low, f.symbol.high] for f in project.interface.dims},
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
            click.echo(f"{folder}/{name}: your edit is kept; delete it to get the generated one")
        for line in project.quantized.lines() if project.quantized is not None else ():
            click.echo(line)
        for line in project.floats:
            click.echo(f"in floats: {line}")


@cli.command()
@click.argument("models", type=FILES, metavar="MODEL...", nargs=-1, required=True)
@click.option("--board", type=BOARD, multiple=True, default=["host"])
@click.option("--at", multiple=True, metavar="n=77,m=3", help="Any sizes of the model; repeatable.")
@click.option("--inputs", type=FILES, multiple=True, metavar="FILE.npz|x=FILE.npz:key")
@click.option(
    "--reference",
    type=FILES,
    metavar="onnxruntime|numpy|litert|torch|FILE.npz",
    help="Default: onnxruntime for .onnx, numpy for others.",
)
@click.option("--rtol", type=float, help="Relative tolerance in place of the error model.")
@click.option("--atol", type=float, help="Absolute tolerance in place of the error model.")
@click.option("--labels", type=FILES, metavar="FILE.npz", help="The right class of each sample.")
@click.option("--sanitize", is_flag=True, help="On the host, under ASan and UBSan.")
@click.option("--serial", "port", metavar="PORT", help="The board at this serial port.")
@click.option("--baud", type=int, default=115200, show_default=True)
@click.option("--farm", is_flag=True, help="Models x boards x sizes over cores or machines.")
@click.option("--workers", type=int, help="Processes of a farm here (default: cores).")
@click.option("--scheduler", metavar="tcp://HOST:8786", help="A farm of other machines.")
@click.option("--retries", type=int, default=2, show_default=True, help="Where a worker is lost.")
@click.option("--per-value", is_flag=True, help="Name the first value inside that differs.")
@click.option(
    "--json", "json_file", type=FILES, metavar="FILE", help="Result as JSON; - for standard output."
)
@common
def verify(
    models: tuple[str, ...],
    board: tuple[str, ...],
    at: tuple[str, ...],
    inputs: tuple[str, ...],
    reference: str | None,
    rtol: float | None,
    atol: float | None,
    labels: str | None,
    sanitize: bool,
    port: str | None,
    baud: int,
    farm: bool,
    workers: int | None,
    scheduler: str | None,
    retries: int,
    per_value: bool,
    json_file: str | None,
    **chosen: Any,
) -> None:
    """Compile MODEL, run it on host and boards, compare with a reference. There may be several
    entries (prefill=a.onnx decode=b.onnx), or with --farm several models and lists of them (.toml).
    """
    from relax_aot import driver
    from relax_aot.cli.verify import labels_of, verify_farm, verify_values
    from relax_aot.verify.job import Job, default_reference, run_job

    tolerance = tolerance_of(rtol, atol)
    if farm:
        if inputs or labels or sanitize or port or per_value or chosen["calibrate"]:
            raise click.UsageError("--farm takes sizes and options of compilation alone")
        settings = (scheduler, workers, retries)
        verify_farm(models, board, at, chosen, reference, tolerance, settings, json_file)
    require_use("--farm", "workers", "scheduler", "retries")
    if port is None:
        require_use("--serial", "baud")
    if "host" not in board:
        require_use("--board host", "sanitize")
    listed = models[0].endswith(".toml") and "=" not in models[0]
    if listed or (len(models) != 1 and not any("=" in model for model in models)):
        raise click.UsageError(
            "several models at once, or a list of them, need --farm; entries are NAME=MODEL"
        )
    entries = entries_of(models)
    if entries is not None:
        from relax_aot.cli.entries import verify_several

        if port or per_value or labels:
            raise click.UsageError("--serial, --per-value and --labels take one model, not entries")
        result = verify_several(
            entries, board, at, inputs, reference, tolerance, chosen, sanitize=sanitize
        )
        end_verify(result, json_file)
    (model,) = models
    dump = chosen.get("dump")
    options = _options(chosen)
    arrays = read_inputs(inputs)
    sizes = tuple(parse_at(text) for text in at)
    usual = "numpy" if options.quantize else default_reference(model)
    chosen_reference = reference or usual
    if per_value:
        if sanitize or port or json_file or dump or labels:
            raise click.UsageError(
                "--per-value prints the first value that differs: it goes without --sanitize,"
                " --serial, --json, --dump and --labels"
            )
        verify_values(model, board, options, sizes, arrays, tolerance, chosen_reference)
    if port is not None and (len(board) != 1 or board == ("host",)):
        raise click.UsageError("--serial is for one board: name it by --board")
    projects = driver.compile_for(model, board, options, dump)
    job = Job(
        source=model,
        projects=projects,
        fix=options.fix,
        state=options.state,
        at=sizes,
        inputs=arrays,
        reference=chosen_reference,
        tolerance=tolerance,
        sanitize=sanitize,
        port=port,
        baud=baud,
        float_module=driver.load(model, options) if options.quantize else None,
        labels=labels_of(labels, arrays),
    )
    end_verify(run_job(job), json_file)


@cli.command()
@click.argument("model", type=FILES, nargs=-1, required=True, callback=one_model)
@click.option("--board", type=BOARD, required=True)
@click.option(
    "-o", "output", type=FILES, required=True, metavar="DIR", help="Folder of the runner."
)
@common
def runner(model: str, board: str, output: str, **chosen: Any) -> None:
    """Write the firmware part that `verify --serial` talks to, with MODEL in it."""
    from relax_aot import driver
    from relax_aot.verify.runner import write_runner

    dump = chosen.get("dump")
    project = driver.compile_model(model, board, _options(chosen), dump)
    for line in write_runner(project, Path(output)):
        click.echo(line)


@cli.command()
@click.argument("models", type=FILES, metavar="MODEL", nargs=-1, required=True)
@click.option("--entry", metavar="NAME", help="Which of several entries.")
@click.option(
    "-o", "output", type=FILES, required=True, metavar="FILE", help="- for standard output."
)
@click.option(
    "--format", "form", type=click.Choice(REPORTS), help="Default: by FILE's suffix, else html."
)
@click.option("--board", type=BOARD, default="host")
@click.option("--at", multiple=True, metavar="n=77,m=3", help="Sizes to show; repeatable.")
@click.option("--count", is_flag=True, help="Count instructions on the board's emulator.")
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
    """Write a page with the memory map, kernels and sizes of MODEL, or of one entry of several."""
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
@click.option("-o", "output", type=FILES, metavar="DIR", help="Folder of the C project.")
@click.option("--board", type=BOARD, default="host", show_default=True)
@click.option("--seconds", type=float, help="The longest that it may take.")
@common
def prove(model: str, output: str | None, board: str, seconds: float | None, **chosen: Any) -> None:
    """Show by Frama-C that no call of MODEL, whatever its sizes and numbers, is undefined. MODEL
    may be a project that was proven before: what its files say now is proven again."""
    from relax_aot.verify import prove as prover

    folder = Path(model if output is None else output)
    if output is None:
        if not folder.is_dir():
            raise RelaxAotError(f"prove {model} needs -o DIR, the folder of the C project")
        proof = prover.prove_again(folder, seconds)
    else:
        project = _one_project((model,), None, board, chosen)
        proof = prover.prove(project, seconds)
        prover.write(project, proof, folder)
    for line in (*proof.lines(), f"{folder}/proof: {len(proof.files)} files"):
        click.echo(line)
    sys.exit(0 if proof.ok else DIFFERENT)


@cli.command("profile")
@click.argument("models", type=FILES, metavar="MODEL", nargs=-1, required=True)
@click.option("--entry", metavar="NAME", help="Which of several entries.")
@click.option("--board", type=BOARD, default="mps2-an386", show_default=True)
@click.option("--at", metavar="n=77,m=3", help="Sizes to run at; highest unless given.")
@click.option("--inputs", type=FILES, multiple=True, metavar="FILE.npz|x=FILE.npz:key")
@click.option(
    "--json", "json_file", type=FILES, metavar="FILE", help="Result as JSON; - for standard output."
)
@common
def profile_command(
    models: tuple[str, ...],
    entry: str | None,
    board: str,
    at: str | None,
    inputs: tuple[str, ...],
    json_file: str | None,
    **chosen: Any,
) -> None:
    """Count the instructions of every kernel of MODEL on an emulated board."""
    from relax_aot.verify.table import profile_lines

    project = _one_project(models, entry, board, chosen)
    found = _profile(project, parse_at(at) if at else None, inputs)
    if json_file:
        write_json(found.as_json(), json_file)
    if json_file != "-":
        for line in profile_lines(found):
            click.echo(line)


def _one_project(
    models: tuple[str, ...],
    entry: str | None,
    board: str,
    chosen: dict[str, Any],
) -> Project:
    """The project of a model, or as one of several entries sees it."""
    from relax_aot import driver
    from relax_aot.cli.entries import entry_project

    sources, dump = entries_of(models), chosen.get("dump")
    if sources is not None:
        return entry_project(sources, entry, board, _options(chosen), dump)
    if entry is not None:
        raise click.UsageError("--entry belongs to several entries: NAME=MODEL")
    return driver.compile_model(models[0], board, _options(chosen), dump)


def _profile(project: Project, at: Mapping[str, int] | None, inputs: tuple[str, ...]) -> Profile:
    """One call at these sizes, the highest unless given."""
    from relax_aot.verify.profile import profile
    from relax_aot.verify.samples import cases_of

    cases = cases_of(project.interface, (at or {},), read_inputs(inputs))
    return profile(project, cases[0])


@cli.command()
@click.argument("old", type=FILES)
@click.argument("new", type=FILES)
def compare(old: str, new: str) -> None:
    """Show what changed between the projects in two folders; exit code 1 where something did."""
    from relax_aot.diagnose.changes import changes

    lines = changes(Path(old), Path(new))
    for line in lines or ["no change"]:
        click.echo(line)
    sys.exit(DIFFERENT if lines else 0)


@cli.command()
@click.argument("model", type=FILES, nargs=-1, required=True, callback=one_model)
@click.option(
    "-o", "output", type=FILES, required=True, metavar="DIR", help="Folder of the reproducer."
)
@click.option("--board", type=BOARD, default="host", show_default=True)
@click.option("--at", multiple=True, metavar="n=77,m=3", help="Sizes that went wrong.")
@click.option("--random-weights", is_flag=True, help="Leave no weight of yours in it.")
@common
def bug(
    model: str, output: str, board: str, at: tuple[str, ...], random_weights: bool, **chosen: Any
) -> None:
    """Write the smallest part of MODEL that still goes wrong, to report it."""
    from relax_aot import driver
    from relax_aot.diagnose.bug import minimize, with_random_weights, write_reproducer
    from relax_aot.project.board import load_board
    from relax_aot.verify.job import default_reference
    from relax_aot.verify.onnx_values import OnnxValues

    if chosen.get("dump"):
        raise click.UsageError(
            "bug compiles many parts: --dump goes with compile, on the part left"
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


@cli.command()
@click.argument("name", type=BOARD, required=False)
@click.option("--json", "json_file", type=FILES, metavar="FILE", help="- for standard output.")
def boards(name: str | None, json_file: str | None) -> None:
    """List boards, or show one."""
    from relax_aot.verify.table import board_figures, board_lines

    if json_file:
        write_json(board_figures(name), json_file)
    if json_file != "-":
        for line in board_lines(name):
            click.echo(line)


@cli.command("new-board")
@click.argument("name")
@click.option("--cpu", default="cortex-m4", show_default=True, help="Such as cortex-m33.")
@click.option(
    "-o", "folder", type=FILES, default=".", metavar="DIR", help="Default: the current folder."
)
def new_board_command(name: str, cpu: str, folder: str) -> None:
    """Write a commented board file NAME.toml to start from."""
    from relax_aot.project.new_board import new_board

    board = new_board(name, cpu, Path(folder))
    path = Path(folder) / f"{board.name}.toml"
    click.echo(f"{path}: change title, source and memories, then use --board {path}")


@cli.command()
@click.option("--format", "source_format", default="onnx", type=click.Choice(["onnx", "tflite"]))
@click.option("--markdown", is_flag=True, help="As a page with element types, found by trying.")
def ops(source_format: str, markdown: bool) -> None:
    """List the operators that are supported."""
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


@cli.command()
@click.argument("table", type=FILES)
@click.option("--capacity", type=int, help="Stop at a plan of this height; fail without one.")
@click.option("--time", "seconds", type=float, help="Search for so long (default: fixed work).")
@click.option("-o", "output", type=FILES, metavar="OUT.csv", help="The table with offsets.")
def plan(table: str, capacity: int | None, seconds: float | None, output: str | None) -> None:
    """Plan the memory of TABLE (CSV: id,lower,upper,size)."""
    from relax_aot.planning.csv_plan import plan_csv

    found = plan_csv(Path(table), Path(output) if output else None, capacity, seconds)
    height = found.packing.height
    proved = ", proved lowest" if found.proved else ""
    click.echo(f"height {height} bytes, lower bound {found.lower_bound}{proved}")
    if capacity is not None and height > capacity:
        impossible = ", and no plan does" if found.lower_bound > capacity else ""
        over = height - capacity
        click.echo(f"does not fit: {over} bytes over {capacity}{impossible}", err=True)
        sys.exit(DIFFERENT)


@cli.command()
def doctor() -> None:
    """Show which compilers and emulators are here, and how to get the others."""
    from relax_aot.verify.table import doctor_lines

    for line in doctor_lines():
        click.echo(line)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete commands and options."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "relax-aot", "_RELAX_AOT_COMPLETE").source())


@cli.command()
@click.option("-o", "output", type=FILES, default="build/demo", metavar="DIR", show_default=True)
def demo(output: str) -> None:
    """Compile the bundled model, run it on the host and on emulated boards."""
    from relax_aot.cli.demo import run_demo

    sys.exit(0 if run_demo(Path(output)) else DIFFERENT)


cli_progress.add_options([cli, *cli.commands.values()])


def main() -> int:
    """The exit code of the command line: every error that a user can cause is one message."""
    complete = "_RELAX_AOT_COMPLETE"

    def run(shown: cli_progress.Shown) -> object:
        return cli(standalone_mode=False, prog_name="relax-aot", complete_var=complete, obj=shown)

    return cli_streams.exit_code(run)
