# SPDX-License-Identifier: Apache-2.0
"""Kernels in the device form (relax_aot/scheduling/devices) -> CUDA C++.

A launch is one `__global__` function. Statements and expressions are those of C (c_code.py); this
file adds blocks, threads, warps, memory of a block and of a thread, and barriers. At warp level
all 32 lanes execute the same statements; the body of a lane loop is the part of each lane, and a
`__syncwarp()` orders its accesses before those of other lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from relax_aot.emit.c_code import PrintedFunction, Printer, stem
from relax_aot.emit.c_dims import UNARY, within
from relax_aot.emit.c_expr import Scope, condition_c
from relax_aot.emit.c_names import Names
from relax_aot.emit.cuda_order import Ordered, unrolled
from relax_aot.ir.axes import CORE, LANE, LANES, SHARED
from relax_aot.ir.dim_expr import FloorDiv, Mod
from relax_aot.ir.dims import Bounds, Dim, Max, Min
from relax_aot.ir.loops import Barrier, Buffer, For, If, Kernel, Micro, Stmt, index_dims, walk
from relax_aot.ir.types import C_TYPES
from relax_aot.ir.value_ranges import Known
from relax_aot.scheduling.devices.launches import array_registers, shared_bytes

WORDS = (
    "frame", "condition", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize",
)  # fmt: skip
"""Names that no variable of a kernel has."""
_FAILURE = ("raot_fail(frame, RAOT_ERR_INDEX);", "return;")
_STORAGE = {SHARED: "__shared__ __align__(16) "}
_CROWDED = 32
"""Registers for arrays of a thread, from which on a call spills them."""
_LANE = "$lane"
"""The name of the lane in a scope; no variable of a kernel has it."""


@dataclass(frozen=True, slots=True)
class DeviceScope(Scope):
    """Names at one point of a kernel."""

    plain_shifts: bool = True
    own: bool = True
    """An element of a lane buffer is that of this thread: in loops over lanes, and in calls of
    micro-kernels. Elsewhere it is that of one lane for all lanes."""

    def element(self, buffer: Buffer, index: tuple[Dim, ...]) -> str:
        if buffer.scope != LANE:
            return Scope.element(self, buffer, index)
        part = replace(buffer, shape=buffer.shape[1:] or (Dim.of(1),))
        text = Scope.element(self, part, index[1:] or (Dim.of(0),))
        return text if self.own else f"__shfl_sync(0xffffffffu, {text}, {self.dim(index[0])})"


@dataclass
class DevicePrinter(Printer):
    """Prints one `__global__` function."""

    failure: tuple[str, ...] = _FAILURE
    order: Ordered | None = None
    """Of the loop over warps that is printed."""
    crowded: tuple[Stmt, ...] = ()
    """Its loops that need most registers. What is behind one reads the numbers of the lane, the
    warp and the block, and sizes that are divisors, again, so that no register holds them, or what
    is computed from them, meanwhile."""
    numbered: dict[str, str] = field(default_factory=dict)
    """The variables of the loops around over blocks and warps, and what reads each again."""
    divisors: frozenset[str] = frozenset()
    """Sizes of the kernel by which something is divided: compilers keep reciprocals of them."""
    unroll: frozenset[int] = frozenset()
    """The identities of loops whose variable is an index of an array of a thread."""
    inside: bool = False
    """In the loop over threads or warps."""
    same: Mapping[str, str] = field(default_factory=dict)
    """One name for buffers that may be the same memory."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where buffers in shared memory begin, if a launch asks for that memory."""

    def statement(self, stmt: Stmt, scope: Scope, depth: int) -> Scope:
        assert isinstance(scope, DeviceScope)
        ordered = self.order is not None and self.order.needs_order(stmt)
        if ordered and isinstance(stmt, If):
            name = self.claimed.claim("holds")
            self.lines.add(depth, f"const bool {name} = {condition_c(stmt.condition, scope)};")
            self.lines.add(depth, "__syncwarp();")
            self.sides(name, stmt, scope, depth)
            return scope
        own = isinstance(stmt, Micro) or scope.own
        after = Printer.statement(self, stmt, replace(scope, own=own), depth)
        if ordered:
            self.lines.add(depth, "__syncwarp();")
        assert isinstance(after, DeviceScope)
        if any(stmt is loop for loop in self.crowded):
            names, numbered = dict(after.names), {_LANE: "lane", **self.numbered}
            for variable, number in numbered.items():
                names[variable] = self.claimed.claim(number)
                text = f"const int32_t {names[variable]} = raot_{number}();"
                self.lines.define(depth, names[variable], text)
            for size in sorted(self.divisors):
                known = names[size]
                names[size] = self.claimed.claim(known)
                text = f"const int32_t {names[size]} = raot_size({known});"
                self.lines.define(depth, names[size], text)
            again = {*numbered, *self.divisors}
            lets = {d: name for d, name in after.lets.items() if d.symbols.isdisjoint(again)}
            after = replace(after, names=names, lets=lets)
        return replace(after, own=scope.own)

    def reserve(self, buffer: Buffer, scope: Scope, depth: int, storage: str = "") -> Scope:
        assert buffer.scope != SHARED or not self.inside, f"{buffer.name}: a warp shares no memory"
        if buffer.name in self.places:
            return self._placed(buffer, scope, depth)
        own = replace(buffer, shape=buffer.shape[1:]) if buffer.scope == LANE else buffer
        return Printer.reserve(self, own, scope, depth, _STORAGE.get(buffer.scope, ""))

    def _placed(self, buffer: Buffer, scope: Scope, depth: int) -> Scope:
        """Names a part of the shared memory that a launch asks for."""
        name, kind = self.claimed.claim(buffer.name), C_TYPES[buffer.dtype]
        self.function.types[buffer.name] = buffer.dtype
        place = self.places[buffer.name]
        self.lines.add(depth, f"{kind} *const {name} = reinterpret_cast<{kind} *>({place});")
        return replace(scope, buffers={**scope.buffers, buffer.name: name})

    def barrier(self, barrier: Barrier, depth: int) -> None:
        self.lines.add(depth, "__syncthreads();")

    def loop(self, loop: For, scope: Scope, depth: int) -> None:
        assert isinstance(scope, DeviceScope)
        match loop.axis:
            case "":
                self._serial(loop, scope, depth)
            case "block":
                self.numbered[loop.variable] = "block"
                self._one(loop, "(int32_t)blockIdx.x", scope, depth)
            case "thread":
                self.inside = True
                self._one(loop, "(int32_t)threadIdx.x", scope, depth)
            case "warp":
                self._warp(loop, scope, depth)
            case "lane":
                inner = replace(scope, own=True).inside(loop, scope.names[_LANE])
                self.lines.add(depth, "{")
                self.body(loop.body, inner, depth + 1)
                self.lines.add(depth, "}")
            case _:
                raise AssertionError(f"a device has no loops that are parallel({loop.axis})")

    def _serial(self, loop: For, scope: DeviceScope, depth: int) -> None:
        if loop.extent == 1:
            self._named(loop, scope.dim(loop.start), scope, depth)
            return
        if id(loop) in self.unroll:
            self.lines.add(depth, "#pragma unroll")
        elif any(id(inner) in self.unroll for inner in walk(loop.body)):
            self.lines.add(depth, "#pragma unroll 1")
        self.serial_loop(loop, scope, depth)

    def _one(self, loop: For, number: str, scope: DeviceScope, depth: int) -> None:
        """The iteration of this block, thread or warp."""
        start = "" if loop.start == 0 else f"{scope.dim(loop.start)} + "
        self._named(loop, f"{start}{number}", scope, depth)

    def _named(self, loop: For, value: str, scope: DeviceScope, depth: int) -> None:
        name = self.claimed.claim(stem(loop.variable))
        self.lines.define(depth, name, f"const int32_t {name} = {value};")
        inner: Scope = scope.inside(loop, name)
        if loop.axis == "block":
            inner = self._copies(inner, name, depth)
        self.body(loop.body, inner, depth)

    def _copies(self, scope: Scope, block: str, depth: int) -> Scope:
        """Scratch of which each block has a copy."""
        buffers = dict(scope.buffers)
        for buffer in self.function.copies.values():
            name = self.claimed.claim(f"own_{buffers[buffer.name]}")
            elements, binds = scope.bound_dim(buffer.type.elements)
            at = f"(int64_t){block} * {within(elements, binds, UNARY)}"
            text = f"{C_TYPES[buffer.dtype]} *const {name} = {buffers[buffer.name]} + {at};"
            self.lines.add(depth, text)
            buffers[buffer.name] = name
        return replace(scope, buffers=buffers)

    def _warp(self, loop: For, scope: DeviceScope, depth: int) -> None:
        self.inside = True
        lane = self.claimed.claim("lane")
        self.lines.define(depth, lane, f"const int32_t {lane} = (int32_t)threadIdx.x % {LANES};")
        self.order = Ordered(loop.body, self.same)
        self.crowded = _crowded(loop)
        self.numbered[loop.variable] = "warp"
        inner = replace(scope, names={**scope.names, _LANE: lane}, own=False)
        self._one(loop, f"(int32_t)threadIdx.x / {LANES}", inner, depth)


def _crowded(warp: For) -> tuple[Stmt, ...]:
    """The serial loops of a warp that multiply matrices, whose sums and addresses take most
    registers: those that load weights as lanes have them, or one alone in which threads wait for
    each other."""
    loops = [stmt for stmt in warp.body if isinstance(stmt, For) and not stmt.axis]
    waits = [loop for loop in loops if any(isinstance(stmt, Barrier) for stmt in walk(loop.body))]
    waits = [loop for loop in waits if _calls(loop, "raot_load_left_", "raot_load_right_steps_")]
    weights = [loop for loop in loops if _calls(loop, "raot_load_weights")]
    return (*weights, *(waits if len(waits) == 1 else ()))


def _calls(loop: For, *micro: str) -> bool:
    """Whether one of the micro-kernels is called whose names begin so."""
    calls = (stmt.kernel.name for stmt in walk(loop.body) if isinstance(stmt, Micro))
    return any(name.startswith(micro) for name in calls)


def _divisors(kernel: Kernel, symbols: Mapping[str, str]) -> frozenset[str]:
    """The sizes by which something is divided, alone or in a sum or product."""
    found = set[str]()
    for stmt in walk(kernel.body):
        for dim in index_dims(stmt):
            found.update(_denominators(dim))
    return frozenset(found & symbols.keys())


def _denominators(dim: Dim) -> Iterator[str]:
    for atom in dim.atoms:
        if isinstance(atom, FloorDiv | Mod):
            yield from atom.denominator.symbols
            yield from _denominators(atom.denominator)
            yield from _denominators(atom.numerator)
        elif isinstance(atom, Min | Max):
            for arg in atom.args:
                yield from _denominators(arg)


def launch_body(
    kernel: Kernel,
    buffers: Mapping[str, str],
    symbols: Mapping[str, str],
    bounds: Bounds,
    first: tuple[str, ...] = (),
    dynamic_bytes: int = 0,
) -> str:
    """The statements of a launch, behind the lines `first`; `buffers` and `symbols` are C names.
    `dynamic_bytes`: of shared memory that it asks for."""
    function = PrintedFunction(
        kernel.name, Names([kernel.name, *WORDS]), WORDS, frozenset(), {},
        {buffer.name: buffer.dtype for buffer in kernel.buffers},
        copies={buffer.name: buffer for buffer in kernel.scratch if buffer.scope == CORE},
    )  # fmt: skip
    claimed = Names([*buffers.values(), *symbols.values(), kernel.name, *WORDS])
    unroll, places = frozenset(unrolled(kernel)), dict[str, str]()
    if dynamic_bytes:
        block = claimed.claim("shared_bytes")
        first = (*first, f"RAOT_DYNAMIC_SHARED({block}, {dynamic_bytes});")
        at = 0
        for name, count in shared_bytes(kernel).items():
            places[name], at = f"{block} + {at}", at + count
    printer = DevicePrinter(
        function, claimed, None, unroll=unroll, same=kernel.same_memory, places=places,
        divisors=_divisors(kernel, symbols),
    )  # fmt: skip
    for line in first:
        if found := re.match(r"const int32_t (\w+) =", line):
            printer.lines.define(1, found[1], line)
        else:
            printer.lines.add(1, line)
    known = Known.at_start(kernel, bounds)
    crowded = array_registers(kernel) >= _CROWDED
    scope = DeviceScope(dict(symbols), known, buffers, fixed=not symbols, quotients=crowded)
    printer.body(kernel.body, scope, 1)
    return printer.lines.text()
