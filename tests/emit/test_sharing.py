# SPDX-License-Identifier: Apache-2.0
"""Kernels that differ by numbers alone are one function that is given the numbers."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime as ort
import pytest

import relax_aot as rx
from relax_aot import driver
from relax_aot.project import Project
from relax_aot.verify.host import host_model
from tests.models.encoder import encoder
from tests.models.onnx_text import Weights, model_of, random_weights

SIGNATURE = "shared (float[1, 3, n, 11] image) => (float[1, 7, n, 11] y, float[1, 7, 1, 1] z)"
TEXT = """
    a = Conv <pads = [1, 1, 1, 1]> (image, wa, ba)
    b = Conv <pads = [1, 1, 1, 1]> (a, wb, bb)
    c = Conv <pads = [1, 1, 1, 1]> (b, wc, bc)
    d = LeakyRelu <alpha = 0.25> (c)
    e = Conv <pads = [1, 1, 1, 1]> (d, wd, bc)
    y = LeakyRelu <alpha = 0.5> (e)
    z = GlobalAveragePool(y)
"""
SHAPES = {
    "wa": (5, 3, 3, 3), "ba": (5,), "wb": (6, 5, 3, 3), "bb": (6,),
    "wc": (7, 6, 3, 3), "bc": (7,), "wd": (7, 7, 3, 3),
}  # fmt: skip


def compiled(weights: Weights, optimize: str) -> Project:
    options = driver.Options(bounds={"n": (1, 20)}, optimize=optimize)
    return driver.compile_model(model_of(SIGNATURE, TEXT, weights), "host", options)


def functions(project: Project) -> list[str]:
    text = project.files[f"{project.name}.c"].decode()
    return re.findall(r"^RAOT_NOINLINE static \w+ (conv\w*)\(", text, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("optimize", ["size", "speed"])
def test_results_are_right(optimize: str) -> None:
    weights = random_weights(np.random.default_rng(0), **SHAPES)
    session = ort.InferenceSession(model_of(SIGNATURE, TEXT, weights).SerializeToString())
    model = host_model(compiled(weights, optimize))
    for n in (1, 2, 3, 8, 19, 20):
        image = np.random.default_rng(n).normal(size=(1, 3, n, 11)).astype(np.float32)
        wanted = session.run(None, {"image": image})
        found = model(image=image)
        for array, name in zip(wanted, ("y", "z"), strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_functions_are_shared_for_size() -> None:
    weights = random_weights(np.random.default_rng(0), **SHAPES)
    few, many = (functions(compiled(weights, optimize)) for optimize in ("size", "speed"))
    assert len(few) <= 2 < len(many)


@pytest.mark.slow
def test_names_of_the_model_are_no_parameters_for_numbers() -> None:
    """A size and values that are called as parameters for numbers would be."""
    weights = random_weights(np.random.default_rng(0), **SHAPES)
    names = {"n": "number0", "image": "number1", "a": "number2", "e": "number3"}

    def renamed(text: str) -> str:
        return re.sub(r"\b\w+\b", lambda found: names.get(found[0], found[0]), text)

    model = model_of(renamed(SIGNATURE), renamed(TEXT), weights)
    options = driver.Options(bounds={"number0": (1, 20)}, optimize="size")
    host = host_model(driver.compile_model(model, "host", options))
    image = np.random.default_rng(1).normal(size=(1, 3, 5, 11)).astype(np.float32)
    (wanted, _) = ort.InferenceSession(model.SerializeToString()).run(None, {"number1": image})
    np.testing.assert_allclose(host(number1=image)["y"], wanted, rtol=1e-4, atol=1e-4)


def test_values_may_be_called_as_sizes_are() -> None:
    """The checks of two indices, which are called as the sizes of the axes that they belong to."""
    model = model_of(
        "named (float[n, m] x, int64[1] k, int64[1] l) => (float[1, m] y, float[n, 1] z)",
        """
            n = Add(k, one)
            m = Add(l, one)
            y = Gather <axis = 0> (x, n)
            z = Gather <axis = 1> (x, m)
        """,
        {"one": np.array([1])},
    )
    host = rx.compile(model, bounds={"n": 9, "m": 9}, name="named").host()
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    found = host(x=x, k=np.array([0]), l=np.array([3]))
    np.testing.assert_array_equal(found["y"], x[1:2])
    np.testing.assert_array_equal(found["z"], x[:, 4:5])
    with pytest.raises(rx.StatusError, match="INDEX"):
        host(x=x.T.copy(), k=np.array([0]), l=np.array([3]))


KERNEL = """
kernel @add{0}(%x: i32[{1}, {2}]) -> (%y: i32[{1}, {2}]) {{
  for i in 0..{3} {{
    let row = i // {2}
    let column = i - row * {2}
    %y[row, column] = (((%x[row, column] * 3:i32) {4}) >> 1:i32)
  }}
}}
"""
MAIN = """
func @main({parameters}) {{
{calls}
  return {results}
}}
"""


def test_numbers_of_either_sign_and_indices_of_any_width_are_parameters() -> None:
    """A number that is subtracted is a negative one that is added; rows that follow each other
    need neither their number nor their width."""
    sides = [(8, 6, 7), (5, 4, -9), (3, 10, 11)]
    kernels, parameters, calls = "", [], []
    for position, (rows, columns, number) in enumerate(sides):
        sign = "+" if number > 0 else "-"
        changed = f"{sign} {abs(number)}:i32"
        kernels += KERNEL.format(position, rows, columns, rows * columns, changed)
        shape = f"i32[{rows}, {columns}]"
        parameters.append(f"%x{position}: {shape}")
        calls.append(
            f"  %y{position}: {shape} = call_kernel(%x{position}) {{kernel=@add{position}}}"
        )
    results = ", ".join(f"%y{position}" for position in range(len(sides)))
    main = MAIN.format(parameters=", ".join(parameters), calls="\n".join(calls), results=results)
    project = rx.compile(rx.parse(kernels + main), name="sums", optimize="size")
    text = project.files["sums.c"].decode()
    assert text.count("RAOT_NOINLINE static") == 1
    assert "y0[i] = " in text
    host = project.host()
    arrays = [
        np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
        for rows, columns, _ in sides
    ]
    found = host(**{f"x{position}": array for position, array in enumerate(arrays)})
    for position, (array, (_, _, number)) in enumerate(zip(arrays, sides, strict=True)):
        np.testing.assert_array_equal(found[f"y{position}"], (array * 3 + number) >> 1)


EMPTY = """
kernel @double{0}(%x: f32[n, 0]) -> (%y: f32[n, 0]) {{
  for i in 0..n {{
    for j in 0..0 {{
      %y[i, j] = (%x[i, j] + %x[i, j])
    }}
  }}
}}
"""


def test_a_size_that_no_statement_reads_is_no_parameter() -> None:
    """Kernels of no element have no statement; compilers warn of a parameter that none reads."""
    main = """
func @main(%x: f32[n, 0], %y: f32[n, 0]) {
  %a: f32[n, 0] = call_kernel(%x) {kernel=@double0}
  %b: f32[n, 0] = call_kernel(%y) {kernel=@double1}
  return %a, %b
}
"""
    kernels = "".join(EMPTY.format(number) for number in range(2))
    project = rx.compile(rx.parse("symbol n in 1..4\n" + kernels + main), name="empty")
    text = project.files["empty.c"].decode()
    signatures = re.findall(r"^RAOT_NOINLINE static \w+ double\w*\(([^)]*)\)", text, re.M)
    assert signatures
    assert not any("int32_t n" in parameters for parameters in signatures)


@pytest.mark.long
def test_equal_kernels_share_a_function_also_beside_others_of_the_same_form() -> None:
    """Two products of a layer differ by their depth; those of several layers are equal."""
    options = driver.Options(bounds={"n": (1, 9), "batch": (1, 2)})
    built = driver.compile_model(encoder(8, 2, 5, 12), "host", options)
    text = built.files[f"{built.name}.c"].decode()
    owners = re.findall(r"^RAOT_NOINLINE static \w+ (matmul_add_add\w*)\(", text, re.M)
    products = [layer for k in built.view.kernels for layer, _ in k.layers if "add_add" in layer]
    assert len(products) == 10 and len(owners) < 5
