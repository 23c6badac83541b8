# SPDX-License-Identifier: Apache-2.0
"""Modules of the examples of passes, and whether a pass does what its examples say."""

from __future__ import annotations

import re
from dataclasses import replace
from textwrap import dedent

from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Function, Module, Var, attrs_of
from relax_aot.ir.loops import Buffer, Kernel
from relax_aot.ir.parse import parse
from relax_aot.ir.text import kernel_text, to_text
from relax_aot.ir.types import Ref, TensorType
from relax_aot.microkernels import all_micro_kernels

MAIN = "func @main"
ANYTHING = "..."


def example_module(text: str) -> Module:
    """The module that a text of an example stands for."""
    text = dedent(text).strip() + "\n"
    if MAIN in text:
        return parse(text)
    module = parse(f"{text}{MAIN}() {{\n  return\n}}\n", {}, all_micro_kernels())
    calls = tuple(_call(kernel, module) for kernel in module.kernels)
    params = {v: None for call in calls for v in call.inputs if v.name not in module.constant_table}
    results = (
        out
        for call, kernel in zip(calls, module.kernels, strict=True)
        for out in call.outs[: len(kernel.outputs)]
    )
    main = Function("main", tuple(params), calls, tuple(results))
    return replace(module, functions=(main,))


def _call(kernel: Kernel, module: Module) -> Call:
    """A call with values of its own, except for constants."""

    def value(buffer: Buffer) -> Var:
        constant = module.constant_table.get(buffer.name)
        if constant is not None:
            return constant.var
        return Var(f"{kernel.name}.{buffer.name}", TensorType(buffer.dtype, buffer.shape))

    outs = tuple(map(value, (*kernel.outputs, *kernel.scratch)))
    args = tuple(map(value, kernel.inputs))
    return Call(outs, "call_kernel", args, attrs_of({"kernel": Ref(kernel.name)}))


def shown(module: Module, example: Example) -> str:
    """The module as the example shows it: its text, or that of its kernels."""
    if MAIN in example.before:
        return to_text(module)
    return "\n\n".join(map(kernel_text, module.kernels)) + "\n"


def agrees(module: Module, example: Example) -> bool:
    """Whether the module is what the example expects."""
    text, expected = shown(module, example), example.after or example.before
    if ANYTHING not in expected:
        return text == shown(example_module(expected), example)
    pattern = ""
    for line in dedent(expected).strip().splitlines():
        inner = re.escape(line).replace(re.escape(ANYTHING), ".*")
        pattern += r"(.*\n)*" if line.strip() == ANYTHING else inner + r"\n"
    return re.fullmatch(pattern, text) is not None
