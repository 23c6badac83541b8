# SPDX-License-Identifier: Apache-2.0
"""Random modules of text kernels: chains and small graphs over symbolic sizes, with inputs.

Kernels are those of `chain_kernels`; between them stand views and a few ops. Values are used
twice, results are duplicated, and inputs are returned as they came.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Attr, Call, Constant, Function, Module, Symbol, Var, attrs_of
from relax_aot.ir.loops import Buffer, Kernel
from relax_aot.ir.types import DType, Ref, TensorType
from relax_aot.ops import deduce
from tests.fuzz.chain_draft import Grid
from tests.fuzz.chain_kernels import PATTERNS, READERS, WRITERS, Weighted, random_kernel

Array = NDArray[Any]
Sizes = dict[str, int]

LARGEST = 48
"""Elements of one value at most."""
NAMES = ("i0", "i1", "at", "row", "n", "m", "total", "k")
"""Symbols may be called what loops and scalars of kernels are called."""
DTYPES = (
    *[DType.F32] * 12, *[DType.I32] * 3, *[DType.I64] * 3, *[DType.BOOL] * 2, DType.I8, DType.U8,
    DType.F64, DType.F16, DType.I16, DType.U32,
)  # fmt: skip
SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-40, 3e38, -3e38)


@dataclass(frozen=True)
class Chain:
    """A module, and inputs by name for several assignments of its sizes."""

    module: Module
    runs: tuple[tuple[Sizes, dict[str, Array]], ...]
    exact: bool
    """Whether every floating-point operation is exact, so that contraction keeps the bits."""


@dataclass
class _Maker:
    random: Random
    symbols: dict[str, tuple[int, int]]
    grid: Grid
    params: list[Var] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    pool: list[Var] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)
    exact: bool = True
    finite: bool = False
    """Whether inputs have to be finite: zeros of channels that go hide NaN and infinity."""
    count: int = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # Types

    def most(self, dim: Dim) -> int:
        values = {name: high for name, (_, high) in self.symbols.items()}
        return dim.evaluate(values)

    def fits(self, shape: Sequence[Dim]) -> bool:
        return int(np.prod([self.most(size) for size in shape])) <= LARGEST

    def size(self) -> Dim:
        draw = self.random.random()
        if not self.symbols or draw < 0.3:
            return Dim.of(self.random.choice((1, 2, 3, 3, 4, 5)))
        n = Dim.of(self.random.choice(list(self.symbols)))
        if draw < 0.8:
            return n
        return self.random.choice((n + 1, 2 * n, (n + 1) // 2, n * 3))

    def shape(self) -> tuple[Dim, ...]:
        for _ in range(8):
            rank = self.random.choice((0, 1, 1, 1, 2, 2, 2, 3))
            found = tuple(self.size() for _ in range(rank))
            if self.fits(found):
                return found
        return (self.size(),)

    def type_like(self, sources: Sequence[Var]) -> TensorType:
        """Often the shape of an operand, or one made of its axes."""
        dtype = self.random.choice(DTYPES)
        if not sources or self.chance(0.2):
            return TensorType(dtype, self.shape())
        source = sources[0] if self.chance(0.6) else self.random.choice(sources)
        if self.chance(0.7):
            dtype = source.type.dtype
        shape = list(source.type.shape)
        draw = self.random.random()
        if draw < 0.15:
            self.random.shuffle(shape)
        elif draw < 0.3 and shape:
            del shape[self.random.randrange(len(shape))]
        elif draw < 0.4:
            shape.insert(self.random.randint(0, len(shape)), self.size())
        return TensorType(dtype, tuple(shape) if self.fits(shape) else source.type.shape)

    # Values

    def param(self, type_: TensorType) -> Var:
        var = Var(self.name("x"), type_)
        self.params.append(var)
        self.limits[var.name] = 4.0
        self.pool.append(var)
        return var

    def constant(self, type_: TensorType) -> Var:
        shape = [size.constant for size in type_.shape]
        name = self.name("c")
        self.constants.append(Constant(name, type_, drawn(self.random, type_.dtype, shape)))
        self.limits[name] = 4.0
        return self.constants[-1].var

    def some(self) -> Var:
        """One made lately rather than an old one."""
        back = min(int(self.random.expovariate(0.5)), len(self.pool) - 1)
        return self.pool[-1 - back]

    def operand(self) -> Var:
        if self.chance(0.1):
            return self.param(TensorType(self.random.choice(DTYPES), self.shape()))
        if self.chance(0.08):
            sizes = (Dim.of(self.random.randint(1, 4)),) * self.random.randint(1, 2)
            return self.constant(TensorType(self.random.choice(DTYPES), sizes))
        return self.some()

    # Calls

    def kernel_call(self) -> None:
        if self.kernels and self.chance(0.12) and self.again():
            return
        args = [self.operand() for _ in range(self.random.choice((1, 1, 1, 2, 2, 3)))]
        if self.chance(0.5):
            args[0] = self.pool[-1]
        self.kernel_of(args, PATTERNS)

    def pair(self) -> None:
        """A kernel that stores elements in several steps, and one that reads its result once."""
        self.kernel_of([self.operand()], WRITERS)
        made = self.calls[-1].outs[0]
        self.kernel_of([made, self.operand()][: self.random.randint(1, 2)], READERS)

    def kernel_of(self, args: list[Var], patterns: Weighted) -> None:
        if self.chance(0.15):
            numbers = self.param(TensorType(DType.I64, (self.size(),)))
            args.append(numbers)
        types = [self.type_like(args)]
        if patterns is READERS:
            while not types[0].shape or types[0].elements == Dim.of(1):
                types = [TensorType(types[0].dtype, self.shape())]
        if self.chance(0.25):
            same = TensorType(self.random.choice(DTYPES), types[0].shape)
            types.append(same if self.chance(0.6) else self.type_like(args))
        inputs = [Buffer(f"a{n}", v.type.dtype, v.type.shape) for n, v in enumerate(args)]
        outputs = [Buffer(f"o{n}", type_.dtype, type_.shape) for n, type_ in enumerate(types)]
        limits = {b.name: self.limits[v.name] for b, v in zip(inputs, args, strict=True)}
        name = self.name("k")
        made = random_kernel(self.random, self.grid, name, (inputs, outputs), limits, patterns)
        kernel, found, exact = made
        self.exact = self.exact and exact
        self.kernels.append(kernel)
        self.call_of(kernel, args, [found[b.name] for b in outputs])

    def again(self) -> bool:
        """A kernel once more, for other values of its types."""
        kernel = self.random.choice(self.kernels)
        args = []
        for buffer in kernel.inputs:
            found = [v for v in self.pool if v.type == buffer.type]
            found = [v for v in found if self.limits[v.name] <= 64]
            if not found:
                return False
            args.append(self.random.choice(found))
        self.call_of(kernel, args, [1e6] * len(kernel.outputs))
        return True

    def call_of(self, kernel: Kernel, args: Sequence[Var], limits: Sequence[float]) -> None:
        written = kernel.outputs + kernel.scratch
        outs = tuple(Var(self.name("v"), buffer.type) for buffer in written)
        attrs = attrs_of({"kernel": Ref(kernel.name)})
        self.calls.append(Call(outs, "call_kernel", tuple(args), attrs))
        for out, limit in zip(outs, limits, strict=False):
            self.limits[out.name] = limit
            self.pool.append(out)

    def view(self) -> None:
        """The same elements as another shape."""
        source = self.some()
        shape = list(source.type.shape)
        draw = self.random.random()
        if draw < 0.4 or len(shape) < 2:
            if len(shape) == 1 and shape[0].is_constant and shape[0].constant % 2 == 0:
                shape = [Dim.of(2), shape[0] // 2]
            else:
                shape = [source.type.elements]
        elif draw < 0.6:
            shape.insert(self.random.randint(0, len(shape)), Dim.of(1))
        elif draw < 0.8:
            at = self.random.randrange(len(shape) - 1)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        else:
            self.random.shuffle(shape)
        out = Var(self.name("w"), TensorType(source.type.dtype, tuple(shape)))
        self.append(Call((out,), "view", (source,)), self.limits[source.name])

    def append(self, call: Call, limit: float) -> None:
        self.calls.append(call)
        self.limits[call.out.name] = limit
        self.pool.append(call.out)

    def op(self) -> None:
        """An op of the graph level, element by element or a movement."""
        floats = [v for v in self.pool if v.type.dtype is DType.F32]
        if not floats:
            return
        x = self.random.choice(floats[-4:])
        limit = self.limits[x.name]
        attrs: Mapping[str, Attr] = {}
        args = [x]
        name = self.random.choice(("neg", "abs", "relu", "add", "max", "mul", "transpose", "copy"))
        if name == "transpose":
            attrs = {"perm": tuple(self.random.sample(range(x.type.rank), x.type.rank))}
        if name in ("add", "max", "mul"):
            same = [v for v in floats if v.type == x.type]
            args.append(self.random.choice(same))
            other = self.limits[args[1].name]
            limit = limit * other if name == "mul" else limit + other
        if limit > 2**20:
            return
        types = deduce(name, [v.type for v in args], attrs)
        assert types is not None, name
        out = Var(self.name("v"), types[0])
        self.append(Call((out,), name, tuple(args), attrs_of(attrs)), limit)

    def layer(self) -> None:
        """A product with constant weights, of which some channels are dead: zeros in a row (the
        channel before is not read) or in a column (this one is constant)."""
        self.finite = True
        floats = [v for v in self.pool if v.type.dtype is DType.F32 and v.type.rank]
        found = [v for v in floats if v.type.shape[-1].is_constant]
        found = [v for v in found if self.limits[v.name] <= 64]
        x = found[-1] if found else self.param(TensorType(DType.F32, (self.rows(), Dim.of(3))))
        depth, width = x.type.shape[-1].constant, self.random.randint(1, 4)
        weights = self.zeros_in(TensorType(DType.F32, (Dim.of(depth), Dim.of(width))))
        shape = (*x.type.shape[:-1], Dim.of(width))
        if x.type.rank == 1:
            shape = (Dim.of(width),)
        out = Var(self.name("v"), TensorType(DType.F32, shape))
        limit = 4 * depth * self.limits[x.name]
        self.append(Call((out,), "matmul", (x, weights)), limit)
        if self.chance(0.6):
            bias = self.constant(TensorType(DType.F32, (Dim.of(width),)))
            out, before = Var(self.name("v"), out.type), out
            self.append(Call((out,), "add", (before, bias)), limit + 4)
        if self.chance(0.6):
            out, before = Var(self.name("v"), out.type), out
            self.append(Call((out,), "relu", (before,)), limit + 4)

    def rows(self) -> Dim:
        return Dim.of(self.random.choice(list(self.symbols))) if self.symbols else Dim.of(2)

    def zeros_in(self, type_: TensorType) -> Var:
        """Weights with rows and columns of zeros."""
        var = self.constant(type_)
        array = self.constants[-1].data.copy()
        for axis, size in enumerate(array.shape):
            for at in range(size):
                if self.chance(0.3):
                    array[(slice(None),) * axis + (at,)] = 0
        self.constants[-1] = Constant(var.name, type_, array)
        return var

    # The whole

    def results(self) -> tuple[Var, ...]:
        read = {arg.name for call in self.calls for arg in call.inputs}
        made = [v for v in self.pool if v not in self.params]
        found = [v for v in made if v.name not in read or self.chance(0.15)] or made[-1:]
        if self.chance(0.06):
            found.append(self.random.choice(self.params))
        if self.chance(0.06):
            source = self.random.choice(found)
            out = Var(self.name("copy"), source.type)
            self.calls.append(Call((out,), self.random.choice(("copy", "view")), (source,)))
            found.append(out)
        self.random.shuffle(found)
        return tuple(dict.fromkeys(found))

    def module(self) -> Module:
        results = self.results()
        function = Function("main", tuple(self.params), tuple(self.calls), results)
        used = {arg.name for call in self.calls for arg in call.inputs}
        shown = {name for v in self.params for name in v.type.symbols}
        symbols = [Symbol(name, *self.symbols[name]) for name in self.symbols]
        assert shown == set(self.symbols)
        return Module(
            (function,),
            tuple(self.kernels),
            tuple(c for c in self.constants if c.name in used),
            tuple(symbols),
        )


def random_chain(seed: int) -> Chain:
    """The chain of this seed: 2 to 6 kernels."""
    random = Random(seed)
    names = random.sample(NAMES, 2) if random.random() < 0.2 else ["n", "m"]
    symbols: dict[str, tuple[int, int]] = {}
    for name in names[: random.choice((0, 1, 1, 1, 2, 2))]:
        low = random.choice((0, 1, 1, 1, 1, 2))
        symbols[name] = (low, low + random.choice((1, 2, 3, 4)))
    maker = _Maker(random, symbols, grid_of(symbols))
    first = TensorType(random.choice(DTYPES), tuple(map(Dim.of, symbols)) or maker.shape())
    maker.param(first)
    for _ in range(random.randint(2, 5)):
        draw = random.random()
        if draw < 0.12:
            maker.view()
        elif draw < 0.22:
            maker.op()
        elif draw < 0.27:
            maker.layer()
            if random.random() < 0.7:
                maker.layer()
        elif draw < 0.45:
            maker.pair()
        else:
            maker.kernel_call()
    if not maker.kernels:
        maker.kernel_call()
    return finished(maker)


def finished(maker: _Maker) -> Chain:
    module = maker.module()
    random = maker.random
    wild = random.random() < 0.12 and not maker.finite
    runs = []
    for sizes in assignments(random, maker.symbols):
        given = {}
        for var in module.main.params:
            shape = [size.evaluate(sizes) for size in var.type.shape]
            given[var.name] = drawn(random, var.type.dtype, shape, wild=wild)
        runs.append((sizes, given))
    return Chain(module, tuple(runs), maker.exact and not wild)


def grid_of(symbols: Mapping[str, tuple[int, int]]) -> Grid:
    ranges = [range(low, high + 1) for low, high in symbols.values()]
    rows = np.array(list(itertools.product(*ranges)), np.int64)
    return {name: rows[:, column] for column, name in enumerate(symbols)}


def assignments(random: Random, symbols: Mapping[str, tuple[int, int]]) -> list[Sizes]:
    """The lowest and highest sizes, and some between."""
    if not symbols:
        return [{}]
    found = [{name: low for name, (low, _) in symbols.items()}]
    found.append({name: high for name, (_, high) in symbols.items()})
    found.append({name: random.randint(*bounds) for name, bounds in symbols.items()})
    return [sizes for n, sizes in enumerate(found) if sizes not in found[:n]]


def drawn(random: Random, dtype: DType, shape: Sequence[int], *, wild: bool = False) -> Array:
    """Small integers; `wild` ones have special values and the extremes of integers."""
    source = np.random.default_rng(random.getrandbits(32))
    if dtype is DType.BOOL:
        return source.integers(0, 2, shape).astype(np.bool_)
    low = -4 if dtype.is_float or dtype.is_signed else 0
    numbers = source.integers(low, 5, shape)
    array: Array = np.asarray(numbers, dtype.numpy)
    if wild and array.size:
        chosen: Array
        if dtype.is_float:
            with np.errstate(all="ignore"):
                chosen = source.choice(np.array(SPECIAL), shape).astype(dtype.numpy)
        else:
            chosen = source.choice(np.array(dtype.limits, dtype.numpy), shape)
        array = np.where(source.random(shape) < 0.3, chosen, array)
    return array
