# SPDX-License-Identifier: Apache-2.0
"""Estimates of cycles: instruction times of each core, waits for flash, and what `profile` says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from relax_aot import driver
from relax_aot.binaries.elf import Program
from relax_aot.driver import Options
from relax_aot.emulation import counter, qemu
from relax_aot.emulation.core_times import core_times, known_cores
from relax_aot.emulation.cycles import BlockRuns, Estimator, NoEstimate, flash_waits, require_times
from relax_aot.emulation.harness import Count, HarnessCall, HarnessResult
from relax_aot.errors import RelaxAotError
from relax_aot.ir.parse import parse
from relax_aot.project import Project
from relax_aot.project.board import list_boards, load_board, read_board
from relax_aot.project.board_table import BoardError
from relax_aot.project.timing import Timing
from relax_aot.toolchain.build import Image
from relax_aot.toolchain.disassembly import HELIUM, Instruction, instructions
from relax_aot.verify.emulate import build_image, emulate_cases
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.profile import profile, read_measured
from relax_aot.verify.samples import cases_of
from relax_aot.verify.table import profile_lines
from tests.conftest import ROOT

GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"
BOARD = "nucleo-l4r5zi"


def code(text: str) -> list[Instruction]:
    """Instructions of 32 bits; those that begin with a point have 16."""
    parts = [line.strip().lstrip(".").partition(" ") for line in text.split(";")]
    narrow = [line.strip().startswith(".") for line in text.split(";")]
    return [
        Instruction(2 * i, name, operands, small)
        for i, ((name, _, operands), small) in enumerate(zip(parts, narrow, strict=True))
    ]


TIMES = {
    # Arm DDI 0439, table 3-1 and section 3.3.2.
    ("cortex-m4", "add r0, r1, r2"): 1,
    ("cortex-m4", "ldr r0, [r1, #4]; nop"): 3,
    ("cortex-m4", "ldr r0, [r1]; ldr r2, [r1, #4]; ldrsh.w r3, [r1, #8]; nop"): 5,
    ("cortex-m4", "ldr r0, [r1], #4; ldr r2, [r1]; nop"): 5,
    ("cortex-m4", "ldmia r0!, {r1, r2, r3, r4}"): 5,
    ("cortex-m4", "ldmia.w r0, {r4-r8, sl}"): 7,
    ("cortex-m4", "vldmia r0!, {s4-s7}"): 5,
    ("cortex-m4", "ldrd r0, r1, [r2]"): 3,
    ("cortex-m4", "str r0, [r1, #4]"): 1,
    ("cortex-m4", "strb.w r0, [r1, r2]; nop"): 3,
    ("cortex-m4", "smlad r0, r1, r2, r0; smmulr r3, r0, r4"): 2,
    ("cortex-m4", "vfma.f32 s0, s1, s2; vdiv.f32 s3, s0, s1"): 17,
    ("cortex-m4", "ldrne r0, [r1]; addne r0, r0, #1"): 3,
    # Arm DDI 0337: multiply-add 2, long products 3 to 5, loads as on the M4.
    ("cortex-m3", "mla r0, r1, r2, r0; mul r3, r1, r2"): 3,
    ("cortex-m3", "ldm r0!, {r1, r2}; ldr r3, [r0]; ldr r4, [r0, #4]"): 6,
    # Arm DDI 0432 and DDI 0484.
    ("cortex-m0", "ldr r0, [r1]; ldrb r2, [r1]; muls r0, r2; strh r0, [r1]"): 7,
    ("cortex-m0", "push {r4, r5, lr}; bl 100"): 6,
    ("cortex-m0plus", "ldmia r0!, {r1, r2}; adds r1, r1, r2"): 4,
    # ARMScheduleM7.td: two loads a cycle, one product; a load's byte is there after two cycles.
    ("cortex-m7", "ldr r0, [r4]; ldr r1, [r5]"): 1,
    ("cortex-m7", "smlad r0, r1, r2, r0; smlad r3, r1, r2, r3"): 2,
    ("cortex-m7", "add r0, r1, r2; add r3, r1, r2; add r4, r1, r2; add r5, r1, r2"): 2,
    ("cortex-m7", "add r0, r0, r2; add r0, r0, r3"): 2,
    ("cortex-m7", "vfma.f32 s0, s1, s2"): 3,
    ("cortex-m7", "ldmia r0!, {r1, r2, r3, r4}"): 2,
    # ARMScheduleM55.td: two beats a vector instruction, pipes overlap.
    ("cortex-m55", "vldrb.u8 q0, [r0], #16; vldrb.u8 q1, [r1], #16"): 4,
    ("cortex-m55", "vldrb.u8 q0, [r0], #16; vmladava.s8 r2, q1, q2"): 2,
    ("cortex-m55", ".adds r0, r0, #1; .lsrs r1, r2, #3"): 1,
    ("cortex-m55", "add r0, r3, #1; lsr r1, r2, #3"): 2,
}


@pytest.mark.parametrize(("cpu", "text"), TIMES, ids=lambda value: value)
def test_blocks_take_the_cycles_of_the_manuals(cpu: str, text: str) -> None:
    core = core_times(cpu)
    assert core is not None
    assert core.block_cycles(code(text)) == TIMES[cpu, text]


def test_every_core_names_its_source_and_has_a_board() -> None:
    used = {load_board(name).cpu for name in list_boards()}
    for cpu in known_cores():
        core = core_times(cpu)
        assert core is not None and core.source and core.taken >= 0 and core.factor >= 1
        assert cpu in used
    with pytest.raises(NoEstimate, match="no instruction times of native; known cores: cortex-m0"):
        require_times(load_board("host"))


def test_loops_of_low_overhead_jump_for_nothing() -> None:
    core = core_times("cortex-m55")
    assert core is not None
    assert core.taken_cycles(code("letp lr, 100")[0]) == 0 < core.taken_cycles(code("b 100")[0])


def test_prefetch_hides_lines_behind_others() -> None:
    block = BlockRuns(0, 100, 10, 0, fetches=7, following=4, reads=2)
    slow = Timing(120, 5, 64, False, 1024, 256)
    assert flash_waits(slow, block) == 5 * 9
    # A line has four halfwords: four of the five cycles pass while these are executed.
    assert flash_waits(replace(slow, flash_prefetch=True), block) == 5 * 5 + 1 * 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("flash_read_bits = 64", "flash_read_bits = 65", "one of 32, 64, 128, 256; got 65"),
        ("flash_wait_states = 5", "flash_wait_states = -1", "from 0 on; got -1"),
        ("flash_wait_states", "flash_waitstates", "did you mean 'flash_wait_states'"),
        ("[timing]\nclock_mhz = 120", "[timing]\nclock_mhz = 0", "clock_mhz: expected a whole"),
    ],
    ids=["bits", "waits", "key", "clock"],
)  # fmt: skip
def test_a_wrong_table_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = (ROOT / "boards" / f"{BOARD}.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BoardError, match=re.escape(said)):
        read_board(path)


# On an emulated board


@pytest.mark.qemu
def test_vectors_of_helium_have_names(tmp_path: Path) -> None:
    """Unless told the architecture, GNU's disassembler reads them as those of a coprocessor."""
    elf = tmp_path / "code.elf"
    source = '__asm(".globl go\\n go: vmlava.s8 r2, q1, q2\\n vldrb.u8 q0, [r1], #16");'
    (tmp_path / "code.c").write_text(source)
    board = load_board("mps3-an547")
    command = [f"{board.prefix}gcc", *board.flags, "-nostdlib", "-Wl,-Ttext=0,-e,go"]
    subprocess.run([*command, "-o", str(elf), str(tmp_path / "code.c")], check=True)
    code = instructions(elf, 0, board.prefix, 0, 8, HELIUM)
    assert [one.name for one in code] == ["vmlava.s8", "vldrb.u8"]
    # Two cycles each, at once.
    one = BlockRuns(0, 200, 2, 0, 0, 0, 0)
    assert Estimator(elf, board).cycles([one]) == [100 * 2]


@cache
def gesture(board: str = BOARD) -> Project:
    options = Options(bounds={"n": (1, 16)}, name="gesture")
    return driver.compile_model(str(GESTURE), board, options)


def blocks_with(
    timing: Timing | None, image: Image, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[BlockRuns], HarnessResult]:
    """The lines of the counter, and the result of a call."""
    board = replace(load_board(BOARD), timing=timing)
    said = []

    def read(program: Program, text: str, estimator: Estimator | None) -> list[Count]:
        said.append(text)
        return counter.read_counts(program, text, estimator)

    monkeypatch.setattr(qemu, "read_counts", read)
    data = np.zeros((16, 6), np.float32).tobytes()
    (result,) = qemu.run_image(image, board, [HarnessCall((16,), (data,))], cycles=True)
    lines = [line.split()[1:] for line in said[0].splitlines() if line.startswith("block")]
    return [BlockRuns(int(words[0], 16), *map(int, words[1:])) for words in lines], result


def lines_of(blocks: Sequence[BlockRuns], sizes: dict[int, int], line: int) -> int:
    """Lines of the flash that hold instructions of the blocks."""
    ends = {b.address: b.address + sizes[b.address] for b in blocks}
    touched = (range(start // line, (end - 1) // line + 1) for start, end in ends.items())
    return len({number for numbers in touched for number in numbers})


@pytest.mark.qemu
@pytest.mark.long
def test_buffers_of_the_flash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flash, image = Timing(120, 5, 64, False, 0, 0), build_image(gesture(), tmp_path)
    none, slow = blocks_with(flash, image, monkeypatch)
    whole = replace(flash, flash_instruction_bytes=1 << 15, flash_data_bytes=1 << 15)
    large, fast = blocks_with(whole, image, monkeypatch)
    some = replace(flash, flash_instruction_bytes=1024, flash_data_bytes=256)
    middle, between = blocks_with(some, image, monkeypatch)
    unaware, plain = blocks_with(None, image, monkeypatch)
    fixed = [[(b.address, b.instructions, b.jumps) for b in found] for found in (none, large)]
    assert fixed[0] == fixed[1] and sum(b.instructions for b in none) == slow.instructions
    assert not any(b.fetches or b.reads for b in unaware)
    # Where everything fits, each line is fetched once.
    assert sum(b.fetches for b in large) < sum(b.fetches for b in middle)
    assert sum(b.fetches for b in middle) < sum(b.fetches for b in none)
    assert sum(b.reads for b in large) < sum(b.reads for b in middle) < sum(b.reads for b in none)
    bytes_of = {b.address: 4 * b.length for b in large}
    assert sum(b.fetches for b in large) <= lines_of(large, bytes_of, 8)
    bytes_of = {b.address: 2 * b.length for b in large}
    assert sum(b.fetches for b in large) >= lines_of(large, bytes_of, 8)
    cycles = [result.cycles for result in (plain, fast, between, slow)]
    assert all(cycles) and cycles == sorted(cycles, key=lambda count: count or 0)
    # Of n runs of a loop, all but the last end with a jump.
    assert any(b.runs > 10 and 0 < b.runs - b.jumps < b.runs / 3 for b in none)


@pytest.mark.qemu
@pytest.mark.slow
def test_a_profile_shows_estimates_next_to_measured_cycles(tmp_path: Path) -> None:
    project = gesture()
    (case,) = cases_of(project.interface, [{"n": 16}], {})
    plain, found = profile(project, case), profile(project, case, cycles=True)
    assert plain.cycles_estimated is None and plain.instructions == found.instructions
    estimate = found.cycles_estimated
    assert estimate is not None and found.instructions < estimate < 6 * found.instructions
    parts = [row.cycles_estimated or 0 for row in found.kernels]
    assert abs(sum(parts) - estimate) <= len(parts) and parts == sorted(parts, reverse=True)
    whole = {row.function: row.with_callees for row in found.kernels if row.with_callees}
    # Kernels with what they call are all of a run but for its own few instructions.
    assert 0.9 * estimate < sum(whole.values()) <= estimate + len(whole)
    assert whole.keys() <= {layer for k in project.view.kernels for layer, _ in k.layers}
    name, cycles = max(whole.items(), key=lambda pair: pair[1])
    log = tmp_path / "log.txt"
    log.write_text(f"boot\n{name} {cycles}\n{name}: {3 * cycles}\nother, 7\n")
    measured = read_measured(log)
    assert measured == {name: 2 * cycles, "other": 7}
    (line,) = (row for row in profile_lines(found, measured) if f"  {name}" in row)
    assert f"{cycles:,}  {2 * cycles:>14,}   2.00" in line
    log.write_text("nothing\n")
    with pytest.raises(RelaxAotError, match="no line is the name of a kernel"):
        read_measured(log)


SMALL = """
func @main(%x: i32[16]) {
  %y: i32[16] = add(%x, %x)
  return %y
}"""
ESTIMATED = [
    name
    for name in list_boards()
    for board in (load_board(name),)
    if board.family == "cortex_m" and board.cpu in known_cores()
]


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("board", ESTIMATED)
def test_every_board_of_a_known_core_has_an_estimate(board: str) -> None:
    """Whichever emulator runs it."""
    try:
        qemu.require_emulator(load_board(board))
    except RelaxAotError as error:
        pytest.skip(str(error))
    project = driver.compile_module(parse(SMALL), load_board(board), Options(name="small"))
    (run,) = emulate_cases(project, cases_of(project.interface, [{}], {}), cycles=True)
    assert run.instructions and run.cycles_estimated
    assert run.instructions / 2 < run.cycles_estimated < 6 * run.instructions


@pytest.mark.qemu
@pytest.mark.slow
def test_both_emulators_give_the_same_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("unicorn")
    image, board = build_image(gesture("mps2-an385"), tmp_path), load_board("mps2-an385")
    calls = [HarnessCall((16,), (np.ones((16, 6), np.float32).tobytes(),))]
    (by_qemu,) = qemu.run_image(image, board, calls, cycles=True)
    monkeypatch.setattr(qemu, "require_emulator", lambda board: None)
    (by_unicorn,) = qemu.run_image(image, board, calls, cycles=True)
    assert by_unicorn.instructions == by_qemu.instructions
    # They divide the code into blocks in slightly different ways.
    assert by_unicorn.cycles == pytest.approx(by_qemu.cycles, rel=0.01)
    # Unicorn does not count reads of flash.
    waits = replace(board, timing=Timing(120, 5, 64, False, 1024, 256))
    (unknown,) = qemu.run_image(image, waits, calls, cycles=True)
    assert unknown.instructions == by_qemu.instructions and unknown.cycles is None


@pytest.mark.qemu
@pytest.mark.slow
def test_verify_gives_an_estimate_to_programs() -> None:
    def runs(*, cycles: bool) -> list[int | None]:
        job = Job(str(GESTURE), (gesture(),), at=({"n": 2}, {"n": 16}), cycles=cycles)
        result = run_job(job).as_json()
        return [run["cycles_estimated"] for run in result["targets"][0]["runs"]]

    small, large = runs(cycles=True)
    assert small and large and small < large
    assert runs(cycles=False) == [None, None]
