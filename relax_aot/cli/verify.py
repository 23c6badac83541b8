# SPDX-License-Identifier: Apache-2.0
"""The options --farm, --labels and --per-value of `verify`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from relax_aot import driver
from relax_aot.cli.entries import load
from relax_aot.cli.output import DIFFERENT, write_json
from relax_aot.project.board import load_board
from relax_aot.verify.compare import Tolerance

if TYPE_CHECKING:
    from relax_aot.verify.job import Result


def verify_farm(
    models: Sequence[str],
    boards: Sequence[str],
    at: Sequence[str],
    chosen: dict[str, Any],
    reference: str | None,
    tolerance: Tolerance | None,
    farm: tuple[str | None, int | None, int],
    json_file: str | None,
) -> NoReturn:
    """Verify all models on all boards at all sizes; `farm` is scheduler, workers and retries."""
    from relax_aot.cli.farm import answers_json, print_answers, run_farm, tasks_of

    pair = None if tolerance is None else (tolerance.rtol, tolerance.atol)
    answers = run_farm(tasks_of(models, boards, at, chosen, reference, pair), *farm)
    if json_file:
        write_json(answers_json(answers), json_file)
    if json_file != "-":
        print_answers(answers)
    sys.exit(0 if all(answer.ok for answer in answers) else DIFFERENT)


def labels_of(path: str | None, arrays: Mapping[str, Any]) -> Any:
    """Read the labels of the samples in `arrays`."""
    if path is None:
        return None
    if not arrays:
        raise click.UsageError("--labels needs samples: add --inputs FILE.npz")
    from relax_aot.verify.against_float import read_labels

    return read_labels(Path(path))


def verify_values(
    model: str,
    boards: Sequence[str],
    options: driver.Options,
    sizes: Sequence[Mapping[str, int]],
    arrays: dict[str, Any],
    tolerance: Tolerance | None,
    reference: str,
) -> NoReturn:
    """Print the first intermediate value that differs."""
    from relax_aot.diagnose.values import first_differences
    from relax_aot.verify.onnx_values import OnnxValues

    if reference not in ("numpy", "onnxruntime"):
        raise click.UsageError(
            f"--per-value supports the references numpy and onnxruntime, not {reference}"
        )
    module, _ = driver.coded(driver.load(model, options), options)
    outside = OnnxValues(model, options.fix, module) if reference == "onnxruntime" else None
    found = first_differences(module, boards, options, sizes, arrays, tolerance, outside)
    for line in found.lines:
        click.echo(line)
    sys.exit(0 if found.ok else DIFFERENT)


def verify_one(
    model: str | Mapping[str, str] | Path,
    boards: Sequence[str],
    options: driver.Options,
    dump: str | None,
    reference: str | None,
    labels: str | None,
    run: dict[str, Any],
) -> Result:
    """Verify one model, or several entries; `run` holds the fields of a `Job` that are options."""
    from relax_aot.verify.job import Job, run_job

    common = {"fix": options.fix, "state": options.state, **run}
    common["reference"] = reference or ("numpy" if options.quantize else None)
    if not isinstance(model, str):
        entries = load(model, options)
        several = [
            driver.compile_entries(entries, load_board(name), options, dump) for name in boards
        ]
        sources = {} if isinstance(model, Path) else model
        return run_job(Job(source=sources, projects=tuple(several), **common))
    if run["port"] is not None and (len(boards) != 1 or boards[0] == "host"):
        raise click.UsageError("--serial needs exactly one board other than host: add --board NAME")
    return run_job(
        Job(
            source=model,
            projects=driver.compile_for(model, boards, options, dump),
            float_module=driver.load(model, options) if options.quantize else None,
            labels=labels_of(labels, run["inputs"]),
            **common,
        )
    )
