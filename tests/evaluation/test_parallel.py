# SPDX-License-Identifier: Apache-2.0
"""Parallel loops in the interpreter: every planted race is found, and no kernel without one is
refused. Twins: a racy kernel differs from a correct one by one detail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.interpret import RaceError, run_kernel
from relax_aot.evaluation.races import Races, finished
from relax_aot.fusion.checking.dependences import unproven_pairs
from relax_aot.ir.check import CheckError, check
from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Module
from relax_aot.ir.lexer import TextError
from relax_aot.ir.loops import Barrier, For, Kernel, Stmt, walk
from relax_aot.ir.parse import parse
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.text import to_text
from relax_aot.ops import deduce
from relax_aot.scheduling.passes import barriers
from relax_aot.scheduling.targets import all_targets

SIGNATURES = {
    "y": "(%x: f32[8]) -> (%y: f32[8])",
    "s": "(%x: f32[8]) -> (%y: f32[8]) scratch (%s: f32[8])",
    "core": "(%x: f32[8]) -> (%y: f32[8]) scratch (%s: f32[8] in core)",
    "one": "(%x: f32[8]) -> (%y: f32[8]) scratch (%s: f32[1])",
    "at": "(%x: f32[8], %at: i32[8]) -> (%y: f32[8])",
    "two": "(%x: f32[8], %z: f32[4]) -> (%y: f32[8]) in_place (%x = %y)",
}

FILL = """
  for k in 0..8 {
    %y[k] = 0.0:f32
  }
"""
FILL_SCRATCH = FILL.replace("%y", "%s")
RACES = {
    "a sum of all iterations": ("y", FILL + """
  for i in 0..8 parallel(thread) {
    %y[0] = (%y[0] + %x[i])
  }"""),
    "a scan": ("y", FILL + """
  %y[0] = %x[0]
  for i in 1..8 parallel(thread) {
    %y[i] = (%y[i - 1] + %x[i])
  }"""),
    "a neighbor to the right": ("y", FILL + """
  for i in 0..7 parallel(lane) {
    %y[i] = %y[i + 1]
  }"""),
    "all iterations write one element": ("y", FILL + """
  for i in 0..8 parallel(core) {
    %y[7] = %x[i]
  }"""),
    "two iterations share an element by division": ("y", FILL + """
  for i in 0..8 parallel(thread) {
    %y[i // 2] = %x[i]
  }"""),
    "a remainder": ("y", FILL + """
  for i in 0..8 parallel(thread) {
    %y[i % 7] = %x[i]
  }"""),
    "overlapping windows": ("y", FILL + """
  for i in 0..4 parallel(thread) {
    for j in 0..3 {
      %y[2*i + j - max(0, 2*i + j - 7)] = %x[i]
    }
  }"""),
    "an index that data repeat": ("at", FILL + """
  for i in 0..8 parallel(thread) {
    clamped k in 0..7 = min(max(%at[i], 0:i32), 7:i32)
    %y[k] = %x[i]
  }"""),
    "a read of what data repeat": ("at", FILL + """
  for i in 0..8 parallel(thread) {
    clamped k in 0..7 = min(max(%at[i], 0:i32), 7:i32)
    %y[i] = (%y[k] + 1.0:f32)
  }"""),
    "scratch of the arena": ("one", """
  for i in 0..8 parallel(thread) {
    %s[0] = %x[i]
    %y[i] = (%s[0] * 2.0:f32)
  }"""),
    "a missing barrier": ("s", FILL_SCRATCH + """
  for i in 0..8 parallel(thread) {
    %s[i] = %x[i]
    %y[i] = %s[7 - i]
  }"""),
    "a barrier of the inner axis alone": ("s", FILL_SCRATCH + """
  for b in 0..2 parallel(block) {
    for i in 0..4 parallel(thread) {
      %s[4*b + i] = %x[4*b + i]
      barrier thread
      %y[4*b + i] = %s[7 - 4*b - i]
    }
  }"""),
    "a missing second barrier in a serial loop": ("s", """
  for i in 0..8 parallel(thread) {
    %s[i] = %x[i]
    for step in 0..2 {
      barrier thread
      local other: f32 = %s[7 - i]
      %s[i] = (other + 1.0:f32)
    }
    %y[i] = %s[i]
  }"""),
    "shared memory without a barrier": ("y", """
  for b in 0..2 parallel(block) {
    reserve %t: f32[4] in shared
    for k in 0..4 {
      %t[k] = 0.0:f32
    }
    for i in 0..4 parallel(thread) {
      %t[i] = %x[4*b + i]
      %y[4*b + i] = %t[3 - i]
    }
  }"""),
    "blocks that share an element": ("y", FILL + """
  for b in 0..2 parallel(block) {
    for i in 0..4 parallel(thread) {
      %y[3*b + i] = %x[4*b + i]
    }
  }"""),
    "inner iterations that share core-local memory": ("core", """
  for b in 0..2 parallel(core) {
    for i in 0..4 parallel(lane) {
      %s[0] = %x[4*b + i]
      %y[4*b + i] = 1.0:f32
    }
  }"""),
    "one iteration under a condition": ("y", FILL + """
  for i in 0..8 parallel(thread) {
    if ((index(i) == 3:i64) || (index(i) == 5:i64)) {
      %y[0] = %x[i]
    }
  }"""),
    "a write that one other iteration reads": ("y", FILL + """
  for i in 0..8 parallel(thread) {
    local seen: f32 = select((index(i) == 6:i64), %y[2], 0.0:f32)
    %y[i] = (%x[i] + seen)
  }"""),
    "an operand that the result overwrites": ("two", """
  for i in 0..8 parallel(thread) {
    %y[i] = %x[7 - i]
  }"""),
    "the last iteration of one phase reads the next": ("s", """
  for i in 0..8 parallel(warp) {
    %s[i] = %x[i]
    barrier warp
    %y[i] = %s[(i + 1) % 8]
    %s[i] = 0.0:f32
  }"""),
}  # fmt: skip

CORRECT = {
    "elements of their own": ("y", """
  for i in 0..8 parallel(thread) {
    %y[i] = %x[i]
    %y[i] = (%y[i] * 2.0:f32)
  }"""),
    "a barrier": ("s", """
  for i in 0..8 parallel(thread) {
    %s[i] = %x[i]
    barrier thread
    %y[i] = %s[7 - i]
  }"""),
    "two barriers in a serial loop": ("s", """
  for i in 0..8 parallel(thread) {
    %s[i] = %x[i]
    for step in 0..2 {
      barrier thread
      local other: f32 = %s[7 - i]
      barrier thread
      %s[i] = (other + 1.0:f32)
    }
    %y[i] = %s[i]
  }"""),
    "core-local scratch": ("core", """
  for i in 0..8 parallel(thread) {
    %s[0] = %x[i]
    %y[i] = (%s[0] * 2.0:f32)
  }"""),
    "shared memory": ("y", """
  for b in 0..2 parallel(block) {
    reserve %t: f32[4] in shared
    for i in 0..4 parallel(thread) {
      %t[i] = %x[4*b + i]
      barrier thread
      %y[4*b + i] = %t[3 - i]
    }
  }"""),
    "a barrier of the outer axis": ("s", """
  for b in 0..2 parallel(warp) {
    for i in 0..4 parallel(lane) {
      %s[4*b + i] = %x[4*b + i]
      barrier warp
      %y[4*b + i] = %s[7 - 4*b - i]
    }
  }"""),
    "blocks one after another": ("y", FILL + """
  for i in 0..8 parallel(thread) {
    %y[i] = %x[i]
  }
  for i in 0..8 parallel(thread) {
    %y[i] = (%y[i] + 1.0:f32)
  }"""),
    "an index of data without repetition": ("at", FILL + """
  for i in 0..4 parallel(thread) {
    clamped k in 0..7 = min(max(%at[i], 0:i32), 7:i32)
    %y[k] = %x[i]
  }"""),
    "an operand that the result overwrites": ("two", """
  for i in 0..8 parallel(thread) {
    %y[i] = (%x[i] + 1.0:f32)
  }"""),
}  # fmt: skip


def kernel_of(signature: str, body: str) -> Kernel:
    """Parsed, checked, and the same after it was printed."""
    head = SIGNATURES[signature]
    values = {"x": "%x: f32[8]", "at": "%at: i32[8]", "z": "%z: f32[4]"}
    names = [name for name in values if f"%{name}:" in head.split("->")[0]]
    outs = ["%y: f32[8]"]
    outs += [f"%t: f32[{2 if signature == 'core' else 1}, 8]"] if signature == "core" else []
    outs += ["%t: f32[8]"] if signature == "s" else []
    outs += ["%t: f32[1]"] if signature == "one" else []
    params = ", ".join(values[name] for name in names)
    arguments = ", ".join(f"%{name}" for name in names)
    text = (
        f"func @main({params}) {{\n"
        f"  {', '.join(outs)} = call_kernel({arguments}) {{kernel=@k}}\n  return %y\n}}\n"
        f"kernel @k{head} {{\n{body.strip()}\n}}\n"
    )
    module = parse(text)
    check(module, deduce)
    assert parse(to_text(module)) == module
    return module.kernels[0]


def result(kernel: Kernel, seed: int) -> np.ndarray:
    x = np.arange(1, 9, dtype=np.float32)
    inputs = {"x": x, "at": np.array([5, 2, 7, 0, 1, 5, 3, 4], np.int32), "z": x[:4]}
    shared = {written: read for read, written in kernel.in_place}
    (y,) = run_kernel(kernel, [inputs[b.name] for b in kernel.inputs], {}, shared, seed)
    return y


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found_in_every_order(name: str) -> None:
    kernel = kernel_of(*RACES[name])
    for seed in range(3):
        with pytest.raises(RaceError, match=r"by iteration \d+ and .* without a barrier"):
            result(kernel, seed)


@pytest.mark.parametrize("name", CORRECT)
def test_a_kernel_without_a_race_gives_one_result_in_every_order(name: str) -> None:
    kernel = kernel_of(*CORRECT[name])
    results = [result(kernel, seed) for seed in range(5)]
    assert all((one == results[0]).all() for one in results)


def test_twenty_races_are_planted() -> None:
    assert len(RACES) == 20


def test_iterations_run_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> tuple[int, ...]:
        seen: list[int] = []

        def body(at: int) -> Iterator[str]:
            seen.append(at)
            yield from ()

        finished(Races(Random(seed)).run("the loop", "thread", range(8), body))
        return tuple(seen)

    assert order(3) == order(3)
    assert len({order(seed) for seed in range(4)}) == 4
    assert all(sorted(order(seed)) == list(range(8)) for seed in range(4))


UNEVEN = """
  for i in 0..8 parallel(thread) {
    %y[i] = 0.0:f32
    if (%x[i] < 3.0:f32) {
      barrier thread
    }
  }"""
REFUSED = {
    "a condition around a barrier": ("y", UNEVEN, "a condition differs between"),
    "a serial loop of another length": ("y", """
  for i in 0..8 parallel(thread) {
    for j in 0..i {
      barrier thread
    }
    %y[i] = 0.0:f32
  }""", "the range of j differs between the iterations of i"),
    "a barrier of no loop": ("y", """
  for i in 0..8 parallel(thread) {
    %y[i] = 0.0:f32
    barrier warp
  }""", r"no loop around it is parallel\(warp\)"),
    "one axis twice": ("y", """
  for i in 0..2 parallel(thread) {
    for j in 0..4 parallel(thread) {
      %y[4*i + j] = 0.0:f32
    }
  }""", r"the loops over i and j are both parallel\(thread\)"),
    "a scalar of all iterations": ("y", FILL + """
  local sum: f32 = 0.0:f32
  for i in 0..8 parallel(thread) {
    sum = (sum + %x[i])
  }""", "the scalar sum is assigned inside a parallel loop"),
    "registers of another iteration": ("y", """
  for b in 0..2 parallel(block) {
    reserve %t: f32[4]
    for i in 0..4 parallel(thread) {
      %t[i] = %x[4*b + i]
      %y[4*b + i] = %t[i]
    }
  }""", "%t is in registers of one iteration"),
    "reserved memory of the arena": ("y", FILL + """
  reserve %t: f32[4] in arena
  %t[0] = 0.0:f32""", "reserved memory is not of the arena"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_kernel_that_breaks_a_rule_is_refused(name: str) -> None:
    signature, body, said = REFUSED[name]
    with pytest.raises(CheckError, match=said):
        kernel_of(signature, body)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("for i in 0..8 parallel(threads) {", r"expected an axis \(block, core, warp"),
        (
            "reserve %t: f32[4] in stack",
            r"expected a scope \(arena, core, shared, lane, reg",
        ),
        ("barrier", "expected an axis"),
    ],
)
def test_unknown_axes_and_scopes_are_named(line: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        kernel_of("y", f"  {line}\n")


HOLDS_A_SCALAR = "two barriers in a serial loop"


@pytest.mark.parametrize("name", sorted(CORRECT.keys() - {HOLDS_A_SCALAR}))
def test_splitting_at_barriers_keeps_the_result(name: str) -> None:
    """Serial loops in place of parallel ones: what C for one core runs."""
    kernel = kernel_of(*CORRECT[name])
    module = Module((), (kernel,))
    (split,) = barriers.run(module, next(iter(all_targets()))).kernels
    assert not any(isinstance(stmt, Barrier) for stmt in walk(split.body))

    def serial(stmt: Stmt) -> Stmt:
        return replace(stmt, axis="") if isinstance(stmt, For) else stmt

    plain = replace(split, body=map_statements(split.body, serial))
    assert (result(plain, 0) == result(kernel, 1)).all()
    assert (result(split, 2) == result(kernel, 1)).all()


def test_a_scalar_behind_a_barrier_is_refused_for_c() -> None:
    module = Module((), (kernel_of(*CORRECT[HOLDS_A_SCALAR]),))
    with pytest.raises(RelaxAotError, match="kernel @k: other is used behind a barrier"):
        barriers.run(module, next(iter(all_targets())))


def test_memory_of_an_operand_is_proven_for_any_order() -> None:
    name = "an operand that the result overwrites"
    assert unproven_pairs(kernel_of(*RACES[name]), Bounds(())) == (("x", "y"),)
    assert unproven_pairs(kernel_of(*CORRECT[name]), Bounds(())) == ()
    later = "  for i in 0..7 {\n    %y[i] = %x[i + 1]\n  }\n  %y[7] = 0.0:f32"
    assert unproven_pairs(kernel_of("two", later), Bounds(())) == ()
    parallel = later.replace("0..7", "0..7 parallel(thread)")
    assert unproven_pairs(kernel_of("two", parallel), Bounds(())) == (("x", "y"),)
