# SPDX-License-Identifier: Apache-2.0
"""Boards with several memories: values and constants find a place in each."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from elftools.elf.elffile import ELFFile

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.planning.regions import NoRoom
from relax_aot.project import Project
from relax_aot.project.board_table import BoardError
from relax_aot.verify.host import host_model
from tests.conftest import ROOT
from tests.models.encoder import encoder

HOST = (ROOT / "boards" / "host.toml").read_text()
SMALL = """
[[region]]
name = "dtcm"
size = "{fast}"

[[region]]
name = "sram"
size = "{slow}"
"""
CONSTANTS = """
[[region]]
name = "near"
size = "1K"
holds = "constants"
section = ".near_constants"

[[region]]
name = "far"
size = "1M"
holds = "constants"
section = ".far_constants"
"""


def model() -> onnx.ModelProto:
    return encoder(width=16, heads=2, layers=1, hidden=32)


def project_on(folder: Path, regions: str) -> Project:
    board = folder / "two.toml"
    board.write_text(HOST + regions)
    options = Options(bounds={"n": (1, 40), "batch": (1, 2)}, name="enc")
    return driver.compile_model(model(), str(board), options)


def sections_of(path: Path) -> dict[str, int]:
    with path.open("rb") as file:
        return {str(s.name): int(s["sh_size"]) for s in ELFFile(file).iter_sections()}


@pytest.mark.long
def test_values_spread_over_two_arenas_compute_the_same(tmp_path: Path) -> None:
    whole = project_on(tmp_path, "")
    (one,) = whole.plan.arenas
    fast = one.bytes // 2 // 1024
    project = project_on(tmp_path, SMALL.format(fast=f"{fast}K", slow="1M"))
    near, far = project.plan.arenas
    assert 0 < near.bytes <= fast * 1024 and far.bytes > 0
    header = project.files["enc.h"].decode()
    for text in ("void *arena_sram;", "size_t arena_sram_bytes;", "ENC_ARENA_SRAM_BYTES"):
        assert text in header
    run = host_model(project, sanitize=True)
    session = onnxruntime.InferenceSession(model().SerializeToString())
    for batch, n in ((1, 1), (2, 17), (2, 40)):
        x = np.random.default_rng(n).normal(size=(batch, n, 16)).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(run(x=x)["y"], wanted, atol=1e-5)


@pytest.mark.slow
def test_one_byte_less_in_the_second_arena_is_refused(tmp_path: Path) -> None:
    """Each arena is checked by itself; the caller's own program says so."""
    project = project_on(tmp_path, SMALL.format(fast="4K", slow="1M"))
    folder = project.write(tmp_path / "enc")
    (folder / "short.c").write_text("""
#include "enc.h"
ENC_ARENA(static, arena);
ENC_ARENA_SRAM(static, arena_sram);
static unsigned char in_x[ENC_X_BYTES], out_y[ENC_Y_BYTES];
int main(void)
{
    struct enc_memory memory = {.arena = arena, .arena_bytes = sizeof arena,
                                .arena_sram = arena_sram, .arena_sram_bytes = sizeof arena_sram};
    const struct enc_dims dims = {.n = ENC_N_MAX, .batch = ENC_BATCH_MAX};
    const struct enc_inputs in = {.x = (const void *)in_x};
    const struct enc_outputs out = {.y = (void *)out_y};
    if (enc_run(&memory, &dims, &in, &out) != RAOT_OK) {
        return 1;
    }
    memory.arena_sram_bytes = enc_arena_sram_bytes(&dims) - 1u;
    if (enc_run(&memory, &dims, &in, &out) != RAOT_ERR_ARENA) {
        return 2;
    }
    memory.arena_sram_bytes = sizeof arena_sram;
    memory.arena_bytes = enc_arena_bytes(&dims) - 1u;
    if (enc_run(&memory, &dims, &in, &out) != RAOT_ERR_ARENA) {
        return 3;
    }
    memory.arena_bytes = sizeof arena;
    memory.arena_sram = arena;
    return enc_run(&memory, &dims, &in, &out) == RAOT_ERR_OVERLAP ? 0 : 4;
}
""")
    sources = ["short.c", "enc.c", "enc_weights.c"]
    command = ["cc", "-std=c11", "-I.", "-fsanitize=address,undefined", *sources, "-o", "short"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    done = subprocess.run(["./short"], cwd=folder, timeout=60, check=False)
    assert done.returncode == 0


def test_what_fits_the_first_region_needs_no_second(tmp_path: Path) -> None:
    project = project_on(tmp_path, SMALL.format(fast="1M", slow="1M"))
    assert len(project.plan.arenas) == 1
    assert "arena_sram" not in project.files["enc.h"].decode()


def test_too_little_room_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NoRoom, match=r"dtcm has 1024, sram has 2048; \d+ bytes do not fit"):
        project_on(tmp_path, SMALL.format(fast="1K", slow="2K"))


@pytest.mark.slow
def test_constants_lie_in_the_sections_of_their_regions(tmp_path: Path) -> None:
    project = project_on(tmp_path, CONSTANTS)
    folder = project.write(tmp_path / "enc")
    command = ["cc", "-std=c11", "-I.", "-c", "enc_weights.c", "-o", "weights.o"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    sizes = sections_of(folder / "weights.o")
    assert 0 < sizes[".near_constants"] <= 1024
    assert sizes[".far_constants"] + sizes[".near_constants"] >= project.const_bytes
    assert sizes.get(".rodata", 0) == 0


def test_constants_without_room_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NoRoom, match=r"constants of \d+ bytes do not fit: far has 2048"):
        project_on(tmp_path, CONSTANTS.split("\n\n")[1].replace('"1M"', '"2K"'))


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ('[[region]]\nname = "A b"\nsize = 1\n', r"region\[0\]\.name: expected lower-case"),
        ('[[region]]\nname = "a"\nsize = 0\n', r"region\[0\]\.size: expected bytes"),
        (
            '[[region]]\nname = "a"\nsize = 1\nsection = ".x"\n',
            r"section: expected no such key without holds",
        ),
        (2 * '[[region]]\nname = "a"\nsize = 1\n', r"region\[1\]\.name: expected a name that no"),
    ],
)
def test_mistakes_in_regions_name_the_key(tmp_path: Path, regions: str, message: str) -> None:
    with pytest.raises(BoardError, match=message):
        project_on(tmp_path, "\n" + regions)
