# SPDX-License-Identifier: Apache-2.0
"""Blocks of weights of 2 GiB and more: they are mapped into memory, not linked.

Most tests lower the limit of what is linked. The one that reads real offsets beyond 2**32 uses a
sparse file: a gap between two constants takes no room on the disk.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.emit import weights
from relax_aot.emit.blob import Layout, Part, lay_out
from relax_aot.errors import RelaxAotError
from relax_aot.files import Block
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Constant
from relax_aot.ir.parse import parse
from relax_aot.ir.types import DType, TensorType
from relax_aot.planning import TooLarge
from relax_aot.project import Project
from relax_aot.resources import data_dir
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import HostModel, build_library, host_model
from relax_aot.verify.library import BLOCK, Library
from tests.models.taggers import gru_tagger
from tests.models.trainings import samples, trained

OPTIONS = Options(
    bounds={"n": (1, 9), "batch": (1, 2)}, state={"state": "stateN"}, name="tags", weights="blob"
)
HEADER, ENTRY, GAP = 64, 16, 5 * 2**30
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wcast-align", "-Werror")


@pytest.fixture
def nothing_is_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "LINKED_BYTES", 1000)


def compiled(board: str = "host", form: str = "blob") -> Project:
    return driver.compile_model(gru_tagger(), board, replace(OPTIONS, weights=form))


# The layout


def test_offsets_and_sizes_have_40_bits_and_more() -> None:
    zeros = np.zeros(2**31 - 64, np.uint8).data  # memory that is never touched
    tables = [(DType.I8, zeros[: 2**31 - 64 - n]) for n in (0, 1, 5)]
    layout = lay_out([*tables, (DType.F32, b"\1\2\3\4")], 16, 64)
    assert layout.parts[-1].offset > 2**32 and layout.total_bytes > 3 * (2**31 - 100)
    identity = layout.identity("code")
    low, high = struct.unpack_from("<I", identity, 12)[0], struct.unpack_from("<I", identity, 40)[0]
    assert low | high << 32 == layout.total_bytes and high == 1
    small = replace(layout, parts=(replace(layout.parts[-1]), Part(7, DType.I8, b"abc")))
    first, second = struct.iter_unpack("<4I", small.table())
    offset = layout.parts[-1].offset
    assert first[0] | first[2] >> 8 << 32 == offset and first[2] & 255 == second[2] + _types()
    assert first[1] == 4 and first[3] == zlib.crc32(b"\1\2\3\4")
    assert second == (7, 3, second[2], zlib.crc32(b"abc"))


def _types() -> int:
    """How far the numbers of f32 and i8 are apart."""
    numbers = list(DType)
    return numbers.index(DType.F32) - numbers.index(DType.I8)


def test_linked_forms_refuse_2_gib_and_name_the_way_out() -> None:
    kind = TensorType(DType.I8, (Dim.of(2**30),))
    constants = [Constant(f"table{n}", kind, np.zeros(2**30, np.int8)) for n in range(2)]
    for form in ("auto", "asm"):
        with pytest.raises(RelaxAotError, match=r"cannot be linked into a program.*--weights blob"):
            weights.weights_of(constants, "m", 16, {}, form)


# Projects whose weights are mapped


@pytest.mark.usefixtures("nothing_is_linked")
def test_a_project_maps_its_weights(tmp_path: Path) -> None:
    project = compiled()
    folder = project.write(tmp_path / "out")
    assert not (folder / "tags_weights.c").exists() and not (folder / "tags_weights.h").exists()
    assert "weights.c" not in (folder / "README.md").read_text()
    sources = sorted(path.name for path in folder.glob("*.c"))
    subprocess.run(["cc", *STRICT, *sources, "-o", "main", "-lm"], cwd=folder, check=True)
    assert subprocess.run(["./main"], cwd=folder, check=False).returncode == 0
    (folder / "tags_weights.bin").write_bytes(project.files["tags_weights.bin"][:-1])
    assert subprocess.run(["./main"], cwd=folder, check=False).returncode == 1
    (folder / "tags_weights.bin").unlink()
    assert subprocess.run(["./main"], cwd=folder, check=False).returncode == 1


@pytest.mark.long
@pytest.mark.usefixtures("nothing_is_linked")
def test_cmake_builds_a_project_that_maps_its_weights(tmp_path: Path) -> None:
    folder = compiled().write(tmp_path / "out")
    for command in (["-S", ".", "-B", "build"], ["--build", "build"]):
        subprocess.run(["cmake", *command], cwd=folder, check=True, capture_output=True)
    assert subprocess.run([folder / "build" / "tags_example"], check=False).returncode == 0


@pytest.mark.usefixtures("nothing_is_linked")
@pytest.mark.parametrize("sanitize", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_host_maps_the_weights(sanitize: bool) -> None:
    frames = np.random.default_rng(0).normal(size=(5, 2, 6)).astype(np.float32)
    found = host_model(compiled(), sanitize=sanitize)(frames=frames)["tags"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "LINKED_BYTES", 2**31 - 1)
        expected = host_model(compiled(), sanitize=sanitize)(frames=frames)["tags"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("nothing_is_linked")
@pytest.mark.long
def test_entries_map_their_weights(tmp_path: Path) -> None:
    options: Any = {"bounds": {"n": 9, "batch": 2}, "state": {"state": "stateN"}, "name": "two"}
    sources = {"tag": gru_tagger(), "again": gru_tagger()}
    project = rx.compile(sources, weights="blob", **options)
    frames = np.random.default_rng(0).normal(size=(5, 2, 6)).astype(np.float32)
    expected = host_model(compiled())(frames=frames)["tags"]
    host = project.host()
    np.testing.assert_array_equal(host.tag(frames=frames)["tags"], expected)
    folder = project.write(tmp_path / "out")
    sources_of = sorted(path.name for path in folder.glob("*.c"))
    assert "two_weights.c" not in sources_of
    subprocess.run(["cc", *STRICT, *sources_of, "-o", "main", "-lm"], cwd=folder, check=True)
    assert subprocess.run(["./main"], cwd=folder, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_is_linked")
def test_other_targets_refuse_them() -> None:
    with pytest.raises(RelaxAotError, match=r"need 64-bit addresses, but mps2-an386 has"):
        compiled("mps2-an386")
    project = compiled("aarch64-linux")
    with pytest.raises(RelaxAotError, match=r"cannot hold 2 GiB; use verify --board host"):
        emulate(project, [{"frames": np.zeros((1, 1, 6), np.float32)}])


# The checksum


@pytest.fixture(scope="module")
def crc32(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`raot_crc32` of an array."""
    ffi = cffi.FFI()
    ffi.cdef("uint32_t crc(const unsigned char *data, size_t bytes);")
    folder, include = tmp_path_factory.mktemp("crc"), data_dir("runtime_c") / "include"
    (folder / "crc.c").write_text(
        '#include "raot/weights.h"\n'
        "uint32_t crc(const unsigned char *data, size_t bytes);\n"
        "uint32_t crc(const unsigned char *data, size_t bytes)\n"
        "{\n    return raot_crc32(data, bytes);\n}\n"
    )
    target = folder / "crc.so"
    arguments = ["-O2", "-shared", "-fPIC", f"-I{include}", "crc.c", "-o", str(target)]
    subprocess.run(["cc", *STRICT, *arguments], cwd=folder, check=True)
    library: Any = ffi.dlopen(str(target))
    return lambda data: library.crc(ffi.cast("unsigned char *", data.ctypes.data), data.size)


SLICED = 65536


@pytest.mark.parametrize("size", [0, 1, 9, SLICED - 1, *range(SLICED, SLICED + 9), 999_999])
@pytest.mark.parametrize("shift", [0, 3])
def test_the_checksum_is_that_of_zlib(size: int, shift: int, crc32: Any) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + shift, np.uint8)[shift:]
    assert crc32(data) == zlib.crc32(data.tobytes())


# Offsets beyond 2**32


def with_gap(layout: Layout) -> Layout:
    """All constants but the first lie behind the gap."""
    first, *others = layout.parts
    moved = tuple(replace(part, offset=part.offset + GAP) for part in others)
    return replace(layout, parts=(first, *moved), total_bytes=layout.total_bytes + GAP)


def write_sparse(layout: Layout, expected: bytes, path: Path) -> None:
    """The block in a file, by the description in raot/weights.h."""
    table = layout.table()
    crc, at, zeros = 0, HEADER + len(table), memoryview(bytes(2**24))
    with path.open("wb") as file:
        for part in (*layout.parts, Part(layout.total_bytes, DType.I8, b"")):
            while at < part.offset:
                step = min(part.offset - at, len(zeros))
                crc = zlib.crc32(zeros[:step], crc)
                at += step
            file.seek(at)
            file.write(part.data)
            crc = zlib.crc32(part.data, crc)
            at += len(part.data)
        file.truncate(at)
        header = expected + struct.pack("<II", crc, zlib.crc32(table))
        file.seek(0)
        file.write(header + struct.pack("<I", zlib.crc32(header)) + table)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["float", "int8"])
def test_constants_behind_5_gib(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "float":
        model, options = gru_tagger(), OPTIONS
        frames = np.random.default_rng(1).normal(size=(5, 2, 6)).astype(np.float32)
        inputs = {"frames": frames}
    else:
        model, options = trained("qdq channels", 0), Options(weights="blob", name="net")
        inputs = {"x": samples(0)[0]}
    expected = host_model(driver.compile_model(model, "host", options))(inputs)
    made: list[tuple[Layout, bytes]] = []

    def kept(layout: Layout, expected: bytes) -> Block:
        made.append((layout, expected))
        text = b"in a sparse file"
        return Block(lambda: (text,), len(text))

    monkeypatch.setattr(weights, "lay_out", lambda *given: with_gap(lay_out(*given)))
    monkeypatch.setattr(Layout, "packed", kept)
    project = driver.compile_model(model, "host", options)
    library = tmp_path / "model.so"
    shutil.copy(build_library(project), library)
    write_sparse(*made[-1], tmp_path / BLOCK)
    assert (tmp_path / BLOCK).stat().st_size > GAP
    found = HostModel(project.interface, Library(library))(inputs)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    with (tmp_path / BLOCK).open("r+b") as file:
        file.seek(made[-1][0].total_bytes - 1)
        file.write(b"\x55")
    with pytest.raises(RelaxAotError, match="RAOT_ERR_WEIGHTS"):
        HostModel(project.interface, Library(library))(inputs)


def test_a_state_of_more_than_2_gib_is_refused() -> None:
    text = """
        symbol n in 1..2
        state %a = %b
        state %c = %d

        func @main(%a: f32[400000000], %c: f32[400000000], %x: f32[n]) {
          %b: f32[400000000] = neg(%a)
          %d: f32[400000000] = neg(%c)
          %y: f32[n] = neg(%x)
          return %y, %b, %d
        }"""
    module = parse(text)
    with pytest.raises(TooLarge, match="the state needs 3200000016 bytes; at most 2147483647 can"):
        driver.compile_model(module, "host", Options(name="m"))
