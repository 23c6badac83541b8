# SPDX-License-Identifier: Apache-2.0
"""Random programs whose states grow, some with a window, compute the same before and after every
stage, and in C.

    python -m tests.fuzz.growing --seeds 0:10000 [--c 20]

Each program is evaluated as it was written, with the caller joining old and new rows. Some gather
rows by indices from data, some multiply matrices of old and new rows. The stages
from lowering on run with states at their capacity, where rows behind the length are NaN. Every
`--c`-th program is also compiled to C, for one board after the other, and called with truncations
between the calls.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

import relax_aot as rx
from relax_aot import driver, fusion, lowering, scheduling, transforms
from relax_aot.evaluation.reference import evaluate
from relax_aot.ir import check
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Module
from relax_aot.ops import deduce
from relax_aot.planning import plan
from relax_aot.project.board import load_board
from relax_aot.scheduling import threads
from relax_aot.scheduling.targets import all_targets
from relax_aot.verify.host import HostModel, build_shared, library_files
from relax_aot.verify.library import Library

Array = np.ndarray[Any, Any]
Shape = tuple[Dim, ...]
CALLS = 8
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror",
         "-ffp-contract=off", "-fno-strict-aliasing")  # fmt: skip
UNARY = ("abs", "neg", "relu", "tanh")
BINARY = ("add", "mul", "max", "sub")


class Wrong(AssertionError):
    """A stage, or the C, changed what a program computes."""


# Programs


@dataclass
class Draft:
    """Lines of a function, and the values that later lines may read."""

    source: random.Random
    lines: list[str]
    values: list[tuple[str, Shape]]

    def emit(self, shape: Shape, text: str) -> tuple[str, Shape]:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  %{name}: f32[{', '.join(map(str, shape))}] = {text}")
        self.values.append((name, shape))
        return name, shape


def random_program(seed: int) -> Module:
    """One or two growing states on any axis, and readers of old rows, new rows, and all."""
    source = random.Random(seed)
    step = Dim.of("s") if source.random() < 0.7 else Dim.of(source.randint(1, 3))
    capacity = source.randint(6, 14)
    draft = Draft(source, [], [])
    params, states, results = ["%x0: f32[3]", "%at: i64[2]"], [], []
    for number in range(source.choice((1, 1, 2))):
        rank = source.randint(1, 4)
        axis = source.randrange(rank)
        old: Shape = tuple(Dim.of(source.choice((1, 2, 3, 4))) for _ in range(rank))
        before, new, after = (
            (*old[:axis], size, *old[axis + 1 :])
            for size in (Dim.of("m"), step, Dim.of("m") + step)
        )
        params.append(f"%p{number}: f32[{', '.join(map(str, before))}]")
        params.append(f"%x{number + 1}: f32[{', '.join(map(str, new))}]")
        states.append(f"state %p{number} = %q{number}")
        draft.values += [(f"p{number}", before), (f"x{number + 1}", new)]
        added = _changed(draft, (f"x{number + 1}", new))
        joined = _joined(draft, (f"p{number}", before), added, axis, after)
        draft.lines[-1] = draft.lines[-1].replace(f"%{joined}:", f"%q{number}:")
        draft.values[-1] = (f"q{number}", after)
        results.append(f"q{number}")
    made = len(draft.lines)
    draft.emit((Dim.of(3),), "neg(%x0)")
    for _ in range(source.randint(1, 6)):
        _reader(draft, source.choice(draft.values))
    outputs = [f"v{n}" for n in range(made, len(draft.lines))]
    results += source.sample(outputs, source.randint(1, len(outputs)))
    text = [f"symbol m in 0..{capacity}", *(["symbol s in 1..4"] if step == Dim.of("s") else [])]
    # Programs without windows stay as they are.
    window = {"m": capacity // 2} if random.Random(~seed).random() < 0.4 else {}
    text += [*states, f"func @main({', '.join(params)}) {{", *draft.lines]
    text += [f"  return {', '.join(f'%{name}' for name in results)}", "}"]
    return rx.parse("\n".join(text), window=window)


def _changed(draft: Draft, value: tuple[str, Shape]) -> tuple[str, Shape]:
    if draft.source.random() < 0.5:
        return value
    return draft.emit(value[1], f"{draft.source.choice(UNARY)}(%{value[0]})")


def _joined(
    draft: Draft, old: tuple[str, Shape], new: tuple[str, Shape], axis: int, after: Shape
) -> str:
    """Old and new rows: mostly one behind the other; sometimes through views, in another order,
    or with old rows that change."""
    kind = draft.source.randrange(8)
    if kind == 0:
        old = draft.emit(old[1], f"tanh(%{old[0]})")
    parts = [old, new]
    if kind == 1:
        parts.reverse()
    if kind == 2:  # another axis in front and behind
        parts = [
            draft.emit((Dim.of(1), *shape), f"reshape(%{name}) {{shape=[{_sizes((1, *shape))}]}}")
            for name, shape in parts
        ]
        names = ", ".join(f"%{name}" for name, _ in parts)
        name, _ = draft.emit((Dim.of(1), *after), f"concat({names}) {{axis={axis + 1}}}")
        return draft.emit(after, f"reshape(%{name}) {{shape=[{_sizes(after)}]}}")[0]
    names = ", ".join(f"%{name}" for name, _ in parts)
    name, _ = draft.emit(after, f"concat({names}) {{axis={axis}}}")
    if kind == 3:
        name, _ = draft.emit(after, f"relu(%{name})")
    return name


def _sizes(shape: Iterable[object]) -> str:
    return ", ".join(map(str, shape))


def _reader(draft: Draft, value: tuple[str, Shape]) -> None:
    source, (name, shape) = draft.source, value
    match source.randrange(9 if shape else 2):
        case 0:
            draft.emit(shape, f"{source.choice(UNARY)}(%{name})")
        case 1:
            other = source.choice([v for v, one in draft.values if one == shape])
            draft.emit(shape, f"{source.choice(BINARY)}(%{name}, %{other})")
        case 2:
            perm = source.sample(range(len(shape)), len(shape))
            draft.emit(tuple(shape[i] for i in perm), f"transpose(%{name}) {{perm={perm}}}")
        case 3:
            at = source.randrange(len(shape))
            merged = (*shape[:at], *([shape[at] * shape[at + 1]] if at + 1 < len(shape) else []))
            merged = (*merged, *shape[at + 2 :]) if at + 1 < len(shape) else (*shape, Dim.of(1))
            draft.emit(merged, f"reshape(%{name}) {{shape=[{_sizes(merged)}]}}")
        case 4:
            total = Dim.of(1)
            for size in shape:
                total = total * size
            draft.emit((total,), f"reshape(%{name}) {{shape=[{total}]}}")
        case 5:
            axis = source.randrange(len(shape))
            rest = (*shape[:axis], *shape[axis + 1 :])
            kind = source.choice(("sum", "max"))
            if kind == "sum" or not shape[axis].symbols:
                attrs = f'axes=[{axis}], keepdims=false, kind="{kind}"'
                draft.emit(rest, f"reduce(%{name}) {{{attrs}}}")
        case 6:
            axis = source.randrange(len(shape))
            if "m" in shape[axis].symbols and shape[axis] != Dim.of("m"):
                start = source.choice((Dim.of(0), shape[axis] - Dim.of("m")))
                cut = (*shape[:axis], Dim.of("m"), *shape[axis + 1 :])
                attrs = f"starts=[{start}], lengths=[m], axes=[{axis}], steps=[1]"
                draft.emit(cut, f"slice(%{name}) {{{attrs}}}")
        case 7:
            axis = source.randrange(len(shape))
            if shape[axis].evaluate({"m": 0, "s": 1}):
                rows = (*shape[:axis], Dim.of(2), *shape[axis + 1 :])
                draft.emit(rows, f"gather(%{name}, %at) {{axis={axis}}}")
        case 8 if len(shape) > 1:
            perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            turned = tuple(shape[i] for i in perm)
            other, _ = draft.emit(turned, f"transpose(%{name}) {{perm={perm}}}")
            draft.emit((*shape[:-1], shape[-2]), f"matmul(%{name}, %{other})")


# Runs


def _calls(module: Module, seed: int) -> Iterator[tuple[dict[str, int], dict[str, Array]]]:
    """Sizes and inputs of consecutive calls; a call may find fewer rows than the last one left."""
    rng = np.random.default_rng(seed)
    growth = module.lengths["m"]
    held = 0
    for number in range(CALLS):
        sizes = {"m": held, "s": int(rng.integers(1, 5))}
        if number % 3 == 2 or growth.kept(sizes) > growth.capacity:
            sizes["m"] = int(rng.integers(0, held + 1))
        if growth.kept(sizes) > growth.capacity:
            sizes["m"] = 0
        sizes = {s.name: sizes[s.name] for s in module.symbols}
        states = {state.input for state in module.states}
        inputs: dict[str, Array] = {
            p.name: rng.normal(size=[d.evaluate(sizes) for d in p.type.shape]).astype(np.float32)
            for p in module.main.params
            if p.name not in (*states, "at")
        }
        inputs["at"] = rng.integers(-1, 1, 2)  # the first and last rows: every size has these
        yield sizes, inputs
        held = growth.kept(sizes)


class _Calls:
    """Consecutive calls of a stage of a program: the caller keeps the rows."""

    def __init__(self, source: Module, stage: Module) -> None:
        self._source, self._stage = source, stage
        self._held: dict[str, Array] = {}

    def __call__(self, sizes: dict[str, int], inputs: Mapping[str, Array]) -> dict[str, Array]:
        feed = dict(inputs)
        for param in self._source.main.params:
            if param.name not in inputs:
                shape = [d.evaluate(sizes) for d in param.type.shape]
                held = self._held.get(param.name, np.zeros(shape, np.float32))
                feed[param.name] = held[tuple(slice(0, size) for size in shape)]
        results = evaluate(self._stage, feed, sizes)
        for state in self._source.states:
            rows = self._source.lengths[state.length].kept(sizes)
            present = results[state.output]
            last = range(present.shape[state.axis] - rows, present.shape[state.axis])
            self._held[state.input] = present.take(last, axis=state.axis)
        return results


def stages(module: Module) -> Iterator[tuple[str, Module]]:
    module = lowering.lower(transforms.run(module))
    yield "lowering", module
    module = fusion.fuse(lowering.check_then_trust(module)).module
    yield "fusion", module
    for target in all_targets():
        yield f"scheduling for {target.name}", scheduling.schedule(module, target, "speed")


def compare_stages(module: Module, seed: int) -> None:
    for name, changed in stages(module):
        check.check(changed, deduce)
        plan(changed)
        plan(changed, keep_states=True)
        wanted, ours = _Calls(module, module), _Calls(module, changed)
        for sizes, inputs in _calls(module, seed):
            _compare(name, sizes, ours(sizes, inputs), wanted(sizes, inputs))


def compare_c(module: Module, seed: int) -> None:
    shared = 1 + seed // 3 % 2
    options = driver.Options(name="grown", stepwise=seed % 3 == 1, threads=shared)
    with patch.object(threads, "LEAST", 1):  # loops of few iterations are shared too
        project = driver.compile_module(module, load_board("host"), options)
    library = Library(build_shared(library_files(project), FLAGS))
    host, wanted = HostModel(project.interface, library), _Calls(module, module)
    for sizes, inputs in _calls(module, seed):
        host.truncate(m=sizes["m"])
        found = host.run_at(sizes, [inputs[port.name] for port in project.interface.inputs])
        truth = wanted(sizes, inputs)
        _compare("C", sizes, found, {name: truth[name] for name in found})
        if host.length("m") != module.lengths["m"].kept(sizes):
            raise Wrong(f"the length at {sizes} becomes {host.length('m')}")


def _compare(
    stage: str, sizes: dict[str, int], found: Mapping[str, Array], wanted: Mapping[str, Array]
) -> None:
    for name, array in wanted.items():
        if not np.allclose(found[name], array, rtol=1e-4, atol=1e-5, equal_nan=False):
            raise Wrong(f"{stage}: %{name} differs at {sizes}")


def faults(seeds: Iterable[int], in_c: int) -> Iterator[str]:
    for seed in seeds:
        module = random_program(seed)
        runs: list[Callable[[Module, int], None]] = [compare_stages]
        runs += [compare_c] if seed % in_c == 0 else []
        for run in runs:
            try:
                run(module, seed)
            except Exception as error:  # noqa: BLE001 - any is a fault, which the report shows
                yield f"seed {seed}: {type(error).__name__}: {error}\n{module}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:1000")
    parser.add_argument("--c", type=int, default=20)
    chosen = parser.parse_args()
    start, _, stop = chosen.seeds.partition(":")
    found = 0
    for fault in faults(range(int(start), int(stop)), chosen.c):
        found += 1
        sys.stdout.write(f"{fault}\n")
    sys.stdout.write(f"{int(stop) - int(start)} programs, {found} faults\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
