# SPDX-License-Identifier: Apache-2.0
"""Random chains of text kernels compute the same before and after every stage.

    python -m tests.fuzz.chains --seeds 0:100000 [--jobs 2] [--c 200] [--shrink]

Each module is interpreted as it was written, and again after lowering, pruning, fusion, scheduling
for every target, sharing loops among threads, and ordering; results must have the same bits and
iterations no races. Partial sums of inexact numbers are compared up to rounding, and every
schedule has their bits. What a kernel marks as in place is
run in place. Every `--c`-th module is also compiled to C, which runs under the sanitizers.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from relax_aot import driver, fusion, lowering, parse, pruning, scheduling, transforms
from relax_aot.driver import Options
from relax_aot.evaluation.interpret import IndexFault, run_kernel
from relax_aot.ir import check
from relax_aot.ir.graph import Call, Module
from relax_aot.ir.loops import Kernel
from relax_aot.ops import deduce
from relax_aot.planning import order
from relax_aot.project.board import load_board
from relax_aot.scheduling import threads
from relax_aot.scheduling.passes import fma, partial_sums
from relax_aot.scheduling.targets import Target, all_targets
from tests.fuzz.chain_modules import Array, Chain, Sizes, random_chain
from tests.planning.batch import Ran, Run, Stopped, run_each

Values = dict[str, Array]
INDEX_FAULT = "an index from data is out of range"
Scheduled = tuple[Target, str, str]
"""A target, what it is optimized for, and its numerics."""
Outcome = Values | str
"""Results by name, or why the run ended."""

TARGETS = 2
"""So many of the targets are tried with each module."""
CHECKED = 10
"""The invariants of every such module are checked after each stage."""
PER_LIBRARY = 25
LONGEST = 1000
"""Modules of one block, after which the count is shown."""
COLLECTED = 500
"""The garbage collector runs after so many modules."""
BOARDS = ("host", "mps2-an386", "mps3-an547", "aarch64-linux")


class Wrong(AssertionError):
    """A stage changed what a module computes."""


@dataclass(frozen=True)
class Fault:
    seed: int
    what: str
    module: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}\n{self.module}"


# Interpretation


class _Runner:
    """Runs modules on one set of inputs; what one kernel gave for the same arrays is kept."""

    def __init__(self, sizes: Sizes, inputs: Mapping[str, Array]) -> None:
        self._sizes, self._inputs = sizes, tuple(inputs.values())
        self._known: dict[tuple[object, ...], tuple[object, list[Array]]] = {}

    def run(self, module: Module, *, in_place: bool = False) -> Outcome:
        values: Values = {c.name: np.asarray(c.data) for c in module.constants}
        params = [v.name for v in module.main.params]  # lowering renames them at times
        values |= dict(zip(params, self._inputs, strict=True))
        try:
            for call in module.main.body:
                self._call(module, call, values, in_place=in_place)
        except IndexFault:
            return INDEX_FAULT
        return {v.name: values[v.name] for v in module.main.results}

    def _call(self, module: Module, call: Call, values: Values, *, in_place: bool) -> None:
        if call.op == "view":
            shape = [size.evaluate(self._sizes) for size in call.out.type.shape]
            values[call.out.name] = values[call.inputs[0].name].reshape(shape)
            return
        assert call.op in ("call_kernel", "guard"), call.op
        kernel = module.kernel_table[call.ref("kernel")]
        arguments = [values[v.name] for v in call.inputs]
        shared = shared_pairs(kernel) if in_place else {}
        results = self._kernel(kernel, arguments, shared)
        if call.op == "guard":
            results = arguments[:1]
        for out, array in zip(call.outs, results, strict=False):
            values[out.name] = array

    def _kernel(
        self, kernel: Kernel, arguments: list[Array], shared: Mapping[str, str]
    ) -> list[Array]:
        key = (id(kernel), bool(shared), *map(id, arguments))
        if key not in self._known:
            results = run_kernel(kernel, arguments, self._sizes, shared)
            self._known[key] = (arguments, results)
        return self._known[key][1]


def shared_pairs(kernel: Kernel) -> dict[str, str]:
    """Outputs and the inputs whose memory they take, each input once."""
    found: dict[str, str] = {}
    for read, written in kernel.in_place:
        if written not in found and read not in found.values():
            found[written] = read
    return found


def same(one: Outcome, other: Outcome) -> str | None:
    """How they differ; None where they have the same bits, of NaN any."""
    if isinstance(one, str) or isinstance(other, str):
        return None if isinstance(one, str) and one == other else f"{one} and {other}"
    for name, array in one.items():
        found = other[name]
        if found.shape != array.shape or found.dtype != array.dtype:
            return f"%{name} is {found.dtype}{list(found.shape)}"
        if array.tobytes() == found.tobytes():
            continue
        if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
            a, b = array.astype(np.float64), found.astype(np.float64)
            equal = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
            if equal.all():
                continue
        return f"%{name} is\n{found}\nnot\n{array}"
    return None


# Stages


def stages(
    module: Module, targets: Sequence[Scheduled], *, checked: bool
) -> Iterator[tuple[str, Module, str]]:
    """(name, module after it, name of the stage whose bits it keeps)."""

    def done(name: str, after: Module, base: str) -> tuple[str, Module, str]:
        if checked:
            try:
                check.check(after, deduce)
            except Exception as error:
                raise Wrong(f"{name}: {error}") from error
        return name, after, base

    lowered = lowering.lower(transforms.run(module))
    yield done("lowering", lowered, "")
    yield done("ordering of what was lowered", order.run(lowered), "lowering")
    lowered = lowering.check_then_trust(lowered)
    yield done("checks of indices", lowered, "lowering")
    lowered = pruning.run(lowered)
    yield done("pruning", lowered, "lowering")
    fused = fusion.fuse(lowered, lenient=True).module
    yield done("fusion", fused, "lowering")
    small = fusion.fuse(lowered, fusion.Policy(rows_over_weights=True), lenient=True).module
    if small != fused:
        yield done("fusion for memory", small, "lowering")
    plain = fma.run(fused, all_targets()[0])
    yield done("contraction", plain, "fusion if exact")
    scheduled, base = plain, "contraction"
    for target, kind, numerics in targets:
        split = plain if numerics == "ordered" else partial_sums.run(plain, target)
        base = "contraction"
        if split.kernels != plain.kernels:
            base = f"sums in {target.partial_sums} lanes"
            yield done(base, split, "contraction if exact")
        scheduled = scheduling.schedule(fused, target, kind, numerics)
        if scheduled.kernels != split.kernels:
            yield done(f"scheduling for {target.name}, {kind}, {numerics}", scheduled, base)
    yield done("threads", threads.run(scheduled, 3, least=1), base)
    yield done("ordering", order.run(scheduled), base)


def some_targets(seed: int) -> list[Scheduled]:
    """A few targets for each seed, so that all have their turn."""
    every = list(itertools.product(all_targets(), ("speed", "size"), driver.NUMERICS))
    return [every[(seed + 5 * n) % len(every)] for n in range(TARGETS)]


def judged(chain: Chain, targets: Sequence[Scheduled], *, checked: bool = True) -> None:
    """Raise `Wrong` where a stage changes results."""
    runners = [_Runner(sizes, inputs) for sizes, inputs in chain.runs]
    found: dict[str, list[Outcome]] = {}
    kernels: list[Module] = []  # keeps their ids
    for name, module, base in stages(chain.module, targets, checked=checked):
        kernels.append(module)
        for in_place in (False, True):
            if in_place and not any(kernel.in_place for kernel in module.kernels):
                continue
            outcomes = [_ran(r, module, name, in_place=in_place) for r in runners]
            found.setdefault(name, outcomes)
            wanted = base.removesuffix(" if exact")
            if base and (chain.exact or wanted == base):
                for (sizes, _), one, other in zip(chain.runs, found[wanted], outcomes, strict=True):
                    difference = same(one, other)
                    if difference is not None:
                        where = f"{name}{' in place' if in_place else ''} at {sizes}"
                        raise Wrong(f"after {where}: {difference}")


def _ran(runner: _Runner, module: Module, name: str, *, in_place: bool) -> Outcome:
    try:
        return runner.run(module, in_place=in_place)
    except (AssertionError, KeyError, TypeError, IndexError) as error:
        raise Wrong(f"after {name}: the interpreter stops: {error!r}") from error


# C


def in_c(chains: Mapping[int, Chain]) -> Iterator[Fault]:
    """The C of several modules in one library, each for one board."""
    runs: list[Run] = []
    wanted: list[tuple[int, Outcome]] = []
    for seed, chain in chains.items():
        board, kind = BOARDS[seed // 7 % len(BOARDS)], driver.OPTIMIZE[seed % 3]
        try:
            shared = 1 + seed % 3 if board in ("host", "aarch64-linux") else 1
            options = Options(name=f"m{seed}", optimize=kind, threads=shared)
            with patch.object(threads, "LEAST", 1):
                project = driver.compile_module(written(chain.module), load_board(board), options)
        except Exception:  # noqa: BLE001  # any that comes is a fault to report
            yield Fault(seed, f"compiling: {traceback.format_exc()}", str(chain.module))
            continue
        lowered = lowering.lower(transforms.run(chain.module))
        plain = fma.run(fusion.fuse(lowered, lenient=True).module, all_targets()[0])
        for sizes, inputs in chain.runs:
            named = {p.name: inputs[p.source] for p in project.interface.inputs}
            shown = {f.symbol.name: sizes[f.symbol.name] for f in project.interface.dims}
            runs.append(Run(project, shown, named))
            wanted.append((seed, _Runner(sizes, inputs).run(plain)))
    for run, ran, (seed, outcome) in zip(runs, run_each(runs), wanted, strict=True):
        difference = _c_difference(run, ran, outcome, exact=chains[seed].exact)
        if difference is not None:
            yield Fault(seed, f"C at {dict(run.sizes)}: {difference}", str(chains[seed].module))


def written(module: Module) -> Module:
    """What the frontend of the text form makes of the module's text."""
    return parse(str(module), constants={c.name: c.data for c in module.constants})


def _c_difference(run: Run, ran: Ran | Stopped, outcome: Outcome, *, exact: bool) -> str | None:
    if isinstance(ran, Stopped):
        return str(ran)
    if isinstance(outcome, str):
        return None if ran.status else f"status {ran.status}, but {outcome}"
    if ran.status:
        return f"status {ran.status}"
    sources = {port.source: port.name for port in run.project.interface.outputs}
    for name, array in outcome.items():
        found = ran.outputs[sources[name]]
        wide, other = array.astype(np.float64), found.astype(np.float64)
        agree = (wide == other) | (np.isnan(wide) & np.isnan(other))
        if not exact:
            agree |= np.isclose(wide, other, rtol=1e-5, atol=1e-6)
        if not agree.all():
            return f"%{name} is\n{found}\nnot\n{array}"
    return None


# The command


def fault_of(seed: int, *, checked: bool) -> Fault | None:
    chain = random_chain(seed)
    try:
        judged(chain, some_targets(seed), checked=checked)
    except Wrong as wrong:
        return Fault(seed, str(wrong), str(chain.module))
    except Exception:  # noqa: BLE001  # any that comes is a fault to report
        return Fault(seed, traceback.format_exc(), str(chain.module))
    return None


def faults(seeds: Sequence[int], every: int) -> Iterator[Fault]:
    """What is wrong with the modules of these seeds; each `every`-th is compiled to C."""
    waiting: dict[int, Chain] = {}
    for number, seed in enumerate(seeds):
        if number % COLLECTED == 0:
            gc.collect()  # rarely: expressions hold no cycles, compiled kernels do
        fault = fault_of(seed, checked=seed % CHECKED == 0)
        if fault is not None:
            yield fault
        elif every and seed % every == 0:
            waiting[seed] = random_chain(seed)
        if len(waiting) == PER_LIBRARY:
            yield from in_c(waiting)
            waiting = {}
    if waiting:
        yield from in_c(waiting)


def _listed(arguments: tuple[range, int]) -> list[Fault]:
    gc.disable()
    return list(faults(*arguments))


def _blocks(seeds: range, every: int) -> list[tuple[range, int]]:
    length = min(max(PER_LIBRARY * every, 100), LONGEST)
    starts = range(seeds.start, seeds.stop, length)
    return [(range(start, min(start + length, seeds.stop)), every) for start in starts]


def _results(blocks: Sequence[tuple[range, int]], jobs: int) -> Iterable[list[Fault]]:
    if jobs == 1:
        return map(_listed, blocks)
    return multiprocessing.Pool(jobs).imap(_listed, blocks)


def seed_range(text: str) -> range:
    first, _, last = text.rpartition(":")
    return range(int(first or 0), int(last))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.chains", description=__doc__)
    parser.add_argument("--seeds", type=seed_range, default=range(1000), metavar="FIRST:LAST")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--c", type=int, default=200, help="compile every such module (0: none)")
    given = parser.parse_args(arguments)
    return report(_blocks(given.seeds, given.c), lambda b: _results(b, given.jobs), given.seeds)


def report(
    blocks: Sequence[tuple[range, int]],
    results: Callable[[Sequence[tuple[range, int]]], Iterable[list[Fault]]],
    seeds: range,
) -> int:
    started, count, done = time.monotonic(), 0, 0
    for (block, _), found in zip(blocks, results(blocks), strict=True):
        done += len(block)
        count += len(found)
        for fault in found:
            say(str(fault))
        seconds = time.monotonic() - started
        say(f"{done} of {len(seeds)}: {count} faults, {seconds:.0f} s")
    return 1 if count else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
