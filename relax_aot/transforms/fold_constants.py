# SPDX-License-Identifier: Apache-2.0
"""Constant folding: evaluate calls whose arguments are all constants.

The builder folds as it goes, except where weights of bytes or of half precision would grow into
floats. Those stay in their small form when every reader decodes them as it reads, which is what
fusion does for products and convolutions; for other readers they are decoded here.

In modules with `keeps_half`, weights that are widened from half precision, and otherwise moved at
most, stay so for readers that convert them once for a tile. In others, those of convolutions are
decoded here, since a convolution would decode them again for each of its lines.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relax_aot.inference.folding import ENCODED_BYTES, FOLD_BUDGET_BYTES
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Constant, Function, Module, attrs_of
from relax_aot.ir.types import DType
from relax_aot.ops import all_ops, has
from relax_aot.ops._op import Trait, depends_on_sizes

EXAMPLES = (
    Example(
        why="all arguments are constants",
        before="""
            const %c: f32[2] = [1.0, 2.0]
            func @main(%x: f32[2]) {
              %a: f32[2] = neg(%c)
              %y: f32[2] = add(%x, %a)
              return %y
            }""",
        after="""
            const %c: f32[2] = [1.0, 2.0]
            const %a: f32[2] = [-1.0, -2.0]
            func @main(%x: f32[2]) {
              %y: f32[2] = add(%x, %a)
              return %y
            }""",
    ),
    Example(
        why="the product decodes a quantized weight as it reads it",
        before="""
            const %c: i8[2] = [1, 2]
            const %s: f32[] = [0.5]
            func @main(%x: f32[3, 2]) {
              %w: f32[2] = dequantize(%c, %s) {to=f32}
              %v: f32[2, 1] = reshape(%w) {shape=[2, 1]}
              %y: f32[3, 1] = matmul(%x, %v)
              return %y
            }""",
    ),
    Example(
        why="a convolution of floats would decode its weights for each line of the image",
        before="""
            const %c: i8[1, 1, 2] = [1, 2]
            const %s: f32[] = [0.5]
            func @main(%x: f32[1, 1, 3]) {
              %w: f32[1, 1, 2] = dequantize(%c, %s) {to=f32}
              %y: f32[1, 1, 2] = conv(%x, %w) {dilations=[1], group=1, pads=[0, 0], strides=[1]}
              return %y
            }""",
        after="""
            ...
            const %w: f32[1, 1, 2] = [0.5, 1.0]
            ...
              %y: f32[1, 1, 2] = conv(%x, %w) {dilations=[1], group=1, pads=[0, 0], strides=[1]}
            ...""",
    ),
)

CONVOLUTIONS = ("conv", "conv_transpose")
WIDE = attrs_of({"to": DType.F32, "saturate": False})


def run(module: Module) -> Module:
    constants = dict(module.constant_table)
    functions = tuple(_fold(f, constants, module.keeps_half) for f in module.functions)
    return replace(module, functions=functions, constants=tuple(constants.values()))


def _fold(function: Function, constants: dict[str, Constant], keeps_half: bool) -> Function:
    fixed = _fixed(function, constants)
    encoded = _encoded(function, fixed, constants, keeps_half)
    narrow = _narrow(function, fixed, constants) if keeps_half else {}
    folded = {
        out.name
        for call in function.body
        if _results(call) <= fixed and not _results(call) <= encoded
        for out in call.outs
    }
    read = {
        value.name
        for call in function.body
        if folded.intersection(_results(call))
        for value in call.inputs
    }
    known = dict(constants)
    body: list[Call] = []
    for call in function.body:
        found = None
        unread = call.op == "cast" and _results(call) <= narrow.keys() - read
        if folded.intersection(_results(call)) and not unread:
            found = _evaluated(call, known)
        if found is None:
            body.append(call)
            continue
        known |= {constant.name: constant for constant in found}
        kind = narrow.get(call.outs[0].name)
        half = None if kind is None else _narrowed(found[0], kind)
        if half is not None:
            constants[half.name] = half
            body.append(replace(call, op="cast", args=(half.var,), attrs=WIDE))
        else:
            constants |= {constant.name: constant for constant in found}
    return replace(function, body=tuple(body))


def _results(call: Call) -> set[str]:
    return {out.name for out in call.outs}


def _narrow(
    function: Function, fixed: set[str], constants: dict[str, Constant]
) -> dict[str, DType]:
    """Of those, the ones that hold elements of constants of half precision, with their type, and
    that only products read which convert them."""
    kinds = {n: c.type.dtype for n, c in constants.items() if c.type.dtype.is_half}
    users: dict[str, list[Call]] = {}
    for call in function.body:
        if fixed.isdisjoint(_results(call)):
            for value in call.inputs:
                users.setdefault(value.name, []).append(call)
            continue
        given = {kinds.get(value.name) for value in call.inputs if value.type.dtype.is_float}
        exact = call.op == "cast" or all_ops()[call.op].is_exact(dict(call.attrs))
        if exact and len(given) == 1 and (kind := given.pop()) is not None:
            kinds |= dict.fromkeys((out.name for out in call.outs if out.type.dtype.is_float), kind)
    return {
        out.name: kinds[out.name]
        for call in function.body
        for out in call.outs[:1]
        if out.name in kinds and out.name in users and out.type.dtype is DType.F32
        if out.type.bytes.constant > 2 * ENCODED_BYTES
        if all(has(user.op, Trait.WIDENS) for user in users[out.name])
    }


def _narrowed(constant: Constant, dtype: DType) -> Constant | None:
    """The same elements in half precision; None where another cast rounded them to other ones."""
    wide = np.asarray(constant.data)
    with np.errstate(all="ignore"):
        data = wide.astype(dtype.numpy)
    if not np.array_equal(data.astype(wide.dtype), wide, equal_nan=True):
        return None
    type_ = replace(constant.type, dtype=dtype)
    return Constant(f"{constant.name}.{dtype.value}", type_, data)


def _fixed(function: Function, constants: dict[str, Constant]) -> set[str]:
    """Names of results that follow from constants alone, and that memory has room for."""
    stored = {name: _stored_bytes(constant) for name, constant in constants.items()}
    fixed: set[str] = set()
    results = {v.name for v in function.results}
    for call in function.body:
        known = call.inputs and all(v.name in stored for v in call.inputs)
        if not known or call.op not in all_ops() or any(o.name in results for o in call.outs):
            continue
        # Above the budget, a result takes at most 8 times the bytes that its operands store.
        room = max(FOLD_BUDGET_BYTES, 8 * sum(stored[v.name] for v in call.inputs))
        values = (*call.inputs, *call.outs)
        sized = all(size.is_constant for value in values for size in value.type.shape)
        if not sized or any(depends_on_sizes(value) for _, value in call.attrs):
            continue
        if any(value.type.bytes.constant > room for value in values):
            continue
        fixed |= {o.name for o in call.outs}
        stored |= {o.name: o.type.bytes.constant for o in call.outs}
    return fixed


def _stored_bytes(constant: Constant) -> int:
    """A splat is one element, however many it stands for."""
    data = constant.data
    splat = data.size > 1 and not any(data.strides)
    return int(data.dtype.itemsize if splat else data.nbytes)


def _encoded(
    function: Function, fixed: set[str], constants: dict[str, Constant], keeps_half: bool
) -> set[str]:
    """Of those, the ones that take less memory in their small form, and that only decoding readers
    use, directly or through each other."""
    smaller = _smaller(function, fixed, constants)
    half = {name for name, constant in constants.items() if constant.type.dtype.is_half}
    readers: dict[str, list[Call]] = {}
    for call in function.body:
        for value in call.inputs:
            readers.setdefault(value.name, []).append(call)
    encoded: set[str] = set()
    for call in reversed(function.body):
        for out in call.outs:
            if smaller.get(out.name, "") in ("", *half):
                continue
            uses = readers.get(out.name, [])
            if uses and all(_decodes(use, encoded, fixed, keeps_half) for use in uses):
                encoded.add(out.name)
    return encoded


def _smaller(function: Function, fixed: set[str], constants: dict[str, Constant]) -> dict[str, str]:
    """Of those, the ones that are larger than all constants that they are computed from, with the
    largest of these. A product is no decoding: it is stored."""
    leaves: dict[str, dict[str, int]] = {n: {n: _stored_bytes(c)} for n, c in constants.items()}
    found: dict[str, str] = {}
    for call in function.body:
        for out in call.outs:
            if out.name not in fixed:
                continue
            stored = out.type.bytes.constant
            product = has(call.op, Trait.CONTRACTION)
            parts = (
                {} if product else {k: v for x in call.inputs for k, v in leaves[x.name].items()}
            )
            leaves[out.name] = parts or {out.name: stored}
            own = leaves[out.name]
            if sum(own.values()) < stored:
                found[out.name] = max(own, key=lambda name: own[name])
    return found


def _decodes(use: Call, encoded: set[str], fixed: set[str], keeps_half: bool) -> bool:
    if use.outs[0].name in fixed:
        return use.outs[0].name in encoded
    if use.op in CONVOLUTIONS and not keeps_half:
        return False
    return has(use.op, Trait.CONTRACTION)  # it reads an operand through a cheap formula


def _evaluated(call: Call, constants: dict[str, Constant]) -> list[Constant] | None:
    """None where the call must stay: a constant index out of range ends the run with a status."""
    if any(v.name not in constants for v in call.inputs):
        return None
    values = [None if arg is None else np.asarray(constants[arg.name].data) for arg in call.args]
    try:
        with np.errstate(all="ignore"):
            results = all_ops()[call.op].reference(*values, **dict(call.attrs))
    except IndexError:
        return None
    results = results if isinstance(results, tuple) else (results,)
    return [
        Constant(
            out.name,
            out.type,
            np.asarray(result, out.type.dtype.numpy).reshape(tuple(map(int, out.type.shape))),
        )
        for out, result in zip(call.outs, results, strict=True)
    ]
