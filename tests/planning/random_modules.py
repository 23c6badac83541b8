# SPDX-License-Identifier: Apache-2.0
"""Random modules with symbolic sizes, and what they compute, said in NumPy.

A module has two to four symbols and shapes with awkward formulas. Next to each call is
a function of arrays that says what the call means, written here and not taken from the ops.
Values stay small, so that double precision and single precision agree closely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.inference.branches import conditional
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, interval, prove_le
from relax_aot.ir.graph import Module, Symbol, Var
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops.movement import normalize_slice

Array = NDArray[Any]
Sizes = Mapping[str, int]
Arrays = dict[str, Array]
Meaning = Callable[[Arrays, Sizes], None]
"""Adds what a call makes to the arrays by name."""

LARGEST = 1500
"""Elements of one value at most."""
WIDEST = 14
"""One size at most, where a formula is drawn."""
TAME = 8.0
"""Greater magnitudes are scaled down before they are used again."""


@dataclass(frozen=True)
class RandomModule:
    """`meaning` computes the results, by name, in double precision."""

    module: Module
    meaning: Callable[[Arrays, Sizes], Arrays]


@dataclass
class Maker:
    """One function under construction, with what its values mean."""

    random: Random
    builder: FunctionBuilder
    symbols: tuple[str, ...]
    pool: list[Var] = field(default_factory=list)
    limits: dict[str, float] = field(default_factory=dict)
    """Upper bounds of magnitudes."""
    meanings: list[Meaning] = field(default_factory=list)

    @property
    def bounds(self) -> Bounds:
        return self.builder.bounds

    def add(self, var: Var, limit: float, meaning: Meaning) -> Var:
        self.meanings.append(meaning)
        self.meanings.append(lambda env, sizes: check_shape(var, env[var.name], sizes))
        self.limits[var.name] = limit
        if limit > TAME and var.type.dtype is DType.F32:
            return self.scaled(var, limit)
        self.pool.append(var)
        return var

    def scaled(self, var: Var, limit: float) -> Var:
        factor = np.float32(TAME / 2 / limit)
        constant = self.builder.constant("factor", np.array(factor))
        (out,) = self.builder.call("mul", var, constant, name="tame")
        return self.add(out, TAME / 2, one(out, var, lambda x: x * np.float64(factor)))

    # Sizes

    def awkward(self, low: int, high: int) -> Dim:
        """A formula whose values lie in low..high for all sizes."""
        for _ in range(60):
            dim = self.formula(2)
            least, most = interval(dim, self.bounds)
            if low <= least and most <= high and not dim.is_constant:
                return dim
        return Dim.of(self.random.randint(max(low, 1), max(low, 1, min(high, 3))))

    def formula(self, depth: int) -> Dim:
        if depth == 0 or self.random.random() < 0.15:
            return Dim.of(self.random.choice(self.symbols))
        a, k = self.formula(depth - 1), self.random.randint(2, 5)
        match self.random.randrange(10):
            case 0:
                return a + self.random.randint(-2, 3)
            case 1:
                return a // k
            case 2:
                return ceildiv(a, k)
            case 3:
                return a % k
            case 4:
                return a * self.random.choice((2, 3, -1))
            case 5:
                return dim_min(a, self.formula(depth - 1))
            case 6:
                return dim_max(a, self.formula(depth - 1))
            case 7:
                return a * self.formula(depth - 1)
            case 8:
                return dim_max(a - self.formula(depth - 1), self.random.randint(0, 2))
            case _:
                return a + self.formula(depth - 1)

    def fits(self, *shapes: tuple[Dim, ...]) -> bool:
        """No value of such a shape is large, or shaped by a branch."""
        return all(
            interval(TensorType(DType.F32, shape).elements, self.bounds)[1] <= LARGEST
            for shape in shapes
        )

    def plain(self, var: Var) -> bool:
        """Its sizes are known on entry."""
        return var.type.symbols <= set(self.symbols)

    def some(self, wanted: Callable[[Var], bool]) -> Var | None:
        """A value, one made lately rather than an old one."""
        found = [var for var in self.pool if wanted(var)]
        return found[-1 - min(int(self.random.expovariate(0.4)), len(found) - 1)] if found else None

    # Parameters

    def parameter(self, shape: tuple[Dim, ...], dtype: DType = DType.F32) -> Var:
        var = self.builder.param("x", TensorType(dtype, shape))
        self.limits[var.name] = 2.0
        self.pool.append(var)
        return var

    def operand(self, shape: tuple[Dim, ...], dtype: DType) -> Var:
        """A new parameter, or a constant where the shape is one number."""
        if all(size.is_constant for size in shape) and self.random.random() < 0.6:
            source = np.random.default_rng(self.random.randrange(2**32))
            data = source.integers(-2, 3, [size.constant for size in shape])
            var = self.builder.constant("c", data.astype(dtype.numpy))
            self.limits[var.name] = 2.0
            wide = data.astype(widened(dtype))
            self.meanings.append(lambda env, sizes: env.update({var.name: wide}))
            return var
        return self.parameter(shape, dtype)


def one(out: Var, x: Var, function: Callable[[Array], Array]) -> Meaning:
    return lambda env, sizes: env.update({out.name: function(env[x.name])})


def two(out: Var, x: Var, y: Var, function: Callable[[Array, Array], Array]) -> Meaning:
    return lambda env, sizes: env.update({out.name: function(env[x.name], env[y.name])})


def check_shape(var: Var, array: Array, sizes: Sizes) -> None:
    """The sizes that were deduced are those of the array, at raised highs too."""
    if var.type.symbols <= sizes.keys():
        deduced = tuple(size.evaluate(sizes) for size in var.type.shape)
        assert deduced == array.shape, (var, dict(sizes), deduced, array.shape)


def widened(dtype: DType) -> Any:
    return np.float64 if dtype is DType.F32 else dtype.numpy


# One function per kind of call; each may find nothing to do.


UNARY: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("neg", np.negative), ("abs", np.abs), ("tanh", np.tanh), ("relu", lambda a: a * (a > 0)),
)  # fmt: skip


def unary(m: Maker) -> None:
    x = m.some(lambda v: v.type.dtype is DType.F32)
    if x is None:
        return
    op, function = m.random.choice(UNARY)
    (out,) = m.builder.call(op, x, name=op)
    m.add(out, m.limits[x.name], one(out, x, function))


BINARY: tuple[tuple[str, Any, Callable[[float, float], float]], ...] = (
    ("add", np.add, lambda a, b: a + b),
    ("sub", np.subtract, lambda a, b: a + b),
    ("mul", np.multiply, lambda a, b: a * b),
    ("max", np.maximum, max),
    ("min", np.minimum, max),
)


def binary(m: Maker) -> None:
    """With broadcasting: the other operand lacks axes, or has 1 in place of some."""
    x = m.some(m.plain)
    if x is None:
        return
    type_ = x.type
    y = m.some(lambda v: v.type == type_ and v != x)
    if y is None or m.random.random() < 0.6:
        tail = type_.shape[m.random.randint(0, type_.rank) :]
        shape = tuple(Dim.of(1) if m.random.random() < 0.35 else size for size in tail)
        y = m.operand(shape, type_.dtype)
    if m.random.random() < 0.5:
        x, y = y, x
    op, function, limit = m.random.choice(BINARY)
    (out,) = m.builder.call(op, x, y, name=op)
    m.add(out, limit(m.limits[x.name], m.limits[y.name]), two(out, x, y, function))


def transpose(m: Maker) -> None:
    x = m.some(lambda v: v.type.rank > 1)
    if x is None:
        return
    perm = tuple(m.random.sample(range(x.type.rank), x.type.rank))
    (out,) = m.builder.call("transpose", x, perm=perm, name="turned")
    m.add(out, m.limits[x.name], one(out, x, lambda a: np.transpose(a, perm)))


def reshape(m: Maker) -> None:
    x = m.some(lambda v: m.plain(v) and 0 < v.type.rank < 4)
    if x is None:
        return
    shape = list(x.type.shape)
    match m.random.randrange(4):
        case 0:
            shape = [x.type.elements]
        case 1 if len(shape) > 1:
            at = m.random.randrange(len(shape) - 1)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        case 2:
            shape.insert(m.random.randint(0, len(shape)), Dim.of(1))
        case _:
            m.random.shuffle(shape)
    (out,) = m.builder.call("reshape", x, shape=tuple(shape), name="view")

    def meaning(env: Arrays, sizes: Sizes) -> None:
        env[out.name] = env[x.name].reshape([size.evaluate(sizes) for size in shape])

    m.add(out, m.limits[x.name], meaning)


def concat(m: Maker) -> None:
    x = m.some(lambda v: v.type.rank > 0)
    if x is None:
        return
    axis = m.random.randrange(x.type.rank)

    def alike(v: Var) -> bool:
        others = zip(v.type.shape, x.type.shape, strict=False)
        return (
            v.type.dtype is x.type.dtype
            and v.type.rank == x.type.rank
            and all(a == b for i, (a, b) in enumerate(others) if i != axis)
        )

    parts = [x, *(v for v in (m.some(alike) for _ in range(m.random.randint(1, 2))) if v)]
    m.random.shuffle(parts)
    shape = list(x.type.shape)
    shape[axis] = sum((v.type.shape[axis] for v in parts), Dim.of(0))
    if not m.fits(tuple(shape)):
        return
    (out,) = m.builder.call("concat", *parts, axis=axis, name="joined")

    def meaning(env: Arrays, sizes: Sizes) -> None:
        env[out.name] = np.concatenate([env[v.name] for v in parts], axis=axis)

    m.add(out, max(m.limits[v.name] for v in parts), meaning)


def cut(m: Maker) -> None:
    """A slice with ends as ONNX understands them, before they are clamped."""
    x = m.some(lambda v: m.plain(v) and v.type.rank > 0)
    if x is None:
        return
    axis, step = m.random.randrange(x.type.rank), m.random.choice((1, 1, 2, 3, -1, -2))
    ends = [None if m.random.random() < 0.3 else m.awkward(0, WIDEST) for _ in range(2)]
    ends = [-end - 1 if end is not None and m.random.random() < 0.3 else end for end in ends]
    sliced(m, x, axis, (ends[0], ends[1]), step)


def sliced(m: Maker, x: Var, axis: int, ends: tuple[Dim | None, Dim | None], step: int) -> Var:
    first, length, proof = normalize_slice(*ends, step, x.type.shape[axis], m.bounds)
    m.builder.accept(proof)
    (out,) = m.builder.call(
        "slice", x, name="part", starts=(first,), lengths=(length,), axes=(axis,), steps=(step,)
    )

    def meaning(env: Arrays, sizes: Sizes) -> None:
        start, end = (None if e is None else e.evaluate(sizes) for e in ends)
        array = env[x.name]
        kept = onnx_range(start, end, step, array.shape[axis])
        env[out.name] = np.take(array, kept, axis=axis)

    return m.add(out, m.limits[x.name], meaning)


def onnx_range(start: int | None, end: int | None, step: int, size: int) -> list[int]:
    """The positions that ONNX's Slice takes. Unlike in NumPy, a start before the first
    element is the first element, whatever the direction."""
    if step > 0:
        first = 0 if start is None else min(max(start + size * (start < 0), 0), size)
        last = size if end is None else min(max(end + size * (end < 0), 0), size)
    else:
        first = size - 1 if start is None else min(max(start + size * (start < 0), 0), size - 1)
        last = -1 if end is None else min(max(end + size * (end < 0), -1), size)
    return list(range(first, last, step))


def pad(m: Maker) -> None:
    x = m.some(lambda v: m.plain(v) and v.type.rank > 0)
    if x is None:
        return
    axis = m.random.randrange(x.type.rank)
    size = x.type.shape[axis]
    mode = m.random.choice(("constant", "constant", "edge"))
    if mode == "edge" and not prove_le(1, size, m.bounds):
        return
    before, after = m.awkward(0, 5), m.awkward(0, 5)
    if mode == "constant" and m.random.random() < 0.3:
        before = -dim_min(size, m.awkward(0, 3))
    shape = list(x.type.shape)
    shape[axis] = before + size + after
    if not m.fits(tuple(shape)):
        return
    padded(m, x, axis, (before, after), mode)


def padded(m: Maker, x: Var, axis: int, widths: tuple[Dim, Dim], mode: str) -> Var:
    """Widths below zero cut; some become so where bounds are raised."""
    before, after = [Dim.of(0)] * x.type.rank, [Dim.of(0)] * x.type.rank
    before[axis], after[axis] = widths
    (out,) = m.builder.call(
        "pad", x, name="padded", before=tuple(before), after=tuple(after), mode=mode
    )

    def meaning(env: Arrays, sizes: Sizes) -> None:
        low, high = (width.evaluate(sizes) for width in widths)
        array = np.moveaxis(env[x.name], axis, 0)
        pieces = [array]
        for count, end in ((low, 0), (high, -1)):
            if count > 0:
                shape = (count, *array.shape[1:])
                fill = np.zeros(shape, array.dtype)
                piece = fill if mode == "constant" else fill + array[end]
                pieces = [piece, *pieces] if end == 0 else [*pieces, piece]
        whole = np.concatenate(pieces)
        kept = whole[max(-low, 0) : len(whole) - max(-high, 0)]
        env[out.name] = np.moveaxis(kept, 0, axis)

    return m.add(out, m.limits[x.name], meaning)


def tile(m: Maker) -> None:
    x = m.some(lambda v: m.plain(v) and v.type.rank > 0)
    if x is None:
        return
    repeats = [Dim.of(1)] * x.type.rank
    axis = m.random.randrange(x.type.rank)
    repeats[axis] = m.awkward(0, 4)
    if not m.fits(tuple(n * r for n, r in zip(x.type.shape, repeats, strict=True))):
        return
    (out,) = m.builder.call("tile", x, repeats=tuple(repeats), name="tiled")

    def meaning(env: Arrays, sizes: Sizes) -> None:
        count = repeats[axis].evaluate(sizes)
        array = env[x.name]
        empty = np.take(array, [], axis=axis)
        env[out.name] = np.concatenate([empty, *[array] * count], axis=axis)

    m.add(out, m.limits[x.name], meaning)


def expand(m: Maker) -> None:
    x = m.some(lambda v: m.plain(v) and v.type.rank < 3)
    if x is None:
        return
    shape = (m.awkward(0, 6), *x.type.shape)
    if not m.fits(shape):
        return
    (out,) = m.builder.call("expand", x, shape=shape, name="spread")

    def meaning(env: Arrays, sizes: Sizes) -> None:
        env[out.name] = np.repeat(env[x.name][None], shape[0].evaluate(sizes), axis=0)

    m.add(out, m.limits[x.name], meaning)


def matmul(m: Maker) -> None:
    x = m.some(lambda v: m.plain(v) and v.type.rank > 0 and v.type.dtype is DType.F32)
    if x is None:
        return
    inner = x.type.shape[-1]
    y = m.some(lambda v: v.type.rank == 2 and v.type.dtype is DType.F32 and m.plain(v)
               and v.type.shape[0] == inner)  # fmt: skip
    if y is None or m.random.random() < 0.5:
        y = m.operand((inner, m.awkward(1, 7)), DType.F32)
    if not m.fits((*x.type.shape[:-1], y.type.shape[-1]), y.type.shape):
        return
    (out,) = m.builder.call("matmul", x, y, name="product")
    count = max(interval(inner, m.bounds)[1], 1)
    limit = m.limits[x.name] * m.limits[y.name] * count
    m.add(out, limit, two(out, x, y, lambda a, b: np.einsum("...j,jk->...k", a, b)))


REDUCTIONS: dict[str, Callable[..., Array]] = {
    "sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean,
}  # fmt: skip


def reduce(m: Maker) -> None:
    x = m.some(lambda v: v.type.rank > 0 and v.type.dtype is DType.F32)
    if x is None:
        return
    axes = tuple(m.random.sample(range(x.type.rank), m.random.randint(1, min(x.type.rank, 2))))
    sizes = [x.type.shape[a] for a in axes]
    kind = m.random.choice(list(REDUCTIONS))
    if not all(prove_le(1, size, m.bounds) for size in sizes):
        kind = "sum"
    keep = m.random.random() < 0.5
    (out,) = m.builder.call("reduce", x, kind=kind, axes=axes, keepdims=keep, name=kind)
    limit = m.limits[x.name]
    if kind == "sum":
        for size in sizes:
            limit *= max(interval(size, m.bounds)[1], 1)
    function = REDUCTIONS[kind]
    m.add(out, limit, one(out, x, lambda a: np.asarray(function(a, axis=axes, keepdims=keep))))


def softmax(m: Maker) -> None:
    x = m.some(lambda v: v.type.rank > 0 and v.type.dtype is DType.F32)
    if x is None:
        return
    (out,) = m.builder.call("softmax", x, axis=-1, name="chances")

    def function(a: Array) -> Array:
        powers = np.exp(a)
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    m.add(out, 1.0, one(out, x, function))


def gather(m: Maker) -> None:
    """Rows chosen by a parameter of indices, some counted from the end."""
    x = m.some(lambda v: m.plain(v) and v.type.rank > 0 and prove_le(2, v.type.shape[0], m.bounds))
    if x is None:
        return
    shape = (m.awkward(0, 6),)
    if not m.fits((*shape, *x.type.shape[1:])):
        return
    at = m.parameter(shape, DType.I32)
    (out,) = m.builder.call("gather", x, at, axis=0, name="rows")
    m.add(out, m.limits[x.name], two(out, x, at, lambda a, i: a[i]))


CALLS: tuple[Callable[[Maker], None], ...] = (
    unary, binary, binary, transpose, reshape, reshape, concat, concat, cut, cut, pad, pad, tile,
    expand, matmul, reduce, softmax, gather,
)  # fmt: skip
IN_BRANCHES: tuple[Callable[[Maker], None], ...] = (
    unary, transpose, reshape, concat, cut, pad, tile, reduce,
)  # fmt: skip


def conditional_by_parameter(m: Maker) -> None:
    """`if` by a parameter; the sides may differ in sizes, and so may what follows."""
    x = m.some(lambda v: m.plain(v) and 0 < v.type.rank < 4 and v.type.dtype is DType.F32)
    if x is None:
        return
    flag = m.builder.param("flag", TensorType(DType.BOOL, ()))
    sides = []
    for side in ("then", "else"):
        builder = m.builder.branch(m.builder.unique(f"{side}.side"))
        inner = Maker(m.random, builder, m.symbols, [x], dict(m.limits))
        for _ in range(m.random.randint(1, 3)):
            m.random.choice(IN_BRANCHES)(inner)
        same = [v for v in inner.pool if v.type.rank == x.type.rank and v.type.dtype is DType.F32]
        sides.append((inner, same[-1]))
    (one_side, a), (other, b) = sides
    outs = conditional(
        m.builder, flag, (one_side.builder, other.builder), ((a,), (b,)), ["chosen"], "the test"
    )

    def meaning(env: Arrays, sizes: Sizes) -> None:
        side, value = (one_side, a) if env[flag.name] else (other, b)
        for step in side.meanings:
            step(env, sizes)
        env[outs[0].name] = env[value.name]

    m.add(outs[0], max(one_side.limits[a.name], other.limits[b.name]), meaning)


def random_module(seed: int) -> RandomModule:
    """Deterministic: the same seed gives the same module."""
    random = Random(seed)
    names = ("n", "m", "batch", "k")[: random.randint(2, 4)]
    symbols = []
    for name in names:
        low = random.choice((0, 1, 1, 1, 2, 3))
        symbols.append(Symbol(name, low, low + random.randint(1, 5), f"size {name}"))
    m = maker(*symbols, random=random)
    for name in names:
        m.parameter((Dim.of(name), m.awkward(1, 5)))
    m.parameter((m.awkward(0, WIDEST), Dim.of(random.choice(names))))
    if random.random() < 0.3:
        m.parameter((Dim.of(random.choice(names)), m.awkward(0, 6)), DType.I32)
    for _ in range(random.randint(6, 16)):
        call = conditional_by_parameter if random.random() < 0.08 else random.choice(CALLS)
        call(m)
    read = {var for call in m.builder.body for var in call.inputs}
    made = [out for call in m.builder.body for out in call.outs]
    leaves = [var for var in made if var not in read]
    results = leaves[-random.randint(2, 5) :]
    if random.random() < 0.3:
        results.append(random.choice(made))
    return finished(m, results)


def maker(*symbols: Symbol, random: Random | None = None) -> Maker:
    builder = FunctionBuilder()
    for symbol in symbols:
        builder.symbol(symbol)
    return Maker(random or Random(0), builder, tuple(symbol.name for symbol in symbols))


def finished(m: Maker, results: Sequence[Var]) -> RandomModule:
    owned = m.builder.own_results(results)
    module = m.builder.module(owned)

    def meaning(inputs: Arrays, sizes: Sizes) -> Arrays:
        env = {
            name: array.astype(np.float64) if array.dtype == np.float32 else array
            for name, array in inputs.items()
        }
        for step in m.meanings:
            step(env, sizes)
        return {o.name: env[r.name] for o, r in zip(owned, results, strict=True)}

    return RandomModule(module, meaning)


def random_sizes(module: Module, random: Random, count: int) -> list[dict[str, int]]:
    """The lowest, the highest, and some in between."""
    entry = [s for s in module.symbols if not s.inner]
    chosen = [{s.name: s.low for s in entry}, {s.name: s.high for s in entry}]
    return chosen + [
        {s.name: random.randint(s.low, s.high) for s in entry} for _ in range(count - 2)
    ]


def random_inputs(module: Module, sizes: Sizes, seed: int) -> Arrays:
    """Numbers between -2 and 2; indices that are valid for every table drawn here."""
    source = np.random.default_rng(seed)
    inputs = {}
    for var in module.main.params:
        shape = [size.evaluate(sizes) for size in var.type.shape]
        if var.type.dtype is DType.F32:
            inputs[var.name] = source.uniform(-2, 2, shape).astype(np.float32)
        elif var.type.dtype is DType.BOOL:
            inputs[var.name] = source.integers(0, 2, shape).astype(np.bool_)
        else:
            inputs[var.name] = source.integers(-2, 2, shape).astype(var.type.dtype.numpy)
    return inputs
