# SPDX-License-Identifier: Apache-2.0
"""Small functions of a GPU that steer a run: sizes from data, conditions, copies, the report.

They are one text with the kernels (cuda_module.py). What they decide stays on the GPU as words of
the frame, so that a run waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from relax_aot.emit.c_dims import dim_c
from relax_aot.emit.c_names import Names, comment
from relax_aot.emit.render import render
from relax_aot.ir.dims import Bounds, Dim

STATUS, TOLD, ALWAYS = 0, 1, 2
"""Words of the frame: the status; whether the lengths of states are those before the run that
failed; a condition that always holds."""
FIRST_WORD = 3
MOST_WORDS = 1024
_COPY_THREADS = 256
_COPY_BLOCKS = 64
_LOCALS = (
    "frame", "condition", "outer", "turn", "source", "target", "flag", "words", "value", "open",
    "to", "bytes", "first", "step", "i", "threadIdx", "blockIdx", "blockDim", "gridDim",
    "start", "state", "row", "rows", "count", "distance", "at", "moved",
    *(f"{stem}{number}" for stem in ("size", "rows", "first") for number in range(MOST_WORDS)),
)  # fmt: skip
"""What control functions call their own: sizes of the model have other names there."""


@dataclass(frozen=True, slots=True)
class Call:
    """One launch of a run: a function of the GPU, and C expressions of its grid and parameters."""

    function: str
    grid: str
    threads: int
    words: tuple[str, ...]
    note: str
    product: int | None = None
    """The product of a library in whose place it stands, by number."""
    dynamic_bytes: int = 0
    """Of shared memory that it asks for."""


@dataclass(frozen=True, slots=True)
class Given:
    """A pointer that a control function is given: its C type, its name there, and the address."""

    type: str
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class ControlView:
    """A function that steers a run."""

    name: str
    note: str
    threads: int
    parameters: str
    lines: tuple[str, ...]

    @property
    def text(self) -> tuple[int, str, tuple[str, ...]]:
        """Equal where one function serves two launches."""
        return self.threads, self.parameters, self.lines

    @property
    def signature(self) -> str:
        head = f'extern "C" __global__ void __launch_bounds__({self.threads})'
        return f"{head} {self.name}{self.parameters}"


def control_text(views: Sequence[ControlView]) -> str:
    return render("cuda/control.cu.j2", functions=views) if views else ""


@dataclass
class Controls:
    """Adds functions of one run to `views`, those of all. `slots` are the words of sizes from
    data, `symbols` C names on the host."""

    bounds: Bounds
    symbols: Mapping[str, str]
    slots: Mapping[str, int]
    claimed: Names
    views: list[ControlView]
    own: Mapping[str, str] = field(init=False)
    """The names of sizes in control functions."""

    def __post_init__(self) -> None:
        names = Names(_LOCALS)
        self.own = {name: names.claim(c_name) for name, c_name in self.symbols.items()}

    def dim(self, dim: Dim) -> str:
        return dim_c(dim, self.own, self.bounds.lows)

    def call(
        self,
        stem: str,
        note: str,
        lines: Sequence[str],
        dims: Iterable[Dim] = (),
        pointers: Sequence[Given] = (),
        numbers: Mapping[str, str] | None = None,
        condition: int | None = None,
        *,
        always: bool = False,
        grid: int | str = 1,
        threads: int = 1,
    ) -> Call:
        """A launch of the function with these statements, which speak of `dims`. With `condition`,
        a word of the frame, they run where it is not 0; with `always` also after a failure.
        `numbers` are further parameters, with C expressions of their values."""
        used = sorted(set[str]().union(*(dim.symbols for dim in dims)))
        given = {self.own[name]: self.symbols[name] for name in used if name not in self.slots}
        given |= numbers or {}
        parameters = ["int32_t *frame"]
        parameters += [f"{one.type} *{one.name}" for one in pointers]
        words = ["frame", *(one.address for one in pointers)]
        body = [] if always else ["if (frame[0] != 0) {", "    return;", "}"]
        if condition is not None:
            parameters.append("int32_t condition")
            words.append(f"RAOT_WORD({condition})")
            body += ["if (frame[condition] == 0) {", "    return;", "}"]
        parameters += [f"int32_t {name}" for name in given]
        words += [f"RAOT_WORD({value})" for value in given.values()]
        body += [
            f"const int32_t {self.own[name]} = frame[{self.slots[name]}];"
            for name in used
            if name in self.slots
        ]
        text = (threads, f"({', '.join(parameters)})", (*body, *lines))
        name = next((view.name for view in self.views if view.text == text), None)
        if name is None:
            name = self.claimed.claim(stem)
            self.views.append(ControlView(name, comment(note), *text))
        return Call(name, str(grid), threads, tuple(words), note)

    def copy(
        self,
        source: str,
        target: str,
        size: Dim,
        most: int,
        condition: int | None,
        offset: Dim | None = None,
        before: str = "",
    ) -> Call:
        """`size` bytes, at most `most`, to `offset` bytes behind `target`; less so many bytes as
        the host says with `before`."""
        lines = [
            f"uint8_t *const to = target + {self.dim(offset)};" if offset is not None
            else "uint8_t *const to = target;",
            f"const int32_t bytes = {self.dim(size)}{' - before' if before else ''};",
            "const int32_t first = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);",
            "const int32_t step = (int32_t)(gridDim.x * blockDim.x);",
            "const int32_t words = ((uint64_t)source | (uint64_t)to) % 4 == 0 ? bytes / 4 : 0;",
            "for (int32_t i = first; i < words; i += step) {",
            "    ((uint32_t *)to)[i] = ((const uint32_t *)source)[i];",
            "}",
            "for (int32_t i = 4 * words + first; i < bytes; i += step) {",
            "    to[i] = source[i];",
            "}",
        ]  # fmt: skip
        blocks = min(max(-(-most // (4 * _COPY_THREADS)), 1), _COPY_BLOCKS)
        pointers = [Given("const uint8_t", "source", source), Given("uint8_t", "target", target)]
        dims = [size] if offset is None else [size, offset]
        note = f"copies {size} bytes"
        return self.call(
            "copy", note, lines, dims, pointers, {"before": f"({before})"} if before else None,
            condition, grid=blocks, threads=_COPY_THREADS,
        )  # fmt: skip
