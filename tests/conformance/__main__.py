# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of the `onnx` package whose names match: `python -m tests.conformance REGEX`."""

from __future__ import annotations

import re
import sys

from tests.conformance.cases import cases_of
from tests.conformance.listing import MODES
from tests.conformance.test_conformance import faults, outcomes_of


def main(pattern: str) -> int:
    """Print what became of each case in each mode; 1 if one is wrong or none matches."""
    outcomes = []
    for mode, (scopes, _) in MODES.items():
        cases = [case for case in cases_of(*scopes) if re.search(pattern, case.name)]
        for outcome in outcomes_of(mode, cases) if cases else ():
            told = f"{mode:8}  {outcome.name}: {outcome.kind}  {outcome.detail}"
            sys.stdout.write(told.rstrip() + "\n")
            outcomes.append(outcome)
    if not outcomes:
        sys.stdout.write(f"no case matches {pattern!r}\n")
    return 1 if faults(outcomes) or not outcomes else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.conformance REGEX")
    sys.exit(main(sys.argv[1]))
