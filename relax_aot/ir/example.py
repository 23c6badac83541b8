"""Examples of what a pass does, in the text form; the tests run every one of them.

A text is a whole module, or `symbol`, `const` and `kernel` lines alone. A main function that
calls each kernel is then added, and only kernels are shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from textwrap import dedent

from relax_aot.ir.graph import Call, Function, Module, Var, attrs_of
from relax_aot.ir.loops import Buffer, Kernel
from relax_aot.ir.parse import parse
from relax_aot.ir.text import kernel_text, to_text
from relax_aot.ir.types import Ref, TensorType

MAIN = "func @main"
ANYTHING = "..."


@dataclass(frozen=True, slots=True)
class Example:
    """`before` becomes `after`, or stays as it is where `after` is empty.

    In `after`, `...` stands for any text in a line, and as a line for any number of lines.
    """

    why: str
    before: str
    after: str = ""
    refused: str = ""
    """The reason for leaving `before` as it is, of passes that report reasons."""
    target: str = ""
    """The target that a schedule is made for."""


def example_module(text: str) -> Module:
    """The module that a text of an example stands for."""
    text = dedent(text).strip() + "\n"
    if MAIN in text:
        return parse(text)
    module = parse(f"{text}{MAIN}() {{\n  return\n}}\n")
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
