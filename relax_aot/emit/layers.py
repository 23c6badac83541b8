# SPDX-License-Identifier: Apache-2.0
"""Repeated layers: kernels that run again right behind each other, with other weights, are one C
function, which is called once for each layer.

The function is given what differs between its calls: weights, values, states, sizes, numbers.
Values with the same place in the arena in every call are not given: the arena is its frame.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from relax_aot.emit.arenas import SlotView, slot_views
from relax_aot.emit.c_names import LOCALS, Names, comment
from relax_aot.emit.contexts import Layer, LayerCall, Place, RunContext
from relax_aot.emit.kernel_call import Argument, KernelCall, Kind, kernel_call, table
from relax_aot.emit.periods import Run, periodic_runs
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Kernel
from relax_aot.planning import Home, Plan
from relax_aot.planning.steps import Branch, Node, Repeat, Step, touched, walk_steps

FUNCTIONS = ("auto", "inline")
"""Whether repeated layers are functions, where that makes the C smaller."""

LEAST = 3
"""Layers of which a function is made."""
LEAST_SAVED = 40
"""Arguments and calls: each takes about 2 bytes of code on a Cortex-M4, a further function 40."""
MOST_PARAMETERS = 100
"""C11 promises 127 parameters of a function (5.2.4.1)."""


@dataclass(frozen=True, slots=True)
class _Text:
    """An argument that stands in the function as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A place of the arena that all calls have in common, by the value that the first has there."""

    root: str


@dataclass(frozen=True, slots=True)
class _Given:
    """A parameter: its text in each call, and its type if it is no pointer."""

    texts: tuple[str, ...]
    type: str = ""


_Source = _Text | _Place | _Given
_Position = tuple[int, int]
"""The number of a step in a layer, and of an argument of its kernel."""


@dataclass(frozen=True)
class _Draft:
    """A possible function: the kernels of each of its calls, and where arguments come from."""

    start: int
    steps: tuple[tuple[Step, ...], ...]
    """Of each call."""
    calls: tuple[tuple[KernelCall, ...], ...]
    sources: Mapping[_Position, _Source]

    @property
    def stop(self) -> int:
        return self.start + sum(map(len, self.steps))

    @property
    def fallible(self) -> bool:
        return any(call.fallible for call in self.calls[0])

    @cached_property
    def given(self) -> tuple[_Given, ...]:
        """The parameters, sizes first."""
        found = dict.fromkeys(one for one in self.sources.values() if isinstance(one, _Given))
        return tuple(sorted(found, key=lambda one: self.first[one].kind is not Kind.SIZE))

    @property
    def sizes(self) -> int:
        """How many of the parameters are sizes."""
        return sum(self.first[one].kind is Kind.SIZE for one in self.given)

    @cached_property
    def first(self) -> dict[_Source, Argument]:
        """An argument of the first call with each source; of pointers one to what is written,
        where there is one."""
        found: dict[_Source, Argument] = {}
        for position, source in self.sources.items():
            argument = self.argument(0, position)
            known = found.setdefault(source, argument)
            if known.type.startswith("const "):
                found[source] = replace(known, type=argument.type)
        return found

    def argument(self, call: int, position: _Position) -> Argument:
        step, number = position
        return self.calls[call][step].arguments[number]

    @property
    def is_worth_it(self) -> bool:
        """So many fewer arguments and calls stand in the C that its code is smaller."""
        body = len(self.calls[0]) + len(self.sources)
        each = len(self.given) + 2
        saved = len(self.calls) * (body - each) - body
        return each <= MOST_PARAMETERS and saved >= LEAST_SAVED


def with_layers(contexts: Sequence[RunContext], foreign: frozenset[str]) -> tuple[RunContext, ...]:
    """The same, with the repeated layers of each program. `foreign` are names that headers of
    externs declare. A run that returns between kernels calls each by itself."""
    taken = {*foreign}
    for context in contexts:
        homes = context.plan.homes
        taken |= {text.c_name for text in context.kernels.values()}
        taken |= {text for n, text in context.values.items() if homes.get(n) is Home.CONSTANT}
        taken |= {*context.interface.own_functions}
    names = Names(taken, reserved=())
    return tuple(
        context if context.interface.stepwise else _Finder(context, names, frozenset(taken)).found()
        for context in contexts
    )


class _Finder:
    """Finds the layers of one program, and writes their functions."""

    def __init__(self, context: RunContext, names: Names, taken: frozenset[str]) -> None:
        self.context, self.names, self.taken = context, names, taken
        self.places = _places(context.plan)
        views = zip(context.plan.slots, slot_views(context), strict=True)
        self.slots = {slot.var.name: view for slot, view in views}
        self.drafts: list[_Draft] = []

    def found(self) -> RunContext:
        self._search(self.context.plan.program.nodes)
        calls: dict[str, LayerCall] = {}
        for draft in self.drafts:
            calls |= self._calls(draft)
        merged = _merged(self.context.plan, self.places, self.drafts)
        return replace(self.context, layers=calls, merged=merged)

    def _search(self, nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            match node:
                case Branch():
                    self._search(node.then)
                    self._search(node.otherwise)
                case Repeat():
                    self._search(node.nodes)
        self._take(nodes)

    def _take(self, nodes: tuple[Node, ...]) -> None:
        """The best run that is worth a function, then those in front of it and behind."""
        for run in periodic_runs([self._key(node) for node in nodes], LEAST):
            phases = range(run.length % run.period + 1)
            # A first layer often differs, as it reads the input: what is left over comes first.
            drafts = [self._draft(nodes, run, phase) for phase in reversed(phases)]
            best = min(drafts, key=lambda draft: len(draft.given))
            if best.is_worth_it:
                self._take(nodes[: best.start])
                self.drafts.append(best)
                self._take(nodes[best.stop :])
                return

    def _key(self, node: Node) -> Hashable | None:
        if not isinstance(node, Step) or not isinstance(node.callee, Kernel):
            return None
        return self.context.kernels[node.callee.name].c_name

    def _draft(self, nodes: tuple[Node, ...], run: Run, phase: int) -> _Draft:
        start = run.start + phase
        firsts = range(start, run.stop - run.period + 1, run.period)
        steps = tuple(
            tuple(n for n in nodes[first : first + run.period] if isinstance(n, Step))
            for first in firsts
        )
        calls = tuple(tuple(kernel_call(self.context, s) for s in layer) for layer in steps)
        sources = {
            (step, number): self._source([one[step].arguments[number] for one in calls])
            for step, call in enumerate(calls[0])
            for number in range(len(call.arguments))
        }
        return _Draft(start, steps, calls, sources)

    def _source(self, column: Sequence[Argument]) -> _Source:
        """Where the function takes an argument from; `column` has that of each call."""
        context, first = self.context, column[0]
        texts = tuple(argument.text for argument in column)
        same = len(set(texts)) == 1
        if first.kind is Kind.POINTER:
            constant = context.plan.homes.get(first.root) is Home.CONSTANT
            if same and constant and not context.interface.weights_apart:
                return _Text(first.text)
            places = {self.places.get(argument.root) for argument in column}
            if len(places) == 1 and None not in places and not context.plan.dynamic:
                return _Place(first.root)
            return _Given(texts)
        return (
            _Text(first.text) if first.kind is Kind.NUMBER and same else _Given(texts, first.type)
        )

    def _calls(self, draft: _Draft) -> dict[str, LayerCall]:
        """By the name of the first step of each layer."""
        roots = (s.root for s in draft.sources.values() if isinstance(s, _Place))
        arenas = tuple(dict.fromkeys(self.slots[root].arena for root in roots))
        layer, names = self._layer(draft, arenas)
        calls = {}
        for number, (first, *_) in enumerate(draft.steps):
            tables: list[str] = []
            texts: list[str] = []
            for given in draft.given:
                text = given.texts[number]
                if text.startswith("{"):
                    tables += table(given.type, names[given], text)
                    text = f"&{names[given]}"
                texts.append(text)
            texts[draft.sizes : draft.sizes] = [f"memory->{arena}" for arena in arenas]
            length = len(draft.steps[0])
            calls[first.name] = LayerCall(layer, length, tuple(texts), tuple(tables))
        return calls

    def _layer(self, draft: _Draft, arenas: tuple[str, ...]) -> tuple[Layer, dict[_Source, str]]:
        """The function, and the C of each source in it."""
        own = {*self.context.symbols.values(), *arenas}
        scope = Names({*self.taken, *own, "team"}, reserved=LOCALS)
        names: dict[_Source, str] = {}
        places: list[Place] = []
        for source, argument in draft.first.items():
            match source:
                case _Text():
                    names[source] = source.text
                case _Place():
                    view = self.slots[source.root]
                    names[source] = name = scope.claim(view.c_name)
                    places.append(Place(f"{view.c_type} *const {name}", _address(view), view.note))
                case _Given():
                    names[source] = _parameter(source, argument, scope)
        typed = [(draft.first[given].type, names[given]) for given in draft.given]
        typed[draft.sizes : draft.sizes] = [("void *", arena) for arena in arenas]
        texts = [
            (call, [names[draft.sources[step, n]] for n in range(len(call.arguments))])
            for step, call in enumerate(draft.calls[0])
        ]
        origins = dict.fromkeys(step.call.origin for step in draft.steps[0] if step.call.origin)
        layer = Layer(
            self.names.claim(f"{self.context.interface.name}_layer"),
            ", ".join(f"{type_}{'' if type_[-1] == '*' else ' '}{n}" for type_, n in typed),
            tuple(places),
            tuple(line for call, given in texts for line in call.lines(given, "")),
            draft.fallible,
            tuple(tuple(call.layer for call in calls) for calls in draft.calls),
            comment(", ".join(origins)),
        )
        return layer, names


def _merged(plan: Plan, places: Mapping[str, int], drafts: Sequence[_Draft]) -> dict[str, str]:
    """Slots that only later calls of layers have, by name, and the first one at the place."""
    named = _named(plan, drafts)
    first: dict[tuple[int, Dim], str] = {}
    merged: dict[str, str] = {}
    for slot in plan.slots:
        name = slot.var.name
        one = first.setdefault((places[name], slot.bytes), name)
        if one != name and name not in named:
            merged[name] = one
    return merged


def _named(plan: Plan, drafts: Sequence[_Draft]) -> set[str]:
    """Roots that the run speaks of, or the function of a layer."""
    named = {commit.source for commit in plan.commits}
    inside: set[str] = set()
    for draft in drafts:
        inside |= {step.name for layer in draft.steps for step in layer}
        for position, source in draft.sources.items():
            if isinstance(source, _Place):
                named.add(source.root)
            else:
                named |= {draft.argument(n, position).root for n in range(len(draft.calls))}
    for node in walk_steps(plan.program.nodes):
        if not (isinstance(node, Step) and node.name in inside):
            named |= {*touched(node)}
    return named


def _parameter(given: _Given, argument: Argument, scope: Names) -> str:
    if argument.kind is Kind.TEAM:
        return "team"
    if argument.kind is Kind.SIZE and len(set(given.texts)) == 1:
        return given.texts[0]
    return scope.claim(argument.name)


def _address(slot: SlotView) -> str:
    return f"raot_at({slot.arena}, {slot.place})"


def _places(plan: Plan) -> dict[str, int]:
    """Numbers of places in the arenas: slots of one number have one offset, for all sizes."""
    numbers: dict[Hashable, int] = {}
    found: dict[str, int] = {}
    sizes: dict[str, Dim] = {slot.var.name: slot.bytes for slot in plan.slots}
    for slot in plan.slots:
        formula = frozenset((found[name], sizes[name]) for name in slot.below)
        found[slot.var.name] = numbers.setdefault((slot.region, formula), len(numbers))
    return found


def layers_of(context: RunContext) -> Iterator[Layer]:
    """The functions, each once."""
    yield from dict.fromkeys(call.layer for call in context.layers.values())
