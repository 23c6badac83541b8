# SPDX-License-Identifier: Apache-2.0
"""Runs a module by the ops' NumPy references: what the model means, in the IR's own words.

A kernel that a module brings along runs statement by statement (interpret.py); what an
extern computes is not known here. Each result is checked against the type that was deduced
for it, so that a run also tests the type rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Attr, Call, Condition, Function, Loop, Module, Var, dim_attr
from relax_aot.ir.loops import Kernel
from relax_aot.ir.solve import solve
from relax_aot.ops import all_ops

Array = NDArray[Any]


KernelResults = dict[tuple[str, ...], list[Array]]
"""Results of kernels by name, sizes and digests of their inputs: interpretation is slow."""


class EvaluationError(RelaxAotError):
    """Inputs or sizes that the module does not take."""


def evaluate(
    module: Module,
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int],
    known: KernelResults | None = None,
) -> dict[str, Array]:
    """Results by name, for inputs by name and the entry's symbols by name.

    A symbol whose bounds leave one value need not be given. `known` is filled and used.
    """
    sizes_ = all_sizes(module, sizes)
    for symbol in module.symbols:
        if not symbol.inner:
            _check_symbol(symbol.name, symbol.low, symbol.high, sizes_)
    for condition in module.conditions:
        _check_condition(condition, sizes_)
    evaluation = Evaluation(module, sizes_, known)
    arguments = [_argument(p, inputs, entry_shape(evaluation, p)) for p in module.main.params]
    with np.errstate(all="ignore"):
        results = entry_results(evaluation, arguments)
    return {var.name: array for var, array in zip(module.main.results, results, strict=True)}


def all_sizes(module: Module, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes and the symbols whose bounds leave one value."""
    pinned = {s.name: s.low for s in module.symbols if s.low == s.high and not s.inner}
    return pinned | dict(sizes)


def sizes_shown(module: Module, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The symbols of the entry that the shapes of its inputs determine; pinned ones too."""
    axes = [
        (size, actual)
        for param in module.main.params
        for size, actual in zip(param.type.shape, inputs[param.name].shape, strict=True)
    ]
    relations = [(c.relation, c.left, c.right) for c in module.conditions]
    ranges = {s.name: (s.low, s.high) for s in module.symbols if not s.inner}
    pinned = {name: low for name, (low, high) in ranges.items() if low == high}
    return solve(axes, relations, ranges, pinned).sizes


def _digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _check_symbol(name: str, low: int, high: int, sizes: Mapping[str, int]) -> None:
    if name not in sizes:
        raise EvaluationError(f"size {name} is not given")
    if not low <= sizes[name] <= high:
        raise EvaluationError(f"size {name} is {sizes[name]}, outside {low}..{high}")


def _check_condition(condition: Condition, sizes: Mapping[str, int]) -> None:
    left, right = condition.left.evaluate(sizes), condition.right.evaluate(sizes)
    if left != right if condition.relation == "==" else left > right:
        raise EvaluationError(f"these sizes break {condition} ({condition.origin})")


def _argument(param: Var, inputs: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    if param.name not in inputs:
        raise EvaluationError(f"input {param.name} ({param.type}) is missing")
    array = np.asarray(inputs[param.name])
    if array.shape != shape or array.dtype != param.type.dtype.numpy:
        raise EvaluationError(
            f"input {param.name} must be {param.type.dtype.value}{list(shape)},"
            f" got {array.dtype}{list(array.shape)}"
        )
    return array


def entry_shape(evaluation: Evaluation, var: Var) -> tuple[int, ...]:
    """The shape of an input or result of the entry: a growing state has the rows that it holds,
    also where the module has it at its capacity."""
    module = evaluation.module
    shape = [size.evaluate(evaluation.sizes) for size in var.type.shape]
    if (state := module.at_capacity.get(var.name)) is not None:
        after = module.lengths[state.length].after
        rows = Dim.of(state.length) if var.name == state.input else after
        shape[state.axis] = rows.evaluate(evaluation.sizes)
    return tuple(shape)


def entry_results(evaluation: Evaluation, arguments: Sequence[Array]) -> list[Array]:
    """The results of the entry function. Rows behind those of a growing state are undefined."""
    module, padded = evaluation.module, []
    for param, array in zip(module.main.params, arguments, strict=True):
        if param.name in module.at_capacity:
            undefined = np.nan if array.dtype.kind == "f" else 0
            places = np.full(evaluation.attr(tuple(param.type.shape)), undefined, array.dtype)
            places[tuple(map(slice, array.shape))] = array
            array = places
        padded.append(array)
    results = evaluation.function(module.main, padded)
    return [
        array[tuple(map(slice, entry_shape(evaluation, result)))]
        if result.name in module.at_capacity
        else array
        for result, array in zip(module.main.results, results, strict=True)
    ]


def partial_outputs(module: Module, call: Call, kernel: Kernel) -> list[str]:
    """The outputs of a kernel of which only the rows of a growing state are written."""
    pairs = zip(kernel.outputs, call.outs, strict=False)
    return [buffer.name for buffer, out in pairs if out.name in module.at_capacity]


class Evaluation:
    """One evaluation; `sizes` grows by the inner symbols that branches define."""

    def __init__(
        self, module: Module, sizes: dict[str, int], known: KernelResults | None = None
    ) -> None:
        """`known` are results of kernels that were interpreted before."""
        self.module, self.sizes = module, sizes
        self.constants = {c.name: c.data for c in module.constants}
        self.known: KernelResults = {} if known is None else known

    def function(self, function: Function, arguments: Sequence[Array]) -> list[Array]:
        params = [param.name for param in function.params]
        values: dict[str, Array] = dict(zip(params, arguments, strict=True))
        for call in function.body:
            args = [None if a is None else self.value(a.name, values) for a in call.args]
            results = self.call(call, args)
            for out, result in zip(call.outs, results, strict=True):
                values[out.name] = self.checked(call, out, result)
        return [self.value(result.name, values) for result in function.results]

    def call(self, call: Call, args: Sequence[Array | None]) -> Sequence[Array]:
        match call.op:
            case "if":
                return self.branch(call, args)
            case "call_kernel":
                return self.kernel(call, args)
            case "guard":
                self.kernel(call, args)
                assert args[0] is not None
                return [args[0]]
            case "view":
                (array,) = args
                assert array is not None
                return [array.reshape(self.attr(tuple(call.out.type.shape)))]
            case "define":
                return self.define(call, args)
            case "check":
                left, right = (dim_attr(call.attr(side)) for side in ("left", "right"))
                relation = str(call.attr("relation"))
                _check_condition(Condition(relation, left, right, call.origin), self.sizes)
                return ()
            case "loop":
                return self.loop(call, args)
            case "call_extern":
                raise EvaluationError(
                    f"%{call.outs[0].name} is computed by the extern @{call.ref('extern')}, which"
                    " has no reference: compare with outputs of your own (--reference FILE.npz)"
                )
            case _:
                return self.op(call, args)

    def kernel(self, call: Call, args: Sequence[Array | None]) -> list[Array]:
        """The outputs, and zeros for scratch."""
        kernel = self.module.kernel_table[call.ref("kernel")]
        inputs = [a for a in args if a is not None]
        key = (kernel.name, repr(sorted(self.sizes.items())), *map(_digest, inputs))
        if key not in self.known:
            partial = partial_outputs(self.module, call, kernel)
            self.known[key] = run_kernel(kernel, inputs, self.sizes, partial=partial)
        outputs = self.known[key]
        scratch = [
            np.zeros(self.attr(tuple(out.type.shape)), out.type.dtype.numpy)
            for out in call.outs[len(outputs) :]
        ]
        return outputs + scratch

    def define(self, call: Call, args: Sequence[Array | None]) -> Sequence[Array]:
        (name,) = self.attr(call.attr("defines"))
        (source,) = args
        assert source is not None
        value = int(source.reshape(-1)[self.attr(call.attr("element"))])
        low, most = self.attr(call.attr("low")), self.attr(call.attr("most"))
        if not low <= value <= most:
            raise EvaluationError(f"size {name} is {value}, outside {low}..{most}")
        self.sizes[name] = value
        return ()

    def loop(self, call: Call, args: Sequence[Array | None]) -> list[Array]:
        loop, values = Loop.of(call), [a for a in args if a is not None]
        body = self.module.function_table[loop.body]
        carried, captured = values[: loop.carried], values[loop.carried :]
        rows: list[list[Array]] = [[] for _ in call.outs[loop.carried :]]
        for name, first, _, _ in loop.sizes:
            self.sizes[name] = first.evaluate(self.sizes)
        trips = loop.trips.evaluate(self.sizes)
        iteration = 0
        while iteration < trips and (not loop.conditional or bool(carried[0].reshape(()))):
            self.sizes[loop.turn] = iteration
            results = self.function(body, [*carried, *captured])
            carried = results[: loop.carried]
            for row, result in zip(rows, results[loop.carried :], strict=True):
                row.append(result)
            later = [(name, next_.evaluate(self.sizes)) for name, _, next_, _ in loop.sizes]
            self.sizes |= dict(later)
            iteration += 1
        if loop.capped and iteration >= trips and loop.conditional and carried[0].reshape(()):
            raise EvaluationError(f"the loop of {call.origin} makes more than {trips} iterations")
        if loop.count:
            self.sizes[loop.count] = iteration
        stacked = [self.stacked(o, r) for o, r in zip(call.outs[loop.carried :], rows, strict=True)]
        return [*carried, *stacked]

    def stacked(self, out: Var, rows: list[Array]) -> Array:
        if rows:
            return np.stack(rows)
        shape = [size.evaluate(self.sizes) for size in out.type.shape[1:]]
        return np.zeros((0, *shape), out.type.dtype.numpy)

    def value(self, name: str, values: Mapping[str, Array]) -> Array:
        return values[name] if name in values else self.constants[name]

    def op(self, call: Call, args: Sequence[Array | None]) -> tuple[Array, ...]:
        attrs = {name: self.attr(value) for name, value in call.attrs}
        results = all_ops()[call.op].reference(*args, **attrs)
        return results if isinstance(results, tuple) else (results,)

    def branch(self, call: Call, args: Sequence[Array | None]) -> list[Array]:
        condition, *captured = args
        assert condition is not None
        side = "then" if bool(condition.reshape(())) else "else"
        taken = self.module.function_table[call.ref(side)]
        results = self.function(taken, [a for a in captured if a is not None])
        sizes, names = call.attr(f"{side}_sizes"), call.attr("defines")
        assert isinstance(sizes, tuple) and isinstance(names, tuple)
        for name, size in zip(names, sizes, strict=True):
            self.sizes[str(name)] = int(self.attr(size))
        return results

    def attr(self, value: Attr) -> Any:
        if isinstance(value, Dim):
            return value.evaluate(self.sizes)
        return tuple(self.attr(v) for v in value) if isinstance(value, tuple) else value

    def checked(self, call: Call, out: Var, result: Array) -> Array:
        array = np.asarray(result)
        shape = tuple(size.evaluate(self.sizes) for size in out.type.shape)
        assert array.shape == shape and array.dtype == out.type.dtype.numpy, (
            f"{call.op} gave {array.dtype}{list(array.shape)} for %{out.name}: {out.type},"
            f" from {call.origin}"
        )
        return array
