# SPDX-License-Identifier: Apache-2.0
"""Every micro-kernel computes what its meaning says: random calls of the C, with vectors and
without, on the cores that have the instructions."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from functools import cache
from pathlib import Path
from platform import machine

import numpy as np
import pytest

from relax_aot.microkernels import all_micro_kernels, dot2, dot4, groups, store
from relax_aot.resources import data_dir
from tests.microkernels.calls import Called, differences, emulated, in_process, source
from tests.microkernels.samples import Sample, sample

KERNELS = {name: kernel for name, kernel in all_micro_kernels().items() if not kernel.device}
FLAGS = {"native": ("-march=native",), "portable": ()}
ARM = (*dot2.MICRO_KERNELS, *dot4.MICRO_KERNELS, *groups.MICRO_KERNELS)
"""Those whose C has a form for 64-bit Arm."""
ROUNDED = ("convolve.h", "multiply_groups.h", "multiply_rows.h", "dot_groups.h", "dot_blocks.h",
           "dot_parts.h", "depthwise_f32.h", "multiply_integers.h", "multiply_store.h",
           "state_rows.h")  # fmt: skip
"""Those with float multiply-adds."""
STRIPS = ("-DRAOT_STRIP=32", "-DRAOT_GROUP_ROWS=6")
"""Small strips of decoded weights."""
HALVES = """
#include "raot/multiply_half.h"
void halves(int32_t, const struct raot_level *, const float *, const uint16_t *, float *);
void halves(int32_t rows, const struct raot_level *levels, const float *left,
            const uint16_t *right, float *sums)
{
    raot_multiply_f16(rows, 32, levels, left, 64, right, sums);
    raot_multiply_bf16(rows, 32, levels, left, 64, right, sums);
}
"""
"""A function with all micro-kernels of half precision."""
RUNS, EMULATED = 40, 15


@cache
def samples(name: str, count: int = RUNS) -> list[Sample]:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return [sample(KERNELS[name], rng) for _ in range(count)]


@pytest.mark.parametrize("name", KERNELS)
def test_descriptions_are_complete(name: str) -> None:
    """Every size of the meaning has a range, and what has a range is a size or an operand."""
    kernel = KERNELS[name]
    assert set(kernel.meaning.free_symbols) <= set(kernel.sizes)
    operands = {buffer.name for buffer in kernel.operands}
    assert {value.removesuffix("[1]") for value in kernel.values} <= operands


@cache
def host() -> dict[str, Called]:
    return {name: in_process(tuple(KERNELS.values()), flags) for name, flags in FLAGS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_c_on_this_machine(name: str) -> None:
    for flags, call in host().items():
        # Without FMA instructions a float multiply-add is rounded twice.
        if flags == "native" or KERNELS[name].header not in ROUNDED:
            assert not differences(KERNELS[name], samples(name), call)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="no emulator of 64-bit Arm")
@pytest.mark.parametrize("core", ["cortex-a76", "cortex-a72"])
def test_c_on_64_bit_arm(core: str, tmp_path: Path) -> None:
    call = emulated(ARM, core, core, tmp_path)
    for kernel in ARM:
        assert not differences(kernel, samples(kernel.name, EMULATED), call)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-aarch64"), reason="no emulator of 64-bit Arm")
def test_c_on_arm_matrices(tmp_path: Path) -> None:
    tile = KERNELS["raot_dot4_i8"]
    call = emulated([tile], "cortex-a76+i8mm", "max", tmp_path)
    code = ["aarch64-linux-gnu-objdump", "-d", str(tmp_path / "main")]
    assert "smmla" in subprocess.run(code, capture_output=True, text=True, check=True).stdout
    assert not differences(tile, samples(tile.name), call)


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize("strips", [(), STRIPS])
def test_c_with_avx2_alone(strips: tuple[str, ...]) -> None:
    """Hosts with AVX-512 have another form of these. Strips of 32 steps end inside of groups."""
    kernels = (*groups.MICRO_KERNELS, *store.MICRO_KERNELS)
    call = in_process(kernels, ("-mavx2", "-mfma", *strips))
    for kernel in kernels:
        assert not differences(kernel, samples(kernel.name, EMULATED), call)


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize("flags", [("-march=native",), ("-mavx2", "-mfma"), ("-mfma",)])
def test_rows_of_most_columns(flags: tuple[str, ...]) -> None:
    """All columns of a row, or of some rows, are computed at once where vectors are wide."""
    rng, (kernel,) = np.random.default_rng(0), store.MICRO_KERNELS
    calls = [sample(kernel, rng, rows=1 + n % 8, columns=64 - n % 3) for n in range(24)]
    assert not differences(kernel, calls, in_process(store.MICRO_KERNELS, flags))


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="instructions of x86-64")
def test_stored_tiles_with_fma_alone() -> None:
    """Their sums are in memory, with the same bits."""
    call = in_process(store.MICRO_KERNELS, ("-mfma",))
    for kernel in store.MICRO_KERNELS:
        assert not differences(kernel, samples(kernel.name), call)


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="instructions of x86-64")
def test_c_with_avx512_that_has_no_products_of_bytes() -> None:
    """Such as Skylake: sums of floats are vectors of 512 bits, those of integers of 256."""
    if "avx512dq" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX-512")
    call = in_process(ARM, ("-march=skylake-avx512",))
    for kernel in ARM:
        assert not differences(kernel, samples(kernel.name, EMULATED), call)


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize("form", [("-DRAOT_ZEN4=1",), ("-DRAOT_ZEN4=0", *STRIPS)])
def test_decoded_weights_of_this_machine(form: tuple[str, ...]) -> None:
    """With AVX-512, the processor decides whether weights for more than six rows are decoded in
    registers or in strips."""
    call = in_process(groups.FLOAT_PRODUCTS, ("-march=native", *form))
    for kernel in groups.FLOAT_PRODUCTS:
        assert not differences(kernel, samples(kernel.name), call)


@pytest.mark.slow
@pytest.mark.skipif(machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_multiply_adds_of_converted_weights_load_their_factors(compiler: str) -> None:
    """AVX-512: a step of 1 to 6 rows has two multiply-adds for each, and no load of a factor."""
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    include = data_dir("runtime_c") / "include"
    build = [compiler, "-O3", "-mavx512f", "-mavx2", "-mfma", f"-I{include}", "-S", "-xc", "-"]
    text = source(groups.FLOAT_PRODUCTS) + HALVES
    made = subprocess.run([*build, "-o-"], input=text, capture_output=True, text=True, check=True)
    for name in ("groups_unpacked_q4", "groups_unpacked_q8", "half_blocks_f16", "half_blocks_bf16"):
        pattern = rf"^raot_{name}\S*:.*?\n(.*?)\.size\s+raot_{name}"
        (body,) = re.findall(pattern, made.stdout, re.M | re.S)
        assert body.count("{1to16}") >= 2 * sum(range(1, 7))
        assert "vbroadcastss" not in body
