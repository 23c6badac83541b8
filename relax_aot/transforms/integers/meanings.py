# SPDX-License-Identifier: Apache-2.0
"""Scales and zero points of quantized inputs and results."""

from __future__ import annotations

import numpy as np

from relax_aot.ir.graph import Call, Module, Var
from relax_aot.transforms.integers.movement import moves


def meanings(module: Module) -> dict[str, str]:
    """A formula for each parameter or result of the entry whose scale is one known number."""
    found: dict[str, str] = {}
    makers = {out.name: call for call in module.main.body for out in call.outs}
    for call in module.main.body:
        if call.op == "dequantize":
            _note(found, module, call, call.inputs[0].name)
    for result in module.main.results:
        maker = makers.get(result.name)
        for _ in range(16):  # calls that move data, between a result and its quantize
            if maker is None or not moves(maker):
                break
            value = maker.inputs[0]
            if value.name in found:
                found.setdefault(result.name, found[value.name])
            maker = makers.get(value.name)
        if maker is not None and maker.op == "quantize":
            _note(found, module, maker, result.name)
    ports = {v.name for v in (*module.main.params, *module.main.results)}
    return {name: text for name, text in found.items() if name in ports}


def _note(found: dict[str, str], module: Module, call: Call, name: str) -> None:
    scale, zero = (_number(module, arg) for arg in (*call.args, None)[1:3])
    absent = len(call.args) < 3 or call.args[2] is None
    if scale is None or (zero is None and not absent):
        return
    point = 0 if zero is None else int(zero)
    shift = f"(q {'-' if point > 0 else '+'} {abs(point)})" if point else "q"
    formula = "(q - zero point) * scale, which are in the weights"
    found.setdefault(name, formula if module.replaceable else f"{shift} * {scale:.9g}")


def _number(module: Module, value: Var | None) -> float | None:
    constant = None if value is None else module.constant_table.get(value.name)
    if constant is None or constant.absent or constant.data.size != 1:
        return None
    return float(np.asarray(constant.data).reshape(-1)[0])
