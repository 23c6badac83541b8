# SPDX-License-Identifier: Apache-2.0
"""The forms of a micro-kernel (assembly, intrinsics, plain C) give the same bits, and every header
is accepted by a compiler without the extensions that not all compilers have."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT

INCLUDE = ROOT / "runtime_c" / "include"
PARTS = (
    "functions_mve.h", "functions_vfp.h", "functions_x86.h", "multiply_mve.h", "multiply_vfp.h",
    *(f"dot_parts_{form}.h" for form in ("dsp", "mve")),
    *(f"multiply_groups_{form}.h" for form in ("avx512", "lanes", "mve", "vfp")),
    *(f"multiply_half_{form}.h" for form in ("mve", "vfp")),
    *(f"dot4_u8_{form}.h" for form in ("vnni", "widened")),
    *(f"dot_groups_{form}.h" for form in ("asimd", "avx2", "dsp", "mve", "neon", "vnni")),
)  # fmt: skip
"""Included by other headers for the cores that have the instructions."""
HEADERS = sorted(
    p.name
    for p in (INCLUDE / "raot").glob("*.h")
    if p.name not in PARTS and not p.name.startswith("cuda")  # need <dlfcn.h>, so Linux
)
SOURCE = Path(__file__).with_name("micro_kernel_forms.c")
GCC, CLANG = "arm-linux-gnueabihf-gcc", "clang"
# The A profile has the instructions of Cortex-M4 and runs without a board.
CORE = (
    "-mthumb", "-mcpu=cortex-a7", "-mfpu=neon-vfpv4", "-mfloat-abi=hard", "-static",
    "-ffp-contract=off", "-fno-strict-aliasing", "-U__ARM_ARCH_PROFILE", "-D__ARM_ARCH_PROFILE=77",
)  # fmt: skip
PLAIN = ("-O2", "-DRAOT_NO_INTRINSICS")
FORMS = {
    "assembly": (GCC, "-O2"),
    "assembly_without_optimization": (GCC, "-O0", "-ffixed-r9", "-fno-omit-frame-pointer"),
    "assembly_made_small": (GCC, "-Os"),
    "assembly_linked_as_a_whole": (GCC, "-O3", "-flto"),
    "intrinsics": (GCC, "-O2", "-DRAOT_NO_ASSEMBLY"),
    "intrinsics_aligned": (GCC, "-O1", "-mno-unaligned-access"),
    "clang_assembly": (CLANG, "-O2", "--target=arm-linux-gnueabihf"),
    "clang_intrinsics": (CLANG, "-O2", "--target=arm-linux-gnueabihf", "-DRAOT_NO_ASSEMBLY"),
}
LONG = (
    "assembly_made_small",
    "assembly_linked_as_a_whole",
    "intrinsics_aligned",
    "clang_intrinsics",
)
OTHER_COMPILERS = {
    "no_gnu": (),
    "iar": ("-D__ICCARM__=9050001",),
    "arm_compiler_5": ("-D__CC_ARM", "-D__ARMCC_VERSION=5060750"),
}
"""Macros of compilers that are not here, on a compiler whose own macros are undefined."""


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def lines(command: Sequence[str], folder: Path, source: Path = SOURCE) -> list[str]:
    need(command[0], GCC, "qemu-arm")
    program = folder / "forms"
    compiler, *flags = command
    built = subprocess.run(
        [compiler, *flags, *CORE, f"-I{INCLUDE}", str(source), "-o", str(program), "-lm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-3000:]
    done = subprocess.run(["qemu-arm", program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return lines((GCC, *PLAIN), tmp_path_factory.mktemp("plain"))


@pytest.mark.qemu
@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=pytest.mark.long if f in LONG else ()) for f in FORMS]
)
def test_every_form_gives_the_same_bits(form: str, plain: list[str], tmp_path: Path) -> None:
    found = lines(FORMS[form], tmp_path)
    assert len(found) == 300
    assert found == plain


@pytest.mark.qemu
@pytest.mark.parametrize("numerics", [(), ("-DRAOT_NUMERICS_ORDERED=1",)], ids=["", "ordered"])
@pytest.mark.parametrize("form", ["assembly", "clang_assembly"])
def test_rows_of_sigmoids_have_the_bits_of_single_calls(
    form: str, numerics: tuple[str, ...], tmp_path: Path
) -> None:
    command = (*FORMS[form], *numerics)
    assert lines(command, tmp_path, SOURCE.with_name("sigmoid_rows.c")) == ["149100 0"]


@pytest.mark.parametrize("name", sorted(p.name for p in (INCLUDE / "raot").glob("*.h")))
def test_assembly_leaves_r9_alone(name: str) -> None:
    """It may be fixed or hold the static base; saving it does not help a handler that reads it."""
    text = (INCLUDE / "raot" / name).read_text(encoding="utf-8")
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    code = re.sub(r"\b(push|pop) \{[^}]*\}", "", code)
    assert not re.search(r"\b(r9|sb)\b", code)
    ranges = re.findall(r"\br(\d+)-r(\d+)", code)
    assert not [(low, high) for low, high in ranges if int(low) <= 9 <= int(high)]


def test_helium_needs_no_gnu_extension_but_its_header(tmp_path: Path) -> None:
    """arm_mve.h is each compiler's own: it is read before GNU C's words are hidden."""
    need("arm-none-eabi-gcc")
    unit = tmp_path / "all.c"
    own = ("arm_mve.h", "arm_acle.h", "math.h", "string.h")
    text = "".join(f"#include <{name}>\n" for name in own) + "#undef __GNUC__\n"
    text += "".join(f"#define {word}\n" for word in ("__attribute__(x)", "__asm__ $", "__asm $"))
    unit.write_text(text + "".join(f'#include "raot/{name}"\n' for name in HEADERS))
    for level in ("-O1", "-Os"):
        done = subprocess.run(
            ["arm-none-eabi-gcc", "-mthumb", "-mcpu=cortex-m55", "-mfloat-abi=hard", "-std=c11",
             "-pedantic-errors", "-Wno-unused-function", level, *OTHER_COMPILERS["iar"],
             f"-I{INCLUDE}", "-S", str(unit), "-o", os.devnull],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("compiler", OTHER_COMPILERS)
def test_headers_need_no_gnu_extension(compiler: str, tmp_path: Path) -> None:
    """Neither attributes, assembly, statement expressions nor builtins of GNU C."""
    need("arm-none-eabi-gcc")
    unit = tmp_path / "all.c"
    unit.write_text("".join(f'#include "raot/{name}"\n' for name in HEADERS))
    hidden = ("-U__GNUC__", "-D__attribute__(x)=", "-D__asm__=$", "-D__asm=$")
    for core in ("cortex-m0", "cortex-m4"):
        float_unit = ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16") if core == "cortex-m4" else ()
        done = subprocess.run(
            ["arm-none-eabi-gcc", "-mthumb", f"-mcpu={core}", *float_unit, "-std=c11", "-O1",
             "-pedantic-errors", "-Wno-unused-function", *hidden, *OTHER_COMPILERS[compiler],
             f"-I{INCLUDE}", "-S", str(unit), "-o", os.devnull],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
