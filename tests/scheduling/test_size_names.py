# SPDX-License-Identifier: Apache-2.0
"""Sizes may be called as kernels call their own loops and values."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest
from onnx import parser

import relax_aot as rx
from relax_aot import fusion, lowering, scheduling, transforms
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import walk
from relax_aot.ir.names import defined_name
from relax_aot.scheduling.targets import all_targets

TARGETS = {target.name: target for target in all_targets(device=True)}


def rows_at_places(one: str, other: str) -> onnx.ModelProto:
    """Indices that are checked against a size which no operand of the check has."""
    return parser.parse_model(f"""<ir_version: 9, opset_import: ["": 17]>
g (float[{one},{other},4] images, int64[places] at_places) => (float[places,4] y)
{{ rows = Constant<value = int64[2] {{-1, 4}}>() flat = Reshape(images, rows)
  y = Gather(flat, at_places) }}""")


def scheduled(one: str, other: str, target: str) -> Module:
    bounds: dict[str, int | tuple[int, int]] = {one: 5, other: 7, "places": 600}
    module = rx.load(rows_at_places(one, other), bounds=bounds)
    lowered = lowering.check_then_trust(lowering.lower(transforms.run(module)))
    return scheduling.schedule(fusion.fuse(lowered).module, TARGETS[target])


def read_by(module: Module) -> Iterator[tuple[str, ...]]:
    yield from (kernel.free_symbols for kernel in module.kernels)


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_defines_no_name_of_a_size_that_it_reads(target: str) -> None:
    plain = scheduled("batch_size", "row_count", target)
    names = {defined_name(stmt) for kernel in plain.kernels for stmt in walk(kernel.body)} - {""}
    for name in sorted(names):
        expected = [
            tuple(sorted(name if symbol == "batch_size" else symbol for symbol in symbols))
            for symbols in read_by(plain)
        ]
        assert list(read_by(scheduled(name, "row_count", target))) == expected, name
