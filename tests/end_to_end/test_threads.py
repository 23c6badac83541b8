# SPDX-License-Identifier: Apache-2.0
"""Runs with several threads: the bits of one thread, no data race, refused on other boards."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.evaluation.reference import evaluate
from relax_aot.fusion.checking.independence import private_scratch
from relax_aot.ir.axes import CORE
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import For, walk
from relax_aot.ir.parse import parse
from relax_aot.ir.text import to_text
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.scheduling import threads
from relax_aot.verify import job
from relax_aot.verify.host import HostModel, host_model
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.prove import ProofError, prove
from tests.models.encoder import encoder
from tests.models.every_kernel import SUBJECTS

DRIVER = Path(__file__).with_name("threads_driver.c")
SIZES = (1, 2, 7, 23, 24, 25, 39, 40)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of small models are shared."""
    monkeypatch.setattr(threads, "LEAST", 64)


def tiny(count: int, board: str = "host") -> rx.Project:
    model = encoder(width=64, heads=8, layers=1, hidden=64)
    bounds = {"n": 40, "batch": 1}
    return rx.compile(model, board=board, name="tiny", bounds=bounds, threads=count)


@pytest.mark.long
def test_results_have_the_bits_of_one_thread() -> None:
    one, three = tiny(1).host(), tiny(3).host()
    for n in SIZES:
        x = np.random.default_rng(n).normal(size=(1, n, 64)).astype(np.float32)
        assert one(x=x)["y"].tobytes() == three(x=x)["y"].tobytes()


def test_most_loops_are_shared_and_scratch_has_a_copy_for_each_thread() -> None:
    plan = tiny(3).built.plan
    assert sum(kernel.parallel for kernel in plan.kernels) >= len(plan.kernels) - 1
    copied = [
        (buffer, out)
        for function in plan.module.functions
        for call in function.body
        if call.op == "call_kernel"
        for kernel in [plan.module.kernel_table[call.ref("kernel")]]
        for buffer, out in zip(kernel.scratch, call.outs[len(kernel.outputs) :], strict=True)
        if buffer.scope == CORE
    ]
    assert copied
    for buffer, out in copied:
        assert out.type.bytes == 3 * buffer.type.bytes


@pytest.mark.slow
def test_every_stage_parses_back(tmp_path: Path) -> None:
    model = encoder(width=64, heads=8, layers=1, hidden=64)
    bounds = {"n": (1, 40), "batch": (1, 1)}
    driver.compile_model(model, "host", driver.Options(bounds=bounds, threads=3), tmp_path)
    paths = sorted(tmp_path.glob("*.raot"))
    assert "scheduling" in paths[-2].name and "parallel(thread)" in paths[-2].read_text()
    assert " in core" in paths[-1].read_text()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert to_text(rx.load(path)) == text


def test_one_thread_is_the_default_and_changes_nothing() -> None:
    files = tiny(1).files
    assert not any("threads" in name or "team" in name for name in files)
    assert b"team" not in files["tiny.c"] + files["tiny.h"]


@pytest.mark.slow
def test_thread_sanitizer_finds_nothing(tmp_path: Path) -> None:
    said = subprocess.run(
        ["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not Path(said).is_absolute():
        pytest.skip("gcc has no ThreadSanitizer library")
    tiny(3).write(tmp_path)
    flags = ["-std=c11", "-O1", "-g", "-fsanitize=thread", "-ffp-contract=off", "-pthread"]
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pedantic"]
    for program, source, spins in (("main", "main.c", 4000), ("driver", str(DRIVER), 2)):
        units = ["tiny.c", "tiny_weights.c", "tiny_threads.c", source]
        command = [*flags, *warnings, f"-DRAOT_TEAM_SPINS={spins}", "-I.", *units, "-lm"]
        subprocess.run(["gcc", *command, "-o", program], cwd=tmp_path, check=True)
        done = subprocess.run(
            [tmp_path / program], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr[:4000]


TEXT = """
symbol n in 1..50
func @main(%x: f32[n, 8]) {
  %y: f32[n, 8], %s: f32[n], %t: f32[3, 8] = call_kernel(%x) {kernel=@k}
  return %y
}
kernel @k(%x: f32[n, 8]) -> (%y: f32[n, 8]) scratch (%s: f32[n], %t: f32[8] in core) {
  for i in 0..n parallel(thread) {
    for j in 0..8 parallel(lane) {
      %t[j] = (%x[i, j] * %x[i, j])
    }
    local sum: f32 = 0.0:f32
    for j in 0..8 {
      sum = (sum + %t[j])
    }
    %s[i] = sum
    barrier thread
    for j in 0..8 {
      %t[j] = (%x[i, j] / %s[n - i - 1])
    }
    for j in 0..8 {
      %y[i, j] = %t[7 - j]
    }
  }
}
"""


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("given", [1, 3])
def test_core_local_scratch_of_a_text_has_a_copy_for_each_thread(count: int, given: int) -> None:
    module = parse(TEXT.replace("f32[3, 8]", f"f32[{given}, 8]"))
    plan = rx.compile(module, threads=count).built.plan
    (call,) = plan.module.main.body
    assert str(call.outs[-1].type) == f"f32[{count}, 8]"
    (slot,) = [slot for slot in plan.slots if slot.var.name == call.outs[-1].name]
    assert slot.greatest_bytes >= count * 8 * 4


@pytest.mark.parametrize("count", [1, 3])
def test_parallel_kernels_of_a_text_equal_the_interpreter(count: int) -> None:
    module = parse(TEXT)
    host = rx.compile(module, threads=count).host()
    for n in (1, 2, 9, 50):
        x = np.random.default_rng(n).normal(size=(n, 8)).astype(np.float32)
        (expected,) = run_kernel(module.kernels[0], [x], {"n": n}, seed=n)
        assert host(x=x)["y"].tobytes() == expected.tobytes()


PAIR = """
symbol n in 1..50
func @main(%x: f32[n, 8], %w: f32[8, 8]) {
  %p: f32[n, 8] = matmul(%x, %w)
  %y: f32[n, 8] = softmax(%p) {axis=1}
  return %y
}
"""


@pytest.mark.slow
def test_entries_and_steps_share_loops_too() -> None:
    sources = {"one": parse(PAIR), "two": parse(PAIR.replace("softmax(%p) {axis=1}", "exp(%p)"))}
    rng = np.random.default_rng(0)
    plain, shared = (
        rx.compile(sources, name="pair", threads=count, stepwise=count > 1).host()
        for count in (1, 3)
    )
    for n in (1, 13, 50):
        x, w = (rng.normal(size=s).astype(np.float32) for s in ((n, 8), (8, 8)))
        for entry in ("one", "two"):
            one, other = (host[entry](x=x, w=w)["y"] for host in (plain, shared))
            assert one.tobytes() == other.tobytes()


def test_what_has_no_threads_is_refused() -> None:
    module = parse(PAIR)
    with pytest.raises(rx.RelaxAotError, match="mps2-an386 has no threads: --threads 2 needs a bo"):
        rx.compile(module, board="mps2-an386", threads=2)
    for count in (0, 33):
        with pytest.raises(
            rx.RelaxAotError, match=f"threads is a number from 1 to 32, not {count}"
        ):
            rx.compile(module, threads=count)
    with pytest.raises(ProofError, match="without --threads"):
        prove(rx.compile(module, threads=2).built)


@pytest.mark.long
def test_verify_compares_with_one_thread_by_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path("pair.raot")
    project = rx.compile(parse(PAIR), threads=3).built
    assert run_job(Job(source, (project,), reference="numpy")).ok
    other = rx.compile(parse(PAIR.replace("softmax(%p) {axis=1}", "exp(%p)"))).built

    def wrong(given: Project, *, workers: bool, sanitize: bool) -> HostModel:
        return host_model(given if workers else other, sanitize=sanitize)

    monkeypatch.setattr(job, "host_model", wrong)
    with pytest.raises(job.ThreadsDiffer, match="y has other bits with 3 threads than with one"):
        run_job(Job(source, (project,), reference="numpy"))


# Which loops are independent

HEAD = "kernel @k(%x: f32[n, 8]) -> (%y: f32[n, 8]) scratch (%s: f32[8])"
LOOPS: dict[str, tuple[str, set[str] | None]] = {
    "rows": ("%y[i, 0] = %x[i, 1]", set()),
    "a row that all iterations read": ("%y[i, 0] = %x[0, 1]", set()),
    "a neighbor": ("%y[i, 0] = %y[max(0, i - 1), 0]", None),
    "one element": ("%y[0, 0] = %x[i, 0]", None),
    "scratch that is written first": (
        "for j in 0..8 {\n%s[j] = %x[i, j]\n}\nfor j in 0..8 {\n%y[i, j] = %s[7 - j]\n}", {"s"}
    ),
    "scratch in tiles": (
        ("for t in 0..3 {\nfor j in 0..min(8 - 3*t, 3) {\n%s[3*t + j] = %x[i, 3*t + j]\n}\n}\n"
        "for j in 0..8 {\n%y[i, j] = %s[7 - j]\n}"), {"s"}
    ),
    "scratch that is written in part": (
        "for j in 0..7 {\n%s[j] = %x[i, j]\n}\nfor j in 0..8 {\n%y[i, j] = %s[7 - j]\n}", None
    ),
    "scratch that is read first": (
        "for j in 0..8 {\n%y[i, j] = %s[7 - j]\n}\nfor j in 0..8 {\n%s[j] = %x[i, j]\n}", None
    ),
    "scratch that is written under a condition": (
        ("if (%x[i, 0] < 0.0:f32) {\nfor j in 0..8 {\n%s[j] = %x[i, j]\n}\n}\n"
        "for j in 0..8 {\n%y[i, j] = %s[j]\n}"), None
    ),
    "scratch with a gap": (
        "for j in 0..4 {\n%s[2*j] = %x[i, j]\n}\nfor j in 0..8 {\n%y[i, j] = %s[j]\n}", None
    ),
    "an index from data": (
        "clamped k in 0..n - 1 = cast(%x[i, 0], i32, saturate)\n%y[k, 0] = 0.0:f32", None
    ),
    "an index that can fail": (
        "bind k in 0..n - 1 = cast(%x[i, 0], i32, saturate)\n%y[i, 0] = %x[k, 0]", None
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_shared_where_its_iterations_are_independent(name: str) -> None:
    body, expected = LOOPS[name]
    module = parse(
        "symbol n in 1..9\nfunc @main(%x: f32[n, 8]) {\n"
        "  %y: f32[n, 8], %s: f32[8] = call_kernel(%x) {kernel=@k}\n  return %y\n}\n"
        f"{HEAD} {{\nfor i in 0..n {{\n{body}\n}}\n}}\n"
    )
    kernel = module.kernels[0]
    loop = kernel.body[0]
    assert isinstance(loop, For)
    found = private_scratch(kernel, loop, module.bounds.open)
    assert found == expected


HEADS = {
    "heads": ("(8*p + c) // 12, r, (8*p + c) % 12", True),
    "heads of one row": ("(8*p + c) // 12, 0, (8*p + c) % 12", True),
    "columns of two panels": ("(7*p + c) // 12, r, (7*p + c) % 12", False),
    "remainders of another size": ("(8*p + c) // 12, r, (8*p + c) % 8", False),
    "quotients of another size": ("(8*p + c) // 16, r, (8*p + c) % 12", False),
    "remainders alone": ("1, r, (8*p + c) % 12", False),
    "quotients alone": ("(8*p + c) // 12, r, 0", False),
}


@pytest.mark.parametrize("name", HEADS)
def test_panels_of_columns_are_independent_where_these_are_those_of_heads(name: str) -> None:
    index, expected = HEADS[name]
    module = parse(
        "symbol n in 1..9\nfunc @main(%x: f32[n, 24]) {\n"
        "  %y: f32[2, n, 12] = call_kernel(%x) {kernel=@k}\n  return %y\n}\n"
        "kernel @k(%x: f32[n, 24]) -> (%y: f32[2, n, 12]) {\n"
        "for p in 0..3 {\nfor r in 0..n {\nfor c in 0..8 {\n"
        f"%y[{index}] = %x[r, 8*p + c]\n}}\n}}\n}}\n}}\n"
    )
    kernel = module.kernels[0]
    loop = kernel.body[0]
    assert isinstance(loop, For)
    found = private_scratch(kernel, loop, module.bounds.open)
    assert found == (frozenset() if expected else None)


@pytest.mark.parametrize(("high", "shared"), [(32, "p"), (48, "t")])
def test_threads_share_the_loop_that_leaves_least_to_one_of_them(high: int, shared: str) -> None:
    """Of 32 rows, a second tile has 8 only, so three panels are divided better."""
    module = parse(
        f"symbol n in 1..{high}\nfunc @main(%x: f32[n, 96]) {{\n"
        "  %y: f32[n, 96] = call_kernel(%x) {kernel=@k}\n  return %y\n}\n"
        "kernel @k(%x: f32[n, 96]) -> (%y: f32[n, 96]) {\n"
        "for p in 0..3 {\nfor t in 0..(n + 23) // 24 {\n"
        "for r in 0..min(24, n - 24*t) {\nfor c in 0..32 {\n"
        "%y[24*t + r, 32*p + c] = %x[24*t + r, 32*p + c]\n}\n}\n}\n}\n}\n"
    )
    found = threads.run(module, 2, least=700).kernels[0]
    loops = [one for one in walk(found.body) if isinstance(one, For) and one.axis == threads.AXIS]
    assert [loop.variable for loop in loops] == [shared]


def test_a_scalar_of_all_iterations_keeps_a_loop_serial() -> None:
    module = parse(
        "symbol n in 1..9\nfunc @main(%x: f32[n]) {\n"
        "  %y: f32[] = call_kernel(%x) {kernel=@k}\n  return %y\n}\n"
        "kernel @k(%x: f32[n]) -> (%y: f32[]) {\nlocal sum: f32 = 0.0:f32\n"
        "for i in 0..n {\nsum = (sum + %x[i])\n}\n%y[] = sum\n}\n"
    )
    assert not threads.run(module, 2, least=1).kernels[0].parallel


@pytest.mark.qemu
def test_arm_linux_runs_with_workers(tmp_path: Path) -> None:
    for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    tiny(3, "aarch64-linux").write(tmp_path)
    units = ["tiny.c", "tiny_weights.c", "tiny_threads.c", str(DRIVER), "-lm", "-o", "driver"]
    flags = ["-std=c11", "-O2", "-static", "-pthread", "-ffp-contract=off", "-Werror", "-I."]
    subprocess.run(["aarch64-linux-gnu-gcc", *flags, *units], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["qemu-aarch64", tmp_path / "driver"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("board", ["host", "aarch64-linux"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_shared_loop_of_a_model_races(
    name: str, board: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter compares the accesses of all iterations, whatever was proven."""
    monkeypatch.setattr(threads, "LEAST", 1)
    subject = SUBJECTS[name]
    module, _ = driver.coded(driver.load(subject.source(), subject.options), subject.options)
    outcomes = []
    for count in (1, 3):
        stages: dict[str, Module | str] = {}
        options = replace(subject.options, threads=count)
        driver.compile_module(module, load_board(board), options, stages.__setitem__)
        scheduled = stages["scheduling"]
        assert isinstance(scheduled, Module)
        sizes = {s.name: min(max(2, s.low), s.high) for s in scheduled.symbols if not s.inner}
        rng = np.random.default_rng(0)
        inputs = {
            value.name: rng.integers(0, 3, [d.evaluate(sizes) for d in value.type.shape]).astype(
                value.type.dtype.numpy
            )
            for value in scheduled.main.params
        }
        outcomes.append(evaluate(scheduled, inputs, sizes))
    one, three = outcomes
    assert all(one[name].tobytes() == three[name].tobytes() for name in one)


def test_functions_of_rows_are_shared_from_the_same_size_on_as_other_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "LEAST", 1 << 15)
    text = """symbol n in 1..4096
func @main(%x: f32[n, 1024]) {
  %y: f32[n, 1024] = FUNCTION(%x)
  return %y
}"""
    for function in ("tanh", "relu"):
        module = rx.parse(text.replace("FUNCTION", function))
        code = rx.compile(module, board="host", threads=2).files["model.c"].decode()
        assert "n < 64 ? INT32_MAX : 32" in " ".join(code.split()), function


@pytest.mark.parametrize(("size", "shared"), [(288, True), (96, False)])
def test_weights_of_one_row_are_read_by_all_threads(
    size: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product takes as long as its weights take to arrive."""
    monkeypatch.setattr(threads, "LEAST", 1 << 15)
    text = f"""const %w: f32[{size}, {size}] = splat 0.5
func @main(%x: f32[1, {size}]) {{
  %y: f32[1, {size}] = matmul(%x, %w)
  return %y
}}"""
    code = rx.compile(rx.parse(text), board="host", threads=2).files["model.c"].decode()
    assert ("raot_parallel(" in code) == shared


@pytest.mark.parametrize(("size", "shared"), [(288, True), (64, False)])
def test_micro_kernels_count_as_the_loops_that_they_stand_for(
    size: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sizes are also distances between rows, whose product is not their work."""
    monkeypatch.setattr(threads, "LEAST", 1 << 15)
    text = f"""const %w: f32[{size}, {size}] = splat 0.5
func @main(%x: f32[1, {size}]) {{
  %y: f32[1, {size}] = matmul(%x, %w)
  return %y
}}"""
    project = rx.compile(rx.parse(text), board="host", threads=2, quantize="q8_0")
    code = project.files["model.c"].decode()
    assert "raot_dot" in code
    assert ("raot_parallel(" in code) == shared
