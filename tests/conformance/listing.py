"""What is refused and why: kept beside the tests, shown as docs/reference/conformance.md.

`python -m tests.conformance.listing` tries every case anew and writes both;
`python -m tests.conformance.listing REGEX` only the cases whose names match.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case, all_cases, cases_of
from tests.conformance.running import (
    STRETCHED,
    Outcome,
    compiled_apart,
    compiled_fixed,
    compiled_symbolic,
)
from tests.conformance.symbols import Symbolic, apart, opened
from tests.conftest import ROOT

DATA = Path(__file__).with_name("refusals.json")
PAGE = ROOT / "docs" / "reference" / "conformance.md"
MODES: dict[str, tuple[tuple[str, ...], Callable[[Case], Outcome | None]]] = {
    "fixed": (("core", "extended"), compiled_fixed),
    "symbolic": (("core",), compiled_symbolic),
    "apart": (("core",), compiled_apart),
}
"""The classes that each mode takes, and what tells the fate of a case without its C."""
TITLES = {
    "fixed": "With the sizes that the cases have",
    "symbolic": "With every axis a symbol",
    "apart": "With every axis a symbol of its own",
}
OPENED: dict[str, Callable[[Case], Symbolic | None]] = {"symbolic": opened, "apart": apart}
"""How axes become symbols; None where a case has none."""

INTRODUCTION = """
# Conformance

Made by `python -m tests.conformance.listing`. The backend cases that the package `onnx` {version}
carries are compiled to C, built with AddressSanitizer and UndefinedBehaviorSanitizer, run, and
compared with what the package expects, as closely as its own runner does. `tests/conformance` does
it, and fails where a result is wrong or where this page is not what happens. *core* are numeric
tensors; *extended* are element types that no small core computes with, and classical machine
learning.

With every axis a symbol (axes of one size share one), a case is compiled once for sizes up to twice
its own, and run at its own sizes, with every size 1, and at the bounds; there ONNX Runtime or
ONNX's reference says what is right, and where a model does not allow such sizes the C must say so.
With every axis a symbol of its own (*apart*), weights and lists of sizes too, it is the same, where
of the other sizes lists and weights keep theirs. A size of 1 that only run time knows is not
stretched to another, which ends with a status.

Together they take 31 minutes of one core (40 cases share a build), `pytest -n 2 -m long
tests/conformance` 16 minutes of two; the gate takes a small part.

| sizes | class | cases | right | of these with a bound that the compiler asked for | refused |
|---|---|---|---|---|---|
"""

Listing = dict[str, Any]


def read() -> Listing:
    listing: Listing = json.loads(DATA.read_text(encoding="utf-8"))
    return listing


def reason_of(message: str) -> str:
    """A refusal without the names of the case's own values."""
    lines = message.splitlines()
    told = [line.strip() for line in lines if line.startswith("  ")] or lines[:1]
    reasons = [re.sub(r"^\S+ \(([\w.]+)\): ", r"\1: ", line) for line in told]
    return "; ".join(dict.fromkeys(_nameless(reason) for reason in reasons))


def _nameless(text: str) -> str:
    """Values of an expanded function have long names that tell a reader nothing."""
    text = re.sub(r"'[^']*'", "...", text)
    return re.sub(r"\b\w+_function_\w+|\b\w{24,}\b", "...", text)


def tried(mode: str, pattern: str = "") -> Iterator[Outcome]:
    """The fate of each case whose name matches, where the mode takes it at all."""
    scopes, attempt = MODES[mode]
    for case in cases_of(*scopes):
        if re.search(pattern, case.name):
            outcome = attempt(case)
            if outcome is not None and outcome.kind not in ("pass", "refused"):
                raise AssertionError(f"{outcome.name}: {outcome.kind}: {outcome.detail}")
            if outcome is not None:
                yield outcome


def updated(listing: Listing, mode: str, outcomes: Sequence[Outcome]) -> None:
    part = listing.setdefault(mode, {"cases": {}, "refused": {}, "bounded": []})
    bounded = set(part["bounded"])
    for outcome in outcomes:
        before = part["refused"].pop(outcome.name, None)
        bounded.discard(outcome.name)
        if outcome.kind == "refused":
            part["refused"][outcome.name] = reason_of(outcome.detail)
        elif before == STRETCHED:
            part["refused"][outcome.name] = before
        elif outcome.bounds:
            bounded.add(outcome.name)
    part["refused"] = dict(sorted(part["refused"].items()))
    part["bounded"] = sorted(bounded)


def page(listing: Listing) -> str:
    """The page in Markdown."""
    out = Counter(case.why for case in all_cases().values() if case.scope == "out")
    lines = [INTRODUCTION.format(version=listing["onnx"]).strip()]
    lines += [_row(listing, mode, scope) for mode, (scopes, _) in MODES.items() for scope in scopes]
    left = ", ".join(f"{why} ({count})" for why, count in sorted(out.items()))
    lines += ["", f"Not taken, {out.total()} cases: {left}."]
    for mode in MODES:
        lines += ["", f"## {TITLES[mode]}", "", *_reasons(listing[mode]["refused"])]
    return "\n".join(lines) + "\n"


def _row(listing: Listing, mode: str, scope: str) -> str:
    part = listing[mode]
    total = part["cases"][scope]
    cases = all_cases()
    refused = sum(cases[name].scope == scope for name in part["refused"])
    bounded = sum(cases[name].scope == scope for name in part["bounded"])
    return f"| {mode} | {scope} | {total} | {total - refused} | {bounded} | {refused} |"


def _reasons(refused: dict[str, str]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in refused.items():
        by_reason[reason].append(name)
    yield "| cases | why they are refused |"
    yield "|---|---|"
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = reason.replace("|", "\\|")
        yield f"| {', '.join(f'`{name}`' for name in names)} | {shown} |"


def sizes_of_modes() -> dict[str, dict[str, int]]:
    """How many cases each mode takes of each class."""
    counts: dict[str, dict[str, int]] = {}
    for mode, (scopes, _) in MODES.items():
        taken = cases_of(*scopes)
        if mode in OPENED:
            taken = [case for case in taken if OPENED[mode](case) is not None]
        counts[mode] = {scope: sum(case.scope == scope for case in taken) for scope in scopes}
    return counts


def main(pattern: str = "") -> None:
    import onnx

    listing = read() if DATA.exists() else {}
    listing["onnx"] = onnx.__version__
    for mode in MODES:
        updated(listing, mode, list(tried(mode, pattern)))
    for mode, counts in sizes_of_modes().items():
        listing[mode]["cases"] = counts
    DATA.write_text(json.dumps(listing, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(listing), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
