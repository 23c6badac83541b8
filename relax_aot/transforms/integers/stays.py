# SPDX-License-Identifier: Apache-2.0
"""List the calls of a quantized model that stay in floats, each with its reason."""

from __future__ import annotations

from relax_aot.ir.graph import Call, Function, Module, Var
from relax_aot.ir.types import DType
from relax_aot.ops import has
from relax_aot.ops._op import Trait
from relax_aot.ops.recurrent_quantized import KINDS as QUANTIZED_LAYERS


def stays(module: Module) -> tuple[str, ...]:
    """One line for each call with a float result, in a quantized module after `run`. Where only
    weights are quantized, for each product with other weights."""
    if not any(has(call.op, Trait.QUANTIZED) for f in module.functions for call in f.body):
        return ()
    lines = []
    for function in module.functions:
        if not any(call.op == "quantize" for call in function.body):
            lines += _products(function, module)
            continue
        makers = {out.name: call for call in function.body for out in call.outs}
        for call in function.body:
            if call.op in QUANTIZED_LAYERS:
                continue
            for out in call.outs:
                if out.type.dtype is DType.F32:
                    why = _why(call, out, function, makers, module)
                    from_ = f" ({call.origin})" if call.origin else ""
                    lines.append(f"{call.op} %{out.name}{from_}: {why}")
    return tuple(lines)


def _products(function: Function, module: Module) -> list[str]:
    """Of floats, by constant matrices."""
    lines = []
    for call in function.body:
        if call.op in QUANTIZED_LAYERS.values():
            lines.append(_line(call, "its weights are not quantized"))
        weights = [
            arg for arg in call.inputs
            if arg.name in module.constant_table and arg.type.dtype.is_float and arg.type.rank > 1
        ]  # fmt: skip
        if weights and has(call.op, Trait.CONTRACTION) and not has(call.op, Trait.QUANTIZED):
            shape = ", ".join(map(str, weights[0].type.shape))
            lines.append(_line(call, f"weights [{shape}] are not quantized"))
    return lines


def _line(call: Call, why: str) -> str:
    from_ = f" ({call.origin})" if call.origin else ""
    return f"{call.op} %{call.outs[0].name}{from_}: {why}"


def _why(
    call: Call, out: Var, function: Function, makers: dict[str, Call], module: Module
) -> str:  # fmt: skip
    readers = [c for c in function.body if any(arg.name == out.name for arg in c.inputs)]
    if call.op == "dequantize":
        if out in function.results:
            return "a result of the model is floats"
        return "read as floats by " + ", ".join(sorted({c.op for c in readers}) or ["nothing"])
    if call.op in QUANTIZED_LAYERS.values():
        return "its weights are not quantized"
    floats = [arg for arg in call.inputs if arg.type.dtype is DType.F32]
    plain = [a for a in floats if a.name not in makers or makers[a.name].op != "dequantize"]
    variable = [arg for arg in plain if arg.name not in module.constant_table]
    if has(call.op, Trait.CONTRACTION):
        if plain:
            return "not quantized: " + ", ".join(f"%{arg.name}" for arg in plain)
        return "its sums may leave 32 bits, or scales lie along an axis that is summed up"
    if variable:
        return "not quantized: " + ", ".join(f"%{arg.name}" for arg in variable)
    if all(reader.op != "quantize" for reader in readers) or out in function.results:
        return "its result is not quantized"
    return "it has no integer form"
