# SPDX-License-Identifier: Apache-2.0
"""The harness's files: calls in, what happened out.

`boards/families/common/raot_harness.c` is the other end; both change together. Words are
little-endian on every target.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from relax_aot.binaries.elf import ModelTable
from relax_aot.errors import RelaxAotError

REQUEST_FILE = "request.bin"
RESPONSE_FILE = "response.bin"
FAULT_FILE = "fault.bin"

_REQUEST_MAGIC = b"RAQ1"
_RESPONSE_MAGIC = b"RAR2"
_NULL_INPUT = 0xFFFF_FFFF
_INIT, _ARENA_GIVEN, _ARENA_NEED = 1, 2, 4
_ANSWER = struct.Struct("<2i4I")
_BROKEN = (
    "before the arena", "after the arena", "before the state", "after the state",
    "an input", "next to an output", "end of the stack",
)  # fmt: skip
_CHANGED = ("arena", "state", "outputs", "sizes")


class RequestError(RelaxAotError):
    """A call that does not fit the model."""


@dataclass(frozen=True, slots=True)
class HarnessCall:
    """One call of the model.

    `init` first calls its init. The arena has its largest size unless `arena_bytes` gives
    another or `arena_as_needed` asks for what the model needs at these dims. An input of
    None is a null pointer.
    """

    dims: tuple[int, ...] = ()
    inputs: tuple[bytes | None, ...] = ()
    init: bool = False
    arena_bytes: int | None = None
    arena_as_needed: bool = False


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """Instructions that a function itself ran in one call, and an estimate of their cycles."""

    name: str
    instructions: int
    cycles: int | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """What an emulator counted of one call. `cycles` are an estimate."""

    instructions: int
    functions: tuple[FunctionCost, ...]
    cycles: int | None = None
    marked: tuple[FunctionCost, ...] = ()
    """Functions that were asked for, with what they call."""


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """What one call did.

    `status` is that of run, or that of init where init failed (then run was not called).
    `outputs` have their whole capacity. `stack_bytes` counts from the frame that called.
    `broken` names guard zones that were written, `changed` what differs from before the call
    (the arena starts poisoned, outputs filled, state as it was).
    """

    status: int
    ran: bool
    sizes: tuple[int, ...]
    outputs: tuple[bytes, ...]
    arena_bytes: int
    stack_bytes: int
    broken: tuple[str, ...]
    changed: tuple[str, ...]
    instructions: int | None = None
    functions: tuple[FunctionCost, ...] = ()
    state: bytes = b""
    """The state block after the call."""
    cycles: int | None = None
    """An estimate, where one was asked for."""
    marked: tuple[FunctionCost, ...] = ()
    """Functions that were asked for, with what they call."""

    @property
    def guards_ok(self) -> bool:
        return not self.broken

    @property
    def untouched(self) -> bool:
        """Not a byte of arena, state, outputs and result sizes changed."""
        return not self.changed


def encode_request(model: ModelTable, calls: Sequence[HarnessCall]) -> bytes:
    header = struct.pack("<3I", len(calls), model.dim_count, len(model.input_bytes))
    return b"".join([_REQUEST_MAGIC, header, *(_encode(model, call) for call in calls)])


def _encode(model: ModelTable, call: HarnessCall) -> bytes:
    if len(call.dims) != model.dim_count or len(call.inputs) != len(model.input_bytes):
        raise RequestError(
            f"{model.name} has {model.dim_count} sizes and {len(model.input_bytes)} inputs,"
            f" the call has {len(call.dims)} and {len(call.inputs)}"
        )
    for number, (data, most) in enumerate(zip(call.inputs, model.input_bytes, strict=True)):
        if data is not None and len(data) > most:
            raise RequestError(
                f"input {number} of {model.name} has at most {most} bytes, got {len(data)}"
            )
    if call.arena_bytes is not None and not 0 <= call.arena_bytes <= model.arena_bytes:
        raise RequestError(
            f"the arena of {model.name} has 0 to {model.arena_bytes} bytes, not {call.arena_bytes}"
        )
    flags = _INIT if call.init else 0
    flags |= _ARENA_GIVEN if call.arena_bytes is not None else 0
    flags |= _ARENA_NEED if call.arena_as_needed else 0
    parts = [struct.pack("<2I", flags, call.arena_bytes or 0)]
    parts.append(struct.pack(f"<{len(call.dims)}i", *call.dims))
    for data in call.inputs:
        parts.append(struct.pack("<I", _NULL_INPUT if data is None else len(data)))
        parts.append(data or b"")
    return b"".join(parts)


def decode_response(model: ModelTable, data: bytes) -> list[HarnessResult]:
    """All answers that are complete: fewer than calls where the program ended early."""
    if not data.startswith(_RESPONSE_MAGIC):
        return []
    size = _ANSWER.size + 4 * model.result_count + sum(model.output_bytes) + model.state_bytes
    places = range(len(_RESPONSE_MAGIC), len(data) - size + 1, size)
    return [_decode(model, data[place : place + size]) for place in places]


def _decode(model: ModelTable, data: bytes) -> HarnessResult:
    ran, status, arena_bytes, stack_bytes, broken, changed = _ANSWER.unpack_from(data)
    place = _ANSWER.size
    sizes = struct.unpack_from(f"<{model.result_count}i", data, place)
    place += 4 * model.result_count
    outputs = []
    for capacity in model.output_bytes:
        outputs.append(data[place : place + capacity])
        place += capacity
    state = data[place : place + model.state_bytes]
    return HarnessResult(
        status=status,
        ran=bool(ran),
        sizes=sizes,
        outputs=tuple(outputs),
        arena_bytes=arena_bytes,
        stack_bytes=stack_bytes,
        broken=_names(_BROKEN, broken),
        changed=_names(_CHANGED, changed),
        state=state,
    )


def _names(names: tuple[str, ...], bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in enumerate(names) if bits >> bit & 1)


def with_counts(results: Sequence[HarnessResult], counts: Sequence[Count]) -> list[HarnessResult]:
    """Counts exist for the calls that ran, in order."""
    waiting = iter(counts)
    joined = []
    for result in results:
        count = next(waiting, None) if result.ran else None
        if count is not None:
            result = replace(
                result,
                instructions=count.instructions,
                functions=count.functions,
                cycles=count.cycles,
                marked=count.marked,
            )
        joined.append(result)
    return joined
