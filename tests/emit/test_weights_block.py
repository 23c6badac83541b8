# SPDX-License-Identifier: Apache-2.0
"""Weights as a block apart from the code: what is wrong or damaged is refused, what is new fits.

The layout is read here by `struct` and `zlib` from the description in raot/weights.h alone.
"""

from __future__ import annotations

import struct
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.emit.weights import weights_of
from relax_aot.errors import RelaxAotError
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Constant
from relax_aot.ir.types import DType, TensorType
from relax_aot.project import Project
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import HostModel, StatusError, build_library, host_model
from relax_aot.verify.library import Library
from tests.models.onnx_text import model_of
from tests.models.perceptron import perceptron
from tests.models.taggers import gru_tagger

OPTIONS = Options(
    bounds={"n": (1, 9), "batch": (1, 2)}, state={"state": "stateN"}, name="tags", weights="blob"
)
OK, NULL, ALIGN, WEIGHTS = 0, -1, -3, -8
HEADER, ENTRY = 64, 16


@cache
def tagger(seed: int = 0) -> Project:
    return driver.compile_model(gru_tagger(seed), "host", OPTIONS)


def block_of(project: Project) -> bytes:
    return project.files[f"{project.name}_weights.bin"]


class Binder:
    """`tags_bind_weights` of a built library, given bytes that it may change."""

    def __init__(self, project: Project) -> None:
        self.ffi = cffi.FFI()
        self.ffi.cdef(
            """
            struct tags_memory {
                void *arena; size_t arena_bytes; void *state; const void *weights;
            };
            int tags_bind_weights(struct tags_memory *memory, const void *block, size_t bytes);
            """
        )
        self.library: Any = self.ffi.dlopen(str(build_library(project)))
        block = block_of(project)
        self.raw = np.zeros(len(block) + 64, np.uint8)
        start = -self.raw.ctypes.data % 64
        self.data = self.raw[start : start + len(block)]
        self.data[:] = np.frombuffer(block, np.uint8)
        self.address = self.data.ctypes.data
        self.memory = self.ffi.new("struct tags_memory *")

    def bind(self, size: int | None = None, shift: int = 0) -> int:
        pointer = self.ffi.cast("void *", self.address + shift)
        size = self.data.size if size is None else size
        return int(self.library.tags_bind_weights(self.memory, pointer, size))

    @property
    def bound(self) -> bool:
        return bool(self.memory.weights != self.ffi.NULL)


@pytest.fixture(scope="module")
def binder() -> Binder:
    return Binder(tagger())


def table_of(block: bytes) -> Iterator[tuple[int, int, int, int]]:
    (count,) = struct.unpack_from("<I", block, 32)
    yield from struct.iter_unpack("<4I", block[HEADER : HEADER + ENTRY * count])


def test_the_block_is_laid_out_as_described() -> None:
    block = block_of(tagger())
    magic, version, total = struct.unpack_from("<8sII", block)
    assert (magic, version, total) == (b"RAOTWGTS", 1, len(block))
    (data_offset,) = struct.unpack_from("<I", block, 36)
    table_end = HEADER + ENTRY * len(list(table_of(block)))
    data_crc, table_crc, header_crc = struct.unpack_from("<3I", block, 52)
    assert zlib.crc32(block[:60]) == header_crc
    assert zlib.crc32(block[HEADER:table_end]) == table_crc
    assert zlib.crc32(block[table_end:]) == data_crc
    weights = {i.name: i.raw_data for i in gru_tagger().graph.initializer}
    found = [block[offset : offset + size] for offset, size, _, _ in table_of(block)]
    assert weights["recurrence1"] in found and weights["out_bias"] in found
    for offset, size, _, crc in table_of(block):
        assert offset >= data_offset and zlib.crc32(block[offset : offset + size]) == crc


@pytest.mark.long
def test_what_is_whole_is_bound_and_more_room_is_no_error(binder: Binder) -> None:
    assert binder.bind() == OK and binder.bound
    assert binder.bind(binder.data.size + 1) == OK


def test_every_flipped_bit_of_header_and_table_is_refused() -> None:
    binder = Binder(tagger())
    end = HEADER + ENTRY * len(list(table_of(block_of(tagger()))))
    for bit in range(8 * end):
        binder.data[bit // 8] ^= 1 << bit % 8
        assert binder.bind() == WEIGHTS and not binder.bound, f"bit {bit}"
        binder.data[bit // 8] ^= 1 << bit % 8
    assert binder.bind() == OK


@pytest.mark.slow
def test_ten_thousand_flipped_bits_of_the_data_are_refused() -> None:
    binder = Binder(tagger())
    end = HEADER + ENTRY * len(list(table_of(block_of(tagger()))))
    bits = np.random.default_rng(0).integers(8 * end, 8 * binder.data.size, 10_000)
    for bit in bits:
        binder.data[bit // 8] ^= 1 << bit % 8
        assert binder.bind() == WEIGHTS and not binder.bound, f"bit {bit}"
        binder.data[bit // 8] ^= 1 << bit % 8
    assert binder.bind() == OK


def test_truncation_at_every_length_is_refused() -> None:
    binder = Binder(tagger())
    for size in range(binder.data.size):
        assert binder.bind(size) == WEIGHTS and not binder.bound, f"{size} bytes"
    assert binder.bind() == OK


def test_null_and_misaligned_blocks_are_refused(binder: Binder) -> None:
    before = binder.memory.weights
    assert binder.bind(shift=4) == ALIGN
    assert binder.library.tags_bind_weights(binder.ffi.NULL, before, 64) == NULL
    assert binder.library.tags_bind_weights(binder.memory, binder.ffi.NULL, 64) == NULL
    assert binder.memory.weights == before


def reference(seed: int, feeds: dict[str, Any]) -> Any:
    session = onnxruntime.InferenceSession(gru_tagger(seed).SerializeToString())
    return session.run(["tags"], feeds)[0]


def given(block: bytes) -> HostModel:
    """The code of the first weights, running with others."""
    library = Library(build_library(tagger()))
    library.give_weights(block)
    return HostModel(tagger().interface, library)


@pytest.mark.parametrize("n", [1, 4, 9])
def test_weights_of_another_training_fit_the_code_that_is_there(n: int) -> None:
    frames = np.random.default_rng(n).normal(size=(n, 2, 6)).astype(np.float32)
    feeds = {"frames": frames, "state": np.zeros((1, 2, 7), np.float32)}
    assert block_of(tagger(1)) != block_of(tagger(0))
    for seed, model in ((0, host_model(tagger())), (1, given(block_of(tagger(1))))):
        found = model(frames=frames)["tags"]
        np.testing.assert_allclose(found, reference(seed, feeds), rtol=1e-5, atol=1e-6)


def test_run_and_init_refuse_weights_of_another_model() -> None:
    options = Options(bounds={"batch": (1, 2)}, name="tags", weights="blob")
    other = driver.compile_model(perceptron(), "host", options)
    block = block_of(other).ljust(len(block_of(tagger())), b"\0")
    frames = np.zeros((1, 1, 6), np.float32)
    model = given(block)
    with pytest.raises(StatusError, match="tags_init ended with RAOT_ERR_WEIGHTS"):
        model(frames=frames)
    library = model.runner
    raw = library.run([1, 1], [frames.view(np.uint8).reshape(-1)])
    assert raw.status == WEIGHTS and raw.untouched


@pytest.mark.slow
def test_the_sanitizers_find_nothing_in_the_check() -> None:
    frames = np.ones((3, 1, 6), np.float32)
    found = host_model(tagger(), sanitize=True)(frames=frames)["tags"]
    feeds = {"frames": frames, "state": np.zeros((1, 1, 7), np.float32)}
    np.testing.assert_allclose(found, reference(0, feeds), rtol=1e-5, atol=1e-6)


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an385", "aarch64-linux"])
def test_a_board_runs_with_a_block(board: str) -> None:
    project = driver.compile_model(gru_tagger(), board, OPTIONS)
    frames = np.ones((5, 2, 6), np.float32)
    (run,) = emulate(project, [{"frames": frames}])
    feeds = {"frames": frames, "state": np.zeros((1, 2, 7), np.float32)}
    assert run.status == OK
    np.testing.assert_allclose(run.outputs["tags"], reference(0, feeds), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["c", "asm"])
def test_other_forms_of_weights_give_the_same_numbers(form: str) -> None:
    project = driver.compile_model(gru_tagger(), "host", replace(OPTIONS, weights=form))
    assert ("tags_weights.bin" in project.files) == (form == "asm")
    frames = np.ones((5, 1, 6), np.float32)
    found = host_model(project)(frames=frames)["tags"]
    np.testing.assert_array_equal(found, host_model(tagger())(frames=frames)["tags"])


def test_an_unknown_form_is_an_error() -> None:
    with pytest.raises(RelaxAotError, match="weights are one of auto, c, asm, blob"):
        driver.compile_model(gru_tagger(), "host", replace(OPTIONS, weights="json"))


def test_a_project_with_a_block_builds_and_runs_by_itself(tmp_path: Path) -> None:
    folder = tagger().write(tmp_path / "out")
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wcast-align", "-Werror"]
    sources = sorted(path.name for path in folder.glob("*.c"))
    subprocess.run(["cc", *strict, *sources, "-o", "main", "-lm"], cwd=folder, check=True)
    assert subprocess.run([folder / "main"], check=False).returncode == 0


def test_more_text_than_c_compilers_read_is_refused() -> None:
    count = 4 * 2**20 + 1
    numbers = np.broadcast_to(np.float32(1), (count,))
    constant = Constant("w", TensorType(DType.F32, (Dim.of(count),)), numbers)
    with pytest.raises(RelaxAotError, match="--weights asm"):
        weights_of([constant], "m", 16, {}, "c")


def zeros(name: str, count: int) -> Constant:
    return Constant(name, TensorType(DType.F32, (Dim.of(count),)), np.zeros(count, np.float32))


def test_large_constants_begin_with_a_line_of_the_cache() -> None:
    """Of the three, the first two fill 4 + 5000 bytes: the third would begin within a line."""
    constants = [zeros("a", 1), zeros("b", 1250), zeros("c", 1250), zeros("d", 1)]
    linked, text, apart = (
        weights_of(constants, "m", 16, {}, form) for form in ("asm", "c", "blob")
    )
    assert [view.offset for view in linked.constants] == [0, 64, 5120, 10128]
    assert linked.alignment == 64
    assert [view.alignment for view in text.constants] == [16, 64, 64, 16]
    assert all(view.offset % 64 == 0 for view in apart.constants[1:3])


@pytest.mark.parametrize("form", ["asm", "c"])
def test_projects_align_large_constants(form: str) -> None:
    text = "net (float[n, 64] x) => (float[n, 64] y)", "y = MatMul (x, w)"
    model = model_of(*text, {"w": np.ones((64, 64), np.float32)})
    options = Options(bounds={"n": (1, 2)}, weights=form, name="net")
    written = driver.compile_model(model, "host", options).files["net_weights.c"].decode()
    assert {"asm": ".balign 64", "c": "RAOT_ALIGNAS(64) const float net_w"}[form] in written
