# SPDX-License-Identifier: Apache-2.0
"""The program that reads speech from WAV files, built against a stand-in for the model.

The stand-in answers sums over its input that tell whether context, new samples and state are
where they belong.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

ROOT = Path(__file__).parents[2]
CHUNK, CONTEXT = 512, 64
Samples = npt.NDArray[np.int16]

HEADER = """
#include <stddef.h>
#include <stdint.h>
#include "raot/arena.h"
#include "raot/status.h"
#define SILERO_SEQUENCE_MAX 576
enum {
    SILERO_ALIGNMENT = 16, SILERO_ARENA_BYTES = 16, SILERO_STATE_BYTES = 16, SILERO_OUTPUT_BYTES = 4
};
#define SILERO_ARENA(storage, name) \\
    RAOT_ALIGNAS(SILERO_ALIGNMENT) storage unsigned char name[SILERO_ARENA_BYTES]
struct silero_inputs { const float *input; };
struct silero_outputs { float *output; };
struct silero_memory { void *arena; size_t arena_bytes; void *state; };
enum raot_status silero_init(const struct silero_memory *);
enum raot_status silero_run(const struct silero_memory *, const struct silero_inputs *,
                            const struct silero_outputs *);
"""

# Sum of the context, plus 10 times that of the chunk, plus 1000 times the number of the call.
MODEL = """
#include "silero.h"
enum raot_status silero_init(const struct silero_memory *memory)
{
    *(int32_t *)memory->state = 0;
    return RAOT_OK;
}
enum raot_status silero_run(const struct silero_memory *memory, const struct silero_inputs *in,
                            const struct silero_outputs *out)
{
    double sum = 1000.0 * ++*(int32_t *)memory->state;
    for (int32_t i = 0; i < SILERO_SEQUENCE_MAX; i++) {
        sum += (i < 64 ? 1.0 : 10.0) * (double)in->input[i];
    }
    out->output[0] = (float)sum;
    return RAOT_OK;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("vad")
    (folder / "silero.h").write_text(HEADER)
    (folder / "silero.c").write_text(MODEL)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wvla"]
    flags += ["-Wdouble-promotion", "-Werror", "-O1", "-g", "-fsanitize=address,undefined"]
    sources = [ROOT / "examples" / "silero_vad" / "vad.c", folder / "silero.c"]
    includes = [f"-I{folder}", f"-I{ROOT / 'runtime_c' / 'include'}"]
    subprocess.run([compiler, *flags, *includes, "-o", folder / "vad", *sources], check=True)
    return folder / "vad"


def riff(*chunks: bytes, name: bytes = b"WAVE") -> bytes:
    body = name + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)


def form(encoding: int = 1, channels: int = 1, rate: int = 16000, bits: int = 16) -> bytes:
    frame = channels * bits // 8
    return chunk(
        b"fmt ", struct.pack("<HHIIHH", encoding, channels, rate, rate * frame, frame, bits)
    )


def extensible() -> bytes:
    guid = struct.pack("<H", 1) + bytes.fromhex("000000001000800000aa00389b71")
    start = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16000, 32000, 2, 16, 22, 16, 4)
    return chunk(b"fmt ", start + guid)


def speech(count: int) -> Samples:
    return np.random.default_rng(count).integers(-32768, 32768, count).astype("<i2")


def expected(samples: Samples) -> list[float]:
    full = np.zeros(-(-len(samples) // CHUNK) * CHUNK)
    full[: len(samples)] = samples / 32768.0
    padded = np.concatenate([np.zeros(CONTEXT), full])
    return [
        1000.0 * (i + 1)
        + padded[i * CHUNK : i * CHUNK + CONTEXT].sum()
        + 10.0 * padded[i * CHUNK + CONTEXT : (i + 1) * CHUNK + CONTEXT].sum()
        for i in range(len(full) // CHUNK)
    ]


def run(program: Path, data: bytes, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "speech.wav").write_bytes(data)
    command = [program, tmp_path / "speech.wav"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def check(program: Path, data: bytes, samples: Samples, tmp_path: Path) -> None:
    done = run(program, data, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_allclose(
        [float(line) for line in done.stdout.split()], expected(samples), 1e-6
    )


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1024, 5000])
def test_each_chunk_comes_with_the_end_of_the_one_before(
    program: Path, count: int, tmp_path: Path
) -> None:
    samples = speech(count)
    check(program, riff(form(), chunk(b"data", samples.tobytes())), samples, tmp_path)


def test_other_chunks_are_skipped_also_those_of_odd_size(program: Path, tmp_path: Path) -> None:
    samples = speech(700)
    data = chunk(b"data", samples.tobytes())
    file = riff(
        chunk(b"LIST", b"abc"), form(), chunk(b"fact", bytes(1001)), data, chunk(b"id3 ", b"x")
    )
    check(program, file, samples, tmp_path)


def test_the_extensible_format_is_understood(program: Path, tmp_path: Path) -> None:
    samples = speech(700)
    check(program, riff(extensible(), chunk(b"data", samples.tobytes())), samples, tmp_path)


@pytest.mark.parametrize("stated", [0xFFFFFFFF, 0x7FFFFFFE])
def test_data_of_unknown_length_end_with_the_file(
    program: Path, stated: int, tmp_path: Path
) -> None:
    samples = speech(700)
    data = b"data" + struct.pack("<I", stated) + samples.tobytes()
    check(program, riff(form(), data), samples, tmp_path)


def test_half_a_sample_at_the_end_is_left_out(program: Path, tmp_path: Path) -> None:
    samples = speech(600)
    check(program, riff(form(), chunk(b"data", samples.tobytes() + b"\x7f")), samples, tmp_path)


DATA = chunk(b"data", bytes(2048))
WRONG = {
    "it is not a WAV file": [b"", b"RIFF", b"OggS" + bytes(60), riff(form(), DATA, name=b"AVI ")],
    "it has more than one channel": [riff(form(channels=2), DATA)],
    "its sample rate is not 16000 Hz": [riff(form(rate=8000), DATA)],
    "its samples are not 16-bit PCM": [
        riff(form(bits=8), DATA),
        riff(form(encoding=3, bits=32), DATA),
        riff(form(encoding=0xFFFE), DATA),
    ],
    "its samples come before their format": [riff(DATA, form())],
    "its format chunk is cut off": [riff(form()[:-2]), riff(chunk(b"fmt ", bytes(10)), DATA)],
    "it has no samples": [riff(), riff(form()), riff(form(), b"LIST\xff\xff\xff\x7fabc")],
}


@pytest.mark.parametrize(
    ("message", "data"), [(message, data) for message, files in WRONG.items() for data in files]
)
def test_a_file_that_it_cannot_use_is_refused_in_words(
    program: Path, message: str, data: bytes, tmp_path: Path
) -> None:
    done = run(program, data, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{tmp_path / 'speech.wav'}: {message}\n"


def test_a_missing_file_and_missing_arguments_are_refused(program: Path, tmp_path: Path) -> None:
    assert subprocess.run([program, tmp_path / "none.wav"], capture_output=True).returncode == 2
    assert subprocess.run([program], capture_output=True).returncode == 2
