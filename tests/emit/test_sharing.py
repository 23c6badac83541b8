"""Kernels that differ by numbers alone are one function that is given the numbers."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime as ort
import pytest

from relax_aot import driver
from relax_aot.project import Project
from relax_aot.verify.host import host_model
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


def test_functions_are_shared_for_size() -> None:
    weights = random_weights(np.random.default_rng(0), **SHAPES)
    few, many = (functions(compiled(weights, optimize)) for optimize in ("size", "speed"))
    assert len(few) <= 2 < len(many)


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
