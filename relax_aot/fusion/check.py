# SPDX-License-Identifier: Apache-2.0
"""Proves that fusion kept what every kernel computes.

The module before and the module after are compared, with nothing of the mergers' reasoning:
each fused kernel is executed once with symbols for sizes and loop variables (`checking/`),
and so is every kernel that it was made of. What both leave in an element of a result is
a term; equal terms are the same operations on the same elements in the same order.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from relax_aot.fusion.checking.arrays import Array, Arrays
from relax_aot.fusion.checking.boxes import reshaped
from relax_aot.fusion.checking.compare import Comparison, same_arrays
from relax_aot.fusion.checking.execute import Executed, NotFollowedError, execute
from relax_aot.fusion.checking.ranges import age
from relax_aot.fusion.checking.terms import Term, World, reachable
from relax_aot.ir.check import with_copies
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.graph import Call, Function, Module
from relax_aot.ir.loops import Buffer, Kernel, Stmt
from relax_aot.ir.rewrite import map_buffers


class FusionError(AssertionError):
    """Fusion is wrong, or not proven right: a defect of ours, never the user's fault."""

    def __init__(self, kernel: str, reason: str) -> None:
        super().__init__(f"fusion: kernel @{kernel}: {reason}; please report this model")
        self.kernel = kernel
        self.reason = reason


def check(before: Module, after: Module) -> None:
    """Raise FusionError unless every value of `after` is what `before` computes."""
    world = World(before.bounds)
    names = {function.name for function in before.functions}
    if names != {function.name for function in after.functions}:
        raise FusionError(after.main.name, "a function is missing")
    # Terms live until the end, so garbage collection would find little in much time.
    collected = gc.isenabled()
    gc.disable()
    try:
        for function in after.functions:
            old = before.function_table[function.name]
            _FunctionCheck(before, old, after, function, world).run()
    finally:
        if collected:
            gc.enable()


class _FunctionCheck:
    def __init__(
        self, before: Module, old: Function, after: Module, new: Function, world: World
    ) -> None:
        self._before = before
        self._old = old
        self._after = after
        self._new = new
        self._world = world
        self._arrays = Arrays(world)
        self._makers = {out.name: call for call in old.body for out in call.outs}
        self._executed: dict[str, tuple[Executed, Mapping[str, Array]]] = {}

    def run(self) -> None:
        if (self._old.params, self._old.results) != (self._new.params, self._new.results):
            raise FusionError(self._new.name, "the interface of the function changed")
        made: set[str] = set()
        ours = {out.name for call in self._old.body for out in call.outs}
        for call in self._new.body:
            missing = [v.name for v in call.inputs if v.name in ours and v.name not in made]
            name = call.ref("kernel") if call.op == "call_kernel" else call.op
            if missing:
                raise FusionError(name, f"%{missing[0]} is read before it is made")
            if call.op == "call_kernel":
                self._kernel(call)
            elif self._makers.get(call.outs[0].name if call.outs else "") != call and (
                call not in self._old.body
            ):
                raise FusionError(name, "an unfused call changed")
            twice = [v.name for v in call.outs if v.name in made]
            if twice:
                raise FusionError(name, f"%{twice[0]} is defined twice")
            made |= {out.name for out in call.outs}
        lost = [v.name for v in self._new.results if v.name in ours and v.name not in made]
        if lost:
            raise FusionError(self._new.name, f"%{lost[0]} is not made")
        calls = (self._old.body, self._new.body)
        kept, others = ({c for c in b if c.op not in ("call_kernel", "view")} for b in calls)
        if kept != others:
            raise FusionError(self._new.name, "an unfused call is missing")

    def _kernel(self, call: Call) -> None:
        kernel = self._after.kernel_table[call.ref("kernel")]
        if self._untouched(call, kernel):
            return
        for buffer, value in zip(kernel.buffers, (*call.inputs, *call.outs), strict=True):
            if buffer.type != value.type:
                raise FusionError(kernel.name, f"%{value.name} has another type than its buffer")
        parts: set[str] = set()
        try:
            found, results = self._run(kernel, call)
            self._compare(kernel, call, found, results, parts)
        except NotFollowedError as error:
            raise FusionError(kernel.name, f"{error} cannot be analyzed") from error
        except (LookupError, ValueError) as error:
            raise FusionError(kernel.name, f"{error} is used before its definition") from error
        except RecursionError as error:
            raise FusionError(kernel.name, "its terms are nested too deeply to compare") from error

    def _untouched(self, call: Call, kernel: Kernel) -> bool:
        maker = self._makers.get(call.outs[0].name)
        if maker is None or maker.op != "call_kernel":
            return False
        if maker.outs != call.outs or len(maker.inputs) != len(call.inputs):
            return False
        original = self._before.kernel_table[maker.ref("kernel")]
        same = replace(kernel, in_place=()) == replace(original, in_place=())
        if same and maker.inputs == call.inputs:
            return True
        for one, of in ((kernel, call), (original, maker)):
            values = (*of.inputs, *of.outs)
            if any(with_copies(b, v) != v.type for b, v in zip(one.buffers, values, strict=True)):
                return False
        return _over_values(kernel, call) == _over_values(original, maker)

    def _run(self, kernel: Kernel, call: Call) -> tuple[Executed, dict[str, Array]]:
        values = (*call.inputs, *call.outs)
        pairs = list(zip(kernel.buffers, values, strict=True))
        found = execute(kernel, {b.name: v.name for b, v in pairs}, self._world)
        results = {
            value.name: found.arrays[buffer.name]
            for buffer, value in pairs
            if buffer.name in found.arrays
        }
        return found, results

    def _part(self, name: str, parts: set[str]) -> Array:
        """What the kernel that makes a value before fusion leaves there."""
        call = self._makers[name]
        key = call.outs[0].name
        parts.add(key)
        if key not in self._executed:
            kernel = self._before.kernel_table[call.ref("kernel")]
            self._executed[key] = self._run(kernel, call)
        return self._executed[key][1][name]

    def _compare(
        self,
        kernel: Kernel,
        call: Call,
        found: Executed,
        results: Mapping[str, Array],
        parts: set[str],
    ) -> None:
        given = {v.name for v in call.inputs}

        def expand(leaf: Term) -> Term | None:
            assert isinstance(leaf.label, tuple)
            name = leaf.label[0]
            if name in given:
                return None
            maker = self._makers.get(name)
            if maker is None:
                return None
            if maker.op == "view":
                source = maker.inputs[0]
                index = reshaped(self._world, leaf.dims, maker.out.type.shape, source.type.shape)
                if index is None:
                    return None
                return self._world.term("leaf", (source.name, source.type.dtype), index)
            if maker.op != "call_kernel":
                return None
            array = self._part(name, parts)
            return self._arrays.read(array, self._arrays.valid(leaf.dims, array.shape))

        comparison = Comparison(self._world, expand)
        for out in call.outs[: len(kernel.outputs)]:
            maker = self._makers.get(out.name)
            if maker is None or maker.op != "call_kernel" or out not in maker.outs:
                raise FusionError(kernel.name, f"%{out.name} is no value of the module before")
            if not same_arrays(comparison, self._part(out.name, parts), results[out.name]):
                raise FusionError(kernel.name, f"%{out.name} is not proven to be the same value")
        made_of = [self._executed[part][0] for part in sorted(parts)]
        if found.checks != frozenset[object]().union(*(part.checks for part in made_of)):
            raise FusionError(kernel.name, "a data-dependent index is checked differently")
        outs = (results[out.name] for out in call.outs[: len(kernel.outputs)])
        needed = reachable(self._world, map(self._arrays.term_of, outs))
        _check_unneeded(kernel, self._world, needed, found, made_of)
        if not found.single <= frozenset[object]().union(*(part.single for part in made_of)):
            raise FusionError(kernel.name, "an index on an axis of one position is not 0")


def _check_unneeded(
    kernel: Kernel, world: World, needed: set[Term], found: Executed, parts: Sequence[Executed]
) -> None:
    """Loads that no result needs are compared with nothing, and results that are equal
    everywhere say nothing about an index: these loads have to be in bounds, or in a part, too.
    A result may need them as another loop names them, which reads what holds their values."""
    leaves = [term for term in needed if term.kind == "leaf"]
    named: set[object] = set()
    made: set[object] = set()
    for (name, index), (value, shape) in found.loads.items():
        moves = any(not dim.symbols.isdisjoint(world.ranges) for dim in index)
        if value in needed and (value.free or not moves):
            continue
        named = named or {(term.label, _numbered(term.dims, world)) for term in leaves}
        if value.kind == "leaf" and (value.label, _numbered(index, world)) in named:
            continue
        made = made or {(n, _written(at, world)) for part in parts for n, at in part.loads}
        if (name, _written(index, world)) in made:
            continue
        for dim, size in zip(index, shape, strict=True):
            bound = world.bound.get(dim.symbol or "")
            low, high = (dim, dim) if bound is None else (bound.low, bound.high)
            if not (world.known_le(ZERO, low) and world.known_le(high + ONE, size)):
                reason = f"a load of {name} is not proven to be in bounds"
                raise FusionError(kernel.name, reason)


def _numbered(index: Sequence[Dim], world: World) -> tuple[object, ...]:
    """An index and the ranges of its variables, which have numbers as names, as they appear."""
    names: dict[str, Dim] = {}
    shown = list(index)
    for dim in shown:
        for name in sorted(dim.symbols & world.ranges.keys() - names.keys(), key=age):
            names[name] = Dim.of(f"iteration {len(names)}")
            shown += world.ranges[name]
    return tuple(dim.substitute(names) for dim in shown)


def _written(index: Iterable[Dim], world: World) -> tuple[object, ...]:
    """An index and the ranges of its variables, with the names that these have in the kernel."""
    found: list[object] = []
    for dim in index:
        names = sorted(dim.symbols & world.ranges.keys())
        stems = {name: Dim.of(name.partition("'")[0]) for name in names}
        if len(set(stems.values())) < len(names):
            stems = {}
        ranges = [_written(world.ranges[name], world) for name in names]
        found.append((dim.substitute(stems), *ranges))
    return tuple(found)


def _over_values(kernel: Kernel, call: Call) -> tuple[Stmt, ...]:
    """The loops over the values of the call in place of the kernel's own buffers."""
    values = zip(kernel.buffers, (*call.inputs, *call.outs), strict=True)
    names = {b.name: Buffer(v.name, v.type.dtype, v.type.shape) for b, v in values}
    return map_buffers(kernel.body, lambda buffer: names.get(buffer.name, buffer))
