# SPDX-License-Identifier: Apache-2.0
"""Kernels that may not be merged stay two, and what `legality` proves holds for every size."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relax_aot as rx
from relax_aot import fusion, lowering, transforms
from relax_aot.driver import Options, load
from relax_aot.fusion import legality
from relax_aot.ir.dims import Bounds, Dim, assume, dim_max
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Buffer, For, If, Lit, Stmt, Store, binary
from relax_aot.ir.loops import Index as IndexValue
from relax_aot.ir.types import DType
from tests.fusion.run_module import run_module
from tests.planning.random_modules import random_inputs

LAST_WINS = """
symbol n in 1..9
func @main(%x: f32[n]) {
  %t: f32[n] = call_kernel(%x) {kernel=@reverse}
  %y: f32[] = call_kernel(%t) {kernel=@last_positive}
  return %y
}
kernel @reverse(%a: f32[n]) -> (%o: f32[n]) {
  for i in 0..n {
    %o[n - 1 - i] = %a[i]
  }
}
kernel @last_positive(%a: f32[n]) -> (%o: f32[]) {
  for i in 0..n {
    if (-1000000.0:f32 < %a[i]) {
      %o[] = %a[i]
    }
  }
}
"""

STORED_TWICE = """
symbol n in 1..8
func @main(%x: f32[n]) {
  %t: f32[n] = call_kernel(%x) {kernel=@twice}
  %y: f32[3] = call_kernel(%t) {kernel=@total}
  return %y
}
kernel @twice(%a: f32[n]) -> (%o: f32[n]) {
  for i in 0..n {
    %o[i] = 1.0:f32
  }
  for k in 0..n {
    %o[k] = %a[k]
  }
}
kernel @total(%a: f32[n]) -> (%o: f32[3]) {
  for j in 0..3 {
    %o[j] = 0.0:f32
  }
  for i in 0..n {
    %o[1] = (%o[1] + %a[i])
  }
}
"""

MANY_TO_ONE = """
symbol n in 1..9
func @main(%x: f32[n, 3]) {
  %t: f32[n, 3] = call_kernel(%x) {kernel=@columns}
  %y: f32[n + 2] = call_kernel(%t) {kernel=@diagonals}
  return %y
}
kernel @columns(%a: f32[n, 3]) -> (%o: f32[n, 3]) {
  for j in 0..3 {
    for i in 0..n {
      local v: f32 = (%a[i, j] + 1.0:f32)
      %o[i, j] = (v * v)
    }
  }
}
kernel @diagonals(%a: f32[n, 3]) -> (%o: f32[n + 2]) {
  for i in 0..n {
    for j in 0..3 {
      %o[i + j] = %a[i, j]
    }
  }
}
"""

ONE_BRANCH = """
symbol n in 1..9
func @main(%x: f32[n]) {
  %t: f32[n] = call_kernel(%x) {kernel=@positive}
  %y: f32[n] = call_kernel(%t) {kernel=@plus}
  return %y
}
kernel @positive(%a: f32[n]) -> (%o: f32[n]) {
  for i in 0..n {
    %o[i] = 0.0:f32
  }
  for i in 0..n {
    if (0.0:f32 < %a[i]) {
      %o[i] = %a[i]
    }
  }
}
kernel @plus(%a: f32[n]) -> (%o: f32[n]) {
  for i in 0..n {
    %o[i] = (%a[i] + 1.0:f32)
  }
}
"""

INTERCHANGED_ROWS = """
symbol n in 2..7
func @main(%x: f32[2]) {
  %t: f32[n, n] = call_kernel(%x) {kernel=@table}
  %y: f32[2*n] = call_kernel(%t) {kernel=@sums}
  return %y
}
kernel @table(%a: f32[2]) -> (%o: f32[n, n]) {
  for j in 0..n {
    for i in 0..n {
      local v: f32 = (%a[0] * cast(index(i), f32, wrap))
      v = (v + (%a[1] * cast(index(j), f32, wrap)))
      %o[i, j] = v
    }
  }
}
kernel @sums(%a: f32[n, n]) -> (%o: f32[2*n]) {
  for i in 0..n {
    for j in 0..n {
      for k in 0..2 {
        %o[i + j + k] = %a[i, j]
      }
    }
  }
}
"""

LOOPS_OF_ONE_NAME = """
symbol n in 1..4
func @main(%x: f32[n, 3, 4]) {
  %t: f32[n, 3, 4] = call_kernel(%x) {kernel=@flip}
  %v = reshape(%t) {shape=[n, 12]}
  %y: f32[n, 17] = call_kernel(%v) {kernel=@both}
  return %y
}
kernel @flip(%a: f32[n, 3, 4]) -> (%o: f32[n, 3, 4]) {
  for i in 0..n {
    for j in 0..3 {
      for k in 0..4 {
        %o[i, j, k] = %a[n - 1 - i, 2 - j, k]
      }
    }
  }
}
kernel @both(%a: f32[n, 12]) -> (%o: f32[n, 17]) {
  for i in 0..n {
    for j in 0..12 {
      %o[i, j] = %a[i, j]
    }
    for j in 0..4 {
      %o[i, 12 + j] = %a[i, j]
    }
    %o[i, 16] = 5.0:f32
  }
}
"""

PROGRAMS = {
    "last wins": LAST_WINS,
    "stored twice": STORED_TWICE,
    "many to one": MANY_TO_ONE,
    "one branch": ONE_BRANCH,
    "interchanged rows": INTERCHANGED_ROWS,
    "loops of one name": LOOPS_OF_ONE_NAME,
}


def lowered(module: Module) -> Module:
    return lowering.lower(transforms.run(module))


@pytest.mark.parametrize("memory", [False, True], ids=["speed", "memory"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_the_same_fused(name: str, memory: bool) -> None:
    module = lowered(rx.parse(PROGRAMS[name]))
    fused = fusion.fuse(module, fusion.Policy(rows_over_weights=memory)).module
    (symbol,) = module.symbols
    for size in range(symbol.low, symbol.high + 1):
        sizes = {symbol.name: size}
        for seed in range(3):
            inputs = random_inputs(module, sizes, seed)
            # Where kernels leave elements unwritten, the interpreter objects by itself.
            wanted, found = (run_module(m, inputs, sizes) for m in (module, fused))
            np.testing.assert_array_equal(found["y"], wanted["y"], err_msg=f"{size}")


def unpool_and_scatter(places: np.ndarray, at: np.ndarray) -> onnx.ModelProto:
    """MaxUnpool -> Add(1) -> ScatterND(add) -> Relu."""
    size = len(places)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, size]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, [2 * size]),
    ]
    nodes = [
        helper.make_node("MaxUnpool", ["x", "places"], ["u"], kernel_shape=[2], strides=[2]),
        helper.make_node("Add", ["u", "one"], ["v"]),
        helper.make_node("ScatterND", ["z", "at", "v"], ["s"], reduction="add"),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    stored = {
        "one": np.ones(1, np.float32),
        "places": places.reshape(1, 1, size),
        "at": at.reshape(1, 1, 2 * size, 1),
    }
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2 * size])
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "unpool", inputs, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run_fused(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    fused = fusion.fuse(lowered(load(model, Options()))).module
    return run_module(fused, inputs, {})["y"]


@pytest.mark.parametrize("size", [2, 3, 4, 7, 9])
def test_unpooling_and_scattering_are_not_merged(size: int) -> None:
    """Against the definitions of the four operators."""
    rng = np.random.default_rng(size)
    x = rng.normal(size=(1, 1, size)).astype(np.float32)
    z = rng.normal(size=2 * size).astype(np.float32)
    places = 2 * np.arange(size) + rng.integers(0, 2, size)
    at = rng.integers(0, 2 * size, 2 * size)
    made = np.ones(2 * size, np.float32)
    made[places] += x.reshape(-1)
    wanted = z.copy()
    np.add.at(wanted, at, made)
    found = run_fused(unpool_and_scatter(places, at), {"x": x, "z": z})
    np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=1e-5, atol=1e-6)


def test_the_published_example_of_unpooling() -> None:
    x = np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 4)
    model = unpool_and_scatter(np.array([0, 2, 4, 6]), np.arange(8))
    found = run_fused(model, {"x": x, "z": np.zeros(8, np.float32)})
    np.testing.assert_array_equal(found, [2, 1, 3, 1, 4, 1, 5, 1])


# What is proven, against enumeration

NAMES = ("i", "j", "k")
SIZES = ("n", "m")
RANGES = {"n": (0, 4), "m": (1, 3)}


def random_index(random: Random, count: int) -> tuple[Dim, ...]:
    """Axes as sums of variables with strides, quotients and remainders."""
    axes = []
    for _ in range(random.randint(1, 3)):
        dim = Dim.of(random.randint(0, 2))
        for name in random.sample(NAMES[:count], random.randint(0, count)):
            stride = random.choice((1, 1, 2, 3, 4, -1, Dim.of("n"), Dim.of("m"), 0))
            dim = dim + Dim.of(name) * stride
        if random.random() < 0.3:
            divisor = random.choice((2, 3))
            axes.append(dim // divisor)
            dim = dim % random.choice((divisor, divisor, 4))
        axes.append(dim)
    return tuple(axes)


def random_loops(random: Random, count: int) -> tuple[For, ...]:
    loops: list[For] = []
    for name in NAMES[:count]:
        stops = [Dim.of(random.choice((1, 2, 3, 4))), *map(Dim.of, SIZES)]
        if loops and random.random() < 0.2:
            stops = [Dim.of(loops[0].variable) + 1]
        start = Dim.of(0) if random.random() < 0.8 else Dim.of(1)
        loops.append(For(name, start, random.choice(stops), ()))
    return tuple(loops)


def iterations(loops: tuple[For, ...], sizes: dict[str, int]) -> list[dict[str, int]]:
    found = [dict(sizes)]
    for loop in loops:
        found = [
            {**known, loop.variable: value}
            for known in found
            for value in range(loop.start.evaluate(known), loop.stop.evaluate(known))
        ]
    return found


def all_sizes() -> list[dict[str, int]]:
    ranges = (range(low, high + 1) for low, high in RANGES.values())
    return [dict(zip(RANGES, values, strict=True)) for values in product(*ranges)]


BOUNDS = Bounds.of(RANGES)


@pytest.mark.slow
def test_what_is_proven_one_to_one_is_so_at_every_size() -> None:
    random = Random(0)
    proven = 0
    for _ in range(1500):
        count = random.randint(1, 3)
        index, loops = random_index(random, count), random_loops(random, count)
        if not legality.one_to_one(index, loops, BOUNDS):
            continue
        proven += 1
        for sizes in all_sizes():
            stored = [tuple(d.evaluate(at) for d in index) for at in iterations(loops, sizes)]
            assert len(set(stored)) == len(stored), f"{index} in {loops} at {sizes}"
    assert proven > 300


def test_loops_up_to_a_size_that_equals_another_are_proven_one_to_one() -> None:
    n, k, m = Dim.of("n"), Dim.of("k"), Dim.of("m")
    bounds = assume(Bounds.of(dict.fromkeys("nkm", (0, 4))), [("==", k, n)])
    rows, columns = Dim.of(4), dim_max(k, m)
    loops = (For("i", Dim.of(0), rows, ()), For("j", Dim.of(0), columns, ()))
    assert legality.one_to_one((Dim.of("i") * columns + Dim.of("j"),), loops, bounds)


def nested(loops: tuple[For, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for loop in reversed(loops):
        body = (For(loop.variable, loop.start, loop.stop, body),)
    return body


def random_writer(random: Random) -> tuple[tuple[Stmt, ...], Buffer]:
    """One or two loop nests that store to one buffer, some on a condition."""
    parts = random.choice((1, 1, 2))
    count = random.randint(1, 2)
    widths = [Dim.of(random.choice((2, 3, "n", "m"))) for _ in range(count)]
    split = random.randrange(count)
    total = [w * parts if a == split else w for a, w in enumerate(widths)]
    buffer = Buffer("t", DType.F32, tuple(total))
    body: tuple[Stmt, ...] = ()
    for part in range(parts):
        names = random.sample(NAMES[:count], count)
        loops = tuple(
            For(name, Dim.of(0), w if random.random() < 0.9 else w + 1, ())
            for name, w in zip(names, widths, strict=True)
        )
        index = [Dim.of(name) for name in names]
        index[split] = index[split] + widths[split] * (part if random.random() < 0.9 else 0)
        if random.random() < 0.2:
            index[split] = total[split] - 1 - index[split]
        store: tuple[Stmt, ...] = (Store(buffer, tuple(index), Lit(1.0, DType.F32)),)
        if random.random() < 0.2:
            condition = binary("<", IndexValue(Dim.of(names[0])), 1)
            store = (If(condition, store, store if random.random() < 0.5 else ()),)
        body += nested(tuple(random.sample(loops, count)), store)
    return body, buffer


def counted(body: tuple[Stmt, ...], known: dict[str, int], found: Counter[tuple[int, ...]]) -> None:
    for stmt in body:
        match stmt:
            case For():
                for value in range(stmt.start.evaluate(known), stmt.stop.evaluate(known)):
                    counted(stmt.body, {**known, stmt.variable: value}, found)
            case If():
                assert isinstance(stmt.condition, type(binary("<", IndexValue(Dim.of(0)), 1)))
                left = stmt.condition.left
                assert isinstance(left, IndexValue)
                taken = stmt.then if left.dim.evaluate(known) < 1 else stmt.otherwise
                counted(taken, known, found)
            case Store():
                found[tuple(dim.evaluate(known) for dim in stmt.index)] += 1
            case _:
                raise AssertionError(stmt)


@pytest.mark.slow
def test_what_is_proven_stored_once_is_so_at_every_size() -> None:
    random = Random(1)
    proven = 0
    for _ in range(1000):
        body, buffer = random_writer(random)
        if not legality.stored_once(body, buffer.name, buffer.shape, BOUNDS):
            continue
        proven += 1
        for sizes in all_sizes():
            found: Counter[tuple[int, ...]] = Counter()
            counted(body, sizes, found)
            shape = [size.evaluate(sizes) for size in buffer.shape]
            wanted = Counter(product(*map(range, shape)))
            assert found == wanted, f"{body} at {sizes}"
    assert proven > 200
