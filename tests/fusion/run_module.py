# SPDX-License-Identifier: Apache-2.0
"""Runs a lowered module with the kernel interpreter: every access is checked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relax_aot.evaluation.interpret import Array, run_kernel
from relax_aot.ir.graph import Call, Function, Module

Values = dict[str, Array]


def run_module(module: Module, inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> Values:
    """The results by name."""
    known = dict(sizes)
    known |= {s.name: s.low for s in module.symbols if s.low == s.high and not s.inner}
    values: Values = {c.name: np.asarray(c.data) for c in module.constants}
    values |= inputs
    _function(module, module.main, values, known)
    return {v.name: values[v.name] for v in module.main.results}


def _function(module: Module, function: Function, values: Values, sizes: dict[str, int]) -> None:
    for call in function.body:
        match call.op:
            case "call_kernel":
                _kernel(module, call, values, sizes)
            case "view":
                shape = tuple(size.evaluate(sizes) for size in call.out.type.shape)
                values[call.out.name] = values[call.inputs[0].name].reshape(shape)
            case "if":
                _if(module, call, values, sizes)
            case _:
                raise AssertionError(f"{call.op} in a lowered module")


def _kernel(module: Module, call: Call, values: Values, sizes: dict[str, int]) -> None:
    kernel = module.kernel_table[call.ref("kernel")]
    arguments = [values[v.name] for v in call.inputs]
    results = run_kernel(kernel, arguments, sizes)
    for out, array in zip(call.outs[: len(results)], results, strict=True):
        values[out.name] = array


def _if(module: Module, call: Call, values: Values, sizes: dict[str, int]) -> None:
    condition, *arguments = call.inputs
    side = "then" if values[condition.name].reshape(-1)[0] else "else"
    function = module.function_table[call.ref(side)]
    names, chosen = call.attr("defines"), call.attr(f"{side}_sizes")
    assert isinstance(names, tuple) and isinstance(chosen, tuple)
    for name, size in zip(names, chosen, strict=True):
        sizes[str(name)] = size if isinstance(size, int) else size.evaluate(sizes)  # type: ignore[union-attr]
    inner = dict(values)
    params = zip(function.params, arguments, strict=True)
    inner |= {param.name: values[v.name] for param, v in params}
    _function(module, function, inner, sizes)
    for out, result in zip(call.outs, function.results, strict=True):
        values[out.name] = inner[result.name]
