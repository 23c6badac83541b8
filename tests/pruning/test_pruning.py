# SPDX-License-Identifier: Apache-2.0
"""Channels that add nothing go, and every result keeps its bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

import relax_aot as rx
from relax_aot import driver, lowering, pruning, transforms
from relax_aot.ir.check import check
from relax_aot.ir.graph import Module
from relax_aot.ir.parse import parse
from relax_aot.ops import deduce
from tests.fusion.run_module import run_module
from tests.models.onnx_text import Array, Weights, model_of
from tests.pruning.nets import QuantizedNet, image, random_net

F32 = np.float32


def lowered(model: onnx.ModelProto) -> Module:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    highs = {"n": 2, "h": 6, "wd": 6}
    bounds = {d.dim_param: (1, highs[d.dim_param]) for d in dims if d.dim_param}
    module = driver.load(model, driver.Options(bounds=bounds))
    return lowering.check_then_trust(lowering.lower(transforms.run(module)))


def compare(model: onnx.ModelProto, seed: int) -> tuple[Module, Module]:
    """The module before and after, once both computed the same bits."""
    before = lowered(model)
    after = pruning.run(before)
    check(after, deduce)
    assert pruning.run(after) is after
    rng = np.random.default_rng(seed)
    sizes = {s.name: {"n": 2, "h": 5, "wd": 4}[s.name] for s in before.symbols}
    inputs = {"x": image(rng, model, sizes)}
    results = [run_module(module, inputs, sizes)["y"] for module in (before, after)]
    assert results[0].tobytes() == results[1].tobytes()
    return before, after


def shapes(module: Module) -> dict[str, str]:
    return {out.name: str(out.type) for call in module.main.body for out in call.outs}


def test_random_networks_keep_their_bits() -> None:
    smaller = 0
    for seed in range(12):
        before, after = compare(random_net(seed), seed)
        smaller += after is not before
    assert smaller >= 6


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_many_random_networks_keep_their_bits(part: int) -> None:
    for seed in range(100 + 60 * part, 160 + 60 * part):
        compare(random_net(seed), seed)


def separable(rng: np.random.Generator) -> Weights:
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 1, 3, 3), "w3": (6, 8, 1, 1), "w4": (6, 4)}
    biases = {"b1": 8, "b2": 8, "b3": 6, "b4": 4}
    weights = {name: rng.normal(size=shape).astype(F32) for name, shape in shapes.items()}
    return weights | {name: rng.normal(size=size).astype(F32) for name, size in biases.items()}


def separable_net(weights: Weights, space: str = "h, wd") -> onnx.ModelProto:
    return model_of(
        f"net (float[n, 3, {space}] x) => (float[n, 4] y)",
        """
        a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1, b1)
        ar = Relu(a)
        b = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 8> (ar, w2, b2)
        br = Relu(b)
        c = Conv <kernel_shape = [1, 1]> (br, w3, b3)
        mean = GlobalAveragePool(c)
        flat = Flatten(mean)
        y = Gemm(flat, w4, b4)
        """,
        weights,
    )


def test_channels_go_backwards_and_forwards() -> None:
    """Channel 1 is zero behind the second activation, channel 6 is read by zeros, and so is
    channel 2 of the last convolution."""
    weights = separable(np.random.default_rng(0))
    weights["w2"][1], weights["b2"][1] = 0, -1
    weights["w3"][:, 6] = 0
    weights["w4"][2] = 0
    _, after = compare(separable_net(weights), 1)
    found = shapes(after)
    assert [found[name] for name in ("a", "br", "c", "flat")] == [
        "f32[n, 6, h, wd]", "f32[n, 6, h, wd]", "f32[n, 5, h, wd]", "f32[n, 5]",
    ]  # fmt: skip


def test_a_channel_that_is_read_through_two_paths_needs_both_to_end() -> None:
    weights = separable(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    weights = {"w1": weights["w1"], "w3": rng.normal(size=(6, 8, 1, 1)).astype(F32)}
    weights["w5"] = rng.normal(size=(6, 8, 1, 1)).astype(F32)
    weights["w3"][:, [2, 5]] = 0
    weights["w5"][:, [5, 6]] = 0
    model = model_of(
        "net (float[n, 3, h, wd] x) => (float[n, 6, rows, columns] y)",
        """
        a = Conv <kernel_shape = [3, 3]> (x, w1)
        left = Conv <kernel_shape = [1, 1]> (a, w3)
        right = Conv <kernel_shape = [1, 1]> (a, w5)
        y = Add(left, right)
        """,
        weights,
    )
    _, after = compare(model, 2)
    assert shapes(after)["a"].startswith("f32[n, 7,")


def test_whole_groups_go() -> None:
    rng = np.random.default_rng(0)
    weights: dict[str, Array] = {
        "w1": rng.normal(size=(8, 3, 1, 1)).astype(F32),
        "w2": rng.normal(size=(8, 2, 3, 3)).astype(F32),
        "w3": rng.normal(size=(4, 8, 1, 1)).astype(F32),
    }
    weights["w3"][:, [4, 5, 7]] = 0
    model = model_of(
        "net (float[n, 3, h, wd] x) => (float[n, 4, h, wd] y)",
        """
        a = Conv <kernel_shape = [1, 1]> (x, w1)
        b = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 4> (a, w2)
        y = Conv <kernel_shape = [1, 1]> (b, w3)
        """,
        weights,
    )
    _, after = compare(model, 3)
    assert [shapes(after)[name] for name in "ab"] == ["f32[n, 6, h, wd]"] * 2


@pytest.mark.parametrize("first", [True, False])
def test_flattened_maps_go_with_their_channel(first: bool) -> None:
    """Channels are blocks of the flattened axis, or every eighth of its places."""
    rng = np.random.default_rng(0)
    weights: dict[str, Array] = {
        "w1": rng.normal(size=(8, 3, 1, 1)).astype(F32),
        "w4": rng.normal(size=(8 * 12, 4)).astype(F32),
    }
    apart = weights["w4"].reshape((8, 12, 4) if first else (12, 8, 4))
    apart[(slice(None),) * (not first) + ([1, 4],)] = 0
    moved = "" if first else "t = Transpose <perm = [0, 2, 3, 1]> (a)"
    model = model_of(
        "net (float[n, 3, 4, 3] x) => (float[n, 4] y)",
        f"""
        a = Conv <kernel_shape = [1, 1]> (x, w1)
        {moved}
        flat = Flatten({"a" if first else "t"})
        y = MatMul(flat, w4)
        """,
        weights,
    )
    _, after = compare(model, 4)
    assert shapes(after)["flat"] == "f32[n, 72]"


def test_a_channel_that_is_not_zero_stays_in_floats() -> None:
    """Its terms are a part of sums that are rounded in their order."""
    weights = separable(np.random.default_rng(0))
    weights["w2"][1], weights["b2"][1] = 0, 1
    before, after = compare(separable_net(weights), 5)
    assert after is before


def test_networks_without_such_channels_stay_the_same_object() -> None:
    before = lowered(separable_net(separable(np.random.default_rng(0))))
    assert pruning.run(before) is before


@pytest.mark.slow
@pytest.mark.parametrize("space", ["4, 3", "h, wd"])
def test_quantized_networks_keep_their_bits(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    weights = separable(rng)
    weights["w2"][1], weights["b2"][1] = 0, -1
    weights["w3"][:, 6] = 0
    model = separable_net(weights, space)
    images = rng.normal(size=(4, 2, 3, 4, 3)).astype(F32)

    def project() -> rx.Project:
        bounds = {"n": 2, **({} if "h" not in space else {"h": 5, "wd": 5})}
        return rx.compile(model, bounds=bounds, quantize="int8", calibrate={"x": images})

    small = project()
    monkeypatch.setattr(pruning, "run", lambda module: module)
    whole = project()
    assert small.memory.const_bytes < 0.85 * whole.memory.const_bytes
    hosts = small.host(), whole.host()
    for x in (images[0], images[1][:1]):
        found, wanted = (host(x=x)["y"] for host in hosts)
        assert found.tobytes() == wanted.tobytes()


def test_channels_of_small_scales_go() -> None:
    """Every sum of channels 2 and 5 is rounded to one number, whatever the weights are, as are
    those of channel 0; nothing reads channel 7."""
    net = QuantizedNet(np.random.default_rng(0), tiny=(2, 5), zero=(0,), unread=(7,))
    _, after = compare(net.model(), 6)
    found = shapes(after)
    assert [found[name] for name in ("a_q", "b_q", "c_q")] == [
        "i8[n, 4, h, wd]", "i8[n, 4, h, wd]", "i8[n, 6, h, wd]",
    ]  # fmt: skip
    floats = [name for name, type_ in found.items() if type_.startswith("f32")]
    assert floats == ["y"]


def test_quantized_channels_with_values_stay() -> None:
    before, after = compare(QuantizedNet(np.random.default_rng(0)).model(), 7)
    assert after is before


@pytest.mark.slow
def test_networks_with_small_scales_equal_their_model() -> None:
    net = QuantizedNet(np.random.default_rng(1), tiny=(1, 2, 6), zero=(4,), unread=(0, 3))
    model = net.model()
    options = onnxruntime.SessionOptions()
    # Its optimizations round products of scales once more.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    host = rx.compile(model, bounds={"n": 2, "h": 7, "wd": 7}, name="net").host()
    rng = np.random.default_rng(0)
    for sizes in ((1, 1, 1), (2, 7, 7), (1, 4, 6), (2, 1, 5)):
        x = 3 * rng.normal(size=(sizes[0], 3, *sizes[1:])).astype(F32)
        assert host(x=x)["y"].tolist() == session.run(None, {"x": x})[0].tolist()


def test_weights_that_may_be_replaced_stay() -> None:
    weights = separable(np.random.default_rng(0))
    weights["w3"][:, 6] = 0
    before = replace(lowered(separable_net(weights)), replaceable=True)
    assert pruning.run(before) is before


REPEATED = """relax_aot text 2
symbol n in 1..4
const %w: i32[3, 2] = [1, 5, 0, 0, 4, 3]

func @main(%x: i32[n]) {
  %y: i32[n, 3] = call_kernel(%x, %w) {kernel=@sums}
  return %y
}

kernel @sums(%a0: i32[n], %a1: i32[3, 2]) -> (%o0: i32[n, 3]) {
  for i0 in 0..n {
    for i1 in 0..3 {
      local total: i32 = %a0[i0]
      for i2 in 0..2 {
        for i3 in 0..4 {
          total = (total + %a1[i1, i2])
        }
      }
      %o0[i0, i1] = total
    }
  }
}
"""


def test_a_known_term_is_added_as_often_as_a_loop_runs() -> None:
    """The innermost loop adds the same known number four times, and none but one stays."""
    module = rx.parse(REPEATED)
    before = lowering.check_then_trust(lowering.lower(transforms.run(module)))
    after = pruning.run(before)
    assert after is not before
    x = np.array([2, -7, 9], np.int32)
    for one in (before, after):
        found = run_module(one, {"x": x}, {"n": 3})["y"]
        assert found.tolist() == [[value + 24, value, value + 28] for value in x.tolist()]


def test_numbers_that_are_not_computed_are_unknown() -> None:
    """Weights of four bits, of which a loop of dynamic length reads some rows."""
    text = """
        relax_aot text 2
        module "rows"
        symbol n in 1..3
        const %w: i4[3, 2] = [1, 2, 3, 4, 5, 6]
        const %b: f32[2] = [0.0, 1.0]
        func @main(%x: f32[n]) {
          %y: f32[n, 2] = call_kernel(%w, %b, %x) {kernel=@rows}
          return %y
        }
        kernel @rows(%w: i4[3, 2], %b: f32[2], %x: f32[n]) -> (%y: f32[n, 2]) {
          for i in 0..n {
            for j in 0..2 {
              %y[i, j] = ((cast(%w[i, j], f32, wrap) * %x[i]) + %b[j])
            }
          }
        }
    """
    module = parse(text)
    assert pruning.run(module) is module


CARRIED = """
  p = MatMul(x, w)
  last, all = Scan<num_scan_inputs = 1, body = step (float[1, 4] h, float[4] one)
      => (float[1, 4] next, float[4] row) {
    next = Add(h, one)
    row = ReduceSum<keepdims = 0>(next, first)
  }>(begin, p)
"""


def test_constants_of_loops_stay() -> None:
    """The state of a loop begins with a constant, whose places nothing else names."""
    weights: dict[str, Array] = {
        "w": np.array([[1, 2, 0, 4], [0, 1, 0, 3], [2, 2, 0, 1]], F32),
        "begin": np.array([[1, 2, 3, 4]], F32),
        "first": np.array([0], np.int64),
    }
    signature = "g (float[n, 3] x) => (float[1, 4] last, float[n, 4] all)"
    before = lowered(model_of(signature, CARRIED, weights))
    assert any(call.op not in ("call_kernel", "view") for call in before.main.body)
    assert pruning.run(before) is before
