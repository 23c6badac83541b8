# SPDX-License-Identifier: Apache-2.0
"""The public header as a manual: sizes, members, functions, statuses, an example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.arenas import ArenaView, LocalView
from relax_aot.emit.c_layout import COLUMNS
from relax_aot.emit.c_names import comment
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.interface import Interface, Port
from relax_aot.emit.wrap import noted, wrapped
from relax_aot.ir.dims import Dim
from relax_aot.ir.types import DType

LICENSE = "LicenseRef-Model"
"""SPDX's name for a license that its own list does not have: that of the model."""
_EXAMPLE_COLUMNS = COLUMNS - len(" *     ")
"""An example stands in a comment, and in main.c."""
_TYPE_NAMES = {
    "f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "i4": "int4", "u4": "uint4", "i2": "int2", "u2": "uint2",
}  # fmt: skip
_CAUSES = {
    "RAOT_OK": "done",
    "RAOT_ERR_NULL": "a pointer is null: an argument, or a member of a struct that is used",
    "RAOT_ERR_ARENA": "an arena is smaller than the run needs at these sizes",
    "RAOT_ERR_ALIGN": "memory is not aligned to {prefix}_ALIGNMENT, or an input or output not to"
    " its element type",
    "RAOT_ERR_SIZE": "a size is outside the range that its member states{length}",
    "RAOT_ERR_MISMATCH": "sizes violate a relation that their struct states{init}",
    "RAOT_ERR_INDEX": "an index in the input data is out of range",
    "RAOT_ERR_CAPACITY": "{full}a data-dependent size exceeds its upper bound",
    "RAOT_ERR_WEIGHTS": "the weights are damaged, or were generated for other code",
    "RAOT_ERR_LIMITS": "a quantization parameter in the weights is outside the limits of the code",
    "RAOT_ERR_OVERLAP": "inputs, outputs, arena or state overlap",
    "RAOT_ERR_STATE": "{state} has not been initialized",
    "RAOT_ERR_DEVICE": "the GPU or its driver failed; {name}_device_message says how{lost}",
    "RAOT_ERR_EXTERN": "a C function of yours reported an error",
}


@dataclass(frozen=True, slots=True)
class SizeView:
    """A public constant: a macro where it is one number, else an enum constant."""

    macro: str
    expression: str
    number: int
    """At the bounds of the generated config header."""
    note: str

    @property
    def fixed(self) -> bool:
        return self.expression.isdigit()

    @property
    def checked(self) -> bool:
        """Whether it may become too large; elements cannot where bytes do not."""
        return not self.macro.endswith("_COUNT")


@dataclass(frozen=True, slots=True)
class MemberView:
    """An input or output as a member of its struct."""

    c_name: str
    c_type: str
    macro: str
    count: str
    length: str
    """The elements of an array that holds it; never 0."""
    note: str

    @classmethod
    def of(cls, port: Port, context: RunContext) -> MemberView:
        lowest = {n: context.plan.module.bounds.range(n)[0] for n in context.plan.module.bounds}
        least = context.greatest(port.type.elements).evaluate(lowest)
        return cls(
            port.c_name,
            port.c_type,
            port.macro,
            port.count_macro,
            port.count_macro if least > 0 else f"{port.count_macro} + 1",
            comment(_described(port)),
        )


@dataclass(frozen=True, slots=True)
class HeaderView:
    fixed: tuple[str, ...]
    """Macros, a line each."""
    bounded: tuple[str, ...]
    """Names and values of the constants that follow the bounds, a line each."""
    statuses: tuple[LocalView, ...]
    """Each with its cause."""
    example: tuple[str, ...]
    """A complete program, that main.c is too."""

    @classmethod
    def of(
        cls, interface: Interface, sizes: Sequence[SizeView], code: str, example: str
    ) -> HeaderView:
        """`code` is the C that answers with statuses, `example` a program."""
        used = set(re.findall(r"\bRAOT_(?:OK|ERR_\w+)", code))
        if "raot_weights_check" in code:
            used.add("RAOT_ERR_WEIGHTS")
        state = ["the state"] * bool(interface.states) + ["the position"] * interface.stepwise
        state += ["the GPU"] * interface.device
        said = {
            "prefix": interface.prefix,
            "name": interface.owner,
            "init": f", or differ from those of {interface.name}_init" if interface.states else "",
            "state": " or ".join(state),
            "length": ", or truncation to more rows than a growing state holds"
            if interface.all_lengths
            else "",
            "lost": ". After that status from a run, the state on the GPU is unknown until"
            f" {interface.owner}_init"
            if interface.states
            else "",
            "full": "a growing state has no room for new rows, or "
            if len(interface.windows) < len(interface.all_lengths)
            else "",
        }
        width = max(map(len, _CAUSES))
        fixed = [(f"#define {s.macro} {s.expression}", s.note) for s in sizes if s.fixed]
        bounded = [s for s in sizes if not s.fixed]
        digits = max((len(str(s.number)) for s in bounded), default=0)
        names = max((len(s.macro) for s in bounded), default=0)
        return cls(
            noted(fixed),
            tuple(f"{s.macro:{names}} {s.number:{digits}}  {s.note}" for s in bounded),
            tuple(
                LocalView(status.ljust(width), cause.format_map(said), "")
                for status, cause in _CAUSES.items()
                if status in used
            ),
            tuple(wrapped(example, _EXAMPLE_COLUMNS).rstrip("\n").split("\n")),
        )


def port_sizes(context: RunContext) -> list[SizeView]:
    """Bytes and elements of each input and output."""
    interface = context.interface
    return [
        _size(context, macro, size, note)
        for side, ports in (("in", interface.inputs), ("out", interface.outputs))
        for port in ports
        for macro, size, note in (
            (port.macro, port.type.bytes, f"bytes of {side}->{port.c_name}"),
            (port.count_macro, port.type.elements, f"elements of {side}->{port.c_name}"),
        )
    ]


def _size(context: RunContext, macro: str, size: Dim, note: str) -> SizeView:
    expression, number = context.of_call(context.greatest(size))
    return SizeView(macro, expression, number, note)


def memory_sizes(
    interface: Interface, alignment: int, state: SizeView | None, block_bytes: int
) -> list[SizeView]:
    """The alignment of all memory, and the blocks that the functions of `interface` share."""
    prefix = interface.prefix
    if interface.device:
        note = "alignment of memory.device, and of pointers to memory of the GPU"
        sizes = [SizeView(f"{prefix}_ALIGNMENT", str(alignment), alignment, note)]
        sizes += [] if state is None else [replace(state, note="bytes of the state there")]
        return sizes + _weights_size(interface, block_bytes)
    apart = interface.weights_apart and interface.common is None
    kinds = ["arena"] + ["state"] * (state is not None) + ["weights"] * apart
    note = f"alignment of {' and '.join(kinds)} in bytes"
    sizes = [SizeView(f"{prefix}_ALIGNMENT", str(alignment), alignment, note)]
    sizes += [] if state is None else [state]
    sizes += _weights_size(interface, block_bytes)
    if interface.threaded and interface.common is None:
        count, note = interface.threads, "threads of one run at most, the caller included"
        sizes.append(SizeView(f"{prefix}_THREADS", str(count), count, note))
    return sizes


def _weights_size(interface: Interface, block_bytes: int) -> list[SizeView]:
    if not interface.weights_apart or interface.common is not None:
        return []
    macro = f"{interface.prefix}_WEIGHTS_BYTES"
    return [SizeView(macro, str(block_bytes), block_bytes, "bytes of memory.weights")]


def arena_sizes(arenas: Iterable[ArenaView]) -> list[SizeView]:
    return [
        SizeView(f"{a.macro}_BYTES", a.greatest, a.bytes, f"bytes of memory.{a.member}{a.place}")
        for a in arenas
    ]


def device_sizes(interface: Interface, arena: ArenaView, block_bytes: int) -> tuple[SizeView, ...]:
    """The block on the host, which entries share, and the arena on the GPU."""
    block = f"{interface.prefix}_DEVICE_BYTES"
    there = SizeView(
        f"{arena.macro}_BYTES", arena.greatest, arena.bytes, "bytes of the arena there"
    )
    if interface.common is not None:
        return (there,)
    return (SizeView(block, str(block_bytes), block_bytes, "bytes of memory.device"), there)


def _described(port: Port) -> str:
    dtype = port.type.dtype
    shape = ", ".join(str(size) for size in port.type.shape)
    parts = [f"{_TYPE_NAMES.get(dtype.value, dtype.value)}[{shape}]"]
    if dtype is DType.BOOL:
        parts.append("0 or 1")
    elif dtype.is_half:
        parts.append("as bits")
    elif dtype.is_storage:
        parts.append("one per byte")
    parts.append(f"{port.count_macro} elements" + (" at most" if port.type.symbols else ""))
    if port.meaning:
        parts.append(f"real value = {port.meaning}")
    if port.source != port.c_name:
        parts.append(f"in the model: {port.source}")
    return "; ".join(parts)
