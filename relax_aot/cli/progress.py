# SPDX-License-Identifier: Apache-2.0
"""Progress on standard error: a bar on a terminal, otherwise lines.

Short work prints nothing. `-v` prints every step with its time, `--quiet` prints none.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from relax_aot.progress import LOG

SILENT_SECONDS = 1.0
"""Work below this time prints no progress."""
SECONDS_BETWEEN_LINES = 5.0
QUIET, NORMAL, VERBOSE = "quiet", "normal", "verbose"


class Shown(logging.Handler):
    """Prints steps while they are logged. A context manager that restores the log."""

    def __init__(self, manner: str = NORMAL) -> None:
        super().__init__(logging.DEBUG)
        self.manner = manner
        self._begin = time.monotonic()
        self._last_line = self._begin + SILENT_SECONDS - SECONDS_BETWEEN_LINES
        self._bar: Progress | None = None
        self._task: Any = None
        self._level = LOG.level

    def __enter__(self) -> Shown:
        LOG.addHandler(self)
        LOG.setLevel(logging.DEBUG)
        return self

    def __exit__(self, *_: object) -> None:
        LOG.removeHandler(self)
        LOG.setLevel(self._level)
        self._erase()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "raot_finished", False):
            self._erase()
            return
        elapsed = time.monotonic() - self._begin
        of = getattr(record, "raot_of", None)
        done = getattr(record, "raot_done", None)
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            if self.manner != QUIET:
                self._erase()
                click.echo(f"note: {text}", err=True)
        elif self.manner == VERBOSE:
            click.echo(f"{elapsed:8.2f} s  {_counted(text, done, of)}", err=True)
        elif self.manner == QUIET or record.levelno < logging.INFO or elapsed < SILENT_SECONDS:
            return
        elif sys.stderr.isatty():
            self._draw(text, done, of)
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            click.echo(f"{elapsed:.0f} s: {_counted(text, done, of)}", err=True)

    def _erase(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, text: str, done: int | None, of: int | None) -> None:
        if self._bar is None:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
            )
            console = Console(stderr=True, markup=False, highlight=False)
            # With redirection, results would go to standard error.
            self._bar = Progress(
                *columns,
                console=console,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        self._bar.update(self._task, description=text, completed=done or 0, total=of)


def _counted(text: str, done: int | None, of: int | None) -> str:
    return text if done is None or of is None else f"{text} ({done} of {of})"


def add_options(commands: Iterable[click.Command]) -> None:
    """Add `-v` and `--quiet` to each command; they change the surrounding `Shown`."""
    for command in commands:
        command.params += [
            _flag("-v", "--verbose", VERBOSE, help="Print every step with its time."),
            _flag("--quiet", QUIET, help="Print no progress."),
        ]


def _flag(*names: str, help: str) -> click.Option:
    return click.Option(names, is_flag=True, expose_value=False, callback=_choose, help=help)


def _choose(context: click.Context, option: click.Parameter, chosen: bool) -> None:
    shown = context.find_root().obj
    if chosen and isinstance(shown, Shown):
        assert option.name is not None
        shown.manner = option.name
