# SPDX-License-Identifier: Apache-2.0
"""What all tests share: the repository's root, the models outside it, and no silent skips.

A missing tool skips a test with a reason, so that one can work on a bare machine. Where
`RELAX_AOT_NO_SKIPS=1` or `CI=true` says that everything ought to be here, a skip whose reason
is not in `ALLOWED_SKIPS` is a failure instead.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from relax_aot.verify import host

ROOT = Path(__file__).resolve().parents[1]

NO_SHARED_MODELS = "the folder ../shared/models is not here"
NO_CUDA = "the extra [cuda] is not installed"
NO_NVCC = "nvcc is not installed"
RANDOM_ADDRESSES = "the sandbox refuses a fixed layout of memory"
NO_BROWSER = "no Chromium is installed"
NO_FRAMA_C = "Frama-C is not installed"
NO_TORCH = "the extra [torch] is not installed"
NO_TRANSFORMERS = "torch and transformers are not installed"

# Beginnings of the reasons for which a test may be skipped on any machine.
ALLOWED_SKIPS = (
    "NNSmith is not installed",
    "ai-edge-litert is not installed",
    "footprint.txt was measured with other compilers",
    "no GPU here",
    NO_BROWSER,
    NO_CUDA,
    NO_NVCC,
    RANDOM_ADDRESSES,
    NO_FRAMA_C,
    NO_SHARED_MODELS,
    NO_TORCH,
    NO_TRANSFORMERS,
    "packagings are also checked by",
    "the project has code for x86-64 processors",
    "this processor has no",
)

# What these folders test does not depend on the optimization of C for this machine, which takes
# three quarters of a build. All other folders build it as it is shipped.
QUICK = (
    "diagnose", "emit", "externs", "frontends", "fusion", "inference", "planning", "quantization",
    "transforms", "verify",
)  # fmt: skip
# The gate builds these folders likewise, except for some files. `make test-all` builds them as
# they are shipped.
QUICK_IN_THE_GATE = ("cli", "cuda", "end_to_end", "report")
# The same, but with the vectors of this machine, which these tests are about.
VECTORS_IN_THE_GATE = ("scheduling",)
AS_SHIPPED = ("end_to_end/test_equal.py", "end_to_end/test_projects.py")
QUICK_FLAGS = (
    "-O0", "-ffp-contract=off", "-DRAOT_CONTRACTION_OFF", "-fno-strict-aliasing",
)  # fmt: skip
# Quick builds have no instructions of this machine, whose intrinsics take long to read, and no
# optimizer behind sanitizers, which takes two thirds of their build. `make test-all` has both.
WHOLE_FLAGS = ("-march=native", *QUICK_FLAGS)


def unoptimized(flags: Sequence[str]) -> tuple[str, ...]:
    return tuple("-O0" if flag == "-O1" else flag for flag in flags)


# Nor messages of undefined behavior, which take a quarter of it: the program just ends.
SANITIZE_FLAGS = (*unoptimized(host.SANITIZE_FLAGS), "-fsanitize-undefined-trap-on-error")

# Folders and files whose tests take long, as they have many cases of one kind. The gate runs one
# case in so many of each test with parameters, beginning with the first; `make test-all` runs all.
# The numbers are primes, so that cases of two parameters meet in many ways. Files that are named on
# the command line run whole.
SAMPLED = {
    "cli": 5,
    "cuda": 11,
    "cuda/test_figures.py": 101,
    "emit": 11,
    "emulation": 5,
    "emulation/test_cycles.py": 11,
    "end_to_end": 11,
    "examples": 3,
    "externs/test_mixtures.py": 3,
    "frontends/llm": 7,
    "frontends/test_tflite_contraction.py": 3,
    "frontends/test_tflite_hybrid.py": 3,
    "frontends/test_tflite_integer_lstm.py": 5,
    "frontends/test_tflite_models.py": 3,
    "frontends/test_tflite_movement.py": 3,
    "frontends/test_tflite_operators.py": 3,
    "frontends/test_tflite_reduction.py": 3,
    "golden": 7,
    "ir/test_text_of_models.py": 3,
    "microkernels": 11,
    "microkernels/test_on_boards.py": 29,
    "ops/test_every_op.py": 13,
    "planning": 7,
    "pruning": 3,
    "project": 11,
    "quantization": 7,
    "quantization/test_recurrent.py": 41,
    "report": 5,
    "runtime_c": 5,
    "scheduling": 11,
    "scheduling/devices": 11,
    "scheduling/test_integer.py": 29,
    "scheduling/test_phases.py": 29,
    "scheduling/test_register_blocks.py": 29,
    "test_skips.py": 2,
    "transforms": 7,
    "trust": 11,
    "verify": 7,
}

# By far the longest test of the gate: another process has nothing to do if it comes last.
FIRST = "tests/test_repository.py::test_types_are_right"

# 15,000 tests live as long as the process: searching them for garbage after each 700 objects would
# take a tenth of all time.
gc.set_threshold(100_000, 20, 20)

# The same examples in every run, and no time limit: the machine may be busy.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the projects in tests/golden"
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Workers of `-n auto`: one for each core, but none where the command line names files.

    The start of workers would take longer than the tests of these files.
    """
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return len(os.sched_getaffinity(0)) if whole else 0


def clang_format() -> str:
    """clang-format 14, of this environment or of the system. Other versions format otherwise."""
    folder = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    for name in ("clang-format", "clang-format-14"):
        program = shutil.which(name, path=folder)
        if program is not None:
            said = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=True
            )
            if " version 14." in said.stdout:
                return program
    pytest.skip("clang-format 14 is not installed")


@pytest.fixture(autouse=True)
def quick_builds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick builds for the host where a folder's subject allows them."""
    chosen = request.config.getoption("markexpr")
    if chosen:
        monkeypatch.setattr("relax_aot.verify.host.SANITIZE_FLAGS", SANITIZE_FLAGS)
    if not request.path.is_relative_to(ROOT / "tests"):
        return  # a sample of the tests of this file
    path = request.path.relative_to(ROOT / "tests")
    gate = chosen == "not long" and path.as_posix() not in AS_SHIPPED
    vectors = gate and path.parts[0] in VECTORS_IN_THE_GATE
    if vectors or path.parts[0] in (*QUICK, *(QUICK_IN_THE_GATE if gate else ())):
        flags = QUICK_FLAGS if chosen and not vectors else WHOLE_FLAGS
        for module in ("host", "figures"):
            monkeypatch.setattr(f"relax_aot.verify.{module}.OPTIMISE_FLAGS", flags)
    if chosen and path.parts[0] == "cuda":
        from tests.cuda import shim

        monkeypatch.setattr(shim, "FLAGS", unoptimized(shim.FLAGS))
    if gate:
        monkeypatch.setattr("relax_aot.verify.cuda.OPTIMIZED", ())
        if path.parts[0] == "microkernels":
            monkeypatch.setattr("tests.microkernels.calls.VECTORS", "-O0")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether what is generated now becomes what is committed."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """Real models that are too large or not ours to commit."""
    folder = ROOT.parent / "shared" / "models"
    if not folder.is_dir():
        pytest.skip(NO_SHARED_MODELS)
    return folder


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that takes minutes is also slow: `-m "not slow"` leaves it out."""
    if item.get_closest_marker("long"):
        item.add_marker("slow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks as long what is in no sample, before tests are chosen by their marks. Whoever names
    files or tests runs all their cases. Names of tests are those of every process: workers compare
    them."""
    if named_by_address := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(
            f"the address of an object is no name of a test: {named_by_address}"
        )
    whole = [config.rootpath / one for one in config.args] == [ROOT / "tests"]
    if not whole or config.getoption("keyword"):
        return
    items.sort(key=lambda item: item.nodeid != FIRST)
    cases = Counter[str]()
    for item in items:
        if not hasattr(item, "callspec") or item.get_closest_marker("long"):
            continue
        test = item.nodeid.partition("[")[0]
        if cases[test] % sampled(item.path):
            item.add_marker("long")
            item.add_marker("slow")
        cases[test] += 1


def pytest_collection_finish() -> None:
    """What is there now stays: it is not searched for garbage again."""
    gc.collect()
    gc.freeze()


@cache
def sampled(file: Path) -> int:
    """One case in how many of a test in the file is in the gate."""
    if not file.is_relative_to(ROOT / "tests"):
        return 1
    path = file.relative_to(ROOT / "tests")
    own = (one.as_posix() for one in (path, path.parent))
    return next((SAMPLED[one] for one in own if one in SAMPLED), 1)


def refuse_skip(report: pytest.TestReport | pytest.CollectReport, reason: str | None) -> None:
    """Turn a skip into a failure where everything ought to be here."""
    strict = os.environ.get("RELAX_AOT_NO_SKIPS") == "1" or os.environ.get("CI") == "true"
    if strict and reason is not None and not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = (
            f"unexpected skip: {reason}\n"
            "RELAX_AOT_NO_SKIPS or CI is set, so every tool ought to be here; `relax-aot doctor` "
            "says what is missing, and tests/conftest.py lists the reasons that are allowed."
        )


def skip_reason(call: pytest.CallInfo[object] | None) -> str | None:
    exception = call.excinfo.value if call is not None and call.excinfo is not None else None
    return (exception.msg or "") if isinstance(exception, pytest.skip.Exception) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report, skip_reason(call))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report, skip_reason(getattr(report, "call", None)))
    return report
