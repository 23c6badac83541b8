# SPDX-License-Identifier: Apache-2.0
"""Every board file builds models, or says by how many bytes they do not fit, and where."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.emulation.qemu import EmulatorError
from relax_aot.errors import RelaxAotError
from relax_aot.ir.graph import Module
from relax_aot.planning.regions import NoRoom
from relax_aot.project import Project
from relax_aot.project.board import Board, list_boards, load_board, read_board, same_core
from relax_aot.project.board_table import BoardError
from relax_aot.project.cores import MACHINES
from relax_aot.project.fit import DoesNotFit
from relax_aot.project.new_board import CORES, new_board
from relax_aot.verify.emulate import build_image, emulate_cases
from relax_aot.verify.samples import cases_of
from relax_aot.verify.table import board_lines
from tests.conftest import ROOT
from tests.end_to_end.subjects import SHARED

ALL = list_boards()
BOARDS = [name for name in ALL if load_board(name).cuda is None]
"""Those without a GPU; tests/cuda has the others."""
EMULATED = [name for name in BOARDS if load_board(name).emulator]
FEW = (
    "nucleo-f072rb",
    "nucleo-l476rg",
    "nucleo-h743zi2",
    "raspberry-pi-pico2",
    "esp32-s3-devkitc-1",
)
"""Boards that stand for the others in the gate: small, two memories, four, plain, a component."""
STRICT = (
    "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wvla", "-Wdouble-promotion",
    "-Wcast-align", "-Werror",
)  # fmt: skip
GESTURE = Options(bounds={"n": (1, 64)}, name="gesture")
MESSAGE = re.compile(r"does not fit [\w.-]+: (\w+) has (\d+) bytes, (\d+) too few")

OF_THE_PROGRAM = 832
"""RAM in bytes that a test program takes in addition to what its model needs: those of the C
library, bytes around arena and inputs that must not change, and its variables."""


IN_THE_GATE = {"gesture": FEW, "kws": FEW, "resnet8": ("nucleo-h743zi2",)}


def marked(models: Sequence[str], boards: Sequence[str]) -> list[Any]:
    """Pairs of a board and a model. Those in the gate are slow, the others take minutes."""
    return [
        pytest.param(
            name,
            model,
            marks=[pytest.mark.slow] + [pytest.mark.long] * (name not in IN_THE_GATE[model]),
        )
        for name in boards
        for model in models
    ]


def one_of_each(boards: Sequence[str]) -> list[Any]:
    """Boards of one core get the same C: the first of each core and family is in the gate, with
    those that have memories of their own and the one where the example does not fit."""
    first: dict[tuple[str, str], str] = {}
    for name in boards:
        board = load_board(name)
        first.setdefault((board.family, board.cpu), name)
    few = {*first.values(), *FEW, "stm32vldiscovery"}
    return [pytest.param(name, marks=[pytest.mark.long] * (name not in few)) for name in boards]


@cache
def module_of(name: str) -> Module:
    if name == "gesture":
        return driver.load(ROOT / "examples" / "gesture" / "gesture.onnx", GESTURE)
    path = SHARED / f"{name}_int8_qdq.onnx"
    if not path.is_file():
        pytest.skip("the folder ../shared/models is not here")
    return driver.load(path, Options())


@cache
def attempt(model: str, board: str) -> Project | DoesNotFit | NoRoom:
    try:
        options = GESTURE if model == "gesture" else Options(name=model)
        return driver.compile_module(module_of(model), load_board(board), options)
    except (DoesNotFit, NoRoom) as error:
        return error


def enlarged(board: str, sizes: Mapping[str, int], folder: Path) -> Path:
    """The board with other sizes of some memories."""
    text = (ROOT / "boards" / f"{board}.toml").read_text()
    for memory, size in sizes.items():
        block = re.compile(rf'(name = "{memory}"\n(?:origin = \S+\n)?size = )"\w+"(\nkind)')
        text, count = block.subn(rf"\g<1>{size}\2", text)
        assert count == 1
    path = folder / f"{board}.toml"
    path.write_text(text)
    return path


def check(model: str, board: str, folder: Path) -> None:
    made = attempt(model, board)
    if isinstance(made, Project):
        assert made.board.name == board
        return
    if isinstance(made, NoRoom):
        assert re.search(r"do not fit: \w+ has \d+.*; \d+ bytes do not fit", str(made))
        return
    said = [(m[1], int(m[2]), int(m[3])) for m in MESSAGE.finditer(str(made))]
    assert (said[0][0], said[0][2]) == (made.memory, made.over_bytes)
    sizes = {m.name: m.size for m in load_board(board).memories}
    assert all(sizes[memory] == size for memory, size, _ in said)
    # The figures are exact: so many bytes more are enough, and one step less is not.
    options = GESTURE if model == "gesture" else Options(name=model)
    enough = {memory: -(-(size + over) // 32) * 32 for memory, size, over in said}
    larger = read_board(enlarged(board, enough, folder))
    assert driver.compile_module(module_of(model), larger, options).plan.arena_bytes
    for memory in enough:
        less = enough | {memory: enough[memory] - 32}
        with pytest.raises(DoesNotFit, match=f"{memory} has {less[memory]} bytes"):
            smaller = read_board(enlarged(board, less, folder))
            driver.compile_module(module_of(model), smaller, options)


def test_there_are_boards_that_people_own() -> None:
    real = [name for name in ALL if load_board(name).emulator is None and name != "host"]
    linux = [name for name in BOARDS if load_board(name).family == "linux"]
    assert len(real) >= 20 and len(linux) >= 8
    for name in real:
        assert re.search(r"\d+ KB|\d+ MB", load_board(name).source), (
            f"{name}: `source` states the memory sizes of the data sheet, such as 256 KB"
        )


@pytest.mark.slow
@pytest.mark.parametrize("board", one_of_each(BOARDS))
def test_the_example_builds_or_says_what_is_missing(board: str, tmp_path: Path) -> None:
    check("gesture", board, tmp_path)
    assert isinstance(attempt("gesture", board), Project) or board == "stm32vldiscovery"


@pytest.mark.parametrize(("board", "model"), marked(["kws", "resnet8"], BOARDS))
def test_keyword_spotting_and_images_build_or_say_what_is_missing(
    model: str, board: str, tmp_path: Path
) -> None:
    check(model, board, tmp_path)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "model"), marked([*IN_THE_GATE], [n for n in BOARDS if load_board(n).prefix])
)
def test_the_board_s_flags_compile_without_a_warning(
    model: str, board: str, tmp_path: Path
) -> None:
    made = attempt(model, board)
    loaded = load_board(board)
    compiler = shutil.which(f"{loaded.prefix}gcc")
    if loaded.family == "component":
        assert compiler is None or isinstance(made, Project)
        return
    if compiler is None:
        pytest.skip(f"{loaded.prefix}gcc is not installed")
    if not isinstance(made, Project):
        assert MESSAGE.search(str(made)) or "bytes do not fit" in str(made)
        return
    folder = made.write(tmp_path / "out")
    command = [compiler, *loaded.flags, *STRICT, "-I.", "-c", *made.units]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    if loaded.regions:
        return
    try:
        image = build_image(made, tmp_path / "image")
    except DoesNotFit as refused:
        (room,) = (room for room in made.rooms if room.memory == refused.memory)
        assert room.taken <= room.size < room.taken + OF_THE_PROGRAM
        assert MESSAGE.search(str(refused))
    else:
        assert 0 < image.code_bytes < image.flash_bytes


@pytest.mark.slow
def test_a_board_without_an_emulator_names_those_of_its_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RELAX_AOT_TOOLS", "system")
    board = load_board("nucleo-f446re")
    assert "mps2-an386" in same_core(board)
    project = attempt("gesture", "nucleo-f446re")
    assert isinstance(project, Project)
    with pytest.raises(EmulatorError, match=r"not emulated.*cortex-m4.*: mps2-an386"):
        emulate_cases(project, [])


def test_memories_that_a_machine_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs where they exist, or is refused before it runs."""
    monkeypatch.setenv("RELAX_AOT_TOOLS", "auto")
    text = (ROOT / "boards" / "nucleo-l4r5zi.toml").read_text()
    line = 'memories = { flash = "1M", ram = "192K" }'
    path = tmp_path / "small.toml"

    def board(has: str) -> Board:
        path.write_text(text.replace(line, has))
        return read_board(path)

    with pytest.raises(BoardError, match=r"emulator.memories.sram9: unknown key"):
        board('memories = { sram9 = "1K" }')
    with pytest.raises(
        BoardError, match=r"emulator.memories.ram: expected at most the 196608 bytes"
    ):
        board('memories = { ram = "1M" }')
    project = driver.compile_module(module_of("gesture"), board(line.replace("192", "1")), GESTURE)
    (case,) = cases_of(
        project.interface, [{f.source: f.symbol.high for f in project.interface.dims}], {}
    )
    (run,) = emulate_cases(project, [case])
    assert run.status == 0
    monkeypatch.setattr("relax_aot.toolchain.tools.has_wheel", lambda name: False)
    with pytest.raises(
        EmulatorError, match=r"bytes of the memory 'ram', .*netduinoplus2.* has 1024;"
    ):
        emulate_cases(project, [case])


def test_what_is_said_of_a_board_is_what_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unicorn needs no entry in the board's file."""
    assert board_lines("mps2-an386")[-1] == "emulated by qemu-system-arm as mps2-an386"
    monkeypatch.setenv("RELAX_AOT_TOOLS", "system")
    said = board_lines("nucleo-f446re")[-1]
    assert said.startswith("core and memories emulated by unicorn (pip install ")
    assert "by QEMU, with the same core: mps2-an386" in said
    assert "emulated" not in board_lines("esp32-c3-devkitm-1")[-1]
    with pytest.raises(BoardError, match=r"unknown board 'bluepill'.*`relax-aot new-board` writes"):
        board_lines("bluepill")
    new_board("bluepill", "cortex-m3", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        BoardError, match=r"use --board \./bluepill\.toml for the file in this folder"
    ):
        board_lines("bluepill")


def test_aliases_select_one_board_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_board("rpi5") == load_board("raspberry-pi-5")
    assert board_lines("rpi5")[:2] == [
        "raspberry-pi-5: Raspberry Pi 5 (BCM2712): four Cortex-A76", "also called rpi5",
    ]  # fmt: skip
    names = [alias for name in ALL for alias in load_board(name).aliases]
    assert len({*names, *ALL}) == len(names) + len(ALL)
    monkeypatch.setenv("RELAX_AOT_BOARDS", str(tmp_path))
    new_board("mine", "cortex-m3", tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text('aliases = ["m", "rpi5"]\n' + file.read_text())
    assert load_board("m").name == "mine"
    with pytest.raises(BoardError, match="'rpi5' is an alias of several boards, mine, raspberry"):
        load_board("rpi5")


@pytest.mark.slow
@pytest.mark.parametrize("cpu", CORES)
def test_a_new_board_loads_as_it_stands(cpu: str, tmp_path: Path) -> None:
    board = new_board("mine", cpu, tmp_path)
    assert (board.name, board.cpu) == ("mine", cpu)
    made = driver.compile_model(
        ROOT / "examples" / "gesture" / "gesture.onnx", str(tmp_path / "mine.toml"), GESTURE
    )
    assert made.board == board
    with pytest.raises(BoardError, match="exists"):
        new_board("mine", cpu, tmp_path)


@pytest.mark.parametrize("cpu", [cpu for cpu in CORES if CORES[cpu].family == "cortex_m"])
def test_the_comments_of_a_new_board_are_valid(cpu: str, tmp_path: Path) -> None:
    new_board("mine", cpu, tmp_path)
    path = tmp_path / "mine.toml"
    settings = re.compile(r"^# (\[+\w+\]+|\w+ = .*)$", re.MULTILINE)
    path.write_text(settings.sub(r"\1", path.read_text()))
    board = read_board(path)
    assert [region.name for region in board.regions] == ["ram", "sram2"]
    assert (board.emulator is None) == (cpu not in MACHINES.values())


@pytest.mark.parametrize("name", ["../x", "", "a/b", "-x", "x y"])
def test_a_new_board_has_a_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(BoardError):
        new_board(name, "cortex-m4", tmp_path / "boards")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_boards_come_from_a_folder_of_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_board("my-board", "cortex-m33", tmp_path / "boards")
    monkeypatch.setenv("RELAX_AOT_BOARDS", str(tmp_path / "boards"))
    assert "my-board" in list_boards() and load_board("my-board").cpu == "cortex-m33"
    new_board("pico", "cortex-m33", tmp_path / "more" / "relax_aot" / "boards")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "more"))
    assert {"pico", "my-board"} <= set(list_boards())
    new_board("host", "cortex-m4", tmp_path / "boards")
    with pytest.raises(RelaxAotError, match="'host' comes from relax_aot itself and from"):
        list_boards()
    monkeypatch.setenv("RELAX_AOT_BOARDS", str(tmp_path / "absent"))
    with pytest.raises(BoardError, match=r"RELAX_AOT_BOARDS names .*absent, which is not a folder"):
        list_boards()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('name = "dtcm"\nsize = "108K"', 'name = "tcm"\nsize = "108K"'), "a memory of kind ram"),
        (('name = "dtcm"\nsize = "108K"', 'name = "dtcm"\nsize = "129K"'), "at most 131072"),
    ],
)
def test_regions_are_parts_of_memories(change: Any, said: str, tmp_path: Path) -> None:
    text = (ROOT / "boards" / "nucleo-h743zi2.toml").read_text()
    assert change[0] in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(*change))
    with pytest.raises(BoardError, match=said):
        read_board(path)


@pytest.mark.slow
def test_constants_that_do_not_fit_are_said_and_may_lie_elsewhere(tmp_path: Path) -> None:
    path = enlarged("nucleo-f446re", {"flash": 16384}, tmp_path)
    source = ROOT / "examples" / "gesture" / "gesture.onnx"
    fits = attempt("gesture", "nucleo-f446re")
    assert isinstance(fits, Project)
    with pytest.raises(DoesNotFit, match="flash has 16384 bytes") as caught:
        driver.compile_model(source, str(path), GESTURE)
    assert caught.value.over_bytes == fits.const_bytes - 16384
    assert f"not placed: constants {fits.const_bytes}" in str(caught.value)
    apart = Options(bounds={"n": (1, 64)}, name="gesture", weights="blob")
    assert driver.compile_model(source, str(path), apart).interface.weights_apart
