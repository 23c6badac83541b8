# SPDX-License-Identifier: Apache-2.0
"""The interpreter and the C agree on integer arithmetic at the edges of every type, for every
operator and function, shifts by negative and too large amounts included, and on conversions of
floats that no integer type holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.ir.graph import Module
from relax_aot.verify.host import HostModel
from tests.fusion.run_module import run_module

Array = np.ndarray[Any, Any]
OPERATORS = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
FUNCTIONS = ("max", "min", "fmod", "pow")
TYPES = {f"{kind}{bits}": np.dtype(f"{name}{bits}") for kind, name in (("i", "int"), ("u", "uint"))
         for bits in (8, 16, 32, 64)}  # fmt: skip
NUMPY = {"<<": np.left_shift, ">>": np.right_shift, "&": np.bitwise_and, "^": np.bitwise_xor}


def _expressions(dtype: str) -> Iterator[tuple[str, str]]:
    for operator in OPERATORS:
        yield operator, f"(%a[i] {operator} %b[i])"
    for function in FUNCTIONS:
        yield function, f"{function}(%a[i], %b[i])"
    yield "abs", "abs(%a[i])"
    if dtype.startswith("i"):
        yield "neg", "(-%a[i])"


def _edges(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    info = np.iinfo(dtype)
    bits = info.bits
    near = {0, 1, 2, 3, 7, bits - 1, bits, bits + 1, info.max, info.max - 1, info.max // 2}
    near |= {-value for value in near} | {info.min, info.min + 1}
    values = np.array(sorted(v for v in near if info.min <= v <= info.max), dtype)
    left, right = np.meshgrid(values, values)
    return left.reshape(-1), right.reshape(-1)


@pytest.fixture(scope="module")
def program() -> tuple[Module, HostModel]:
    """One kernel for each type, with a result for each operator."""
    parameters, calls, results, kernels = [], [], [], []
    for dtype in TYPES:
        n = f"n_{dtype}"
        names = [f"%{dtype}_{i}" for i, _ in enumerate(_expressions(dtype))]
        parameters += [f"%a_{dtype}: {dtype}[{n}]", f"%b_{dtype}: {dtype}[{n}]"]
        out = [f"%o{i}: {dtype}[{n}]" for i in range(len(names))]
        stores = [f"    %o{i}[i] = {text}" for i, (_, text) in enumerate(_expressions(dtype))]
        kernels += [
            f"kernel @k_{dtype}(%a: {dtype}[{n}], %b: {dtype}[{n}]) -> ({', '.join(out)}) {{",
            f"  for i in 0..{n} {{", *stores, "  }", "}", "",
        ]  # fmt: skip
        types = ", ".join(f"{name}: {dtype}[{n}]" for name in names)
        calls.append(f"  {types} = call_kernel(%a_{dtype}, %b_{dtype}) {{kernel=@k_{dtype}}}")
        results += names
    symbols = [f"symbol n_{dtype} in 1..1000" for dtype in TYPES]
    main = [
        f"func @main({', '.join(parameters)}) {{",
        *calls,
        f"  return {', '.join(results)}",
        "}",
    ]
    module = rx.parse("\n".join([*symbols, "", *main, "", *kernels]))
    return module, rx.compile(module).host()


@pytest.mark.slow
def test_the_interpreter_agrees_with_the_c(program: tuple[Module, HostModel]) -> None:
    module, host = program
    inputs = {}
    for dtype, kind in TYPES.items():
        inputs[f"a_{dtype}"], inputs[f"b_{dtype}"] = _edges(kind)
    sizes = {f"n_{dtype}": len(inputs[f"a_{dtype}"]) for dtype in TYPES}
    interpreted = run_module(module, inputs, sizes)
    computed = host(**inputs)
    for dtype in TYPES:
        left, right = inputs[f"a_{dtype}"], inputs[f"b_{dtype}"]
        for i, (operator, _) in enumerate(_expressions(dtype)):
            found, expected = computed[f"{dtype}_{i}"], interpreted[f"{dtype}_{i}"]
            wrong = np.flatnonzero(found != expected)[:3]
            shown = [(left[at], right[at], found[at], expected[at]) for at in wrong]
            assert not shown, f"{dtype} {operator}: (left, right, C, interpreter) {shown}"
            if operator in NUMPY:
                np.testing.assert_array_equal(found, NUMPY[operator](left, right), operator)


FLOATS: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
MODES = ("wrap", "saturate")


def test_conversions_of_floats_agree() -> None:
    """To every integer type, from NaN, infinities, and both sides of every power of two."""
    rows = [(source, to, mode) for source in FLOATS for to in TYPES for mode in MODES]
    stores = [f"    %o{i}[i] = cast(%{s}[i], {to}, {mode})" for i, (s, to, mode) in enumerate(rows)]
    results = ", ".join(f"%o{i}: {to}[n]" for i, (_, to, _) in enumerate(rows))
    text = f"""symbol n in 1..1000

func @main(%f32: f32[n], %f64: f64[n]) {{
  {results} = call_kernel(%f32, %f64) {{kernel=@k}}
  return {", ".join(f"%o{i}" for i in range(len(rows)))}
}}

kernel @k(%f32: f32[n], %f64: f64[n]) -> ({results}) {{
  for i in 0..n {{
{chr(10).join(stores)}
  }}
}}
"""
    powers: Array = 2.0 ** np.arange(-1, 66)
    edges = [0.0, 0.5, 1.5, np.inf, 1e30, *powers, *(powers - 1), *(powers * (1 - 2.0**-24))]
    values: Array = np.array([np.nan, -0.0, *edges, *np.negative(edges)])
    inputs = {name: values.astype(dtype) for name, dtype in FLOATS.items()}
    module = rx.parse(text)
    interpreted = run_module(module, inputs, {"n": len(values)})
    computed = rx.compile(module).host()(**inputs)
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(computed[f"o{i}"], interpreted[f"o{i}"], str(row))
