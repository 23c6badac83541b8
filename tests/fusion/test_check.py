# SPDX-License-Identifier: Apache-2.0
"""The checker of fusion passes what mergers make and refuses every defect that changes a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

import pytest

import relax_aot as rx
from relax_aot import driver, fusion, lowering, transforms
from relax_aot.driver import Options, load
from relax_aot.fusion import check as fusion_check
from relax_aot.fusion import legality
from relax_aot.fusion.check import FusionError, check
from relax_aot.fusion.checking.ranges import Ranges
from relax_aot.ir.dims import Bounds, Dim, dim_min
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Declare, Expr, For, Kernel, Load, Local
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.text import kernel_text
from relax_aot.ir.types import DType
from relax_aot.project.board import load_board
from relax_aot.verify.fused_kernels import compare_fused
from tests.fusion.mutants import Mutant, kernel_inputs, mutants, outcome, same_outcome, work
from tests.fusion.proven import PROVEN
from tests.fusion.test_legality import LAST_WINS, MANY_TO_ONE, STORED_TWICE
from tests.models.attention import cross_attention, grouped_attention
from tests.models.catalog import CATALOGUE
from tests.models.encoder import Variant, encoder
from tests.planning.random_modules import random_module

MOST_WORK = 1500
"""Statements that one run of a kernel may execute in the interpreter."""


def lowered(module: Module) -> Module:
    return lowering.lower(transforms.run(module))


@cache
def modules(many: bool) -> dict[str, Module]:
    small = encoder(width=8, heads=2, layers=1, hidden=12, variant=Variant(mask=True, causal=True))
    found = {
        "encoder": load(small, Options(bounds={"batch": (1, 2), "n": (1, 9)})),
        "cross": load(cross_attention(), Options(bounds={"b": (1, 2), "n": (1, 9), "m": (1, 12)})),
        "grouped": load(grouped_attention(), Options(bounds={"b": (1, 2), "n": (1, 9)})),
    }
    names = CATALOGUE if many else ("windows", "gru_tagger")
    for name in names:
        entry = CATALOGUE[name]
        found[name] = load(entry.make(), Options(bounds=entry.bounds))
    found |= {name: rx.parse(text) for name, text in PROVEN.items()}
    for seed in range(24 if many else 4):
        found[f"random {seed}"] = random_module(seed).module
    return {name: lowered(module) for name, module in found.items()}


def some_sizes(module: Module) -> list[dict[str, int]]:
    """The least sizes, three more of each, and sizes that differ from each other."""
    return [
        {s.name: s.low for s in module.symbols},
        {s.name: min(s.high, s.low + 3) for s in module.symbols},
        {s.name: min(s.high, s.low + 1 + i % 3) for i, s in enumerate(module.symbols)},
    ]


def judged(module: Module, fused: Module, kernel: Kernel, chosen: list[Mutant]) -> Iterator[
    tuple[Mutant, bool, bool]
]:  # fmt: skip
    """Each mutant, whether it computes something else, and whether the checker refuses it."""
    cases = [
        (sizes, kernel_inputs(kernel, sizes, seed)) for seed, sizes in enumerate(some_sizes(module))
    ]
    wanted = [outcome(kernel, inputs, sizes) for sizes, inputs in cases]
    if any(isinstance(one, str) for one in wanted):
        return
    for mutant in chosen:
        differs = not all(
            same_outcome(one, outcome(mutant.kernel, inputs, sizes))
            for one, (sizes, inputs) in zip(wanted, cases, strict=True)
        )
        kernels = tuple(mutant.kernel if k.name == kernel.name else k for k in fused.kernels)
        try:
            check(module, replace(fused, kernels=kernels))
            refused = False
        except FusionError as error:
            assert mutant.kernel.name in str(error)
            refused = True
        yield mutant, differs, refused


def mutate(many: bool, each: int) -> Counter[str]:
    """Mutants that change a result, by kind; all of them are refused."""
    random = Random(0)
    counted: Counter[str] = Counter()
    for name, module in modules(many).items():
        fused = fusion.fuse(module).module
        old = {kernel.body for kernel in module.kernels}
        (_, most, _) = some_sizes(module)
        for kernel in fused.kernels:
            if kernel.body in old or work(kernel, most) > MOST_WORK:
                continue
            every = [m for m in mutants(kernel) if m.kernel != kernel]
            chosen = random.sample(every, min(each, len(every)))
            for mutant, differs, refused in judged(module, fused, kernel, chosen):
                if differs:
                    shown = f"{name}: {mutant.what}\n{kernel_text(mutant.kernel)}"
                    assert refused, f"{shown}\nis not\n{kernel_text(kernel)}"
                    counted[mutant.what] += 1
    return counted


@pytest.mark.slow
def test_defects_of_merged_kernels_are_refused() -> None:
    counted = mutate(many=False, each=5)
    assert sum(counted.values()) >= 60, counted
    assert len(counted) >= 8, counted


@pytest.mark.slow
@pytest.mark.long
def test_all_defects_of_merged_kernels_are_refused() -> None:
    counted = mutate(many=True, each=40)
    assert sum(counted.values()) >= 200, counted
    assert len(counted) >= 15, counted


@pytest.mark.parametrize("text", PROVEN.values(), ids=PROVEN)
def test_a_right_merger_is_proven(text: str) -> None:
    module = lowered(rx.parse(text))
    check(module, fusion.fuse(module).module)
    assert len(fusion.fuse(module).module.kernels) == 1


@pytest.mark.parametrize(
    "program",
    [LAST_WINS, STORED_TWICE, MANY_TO_ONE],
    ids=["last wins", "stored twice", "many to one"],
)
def test_a_merger_without_its_conditions_is_refused(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = lowered(rx.parse(program))
    check(module, fusion.fuse(module).module)
    monkeypatch.setattr(legality, "independent", lambda *_: None)
    monkeypatch.setattr(legality, "stored_once", lambda *_: True)
    monkeypatch.setattr(legality, "separate_rows", lambda *_: True)
    with pytest.raises(FusionError, match="not proven"):
        fusion.fuse(module)


def test_what_is_not_proven_stays_in_parts_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that the checker accepts are still fused."""
    module = lowered(rx.parse(LAST_WINS))
    monkeypatch.setattr(legality, "independent", lambda *_: None)
    monkeypatch.setattr(legality, "stored_once", lambda *_: True)
    fused = fusion.fuse(module, lenient=True)
    check(module, fused.module)
    (unproven,) = fused.summary.unproven
    assert "not proven" in unproven.reason
    assert len(fused.module.kernels) == len(module.kernels)


CHAIN = """
symbol n in 1..9
func @main(%x: f32[n], %z: f32[n]) {
  %a = exp(%x)
  %b = add(%a, %z)
  %c = reshape(%b) {shape=[1, n]}
  %y = softmax(%c) {axis=-1}
  %k = relu(%a)
  return %y, %k
}
"""


def test_a_graph_that_lost_something_is_refused() -> None:
    module = lowered(rx.parse(CHAIN))
    fused = fusion.fuse(module).module
    main = fused.main
    for number in range(len(main.body)):
        body = main.body[:number] + main.body[number + 1 :]
        broken = replace(fused, functions=(replace(main, body=body), *fused.functions[1:]))
        with pytest.raises(FusionError):
            check(module, broken)
    late = replace(fused, functions=(replace(main, body=main.body[::-1]), *fused.functions[1:]))
    if len(main.body) > 1:
        with pytest.raises(FusionError):
            check(module, late)
    swapped = replace(main, results=main.results[::-1])
    with pytest.raises(FusionError, match="interface"):
        check(module, replace(fused, functions=(swapped, *fused.functions[1:])))


@pytest.mark.parametrize(("moved", "inside"), [(0, True), (1, False), (-1, False)])
def test_a_load_that_no_result_needs_lies_in_its_buffer(moved: int, inside: bool) -> None:
    before = lowered(rx.parse(CHAIN))
    after = fusion.fuse(before).module
    call = after.main.body[0]
    kernel = after.kernel_table[call.ref("kernel")]
    loop = kernel.body[0]
    assert isinstance(loop, For)
    index = (Dim.of(loop.variable) + moved,)
    dead = Declare(Local("dead", DType.F32), Load(kernel.inputs[0], index))
    changed = replace(kernel, body=(replace(loop, body=(dead, *loop.body)),))
    kernels = tuple(changed if one is kernel else one for one in after.kernels)
    mutated = replace(after, kernels=kernels)
    if inside:
        check(before, mutated)
        return
    with pytest.raises(FusionError, match="in bounds"):
        check(before, mutated)


def test_a_load_of_an_element_of_equal_value_lies_in_its_buffer() -> None:
    """Every element is 1: the index alone shows the fault, which is -1 in the last iteration."""
    module = lowered(rx.parse(PROVEN["diagonal"]))
    fused = fusion.fuse(module).module
    (kernel,) = fused.kernels

    def moved(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.buffer.name == "y":
            return Load(expr.buffer, (expr.index[0], expr.index[1] - 1))
        return expr

    broken = replace(kernel, body=map_exprs(kernel.body, moved))
    assert broken != kernel
    with pytest.raises(FusionError, match="in bounds"):
        check(module, replace(fused, kernels=(broken,)))


def test_a_minimum_bounds_an_index_also_behind_a_quotient() -> None:
    """The windows of a pool over the rows that another pool of stride 2 leaves."""
    ranges = Ranges(Bounds((("h", (5, 15)),)))
    rows, h = (Dim.of("h") + 1) // 2, Dim.of("h")
    line = Dim.of(ranges.variable("line", Dim.of(0), (h + 3) // 6))
    tap = Dim.of(ranges.variable("tap", Dim.of(0), dim_min(rows - 3 * line, 3)))
    assert ranges.known_lt(3 * line + tap, rows)
    assert not ranges.known_lt(3 * line + tap + 1, rows)


def test_exchanged_operands_of_a_call_are_refused() -> None:
    """Two operands of one type: the kernel stays, and reads the other one's memory."""
    module = lowered(rx.parse(CHAIN))
    fused = fusion.fuse(module).module
    main = fused.main
    seen = 0
    for number, call in enumerate(main.body):
        types = [v.type for v in call.inputs]
        if len(types) < 2 or types[0] != types[1]:
            continue
        broken = replace(call, args=(call.args[1], call.args[0], *call.args[2:]))
        body = (*main.body[:number], broken, *main.body[number + 1 :])
        with pytest.raises(FusionError):
            check(module, replace(fused, functions=(replace(main, body=body),)))
        seen += 1
    assert seen


# Interpretation


def test_every_fused_kernel_of_small_models_runs_as_its_parts_do() -> None:
    runs = 0
    for module in modules(many=False).values():
        runs += compare_fused(module, fusion.fuse(module).module)
    assert runs > 20


@pytest.mark.parametrize(
    "program",
    [LAST_WINS, STORED_TWICE, MANY_TO_ONE],
    ids=["last wins", "stored twice", "many to one"],
)
def test_check_finds_a_wrong_merger_by_running_it(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = rx.parse(program)
    options = Options(name="program", check=True)
    driver.compile_module(module, load_board("host"), options)
    monkeypatch.setattr(legality, "independent", lambda *_: None)
    monkeypatch.setattr(legality, "stored_once", lambda *_: True)
    monkeypatch.setattr(fusion_check, "check", lambda *_: None)
    with pytest.raises(FusionError, match="differs from its parts at n="):
        driver.compile_module(module, load_board("host"), options)


def test_mutants_that_run_differently_are_found_by_running_them() -> None:
    module = modules(many=False)["cross"]
    fused = fusion.fuse(module).module
    (kernel,) = fused.kernels
    every = [m for m in mutants(kernel) if m.what in ("store dropped", "another operator")]
    for mutant in every[:6]:
        with pytest.raises(FusionError):
            compare_fused(module, replace(fused, kernels=(mutant.kernel,)))
    assert every
