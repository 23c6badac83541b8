# SPDX-License-Identifier: Apache-2.0
"""Lower ops to kernels that the graph calls.

After this stage a function holds only `call_kernel`, `call_extern`, `view` and `if`. Scratch that a
kernel asked for has become a further result of its call, so that the planner sees it.
Every result of a function is a value of its own: results that are a parameter, a
constant or a second use of another result are copied. Growing states have the strides of their
capacity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.graph import FORMS, Call, Constant, Function, Module, Var, attr_symbols, attrs_of
from relax_aot.ir.loops import Buffer, Expr, Kernel, Lit, Load, Number, expressions, parts, walk
from relax_aot.ir.names import names_of, scratch_of, unused_name
from relax_aot.ir.rewrite import map_exprs
from relax_aot.ir.types import DType, Ref
from relax_aot.lowering.divided_calls import one_part
from relax_aot.lowering.growing import at_capacity
from relax_aot.lowering.index_checks import check_then_trust
from relax_aot.lowering.parameters import Naming, Role, attributes, own_constants, roles_of
from relax_aot.ops import all_ops

__all__ = ["check_then_trust", "lower", "one_part"]


def lower(module: Module, tile_rows: int = 0) -> Module:
    """Module of op calls -> module of kernels. `tile_rows`: as KernelBuilder has it."""
    kernels: list[Kernel] = []
    functions = []
    names = {kernel.name for kernel in module.kernels}
    naming = Naming(frozenset(s.name for s in module.symbols)) if module.replaceable else None
    module = _own_results(module)
    values = names_of(module)
    for function in module.functions:
        body: list[Call] = []
        for call in function.body:
            if call.op in FORMS:
                body.append(call)
            elif all_ops()[call.op].view:
                body.append(replace(call, op="view", args=call.args[:1], attrs=()))
            else:
                kernel, lowered = _lower_call(call, module.constant_table, names, naming, tile_rows)
                kernels.append(kernel)
                scratch = scratch_of(lowered, kernel.scratch, values)
                body.append(replace(lowered, outs=(*lowered.outs, *scratch)))
        results = tuple(_result_name(v, body) for v in function.results)
        functions.append(replace(function, body=tuple(body), results=results))
    result = replace(
        module,
        functions=tuple(functions),
        kernels=(*module.kernels, *kernels),
        constants=(*module.constants, *(naming.constants.values() if naming else ())),
    )
    return at_capacity(_drop_unused(result))


def _own_results(module: Module) -> Module:
    """The same with copies where a result is not a value of its own.

    A branch may use what the function around it made, by the same name: so a value that
    is renamed, since its name is that of a result, is renamed in all functions.
    """
    copies = {f.name: _copies(f, module.constant_table) for f in module.functions}
    renamed = {c.out.name: c.inputs[0].name for made in copies.values() for c in made}

    def rename(var: Var) -> Var:
        return Var(renamed.get(var.name, var.name), var.type)

    def call(before: Call) -> Call:
        args = tuple(None if arg is None else rename(arg) for arg in before.args)
        return replace(before, outs=tuple(rename(o) for o in before.outs), args=args)

    return replace(
        module,
        functions=tuple(
            replace(
                f,
                params=tuple(rename(p) for p in f.params),
                body=(*(call(c) for c in f.body), *copies[f.name]),
            )
            for f in module.functions
        ),
    )


def _copies(function: Function, constants: dict[str, Constant]) -> list[Call]:
    """One copy per result that is a parameter, a constant, or a result already."""
    roots: dict[str, str] = {}
    for call in function.body:
        if call.op == "view" or (call.op in all_ops() and all_ops()[call.op].view):
            source = call.inputs[0].name
            roots[call.out.name] = roots.get(source, source)
    foreign = {p.name for p in function.params} | set(constants)
    taken: set[str] = set()
    copies: list[Call] = []
    for result in function.results:
        root = roots.get(result.name, result.name)
        if root in foreign or root in taken:
            inner = Var(f"{result.name}.source", result.type)
            copies.append(Call((result,), "copy", (inner,), origin="result"))
        taken.add(root)
    return copies


def _result_name(result: Var, body: list[Call]) -> Var:
    made = {out.name for call in body for out in call.outs}
    assert result.name in made, f"result %{result.name} is not made by its function"
    return result


def _lower_call(
    call: Call,
    constants: dict[str, Constant],
    names: set[str],
    naming: Naming | None,
    tile_rows: int,
) -> tuple[Kernel, Call]:
    op = all_ops()[call.op]
    attrs: dict[str, Any] = dict(call.attrs)
    roles: tuple[Role | None, ...] = (None,) * len(call.args)
    if naming is not None:
        attrs, roles = attributes(op, call, naming), roles_of(op, call, constants)
        call = own_constants(call, roles, constants, naming)
    taken: set[str] = set()
    buffers = [None if arg is None else _buffer(arg, taken) for arg in call.args]
    outputs = [_buffer(out, taken) for out in call.outs]
    inputs = [buffer for buffer in buffers if buffer is not None]
    name = unused_name(f"{call.op}_{call.outs[0].name}", names)
    names.add(name)
    sizes = (attr_symbols(value) for value in attrs.values())
    used = frozenset[str]().union(*sizes)
    builder = KernelBuilder(name, inputs, outputs, used, tile_rows)
    op.lower(builder, *buffers, *outputs, **attrs)
    kernel = builder.finish()
    own = tuple(role for role, arg in zip(roles, call.args, strict=True) if arg is not None)
    quantized = naming is not None and bool(op.quantization)
    kernel, args = _inline_scalars(kernel, call.inputs, constants, own, naming, quantized=quantized)
    kernel, args = _drop_unread(kernel, args)
    given = attrs_of({"kernel": Ref(kernel.name)})
    return kernel, Call(call.outs, "call_kernel", args, given, call.origin)


def _buffer(var: Var, taken: set[str]) -> Buffer:
    name = unused_name(var.name, taken | var.type.symbols)
    taken.add(name)
    return Buffer(name, var.type.dtype, var.type.shape)


def _inline_scalars(
    kernel: Kernel,
    args: tuple[Var, ...],
    constants: dict[str, Constant],
    roles: tuple[Role | None, ...],
    naming: Naming | None,
    *,
    quantized: bool,
) -> tuple[Kernel, tuple[Var, ...]]:
    """One-element constants become literals of the kernel, or its parameters. Weights and biases
    that are `quantized` and replaceable stay."""
    values: dict[str, Lit] = {}
    for buffer, arg, role in zip(kernel.inputs, args, roles, strict=True):
        constant = constants.get(arg.name)
        stays = quantized and role is None and not buffer.dtype.is_float
        if constant is None or constant.data.size != 1 or stays or buffer.dtype is DType.F16:
            continue
        value = constant.data.reshape(()).astype(buffer.dtype.numpy)[()]
        number: Number = float(value) if buffer.dtype.is_float else value.item()
        if role is not None and naming is not None:
            number = naming.number(role, number)
        values[buffer.name] = Lit(number, buffer.dtype)

    def rule(expr: Expr) -> Expr:
        return values.get(expr.buffer.name, expr) if isinstance(expr, Load) else expr

    if not values:
        return kernel, args
    kept = [
        (buffer, arg)
        for buffer, arg in zip(kernel.inputs, args, strict=True)
        if buffer.name not in values
    ]
    body = map_exprs(kernel.body, rule)
    return (
        replace(kernel, inputs=tuple(b for b, _ in kept), body=body),
        tuple(arg for _, arg in kept),
    )


def _drop_unread(kernel: Kernel, args: tuple[Var, ...]) -> tuple[Kernel, tuple[Var, ...]]:
    """Remove inputs of which only the shape is used."""
    read = {
        part.buffer.name
        for stmt in walk(kernel.body)
        for expr in expressions(stmt)
        for part in parts(expr)
        if isinstance(part, Load)
    }
    pairs = zip(kernel.inputs, args, strict=True)
    kept = [(buffer, arg) for buffer, arg in pairs if buffer.name in read]
    inputs = tuple(buffer for buffer, _ in kept)
    return replace(kernel, inputs=inputs), tuple(arg for _, arg in kept)


def _drop_unused(module: Module) -> Module:
    """Remove constants that no call reads."""
    used = {v.name for f in module.functions for c in f.body for v in c.inputs}
    return replace(module, constants=tuple(c for c in module.constants if c.name in used))
