# SPDX-License-Identifier: Apache-2.0
"""Operators of com.microsoft against ONNX Runtime, at two sizes of the axis that has no number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TypeProto, helper

import relax_aot as rx
from relax_aot.evaluation.reference import evaluate
from relax_aot.frontends.onnx.contrib import DOMAIN
from relax_aot.frontends.onnx.table import handlers
from relax_aot.verify.onnx_reference import OnnxReference

Array = NDArray[Any]
RNG = np.random.default_rng(7)
N = 0
"""Stands for the size without a number in a shape."""


@dataclass(frozen=True)
class Input:
    """A shape in which N is open, and what its elements are; or an array."""

    shape: tuple[int, ...] = ()
    make: Callable[[tuple[int, ...]], Array] | None = None
    value: Array | None = None

    def array(self, n: int) -> Array:
        if self.value is not None:
            return self.value
        assert self.make is not None
        return self.make(tuple(n if size == N else size for size in self.shape))


@dataclass(frozen=True)
class Case:
    op: str
    inputs: tuple[Input | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[bool, ...] = (True,)
    domain: str = DOMAIN
    opset: int = 17
    rtol: float = 1e-4
    atol: float = 1e-5
    codes_apart: int = 0
    """Where a result is a code: by how many steps it may be another."""


def f(*shape: int) -> Input:
    return Input(shape, lambda s: np.asarray(RNG.normal(size=s)).astype(np.float32))


def u8(*shape: int) -> Input:
    return Input(shape, lambda s: RNG.integers(0, 256, s).astype(np.uint8))


def i8(*shape: int) -> Input:
    """Seven bits: pairs of greater products saturate in ONNX Runtime on some machines."""
    return Input(shape, lambda s: RNG.integers(-64, 64, s).astype(np.int8))


def below(limit: int, *shape: int, kind: type = np.int32) -> Input:
    return Input(shape, lambda s: RNG.integers(0, limit, s).astype(kind))


def c(value: Any, kind: type = np.float32) -> Input:
    return Input(value=np.array(value, kind))


def fixed(make: Input) -> Input:
    """The same array at every size: a weight."""
    return Input(value=make.array(1))


def scale(value: float) -> Input:
    return c(value)


def zero(value: int, kind: type = np.uint8) -> Input:
    return c(value, kind)


ADD = (u8(N, 5), scale(0.05), zero(10), u8(N, 5), scale(0.02), zero(200), scale(0.06), zero(120))
ONE = (u8(N, 5), scale(0.05), zero(110), scale(0.01), zero(3))
POOLED = (u8(N, 3, 6, 6), scale(0.05), zero(110), scale(0.04), zero(3))
HEADS = {"num_heads": 2}

GROUPED = {"num_heads": 4, "kv_num_heads": 2}
TURNS = (fixed(f(12, 8)), fixed(f(12, 8)))


def lengths(longest: int, own: int) -> tuple[Input, Input]:
    """What each sample has, less one; the longest."""
    ends = Input((N,), lambda shape: np.full(shape, own - 1, np.int32))
    return ends, c(longest, np.int32)


def grouped(new: int, old: int, own: int) -> tuple[Input | None, ...]:
    def cache(shape: tuple[int, ...]) -> Array:
        """Nothing lies behind what a sample has: what becomes of that is not said."""
        found = np.asarray(RNG.normal(size=shape)).astype(np.float32)
        found[:, :, own - new :] = 0
        return found

    past = (Input((N, 2, old, 16), cache), Input((N, 2, old, 16), cache)) if old else (None, None)
    whole = f(N, new, 64), f(N, new, 32), f(N, new, 32)
    return (*whole, *past, *lengths(old + new, own))


def quantized_lstm(
    ways: int,
    weight: Callable[..., Input],
    *,
    state: bool = False,
    lens: bool = False,
    peepholes: bool = False,
) -> tuple[Input | None, ...]:
    """X of [N, 1, 5] and a hidden state of 3: with one sample every thread quantizes alike."""
    kind = weight(1).array(1).dtype.type
    zeros = [fixed(Input((ways,), lambda s: RNG.integers(0, 9, s).astype(kind))) for _ in "wr"]
    steps = [fixed(Input((ways,), lambda s: RNG.uniform(0.01, 0.02, s).astype(np.float32)))] * 2
    first = (f(ways, 1, 3), f(ways, 1, 3)) if state else (None, None)
    return (
        f(N, 1, 5), fixed(weight(ways, 5, 12)), fixed(weight(ways, 3, 12)), fixed(f(ways, 24)),
        c([2], np.int32) if lens else None, *first, fixed(f(ways, 9)) if peepholes else None,
        steps[0], zeros[0], steps[1], zeros[1],
    )  # fmt: skip


CASES = [
    Case("Gelu", (f(N, 5),)),
    Case("BiasGelu", (f(N, 5), f(5))),
    Case("FastGelu", (f(N, 5),)),
    Case("FastGelu", (f(N, 5), f(5))),
    Case("QuickGelu", (f(N, 5),)),
    Case("QuickGelu", (f(N, 5),), {"alpha": 0.7}),
    Case("FusedConv", (f(N, 2, 6, 5), fixed(f(3, 2, 3, 3)), fixed(f(3))),
         {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    Case("FusedConv", (f(N, 2, 6, 5), fixed(f(3, 2, 3, 3))),
         {"activation": "LeakyRelu", "activation_params": [0.2]}),
    Case("FusedConv", (f(N, 2, 6, 5), fixed(f(3, 2, 3, 3)), fixed(f(3))),
         {"activation": "Clip", "activation_params": [0.0, 1.5]}),
    Case("FusedConv", (f(N, 2, 6, 5), fixed(f(3, 2, 3, 3)), fixed(f(3)), f(N, 3, 4, 3)),
         {"activation": "Relu"}),
    Case("FusedGemm", (f(N, 5), fixed(f(4, 5)), fixed(f(4))), {"activation": "Relu", "transB": 1}),
    Case("FusedGemm", (f(N, 5), fixed(f(5, 4)), fixed(f(4))),
         {"activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5}),
    Case("FusedMatMul", (f(N, 3, 5), f(N, 4, 5)), {"transB": 1, "alpha": 0.25}),
    Case("FusedMatMul", (f(N, 5, 3), f(N, 5, 4)), {"transA": 1}),
    Case("FusedMatMul", (f(3, N, 5), f(N, 5, 4)), {"transBatchA": 1}),
    Case("TransposeMatMul", (f(N, 5, 3), f(N, 5, 4)), {"transA": 1}),
    Case("MatMulNBits", (f(N, 32), fixed(u8(4, 2, 8)), fixed(f(8))),
         {"K": 32, "N": 4, "bits": 4, "block_size": 16}),
    Case("MatMulNBits", (f(N, 40), fixed(u8(32, 2, 16)), fixed(f(64))),
         {"K": 40, "N": 32, "bits": 4, "block_size": 32}),
    Case("MatMulNBits", (f(N, 3, 40), fixed(u8(4, 3, 8)), fixed(f(12)), fixed(u8(8)), None,
                         fixed(f(4))),
         {"K": 40, "N": 4, "bits": 4, "block_size": 16}),
    Case("SkipLayerNormalization", (f(N, 3, 8), f(N, 3, 8), f(8), f(8), f(8)),
         {"epsilon": 1e-5}, (True, False, False, True)),
    Case("SkipLayerNormalization", (f(N, 3, 8), f(N, 3, 8), f(8), f(8)), {}),
    Case("SkipSimplifiedLayerNormalization", (f(N, 3, 8), f(N, 3, 8), f(8)),
         {"epsilon": 1e-5}, (True, False, False, True)),
    Case("SimplifiedLayerNormalization", (f(N, 3, 8), f(8)), {"epsilon": 1e-5}, domain=""),
    # It is older in ONNX Runtime than in ONNX.
    Case("LayerNormalization", (f(N, 3, 8), f(8), f(8)), {"epsilon": 1e-5}, domain="", opset=12),
    Case("EmbedLayerNormalization",
         (below(9, N, 4), below(2, N, 4), f(9, 8), f(6, 8), f(2, 8), f(8), f(8), below(2, N, 4)),
         {"epsilon": 1e-5}, (True, True)),
    Case("EmbedLayerNormalization",
         (below(9, N, 4), None, f(9, 8), f(6, 8), None, f(8), f(8)), {"epsilon": 1e-5},
         (True, True)),
    Case("QLinearAdd", ADD, codes_apart=1),
    Case("QLinearMul", ADD, codes_apart=1),
    Case("QLinearSigmoid", ONE, codes_apart=1),
    Case("QLinearLeakyRelu", ONE, {"alpha": 0.1}, codes_apart=1),
    Case("QLinearSoftmax", (u8(N, 5), scale(0.05), zero(110), scale(1 / 256), zero(0)),
         {"axis": -1, "opset": 13}, codes_apart=1),
    Case("QLinearAveragePool", POOLED, {"kernel_shape": [2, 3], "strides": [2, 1]}, codes_apart=1),
    *(Case("QLinearAveragePool", POOLED, {"kernel_shape": [2, 3], "strides": strides, "pads": pads,
                                          "ceil_mode": 1, "count_include_pad": 1}, codes_apart=1)
      for strides, pads in (([1, 2], [0] * 4), ([5, 2], [1, 0, 0, 0]), ([3, 5], [0, 1, 1, 0]))),
    Case("QLinearGlobalAveragePool", POOLED, {"channels_last": 0}, codes_apart=1),
    Case("QLinearConcat", (scale(0.05), zero(100), u8(N, 3), scale(0.02), zero(7), u8(N, 2),
                           scale(0.04), zero(130)), {"axis": 1}, codes_apart=1),
    Case("QLinearWhere", (Input((N, 4), lambda s: RNG.integers(0, 2, s).astype(np.bool_)),
                          u8(N, 4), scale(0.02), zero(7), u8(N, 4), scale(0.04), zero(130),
                          scale(0.05), zero(100)), codes_apart=1),
    Case("QGemm", (u8(N, 5), scale(0.05), zero(10), fixed(i8(5, 4)), scale(0.01),
                   zero(3, np.int8), fixed(below(99, 4)), scale(0.04), zero(130)),
         codes_apart=1),
    Case("QGemm", (u8(N, 5), scale(0.05), zero(10), fixed(i8(4, 5)), scale(0.01),
                   zero(3, np.int8)), {"transB": 1}),
    Case("MatMulIntegerToFloat", (u8(N, 5), fixed(i8(5, 4)), scale(0.05), fixed(f(4)), zero(10),
                                  fixed(i8(4)), fixed(f(4)))),
    Case("DynamicQuantizeMatMul", (f(N, 5), fixed(i8(5, 4)), scale(0.05), zero(3, np.int8),
                                   fixed(f(4)))),
    Case("DynamicQuantizeLSTM", quantized_lstm(1, u8), {"hidden_size": 3}, (True,) * 3),
    Case("DynamicQuantizeLSTM", quantized_lstm(1, i8, state=True),
         {"hidden_size": 3, "direction": "reverse"}, (True,) * 3),
    Case("DynamicQuantizeLSTM", quantized_lstm(2, i8, state=True, lens=True, peepholes=True),
         {"hidden_size": 3, "direction": "bidirectional"}, (True,) * 3),
    Case("NhwcMaxPool", (u8(N, 6, 6, 3),), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("QuantizeLinear", (f(N, 5), scale(0.05), zero(10))),
    Case("DequantizeLinear", (u8(N, 5), scale(0.05), zero(10))),
    Case("RotaryEmbedding", (f(N, 4, 16), below(6, N, 4, kind=np.int64), f(6, 4), f(6, 4))),
    Case("RotaryEmbedding", (f(N, 2, 4, 8), c([1], np.int64), f(6, 4), f(6, 4)),
         {"interleaved": 1}),
    Case("RotaryEmbedding", (f(N, 2, 4, 8), below(6, N, 4, kind=np.int64), f(6, 2), f(6, 2)),
         {"rotary_embedding_dim": 4, "num_heads": 2}),
    Case("Attention", (f(N, 4, 8), fixed(f(8, 24)), fixed(f(24))), HEADS),
    Case("Attention", (f(N, 4, 8), fixed(f(8, 24)), fixed(f(24))),
         {**HEADS, "unidirectional": 1, "scale": 0.3}),
    Case("Attention", (f(N, 4, 8), fixed(f(8, 24)), fixed(f(24)), below(2, N, 4)), HEADS),
    Case("Attention", (f(N, 4, 8), fixed(f(8, 24)), fixed(f(24)), below(5, N)), HEADS),
    Case("Attention", (f(N, 4, 8), fixed(f(8, 20)), fixed(f(20))),
         {**HEADS, "qkv_hidden_sizes": [8, 8, 4]}),
    Case("Attention", (f(N, 4, 8), fixed(f(8, 24)), fixed(f(24)), None, f(2, N, 2, 3, 4)),
         {**HEADS, "unidirectional": 1}, (True, True)),
    Case("MultiHeadAttention", (f(N, 4, 8), f(N, 6, 8), f(N, 6, 8)), HEADS),
    Case("MultiHeadAttention",
         (f(N, 4, 8), f(N, 4, 8), f(N, 4, 8), fixed(f(24)), None, f(N, 2, 4, 7), f(N, 2, 3, 4),
          f(N, 2, 3, 4)), HEADS, (True, True, True)),
    Case("MultiHeadAttention", (f(N, 4, 8), f(N, 6, 8), f(N, 6, 8), None, below(2, N, 6)), HEADS),
    Case("MultiHeadAttention", (f(N, 4, 8), f(N, 4, 8), f(N, 4, 8)),
         {**HEADS, "unidirectional": 1}),
    Case("GroupQueryAttention", (*grouped(5, 0, 5),), GROUPED, (True, True, True)),
    Case("GroupQueryAttention", (*grouped(1, 6, 7),), GROUPED, (True, True, True)),
    Case("GroupQueryAttention", (*grouped(5, 0, 5), *TURNS), {**GROUPED, "do_rotary": 1},
         (True, True, True)),
    Case("GroupQueryAttention", (*grouped(1, 6, 5), *TURNS),
         {**GROUPED, "do_rotary": 1, "rotary_interleaved": 1},
         (True, True, True)),
    Case("GroupQueryAttention", (*grouped(1, 9, 10),),
         {**GROUPED, "softcap": 5.0, "scale": 0.4}, (True, True, True)),
    Case("GroupQueryAttention", (*grouped(6, 0, 6),), {**GROUPED, "local_window_size": 3}),
    Case("GroupQueryAttention", (*grouped(1, 6, 7),), {**GROUPED, "local_window_size": 2},
         (True, True, True)),
    Case("GroupQueryAttention", (f(N, 4, 128), None, None, None, None, *lengths(4, 4)), GROUPED),
    Case("QAttention", (u8(N, 4, 8), fixed(i8(8, 24)), fixed(f(24)), scale(0.02), scale(0.01),
                        None, zero(128), zero(0, np.int8)), HEADS),
    Case("QAttention", (u8(N, 4, 8), fixed(u8(8, 24)), fixed(f(24)), scale(0.02), scale(0.01),
                        below(5, N), zero(128), zero(120)), {**HEADS, "unidirectional": 1}),
    Case("GatherBlockQuantized", (fixed(u8(7, 16)), below(7, N, 2), fixed(f(7, 2))),
         {"block_size": 16, "quantize_axis": 1}),
    Case("GatherBlockQuantized",
         (fixed(u8(7, 16)), below(7, N, kind=np.int64), fixed(f(7, 2)), fixed(u8(7, 1))),
         {"block_size": 16, "quantize_axis": 1, "bits": 4}),
]  # fmt: skip
UNTESTED = {
    # ONNX Runtime has these for other machines alone,
    "BiasAdd", "BiasSoftmax", "BiasSplitGelu", "GroupNorm", "SkipGroupNorm",
    # in some of its builds alone,
    "QLinearConv", "QLinearReduceMean",
    # and these are the handlers of the default domain.
    "Pad", "Trilu",
}  # fmt: skip


def model_of(case: Case) -> tuple[ModelProto, dict[str, Input]]:
    names = [f"x{i}" if given is not None else "" for i, given in enumerate(case.inputs)]
    given = {n: x for n, x in zip(names, case.inputs, strict=True) if x is not None}
    inputs, constants = [], []
    for name, x in given.items():
        array = x.array(2)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        if x.value is not None:
            raw = array.tobytes()
            constants.append(helper.make_tensor(name, kind, array.shape, raw, raw=True))
        else:
            shape = ["n" if size == N else size for size in x.shape]
            inputs.append(helper.make_tensor_value_info(name, kind, shape))
    results = [f"y{i}" if wanted else "" for i, wanted in enumerate(case.results)]
    made = helper.make_node(case.op, names, results, domain=case.domain, **case.attrs)
    outputs = [helper.make_value_info(name, TypeProto()) for name in results if name]
    graph = helper.make_graph([made], "one_node", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model, {n: x for n, x in given.items() if x.value is None}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_equals_onnx_runtime(case: Case) -> None:
    model, inputs = model_of(case)
    module = rx.load(model, bounds={"n": (1, 4)})
    reference = OnnxReference(model, {}, {})
    for n in (2, 3):
        arrays = {name: x.array(n) for name, x in inputs.items()}
        expected = reference(arrays, {})
        found = evaluate(module, arrays, {"n": n})
        assert sorted(found) == sorted(expected)
        for name, other in expected.items():
            mine = found[name]
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
            atol = case.codes_apart if other.dtype.kind in "iu" else case.atol
            np.testing.assert_allclose(
                mine.astype(np.float64), other.astype(np.float64), case.rtol, atol, err_msg=name
            )


def test_every_handler_is_compared() -> None:
    names = {name.removeprefix(f"{DOMAIN}.") for name in handlers() if name.startswith(DOMAIN)}
    assert names - {case.op for case in CASES} == UNTESTED
