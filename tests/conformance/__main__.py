# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of the `onnx` package whose names match:
`python -m tests.conformance [--mode MODE] [--every N] REGEX`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from tests.conformance.cases import cases_of
from tests.conformance.listing import MODES
from tests.conformance.test_conformance import faults, outcomes_of

BATCH = 20
"""Cases that share a build."""


def main(pattern: str, modes: Sequence[str], every: int) -> int:
    """Print what became of each case in each mode; 1 if one is wrong or none matches."""
    outcomes = []
    for mode in modes:
        scopes, _ = MODES[mode]
        cases = [case for case in cases_of(*scopes)[::every] if re.search(pattern, case.name)]
        for first in range(0, len(cases), BATCH):
            for outcome in outcomes_of(mode, cases[first : first + BATCH]):
                told = f"{mode:8}  {outcome.name}: {outcome.kind}  {outcome.detail}"
                sys.stdout.write(told.rstrip() + "\n")
                sys.stdout.flush()
                outcomes.append(outcome)
    if not outcomes:
        sys.stdout.write(f"no case matches {pattern!r}\n")
    return 1 if faults(outcomes) or not outcomes else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--mode", action="append", choices=list(MODES))
    parser.add_argument("--every", type=int, default=1, help="one case of so many")
    parser.add_argument("pattern", metavar="REGEX", nargs="?", default="")
    given = parser.parse_args()
    sys.exit(main(given.pattern, given.mode or list(MODES), given.every))
