# SPDX-License-Identifier: Apache-2.0
"""The harness's calls over a serial line: frames with a checksum, sent again until they arrive.

docs/reference/serial.md is the protocol; boards/families/common/serial.c is the other end. The
board asks, this side answers; what is lost or damaged is said again by whoever waited too long.
"""

from __future__ import annotations

import importlib
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from relax_aot.binaries.elf import ModelTable, Program
from relax_aot.emulation.faults import fault_of_record
from relax_aot.emulation.harness import HarnessCall, HarnessResult, decode_response, encode_request
from relax_aot.emulation.qemu import exit_reason
from relax_aot.errors import RelaxAotError
from relax_aot.progress import finished, step
from relax_aot.project.board import Board
from relax_aot.toolchain.build import Image
from relax_aot.toolchain.tools import EXTRA, ToolMissing

VERSION = 1
BAUD = 115200
RESEND_SECONDS = 0.5
SILENCE_SECONDS = 30.0
"""How long a board may compute without a word."""
START, POLL, GO, DATA, ACK = b"S", b"P", b"G", b"D", b"A"
HELLO, READ, WRITE, FAULT, EXIT = b"H", b"R", b"W", b"F", b"E"


class LineError(RelaxAotError):
    """The board does not answer, or is not the one that is meant."""


class Line(Protocol):
    """What of pyserial's `Serial` is used; `read` answers what came in time, perhaps nothing."""

    @property
    def in_waiting(self) -> int: ...

    def read(self, size: int) -> bytes: ...

    def write(self, data: bytes) -> object: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Frame:
    kind: bytes
    sequence: int
    payload: bytes = b""


def open_line(port: str, baud: int = BAUD) -> Line:
    """A device such as /dev/ttyACM0 or COM3, or an address that pyserial knows."""
    try:
        serial: Any = importlib.import_module("serial")
    except ImportError:
        raise ToolMissing(
            f"serial lines need pyserial; install it with: {EXTRA.format('serial')}"
        ) from None
    try:
        line: Line = serial.serial_for_url(port, baudrate=baud, timeout=0.02)
    except (serial.SerialException, ValueError) as error:
        raise LineError(f"cannot open the serial port {port}: {error}") from None
    return line


def encode(frame: Frame) -> bytes:
    """With checksum, stuffed (COBS), and the zero that ends it."""
    data = frame.kind + bytes([frame.sequence]) + frame.payload
    data += struct.pack("<I", zlib.crc32(data))
    runs = data.split(b"\0")
    return b"".join(bytes([len(run) + 1]) + run for run in runs) + b"\0"


def decode(data: bytes) -> Frame | None:
    """What stood before a zero; None where it is damaged."""
    plain = bytearray()
    place = 0
    while place < len(data):
        length = data[place]
        run = data[place + 1 : place + length]
        if len(run) != length - 1:
            return None
        plain += run
        place += length
        if place < len(data):
            plain.append(0)
    if len(plain) < 6 or zlib.crc32(plain[:-4]) != struct.unpack("<I", plain[-4:])[0]:
        return None
    return Frame(bytes(plain[:1]), plain[1], bytes(plain[2:-4]))


def model_digest(model: ModelTable) -> int:
    """What a request has to fit: serial.c makes the same of its model."""
    words = (
        model.arena_bytes, model.state_bytes, model.dim_count, len(model.input_bytes),
        len(model.output_bytes), model.result_count, *model.input_bytes, *model.output_bytes,
    )  # fmt: skip
    return zlib.crc32(struct.pack(f"<{len(words)}I", *words))


def run_on_line(
    image: Image,
    board: Board,
    calls: Sequence[HarnessCall],
    line: Line,
    silence: float = SILENCE_SECONDS,
) -> list[HarnessResult]:
    """Run the calls on the board at the other end, which holds the runner for this image's
    model. Results as of verify.qemu.run_image, without instructions."""
    program = Program(image.elf)
    model = program.model_table()
    session = _Session(line, board, model, encode_request(model, calls), silence)
    step(f"running on {board.name}: {len(calls)} calls")
    code = session.run()
    finished()
    results = decode_response(model, bytes(session.response))
    if session.fault:
        raise fault_of_record(board.name, program, bytes(session.fault), tuple(results))
    if code != 0 or len(results) != len(calls):
        raise LineError(f"{board.name}: {exit_reason(code)} in call {len(results)}")
    return results


def on_port(port: str, baud: int) -> Callable[..., list[HarnessResult]]:
    """A runner of images that opens the port for each."""

    def runner(image: Image, board: Board, calls: Sequence[HarnessCall]) -> list[HarnessResult]:
        line = open_line(port, baud)
        try:
            return run_on_line(image, board, calls, line)
        finally:
            line.close()

    return runner


@dataclass
class _Session:
    """From START to EXIT. `last` is what was said last: it is said again where the board asks the
    same again, which it does when it is polled after a silence."""

    line: Line
    board: Board
    model: ModelTable
    request: bytes
    silence: float
    response: bytearray = field(default_factory=bytearray)
    fault: bytearray = field(default_factory=bytearray)
    place: int = 0
    last: bytes = b""
    answered: int | None = None
    pending: bytearray = field(default_factory=bytearray)

    def run(self) -> int:
        self._say(Frame(START, 0))
        begun = False
        heard = time.monotonic()
        while True:
            frame = self._receive()
            now = time.monotonic()
            if frame is None:
                if now - heard > self.silence:
                    raise LineError(self._silent(begun))
                self.line.write(encode(Frame(POLL, 0)) if begun else self.last)
                continue
            heard = now
            if frame.kind == HELLO:
                # A board that was reset in between restarts, and so does this side.
                self._greet(frame)
                begun = True
            elif begun and frame.sequence == self.answered:
                self.line.write(self.last)
            elif begun:
                code = self._answer(frame)
                if code is not None:
                    return code

    def _greet(self, frame: Frame) -> None:
        version, digest = struct.unpack_from("<BI", frame.payload.ljust(5, b"\0"))
        name = frame.payload[5:].decode("ascii", "replace")
        if version != VERSION:
            raise LineError(
                f"the board uses version {version} of the protocol, not {VERSION}: build its "
                "runner again"
            )
        if digest != model_digest(self.model):
            raise LineError(
                f"the board holds {name!r} with other sizes than {self.model.name!r} here: build"
                " its runner with the same model, bounds and options"
            )
        self.place = 0
        self.response.clear()
        self.fault.clear()
        self._reply(frame, GO)

    def _answer(self, frame: Frame) -> int | None:
        """The exit code at the end."""
        match frame.kind:
            case b"R":
                size = frame.payload[0]
                data = self.request[self.place : self.place + size]
                self.place += size
                self._reply(frame, DATA, data)
            case b"W":
                self.response += frame.payload
                self._reply(frame, ACK)
            case b"F":
                self.fault += frame.payload
                self._reply(frame, ACK)
            case b"E":
                self._reply(frame, ACK)
                return frame.payload[0]
        return None

    def _reply(self, frame: Frame, kind: bytes, payload: bytes = b"") -> None:
        self.answered = frame.sequence
        self._say(Frame(kind, frame.sequence, payload))

    def _say(self, frame: Frame) -> None:
        self.last = encode(frame)
        self.line.write(self.last)

    def _receive(self) -> Frame | None:
        """The next good frame, or None after a silence."""
        until = time.monotonic() + RESEND_SECONDS
        while time.monotonic() < until:
            end = self.pending.find(0)
            if end >= 0:
                frame = decode(bytes(self.pending[:end]))
                del self.pending[: end + 1]
                if frame is not None:
                    return frame
                continue
            self.pending += self.line.read(1)
            self.pending += self.line.read(self.line.in_waiting)
        return None

    def _silent(self, begun: bool) -> str:
        if begun:
            return (
                f"{self.board.name} sent nothing for {self.silence:g} seconds: an endless loop, a"
                " fault without a handler, or a disconnected line"
            )
        return (
            f"no answer from {self.board.name}: check that the runner is in its flash, the port is "
            f"correct, and the speed is the same ({BAUD} by default)"
        )
