# SPDX-License-Identifier: Apache-2.0
"""Machine code for GPUs: what compilers refuse, which drivers load it, what its figures are."""

from __future__ import annotations

import locale
import re
from pathlib import Path
from uuid import uuid4

import pytest

from relax_aot.binaries.cubin import read_cubin
from relax_aot.emit.cuda_helpers import helper_text
from relax_aot.emit.cuda_module import device_source
from relax_aot.emit.render import render
from relax_aot.ir.parse import parse
from relax_aot.resources import data_dir
from relax_aot.toolchain import doctor
from relax_aot.toolchain.nvdisasm import disassembled
from relax_aot.toolchain.nvrtc import CudaCompileError, cubin
from relax_aot.toolchain.tools import ToolMissing
from tests.cuda.kernels import ELEMENTS, SUMS, TRANSPOSE, module
from tests.cuda.test_figures import SUBJECTS
from tests.cuda.toolkits import (
    TARGETS,
    needs_compilers,
    needs_disassembler,
    needs_fixed_addresses,
)
from tests.scheduling.devices.kernels import device_form

ABI = {11: (51, 7), 12: (51, 7), 13: (65, 8)}
"""What drivers of a CUDA major load: the second form is that of CUDA 13 alone."""
HELPERS = (
    "index", "ieee", "integer", "convert", "narrow", "rounding", "exponential", "trigonometry",
    "math64", "pair", "pair64", "power64", "trigonometry64", "vector_functions",
)  # fmt: skip
"""Headers of the functions that expressions call."""
KINDS = (
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "i4", "u4", "i2", "u2", "f8e4m3fn",
    "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz",
)  # fmt: skip
ARRAY = """
extern "C" __global__ void figures(const float *__restrict__ x, float *y, int n)
{
    __shared__ float tile[300];
    float kept[400];
    float sum = 0.0f;
    for (int i = 0; i < 400; i++) {
        kept[i] = x[i] * (float)n;
    }
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int i = 0; i < n; i++) {
        sum = sum + kept[(int)tile[i] % 400];
        kept[(int)sum % 400] = sum;
    }
    y[threadIdx.x] = sum;
}
"""
LOOPS = """
extern "C" __global__ void figures(const float *__restrict__ x, float *y, int n)
{
    float sum = 0.0f;
    #pragma unroll 1
    for (int i = 0; i < n; i++) {
        #pragma unroll 1
        for (int k = 0; k < n; k++) {
            sum = fmaf(x[k], x[k + i], sum);
        }
        sum = sum + x[i];
    }
    *reinterpret_cast<float4 *>(y) = make_float4(sum, sum, sum, sum);
}
"""


@needs_compilers
@pytest.mark.parametrize(("sm", "major"), TARGETS)
def test_printed_kernels_compile_without_a_warning(sm: int, major: int) -> None:
    kernels = parse(module(ELEMENTS, TRANSPOSE, SUMS))
    source = device_source("model", kernels.kernels, kernels.bounds)
    made = read_cubin(cubin(source.text, "model", sm, major))
    assert (made.abi, made.sm) == (ABI[major], sm)
    assert {function.name for function in made.functions} == {"elements", "transpose", "sums"}
    assert made.function("transpose").shared_bytes == 8 * 9 * 4
    assert made.function("sums").shared_bytes == (4 + 4 * 32) * 4
    assert all(function.local_bytes == 0 for function in made.functions)


@needs_compilers
@pytest.mark.parametrize("major", ABI)
def test_all_helpers_compile_without_a_warning(major: int) -> None:
    folder = data_dir("runtime_c") / "include" / "raot"
    text = "".join((folder / f"{name}.h").read_text() for name in HELPERS)
    names = set(re.findall(r"\braot_\w+(?=\()", text))
    words = {*names, *re.findall(r"\braot_(?:\w|##)+(?=\()", text)}
    names |= {re.sub("##N(##)?", kind, word) for word in words for kind in KINDS}
    helpers = helper_text(" ".join(f"{name}(" for name in sorted(names)), ())
    assert helpers.count("__device__ inline") > 200
    source = render("cuda/model.cu.j2", name="helpers", helpers=helpers, kernels=())
    assert cubin(source, "helpers", 87, major)


@pytest.mark.slow
@needs_compilers
@pytest.mark.parametrize(("sm", "major"), TARGETS)
def test_an_array_that_variables_index_is_local_memory(sm: int, major: int) -> None:
    function = read_cubin(cubin(ARRAY, "figures", sm, major)).function("figures")
    assert function.local_bytes == 1600
    assert function.shared_bytes == 1200
    assert 8 <= function.registers <= 255


@needs_compilers
@pytest.mark.parametrize("major", ABI)
def test_a_warning_is_an_error(major: int) -> None:
    text = 'extern "C" __global__ void idle(int *x) { int unused; *x = 1; }'
    with pytest.raises(CudaCompileError, match=r"unused.*never referenced"):
        cubin(text, "idle", 87, major)


@needs_compilers
@pytest.mark.parametrize("major", ABI)
def test_the_encoding_of_other_programs_stays(major: int) -> None:
    before = locale.getencoding()
    name = f"k{uuid4().hex}"  # nothing that was compiled before
    assert cubin(f'extern "C" __global__ void {name}() {{}}', name, 87, major)
    assert locale.getencoding() == before


@pytest.mark.slow
@needs_compilers
@needs_fixed_addresses
@pytest.mark.parametrize("major", ABI)
@pytest.mark.long
def test_the_same_text_is_the_same_machine_code(
    major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of NVRTC's work follows addresses in memory, which other runs do not share."""
    subject = SUBJECTS["product f32"]
    assert subject.strategy is not None
    _, made, bounds = device_form(subject.text, subject.strategy)
    assert made is not None
    text = device_source("model", [made], bounds).text
    found = set()
    for number in range(4):
        monkeypatch.setenv("RELAX_AOT_CACHE", str(tmp_path / str(number)))
        monkeypatch.setenv("PYTHONHASHSEED", str(number))
        found.add(cubin(text, "model", 87, major))
    assert len(found) == 1


def test_a_gpu_that_a_compiler_does_not_know_is_refused() -> None:
    with pytest.raises(CudaCompileError, match="CUDA 13 has no sm_72"):
        cubin(ARRAY, "figures", 72, 13)


@needs_compilers
@needs_disassembler
@pytest.mark.parametrize(("sm", "major"), [one for one in TARGETS if one[0] != 72])
def test_loops_are_found_in_machine_code(sm: int, major: int) -> None:
    code = disassembled(cubin(LOOPS, "figures", sm, major))["figures"]
    assert [(loop.depth, loop.innermost) for loop in code.loops] == [(0, False), (1, True)]
    hottest = code.hottest
    assert hottest is not None
    assert hottest.mix["FFMA"] == 1
    assert hottest.share("FFMA") == 1 / len(hottest.instructions)
    assert len(code.with_part("STG", "128")) == 1
    assert not code.with_part("LDG", "128")


def test_without_compilers_the_message_says_what_brings_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RELAX_AOT_TOOLS", "system")
    monkeypatch.setenv("CUDA_HOME", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissing, match=r"no CUDA 12 compiler .* 'relax-aot\[cuda\]'"):
        cubin(ARRAY, "figures", 87, 12)
    rows = {row.tool: row.version for row in doctor.rows()}
    assert rows["CUDA 11 compiler"] is None
    assert rows["nvdisasm"] is None
