# SPDX-License-Identifier: Apache-2.0
"""What a TensorFlow Lite file may say wrongly, what is said about it, and what users may choose."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import relax_aot as rx
from relax_aot.errors import RelaxAotError
from relax_aot.frontends import ModelError, UnsupportedError
from tests.cli.in_process import relax_aot
from tests.frontends.tflite_models import Maker, check_model, ours, truth


def small(*, signature: tuple[int, ...] | None = (-1, 6, 5, 2), shape: object = (1, 40)) -> bytes:
    """A convolution, a pool, a reshape and a matrix product, quantized."""
    rng, maker = np.random.default_rng(5), Maker()
    x = maker.tensor((1, 6, 5, 2), np.int8, 0.05, 3, signature=signature)
    w = maker.constant(rng.integers(-127, 128, (4, 3, 3, 2)).astype(np.int8), 0.01)
    b = maker.constant(rng.integers(-999, 999, 4).astype(np.int32), 0.0005)
    y = maker.tensor((1, 6, 5, 4), np.int8, 0.04, -5)
    maker.operator("CONV_2D", [x, w, b], [y], "Conv2DOptions", strideH=1, strideW=1)
    pooled = maker.tensor((1, 5, 2, 4), np.int8, 0.04, -5)
    maker.operator(
        "MAX_POOL_2D", [y], [pooled], "Pool2DOptions", padding=1, strideH=1, strideW=2,
        filterHeight=2, filterWidth=2,
    )  # fmt: skip
    flat = maker.tensor((1, 40), np.int8, 0.04, -5)
    maker.operator("RESHAPE", [pooled, maker.constant(np.array(shape, np.int32))], [flat])
    rows = maker.constant(rng.integers(-127, 128, (7, 40)).astype(np.int8), 0.01)
    z = maker.tensor((1, 7), np.int8, 0.1, 9)
    maker.operator("FULLY_CONNECTED", [flat, rows, -1], [z], "FullyConnectedOptions", version=4)
    return maker.build([x], [z])


@pytest.mark.parametrize("shape", [(1, 40), (-1, 40)])
@pytest.mark.parametrize("signature", [None, (-1, 6, 5, 2)])
def test_a_batch_is_open_where_the_user_bounds_it(
    signature: tuple[int, ...] | None, shape: tuple[int, ...]
) -> None:
    """The file fixes shapes for a batch of 1; every batch is as if its parts ran alone."""
    model = small(signature=signature, shape=shape)
    module = rx.load(model, bounds={"t0_0": (1, 9)})
    rng = np.random.default_rng(0)
    for batch in (1, 2, 9):
        x = rng.integers(-128, 128, (batch, 6, 5, 2)).astype(np.int8)
        alone = [result for (result,) in truth(model, [[row[None]] for row in x])]
        np.testing.assert_array_equal(ours(module, [x])[0], np.concatenate(alone))


def test_an_open_batch_is_1_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    module = rx.load(small())
    assert [str(p.type) for p in module.main.params] == ["i8[1, 6, 5, 2]"]
    (said,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "is set to 1" in said and "--bound t0_0=8" in said
    caplog.clear()
    rx.load(small(), bounds={"t0_0": 8})
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_a_note_is_printed_unless_quiet(tmp_path: Path) -> None:
    (tmp_path / "a.tflite").write_bytes(small())
    for more, count in (((), 1), (("--quiet",), 0)):
        done = relax_aot("compile", "a.tflite", "-o", "out", *more, folder=tmp_path)
        assert done.returncode == 0
        assert done.stderr.count("note: the batch of input") == count, done.stderr


def test_an_open_size_needs_a_bound_and_a_fixed_one_none() -> None:
    with pytest.raises(RelaxAotError, match=r"--bound t0_1=128 .*input t0, axis 1"):
        rx.load(small(signature=(-1, -1, 5, 2)))
    x = np.random.default_rng(0).integers(-128, 128, (1, 6, 5, 2)).astype(np.int8)
    check_model(small(signature=None), [x])
    with pytest.raises(RelaxAotError, match="no such symbol"):
        rx.load(small(), bounds={"t0_0": 2, "batch": 3})


def test_heights_and_widths_may_be_open_too() -> None:
    maker, rng = Maker(), np.random.default_rng(1)
    x = maker.tensor((1, 8, 8, 2), signature=(1, -1, -1, 2))
    w = maker.constant(rng.normal(size=(3, 3, 2, 2)).astype(np.float32))
    b = maker.constant(np.ones(3, np.float32))
    y = maker.tensor((1, 4, 3, 3))
    maker.operator("CONV_2D", [x, w, b], [y], "Conv2DOptions", padding=0, strideH=2, strideW=3)
    model = maker.build([x], [y])
    module = rx.load(model, bounds={"t0_1": (1, 11), "t0_2": (1, 11)})
    for height, width in ((1, 1), (8, 8), (7, 10), (11, 2)):
        x_array = rng.normal(size=(1, height, width, 2)).astype(np.float32)
        ((expected,),) = truth(model, [[x_array]])
        np.testing.assert_allclose(ours(module, [x_array])[0], expected, atol=1e-5)


def test_all_that_is_not_supported_is_said_at_once() -> None:
    maker = Maker()
    x = maker.tensor((3,))
    names = ("UNIQUE", "RANDOM_UNIFORM", "WHILE")
    made = [maker.tensor((3,)) for _ in names]
    for name, y in zip(names, made, strict=True):
        maker.operator(name, [x], [y])
    odd = maker.tensor((3,))
    maker.operator("CUSTOM", [x], [odd])
    maker.codes[-1].customCode = "MyOp"
    with pytest.raises(UnsupportedError) as error:
        rx.load(maker.build([x], [*made, odd]))
    text = str(error.value)
    for name in (*names, "MyOp"):
        assert name in text
    assert len(text.splitlines()) == 6
    assert "relax-aot ops --format tflite" in text


def test_only_what_an_output_needs_is_asked_of() -> None:
    maker = Maker()
    x, y, unused = maker.tensor((3,)), maker.tensor((3,)), maker.tensor((3,))
    maker.operator("UNIQUE", [x], [unused])
    maker.operator("ABS", [x], [y])
    assert len(rx.load(maker.build([x], [y])).main.body) == 1


def test_inputs_may_be_fixed_and_results_kept() -> None:
    maker = Maker()
    x, state, y = maker.tensor((3,)), maker.tensor((3,)), maker.tensor((3,))
    maker.operator("ADD", [x, state], [y], "AddOptions")
    model = maker.build([x, state], [y])
    kept = rx.load(model, state={"t1": "t2"})
    assert [(s.input, s.output) for s in kept.states] == [("t1", "t2")]
    fixed = rx.load(model, fix={"t1": [1.0, 2.0, 3.0]})
    (found,) = ours(fixed, [np.zeros(3, np.float32)])
    np.testing.assert_array_equal(found, [1, 2, 3])
    with pytest.raises(ModelError, match="no input 't9'"):
        rx.load(model, fix={"t9": 1})


@pytest.mark.parametrize("data", [b"", b"TFL3", b"\0\0\0\0TFL3", b"x" * 64], ids=len)
def test_what_is_no_model_is_said_so(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"x\.tflite cannot be read"):
        rx.load(path)


@pytest.mark.slow
def test_damaged_files_give_one_error_and_no_other() -> None:
    whole, rng = small(), random.Random(1)
    told = 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 5])):
            data[rng.randrange(len(data))] = rng.choice([rng.randrange(256), 0, 255, 127, 128])
        if rng.random() < 0.1:
            del data[rng.randrange(8, len(data)) :]
        try:
            rx.load(bytes(data[:4]) + b"TFL3" + bytes(data[8:]), bounds={"t0_0": 2})
        except RelaxAotError as error:
            told += 1
            assert 0 < len(str(error)) < 4000
    assert told > 100
