# SPDX-License-Identifier: Apache-2.0
"""Sums of products of floats on cores without instructions for them: tiles multiply integers
(decision 0085)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from relax_aot import driver, quantization
from relax_aot.resources import data_dir
from relax_aot.verify.emulate import emulate
from tests.models.onnx_text import model_of

SIGNATURE = "m (float[n, 4, 9, k] x) => (float[n, 6, 9, k] y)"
NET = """
    a = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
    b = Relu (a)
    c = Conv <pads = [1, 1, 1, 1], group = 16> (b, w2, b2)
    d = Relu (c)
    y = Conv (d, w3, b3)
"""
LAYERS = {"1": (16, 4, 3, 3), "2": (16, 1, 3, 3), "3": (6, 16, 1, 1)}
FIXED = {"k": 11}


def net(signature: str = SIGNATURE) -> Any:
    rng = np.random.default_rng(0)
    data = {}
    for name, shape in LAYERS.items():
        scale = np.prod(shape[1:]) ** -0.5
        data[f"w{name}"] = (rng.standard_normal(shape) * scale).astype(np.float32)
        data[f"b{name}"] = rng.standard_normal(shape[0]).astype(np.float32)
    return model_of(signature, NET, data)


def products(pixels: int) -> int:
    return pixels * sum(int(np.prod(shape)) for shape in LAYERS.values())


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "most"), [("mps2-an385", 34), ("raspberry-pi-pico", 85)])
@pytest.mark.parametrize("signature", [SIGNATURE, SIGNATURE.replace("k", "11")], ids=["k", "11"])
def test_tiles_multiply_integers(board: str, most: int, signature: str) -> None:
    """A product takes so many instructions at most, where the calls take 75 and 170."""
    model = net(signature)
    symbols = {"n": (1, 2)} | ({"k": (1, 11)} if "k" in signature else {})
    project = driver.compile_model(model, board, driver.Options(bounds=symbols))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(1)
    for n, k in ((1, 11), (2, 11), (2, 1), (1, 6)):
        if k != 11 and "k" not in symbols:
            continue
        x = rng.standard_normal((n, 4, 9, k)).astype(np.float32)
        (run,) = emulate(project, [{"x": x}])
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(run.outputs["y"], expected, rtol=1e-5, atol=2e-6)
        assert run.instructions is not None
        if "k" not in symbols:
            assert run.instructions < most * products(n * 9 * k)


@pytest.mark.qemu
def test_assembly_has_the_bits_of_c(tmp_path: Path) -> None:
    """Of Armv6-M; its emulator and compiler are those of the board."""
    text = (data_dir("boards") / "raspberry-pi-pico.toml").read_text(encoding="utf-8")
    made = tmp_path / "made.toml"
    assert text.count('    "-mthumb",') == 1
    made.write_text(
        text.replace('    "-mthumb",', '    "-mthumb",\n    "-DRAOT_NO_ASSEMBLY",'),
        encoding="utf-8",
    )
    x = np.random.default_rng(2).standard_normal((2, 4, 9, 11)).astype(np.float32)
    x[1] *= np.ldexp(np.float32(1), np.arange(11))
    options = driver.Options(bounds={"n": (2, 2), "k": (11, 11)})
    runs = [
        emulate(driver.compile_model(net(), board, options), [{"x": x}])[0]
        for board in ("raspberry-pi-pico", str(made))
    ]
    assert runs[0].outputs["y"].tobytes() == runs[1].outputs["y"].tobytes()
    assert runs[0].instructions != runs[1].instructions


def test_ordered_sums_are_floats() -> None:
    names = (b"raot_multiply_integers_f32(", b"raot_fmaf(")
    for numerics, found in (("blocked", (True, False)), ("ordered", (False, True))):
        bounds = {"n": (1, 1), "k": (11, 11)}
        options = driver.Options(bounds=bounds, numerics=numerics, name="m")
        code = driver.compile_model(net(), "mps2-an385", options).files["m.c"]
        assert tuple(name in code for name in names) == found, numerics


def test_small_memory_keeps_loops() -> None:
    """The arena of the tiles does not fit a board of 8 KB, that of loops does."""
    model = model_of(
        "m (float[1, 8, 10, 10] x) => (float[1, 8, 10, 10] y)", "y = Conv (x, w)",
        {"w": np.ones((8, 8, 1, 1), np.float32)},
    )  # fmt: skip
    code = driver.compile_model(model, "stm32vldiscovery", driver.Options(name="m")).files["m.c"]
    assert b"raot_multiply_integers_f32(" not in code
    code = driver.compile_model(model, "mps2-an385", driver.Options(name="m")).files["m.c"]
    assert b"raot_multiply_integers_f32(" in code


@pytest.mark.parametrize("group", [1, 4])
def test_factors_that_step_back_stay_in_loops(group: int) -> None:
    """Micro-kernels have no steps below 0: the filters of transposed convolutions are reversed."""
    model = model_of(
        "m (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y)",
        f"y = ConvTranspose <pads = [1, 1, 1, 1], group = {group}> (x, w)",
        {"w": np.ones((4, 4 // group, 3, 3), np.float32)},
    )
    project = driver.compile_model(model, "mps2-an385", driver.Options(name="m", check=True))
    assert b"raot_multiply_integers_f32(" not in project.files["m.c"]
    assert project.arena_bytes == 0


@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["int8w", "int4w"])
def test_weights_in_groups_fit_a_small_stack(kind: str) -> None:
    """Their tiles of floats take 1 KB of it, and no fewer instructions than loops."""
    rng = np.random.default_rng(0)
    model = model_of(
        "m (float[1, 64] x) => (float[1, 64] y)", "y = MatMul (x, w)",
        {"w": rng.standard_normal((64, 64)).astype(np.float32)},
    )  # fmt: skip
    options = driver.Options(name="m", quantize=quantization.Choice(kind))
    project = driver.compile_model(model, "stm32vldiscovery", options)
    (run,) = emulate(project, [{"x": np.ones((1, 64), np.float32)}])
    assert run.stack_bytes < 256


def test_bytes_may_fill_the_memory() -> None:
    """Only tiles of integers leave an eighth of the RAM: images of bytes are gathered as before."""
    rng = np.random.default_rng(0)
    model = model_of(
        "m (float[1, 3, 12, 12] x) => (float[1, 17, 1, 1] y)",
        """
            a = Conv <pads = [1, 1, 1, 1]> (x, w)
            b = Relu (a)
            c = Conv <pads = [1, 1, 1, 1]> (b, v)
            d = Relu (c)
            y = GlobalAveragePool (d)
        """,
        {
            "w": rng.standard_normal((17, 3, 3, 3)).astype(np.float32),
            "v": rng.standard_normal((17, 17, 3, 3)).astype(np.float32),
        },
    )
    samples = {"x": rng.standard_normal((2, 1, 3, 12, 12)).astype(np.float32)}
    arenas = []
    for board in ("nucleo-f103rb", "mps2-an385"):
        options = driver.Options(name="m", quantize=quantization.Choice("int8"), calibrate=samples)
        arenas.append(driver.compile_model(model, board, options).arena_bytes)
    assert arenas[0] == arenas[1]


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "most"), [("mps2-an385", 50), ("raspberry-pi-pico", 130)])
def test_zeros_take_no_longer_than_in_loops(board: str, most: int) -> None:
    """Windows with few elements that are no zeros are computed in floats, where zeros are left
    out."""
    rng = np.random.default_rng(0)
    model = model_of(
        "m (float[1, 8, 9, 11] x) => (float[1, 8, 9, 11] y)",
        "y = Conv <pads = [1, 1, 1, 1], group = 8> (x, w)",
        {"w": rng.standard_normal((8, 1, 3, 3)).astype(np.float32)},
    )
    project = driver.compile_model(model, board, driver.Options(name="m"))
    x = np.maximum(rng.standard_normal((1, 8, 9, 11)) - 0.8, 0).astype(np.float32)
    (run,) = emulate(project, [{"x": x}])
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(run.outputs["y"], expected, rtol=1e-5, atol=1e-6)
    assert run.instructions is not None
    assert run.instructions < most * x.size * 9
