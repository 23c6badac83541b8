# SPDX-License-Identifier: Apache-2.0
"""Drafts become exact: forward through the calls, every value gets its type.

A program as text may say less than types (`f32[?, 4]`, `f32`, `?`), pass tuples, call
functions and kernels of its own whose symbols are local to them, and know sizes better than
ops do (`match_cast`). Here ops deduce, signatures are solved for their symbols, functions
are put in the place of their calls, and what a `match_cast` claims becomes a condition.
What is exact already is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from relax_aot.errors import RelaxAotError
from relax_aot.inference.draft_types import (
    DraftTypes,
    RefineError,
    Scope,
    Unfit,
    Value,
    deduced,
    shown,
    tuple_of,
)
from relax_aot.inference.returned_inputs import copy_returned_inputs
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Attr, Call, Function, Module, Var, attrs_of
from relax_aot.ir.loops import Kernel
from relax_aot.ir.names import rename_indices, unused_name
from relax_aot.ir.rewrite import map_kernel_dims
from relax_aot.ir.text import call_text
from relax_aot.ir.types import (
    Annotation,
    CoarseType,
    FunctionType,
    Ref,
    ShapeType,
    TensorType,
    TupleType,
)
from relax_aot.ir.unify import solve
from relax_aot.ops import all_ops


def refine(module: Module) -> Module:
    """The module with exact types, without calls of functions, tuples and claims."""
    for param in module.main.params:
        if not isinstance(param.type, TensorType):
            raise RefineError(
                f"input %{param.name}: {param.type}: an input of a C function is a tensor of"
                " known element type and rank"
            )
    return copy_returned_inputs(_Refine(module).run())


class _Matching(DraftTypes):
    """Sizes from arguments: match_cast, and the signatures of functions."""

    def _matched(self, said: TensorType | CoarseType, value: Var, scope: Scope) -> tuple[Dim, ...]:
        """The sizes of `value` as an annotation spells them; its new symbols are solved."""
        actual = value.type
        if said.dtype not in (None, actual.dtype):
            raise Unfit(f"%{value.name} is {actual}; match_cast keeps the element type")
        if said.shape is None:
            return actual.shape
        if len(said.shape) != actual.rank:
            raise Unfit(f"%{value.name} is {actual}; {said} has another rank")
        pairs = list(zip(said.shape, actual.shape, strict=True))
        solve(((a, b) for a, b in pairs if a is not None), scope.sizes)
        for size, _ in pairs:
            for symbol in sorted(size.symbols - scope.sizes.keys()) if size is not None else ():
                raise Unfit(f"{said} does not define {symbol}")
        return tuple(b if a is None else scope.dim(a) for a, b in pairs)

    def _read(self, value: Var, sizes: Sequence[Dim], origin: str, scope: Scope) -> None:
        """Data-dependent sizes: each element defines an inner symbol of its own."""
        inner = {symbol.name: symbol for symbol in self.module.symbols if symbol.inner}
        whole = value.type.dtype.is_int and value.type.elements == len(sizes)
        if not whole or value.type.rank > 1:
            raise Unfit(f"%{value.name} is {value.type}, not {len(sizes)} sizes")
        for element, size in enumerate(sizes):
            name = str(size)
            if name not in inner or name in scope.sizes:
                raise Unfit(
                    f"element {element} of %{value.name} is data, so it defines an inner symbol"
                    f" (inner symbol k in 0..64) that has no other definition; {size} is not one"
                )
            symbol = inner[name]
            own = self._own_symbol(name, scope)
            attrs: dict[str, Attr] = {
                "defines": (own,), "element": element, "low": symbol.low, "most": symbol.high,
            }  # fmt: skip
            scope.body.append(Call((), "define", (value,), attrs_of(attrs), origin))
        shape = [size.constant for size in value.type.shape]
        known = np.array([*map(scope.dim, sizes), None], object)[:-1]
        self.builder.know(value, known.reshape(shape))

    def _match_cast(self, call: Call, args: Sequence[Value | None], scope: Scope) -> None:
        """Symbols that are new are worth what they stand for; all else is to be equal."""
        (out,) = self._outs(call, 1)
        value = args[0] if len(args) == 1 else None
        if not isinstance(value, Var):
            raise Unfit("match_cast takes one tensor")
        said: Annotation = out.type
        if isinstance(said, ShapeType):
            sizes = said.sizes
            known = self.builder.dims(value)
            if known is None:
                self._read(value, sizes, call.origin, scope)
            elif len(known) == len(sizes):
                solve(zip(sizes, known, strict=True), scope.sizes)
            self._bind(out, value, scope)
            return
        if not isinstance(said, TensorType | CoarseType):
            raise Unfit(f"match_cast returns a tensor, not {said}")
        shape = self._matched(said, value, scope)
        name = self._define(out.name, scope)
        made = Var(name, TensorType(value.type.dtype, shape))
        scope.values[out.name] = made
        attrs = attrs_of({"shape": shape})
        scope.body.append(Call((made,), "match_cast", (value,), attrs, call.origin))

    def _get(self, call: Call, args: Sequence[Value | None], scope: Scope) -> None:
        (out,) = self._outs(call, 1)
        index = dict(call.attrs).get("index")
        if len(args) != 1 or not isinstance(args[0], tuple) or not isinstance(index, int):
            raise Unfit("get takes a tuple and an index: get(%t) {index=0}")
        if not 0 <= index < len(args[0]):
            raise Unfit(f"the tuple has {len(args[0])} parts, no part {index}")
        self._bind(out, args[0][index], scope)

    def _argument(self, name: str, said: Annotation, arg: Value, inner: Scope) -> Value:
        """The argument as the callee sees it: with sizes that it claims, where they differ."""
        if isinstance(arg, tuple):
            assert isinstance(said, TupleType)
            pairs = zip(said.parts, arg, strict=True)
            return tuple(self._argument(name, part, value, inner) for part, value in pairs)
        if not isinstance(said, TensorType | CoarseType):
            self._claims(Var(name, said), arg, inner)  # type: ignore[arg-type]  # a draft
            return arg
        shape = self._matched(said, arg, inner)
        if self.builder.same_sizes(shape, arg.type.shape):
            return arg
        made = Var(self._define(name, inner), TensorType(arg.type.dtype, shape))
        inner.body.append(Call((made,), "match_cast", (arg,), attrs_of({"shape": shape})))
        return made

    def _solve(
        self, said: Annotation, arg: Value | None, sizes: dict[str, Dim], callee: Function
    ) -> None:
        match said, arg:
            case (_, None):
                raise Unfit(f"@{callee.name} takes a value for each parameter")
            case (FunctionType(), _):
                raise Unfit(f"@{callee.name}: functions are called by name, not passed: {said}")
            case (TupleType(), tuple()) if len(said.parts) == len(arg):
                for part, inner in zip(said.parts, arg, strict=True):
                    self._solve(part, inner, sizes, callee)
            case ((TensorType() | CoarseType()), Var()):
                if said.dtype not in (None, arg.type.dtype) or (
                    said.shape is not None and len(said.shape) != arg.type.rank
                ):
                    raise Unfit(f"@{callee.name} takes {said}, got {arg.type}")
                pairs = zip(said.shape or (), arg.type.shape, strict=False)
                solve(((a, b) for a, b in pairs if a is not None), sizes)
            case (ShapeType(), Var()):
                known = self.builder.dims(arg)
                if known is None or len(known) != len(said.sizes):
                    raise Unfit(f"@{callee.name} takes {said}; the value of %{arg.name} is data")
                solve(zip(said.sizes, known, strict=True), sizes)
            case _:
                raise Unfit(f"@{callee.name} takes {said}, got {shown(arg)}")

    def _callee(self, call: Call, attr: str, scope: Scope) -> Function:
        ref = dict(call.attrs).get(attr)
        if not isinstance(ref, Ref) or ref.name not in self.module.function_table:
            raise Unfit(f"{attr}= names no function of the module")
        if ref.name in scope.stack:
            raise Unfit(f"@{ref.name} is recursive: {' -> '.join(scope.stack)}")
        return self.module.function_table[ref.name]


class _Kernels(_Matching):
    """Kernels whose symbols are local to them."""

    def _branch_name(self, requested: str) -> str:
        self.branch_names.add(name := unused_name(requested, self.branch_names))
        return name

    def _for_sizes(self, kernel: Kernel, moved: Mapping[str, Dim]) -> Kernel:
        """A copy of the kernel in which sizes of the caller stand for its symbols."""
        foreign = frozenset[str]().union(*(size.symbols for size in moved.values()))
        plain = rename_indices(kernel, foreign)
        made = map_kernel_dims(plain, lambda size: size.substitute(moved))
        count = 1
        for name, other in self.kernels.items():
            if other == replace(made, name=name) and name in self.used_kernels:
                return other
        while (name := f"{kernel.name}_{count}") in self.kernels:
            count += 1
        made = replace(made, name=name)
        self.kernels[name] = made
        self.used_kernels[name] = None
        return made

    def _kernel(
        self, call: Call, args: Sequence[Var | None], scope: Scope
    ) -> tuple[str, Sequence[TensorType]]:
        """The kernel for these sizes: its symbols are its own, solved by the arguments."""
        ref = dict(call.attrs).get("kernel")
        if not isinstance(ref, Ref) or ref.name not in self.module.kernel_table:
            raise Unfit("kernel= names no kernel of the module")
        kernel = self.module.kernel_table[ref.name]
        given = [arg.type for arg in args if arg is not None]
        said = [
            replace(out.type, shape=tuple(map(scope.dim, out.type.shape)))
            if isinstance(out.type, TensorType)
            else None
            for out in call.outs
        ]
        known: dict[str, Dim] = {}
        guards = call.op == "guard"  # its result is its first operand
        written = kernel.inputs[:1] if guards else kernel.outputs + kernel.scratch
        if len(given) != len(kernel.inputs) or len(said) != len(written):
            raise Unfit(
                f"kernel @{kernel.name} reads {len(kernel.inputs)} values and writes"
                f" {len(written)}, scratch included"
            )
        for buffer, type_ in zip((*kernel.inputs, *written), (*given, *said), strict=True):
            if type_ is not None and type_.rank == buffer.rank:
                solve(zip(buffer.shape, type_.shape, strict=True), known)
        moved = {symbol: size for symbol, size in known.items() if size != Dim.of(symbol)}
        if not moved:
            self.used_kernels[kernel.name] = None
            return kernel.name, [buffer.type for buffer in written]
        made = self._for_sizes(kernel, moved)
        written = made.inputs[:1] if guards else made.outputs + made.scratch
        return made.name, [buffer.type for buffer in written]


class _Refine(_Kernels):
    """The calls of a draft, made exact."""

    def run(self) -> Module:
        main = self.module.main
        scope = Scope(
            self._constants() | {p.name: p for p in main.params},
            {s.name: Dim.of(s.name) for s in self.module.symbols if not s.inner},
            stack=(main.name,),
        )
        self.defined |= {param.name for param in main.params}
        self._calls(main, scope)
        results = tuple(self._result(result.name, scope) for result in main.results)
        if self.problems:
            raise RefineError("the program cannot be made exact:\n  " + "\n  ".join(self.problems))
        made = Function(main.name, main.params, tuple(scope.body), results)
        kernels = tuple(self.kernels[name] for name in self.kernels if name in self.used_kernels)
        order = {function.name: place for place, function in enumerate(self.module.functions)}
        branches = sorted(self.branches, key=lambda f: order.get(f.name, len(order)))
        return self._with_assumptions(made, *branches, kernels=kernels)

    def _calls(self, function: Function, scope: Scope) -> None:
        for call in function.body:
            if any(arg.name not in scope.values for arg in call.inputs):
                continue  # its argument has a problem already
            try:
                self._call(call, scope)
            except Unfit as unfit:
                where = f"      from {call.origin}" if call.origin else ""
                self.problems.append(f"{unfit}\n    in {call_text(call)}{where}")
            except RelaxAotError as error:
                self.problems.append(f"{error}\n    in {call_text(call)}")

    def _call(self, call: Call, scope: Scope) -> None:
        args = [None if arg is None else scope.values[arg.name] for arg in call.args]
        match call.op:
            case "call":
                self._function(call, args, scope)
            case "tuple":
                (out,) = self._outs(call, 1)
                parts = tuple(arg for arg in args if arg is not None)
                self._bind(out, parts, scope)
            case "get":
                self._get(call, args, scope)
            case "match_cast":
                self._match_cast(call, args, scope)
            case _:
                self._emit(call, [self._tensor(arg) for arg in args], scope)

    def _emit(self, call: Call, args: list[Var | None], scope: Scope) -> None:
        """A call that stays: an op, a kernel, an extern, a view, or branches."""
        attrs = {name: self._attr(value, scope) for name, value in call.attrs}
        if attrs.get("defines") and scope.prefix and call.op != "define":
            raise Unfit(f"sizes of {call.op} are defined in the entry, not in a called function")
        if attrs.get("defines"):
            named = tuple_of(attrs["defines"])
            attrs["defines"] = tuple(self._own_symbol(str(name), scope) for name in named)
        types: Sequence[TensorType | None]
        if call.op in ("call_kernel", "guard"):
            kernel, types = self._kernel(call, args, scope)
            attrs["kernel"] = Ref(kernel)
        elif call.op == "if":
            attrs, types = self._if(attrs, args, scope)
        elif call.op == "loop":
            self._loop(attrs, args, scope)
            types = [None] * len(call.outs)
        elif call.op in all_ops():
            types = deduced(call.op, args, attrs)
        elif call.op in ("call_extern", "view", "define", "check"):
            types = [None] * len(call.outs)
        else:
            raise Unfit(f"unknown op {call.op}")
        if len(types) != len(call.outs):
            raise Unfit(f"{call.op} has {len(types)} results, the call names {len(call.outs)}")
        outs = []
        for out, found_type in zip(call.outs, types, strict=True):
            name = self._define(out.name, scope)
            outs.append(Var(name, self._exact(out, found_type, scope)))
            scope.values[out.name] = outs[-1]
        made = Call(tuple(outs), call.op, tuple(args), attrs_of(attrs), call.origin)
        scope.body.append(made)
        if call.op in all_ops():
            self.builder.learn(made.op, made.args, dict(made.attrs), made.outs)
        for out, var in zip(call.outs, outs, strict=True):
            self._claims(out, var, scope)

    def _function(self, call: Call, args: Sequence[Value | None], scope: Scope) -> None:
        """The callee's calls in the place of the call, under names and sizes of their own."""
        callee = self._callee(call, "function", scope)
        if len(args) != len(callee.params):
            raise Unfit(f"@{callee.name} takes {len(callee.params)} arguments, got {len(args)}")
        prefix = call.outs[0].name if call.outs else callee.name
        prefix = f"{scope.prefix}.{prefix}" if scope.prefix else prefix
        inner = Scope(self._constants(), {}, prefix, (*scope.stack, callee.name), scope.body)
        for param, arg in zip(callee.params, args, strict=True):
            self._solve(param.type, arg, inner.sizes, callee)
        for param, arg in zip(callee.params, args, strict=True):
            assert arg is not None
            inner.values[param.name] = self._argument(param.name, param.type, arg, inner)
        problems = len(self.problems)
        self._calls(callee, inner)
        if len(self.problems) > problems:
            return
        results = [inner.values[result.name] for result in callee.results]
        for out, value in zip(self._outs(call, len(results)), results, strict=True):
            self._bind(out, value, scope)

    def _if(
        self, attrs: dict[str, Attr], args: Sequence[Var | None], scope: Scope
    ) -> tuple[dict[str, Attr], Sequence[TensorType | None]]:
        """Branches stay functions; their parameters are the values around the call."""
        attrs = {"defines": (), "then_sizes": (), "else_sizes": (), **attrs}
        captured = tuple(arg for arg in args[1:] if arg is not None)
        found: list[Sequence[TensorType]] = []
        for side in ("then", "else"):
            branch = self._callee(Call((), "if", (), attrs_of(attrs)), side, scope)
            if len(branch.params) != len(captured):
                raise Unfit(f"@{branch.name} takes {len(branch.params)} values of its caller")
            function = self._body(branch, captured, scope)
            attrs[side] = Ref(function.name)
            found.append([result.type for result in function.results])
        # Where the branches differ, the call says what it gives.
        same = not attrs["defines"] and len(found[0]) == len(found[1])
        count = max(map(len, found))
        return attrs, list(found[0]) if same else [None] * count

    def _loop(self, attrs: dict[str, Attr], args: Sequence[Var | None], scope: Scope) -> None:
        """Carried values have names of the body's own; all others are those around the loop."""
        body = self._callee(Call((), "loop", (), attrs_of(attrs)), "body", scope)
        carried = attrs.get("carried")
        values = tuple(arg for arg in args if arg is not None)
        if not isinstance(carried, int) or len(body.params) != len(values):
            raise Unfit(
                f"@{body.name} takes {len(body.params)} values: the carried ones and those of its"
                " caller"
            )
        own = []
        for param in body.params[:carried]:
            own.append(Var(self._define(param.name, scope), self._exact(param, None, scope)))
        attrs["body"] = Ref(self._body(body, (*own, *values[carried:]), scope).name)

    def _body(self, function: Function, params: tuple[Var, ...], scope: Scope) -> Function:
        """A function that control flow runs, in which the sizes around it mean the same."""
        values = dict(zip((p.name for p in function.params), params, strict=True))
        stack = (*scope.stack, function.name)
        inner = Scope(self._constants() | values, dict(scope.sizes), scope.prefix, stack)
        self._calls(function, inner)
        results = tuple(self._own(result.name, inner) for result in function.results)
        name = self._branch_name(function.name)
        self.branches.append(Function(name, params, tuple(inner.body), results))
        return self.branches[-1]
