# SPDX-License-Identifier: Apache-2.0
"""The backend cases of the `onnx` package through C under the sanitizers.

The gate takes every so many cases; the whole of all modes is `long`. Where another version
of `onnx` than the list's is installed its cases may be others, so that only faults count.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import onnx
import pytest

from tests.conformance import listing
from tests.conformance.cases import Case
from tests.conformance.running import GPU, Outcome, run_fixed, run_symbolic
from tests.conftest import ROOT

BATCHES = 40
"""Parts of the whole, each one library of C."""
GATE_STEP = {"fixed": 300, "symbolic": 300, "apart": 300, "gpu": 140}
"""The gate takes one case of so many, ..."""
ALWAYS = {
    "fixed": (
        "test_pow_types_int32_float32",
        "test_reduce_log_sum_exp_empty_set_expanded",
        "test_resize_upsample_sizes_nearest_not_larger",
    ),
    "symbolic": (
        "test_attention_3d_with_past_and_present_qk_matmul_softcap_expanded",
        "test_linear_attention_gated_per_head_decay",
        "test_reshape_allowzero_reordered",
    ),
    "apart": ("test_unsqueeze_two_axes", "test_gathernd_example_int32", "test_and_bcast4v4d"),
    "gpu": (),
}
"""... and those that showed a fault once, ..."""
REFUSED_STEP = {"fixed": 12, "symbolic": 12, "apart": 24, "gpu": 24}
"""... and one of so many that are refused."""


@pytest.fixture(scope="module")
def known() -> listing.Listing:
    return listing.read()


def outcomes_of(mode: str, cases: Sequence[Case]) -> list[Outcome]:
    if mode == "fixed":
        return run_fixed(cases)
    made = listing.OPENED[mode]
    opened = [found for case in cases if (found := made(case)) is not None]
    return run_symbolic(opened, GPU if mode == "gpu" else "host")


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{o.name}: {o.kind}: {o.detail}" for o in outcomes if o.kind not in ("pass", "refused")
    ]


def differences(mode: str, outcomes: Sequence[Outcome], known: listing.Listing) -> list[str]:
    """Where the published list is not what happened."""
    if onnx.__version__ != known["onnx"]:
        return []
    refused = known[mode]["refused"]
    found = []
    for outcome in outcomes:
        reason = listing.reason_of(outcome.detail) if outcome.kind == "refused" else None
        if reason != refused.get(outcome.name):
            found.append(f"{outcome.name}: listed {refused.get(outcome.name)!r}, now {reason!r}")
        if bool(outcome.bounds) != (outcome.name in known[mode]["bounded"]):
            found.append(f"{outcome.name}: asks for the bounds {outcome.bounds}")
    return found


def check(mode: str, cases: Sequence[Case], known: listing.Listing) -> None:
    outcomes = outcomes_of(mode, cases)
    assert not faults(outcomes)
    assert not differences(mode, outcomes, known), "see tests/conformance/listing.py"


@pytest.mark.slow
@pytest.mark.parametrize("mode", listing.MODES)
def test_some_cases_are_right_or_refused_as_listed(mode: str, known: listing.Listing) -> None:
    cases = listing.taken(mode)
    chosen = cases[:: GATE_STEP[mode]]
    refused = list(known[mode]["refused"])[:: REFUSED_STEP[mode]]
    wanted = {*ALWAYS[mode], *refused} - {case.name for case in chosen}
    check(mode, chosen + [case for case in cases if case.name in wanted], known)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("mode", listing.MODES)
def test_all_cases_are_right_or_refused_as_listed(
    mode: str, batch: int, known: listing.Listing
) -> None:
    check(mode, listing.taken(mode)[batch::BATCHES], known)


@pytest.mark.slow
@pytest.mark.long
def test_a_case_runs_by_its_name() -> None:
    command = [sys.executable, "-m", "tests.conformance"]
    one = subprocess.run([*command, "softplus$"], cwd=ROOT, capture_output=True, text=True)
    assert one.returncode == 0 and one.stdout.count("test_softplus: pass") == len(listing.MODES)
    none = subprocess.run([*command, "no_such_case"], cwd=ROOT, capture_output=True, text=True)
    assert none.returncode == 1 and "no case matches 'no_such_case'" in none.stdout


@pytest.mark.slow
def test_the_page_shows_the_list(known: listing.Listing) -> None:
    assert listing.PAGE.read_text(encoding="utf-8") == listing.page(known)
    if onnx.__version__ == known["onnx"]:
        assert listing.sizes_of_modes() == {mode: known[mode]["cases"] for mode in listing.MODES}
