# SPDX-License-Identifier: Apache-2.0
"""The tool in the process of the tests: a start of its own takes most of a second.

`main` is the whole command line, streams and exit codes included. What differs between processes
(the environment, signals, closed descriptors) is tested with processes.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from relax_aot.cli.main import main


def relax_aot(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tool in `folder`. An error without a message of ours is raised here."""
    command = ["relax-aot", *map(str, arguments)]
    with (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8") as out,
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8") as err,
    ):
        argv = patch.object(sys, "argv", command)
        with chdir(folder), redirect_stdout(out), redirect_stderr(err), argv:
            code = main()
        return subprocess.CompletedProcess(command, code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
