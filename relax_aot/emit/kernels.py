# SPDX-License-Identifier: Apache-2.0
"""The kernels of a model as C functions, the calls of the graph as comments, and the headers
that they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.emit.c_names import comment
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.extern_code import extern_steps, value_checks
from relax_aot.ir.graph import Call, Var
from relax_aot.ir.loops import Kernel, Micro, walk
from relax_aot.ir.text import attr_text
from relax_aot.planning import Plan
from relax_aot.planning.steps import Step, walk_steps


@dataclass(frozen=True, slots=True)
class CheckView:
    condition: str
    note: str


@dataclass(frozen=True, slots=True)
class KernelView:
    ir: str
    origin: str
    c_name: str
    c_type: str
    parameters: str
    parts: str
    """Functions that are parts of it."""
    body: str
    layers: tuple[tuple[str, str], ...]
    """The names in profiles of the calls that share the function, and the origin of each."""


@dataclass(frozen=True, slots=True)
class IncludesView:
    """What the C of the kernels includes, and asserts of the headers of externs."""

    micro: tuple[str, ...]
    externs: tuple[str, ...]
    checks: tuple[CheckView, ...]

    @classmethod
    def of(cls, context: RunContext) -> IncludesView:
        statements = (stmt for kernel in context.plan.kernels for stmt in walk(kernel.body))
        micro = {stmt.kernel.header for stmt in statements if isinstance(stmt, Micro)}
        return cls(
            tuple(sorted(micro)),
            tuple(dict.fromkeys(step.extern.header for step in extern_steps(context.plan))),
            tuple(CheckView(*check) for check in value_checks(context.plan, context.macros)),
        )


def kernel_views(context: RunContext) -> tuple[KernelView, ...]:
    calls = {
        node.callee.name: node.call
        for node in walk_steps(context.plan.program.nodes)
        if isinstance(node, Step) and isinstance(node.callee, Kernel)
    }
    return tuple(
        _kernel(kernel, calls, context)
        for kernel in context.plan.kernels
        if kernel.name in calls and context.kernels[kernel.name].owner
    )


def _kernel(kernel: Kernel, calls: Mapping[str, Call], context: RunContext) -> KernelView:
    """The function of a kernel, and of those that share it."""
    text = context.kernels[kernel.name]
    layers = tuple(
        (context.kernels[name].layer, comment(call.origin or "the compiler"))
        for name, call in calls.items()
        if context.kernels[name].c_name == text.c_name
    )
    origins = dict.fromkeys(origin for _, origin in layers)
    return KernelView(
        comment(call_text(calls[kernel.name])),
        ", ".join(origins),
        text.c_name,
        "enum raot_status" if kernel.fallible else "void",
        ", ".join(context.parameters(kernel)),
        text.code.parts,
        text.code.body,
        layers,
    )


def call_text(call: Call) -> str:
    """A call as one line of the text form, without its origin."""
    outs = ", ".join(f"%{o.name}: {o.type}" for o in call.outs)
    args = ", ".join(f"%{a.name}" if isinstance(a, Var) else "_" for a in call.args)
    if call.op in ("call_kernel", "guard"):
        return f"{outs} = {call.op} @{call.ref('kernel')}({args})"
    if call.op == "call_extern":
        values = ", ".join(f"{k}={attr_text(v)}" for k, v in call.attrs if k != "extern")
        return f"{outs} = call_extern @{call.ref('extern')}({args}) {{{values}}}"
    return f"{outs} = {call.op}({args})"


def graph_lines(plan: Plan) -> tuple[str, ...]:
    """The entry after all passes, in the text form."""
    main = plan.module.main
    params = ", ".join(f"%{p.name}: {p.type}" for p in main.params)
    lines = [f"func @{main.name}({params}) {{"]
    for call in main.body:
        origin = f"  # {call.origin}" if call.origin else ""
        lines.append(f"  {call_text(call)}{origin}")
    results = ", ".join(f"%{r.name}" for r in main.results)
    return tuple(comment(line) for line in [*lines, f"  return {results}", "}"])
