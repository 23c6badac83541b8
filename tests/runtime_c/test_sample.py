# SPDX-License-Identifier: Apache-2.0
"""The sampler in C chooses the tokens that a program in double precision chooses."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from relax_aot.toolchain.compilers import host_compiler
from tests.conftest import ROOT
from tests.runtime_c.sampling import Logits, expected, pcg

DECLARED = """
struct raot_sampling {float temperature; int32_t top_k; float top_p, min_p, repetition_penalty;};
void draw(uint64_t seed, uint64_t sequence, uint32_t *values, int32_t count);
int32_t sample(float *logits, int32_t count, const struct raot_sampling *how,
               const unsigned char *seen, uint64_t seed);
float log_probability(const float *logits, int32_t count, int32_t token);
"""
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wdouble-promotion",
         "-Werror", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC")  # fmt: skip


@dataclass(frozen=True)
class Sampler:
    ffi: Any
    library: Any

    def draw(self, seed: int, sequence: int, count: int) -> list[int]:
        values = self.ffi.new("uint32_t[]", count)
        self.library.draw(seed, sequence, values, count)
        return list(values)

    def sample(
        self, logits: Logits, seed: int = 0, seen: tuple[int, ...] = (), **how: float
    ) -> int:
        chosen = self.ffi.new("struct raot_sampling *", {**how, "top_k": int(how.get("top_k", 0))})
        values = np.array(logits, np.float32)
        bits = np.zeros(len(values) + 7, np.uint8)
        bits[list(seen)] = 1
        data = self.ffi.from_buffer("float[]", values)
        packed = self.ffi.from_buffer("unsigned char[]", np.packbits(bits, bitorder="little"))
        return int(self.library.sample(data, len(values), chosen, packed, seed))


@pytest.fixture(scope="module")
def sampler(tmp_path_factory: pytest.TempPathFactory) -> Sampler:
    library = tmp_path_factory.mktemp("sample") / "sample.so"
    source = ROOT / "tests" / "runtime_c" / "sample_values.c"
    include = f"-I{ROOT / 'runtime_c' / 'include'}"
    command = [*host_compiler().command, *FLAGS, include, str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ffi = cffi.FFI()
    ffi.cdef(DECLARED)
    return Sampler(ffi, ffi.dlopen(str(library)))


def test_random_numbers_are_those_of_the_reference(sampler: Sampler) -> None:
    """The first round of `pcg32-demo` in the reference implementation (pcg-random.org)."""
    published = [0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293, 0xBFA4784B, 0xCBED606E]
    assert sampler.draw(42, 54, 6) == published
    random = pcg(7, 2**62 + 3)
    assert sampler.draw(7, 2**62 + 3, 50) == [random() for _ in range(50)]


def test_choices_are_those_of_double_precision(sampler: Sampler) -> None:
    rng = np.random.default_rng(0)
    compared = 0
    for seed in range(1500):
        count = int(rng.choice([1, 2, 7, 100, 1000]))
        logits = (rng.normal(size=count) * rng.choice([0.1, 3, 20])).astype(np.float32)
        if seed % 3 == 0:
            logits = np.round(logits)  # equal ones
        how: dict[str, float] = {}
        for field, values in (
            ("temperature", (0.3, 1.0, 2.5)), ("top_k", (1, 2, 5, 40, 2000)),
            ("top_p", (0.01, 0.5, 0.9, 0.99)), ("min_p", (0.02, 0.3, 1.0)),
            ("repetition_penalty", (1.3, 0.7)),
        ):  # fmt: skip
            if rng.random() < (0.9 if field == "temperature" else 0.4):
                how[field] = float(np.float32(rng.choice(values)))
        seen = tuple(rng.integers(count, size=3).tolist()) if seed % 2 else ()
        token, near = expected(logits, seed, seen, how)
        if not near:
            compared += 1
            assert sampler.sample(logits, seed, seen, **how) == token, (seed, how)
    assert compared > 1200


def test_every_token_is_drawn_as_often_as_it_is_likely(sampler: Sampler) -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    drawn = np.bincount([sampler.sample(logits, s, temperature=1.0) for s in range(4000)])
    assert np.abs(drawn / 4000 - [0.5, 0.3, 0.15, 0.05]).max() < 0.03


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_never_chosen(sampler: Sampler, temperature: float) -> None:
    nan, inf = float("nan"), float("inf")
    for values, token in (
        ([nan, 1.0, nan], 1), ([-inf, -inf, 2.0], 2), ([0.0, inf, nan], 1), ([nan, nan], None),
        ([-inf, -inf], None),
    ):  # fmt: skip
        logits = np.array(values, np.float32)
        for how in ({}, {"top_k": 1}, {"top_p": 0.5}):
            found = sampler.sample(logits, 3, temperature=temperature, **how)
            assert found == token or (token is None and 0 <= found < len(values))


def test_log_probabilities(sampler: Sampler) -> None:
    rng = np.random.default_rng(1)
    for scale in (0.1, 3.0, 30.0):
        logits = (rng.normal(size=500) * scale).astype(np.float32)
        x = logits.astype(np.float64)
        exact = x - x.max() - np.log(np.exp(x - x.max()).sum())
        data = sampler.ffi.from_buffer("float[]", logits)
        for token in (0, 17, int(x.argmax())):
            found = sampler.library.log_probability(data, len(logits), token)
            assert found == pytest.approx(exact[token], rel=1e-5, abs=1e-5)


def test_the_choice_has_the_same_bits_on_other_optimization(
    sampler: Sampler, tmp_path: Path
) -> None:
    source = ROOT / "tests" / "runtime_c" / "sample_values.c"
    flags = [f for f in FLAGS if f != "-O1"]
    library, include = tmp_path / "s.so", f"-I{ROOT / 'runtime_c' / 'include'}"
    command = [*host_compiler().command, *flags, "-O3", "-march=native", include]
    command += [str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    other = Sampler(sampler.ffi, sampler.ffi.dlopen(str(library)))
    rng = np.random.default_rng(2)
    for seed in range(300):
        logits = rng.normal(size=300).astype(np.float32)
        how: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.01}
        assert sampler.sample(logits, seed, **how) == other.sample(logits, seed, **how)
