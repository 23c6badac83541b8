# SPDX-License-Identifier: Apache-2.0
"""Headers are read as a C compiler reads them: the truth is what gcc makes of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from relax_aot.externs import ExternError
from relax_aot.externs.header import read_header
from relax_aot.externs.preprocess import STANDARD, preprocess

TEXTS = {
    "guard": "#ifndef A_H\n#define A_H\nint f(void);\n#endif\n",
    "comments": "int /* a\nb */ f(int x); // end\n/* \"quoted */ int g(void);\n",
    "comment in a text": 'static const char *t = "/* no */ // no";\nint f(void);\n',
    "continuation": "#define TWO 1 + \\\n  1\nint f(int a[TWO],\\\nint b);\nint g(void);\n",
    "object macro": "#define N M\n#define M 3\nint f(int x[N]);\n",
    "macro of itself": "#define f f\nint f(int f);\n",
    "function macro": "#define API(t) extern t\nAPI(int) f(int x);\nAPI (float) g(int API);\n",
    "nested calls": "#define ID(x) x\n#define TWICE(x) ID(x) ID(x)\nint f(int a[TWICE(1 +) 1]);\n",
    "commas in parentheses": "#define FIRST(a, b) a\nint f(int x[FIRST((1, 2), 3)]);\n",
    "no arguments": "#define NONE() int\nNONE() f(void);\n",
    "undef": "#define N 3\n#undef N\n#ifdef N\nint f(void);\n#else\nint g(void);\n#endif\n",
    "elif": "#define V 2\n#if V == 1\nint a(void);\n#elif V == 2\nint b(void);\n#elif V == 2\n"
    "int c(void);\n#else\nint d(void);\n#endif\n",
    "nested conditions": "#if 0\n#if 1\nint a(void);\n#else\nint b(void);\n#endif\n#else\n"
    "#ifndef X\nint c(void);\n#endif\n#endif\n",
    "arithmetic": "#if (1 + 2 * 3 == 7) && -7 / 2 == -3 && -7 % 2 == -1 && !(4 > 5) || 0\n"
    "int a(void);\n#endif\n#if 10 - 3 - 2 != 5\nint b(void);\n#endif\n",
    "suffixes and bases": "#if 0x10UL == 16 && 010 == 8 && 5L > 4u\nint a(void);\n#endif\n",
    "defined": "#define A\n#if defined(A) && defined A && !defined (B) && !defined B\n"
    "int a(void);\n#endif\n",
    "unknown names are 0": "#if NO_SUCH\nint a(void);\n#elif NO_SUCH + 1\nint b(void);\n#endif\n",
    "macro in a condition": "#define V(x) ((x) * 2)\n#if V(3) == 6\nint a(void);\n#endif\n",
    "nothing in a dead part counts": "#if 0\n#error no\n#include \"no.h\"\n#define N 3\n#endif\n"
    "#ifdef N\nint a(void);\n#endif\nint b(void);\n",
    "version of the language": "#if __STDC_VERSION__ >= 201112L && !defined(__cplusplus)\n"
    "int a(void);\n#endif\n",
    "space before the sign": "  #  define N 2\n # if N == 2\nint a(int x[N]);\n\t#endif\n",
    "includes": '#include "other.h"\n#include "other.h"\nint f(other);\n',
    "pragma once": '#include "once.h"\n#include "once.h"\nint f(void);\n',
    "include by a macro": '#define OTHER "other.h"\n#include OTHER\nint f(other);\n',
    "carriage returns": "#ifdef A\r\nint a(void);\r\n#else\r\nint b(void);\r\n#endif\r\n",
}  # fmt: skip
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\w+|\S')


def folder_with(tmp_path: Path, text: str) -> Path:
    (tmp_path / "a.h").write_bytes(text.encode())
    (tmp_path / "other.h").write_text("#ifndef O\n#define O\ntypedef int other;\n#endif\n")
    (tmp_path / "once.h").write_text("#pragma once\ntypedef int once;\n")
    return tmp_path / "a.h"


def tokens(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return TOKEN.findall("\n".join(lines))


@pytest.mark.parametrize("case", TEXTS)
def test_the_preprocessor_makes_what_gcc_makes(case: str, tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    path = folder_with(tmp_path, TEXTS[case])
    theirs = subprocess.run(
        [gcc, "-std=c11", "-E", "-P", path], capture_output=True, text=True, check=True
    )
    ours = preprocess(path)
    assert tokens(ours.text) == tokens(theirs.stdout)


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    text = (
        '/* one\ntwo */\n#include "other.h"\n#define N \\\n 3\n#if 1\n\nint f(int x[N]);\n#endif\n'
    )
    header = read_header(folder_with(tmp_path, text))
    assert header.prototypes["f"].place == "a.h:8"


WRONG = {
    "no endif": ("#if 1\nint f(void);\n", "an #if has no #endif"),
    "endif alone": ("#endif\n", r"a\.h:1: #endif without #if"),
    "error": ("#error not for you\n", r"a\.h:1: the header says #error not for you"),
    "no such include": ('\n#include "no.h"\n', r'a\.h:2: "no\.h" is not next to the header'),
    "condition": ("#if 1 +\n#endif\n", r"a\.h:1: cannot decide `#if 1 \+`: it is incomplete"),
    "division by 0": ("#if 1 / 0\n#endif\n", "it divides by 0"),
    "assignment": ("#if A = 1\n#endif\n", "'=' is not supported"),
    "parenthesis": ("#if (1\n#endif\n", r"a `\)` is missing"),
    "include of itself": ('#include "a.h"\n', "include each other in a cycle"),
    "no C": ("int f(int x;\n", "cannot be parsed as C declarations: a.h:1:"),
    "unknown type": ("int f(int);\nint g(thing *x);\n", "parsed as C declarations: a.h:2:"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_understood_is_named(case: str, tmp_path: Path) -> None:
    text, message = WRONG[case]
    with pytest.raises(ExternError, match=message):
        read_header(folder_with(tmp_path, text))


DECLARED = {
    "const float *x": ("float", True, True),
    "float const *x": ("float", True, True),
    "float *const x": ("float", True, False),
    "const float x[]": ("float", True, True),
    "float x[static 4]": ("float", True, False),
    "const real *restrict x": ("float", True, True),
    "const real *__restrict__ x": ("float", True, True),
    "cfloat *x": ("float", True, True),
    "int8_t *x": ("int8_t", True, False),
    "q7 x": ("int8_t", False, False),
    "size_t x": ("size_t", False, False),
    "unsigned x": ("unsigned int", False, False),
    "long int x": ("long", False, False),
    "long long unsigned int x": ("unsigned long long", False, False),
    "short x": ("short", False, False),
    "bool x": ("_Bool", False, False),
    "long double x": ("long double", False, False),
    "enum mode x": ("enum mode", False, False),
    "struct s *x": ("struct s", True, False),
    "float **x": ("a pointer to a pointer", True, False),
    "float (*x)(int)": ("a function", True, False),
    "void *x": ("void", True, False),
}  # fmt: skip


@pytest.mark.parametrize("declared", DECLARED)
def test_parameters_are_what_c_says(declared: str, tmp_path: Path) -> None:
    text = (
        "#include <stdint.h>\n#include <stddef.h>\n#include <stdbool.h>\n"
        "typedef float real;\ntypedef const real cfloat;\ntypedef int8_t q7;\n"
        f"enum mode {{ A, B }};\nstruct s {{ int a; }};\nint f({declared});\n"
    )
    (param,) = read_header(folder_with(tmp_path, text)).prototypes["f"].params
    assert (param.name, param.base, param.pointer, param.const) == ("x", *DECLARED[declared])


@pytest.mark.parametrize(
    ("text", "returns"),
    [
        ("void f(void);", "void"),
        ("int f();", "int"),
        ("enum raot_status f(int x);", "enum raot_status"),
        ("static inline float f(int x) { return (float)x; }", "float"),
        ("float *f(int x);", "float *"),
        ("__attribute__((nonnull(1), pure)) int f(int x) __attribute__((const));", "int"),
        ("typedef enum { OK } status;\nstatus f(int x);", "enum"),
    ],
)
def test_what_functions_return(text: str, returns: str, tmp_path: Path) -> None:
    prototype = read_header(folder_with(tmp_path, text)).prototypes["f"]
    assert prototype.returns == returns


def test_names_and_macros_are_those_of_the_header_itself(tmp_path: Path) -> None:
    from relax_aot.resources import data_dir

    text = '#include "raot/status.h"\n#include "other.h"\n#define MINE 1\nint f(other x);\n'
    include = data_dir("runtime_c") / "include"
    header = read_header(folder_with(tmp_path, text), (include,))
    assert header.macros == {"MINE", "O"}
    assert {"f", "other"} <= header.names


def test_stand_ins_have_the_sizes_of_the_real_types(tmp_path: Path) -> None:
    cc = shutil.which("cc")
    if cc is None:
        pytest.skip("no C compiler")
    text = "".join(STANDARD.values()).replace("_t;", "_s;")
    checks = "".join(
        f'_Static_assert(sizeof({s}int{n}_s) == sizeof({s}int{n}_t), "");\n'
        for s in ("", "u") for n in (8, 16, 32, 64)
    )  # fmt: skip
    (tmp_path / "a.c").write_text(f"#include <stdint.h>\n{text}\n{checks}")
    made = subprocess.run([cc, "-c", "a.c"], cwd=tmp_path, capture_output=True, check=False)
    assert (made.returncode, made.stderr) == (0, b"")
