# SPDX-License-Identifier: Apache-2.0
"""Our results against ONNX Runtime where sources may disagree; each difference has a reason.

The reasons are those of docs/reference/where_sources_disagree.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from relax_aot.errors import RelaxAotError
from tests.ops.against_runtime import feeds_of, module_of, node_model, ours, session_of
from tests.ops.onnx_node import Node
from tests.ops.source_cases import cases

DIFFERENT = {
    "MaxPool SAME_UPPER stride=1 dilation=2": "the runtime pads as if the window were not dilated",
    "MaxPool SAME_UPPER stride=2 dilation=2": "the runtime pads as if the window were not dilated",
    "MaxPool SAME_LOWER stride=1 dilation=2": "the runtime pads as if the window were not dilated",
    "MaxPool SAME_LOWER stride=2 dilation=2": "the runtime pads as if the window were not dilated",
    **dict.fromkeys(
        (f"Arg{kind} ties and NaN last={last}" for kind in ("Max", "Min") for last in (0, 1)),
        "NaN is the extreme, as in NumPy and PyTorch",
    ),
    "MaxPool of -inf alone": "the runtime gives the lowest finite value; PyTorch -inf",
    "GlobalMaxPool of -inf alone": "the runtime gives the lowest finite value; PyTorch -inf",
    "ReduceMax of special values": "NaN is the extreme, as in NumPy and PyTorch",
    "ReduceMin of special values": "NaN is the extreme, as in NumPy and PyTorch",
    "Hardmax-11 of special rows": "NaN is the extreme, as in NumPy and PyTorch",
    "Hardmax-13 of special rows": "NaN is the extreme, as in NumPy and PyTorch",
    "MeanVarianceNormalization of a constant": "the runtime divides 0 by 0",
    "TopK ties largest=0 sorted=0": "the order of unsorted results is open",
    "TopK ties largest=1 sorted=0": "the order of unsorted results is open",
    "Cast to int32 out of range": "ONNX leaves it open",
    "Cast to int64 out of range": "ONNX leaves it open",
}
REFUSED = ("Pad edge", "Pad reflect", "Pad wrap")
"""Modes in which negative pads, or reflections beyond the size, are refused."""
OPERANDS = ("Conv", "ConvTranspose", "GRU", "GridSample", "LSTM", "RNN", "RoiAlign", "AffineGrid")
"""Operators whose further inputs are data; those of others are constants."""
SIZES = {f"y{output}_{axis}": (0, 40) for output in range(4) for axis in range(4)}


def constants_of(node: Node) -> tuple[int, ...]:
    if node.op_type in OPERANDS:
        return ()
    first = 0 if node.op_type in ("MelWeightMatrix", "Range") else 1
    return tuple(i for i, a in enumerate(node.inputs) if i >= first and a is not None)


def equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(left, right, strict=True)]
    return all(
        a.shape == b.shape
        and np.allclose(a.astype(np.float64), b.astype(np.float64), 1e-4, 1e-5, equal_nan=True)
        for a, b in pairs
    )


@pytest.mark.slow
def test_results_are_those_of_onnx_runtime_or_differ_for_a_reason() -> None:
    pytest.importorskip("onnxruntime")
    compared, different = 0, set()
    for name, node in cases():
        constants = constants_of(node)
        model = node_model(node, None, constants)
        feeds = feeds_of(node, constants)
        try:
            expected = session_of(model).run(None, feeds)
        except Exception:  # noqa: BLE001 - the binding's errors share no better base
            continue
        try:
            found = ours(module_of(model, SIZES), feeds)
        except RelaxAotError:
            assert name.startswith(REFUSED), name
            continue
        compared += 1
        if not equal(found, expected):
            different.add(name)
    assert different == DIFFERENT.keys()
    assert compared > 330


@pytest.mark.parametrize(
    ("name", "node"), [(name, node) for name, node in cases() if name.startswith("Slice")]
)
def test_slices_by_data_are_those_by_constants(name: str, node: Node) -> None:
    pytest.importorskip("onnxruntime")
    model, feeds = node_model(node), feeds_of(node)
    assert equal(ours(module_of(model, SIZES), feeds), session_of(model).run(None, feeds)), name
