# SPDX-License-Identifier: Apache-2.0
"""Progress of long work, logged to the logger `relax_aot`: silent by default.

The command line shows it (cli_progress.py); a program that imports us may, with a handler of its
own. A line of INFO is a step that people wait for, one of DEBUG a detail.
"""

from __future__ import annotations

import logging

LOG = logging.getLogger("relax_aot")
LOG.addHandler(logging.NullHandler())


def step(what: str, done: int | None = None, of: int | None = None) -> None:
    """Said when the step begins; `done` of `of` equal parts of the work are behind."""
    LOG.info(what, extra={"raot_done": done, "raot_of": of})


def detail(what: str) -> None:
    LOG.debug(what)


def note(what: str) -> None:
    """A decision of ours that a user may want otherwise, with the option for that."""
    LOG.warning(what)


def finished() -> None:
    """The work is done, and what comes of it may be printed."""
    LOG.info("", extra={"raot_finished": True})
