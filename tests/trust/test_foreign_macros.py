# SPDX-License-Identifier: Apache-2.0
"""Macros of headers that a program includes before ours do not reach into generated code.

The prelude defines what real headers define: Arduino's core, newlib's <ctype.h>, device headers
in the style of CMSIS, ESP-IDF, Zephyr, Windows. Each macro stands for something that no
declaration survives.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.emit.c_names import Names, identifier
from relax_aot.emit.foreign_macros import FOREIGN_MACROS
from relax_aot.project import Project
from relax_aot.resources import data_dir
from relax_aot.verify.host import host_model
from tests.runtime_c.test_forms import PARTS

OBJECTS = (
    # Arduino, and its binary.h
    "INPUT", "OUTPUT", "HIGH", "LOW", "PI", "HALF_PI", "DEG_TO_RAD", "A0", "B1", "B0101",
    "LSBFIRST", "DEFAULT", "EXTERNAL", "CHANGE", "RISING", "LED_BUILTIN", "SERIAL", "DISPLAY",
    # newlib's <ctype.h>, termios
    "_U", "_L", "_N", "_S", "_P", "_C", "_X", "_B", "B0", "B50",
    # registers of devices
    "RNG", "ADC", "ADC1", "GPIOA", "TIM2", "UART0", "SCB", "DMA", "RTC", "SYSTEM", "POWER", "PA0",
    # ESP-IDF, Zephyr, Windows, POSIX
    "BIT0", "BIT", "IRAM_ATTR", "K_FOREVER", "DT_DRV_COMPAT", "IN", "OUT", "OPTIONAL", "ERROR",
    "TRUE", "FALSE", "CONST", "VOID", "BOOL", "DELETE", "DOMAIN", "OVERFLOW", "UNDERFLOW", "SING",
    "MAX", "MIN", "small", "interface", "near", "far", "stdin", "stdout", "stderr", "st_atime",
    "sa_handler", "i386", "unix", "linux", "signals", "slots", "emit", "no_argument", "quad",
    "physadr", "direct",
    # a user's own
    "N", "M", "X", "Y", "W", "I", "F", "BATCH_SIZE", "VERSION",
)  # fmt: skip
FUNCTIONS = (
    "F", "abs", "round", "min", "max", "bit", "word", "constrain", "sq", "radians", "degrees",
    "map", "lowByte", "highByte", "bitRead", "bitSet", "interrupts", "isnan", "signbit", "clamp",
    "swap", "check", "require", "major", "minor", "yield", "cli", "sei", "index", "log2",
)  # fmt: skip
SYSTEM = ("stdint", "stddef", "string", "math", "ctype", "stdio", "stdlib")
PRELUDE = "\n".join(
    [
        *(
            f"#include <{name}.h>"
            for name in ("stdint", "stddef", "string", "math", "ctype", "stdio", "stdlib")
        ),
        *(f"#undef {name}" for name in (*OBJECTS, *FUNCTIONS)),
        *(f"#define {name} @foreign {name}@" for name in OBJECTS if name not in FUNCTIONS),
        *(f"#define {name}(...) @foreign {name}@" for name in FUNCTIONS),
    ]
)
INPUTS = (
    "INPUT", "PI", "F", "stdin", "_B", "RNG", "ADC", "abs", "round", "min", "max", "bit", "word",
    "N", "near", "small", "interface", "Pi", "pi",
)  # fmt: skip
OUTPUTS = ("OUTPUT", "HIGH", "B1", "stdout", "_C", "X")
SYMBOLS = ("M", "LOW", "BATCH_SIZE")
ARM = ("-mthumb", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
C11 = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
CPP = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-x", "c++")
BUILDS = {
    "gcc": ("gcc", *C11),
    "clang": ("clang", *C11),
    "newlib": ("arm-none-eabi-gcc", *ARM, *C11),
    "gcc c++": ("g++", *CPP),
    "clang c++": ("clang++", *CPP),
    "newlib c++": ("arm-none-eabi-g++", *ARM, *CPP),
}


def model() -> onnx.ModelProto:
    """Outputs are sums of inputs, through values that have such names too."""
    symbols = dict(zip(INPUTS, (SYMBOLS * 7)[: len(INPUTS)], strict=True))
    value = helper.make_tensor_value_info
    nodes, outputs = [], []
    for number, name in enumerate(OUTPUTS):
        parts = [i for i in INPUTS if symbols[i] == SYMBOLS[number % 3]][number // 3 :: 2]
        nodes.append(helper.make_node("Sum", parts, [f"DMA_{number}"], name="GPIOA"))
        nodes.append(helper.make_node("Softmax", [f"DMA_{number}"], [name], name="abs", axis=0))
        outputs.append(value(name, TensorProto.FLOAT, [SYMBOLS[number % 3]]))
    inputs = [value(name, TensorProto.FLOAT, [symbols[name]]) for name in INPUTS]
    graph = helper.make_graph(nodes, "SYSTEM", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@cache
def project() -> Project:
    bounds = dict.fromkeys(SYMBOLS, (1, 5))
    return driver.compile_model(model(), options=Options(bounds=bounds, name="abs_net"))


def need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


def compiles(command: tuple[str, ...], folder: Path, *sources: str) -> str:
    need(command[0])
    done = subprocess.run(
        [*command, "-fsyntax-only", "-include", "prelude.h", "-I.", *sources],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr


@pytest.mark.parametrize("build", BUILDS)
def test_foreign_macros_leave_the_model_alone(build: str, tmp_path: Path) -> None:
    at = project().write(tmp_path / "net")
    (at / "prelude.h").write_text(PRELUDE)
    sources = list(project().units)
    if "c++" in build:
        (at / "user.cpp").write_text('#include "abs_net.h"\nint user(abs_net_inputs *in);\n')
        sources = ["user.cpp"]
    assert compiles(BUILDS[build], at, *sources) == ""


@pytest.mark.parametrize("compiler", ["g++", "arm-none-eabi-g++"])
def test_an_arduino_sketch_compiles_behind_foreign_macros(compiler: str, tmp_path: Path) -> None:
    files = project().packaged("arduino")
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (sketch,) = tmp_path.glob("examples/*/*.ino")
    core = (
        "struct Line { void begin(long); template<class T> void print(T);"
        " template<class T> void println(T); };\n"
        "extern Line Serial;\nunsigned long micros();\nvoid delay(unsigned long);\n"
    )
    (tmp_path / "prelude.h").write_text(core + PRELUDE)
    flags = ARM if compiler.startswith("arm") else ()
    command = (compiler, *flags, *CPP, "-Isrc")
    assert compiles(command, tmp_path, str(sketch)) == ""
    units = [str(path) for path in tmp_path.glob("src/*.c")]
    (tmp_path / "prelude.h").write_text(PRELUDE)
    plain = compiler.replace("g++", "gcc")
    assert compiles((plain, *flags, *C11, "-Isrc"), tmp_path, *units) == ""


@pytest.mark.long
def test_the_headers_of_the_runtime_bear_them(tmp_path: Path) -> None:
    """Each header of ours by itself, as C and as C++ where the model's header includes it."""
    (tmp_path / "prelude.h").write_text(PRELUDE)
    folder = data_dir("runtime_c") / "include"
    names = sorted(path.name for path in (folder / "raot").glob("*.h"))
    parts = ("multiply_one.h", *PARTS)
    for name in names:
        if name not in parts:
            (tmp_path / f"{name}.c").write_text(f'#include "raot/{name}"\nextern int unit;\n')
    units = [path.name for path in tmp_path.glob("*.c")]
    assert len(units) > 30
    bare = [unit for unit in units if not unit.startswith("cuda")]  # without <dlfcn.h>
    for command, given in (
        (("gcc",), units),
        (("arm-none-eabi-gcc", *ARM), bare),
        (("gcc", "-mavx2", "-mfma"), units),
    ):
        flags = (*command, *C11, "-Wno-unused-function", f"-I{folder}")
        assert compiles(flags, tmp_path, *given) == "", command


def test_names_stay_recognizable() -> None:
    spelt = {"INPUT": "input", "PI": "pi", "stdin": "stdin_", "_B": "b", "abs": "abs_", "B1": "b1"}
    assert {name: identifier(name) for name in spelt} == spelt
    for name in ("x", "frames", "input_1", "Input_1", "xIn", "x_INPUT"):
        assert identifier(name) == name
    assert [Names().claim(name) for name in ("STDIN", "Stdin")] == ["stdin_", "Stdin"]
    names = Names()
    assert [names.claim(name) for name in ("X", "x", "ABS")] == ["x", "x_2", "abs_"]


def test_values_keep_what_they_are_called_in_python() -> None:
    arrays = {name: np.full(3, number, np.float32) for number, name in enumerate(INPUTS)}
    made = host_model(project())
    outputs = made(arrays)
    assert set(outputs) == set(OUTPUTS)
    assert all(abs(float(value.sum()) - 1) < 1e-5 for value in outputs.values())


@pytest.mark.parametrize("compiler", ["gcc", "arm-none-eabi-gcc"])
def test_no_macro_of_an_installed_header_is_a_name(compiler: str) -> None:
    """The compilers themselves say what their libraries' headers define."""
    need(compiler)
    headers = (
        "assert", "complex", "ctype", "errno", "fcntl", "fenv", "float", "inttypes", "limits",
        "locale", "math", "setjmp", "signal", "stdarg", "stdatomic", "stddef", "stdint", "stdio",
        "stdlib", "string", "strings", "sys/param", "sys/stat", "sys/time", "sys/types", "time",
        "unistd", "wchar",
    )  # fmt: skip
    flags = [flag for name in headers for flag in ("-include", f"{name}.h")]
    command = [compiler, "-std=gnu11", "-dM", "-E", *flags, "-x", "c", "/dev/null"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    objects = set(re.findall(r"^#define ([A-Za-z]\w*)(?= |$)", said, re.M))
    assert len(objects) > 300
    clashes = sorted(name for name in objects if identifier(name) == name)
    assert clashes == []
    # What takes arguments is replaced only where it is called, as kernels are.
    called = set(re.findall(r"^#define ([a-z]\w*)\(", said, re.M)) & FOREIGN_MACROS
    assert all(identifier(name) != name for name in called)
