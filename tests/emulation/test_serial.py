# SPDX-License-Identifier: Apache-2.0
"""Models on a board at the end of a serial line: an emulated board on a pseudo-terminal."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax_aot.emulation.faults import TargetFault
from relax_aot.emulation.harness import HarnessCall, HarnessResult
from relax_aot.emulation.qemu import run_image
from relax_aot.emulation.serial_line import (
    Frame,
    Line,
    LineError,
    decode,
    encode,
    open_line,
    run_on_line,
)
from relax_aot.toolchain.build import Image
from relax_aot.verify.emulate import build_image
from relax_aot.verify.program import to_bytes
from tests.cli.in_process import relax_aot
from tests.conftest import ROOT
from tests.end_to_end.subjects import project_of
from tests.end_to_end.test_faults import broken

pytest.importorskip("serial")

BOARD = "mps2-an386"
FRAMES = st.builds(
    Frame,
    st.sampled_from([b"S", b"R", b"D", b"\0"]),
    st.integers(0, 255),
    st.binary(max_size=192) | st.integers(0, 192).map(bytes),
)


# Frames


@pytest.mark.slow
@given(FRAMES)
def test_frames_come_back_and_hold_no_zero(frame: Frame) -> None:
    data = encode(frame)
    assert data.count(0) == 1 and data.endswith(b"\0")
    assert len(data) == 2 + 2 + len(frame.payload) + 4
    assert decode(data[:-1]) == frame


@given(FRAMES, st.data())
def test_a_changed_byte_is_noticed(frame: Frame, data: st.DataObject) -> None:
    whole = bytearray(encode(frame)[:-1])
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    assert decode(bytes(whole)) != frame


def test_the_frame_of_the_document_is_what_is_sent() -> None:
    page = (ROOT / "docs" / "reference" / "serial.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^    ((?:[0-9a-f]{2} )+00)$", page, flags=re.MULTILINE)
    assert bytes.fromhex(shown) == encode(Frame(b"R", 1, b"\x10"))
    # By the definitions, not by our own code.
    plain = b"R\x01\x10"
    plain += zlib.crc32(plain).to_bytes(4, "little")
    assert 0 not in plain
    assert bytes.fromhex(shown) == bytes([len(plain) + 1]) + plain + b"\0"


# A board


def call(length: int) -> HarnessCall:
    motion = np.random.default_rng(length).normal(size=(length, 6)).astype(np.float32)
    return HarnessCall((length,), (to_bytes(motion).tobytes(),))


@dataclass
class Bench:
    """A board that runs, and the same model as an image for the emulator's own files."""

    port: str
    plain: Image
    process: subprocess.Popen[str] = field(repr=False)

    def expected(self, calls: list[HarnessCall]) -> list[HarnessResult]:
        results = run_image(self.plain, self.plain.board, calls)
        return [replace(result, instructions=None) for result in results]


def boot(elf: Path) -> tuple[str, subprocess.Popen[str]]:
    process = subprocess.Popen(
        ["qemu-system-arm", "-M", BOARD, "-display", "none", "-monitor", "none",
         "-serial", "pty", "-kernel", str(elf)],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    port = re.search(r"/dev/\S+", process.stdout.readline())
    assert port is not None
    return port[0], process


def stop(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("qemu-system-arm not installed")
    project = project_of("gesture", BOARD)
    plain = build_image(project, folder / "plain")
    port, process = boot(build_image(project, folder / "serial", "serial").elf)
    yield Bench(port, plain, process)
    stop(process)


@dataclass
class Noisy:
    """A line that changes, loses and doubles bytes in both directions."""

    inner: Line
    source: random.Random
    rate: float
    changed: int = 0

    @property
    def in_waiting(self) -> int:
        return self.inner.in_waiting

    def read(self, size: int) -> bytes:
        return self._spoilt(self.inner.read(size))

    def write(self, data: bytes) -> object:
        return self.inner.write(self._spoilt(data))

    def close(self) -> None:
        self.inner.close()

    def _spoilt(self, data: bytes) -> bytes:
        kept = bytearray()
        for byte in data:
            if self.source.random() >= self.rate:
                kept.append(byte)
                continue
            self.changed += 1
            match self.source.randrange(3):
                case 0:
                    kept.append(byte ^ 1 << self.source.randrange(8))
                case 1:
                    kept += bytes([byte, byte])
        return bytes(kept)


@pytest.mark.qemu
@pytest.mark.slow
def test_a_board_on_a_line_does_what_the_emulator_does(bench: Bench) -> None:
    calls = [call(length) for length in (1, 2, 33)]
    calls.append(replace(call(3), arena_bytes=16))  # refused with a status
    calls.append(replace(call(5), dims=(-1,)))
    expected = bench.expected(calls)
    assert [r.status for r in expected[:3]] == [0, 0, 0] and all(r.status for r in expected[3:])
    for _ in range(2):  # a second session needs no reset
        line = open_line(bench.port)
        try:
            assert run_on_line(bench.plain, bench.plain.board, calls, line) == expected
        finally:
            line.close()


@pytest.mark.qemu
@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_bad_line_costs_time_alone(bench: Bench, seed: int) -> None:
    calls = [call(length) for length in (1, 7)]
    line = Noisy(open_line(bench.port), random.Random(seed), 0.005)
    try:
        assert run_on_line(bench.plain, bench.plain.board, calls, line) == bench.expected(calls)
        assert line.changed
    finally:
        line.close()


@pytest.mark.qemu
@pytest.mark.long
def test_a_session_that_was_cut_does_not_disturb_the_next(bench: Bench) -> None:
    class Cut(Exception):
        """The cable was pulled."""

    @dataclass
    class Short(Noisy):
        left: int = 6

        def write(self, data: bytes) -> object:
            self.left -= 1
            if self.left < 0:
                raise Cut
            return super().write(data)

    calls = [call(9)]
    line = open_line(bench.port)
    try:
        with pytest.raises(Cut):
            run_on_line(bench.plain, bench.plain.board, calls, Short(line, random.Random(0), 0.0))
        assert run_on_line(bench.plain, bench.plain.board, calls, line) == bench.expected(calls)
    finally:
        line.close()


@pytest.mark.qemu
@pytest.mark.long
def test_a_fault_comes_over_the_line(tmp_path: Path) -> None:
    project = broken(BOARD, "*(volatile int32_t *)(uintptr_t)0xe7000000u = 1;")
    plain = build_image(project, tmp_path / "plain")
    port, process = boot(build_image(project, tmp_path / "serial", "serial").elf)
    line = open_line(port)
    try:
        for _ in range(2):
            with pytest.raises(TargetFault, match="0xe7000000"):
                run_on_line(plain, plain.board, [call(3)], line)
    finally:
        line.close()
        stop(process)


@pytest.mark.qemu
@pytest.mark.long
def test_another_model_on_the_board_is_refused(bench: Bench, tmp_path: Path) -> None:
    other = build_image(project_of("small_encoder", BOARD), tmp_path)
    line = open_line(bench.port)
    try:
        with pytest.raises(LineError, match="'gesture' with other sizes"):
            run_on_line(other, other.board, [], line)
    finally:
        line.close()


class Dead:
    """No board at the other end."""

    in_waiting = 0

    def read(self, size: int) -> bytes:
        time.sleep(0.01 * bool(size))
        return b""

    def write(self, data: bytes) -> object:
        return len(data)

    def close(self) -> None:
        pass


@pytest.mark.qemu
@pytest.mark.slow
def test_silence_is_one_clear_error(bench: Bench) -> None:
    with pytest.raises(LineError, match="no answer"):
        run_on_line(bench.plain, bench.plain.board, [call(1)], Dead(), silence=0.6)


@pytest.mark.qemu
@pytest.mark.long
def test_the_command_line_verifies_over_a_port(tmp_path: Path) -> None:
    gesture = (str(ROOT / "examples" / "gesture" / "gesture.onnx"), "--bound", "n=32")
    made = relax_aot("runner", *gesture, "--board", BOARD, "-o", "runner", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    port, process = boot(tmp_path / "runner" / "runner.elf")
    try:
        done = relax_aot(
            "verify", *gesture, "--board", BOARD, "--serial", port, "--at", "n=7", folder=tmp_path
        )
        assert done.returncode == 0 and "; equal" in done.stdout, done.stdout + done.stderr
    finally:
        stop(process)


def test_a_port_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LineError, match="cannot open"):
        open_line(str(tmp_path / "ttyNONE"))
    done = relax_aot("verify", "m.onnx", "--serial", "COM1", folder=tmp_path)
    assert done.returncode == 2 and "--board" in done.stderr


@pytest.mark.qemu
@pytest.mark.slow
def test_the_runner_for_a_board_of_yours_compiles(tmp_path: Path) -> None:
    gesture = (str(ROOT / "examples" / "gesture" / "gesture.onnx"), "--bound", "n=32")
    made = relax_aot("runner", *gesture, "--board", "nucleo-f446re", "-o", "r", folder=tmp_path)
    assert made.returncode == 0 and "line.c" in made.stdout, made.stderr
    units = [*(tmp_path / "r").glob("gesture*.c"), *(tmp_path / "r" / n for n in (
        "adapter.c", "raot_harness.c", "serial.c", "line.c"))]  # fmt: skip
    done = subprocess.run(
        ["arm-none-eabi-gcc", "-mthumb", "-mcpu=cortex-m4", "-std=gnu11", "-O1", "-Wall", "-Wextra",
         "-Wconversion", "-Werror", "-I.", "-c", *map(str, units)],
        cwd=tmp_path / "r", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
