# SPDX-License-Identifier: Apache-2.0
"""The launches of a run on a GPU: the program of a plan as one straight list.

A run never waits for the GPU, so data-dependent values stay there. Both sides of a branch are
launched with a condition word each, of which one is 0; a loop is launched for its greatest number
of iterations, with a condition word too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relax_aot.emit.c_names import Names, comment
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.cuda_control import (
    ALWAYS,
    FIRST_WORD,
    MOST_WORDS,
    TOLD,
    Call,
    Controls,
    ControlView,
    control_text,
)
from relax_aot.emit.cuda_control import Given as Pointer
from relax_aot.emit.cuda_module import (
    DeviceLaunch,
    DeviceSource,
    Frame,
    Given,
    Note,
    Unit,
    device_sources,
)
from relax_aot.emit.interface import DimField, StatePart
from relax_aot.emit.kernels import call_text
from relax_aot.emit.lengths import bytes_before, first_c, first_row, header_c, row_sizes, slack_of
from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Dim, dim_min
from relax_aot.ir.graph import Growth
from relax_aot.ir.loops import Kernel
from relax_aot.ir.types import C_TYPES, TensorType
from relax_aot.planning import Plan, greatest_bytes
from relax_aot.planning.steps import (
    Branch,
    Check,
    Define,
    Node,
    Repeat,
    Step,
    Transfer,
    walk_steps,
)

MOST_LAUNCHES = 8192
SLIDE_THREADS = 256


class TooManyLaunches(RelaxAotError):
    """A loop with more iterations than a graph can have launches."""


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """The launches of a run in order, and words of its frame."""

    calls: tuple[Call, ...]
    results: Mapping[str, int]
    """The words of sizes from data, by symbol."""
    lengths: Mapping[str, int]
    """The words of the lengths of growing states after the last run that succeeded, by the names
    of the source."""
    firsts: Mapping[str, int]
    """The same of the first rows of windows."""
    launches: Mapping[str, tuple[DeviceLaunch, ...]]
    """Those of each kernel."""


def device_programs(
    contexts: Sequence[RunContext], name: str, taken: Sequence[str]
) -> tuple[tuple[DeviceProgram, ...], str]:
    """The runs of a model or of its entries, and the text of all functions. `taken` are names that
    no function may have. After a failure the runs behind it leave, whatever entry they are of."""
    fallible = any(_fallible(context.plan) for context in contexts)
    slots = [_Slots.of(context) for context in contexts]
    pairs = list(zip(contexts, slots, strict=True))
    units = [_unit(context, Frame(fallible, one.sizes)) for context, one in pairs]
    sources = device_sources(name, units, taken)
    functions = [one.c_name for each in sources for made in each.launches.values() for one in made]
    symbols = [c_name for context in contexts for c_name in context.symbols.values()]
    names = Names([*taken, *functions, *symbols])
    views: list[ControlView] = []
    programs = []
    for (context, own), unit, source in zip(pairs, units, sources, strict=True):
        controls = Controls(context.plan.module.bounds, context.symbols, own.sizes, names, views)
        writer = _Writer(context, source, controls, own)
        if unit.conditional:
            always = [f"frame[{ALWAYS}] = 1;"]
            writer.add(controls.call("begin", "conditions that always hold", always))
        writer.nodes(context.plan.program.nodes, ALWAYS if unit.conditional else None)
        writer.commits()
        writer.slides()
        writer.report()
        shown = {f.symbol.name: own.sizes[f.symbol.name] for f in context.interface.results}
        programs.append(
            DeviceProgram(tuple(writer.calls), shown, own.lengths, own.firsts, source.launches)
        )
    return tuple(programs), sources[0].text_with(control_text(views))


def _unit(context: RunContext, frame: Frame) -> Unit:
    """The kernels of a run; those inside of branches and loops are given a condition."""
    plan = context.plan
    nodes = plan.program.nodes
    inside = frozenset(
        step.callee.name
        for node in nodes
        if isinstance(node, Branch | Repeat)
        for step in walk_steps((node,))
        if isinstance(step, Step)
    )
    steps = [step for step in walk_steps(nodes) if isinstance(step, Step)]
    kernels = {step.callee.name: step.callee for step in steps if isinstance(step.callee, Kernel)}
    notes = {
        step.callee.name: Note(call_text(step.call), comment(step.call.origin or "the compiler"))
        for step in reversed(steps)
    }
    return Unit(tuple(kernels.values()), plan.module.bounds, frame, inside, notes)


def _fallible(plan: Plan) -> bool:
    return any(
        isinstance(node, Define | Check)
        or (isinstance(node, Repeat) and node.fallible)
        or (isinstance(node, Step) and node.callee.fallible)
        for node in walk_steps(plan.program.nodes)
    )


@dataclass(slots=True)
class _Slots:
    """Words of the frame: sizes from data by symbol, and conditions by the node they belong to."""

    sizes: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    firsts: dict[str, int] = field(default_factory=dict)
    """Of the first rows of windows."""
    nodes: dict[int, int] = field(default_factory=dict)
    """The first word of a branch or loop."""
    count: int = FIRST_WORD

    @classmethod
    def of(cls, context: RunContext) -> _Slots:
        slots = cls()
        for field_ in context.interface.all_lengths:
            slots.lengths[field_.source] = slots._more(1)
        for field_ in context.interface.windows:
            slots.firsts[field_.source] = slots._more(1)
        for node in walk_steps(context.plan.program.nodes):
            match node:
                case Define():
                    slots._size(node.symbol)
                case Branch():
                    slots.nodes[id(node)] = slots._more(2)
                    for size in node.sizes:
                        slots._size(size.symbol)
                case Repeat():
                    loop = node.loop
                    slots.nodes[id(node)] = slots._more(1 + len(loop.sizes))
                    for name in (loop.turn, *(row[0] for row in loop.sizes), loop.count):
                        if name:
                            slots._size(name)
                case _:
                    pass
        if slots.count > MOST_WORDS:
            raise TooManyLaunches(
                f"a run has {slots.count} data-dependent sizes and conditions; at most"
                f" {MOST_WORDS} are supported on a GPU"
            )
        return slots

    def _size(self, symbol: str) -> None:
        if symbol not in self.sizes:
            self.sizes[symbol] = self._more(1)

    def _more(self, words: int) -> int:
        first, self.count = self.count, self.count + words
        return first


@dataclass(slots=True)
class _Writer:
    """Appends launches in the order of the run. `condition` is a word of the frame."""

    context: RunContext
    source: DeviceSource
    controls: Controls
    slots: _Slots
    calls: list[Call] = field(default_factory=list)

    def add(self, call: Call) -> None:
        self.calls.append(call)
        if len(self.calls) > MOST_LAUNCHES:
            raise TooManyLaunches(
                f"a run needs more than {MOST_LAUNCHES} launches, since loops are launched for"
                " their greatest number of iterations; use a smaller bound (--bound), or a board"
                " without a GPU"
            )

    def nodes(self, nodes: tuple[Node, ...], condition: int | None) -> None:
        for node in nodes:
            match node:
                case Step():
                    self._step(node, condition)
                case Define():
                    self._define(node, condition)
                case Check():
                    self._check(node, condition)
                case Branch():
                    self._branch(node, condition)
                case Repeat():
                    self._repeat(node, condition)

    def _step(self, node: Step, condition: int | None) -> None:
        kernel = node.callee
        assert isinstance(kernel, Kernel)
        roots = (*node.args, *node.outs)
        places = {b.name: self._place(r) for b, r in zip(kernel.buffers, roots, strict=True)}
        for launch in self.source.launches[kernel.name]:
            words = []
            for one in launch.parameters:
                match one.given:
                    case Given.FRAME:
                        words.append("frame")
                    case Given.CONDITION:
                        words.append(f"RAOT_WORD({condition})")
                    case Given.BUFFER:
                        words.append(places[one.name])
                    case Given.SIZE:
                        words.append(f"RAOT_WORD({self.context.symbols[one.name]})")
            grid = self.context.dim(self._known(launch.grid))
            self.add(Call(launch.c_name, grid, launch.threads, tuple(words), node.call.origin))

    def _known(self, dim: Dim) -> Dim:
        """An upper bound over sizes that the host knows."""
        return self.context.greatest(dim) if dim.symbols & self.slots.sizes.keys() else dim

    def _place(self, root: str) -> str:
        before = self._before(root)
        return self.context.values[root] + (f" + {before}" if before else "")

    def _before(self, root: str) -> str:
        """The bytes in front of the first row of a window, in C of the host."""
        for part in self.context.interface.states:
            if part.input == root and first_row(self.context, part):
                return on_device(bytes_before(self.context, part))
        return ""

    def _type(self, root: str) -> TensorType:
        plan = self.context.plan
        known = {p.name: p.type for p in plan.module.main.params}
        known |= {c.name: c.type for c in plan.module.constants}
        return known[root] if root in known else plan.program.values[root].type

    def _pointer(self, name: str, root: str) -> Pointer:
        type_ = C_TYPES[self._type(root).dtype]
        return Pointer(f"const {type_}", name, self._place(root))

    def _define(self, node: Define, condition: int | None) -> None:
        type_ = C_TYPES[self._type(node.source).dtype]
        lines = [
            f"const {type_} value = source[{node.element}];",
            f"if (value < {node.low}) {{",
            "    frame[0] = RAOT_ERR_SIZE;",
            f"}} else if (value > {self.controls.dim(node.most)}) {{",
            "    frame[0] = RAOT_ERR_CAPACITY;",
            "} else {",
            f"    frame[{self.slots.sizes[node.symbol]}] = (int32_t)value;",
            "}",
        ]
        pointers = [self._pointer("source", node.source)]
        note = f"the size {node.symbol}"
        self.add(
            self.controls.call("size", note, lines, [node.most], pointers, condition=condition)
        )

    def _check(self, node: Check, condition: int | None) -> None:
        left, right = node.condition.left, node.condition.right
        failing = "!=" if node.condition.relation == "==" else ">"
        lines = [
            f"if ({self.controls.dim(left)} {failing} {self.controls.dim(right)}) {{",
            "    frame[0] = RAOT_ERR_MISMATCH;",
            "}",
        ]
        note = f"{node.condition}: {node.call.origin}"
        self.add(self.controls.call("check", note, lines, [left, right], condition=condition))

    def _branch(self, node: Branch, condition: int | None) -> None:
        word = self.slots.nodes[id(node)]
        lines = [
            "const int32_t open = frame[outer];",
            f"frame[{word}] = open != 0 && *flag != 0 ? 1 : 0;",
            f"frame[{word + 1}] = open != 0 && *flag == 0 ? 1 : 0;",
        ]
        outer = {"outer": str(condition)}
        flag = [self._pointer("flag", node.condition)]
        self.add(
            self.controls.call("choose", "which side of a branch runs", lines, (), flag, outer)
        )
        for number, nodes in enumerate((node.then, node.otherwise)):
            self.nodes(nodes, word + number)
            sizes = {s.symbol: s.otherwise if number else s.then for s in node.sizes}
            if sizes:
                lines = [
                    f"frame[{self.slots.sizes[name]}] = {self.controls.dim(dim)};"
                    for name, dim in sizes.items()
                ]
                note = "sizes of a side of a branch"
                self.add(
                    self.controls.call(
                        "sizes", note, lines, sizes.values(), condition=word + number
                    )
                )

    def _repeat(self, node: Repeat, condition: int | None) -> None:
        word, loop = self.slots.nodes[id(node)], node.loop
        for transfer in node.first:
            self._moved(transfer, condition)
        first = {name: (one, most) for name, one, _, most in loop.sizes}
        lines = list(self._fitting(first, [self.slots.sizes[name] for name in first]))
        lines += [f"frame[{self.slots.sizes[loop.count]}] = 0;"] if loop.count else []
        dims = [dim for pair in first.values() for dim in pair]
        self.add(
            self.controls.call(
                "enter", "a loop begins", [f"frame[{word}] = 1;", *lines], dims,
                condition=condition,
            )
        )  # fmt: skip
        trips = self.context.greatest(loop.trips)
        most = max(greatest_bytes(trips, self.context.plan.module), 0)
        for turn in range(most):
            self._iteration(node, turn, condition)
        if loop.capped and node.condition is not None:
            lines = [
                f"if (frame[{word}] != 0 && *flag != 0) {{",
                "    frame[0] = RAOT_ERR_CAPACITY;",
                "}",
            ]
            flag = [self._pointer("flag", node.condition)]
            note = "a loop that goes on has no more memory"
            self.add(self.controls.call("capped", note, lines, (), flag, condition=condition))

    def _iteration(self, node: Repeat, turn: int, condition: int | None) -> None:
        word, loop = self.slots.nodes[id(node)], node.loop
        pointers = [] if node.condition is None else [self._pointer("flag", node.condition)]
        going = f"frame[{word}] != 0 && frame[outer] != 0 && turn < {self.controls.dim(loop.trips)}"
        going += " && *flag != 0" if pointers else ""
        lines = [
            f"frame[{word}] = {going} ? 1 : 0;",
            f"frame[{self.slots.sizes[loop.turn]}] = turn;",
        ]
        numbers = {"outer": str(condition), "turn": str(turn)}
        note = "whether another iteration follows"
        self.add(self.controls.call("follow", note, lines, [loop.trips], pointers, numbers))
        self.nodes(node.nodes, word)
        for transfer in node.rows:
            at = Dim.of(loop.turn) * transfer.type.bytes
            self._moved(transfer, word, at)
        later = {name: (next_, most) for name, _, next_, most in loop.sizes}
        kept = [word + 1 + number for number in range(len(later))]
        if later:
            dims = [dim for pair in later.values() for dim in pair]
            lines = list(self._fitting(later, kept))
            self.add(self.controls.call("grow", "sizes of the next iteration", lines, dims,
                                        condition=word))  # fmt: skip
        for transfer in node.following:
            self._moved(transfer, word)
        lines = [
            f"frame[{self.slots.sizes[name]}] = frame[{slot}];"
            for name, slot in zip(later, kept, strict=True)
        ]
        if loop.count:
            lines.append(f"frame[{self.slots.sizes[loop.count]}] = turn + 1;")
        if lines:
            self.add(
                self.controls.call(
                    "leave", "an iteration ends", lines, (), (),
                    {"turn": str(turn)} if loop.count else {}, condition=word,
                )
            )  # fmt: skip

    def _fitting(self, sizes: Mapping[str, tuple[Dim, Dim]], words: Sequence[int]) -> Iterator[str]:
        """Statements that set words to sizes, if all are at most what they may be."""
        for number, (size, most) in enumerate(sizes.values()):
            yield f"const int32_t size{number} = {self.controls.dim(size)};"
            yield f"if (size{number} > {self.controls.dim(most)}) {{"
            yield "    frame[0] = RAOT_ERR_CAPACITY;"
            yield "}"
        for number, word in enumerate(words):
            yield f"frame[{word}] = size{number};"

    def _moved(self, transfer: Transfer, condition: int | None, offset: Dim | None = None) -> None:
        source, target = self._place(transfer.source), self._place(transfer.target)
        if source != target or offset is not None:
            self._copied(source, target, transfer.type.bytes, condition, offset)

    def _copied(
        self,
        source: str,
        target: str,
        size: Dim,
        condition: int | None = None,
        offset: Dim | None = None,
        before: str = "",
    ) -> None:
        most = greatest_bytes(self.context.greatest(size), self.context.plan.module)
        if most > 0:
            self.add(self.controls.copy(source, target, size, most, condition, offset, before))

    def commits(self) -> None:
        """What is staged goes to its place: nothing can fail any more."""
        plan = self.context.plan
        ports = {p.name: f"at->out_{p.c_name}" for p in self.context.interface.outputs}
        for commit in plan.commits:
            target = ports.get(commit.target) or self._place(commit.target)
            size = plan.program.values[commit.source].type.bytes
            before = self._before(commit.target)
            self._copied(self._place(commit.source), target, size, before=before)

    def slides(self) -> None:
        """Windows whose rows have to move: the blocks of the GPU move one block of rows each, from
        the first to the last."""
        for field_ in self.context.interface.lengths:
            growth = field_.symbol.growth
            if growth is None or not growth.is_window or self._slid(field_) is None:
                continue
            for part in self.context.interface.states:
                if part.length == field_.symbol.name:
                    self._slide(field_, growth, part)

    def _slid(self, field_: DimField) -> _Slid | None:
        """What a run leaves of a window, in C of the host; nothing where it keeps its rows."""
        growth = field_.symbol.growth
        assert growth is not None
        if growth.after == Dim.of(field_.symbol.name):
            return None
        total, kept = f"({self.context.dim(growth.after)})", growth.capacity
        place = on_device(first_c(self.context.interface, field_))
        first = f"{place} + raot_max_i32({total} - {kept}, 0)"
        return _Slid(first, f"raot_min_i32({total}, {kept})", slack_of(self.context, field_))

    def _slide(self, field_: DimField, growth: Growth, part: StatePart) -> None:
        slid = self._slid(field_)
        assert slid is not None
        blocks, row = row_sizes(part)
        type_ = "uint32_t" if row % 4 == 0 else "uint8_t"
        bytes_ = self.controls.dim(row)
        lines = [
            f"const int64_t row = ({bytes_}) / (int32_t)sizeof({type_});",
            f"if (first <= {slid.slack}) {{",
            "    return;",
            "}",
            f"{type_} *const start = state + blockIdx.x * {growth.places} * row;",
            "const int64_t count = rows * row, distance = first * row;",
            f"for (int64_t at = 0; at < count; at += {SLIDE_THREADS}) {{",
            "    const int64_t i = at + (int64_t)threadIdx.x;",
            f"    const {type_} moved = i < count ? start[distance + i] : ({type_})0;",
            "    __syncthreads();",
            "    if (i < count) {",
            "        start[i] = moved;",
            "    }",
            "    __syncthreads();",
            "}",
        ]
        state = Pointer(type_, "state", f"state + {part.macro}")
        numbers = {"first": slid.first, "rows": slid.rows}
        note = f"the rows of a window begin at row 0 again: {field_.source}"
        self.add(
            self.controls.call(
                "slide", note, lines, [row], [state], numbers, grid=self.context.dim(blocks),
                threads=SLIDE_THREADS,
            )
        )  # fmt: skip

    def report(self) -> None:
        """The last launch: the words reach the host, and lengths are those of the last run that
        succeeded."""
        count = self.slots.count
        interface = self.context.interface
        lengths = [self._length(field_) for field_ in interface.all_lengths]
        lengths += [self._first(field_) for field_ in interface.windows]
        lines: list[str] = []
        if lengths:
            lines.append("if (threadIdx.x == 0 && frame[0] == 0) {")
            lines += [f"    frame[{one.word}] = {one.after};" for one in lengths]
            lines.append(f"}} else if (threadIdx.x == 0 && frame[{TOLD}] == 0) {{")
            lines.append(f"    frame[{TOLD}] = 1;")
            lines += [f"    frame[{one.word}] = {one.before};" for one in lengths]
            lines += ["}", "__syncthreads();"]
        lines += [
            f"for (int32_t i = (int32_t)threadIdx.x; i < {count}; i += 32) {{",
            "    words[i] = frame[i];",
            "}",
        ]
        words = [Pointer("int32_t", "words", "device->cuda.host_address")]
        dims = [dim for one in lengths for dim in one.dims]
        numbers = {name: value for one in lengths for name, value in one.numbers.items()}
        self.add(
            self.controls.call(
                "report", "the words of the frame reach the host", lines, dims, words, numbers,
                always=True, threads=32,
            )
        )  # fmt: skip

    def _own(self, field_: DimField) -> DimField | None:
        """The length as this run has it; nothing where it does not use it."""
        lengths = self.context.interface.lengths
        return next((own for own in lengths if own.source == field_.source), None)

    def _length(self, field_: DimField) -> _Length:
        """A length that the run does not use stays as the host has it."""
        word, own = self.slots.lengths[field_.source], self._own(field_)
        if own is None:
            name = f"rows{word}"
            held = on_device(header_c(self.context.interface, field_))
            return _Length(word, name, name, (), {name: held})
        growth = own.symbol.growth
        assert growth is not None
        left = dim_min(growth.after, growth.capacity) if growth.is_window else growth.after
        dims = (left, Dim.of(own.symbol.name))
        after, before = map(self.controls.dim, dims)
        return _Length(word, before, after, dims, {})

    def _first(self, field_: DimField) -> _Length:
        """The first row of a window."""
        word, own = self.slots.firsts[field_.source], self._own(field_)
        slid = None if own is None else self._slid(own)
        name, place = f"first{word}", on_device(first_c(self.context.interface, field_))
        if slid is None:
            return _Length(word, name, name, (), {name: place})
        moved = f"{name}_after > {slid.slack} ? 0 : {name}_after"
        return _Length(word, name, moved, (), {name: place, f"{name}_after": slid.first})


def on_device(header: str) -> str:
    """A word of the header, where the block of the host is a variable."""
    return header.replace("((const int32_t *)memory->device)", "device->header")


@dataclass(frozen=True, slots=True)
class _Slid:
    """The first row and the number of rows behind a run, in C of the host; the rows move where the
    first is greater than `slack`."""

    first: str
    rows: str
    slack: int


@dataclass(frozen=True, slots=True)
class _Length:
    """The rows of a growing state before and after a run, as a control function has them."""

    word: int
    before: str
    after: str
    dims: tuple[Dim, ...]
    numbers: Mapping[str, str]
