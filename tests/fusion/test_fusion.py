# SPDX-License-Identifier: Apache-2.0
"""Fused kernels compute the same numbers as their parts, and the large values are gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import onnx
import pytest

from relax_aot import fusion, lowering, planning, transforms
from relax_aot.driver import Options, load
from relax_aot.fusion import Fused, Policy
from relax_aot.fusion.checking.dependences import unproven_pairs
from relax_aot.fusion.in_place import pairs_of
from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Call, Module
from relax_aot.ir.loops import Buffer, Kernel, Load
from relax_aot.ir.types import DType, shape_of
from relax_aot.planning import check
from relax_aot.planning.check import PlanError
from tests.fusion.run_module import run_module
from tests.models.attention import attend, cross_attention, grouped_attention
from tests.models.catalog import CATALOGUE
from tests.models.encoder import PLAIN, Variant, encoder
from tests.models.onnx_text import model_of
from tests.planning.random_modules import random_inputs, random_module, random_sizes


def small(variant: Variant = PLAIN) -> onnx.ModelProto:
    return encoder(width=8, heads=2, layers=1, hidden=12, variant=variant)


BOTH = Policy(rows_over_weights=True)


def lowered(module: Module) -> Module:
    return lowering.lower(transforms.run(module))


def loaded(model: onnx.ModelProto, **bounds: tuple[int, int]) -> Module:
    return lowered(load(model, Options(bounds=bounds)))


def same_numbers(module: Module, fused: Module, seed: int, count: int = 3) -> None:
    for number, sizes in enumerate(random_sizes(module, Random(seed), count)):
        inputs = random_inputs(module, sizes, number)
        wanted = run_module(module, inputs, sizes)
        found = run_module(fused, inputs, sizes)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, err_msg=f"{name} at {sizes}")


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Policy(), BOTH], ids=["speed", "memory"])
@pytest.mark.parametrize("seed", range(24))
def test_random_modules_compute_the_same_bits(seed: int, policy: Policy) -> None:
    module = lowered(random_module(seed).module)
    same_numbers(module, fusion.fuse(module, policy).module, seed)


@pytest.mark.parametrize("name", ["perceptron", "image_net", "branch_equal", "windows"])
def test_small_networks_compute_the_same_bits(name: str) -> None:
    entry = CATALOGUE[name]
    module = lowered(load(entry.make(), Options(bounds=entry.bounds)))
    fused = fusion.fuse(module).module
    rng = np.random.default_rng(1)
    for sizes in ({s: low for s, (low, _) in entry.bounds.items()},
                  {s: min(high, low + 4) for s, (low, high) in entry.bounds.items()}):  # fmt: skip
        inputs = entry.inputs(rng, sizes)
        wanted, found = (run_module(m, inputs, sizes) for m in (module, fused))
        for result, array in wanted.items():
            np.testing.assert_array_equal(found[result], array, err_msg=f"{result} at {sizes}")


VARIANTS = {
    "plain": Variant(),
    "masked": Variant(mask=True),
    "causal": Variant(causal=True),
    "both": Variant(mask=True, causal=True, norm="post"),
}


def values_of(module: Module) -> list[Dim]:
    return [
        out.type.elements
        for function in module.functions
        for call in function.body
        for out in call.outs
    ]


def grows_quadratically(elements: Dim) -> bool:
    """Twice the lengths take more than three times the elements, for long ones."""
    sizes = {name: 10_000 if name in ("n", "m") else 1 for name in elements.symbols}
    twice = {name: size * (2 if name in ("n", "m") else 1) for name, size in sizes.items()}
    return elements.evaluate(twice) > 3 * elements.evaluate(sizes)


def kernels_in(module: Module) -> int:
    return sum(call.op == "call_kernel" for call in module.main.body)


def only_attention_kernel(fused: Fused) -> Call:
    calls = [c for c in fused.module.main.body if "Softmax" in c.origin]
    (call,) = calls
    return call


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_has_no_square_value(name: str) -> None:
    model = small(VARIANTS[name])
    module = loaded(model, batch=(1, 2), n=(1, 9))
    assert any(map(grows_quadratically, values_of(module)))
    fused = fusion.fuse(module)
    assert not any(map(grows_quadratically, values_of(fused.module)))
    assert only_attention_kernel(fused).origin.count("MatMul") >= 2
    same_numbers(module, fused.module, 5)


def test_grouped_queries_read_shared_keys_where_they_are() -> None:
    module = loaded(grouped_attention(), b=(1, 2), n=(1, 9))
    fused = fusion.fuse(module).module
    assert kernels_in(fused) == 1
    assert not any(map(grows_quadratically, values_of(fused)))
    rng = np.random.default_rng(3)
    for b, n in ((1, 1), (2, 7), (2, 9)):
        q = rng.normal(size=(b, 4, n, 6)).astype(np.float32)
        k, v = rng.normal(size=(2, b, 2, n, 6)).astype(np.float32)
        found = run_module(fused, {"q": q, "k": k, "v": v}, {"b": b, "n": n})["y"]
        wanted = attend(q, np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1))
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_cross_attention_is_one_kernel() -> None:
    module = loaded(cross_attention(), b=(1, 2), n=(1, 9), m=(1, 12))
    fused = fusion.fuse(module).module
    assert kernels_in(fused) == 1
    assert not any(map(grows_quadratically, values_of(fused)))
    rng = np.random.default_rng(4)
    for n, m in ((1, 1), (9, 1), (1, 12), (5, 7)):
        q = rng.normal(size=(2, n, 6)).astype(np.float32)
        memory = rng.normal(size=(2, m, 6)).astype(np.float32)
        sizes = {"b": 2, "n": n, "m": m}
        found = run_module(fused, {"q": q, "memory": memory}, sizes)["y"]
        np.testing.assert_allclose(found, attend(q, memory, memory), atol=1e-5)


def test_a_quantized_weight_is_decoded_in_its_product() -> None:
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (64, 10)).astype(np.int8)
    # One for each row: for a column, the products of bytes would be summed before they are scaled.
    scale = rng.uniform(0.01, 0.03, 64).astype(np.float32)
    zero = rng.integers(-5, 6, 64).astype(np.int8)
    model = model_of(
        "decode (float[n, 64] x) => (float[n, 10] y)",
        """
        decoded = DequantizeLinear <axis = 0> (weight, scale, zero)
        y = MatMul(x, decoded)
        """,
        {"weight": weight, "scale": scale, "zero": zero},
    )
    fused = fusion.fuse(loaded(model, n=(1, 6))).module
    assert kernels_in(fused) == 1
    assert [c.type.dtype for c in fused.constants if c.type.rank == 2] == [DType.I8]
    x = rng.normal(size=(5, 64)).astype(np.float32)
    found = run_module(fused, {"x": x}, {"n": 5})["y"]
    values = (weight.astype(np.float64) - zero[:, None]) * scale[:, None].astype(np.float64)
    wanted = x.astype(np.float64) @ values
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_concatenation_is_written_by_those_who_make_its_parts() -> None:
    model = model_of(
        "join (float[n, 4] x, float[n, 4] z) => (float[n, 8] y)",
        """
        a = Sigmoid(x)
        b = Tanh(z)
        y = Concat <axis = 1> (a, b)
        """,
        {},
    )
    module = loaded(model, n=(1, 6))
    fused = fusion.fuse(module).module
    assert kernels_in(fused) == 1
    assert [v.name for c in fused.main.body for v in c.outs] == ["y"]
    same_numbers(module, fused, 3)


def test_half_precision_is_rounded_as_if_it_were_stored() -> None:
    """ONNX gives each node a result of its own type: a product that is not stored is rounded."""
    model = model_of(
        "halves (float16[n, 8] x, float16[8, 5] w, float16[5] b) => (float16[n, 5] y)",
        """
        product = MatMul(x, w)
        sum = Add(product, b)
        y = Mul(sum, sum)
        """,
        {},
    )
    module = loaded(model, n=(1, 6))
    fused = fusion.fuse(module).module
    assert kernels_in(fused) == 1
    rng = np.random.default_rng(2)
    shapes = {"x": (6, 8), "w": (8, 5), "b": (5,)}
    inputs = {k: rng.normal(size=shape).astype(np.float16) for k, shape in shapes.items()}
    wanted, found = (run_module(m, inputs, {"n": 6})["y"] for m in (module, fused))
    np.testing.assert_array_equal(found, wanted)


def test_the_arena_grows_linearly_with_the_length() -> None:
    need = {}
    for n in (64, 128, 256):
        fused = fusion.fuse(loaded(small(), batch=(1, 1), n=(1, n)))
        need[n] = planning.plan(fused.module).arena_bytes
    assert need[256] - need[128] == 2 * (need[128] - need[64])


def test_the_summary_says_why_neighbors_stay_apart() -> None:
    fused = fusion.fuse(loaded(small(), batch=(1, 1), n=(1, 9)))
    assert fused.summary.after.calls < fused.summary.before.calls
    assert fused.summary.after.bytes_moved < fused.summary.before.bytes_moved
    makers = {o.name: c for c in fused.module.main.body for o in c.outs}
    for note in fused.summary.apart:
        assert note.value in makers and note.reason


# In place

N = Dim.of("n")
BOUNDS = Bounds.of({"n": (2, 9)})


def kernel_of(index: Callable[[Dim, Dim], tuple[Dim, Dim]]) -> Kernel:
    x, y = (Buffer(name, DType.F32, shape_of("n", "n")) for name in "xy")
    k = KernelBuilder("k", [x], [y])
    with k.loops(N, N) as (i, j):
        k.store(y[(i, j)], Load(x, index(i, j)) + 1.0)
    return k.finish()


@pytest.mark.parametrize(
    ("index", "may"),
    [
        (lambda i, j: (i, j), True),
        (lambda i, j: (j, i), False),
        (lambda i, j: (i, N - 1 - j), False),
        (lambda i, j: (i, Dim.of(0)), False),
    ],
    ids=["same", "transposed", "backwards", "first"],
)
def test_an_element_is_read_before_its_place_is_written(
    index: Callable[[Dim, Dim], tuple[Dim, Dim]], may: bool
) -> None:
    assert pairs_of(kernel_of(index), BOUNDS) == ((("x", "y"),) if may else ())


@pytest.mark.parametrize(
    ("read", "written", "may"),
    [((1, 0), (0, 0), True), ((1, 1), (0, 0), True), ((0, 1), (0, 0), True),
     ((0, 0), (1, 0), False), ((1, 0), (0, 1), False), ((0, 0), (0, 1), False)],
)  # fmt: skip
def test_elements_of_later_iterations_may_be_read(
    read: tuple[int, int], written: tuple[int, int], may: bool
) -> None:
    """Rows and columns by which the accesses are ahead of the loops. A read ahead in one loop and
    behind in the other would forbid that loops are tiled."""
    x, y = (Buffer(name, DType.F32, shape_of("n", "n")) for name in "xy")
    k = KernelBuilder("k", [x], [y])
    with k.loops(N - 1, N - 1) as (i, j):
        value = Load(x, (i + read[0], j + read[1])) + 1.0
        k.store(y[(i + written[0], j + written[1])], value)
    kernel = k.finish()
    assert pairs_of(kernel, BOUNDS) == ((("x", "y"),) if may else ())
    proven = not unproven_pairs(replace(kernel, in_place=(("x", "y"),)), BOUNDS)
    assert proven == (may or read == (1, 0))  # the kernel as it stands is not tiled


def test_a_row_is_read_before_it_is_written() -> None:
    """As in a normalization: sums of the row first; not when the sums come after."""
    x, y = (Buffer(name, DType.F32, shape_of("n", 4)) for name in "xy")

    def kernel(late: bool) -> Kernel:
        k = KernelBuilder("k", [x], [y])
        with k.loops(N) as (i,):
            total = k.local("total", DType.F32, 0.0)
            for again in (False, True):
                if again is late:
                    with k.loops(4) as (j,):
                        k.assign(total, total + x[(i, j)])
                else:
                    with k.loops(4) as (j,):
                        k.store(y[(i, j)], x[(i, j)] - total)
        return k.finish()

    assert pairs_of(kernel(late=False), BOUNDS) == (("x", "y"),)
    assert pairs_of(kernel(late=True), BOUNDS) == ()


def test_the_checker_sees_an_operand_that_is_lost() -> None:
    """A value that is read again after its memory was given away: the checker objects."""
    good = planning.plan(fusion.fuse(loaded(small(), batch=(1, 1), n=(1, 9))).module)
    check.check(good)
    gone = next(
        v for call in good.module.main.body if call.op != "view" for v in call.outs
        if v.name not in good.program.values and good.program.root(v.name) in good.program.values
    )  # fmt: skip
    main = good.module.main
    late = replace(main.body[-1], args=(*main.body[-1].args, gone))
    broken = replace(good.module, functions=(replace(main, body=(*main.body[:-1], late)),))
    with pytest.raises(PlanError, match="read later"):
        check.check(replace(good, module=broken))
