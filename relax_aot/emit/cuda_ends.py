# SPDX-License-Identifier: Apache-2.0
"""The last launches of a run on a GPU: states, the rows of windows, and the words of its frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.emit.cuda_control import TOLD
from relax_aot.emit.cuda_control import Given as Pointer
from relax_aot.emit.cuda_launcher import Launcher, on_device
from relax_aot.emit.interface import DimField, StatePart
from relax_aot.emit.lengths import first_c, header_c, row_sizes, slack_of
from relax_aot.ir.dims import Dim, dim_min
from relax_aot.ir.graph import Growth

SLIDE_THREADS = 256


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


def write_commits(w: Launcher) -> None:
    """What is staged goes to its place: nothing can fail any more."""
    plan = w.context.plan
    ports = {p.name: f"at->out_{p.c_name}" for p in w.context.interface.outputs}
    for commit in plan.commits:
        target = ports.get(commit.target) or w.place(commit.target)
        size = plan.program.values[commit.source].type.bytes
        before = w.before(commit.target)
        w.copied(w.place(commit.source), target, size, before=before)


def write_slides(w: Launcher) -> None:
    """Windows whose rows have to move: the blocks of the GPU move one block of rows each, from
    the first to the last."""
    for field_ in w.context.interface.lengths:
        growth = field_.symbol.growth
        if growth is None or not growth.is_window or _slid(w, field_) is None:
            continue
        for part in w.context.interface.states:
            if part.length == field_.symbol.name:
                _slide(w, field_, growth, part)


def _slid(w: Launcher, field_: DimField) -> _Slid | None:
    """What a run leaves of a window, in C of the host; nothing where it keeps its rows."""
    growth = field_.symbol.growth
    assert growth is not None
    if growth.after == Dim.of(field_.symbol.name):
        return None
    total, kept = f"({w.context.dim(growth.after)})", growth.capacity
    place = on_device(first_c(w.context.interface, field_))
    first = f"{place} + raot_max_i32({total} - {kept}, 0)"
    return _Slid(first, f"raot_min_i32({total}, {kept})", slack_of(w.context, field_))


def _slide(w: Launcher, field_: DimField, growth: Growth, part: StatePart) -> None:
    slid = _slid(w, field_)
    assert slid is not None
    blocks, row = row_sizes(part)
    type_ = "uint32_t" if row % 4 == 0 else "uint8_t"
    bytes_ = w.controls.dim(row)
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
    w.add(
        w.controls.call(
            "slide", note, lines, [row], [state], numbers, grid=w.context.dim(blocks),
            threads=SLIDE_THREADS,
        )
    )  # fmt: skip


def write_report(w: Launcher) -> None:
    """The last launch: the words reach the host, and lengths are those of the last run that
    succeeded."""
    count = w.slots.count
    interface = w.context.interface
    lengths = [_length(w, field_) for field_ in interface.all_lengths]
    lengths += [_first(w, field_) for field_ in interface.windows]
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
    w.add(
        w.controls.call(
            "report", "the words of the frame reach the host", lines, dims, words, numbers,
            always=True, threads=32,
        )
    )  # fmt: skip


def _own(w: Launcher, field_: DimField) -> DimField | None:
    """The length as this run has it; nothing where it does not use it."""
    lengths = w.context.interface.lengths
    return next((own for own in lengths if own.source == field_.source), None)


def _length(w: Launcher, field_: DimField) -> _Length:
    """A length that the run does not use stays as the host has it."""
    word, own = w.slots.lengths[field_.source], _own(w, field_)
    if own is None:
        name = f"rows{word}"
        held = on_device(header_c(w.context.interface, field_))
        return _Length(word, name, name, (), {name: held})
    growth = own.symbol.growth
    assert growth is not None
    left = dim_min(growth.after, growth.capacity) if growth.is_window else growth.after
    dims = (left, Dim.of(own.symbol.name))
    after, before = map(w.controls.dim, dims)
    return _Length(word, before, after, dims, {})


def _first(w: Launcher, field_: DimField) -> _Length:
    """The first row of a window."""
    word, own = w.slots.firsts[field_.source], _own(w, field_)
    slid = None if own is None else _slid(w, own)
    name, place = f"first{word}", on_device(first_c(w.context.interface, field_))
    if slid is None:
        return _Length(word, name, name, (), {name: place})
    moved = f"{name}_after > {slid.slack} ? 0 : {name}_after"
    return _Length(word, name, moved, (), {name: place, f"{name}_after": slid.first})
