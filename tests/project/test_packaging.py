# SPDX-License-Identifier: Apache-2.0
"""Every packaging builds from its own files: by the ecosystem's tool where it is here, else by
a small stand-in for the build functions that it calls, which sees the same paths and options."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import onnx
import pytest
import yaml

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.project.packaging import NAMES, PackageError
from tests.models.taggers import gru_tagger

OPTIONS = Options(
    bounds={"n": (1, 20), "batch": (1, 3)}, state={"state": "stateN"}, name="gru_tagger"
)
NOT_HERE = "packagings are also checked by"
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
USE = """
#include "gru_tagger.h"

GRU_TAGGER_ARENA(static, arena);
RAOT_ALIGNAS(GRU_TAGGER_ALIGNMENT) static unsigned char state[GRU_TAGGER_STATE_BYTES];
static float frames[GRU_TAGGER_FRAMES_BYTES / sizeof(float)];
static float tags[GRU_TAGGER_TAGS_BYTES / sizeof(float)];

int main(void)
{
    struct gru_tagger_memory memory = {arena, sizeof arena, state};
    struct gru_tagger_dims dims = {3, 2};
    struct gru_tagger_inputs in = {frames};
    struct gru_tagger_outputs out = {tags};

    if (gru_tagger_init(&memory, &dims) != RAOT_OK) {
        return 1;
    }
    return gru_tagger_run(&memory, &dims, &in, &out) == RAOT_OK && tags[0] != 0.0f ? 0 : 2;
}
"""
ZEPHYR = """
cmake_minimum_required(VERSION 3.16)
project(app C)
set(CONFIG_GRU_TAGGER_MODEL y)
macro(zephyr_library_named name)
  set(library ${name})
  add_library(${name} STATIC)
endmacro()
macro(zephyr_library_sources)
  target_sources(${library} PRIVATE ${ARGN})
endmacro()
macro(zephyr_include_directories)
  target_include_directories(${library} PUBLIC ${ARGN})
endmacro()
macro(zephyr_library_compile_options)
  target_compile_options(${library} PRIVATE ${ARGN})
endmacro()
macro(zephyr_library_compile_definitions)
  target_compile_definitions(${library} PRIVATE ${ARGN})
endmacro()
add_subdirectory(module/zephyr)
add_executable(app use.c)
target_link_libraries(app gru_tagger m)
"""
IDF = """
cmake_minimum_required(VERSION 3.16)
project(app C)
macro(idf_component_register)
  cmake_parse_arguments(C "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
  set(COMPONENT_LIB gru_tagger)
  set(COMPONENT_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  add_library(gru_tagger STATIC ${C_SRCS})
  target_include_directories(gru_tagger PUBLIC ${C_INCLUDE_DIRS})
endmacro()
add_subdirectory(module)
add_executable(app use.c)
target_link_libraries(app gru_tagger m)
"""
ARDUINO_H = """
#include <cstdio>
struct Console {
    void begin(int) {}
    void print(const char *text) { std::fputs(text, stdout); }
    void println(unsigned long value) { std::printf("%lu\\n", value); }
};
static Console Serial;
static unsigned long micros() { return 0; }
static void delay(int) {}
"""


@cache
def project(weights: str = "auto") -> Project:
    return driver.compile_model(gru_tagger(), "host", replace(OPTIONS, weights=weights))


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def need(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not installed")
    return found


def packaging_tool(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{NOT_HERE} {tool}, which is not installed")
    return found


def build_with_cmake(folder: Path, listing: str, *arguments: str) -> None:
    (folder / "CMakeLists.txt").write_text(listing)
    run(need("cmake"), "-S", ".", "-B", "b", *arguments, folder=folder)
    run(need("cmake"), "--build", "b", folder=folder)
    run(folder / "b" / "app", folder=folder)


@pytest.mark.parametrize("language", ["C", "CXX"])
@pytest.mark.long
def test_the_flat_folder_installs_and_is_found_as_a_package(language: str, tmp_path: Path) -> None:
    project().write(tmp_path / "flat")
    prefix = tmp_path / "installed"
    run(need("cmake"), "-S", "flat", "-B", "f", f"-DCMAKE_INSTALL_PREFIX={prefix}", folder=tmp_path)
    run(need("cmake"), "--build", "f", "--target", "install", folder=tmp_path)
    shutil.rmtree(tmp_path / "flat")
    app = tmp_path / "app"
    app.mkdir()
    source = "use.c" if language == "C" else "use.cpp"
    (app / source).write_text(USE)
    listing = (
        f"cmake_minimum_required(VERSION 3.16)\nproject(app LANGUAGES {language})\n"
        f"find_package(gru_tagger 1.0 REQUIRED)\nadd_executable(app {source})\n"
        "target_link_libraries(app PRIVATE gru_tagger::gru_tagger m)\n"
    )
    build_with_cmake(app, listing, f"-DCMAKE_PREFIX_PATH={prefix}")
    assert (prefix / "include" / "gru_tagger" / "raot" / "status.h").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["c", "asm"])
@pytest.mark.parametrize(("kind", "listing"), [("zephyr", ZEPHYR), ("esp-idf", IDF)])
def test_modules_of_cmake_builds(kind: str, listing: str, weights: str, tmp_path: Path) -> None:
    project(weights).write(tmp_path / "module", kind)
    (tmp_path / "use.c").write_text(USE)
    build_with_cmake(tmp_path, listing)
    made = (tmp_path / "b" / "compile_commands.json", tmp_path / "b" / "CMakeCache.txt")
    assert made[1].is_file()


def test_a_zephyr_module_says_what_zephyr_reads(tmp_path: Path) -> None:
    """Keys as in the schema of Zephyr's scripts/zephyr_module.py; paths as it checks them."""
    folder = project().write(tmp_path / "module", "zephyr")
    said = yaml.safe_load((folder / "zephyr" / "module.yml").read_text())
    assert set(said) <= {"name", "build", "tests", "samples", "boards", "blobs"}
    assert set(said["build"]) <= {"cmake", "kconfig", "cmake-ext", "kconfig-ext", "depends"}
    assert (folder / said["build"]["cmake"] / "CMakeLists.txt").is_file()
    kconfig = (folder / said["build"]["kconfig"]).read_text()
    listing = (folder / "zephyr" / "CMakeLists.txt").read_text()
    (option,) = re.findall(r"^config (\w+)$", kconfig, re.M)
    assert f"CONFIG_{option}" in listing


def test_an_esp_idf_component_packs(tmp_path: Path) -> None:
    folder = project().write(tmp_path / "gru_tagger", "esp-idf")
    said = yaml.safe_load((folder / "idf_component.yml").read_text())
    assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"])
    assert set(said) <= {"version", "description", "url", "license", "targets", "dependencies"}
    run(packaging_tool("compote"), "component", "pack", "--name", "gru_tagger", folder=folder)
    assert list(folder.glob("dist/*.tgz"))


def under_src(folder: Path) -> Sequence[Path]:
    return sorted((folder / "src").glob("*.c"))


def test_a_platformio_library_packs(tmp_path: Path) -> None:
    folder = project().write(tmp_path / "gru_tagger", "platformio")
    said = json.loads((folder / "library.json").read_text())
    assert {"name", "version", "description"} <= set(said)
    build = said["build"]
    assert (folder / build["includeDir"] / said["headers"][0]).is_file()
    (tmp_path / "use.c").write_text(USE)
    include = f"-I{folder / build['includeDir']}"
    command = [need("gcc"), "-std=c11", *STRICT, *build["flags"], include]
    run(*command, *under_src(folder), "use.c", "-lm", "-o", "app", folder=tmp_path)
    run(tmp_path / "app", folder=tmp_path)
    run(packaging_tool("pio"), "pkg", "pack", folder, folder=tmp_path)
    assert list(tmp_path.glob("*.tar.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["auto", "blob"])
def test_an_arduino_sketch_builds_and_runs(weights: str, tmp_path: Path) -> None:
    folder = project(weights).write(tmp_path / "gru_tagger", "arduino")
    lines = (folder / "library.properties").read_text().splitlines()
    said = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert set(said) >= {
        "name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url",
        "architectures",
    }  # fmt: skip
    assert said["category"] == "Data Processing" and (folder / "src" / said["includes"]).is_file()
    (sketch,) = folder.glob("examples/*/*.ino")
    assert sketch.stem == sketch.parent.name
    (tmp_path / "sketch.cpp").write_text(
        ARDUINO_H + sketch.read_text() + "\nint main() { setup(); loop(); }\n"
    )
    # As Arduino does it: no option of ours, C and C++ apart, src/ on the include path.
    run(need("gcc"), "-O3", *STRICT, "-Isrc", "-c", *under_src(folder), folder=folder)
    flags = ["-std=c++11", *STRICT, f"-I{folder / 'src'}", "sketch.cpp"]
    objects = sorted(folder.glob("*.o"))
    run(need("g++"), *flags, *objects, "-lm", "-o", "app", folder=tmp_path)
    answer = run(tmp_path / "app", folder=tmp_path)
    # Without its weights, which lie apart, the model says what is missing.
    assert answer.startswith("RAOT_OK" if weights == "auto" else "RAOT_ERR_NULL")


@pytest.mark.long
def test_where_options_cannot_be_given_the_c_asks_gcc_itself(tmp_path: Path) -> None:
    folder = project().write(tmp_path / "gru_tagger", "arduino")
    plain = project().write(tmp_path / "flat")
    if os.uname().machine != "x86_64":
        pytest.skip(f"{NOT_HERE} the names of instructions, which are those of x86")

    def fused(source: Path, *options: str) -> int:
        """Fused instructions: those that the C spells as fmaf, and what the compiler makes."""
        command = [need("gcc"), "-O3", "-mfma", *options, f"-I{source.parent}", "-S", "-o", "-"]
        return run(*command, source, folder=tmp_path).count("vfmadd")

    bare, ours = plain / "gru_tagger.c", folder / "src" / "gru_tagger.c"
    assert fused(ours) == fused(bare, "-ffp-contract=off") < fused(bare)


def test_a_cmsis_pack_names_files_that_are_in_it(tmp_path: Path) -> None:
    folder = project().write(tmp_path / "gru_tagger", "cmsis-pack")
    (description,) = folder.glob("*.pdsc")
    root = ET.parse(description).getroot()
    # The order that PACK.xsd asks for.
    order = [child.tag for child in root]
    assert order == [
        "vendor", "name", "description", "url", "license", "releases", "taxonomy", "conditions",
        "components",
    ]  # fmt: skip
    vendor, name = root.findtext("vendor"), root.findtext("name")
    release = root.find("releases/release")
    assert release is not None and description.name == f"{vendor}.{name}.pdsc"
    pack = folder / f"{vendor}.{name}.{release.attrib['version']}.pack"
    with zipfile.ZipFile(io.BytesIO(pack.read_bytes())) as archive:
        inside = set(archive.namelist())
        for member in inside:
            assert archive.read(member) == (folder / member).read_bytes()
    assert inside == {
        str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p != pack
    }
    named = [str(file.attrib["name"]) for file in root.iter("file")]
    assert all(path.endswith("/") or path in inside for path in named)
    assert {p for p in inside if p.endswith((".c", ".h"))} <= set(named)
    assert str(root.findtext("license")) in inside


@pytest.mark.parametrize("kind", NAMES)
def test_each_has_a_readme_for_this_model_board_and_build(kind: str, tmp_path: Path) -> None:
    folder = project().write(tmp_path / "out", kind)
    text = (folder / "README.md").read_text()
    assert "gru_tagger for This machine" in text and text.count("## Build it") == 1
    assert f"| arena | {project().plan.arena_bytes} |" in text
    telling = {
        "flat": "find_package", "zephyr": "ZEPHYR_EXTRA_MODULES", "esp-idf": "EXTRA_COMPONENT_DIRS",
        "platformio": "lib_deps", "arduino": "Include Library", "cmsis-pack": "cpackget",
    }  # fmt: skip
    assert [k for k, words in telling.items() if words in text] == [kind]


def test_what_cannot_be_packed_is_said(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="choose --weights c or --weights blob"):
        project("asm").write(tmp_path / "out", "arduino")
    with pytest.raises(PackageError, match="unknown packaging 'mbed'; known are: zephyr"):
        project().write(tmp_path / "out", "mbed")
    assert not (tmp_path / "out").exists()


def test_a_hostile_name_of_a_model_reaches_no_manifest(tmp_path: Path) -> None:

    source = tmp_path / 'a"<&>$(touch x)\n\\b.onnx'
    onnx.save(gru_tagger(), source)
    made = driver.compile_model(source, "host", OPTIONS)
    for kind in NAMES[1:]:
        for path, content in made.packaged(kind).items():
            if path.endswith((".yml", ".json", ".pdsc", ".properties", ".txt", "Kconfig")):
                assert b"$(touch" not in content and b"<&" not in content, path
    ET.fromstring(made.packaged("cmsis-pack")["relax_aot.gru_tagger.pdsc"])
