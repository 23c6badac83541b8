# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a table of externs is said once, with key and C declaration."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from relax_aot.externs import ExternError, place, read_externs
from relax_aot.frontends import ImportOptions, load
from relax_aot.ir.graph import Module
from tests.externs.routines import HEADER, PATTERN, rms_model, table, write
from tests.models.onnx_text import model_of


def module(width: int = 10) -> Module:
    return load(rms_model(width), ImportOptions(bounds={"b": (1, 2), "n": (1, 9)}))


def argument(name: str, value: str) -> str:
    return table(**{name: value})


WRONG = {
    "not TOML": ("header = ", "not valid TOML"),
    "no header": (table().replace('header = "rms.h"', ""), "header: expected a text; it is"),
    "unknown key at the top": ("headers = 1\n" + table(), "headers: unknown key; did you mean"),
    "header that is not there": (table().replace('"rms.h"', '"no.h"'), "cannot read no.h"),
    "header outside": (table().replace('"rms.h"', '"../rms.h"'), "header: expected a path below"),
    "source that is not there": (table().replace("rms.c", "no.c"), "cannot read no.c"),
    "source that is no C": (table().replace("rms.c", "rms.h"), "sources: expected names of C"),
    "no extern": ('header = "rms.h"\nsources = []\n', "extern: expected at least one"),
    "unknown key": (table("functions = 1"), r"extern\[0\].functions: unknown key; did you mean 'f"),
    "no such function": (
        table().replace('"fast_rms"', '"fast_rmss"'),
        r"declares no function 'fast_rmss'; did you mean 'fast_rms'",
    ),
    "no pattern and no node": (
        table().replace(PATTERN, "").replace("replaces = ''''''", ""),
        "replaces: it is missing",
    ),
    "parameter without entry": (table(work=None), "arguments.work: it is missing"),
    "entry without parameter": (
        argument("works", "{ size = 1 }"),
        "arguments.works: unknown key; did you mean 'work'",
    ),
    "unknown role": (argument("work", '{ scratches = "f32[k]" }'), "exactly one of input, output"),
    "two roles": (argument("work", '{ scratch = "f32[k]", size = 1 }'), "exactly one of"),
    "unknown element type": (argument("x", '{ input = "float[m, k]" }'), "f32, f64, f16"),
    "no type": (argument("x", "{ input = 3 }"), "x.input: expected a text; got 3"),
    "bad size": (argument("rows", '{ size = "m +" }'), "rows.size: not a size: .*expected a size"),
    "bad ceildiv": (argument("rows", '{ size = "ceildiv(m)" }'), r"expected ceildiv\(a, b\)"),
    "size over an unknown symbol": (argument("rows", '{ size = "q" }'), "has the size 'q'"),
    "scratch over an unknown symbol": (
        argument("work", '{ scratch = "f32[q]" }'),
        r"has the size .q.; known are \['k', 'm'\]",
    ),
    "pointer to another element": (
        argument("x", '{ input = "i8[*m, k]" }'),
        "input of i8 is `const int8_t \\*x` in C; the header has `const float *",
    ),
    "value where a pointer is meant": (argument("rows", '{ input = "f32[m]" }'), "`int32_t rows`"),
    "pointer where a value is meant": (argument("x", '{ size = "m" }'), "expected an integer or"),
    "size as a float": (argument("epsilon", '{ size = "m" }'), "a size is an integer in C"),
    "input that C may write": (argument("y", '{ input = "f32[*m, k]" }'), "an input is only read"),
    "output that C only reads": (argument("gain", '{ output = "f32[k]" }'), "output is written"),
    "no output": (argument("y", '{ scratch = "f32[m*k]" }'), "no parameter is an output"),
    "value not in the pattern": (
        argument("x", '{ input = "f32[*m, k]", of = "p" }'),
        r'no %p that is read, only %x, %e, %gain; say which with of = "name"',
    ),
    "value that the pattern reads and no parameter takes": (
        argument("epsilon", "{ value = 0.5 }"),
        "reads %e, which is not a C parameter",
    ),
    "number for another type": (argument("width", "{ value = 0.5 }"), "not a value of uint16"),
    "number out of range": (argument("width", "{ value = 65536 }"), "65536 is outside uint16_t"),
    "number that is a text": (argument("width", '{ value = "a" }'), "expected a number, true"),
    "attribute without name": (
        argument("width", '{ attribute = "kind" }'),
        r"does not name an attribute \$kind",
    ),
    "many axes in the middle": (argument("x", '{ input = "f32[k, *m]" }'), "must be first"),
    "requirement that is none": (table('requires = "k"'), "requires: expected one of <="),
    "requirement over an unknown symbol": (table('requires = "q > 1"'), "has the size 'q'"),
    "returns something": (table('returns = "code"'), "valid values are: \"nothing\""),
    "name that is none": (table('name = "a b"'), "name: expected an identifier"),
    "op that does not exist": (table().replace("mul(%x, %x)", "mull(%x, %x)"), "unknown op 'mull'"),
    "line that is none": (table().replace("%s = mul(%x, %x)", "s = mul(x)"), "expected a line"),
    "line that leads nowhere": (
        table().replace("%a = add(%m, %e)", "%a = add(%m, %e)\n%p = exp(%a)"),
        "%p does not lead to the last line",
    ),
    "value made twice": (table().replace("%a = add", "%m = add"), "%m is defined twice"),
    "value read too early": (table().replace("mul(%x, %x)", "mul(%x, %d)"), "%d is read before"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_table_is_refused(case: str, tmp_path: Path) -> None:
    text, message = WRONG[case]
    path = write(tmp_path, text)
    with pytest.raises(ExternError, match=message) as refused:
        read_externs([path])
    assert str(path.parent) in str(refused.value)


@pytest.mark.parametrize(
    "case",
    [
        "entry without parameter",
        "pointer to another element",
        "input that C may write",
        "parameter without entry",
        "no output",
    ],
)
def test_the_c_declaration_is_shown(case: str, tmp_path: Path) -> None:
    with pytest.raises(ExternError) as refused:
        read_externs([write(tmp_path, WRONG[case][0])])
    assert "C: void fast_rms(int32_t rows, uint16_t width, const float *" in str(refused.value)
    assert "(rms.h:9)" in str(refused.value)


RETURNS = {
    "int": 'the function returns int; write "code"',
    "float": "the function returns float; write",
}


@pytest.mark.parametrize("returns", RETURNS)
def test_what_a_function_returns_must_be_said(returns: str, tmp_path: Path) -> None:
    header = HEADER.replace("void fast_rms", f"{returns} fast_rms")
    with pytest.raises(ExternError, match=RETURNS[returns]):
        read_externs([write(tmp_path, header=header)])
    (rule,) = read_externs([write(tmp_path, table('returns = "ignored"'), header)]).rules
    assert not rule.extern.fallible


def test_parameters_need_names(tmp_path: Path) -> None:
    header = HEADER.replace("int32_t rows", "int32_t")
    with pytest.raises(ExternError, match="every parameter in the prototype needs"):
        read_externs([write(tmp_path, header=header)])


def test_typedefs_of_the_header_are_looked_through(tmp_path: Path) -> None:
    header = HEADER.replace("#include <stdint.h>", "#include <stdint.h>\ntypedef float real;")
    header = header.replace("const float *", "const real *")
    (rule,) = read_externs([write(tmp_path, header=header)]).rules
    assert [a.c_type for a in rule.arguments][2] == "float"


# What does not fit the model


def refused(tmp_path: Path, text: str, width: int = 10) -> str:
    with pytest.raises(ExternError) as error:
        place(module(width), read_externs([write(tmp_path, text)]))
    return str(error.value)


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    said = refused(tmp_path, table().replace('kind="mean"', 'kind="sum"'))
    assert "fast_rms matches no call of the model" in said
    assert "its pattern is mul, reduce, add, sqrt, div, mul; ops in the model are: add, " in said


def test_a_node_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    said = refused(tmp_path, table('node = "/no"'))
    assert "unknown node '/no', nodes are: /a/Add, /d/Div" in said


NEARLY = {
    "rank": (argument("x", '{ input = "f32[m, k]" }'), "x is f32[b, n, 10], declared as f32[m, k]"),
    "constant size": (argument("x", '{ input = "f32[*m, 12]" }'), "12 is 12 here, not 10"),
    "the same symbol": (argument("gain", '{ input = "f32[m]" }'), "m is b*n here, not 10"),
    "requirement": (table('requires = "k % 4 == 0"'), "'k % 4 == 0' is not proven"),
    "requirement with bounds": (table('requires = "m <= 17"'), "'m <= 17' is not proven"),
    "negative scratch": (argument("work", '{ scratch = "f32[k - 11]" }'), "-1 can be negative"),
    "value too large": (argument("width", '{ size = "10000*m" }'), "10000*b*n is 10000..180000"),
    "no constant": (
        table(gain='{ input = "f32[]", of = "e" }', epsilon='{ constant = "gain" }'),
        "gain: f32[10] is not a constant of one element",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NEARLY)
def test_a_call_that_nearly_fits_is_named_with_the_reason(case: str, tmp_path: Path) -> None:
    text, message = NEARLY[case]
    said = refused(tmp_path, text)
    assert "nearly:\n  %w = mul(...) from /w/Mul: " in said
    assert message in said


@pytest.mark.parametrize("requires", ["k % 5 == 0", "m <= 18", "2*k >= 20"])
def test_requirements_that_hold_for_every_size_are_met(requires: str, tmp_path: Path) -> None:
    placed = place(module(), read_externs([write(tmp_path, table(f'requires = "{requires}"'))]))
    assert [call.op for call in placed.main.body] == ["relu", "call_extern", "tanh"]


def test_a_value_that_others_need_is_not_taken_away(tmp_path: Path) -> None:
    model = rms_model()
    model.graph.output.append(onnx.helper.make_tensor_value_info("q", 1, ["b", "n", 1]))
    loaded = load(model, ImportOptions(bounds={"b": (1, 2), "n": (1, 9)}))
    with pytest.raises(ExternError, match="%q is used elsewhere too"):
        place(loaded, read_externs([write(tmp_path)]))


def test_every_match_is_replaced_and_names_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "n.h").write_text("void neg(const float *x, int n, float *y);\n")
    (tmp_path / "n.toml").write_text("""
        header = "n.h"
        [[extern]]
        function = "neg"
        replaces = "%y = relu(%x)"
        [extern.arguments]
        x = { input = "f32[*n]" }
        n = { size = "n" }
        y = { output = "f32[*n]" }
        [[extern]]
        function = "neg"
        replaces = "%y = tanh(%x)"
        [extern.arguments]
        x = { input = "f32[*n]" }
        n = { size = "n" }
        y = { output = "f32[*n]" }
    """)
    placed = place(module(), read_externs([tmp_path / "n.toml"]))
    assert [extern.name for extern in placed.externs] == ["neg", "neg_2"]
    calls = [call for call in placed.main.body if call.op == "call_extern"]
    assert [call.ref("extern") for call in calls] == ["neg", "neg_2"]


def test_two_tables_must_not_bring_different_files_of_one_name(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a"), write(tmp_path / "b", header=HEADER + "\n")
    with pytest.raises(ExternError, match=r"rms\.h differs from the file of that name"):
        read_externs([one, two])
    assert len(read_externs([one, one]).rules) == 2


POOL = """
header = "pool.h"
[[extern]]
function = "pool"
replaces = "%y = max_pool(%x) {{kernel={kernel}, pads={pads}}}"
{extra}
[extern.arguments]
x = {{ input = "f32[b, c, t]" }}
k = {{ {k} }}
y = {{ output = "f32[b, c, t]" }}
"""


def placed_pool(tmp_path: Path, **changed: str) -> list[str]:
    """The attributes of the extern that takes a pool of window 3."""
    parts = {"kernel": "[$k]", "pads": "[1, 1]", "extra": "", "k": 'size = "k"'} | changed
    (tmp_path / "pool.h").write_text("void pool(const float *x, int k, float *y);\n")
    (tmp_path / "pool.toml").write_text(POOL.format(**parts))
    model = model_of(
        "pool (float[1, 2, n] x) => (float[1, 2, n] y)",
        "y = MaxPool <kernel_shape = [3], pads = [1, 1]> (x)",
        {},
    )
    loaded = load(model, ImportOptions(bounds={"n": (1, 9)}))
    (call,) = place(loaded, read_externs([tmp_path / "pool.toml"])).main.body
    return [f"{name}={value}" for name, value in call.attrs if name != "extern"]


def test_attributes_with_names_are_sizes(tmp_path: Path) -> None:
    assert placed_pool(tmp_path) == ["k=3"]
    assert placed_pool(tmp_path, k='size = "2*k + t"') == ["k=n + 6"]
    assert placed_pool(tmp_path, kernel="$k", k='attribute = "k[0]"') == ["k=3"]
    assert placed_pool(tmp_path, kernel="[3]", k='attribute = "kernel[0]"') == ["k=3"]
    assert placed_pool(tmp_path, pads="[$p, $p]", k='size = "p"', kernel="[3]") == ["k=1"]


NO_FIT = {
    "another element": ({"kernel": "[4]", "k": "value = 1"}, "matches no call"),
    "another length": ({"kernel": "[$k, 1]"}, "matches no call"),
    "two values of one name": ({"kernel": "[$k]", "pads": "[$k, 1]"}, "matches no call"),
    "a list as a size": ({"kernel": "$k"}, r"\$k is not a size, but \(3,\)"),
    "no element": ({"kernel": "$k", "k": 'attribute = "k[1]"'}, "has no element 1"),
    "no number": ({"kernel": "$k", "k": 'attribute = "k"'}, r"is not a number, but \(3,\)"),
    "an unused name": ({"kernel": "[$q]", "k": "value = 1"}, r"the attribute \$q"),
    "a requirement": ({"extra": 'requires = "k > 3"'}, "'k > 3' is not proven"),
    "no such attribute": ({"kernel": "[3]", "k": 'attribute = "kernels"'}, "known are: ceil_mode"),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_FIT)
def test_attributes_that_do_not_fit(case: str, tmp_path: Path) -> None:
    changed, message = NO_FIT[case]
    with pytest.raises(ExternError, match=message):
        placed_pool(tmp_path, **changed)
