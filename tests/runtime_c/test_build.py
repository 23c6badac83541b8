# SPDX-License-Identifier: Apache-2.0
"""runtime_c builds without a warning and passes its own tests, here and on other targets."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.runtime_c.headers import HEADERS, all_headers


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_on_this_machine(compiler: str, tmp_path: Path) -> None:
    need("cmake")
    need(compiler)
    run("cmake", "-S", ROOT, "-B", tmp_path, f"-DCMAKE_C_COMPILER={compiler}")
    run("cmake", "--build", tmp_path)
    assert "100% tests passed" in run("ctest", "--test-dir", tmp_path)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("target", "compiler"),
    [("aarch64-linux", "aarch64-linux-gnu-gcc"), ("armhf-linux", "arm-linux-gnueabihf-gcc")],
)
@pytest.mark.long
def test_under_emulation(target: str, compiler: str, tmp_path: Path) -> None:
    need("cmake")
    need(compiler)
    toolchain = ROOT / "runtime_c" / "cmake" / f"{target}.cmake"
    run("cmake", "-S", ROOT, "-B", tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}")
    run("cmake", "--build", tmp_path)
    assert "100% tests passed" in run("ctest", "--test-dir", tmp_path)


@pytest.mark.qemu
@pytest.mark.parametrize("flag", ["-DRAOT_SEPARATE", "-URAOT_SEPARATE"])
def test_tiles_of_cortex_m(flag: str, tmp_path: Path) -> None:
    """Its FPU is part of the A profile's, which runs the tests without a board."""
    need("arm-linux-gnueabihf-gcc")
    need("qemu-arm")
    profile = ["-U__ARM_ARCH_PROFILE", "-D__ARM_ARCH_PROFILE=77"]
    run(
        "arm-linux-gnueabihf-gcc", "-O2", "-mthumb", "-mfpu=vfpv4", *profile, "-static", flag,
        f"-I{ROOT / 'runtime_c' / 'include'}", ROOT / "runtime_c" / "tests" / "test_multiply.c",
        "-o", tmp_path / "tiles",
    )  # fmt: skip
    assert "raot_blocks_f32" in run("arm-linux-gnueabihf-nm", tmp_path / "tiles")
    run("qemu-arm", tmp_path / "tiles")


@pytest.mark.parametrize("flag", ["-DRAOT_SEPARATE", "-URAOT_SEPARATE"])
@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m7", "cortex-m33"])
def test_clang_accepts_the_assembly_of_tiles(cpu: str, flag: str) -> None:
    """ISO C99 requires strings of at most 4095 characters, and Clang counts those of assembly."""
    need("clang")
    run(
        "clang", "--target=thumbv7em-none-eabi", f"-mcpu={cpu}", "-mfloat-abi=hard", "-std=c11",
        "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", flag,
        f"-I{ROOT / 'runtime_c' / 'include'}",
        f"-isystem{ROOT / 'boards' / 'families' / 'freestanding'}",
        "-include", "raot/multiply.h", "-xc", "/dev/null",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize(
    "flags",
    [
        "-mavx2 -mfma", "-mavx2 -mfma -mf16c", "-march=native -DRAOT_ZEN4=0",
        "-march=native -DRAOT_ZEN4=1",
    ],
)  # fmt: skip
def test_tiles_of_half_precision(flags: str, tmp_path: Path) -> None:
    run(
        "gcc", "-O2", *flags.split(), f"-I{ROOT / 'runtime_c' / 'include'}",
        ROOT / "runtime_c" / "tests" / "test_multiply_half.c", "-o", tmp_path / "tiles",
    )  # fmt: skip
    run(tmp_path / "tiles")


@pytest.mark.qemu
@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55"])
def test_compiles_for_cortex_m(cpu: str, tmp_path: Path) -> None:
    need("cmake")
    need("arm-none-eabi-gcc")
    toolchain = ROOT / "runtime_c" / "cmake" / "cortex-m.cmake"
    run(
        "cmake", "-S", ROOT, "-B", tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
        f"-DRAOT_CPU={cpu}",
    )  # fmt: skip
    run("cmake", "--build", tmp_path)
    assert list(tmp_path.rglob("*.obj")) or list(tmp_path.rglob("*.o"))


@pytest.mark.parametrize(
    "compiler",
    [
        "gcc -march=x86-64-v3", "gcc -march=x86-64-v3 -mavx512f", "aarch64-linux-gnu-gcc",
        "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
        "arm-none-eabi-gcc -mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
    ],
)  # fmt: skip
def test_all_headers_are_included_together(compiler: str, tmp_path: Path) -> None:
    name, *flags = compiler.split()
    need(name)
    if "-march=x86-64-v3" in flags and platform.machine() != "x86_64":
        pytest.skip("instructions of x86-64")
    (tmp_path / "all.c").write_text(all_headers("cuda" if "eabi" in name else ""))
    warnings = ("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-Wno-unused-function")
    run(name, *flags, "-std=c11", *warnings, f"-I{HEADERS}", "-fsyntax-only", tmp_path / "all.c")
