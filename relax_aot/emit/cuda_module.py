# SPDX-License-Identifier: Apache-2.0
"""The kernels of a module as one CUDA C++ text, and the launches that a run makes of them.

Every function begins with what it must know of the run: in a program that can fail it leaves where
the status word is set, and where its call is conditional, where the condition word is 0. Sizes
that come from data are words of the frame too; the grid is then an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from relax_aot.emit.c_dims import dim_c
from relax_aot.emit.c_names import Names, comment
from relax_aot.emit.c_outline import written_buffers
from relax_aot.emit.cuda_code import WORDS, launch_body
from relax_aot.emit.cuda_helpers import helper_text
from relax_aot.emit.numbers import canonical
from relax_aot.emit.render import render
from relax_aot.ir.dims import Bounds, Dim, prove_le
from relax_aot.ir.fold import fold_kernel
from relax_aot.ir.loops import Kernel, Micro, walk
from relax_aot.ir.types import C_TYPES
from relax_aot.scheduling.devices.launches import (
    Launch,
    adds_products,
    array_registers,
    launches,
)


class Given(Enum):
    """What a parameter of a launch is."""

    FRAME = "frame"
    CONDITION = "condition"
    """The position of a condition word in the frame."""
    BUFFER = "buffer"
    SIZE = "size"


RESIDENT = 512
"""Threads that a processor of a device holds at once, so that they hide the latency of memory: a
quarter of what it can hold, with 128 registers each."""
BLOCKS = 16
"""That every device holds at once."""
ARRAYS = 104
"""Registers for arrays of a thread, beyond which half as many threads have twice as many each."""
FEW_ARRAYS = 32
"""Registers for arrays of a thread up to which twice as many threads have half as many each, where
nothing adds products: no other work hides the latency of their memory."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """`name`: of the buffer in its kernel, or of the symbol; `type`: in C, as the host sees it."""

    given: Given
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The words in device memory that launches of a run share: 0 is the status."""

    fallible: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Symbols that come from data, with their positions."""


@dataclass(frozen=True, slots=True)
class DeviceLaunch:
    """A launch of a kernel, in the order of the run."""

    c_name: str
    """Of the function; launches that are the same share one."""
    parameters: tuple[Parameter, ...]
    grid: Dim
    threads: int
    dynamic_bytes: int = 0
    """Of shared memory that it asks for."""
    resident: int = 1
    """Blocks that a processor holds at once."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a comment says of a call: its text form, and where the model has it."""

    call: str
    origin: str


@dataclass(frozen=True, slots=True)
class Unit:
    """The kernels of one run in the device form. `conditional`: names of kernels that are given
    the position of a condition word; `notes`: of the comments above functions, by kernel."""

    kernels: Sequence[Kernel]
    bounds: Bounds
    frame: Frame = field(default_factory=Frame)
    conditional: frozenset[str] = frozenset()
    notes: Mapping[str, Note] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionView:
    """A `__global__` function."""

    call: str
    """The call of the graph in the text form."""
    origins: tuple[str, ...]
    """Of all calls that share the function."""
    signature: str
    body: str

    @property
    def origin(self) -> str:
        return ", ".join(self.origins)


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """`micro`: headers of the micro-kernels that functions call."""

    name: str
    functions: tuple[FunctionView, ...]
    micro: tuple[str, ...]
    launches: Mapping[str, tuple[DeviceLaunch, ...]]
    """By the name of the kernel."""

    @property
    def text(self) -> str:
        """The `.cu` file."""
        return self.text_with("")

    def text_with(self, more: str) -> str:
        """The file with further functions, and the helpers that these use."""
        code = "\n".join(function.signature + function.body for function in self.functions)
        helpers = helper_text(code + more, self.micro)
        text = render("cuda/model.cu.j2", name=self.name, helpers=helpers, kernels=self.functions)
        return text + more


def device_source(
    name: str,
    kernels: Sequence[Kernel],
    bounds: Bounds,
    frame: Frame | None = None,
    notes: Mapping[str, Note] | None = None,
) -> DeviceSource:
    """The text of one run."""
    unit = Unit(kernels, bounds, frame or Frame(), notes=notes or {})
    return device_sources(name, [unit])[0]


def device_sources(
    name: str,
    units: Sequence[Unit],
    taken: Iterable[str] = (),
    roomy: Mapping[str, int] | None = None,
) -> tuple[DeviceSource, ...]:
    """One text for several runs: each source has all functions, and the launches of its run.
    Launches that are the same share a function. No function has a name in `taken`. `roomy`:
    by how many quarters a processor holds fewer blocks of a function, so that threads have more
    registers."""
    made = _Made(Names([*WORDS, *taken]), roomy or {})
    found, micro = [], set[str]()
    for unit in units:
        kernels = [fold_kernel(kernel, unit.bounds) for kernel in unit.kernels]
        stmts = (stmt for kernel in kernels for stmt in walk(kernel.body))
        micro |= {stmt.kernel.header for stmt in stmts if isinstance(stmt, Micro)}
        found.append(
            {
                kernel.name: tuple(
                    made.launch(unit, kernel, launch, number)
                    for number, launch in enumerate(launches(kernel))
                )
                for kernel in kernels
            }
        )
    functions, headers = tuple(made.functions.values()), tuple(sorted(micro))
    return tuple(DeviceSource(name, functions, headers, one) for one in found)


class _Made:
    """The functions so far."""

    def __init__(self, names: Names, roomy: Mapping[str, int]) -> None:
        self.functions: dict[str, FunctionView] = {}
        self._names = names
        self._roomy = roomy
        self._known: dict[tuple[Kernel, object], tuple[str, tuple[str, ...], int]] = {}

    def launch(self, unit: Unit, kernel: Kernel, launch: Launch, number: int) -> DeviceLaunch:
        conditional, note = kernel.name in unit.conditional, unit.notes.get(kernel.name)
        own = launch.kernel
        key = (_same(own), _text_rests_on(unit, own, conditional))
        if key not in self._known:
            wanted = kernel.name if number == 0 else f"{kernel.name}_{number + 1}"
            c_name = self._names.claim(wanted)
            self._known[key] = self._function(unit, launch, c_name, conditional, note)
        c_name, sizes, resident = self._known[key]
        view = self.functions[c_name]
        if note and note.origin not in view.origins:
            self.functions[c_name] = replace(view, origins=(*view.origins, note.origin))
        parameters = tuple(_parameters(unit, own, conditional, sizes))
        sizes_of_launch = launch.grid, launch.threads, launch.dynamic_bytes
        return DeviceLaunch(c_name, parameters, *sizes_of_launch, resident)

    def _function(
        self, unit: Unit, launch: Launch, c_name: str, conditional: bool, note: Note | None
    ) -> tuple[str, tuple[str, ...], int]:
        """Prints a function; returns its name, the sizes that it is given, and its blocks that are
        resident."""
        own = launch.kernel
        scope = Names([c_name, *WORDS])
        symbols = {name: scope.claim(name) for name in own.free_symbols}
        buffers = {buffer.name: scope.claim(buffer.name) for buffer in own.buffers}
        first = tuple(_first(unit, launch, symbols, conditional))
        body = launch_body(own, buffers, symbols, unit.bounds, first, launch.dynamic_bytes)
        words = set(re.findall(r"\w+", body))
        sizes = [name for name in symbols if name not in unit.frame.sizes]
        sizes = [name for name in sizes if symbols[name] in words]
        # Checks of an index may be proofs, and what they read is an operand all the same.
        body = "".join(f"    (void){c};\n" for c in buffers.values() if c not in words) + body
        shared = {name for pair in own.in_place for name in pair}
        named = {Given.BUFFER: buffers, Given.SIZE: symbols}  # a value may be called as a size is
        texts = []
        for one in _parameters(unit, own, conditional, sizes):
            alone = one.given is Given.BUFFER and one.name not in shared
            space = "" if one.type.endswith("*") else " "
            c_text = named.get(one.given, {}).get(one.name, one.name)
            texts.append(f"{one.type}{space}{'__restrict__ ' * alone}{c_text}")
        most = min(_resident(own) // launch.threads, BLOCKS)
        blocks = max(1, most - self._roomy.get(c_name, 0) * max(1, most // 4))
        signature = (
            f'extern "C" __global__ void __launch_bounds__({launch.threads}, {blocks})'
            f" {c_name}({', '.join(texts)})"
        )
        call = comment(note.call if note else own.name)
        self.functions[c_name] = FunctionView(call, (), signature, body)
        return c_name, tuple(sizes), blocks


def _resident(kernel: Kernel) -> int:
    """The threads that a processor holds at once."""
    arrays = array_registers(kernel)
    if arrays > ARRAYS:
        return RESIDENT // 2
    return RESIDENT if arrays > FEW_ARRAYS or adds_products(kernel) else 2 * RESIDENT


def _parameters(
    unit: Unit, own: Kernel, conditional: bool, sizes: Sequence[str]
) -> Iterator[Parameter]:
    read = any(name in unit.frame.sizes for name in own.free_symbols)
    if unit.frame.fallible or conditional or read:
        yield Parameter(Given.FRAME, "frame", "int32_t *")
    if conditional:
        yield Parameter(Given.CONDITION, "condition", "int32_t")
    written = written_buffers(own.body)
    for buffer in own.buffers:
        const = "" if buffer.name in written else "const "
        yield Parameter(Given.BUFFER, buffer.name, f"{const}{C_TYPES[buffer.dtype]} *")
    for name in sizes:
        yield Parameter(Given.SIZE, name, "int32_t")


def _first(
    unit: Unit, launch: Launch, symbols: Mapping[str, str], conditional: bool
) -> Iterator[str]:
    """Where the function leaves at once, and the sizes that it reads."""
    if unit.frame.fallible:
        yield from ("if (raot_failed(frame)) {", "    return;", "}")
    if conditional:
        yield from ("if (frame[condition] == 0) {", "    return;", "}")
    read = [name for name in symbols if name in unit.frame.sizes]
    for name in read:
        yield f"const int32_t {symbols[name]} = frame[{unit.frame.sizes[name]}];"
    # A host launches at least one block, and upper bounds of sizes from data.
    if launch.grid.symbols & set(read) or not prove_le(1, launch.grid, unit.bounds):
        grid = dim_c(launch.grid, symbols, unit.bounds)
        yield from (f"if ((int32_t)blockIdx.x >= {grid}) {{", "    return;", "}")


def _text_rests_on(unit: Unit, own: Kernel, conditional: bool) -> object:
    """What of a run the text of a function depends on, besides its kernel."""
    symbols = [
        (name, unit.bounds.range(name), unit.frame.sizes.get(name)) for name in own.free_symbols
    ]
    return conditional, unit.frame.fallible, tuple(symbols)


def _same(kernel: Kernel) -> Kernel:
    """Equal for kernels that differ by names alone."""
    plain, names = canonical(kernel)
    short = {name: number for number, name in names.items()}
    pairs = tuple((short[source], short[target]) for source, target in kernel.in_place)
    return replace(plain, name="", in_place=pairs)
