# SPDX-License-Identifier: Apache-2.0
"""The order of execution: kernels and externs, data-dependent sizes, branches and loops.

Graph functions are inlined here (their value names are unique in the module), views
disappear into their roots, and the results of a branch are written straight into the
results of its `if`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relax_aot.ir.dims import Dim
from relax_aot.ir.extern import Extern
from relax_aot.ir.graph import Call, Condition, Function, Loop, Module, Var, dim_attr
from relax_aot.ir.loops import Kernel
from relax_aot.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a kernel or extern. `args` and `outs` name storage roots, in its order.

    Of the outs, `updates` hold an operand before the step: they are read as well.
    """

    callee: Kernel | Extern
    args: tuple[str, ...]
    outs: tuple[str, ...]
    call: Call
    updates: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """That of its first result: no other step has it."""
        return self.call.outs[0].name


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """An inner symbol, and what it is worth in either branch."""

    symbol: str
    then: Dim
    otherwise: Dim


@dataclass(frozen=True, slots=True)
class Branch:
    """`if condition { then } else { otherwise }`."""

    condition: str
    sizes: tuple[SizeChoice, ...]
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    call: Call


@dataclass(frozen=True, slots=True)
class Define:
    """An inner symbol becomes an element of an integer value, if it lies in `low..most`."""

    symbol: str
    source: str
    element: int
    low: int
    most: Dim
    call: Call


@dataclass(frozen=True, slots=True)
class Check:
    """The run ends with a status where two sizes do not agree."""

    condition: Condition
    call: Call


@dataclass(frozen=True, slots=True)
class Transfer:
    """The bytes of one value are copied to another's place."""

    source: str
    target: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Repeat:
    """`for turn in 0..trips while condition { nodes; next; rows }`, after `first`."""

    loop: Loop
    first: tuple[Transfer, ...]
    nodes: tuple[Node, ...]
    following: tuple[Transfer, ...]
    """Carried values of the next iteration, to the places of the current ones."""
    rows: tuple[Transfer, ...]
    """Each goes to the row of its iteration in a result."""
    call: Call

    @property
    def condition(self) -> str | None:
        return self.first[0].target if self.loop.conditional else None

    @property
    def fallible(self) -> bool:
        """It can need more memory than was planned."""
        return self.loop.capped or bool(self.loop.sizes)


@dataclass(frozen=True, slots=True)
class End:
    """Where the text of a loop ends; only `walk_steps` makes it."""

    repeat: Repeat


Node = Step | Branch | Define | Check | Repeat


@dataclass(frozen=True, slots=True)
class Program:
    """What runs, in order. `roots` maps each value to the value whose bytes it shares;
    `values` holds every root that is neither a parameter nor a constant."""

    nodes: tuple[Node, ...]
    roots: dict[str, str]
    values: dict[str, Var]

    def root(self, name: str) -> str:
        while (up := self.roots.get(name, name)) != name:
            name = up
        return name


def program_of(module: Module) -> Program:
    """Inline functions, resolve views. Expects a lowered module."""
    roots: dict[str, str] = {}
    functions = [module.main, *(f for f in module.functions if f is not module.main)]
    for function in functions:
        for call in function.body:
            if call.op in ("view", "guard"):
                roots[call.out.name] = call.inputs[0].name
    _join_branches(module, roots)
    _join_loops(module, roots)
    for result in module.main.results:
        _promote(roots, result.name)

    program = Program((), roots, {})
    nodes = tuple(_nodes(module, module.main, program))
    made = (out for f in functions for c in f.body for out in c.outs)
    values = {out.name: out for out in made if program.root(out.name) == out.name}
    return Program(nodes, roots, values)


def _join_branches(module: Module, roots: dict[str, str]) -> None:
    """The storage of a branch's result is that of the result of its `if`; a parameter is
    the argument that it was given, whatever that is called by now."""
    for function in module.functions:
        for call in function.body:
            if call.op != "if":
                continue
            for side in ("then", "else"):
                function = module.function_table[call.ref(side)]
                for result, out in zip(function.results, call.outs, strict=True):
                    roots[_find(roots, result.name)] = out.name
                for param, arg in zip(function.params, call.inputs[1:], strict=True):
                    if param.name != arg.name:
                        roots[param.name] = arg.name


def _join_loops(module: Module, roots: dict[str, str]) -> None:
    """A carried value of the body lives where the result of the loop does."""
    for function in module.functions:
        for call in function.body:
            if call.op == "loop":
                loop = Loop.of(call)
                params = module.function_table[loop.body].params[: loop.carried]
                for param, out in zip(params, call.outs[: loop.carried], strict=True):
                    roots[param.name] = out.name


def _promote(roots: dict[str, str], result: str) -> None:
    """Make a function result the root of its own class: it lives in the caller's buffer."""
    root = _find(roots, result)
    if root != result:
        roots.pop(result, None)
        roots[root] = result


def _find(roots: dict[str, str], name: str) -> str:
    while name in roots:
        name = roots[name]
    return name


def _nodes(module: Module, function: Function, program: Program) -> Iterator[Node]:
    for call in function.body:
        if call.op in ("call_kernel", "call_extern", "guard"):
            args = tuple(program.root(v.name) for v in call.inputs)
            written = () if call.op == "guard" else call.outs
            outs = tuple(program.root(v.name) for v in written)
            yield Step(_callee(module, call), args, outs, call)
        elif call.op == "if":
            condition, *_ = call.inputs
            sides = [
                tuple(_nodes(module, module.function_table[call.ref(side)], program))
                for side in ("then", "else")
            ]
            yield Branch(program.root(condition.name), _sizes(call), sides[0], sides[1], call)
        elif call.op == "define":
            yield _define(call, program)
        elif call.op == "check":
            left, right = dim_attr(call.attr("left")), dim_attr(call.attr("right"))
            yield Check(Condition(str(call.attr("relation")), left, right, call.origin), call)
        elif call.op == "loop":
            yield _repeat(module, call, program)


def _define(call: Call, program: Program) -> Define:
    names, low, element = (call.attr(name) for name in ("defines", "low", "element"))
    assert isinstance(names, tuple) and isinstance(low, int) and isinstance(element, int)
    source = program.root(call.inputs[0].name)
    return Define(str(names[0]), source, element, low, dim_attr(call.attr("most")), call)


def _repeat(module: Module, call: Call, program: Program) -> Repeat:
    loop = Loop.of(call)
    body = module.function_table[loop.body]
    count = loop.carried
    outs, results, params = call.outs, body.results, body.params

    def to(source: Var, target: Var, type_: TensorType) -> Transfer:
        return Transfer(program.root(source.name), program.root(target.name), type_)

    pairs = list(zip(call.inputs[:count], outs[:count], params[:count], strict=True))
    first = dict(zip((row[0] for row in loop.sizes), (row[1] for row in loop.sizes), strict=True))
    return Repeat(
        loop,
        tuple(to(a, out, _at(param.type, first)) for a, out, param in pairs),
        tuple(_nodes(module, body, program)),
        tuple(to(r, out, r.type) for r, out in zip(results[:count], outs[:count], strict=True)),
        tuple(to(r, out, r.type) for r, out in zip(results[count:], outs[count:], strict=True)),
        call,
    )


def _at(type_: TensorType, sizes: dict[str, Dim]) -> TensorType:
    return TensorType(type_.dtype, tuple(size.substitute(sizes) for size in type_.shape))


def _callee(module: Module, call: Call) -> Kernel | Extern:
    if call.op != "call_extern":
        return module.kernel_table[call.ref("kernel")]
    return module.extern_table[call.ref("extern")]


def _sizes(call: Call) -> tuple[SizeChoice, ...]:
    names, then, otherwise = (call.attr(n) for n in ("defines", "then_sizes", "else_sizes"))
    assert isinstance(names, tuple) and isinstance(then, tuple) and isinstance(otherwise, tuple)
    return tuple(
        SizeChoice(str(name), dim_attr(a), dim_attr(b))
        for name, a, b in zip(names, then, otherwise, strict=True)
    )


def written_by(repeat: Repeat) -> tuple[str, ...]:
    """The places of a loop's results: those of carried values, those of rows."""
    carried = (transfer.target for transfer in repeat.first)
    return (*carried, *(transfer.target for transfer in repeat.rows))


def touched(node: Node | End) -> tuple[str, ...]:
    """Places that a node itself reads or writes."""
    match node:
        case Step():
            return node.args + node.outs
        case Branch():
            return (node.condition,)
        case Define():
            return (node.source,)
        case Check():
            return ()
        case Repeat():
            return (*(transfer.source for transfer in node.first), *written_by(node))
        case End():
            moved = (*node.repeat.following, *node.repeat.rows)
            return (*(transfer.source for transfer in moved), *written_by(node.repeat))


def walk_steps(nodes: tuple[Node, ...]) -> Iterator[Node | End]:
    """Every node in the order of the text, a branch or loop before what it holds."""
    for node in nodes:
        yield node
        if isinstance(node, Repeat):
            yield from walk_steps(node.nodes)
            yield End(node)
        if isinstance(node, Branch):
            yield from walk_steps(node.then)
            yield from walk_steps(node.otherwise)
