# SPDX-License-Identifier: Apache-2.0
"""Reassociate chains of matrix products by their symbolic cost.

`x @ (A @ B)` with constants A and B of low rank is computed as `(x @ A) @ B`: the product of the
constants would take more flash than both, and more multiply-adds for every number of rows. All
other chains keep the order of the model, unless `run_all` is asked for: it takes the order
with the fewest multiply-adds if that is proven for all sizes. The chains are those of the matrix
chain problem (Cormen et al., chapter 14.2), enumerated because costs are polynomials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul

from relax_aot.ir.dims import Dim, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Attr, Call, Function, Module, Var
from relax_aot.ir.names import unused_name
from relax_aot.ops import deduce
from relax_aot.transforms import drop_dead

LONGEST = 7
"""Factors of one chain: 132 orders."""
ROOTS = ("matmul", "gemm")

EXAMPLES = (
    Example(
        why="a product of constants that is larger than both",
        before="""
            symbol n in 1..8
            func @main(%x: f32[n, 32], %a: f32[32, 2], %b: f32[2, 32]) {
              %w: f32[32, 32] = matmul(%a, %b)
              %y: f32[n, 32] = matmul(%x, %w)
              return %y
            }""",
    ),
    Example(
        why="low-rank weights are read as factors",
        before="""
            symbol n in 1..8
            const %a: f32[16, 1] = splat 0.5
            const %b: f32[1, 16] = splat 0.25
            func @main(%x: f32[n, 16]) {
              %w: f32[16, 16] = matmul(%a, %b)
              %t: f32[16, 16] = transpose(%w) {perm=[1, 0]}
              %y: f32[n, 16] = matmul(%x, %t)
              return %y
            }""",
        after="""
            symbol n in 1..8
            const %a: f32[16, 1] = splat 0.5
            const %b: f32[1, 16] = splat 0.25
            func @main(%x: f32[n, 16]) {
              %b.t: f32[16, 1] = transpose(%b) {perm=[1, 0]}
              %y.left: f32[n, 1] = matmul(%x, %b.t)
              %a.t: f32[1, 16] = transpose(%a) {perm=[1, 0]}
              %y: f32[n, 16] = matmul(%y.left, %a.t)
              return %y
            }""",
    ),
    Example(
        why="factors of half precision are read as they are",
        before="""
            symbol n in 1..8
            const %a: f16[16, 1] = splat 0.5
            const %b: f16[1, 16] = splat 0.25
            func @main(%x: f32[n, 16]) {
              %u: f32[16, 1] = cast(%a) {to=f32, saturate=false}
              %v: f32[1, 16] = cast(%b) {to=f32, saturate=false}
              %w: f32[16, 16] = matmul(%u, %v)
              %y: f32[n, 16] = matmul(%x, %w)
              return %y
            }""",
        after="""
            symbol n in 1..8
            const %a: f16[16, 1] = splat 0.5
            const %b: f16[1, 16] = splat 0.25
            func @main(%x: f32[n, 16]) {
              %u: f32[16, 1] = cast(%a) {to=f32, saturate=false}
              %v: f32[1, 16] = cast(%b) {to=f32, saturate=false}
              %y.left: f32[n, 1] = matmul(%x, %u)
              %y: f32[n, 16] = matmul(%y.left, %v)
              return %y
            }""",
    ),
    Example(
        why="another reader needs the product itself",
        before="""
            symbol n in 1..8
            const %a: f32[16, 1] = splat 0.5
            const %b: f32[1, 16] = splat 0.25
            func @main(%x: f32[n, 16], %v: f32[16, 16]) {
              %w: f32[16, 16] = matmul(%a, %b)
              %y: f32[n, 16] = matmul(%x, %w)
              %z: f32[16, 16] = add(%v, %w)
              return %y, %z
            }""",
    ),
)


def run(module: Module) -> Module:
    """Only products of constants that are larger than their factors."""
    return _run(module, every=False)


def run_all(module: Module) -> Module:
    """Every chain of products."""
    return _run(module, every=True)


def _run(module: Module, *, every: bool) -> Module:
    functions = tuple(_Chains(module, f, every=every).rewritten() for f in module.functions)
    if functions == module.functions:
        return module
    return drop_dead.run(replace(module, functions=functions))


@dataclass(frozen=True, slots=True)
class _Factor:
    value: Var
    flipped: bool
    """Transposed."""
    constant: bool

    @property
    def rows(self) -> Dim:
        """Those of all matrices where it is a batch of them."""
        shape = self.value.type.shape
        return shape[-1] if self.flipped else reduce(mul, shape[:-1])

    @property
    def columns(self) -> Dim:
        return self.value.type.shape[-2 if self.flipped else -1]


@dataclass(frozen=True, slots=True)
class _Tree:
    """An order in which factors `start` to `stop` are multiplied."""

    start: int
    stop: int
    split: tuple[_Tree, _Tree] | None = None


@dataclass(frozen=True, slots=True)
class _Cost:
    work: Dim
    """Multiply-adds while running."""
    stored: int
    """Bytes of constants."""


class _Chains:
    def __init__(self, module: Module, function: Function, *, every: bool) -> None:
        self.module = module
        self.function = function
        self.every = every
        self.made = {out.name: call for call in function.body for out in call.outs}
        self.readers: dict[str, list[Call]] = {}
        for call in function.body:
            for value in call.inputs:
                self.readers.setdefault(value.name, []).append(call)
        others = [f for f in module.functions if f is not function]
        self.shown = {v.name for v in function.results}
        """Values that are read by something else than calls of this function."""
        self.shown |= {v.name for f in others for call in f.body for v in call.inputs}
        self.shown |= {v.name for f in others for v in f.results}
        self.names = {c.name for c in module.constants}
        for one in module.functions:
            self.names |= {p.name for p in one.params}
            self.names |= {o.name for call in one.body for o in call.outs}

    def rewritten(self) -> Function:
        body: list[Call] = []
        for call in self.function.body:
            body += self._reassociated(call) if call.op in ROOTS else [call]
        return replace(self.function, body=tuple(body))

    def _reassociated(self, call: Call) -> list[Call]:
        a, b = call.inputs[:2]
        flips = [bool(dict(call.attrs).get(name, False)) for name in ("trans_a", "trans_b")]
        if a.type.rank < 2 or b.type.rank != 2:
            return [call]
        left, tree = self._factors(a, flips[0], 0)
        right, other = self._factors(b, flips[1], len(left))
        factors = [*left, *right]
        if not 2 < len(factors) <= LONGEST or any(f.flipped and not f.constant for f in factors):
            return [call]
        before = _Tree(0, len(factors), (tree, other))
        best = self._best(factors, before)
        return [call] if best is before else list(self._calls(call, factors, best))

    def _factors(self, value: Var, flipped: bool, start: int) -> tuple[list[_Factor], _Tree]:
        """The matrices that `value` is a product of, and in which order they are multiplied."""
        call = self.made.get(value.name)
        if call is not None and self._opens(value, call):
            inner = call.inputs[0]
            if call.op == "transpose":
                return self._factors(inner, not flipped, start)
            parts = call.inputs[::-1] if flipped else call.inputs
            left, tree = self._factors(parts[0], flipped, start)
            right, other = self._factors(parts[1], flipped, start + len(left))
            factors = [*left, *right]
            return factors, _Tree(start, start + len(factors), (tree, other))
        return [_Factor(value, flipped, self._constant(value))], _Tree(start, start + 1)

    def _opens(self, value: Var, call: Call) -> bool:
        """Whether products read this value as its factors."""
        if not self._is_product(call) or value.name in self.shown:
            return False
        if not (self.every or self._constant(value)):
            return False
        readers = self.readers[value.name]
        if not self._constant(value):
            return len(readers) == 1 and readers[0].op in (*ROOTS, "transpose")
        return all(self._reads_factors(reader, value) for reader in readers)

    def _reads_factors(self, reader: Call, value: Var) -> bool:
        if reader.op == "transpose":
            return self._opens(reader.out, reader)
        if reader.op == "gemm":
            return value in reader.inputs[:2]
        return reader.op == "matmul" and all(arg.type.rank >= 2 for arg in reader.inputs)

    def _is_product(self, call: Call) -> bool:
        if call.op == "transpose":
            return call.attr("perm") == (1, 0) and call.inputs[0].name in self.made
        ranks = [value.type.rank for value in call.inputs]
        wide = self.every and not self._constant(call.out)
        return call.op == "matmul" and ranks[1] == 2 and (ranks[0] == 2 or (wide and ranks[0] > 2))

    def _constant(self, value: Var) -> bool:
        call = self.made.get(value.name)
        if call is None:
            return value.name in self.module.constant_table
        # A cast decodes weights of half precision, which stay so.
        known = call.op in ("matmul", "transpose") or call.op == "cast"
        return known and all(map(self._constant, call.inputs))

    def _best(self, factors: list[_Factor], before: _Tree) -> _Tree:
        """The order with the fewest multiply-adds, then bytes; never more of either."""
        bounds = self.module.bounds
        highs = {name: bounds.range(name)[1] for name in bounds}
        own = self._cost(factors, before)
        whole = self._cost(factors, _Tree(0, len(factors)), leaves=True)
        if not self.every and own.stored <= whole.stored:
            return before
        best, least = before, (own.work.evaluate(highs), own.stored)
        for tree in _orders(0, len(factors)):
            cost = self._cost(factors, tree)
            key = (cost.work.evaluate(highs), cost.stored)
            if key < least and cost.stored <= own.stored and prove_le(cost.work, own.work, bounds):
                best, least = tree, key
        return best

    def _cost(self, factors: list[_Factor], tree: _Tree, *, leaves: bool = False) -> _Cost:
        inside = factors[tree.start : tree.stop]
        if leaves:
            sizes = (f.value.type.bytes.constant for f in inside if f.constant)
            return _Cost(Dim.of(0), sum(sizes))
        area = inside[0].rows * inside[-1].columns
        if all(factor.constant for factor in inside):
            return _Cost(Dim.of(0), (area * inside[0].value.type.dtype.bytes).constant)
        if tree.split is None:
            return _Cost(Dim.of(0), 0)
        left, right = (self._cost(factors, part) for part in tree.split)
        inner = factors[tree.split[0].stop - 1].columns
        return _Cost(left.work + right.work + area * inner, left.stored + right.stored)

    def _calls(self, root: Call, factors: list[_Factor], tree: _Tree) -> Iterator[Call]:
        made: list[Call] = []

        def emit(op: str, name: str, args: tuple[Var, ...], **attrs: Attr) -> Var:
            types = deduce(op, [arg.type for arg in args], attrs)
            assert types is not None
            out = Var(unused_name(name, self.names), types[0])
            self.names.add(out.name)
            made.append(Call((out,), op, args, tuple(attrs.items()), root.origin))
            return out

        def value(part: _Tree, name: str) -> Var:
            if part.split is None:
                factor = factors[part.start]
                if not factor.flipped:
                    return factor.value
                return emit("transpose", f"{factor.value.name}.t", (factor.value,), perm=(1, 0))
            left, right = (value(one, f"{name}.left") for one in part.split)
            return emit("matmul", name, (left, right))

        assert tree.split is not None
        name = root.out.name
        left = value(tree.split[0], f"{name}.left")
        right = value(tree.split[1], f"{name}.right")
        attrs: Mapping[str, Attr] = dict(root.attrs)
        kept = tuple((k, v) for k, v in attrs.items() if k not in ("trans_a", "trans_b"))
        yield from made
        yield replace(root, args=(left, right, *root.args[2:]), attrs=kept)


def _orders(start: int, stop: int) -> Iterator[_Tree]:
    if stop - start == 1:
        yield _Tree(start, stop)
    for middle in range(start + 1, stop):
        for left in _orders(start, middle):
            for right in _orders(middle, stop):
                yield _Tree(start, stop, (left, right))
