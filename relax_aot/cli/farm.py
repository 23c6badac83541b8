# SPDX-License-Identifier: Apache-2.0
"""Many verifications at once: models x boards x sizes over cores and machines.

By dask.distributed. A task carries its model's files, so machines need share nothing but this
package and its tools. What a user can mend (a bound, a tool) is that task's answer; what took a
worker down is tried again elsewhere.
"""

from __future__ import annotations

import importlib
import itertools
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from relax_aot import driver
from relax_aot.cli.options import options_of, parse_at
from relax_aot.errors import RelaxAotError
from relax_aot.progress import finished, step
from relax_aot.toolchain.tools import EXTRA, ToolMissing
from relax_aot.verify.compare import Tolerance
from relax_aot.verify.job import Job, default_reference, run_job

SPELLED = ("bound", "fix", "state", "assume", "window", "keep_float")
"""Options of a model that are lists of texts."""
CHOSEN = ("optimize", "name", "quantize", "weights", "numerics")
RETRIES = 2
WIDTH = 160
"""Columns of the table in a file."""


class FarmError(RelaxAotError):
    """A list of models that cannot be read, or a scheduler that does not answer."""


@dataclass(frozen=True)
class Task:
    """One model on one board at some sizes (all that are usual where empty). `options` are the
    command line's, as texts."""

    model: str
    files: Mapping[str, bytes]
    board: str
    at: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: str | None = None
    tolerance: tuple[float, float] | None = None
    """Relative and absolute; None: the error model."""


@dataclass(frozen=True)
class Answer:
    """`result` has the schema of `verify --json`; without a result, `error` gives the reason."""

    task: Task
    result: Mapping[str, Any] | None
    error: str
    where: str
    tries: int

    @property
    def ok(self) -> bool:
        return self.result is not None and bool(self.result["ok"])


def tasks_of(
    models: Sequence[str],
    boards: Sequence[str],
    at: Sequence[str],
    options: Mapping[str, Any],
    reference: str | None = None,
    tolerance: tuple[float, float] | None = None,
) -> list[Task]:
    """Models may be lists (`.toml`), whose entries bring options of their own."""
    tasks = []
    for path, own in itertools.chain.from_iterable(_entries(model) for model in models):
        files = _files(path)
        merged: dict[str, Any] = {
            key: (*options.get(key, ()), *own.get(key, ())) for key in SPELLED
        }
        merged |= {k: own.get(k, options.get(k)) for k in CHOSEN if own.get(k, options.get(k))}
        sizes = tuple(own.get("at", ())) or tuple(at)
        for board in own.get("board", ()) or boards:
            each: list[tuple[str, ...]] = [(size,) for size in sizes]
            for some in each or [()]:
                tasks.append(Task(path.name, files, board, some, merged, reference, tolerance))
    return tasks


def _entries(model: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    path = Path(model)
    if path.suffix != ".toml":
        yield path, {}
        return
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FarmError(f"cannot read the list {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FarmError(f"cannot read the list {path}: {error}") from None
    entries = data.get("model")
    if not isinstance(entries, list) or set(data) != {"model"}:
        raise FarmError(f"{path}: expected tables [[model]] and nothing else")
    for number, entry in enumerate(entries):
        _check_entry(path, number, entry)
        own = {key: value for key, value in entry.items() if key != "path"}
        yield path.parent / entry["path"], own


def _check_entry(path: Path, number: int, entry: Any) -> None:
    texts = (*SPELLED, "at", "board")
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        raise FarmError(f"{path}: model[{number}]: expected a table with a text `path`")
    for key, value in entry.items():
        good = (
            isinstance(value, list) and all(isinstance(v, str) for v in value)
            if key in texts
            else isinstance(value, str)
        )
        if not good or key not in (*texts, *CHOSEN, "path"):
            known = ", ".join(("path", *texts, *CHOSEN))
            raise FarmError(
                f"{path}: model[{number}].{key}: not a list of texts, or not of {known}"
            )


def _files(path: Path) -> dict[str, bytes]:
    """The model and what it reads besides: external data of ONNX, constants of a text."""
    beside = [path.with_suffix(".npz"), path.with_name("constants.npz")]
    names = [path.name, *(p.name for p in beside if path.suffix == ".raot" and p.exists())]
    try:
        names += _external(path) if path.suffix == ".onnx" else []
        return {name: (path.parent / name).read_bytes() for name in dict.fromkeys(names)}
    except OSError as error:
        raise FarmError(f"cannot read {error.filename or path}: {error.strerror}") from None


def _external(path: Path) -> list[str]:
    """Names of files next to the model; the compiler refuses other names."""
    import onnx

    decode_error: type[Exception] = importlib.import_module("google.protobuf.message").DecodeError
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except decode_error:
        return []
    named = {e.value for t in graph.initializer for e in t.external_data if e.key == "location"}
    return sorted(n for n in named if Path(n).name == n and (path.parent / n).is_file())


def run_task(task: Task) -> tuple[Mapping[str, Any] | None, str, str]:
    """On a worker: result, error, where."""
    where = f"{os.uname().nodename}:{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        folder = Path(scratch)
        for name, data in task.files.items():
            (folder / name).write_bytes(data)
        source = folder / task.model
        try:
            options = options_of(**{**dict.fromkeys((*SPELLED, "calibrate"), ()), **task.options})
            job = Job(
                source=str(source),
                projects=driver.compile_for(str(source), [task.board], options),
                fix=options.fix,
                state=options.state,
                at=tuple(parse_at(text) for text in task.at),
                reference=task.reference
                or ("numpy" if options.quantize else default_reference(str(source))),
                tolerance=Tolerance(*task.tolerance) if task.tolerance else None,
            )
            return run_job(job).as_json(), "", where
        except RelaxAotError as error:
            first = str(error).replace(str(folder) + os.sep, "")
            return None, f"{type(error).__name__}: {first}", where


def run_farm(
    tasks: Sequence[Task],
    scheduler: str | None = None,
    workers: int | None = None,
    retries: int = RETRIES,
) -> list[Answer]:
    """Answers in the tasks' order. Without the address of a scheduler, on this machine's cores."""
    distributed = _distributed()
    dask = importlib.import_module("dask")
    # A death of a worker comes back to us at once: we count the tries.
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        if scheduler is not None:
            try:
                client = distributed.Client(scheduler, timeout="10s")
            except (OSError, ValueError) as error:
                raise FarmError(f"no scheduler answers at {scheduler}: {error}") from None
            with client:
                return run_with(client, tasks, retries)
        with (
            distributed.LocalCluster(
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs="CRITICAL",
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            return run_with(client, tasks, retries)


def run_with(
    client: Any,
    tasks: Sequence[Task],
    retries: int = RETRIES,
    work: Callable[[Task], tuple[Mapping[str, Any] | None, str, str]] = run_task,
) -> list[Answer]:
    """By a client of dask.distributed that is already there."""
    futures = [client.submit(work, task, pure=False) for task in tasks]
    numbers = {future.key: number for number, future in enumerate(futures)}
    tries = [1] * len(tasks)
    answers: dict[int, Answer] = {}
    completed = _distributed().as_completed(futures)
    for future in completed:
        number = numbers[future.key]
        task = tasks[number]
        if future.status == "finished":
            result, error, where = future.result()
            answers[number] = Answer(task, result, error, where, tries[number])
        elif tries[number] <= retries:
            tries[number] += 1
            again = client.submit(work, task, pure=False)
            numbers[again.key] = number
            completed.add(again)
            step(f"{task.model} on {task.board}: its worker was lost; trying again")
        else:
            error = f"{type(future.exception()).__name__}: {future.exception()}"
            answers[number] = Answer(task, None, error, "", tries[number])
        step(f"{task.model} on {task.board}", len(answers), len(tasks))
    finished()
    return [answers[number] for number in range(len(tasks))]


def print_answers(answers: Sequence[Answer]) -> None:
    """One line for each task, then what went wrong in full."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = WIDTH
    table = Table()
    for column in ("model", "board", "sizes", "result", "worst", "instructions", "tries", "where"):
        left = column in ("model", "board", "sizes", "result", "where")
        table.add_column(column, justify="left" if left else "right")
    for answer in answers:
        task = answer.task
        sizes = "; ".join(task.at) or "usual"
        table.add_row(task.model, task.board, sizes, *_cells(answer), answer.where)
    console.print(table)
    wrong = [answer for answer in answers if not answer.ok]
    for answer in wrong:
        text = answer.error or "results differ; run verify on this model alone to see where"
        console.print(f"{answer.task.model} on {answer.task.board}: {text}")
    console.print(f"{len(answers) - len(wrong)} of {len(answers)} equal")


def _cells(answer: Answer) -> tuple[str, ...]:
    if answer.result is None:
        return "error", "-", "-", str(answer.tries)
    runs = [run for target in answer.result["targets"] for run in target["runs"]]
    worst = max((o["max_abs"] for run in runs for o in run["outputs"]), default=0.0)
    counts = [run["instructions"] for run in runs if run["instructions"] is not None]
    most = f"{max(counts):,}" if counts else "-"
    return "equal" if answer.ok else "DIFFERENT", f"{worst:.3g}", most, str(answer.tries)


def answers_json(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    return [
        {
            "model": answer.task.model,
            "board": answer.task.board,
            "at": list(answer.task.at),
            "ok": answer.ok,
            "error": answer.error,
            "where": answer.where,
            "tries": answer.tries,
            "result": answer.result,
        }
        for answer in answers
    ]


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise ToolMissing(
            f"--farm needs dask.distributed; install it with: {EXTRA.format('farm')}"
        ) from None
