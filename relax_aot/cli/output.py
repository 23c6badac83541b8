# SPDX-License-Identifier: Apache-2.0
"""Results of commands: JSON and exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from relax_aot.errors import RelaxAotError

if TYPE_CHECKING:
    from relax_aot.verify.job import Result

DIFFERENT, USER_ERROR, TOOL_MISSING, INTERRUPTED = 1, 2, 3, 130


def end_verify(result: Result, json_file: str | None) -> NoReturn:
    """Print the result, write it as JSON, and exit."""
    from relax_aot.verify.table import print_result

    if json_file:
        write_json(result.as_json(), json_file)
    if json_file != "-":
        print_result(result)
    sys.exit(0 if result.ok else DIFFERENT)


def write_json(value: object, target: str) -> None:
    text = json.dumps(value, indent=1)
    if target == "-":
        click.echo(text)
        return
    try:
        Path(target).write_text(text + "\n")
    except OSError as error:
        raise RelaxAotError(f"cannot write {target}: {error.strerror}") from None
