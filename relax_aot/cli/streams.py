# SPDX-License-Identifier: Apache-2.0
"""How the command line ends: one message on standard error, and an exit code.

Standard streams may be closed, full or a broken pipe. An answer that cannot be written completely
is an error with one line on standard error; a message that cannot be written is dropped, and the
exit code remains.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

import click

from relax_aot.cli.output import INTERRUPTED, TOOL_MISSING, USER_ERROR
from relax_aot.cli.progress import Shown
from relax_aot.errors import RelaxAotError

STDERR = 2


def exit_code(run: Callable[[Shown], object]) -> int:
    """Run a command line; what it ends with, after everything has been written."""
    before = sys.stdout, sys.stderr
    guard()
    try:
        code = _ended(run)
        sys.stdout.flush()
    except OutputLost as error:
        code = _said(error)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        code = INTERRUPTED
    finally:
        sys.stdout, sys.stderr = before
    return code


def _ended(run: Callable[[Shown], object]) -> int:
    try:
        with Shown() as shown:
            code = run(shown)
    except click.ClickException as error:
        error.show()
        return USER_ERROR
    except click.Abort:
        raise KeyboardInterrupt from None
    except (RelaxAotError, OSError) as error:
        return _said(error)
    except SystemExit as end:
        code = end.code
    return code if isinstance(code, int) else int(code is not None)


def _said(error: Exception) -> int:
    click.echo(f"relax-aot: {type(error).__name__}: {error}", err=True)
    for note in getattr(error, "__notes__", ()):
        click.echo(f"  {note}", err=True)
    return TOOL_MISSING if getattr(error, "tool_missing", False) else USER_ERROR


class OutputLost(RelaxAotError):
    """Standard output does not take the answer."""


class Guarded(io.TextIOBase):
    """A standard stream whose errors are `OutputLost`, or nothing where `dropped`."""

    def __init__(self, stream: TextIO, *, closed: bool, dropped: bool) -> None:
        self._stream = stream
        self._lost = "it is closed" if closed else ""
        """Why nothing more is written."""
        self._dropped = dropped

    def write(self, text: str) -> int:
        if type(text) is not str:  # click tries empty bytes and texts to learn what this takes
            raise TypeError("standard output takes text")
        try:
            if text and not self._lost:
                self._stream.write(text)
        except OSError as error:
            self._end(error)
        self._require_kept(text)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)
            self._require_kept("what was buffered")

    def _end(self, error: OSError) -> None:
        self._lost = error.strerror or str(error)
        # What is left in the buffer goes nowhere, also when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def _require_kept(self, text: str) -> None:
        if text and self._lost and not self._dropped:
            raise OutputLost(f"cannot write to standard output: {self._lost}")

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return not self._lost and self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a plain attribute in the stubs
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # as above
        return self._stream.errors

    @property
    def buffer(self) -> Any:
        return self._stream.buffer


def guard() -> None:
    """Put guards before both standard streams. A descriptor that is closed is taken by
    /dev/null, so that no file that is opened later has its number."""
    for descriptor in range(STDERR + 1):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = _guarded(sys.stdout, dropped=False)
    sys.stderr = _guarded(sys.stderr, dropped=True)


def _guarded(stream: TextIO | None, *, dropped: bool) -> Guarded:
    """Python has no stream where the descriptor was closed."""
    if stream is not None:
        return Guarded(stream, closed=False, dropped=dropped)
    return Guarded(io.StringIO(), closed=True, dropped=dropped)
