# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose part of the image is in shared memory once, on the emulated GPU: at sizes
below and above those of tiles with the results of NumPy in double precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot.evaluation.scalars import array_of
from relax_aot.ir.dims import Bounds
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel
from relax_aot.ir.types import DType
from relax_aot.scheduling import schedule_device
from relax_aot.scheduling.targets import cuda_mma
from tests.cuda.shim import Job, Shim
from tests.transforms.examples import example_module

Array = NDArray[Any]
Pair = tuple[int, int]
SIZES = ((1, 3, 3), (1, 7, 10), (2, 9, 18), (3, 17, 33))
ROUNDED = {"f16": 2.0**-11, "bf16": 2.0**-8}


@dataclass(frozen=True)
class Convolution:
    """`size`, `strides`, `dilations` and `pads` (before and behind) of a window on both axes.
    `zero`: the zero point of an image of bytes. `last`: the image and the results have their
    channels last."""

    channels: int
    filters: int
    size: Pair = (3, 3)
    strides: Pair = (1, 1)
    dilations: Pair = (1, 1)
    pads: tuple[Pair, Pair] = ((1, 1), (1, 1))
    kind: str = "f16"
    zero: int = 0
    last: tuple[bool, bool] = (False, False)

    @property
    def weights(self) -> str:
        return "i8" if DType(self.kind).is_int else self.kind

    def count(self, axis: int, size: Any) -> Any:
        """Of results on an axis."""
        reach = self.dilations[axis] * (self.size[axis] - 1) + 1 - sum(self.pads[axis])
        if isinstance(size, str):
            return f"({size} - {reach}) // {self.strides[axis]} + 1"
        return (size - reach) // self.strides[axis] + 1

    def window(self, axis: int) -> str:
        """The loop over its places."""
        name, pixel, size = "kl"[axis], "ij"[axis], "hw"[axis]
        if self.pads[axis] == (0, 0):
            return f"for {name} in 0..{self.size[axis]} {{"
        apart, before = self.dilations[axis], self.pads[axis][0] + self.dilations[axis] - 1
        first = f"({before} - {self.strides[axis]}*{pixel}) // {apart}"
        stop = f"({before} + {size} - {self.strides[axis]}*{pixel}) // {apart}"
        return f"for {name} in max({first}, 0)..min({stop}, {self.size[axis]}) {{"

    def text(self) -> str:
        (s, t), (d, e), ((p, _), (q, _)) = self.strides, self.dilations, self.pads
        place = f"{s}*i + {d}*k - {p}, {t}*j + {e}*l - {q}"
        axes, at = ("h, w, C", f"{place}, d") if self.last[0] else ("C, h, w", f"d, {place}")
        axes = axes.replace("C", str(self.channels))
        rows, columns = self.count(0, "h"), self.count(1, "w")
        channels, kind = f"for c in 0..{self.filters} {{", self.kind
        loops = [f"for i in 0..{rows} {{", f"for j in 0..{columns} {{"]
        loops.insert(2 * self.last[1], channels)
        results, result = f"{self.filters}, {rows}, {columns}", "b, c, i, j"
        if self.last[1]:
            results, result = f"{rows}, {columns}, {self.filters}", "b, i, j, c"
        total, value = kind, f"(%x[b, {at}] * %w[c, d, k, l])"
        if DType(kind).is_int:
            total = "i32"
            value = (
                f"((cast(%x[b, {at}], i32, wrap) - {self.zero}:i32)"
                " * cast(%w[c, d, k, l], i32, wrap))"
            )
        shape = f"{self.filters}, {self.channels}, {self.size[0]}, {self.size[1]}"
        weights = f"{self.weights}[{shape}]"
        head = f"kernel @conv(%x: {kind}[n, {axes}], %w: {weights}, %b: {total}[{self.filters}])"
        return "\n".join(
            [
                "symbol n in 1..3", "symbol h in 3..70", "symbol w in 3..70",
                f"const %w: {weights} = splat 1{'.0' * (total != 'i32')}",
                f"{head} -> (%y: {total}[n, {results}]) {{",
                "for b in 0..n {", *loops, f"local sum: {total} = %b[c]",
                f"for d in 0..{self.channels} {{", self.window(0), self.window(1),
                f"sum = (sum + {value})", "}}}", f"%y[{result}] = sum", "}}}}}",
            ]
        )  # fmt: skip

    def fits(self, h: int, w: int) -> bool:
        return bool(min(self.count(0, h), self.count(1, w)) > 0)


def values(kind: str, shape: tuple[int, ...], rng: np.random.Generator, scale: float = 1) -> Array:
    dtype = DType(kind)
    if dtype is DType.I32:
        return rng.integers(-1000, 1000, shape).astype(np.int32)
    if dtype.is_int:
        low, high = dtype.limits
        return rng.integers(low, high + 1, shape).astype(dtype.numpy)
    floats = (rng.normal(size=shape) * scale).astype(np.float32)
    return array_of(floats.ravel().tolist(), dtype).reshape(shape)


def exact(values: Array, kind: str) -> Array:
    if kind == "bf16":
        bits = np.asarray(values).view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def wanted(form: Convolution, x: Array, w: Array, b: Array) -> tuple[Array, Array]:
    """The results, and what the absolute values of their terms add up to."""
    x = x.transpose(0, 3, 1, 2) if form.last[0] else x
    x = np.pad(x - form.zero, ((0, 0), (0, 0), *form.pads))
    counts = [form.count(axis, x.shape[axis + 2] - sum(form.pads[axis])) for axis in (0, 1)]
    total = np.zeros((len(x), form.filters, *counts)) + b[:, None, None]
    size = np.abs(total)
    for at in np.ndindex(*form.size):
        first = [place * apart for place, apart in zip(at, form.dilations, strict=True)]
        triples = zip(first, counts, form.strides, strict=True)
        rows, columns = (slice(own, own + (n - 1) * step + 1, step) for own, n, step in triples)
        factors = (x[..., rows, columns], w[..., at[0], at[1]])
        with np.errstate(invalid="ignore"):
            total += np.einsum("ndij,cd->ncij", *factors)
            size += np.einsum("ndij,cd->ncij", *map(np.abs, factors))
    if form.last[1]:
        total, size = total.transpose(0, 2, 3, 1), size.transpose(0, 2, 3, 1)
    return total, size


def scheduled(form: Convolution, name: str, w: Array) -> tuple[Kernel, Module]:
    """The device form, which has patches, with these weights."""
    module = example_module(form.text())
    constants = (replace(one, data=w) if one.name == "w" else one for one in module.constants)
    module = schedule_device(replace(module, constants=tuple(constants)), cuda_mma.TARGET)
    (kernel,) = module.kernels
    assert any(".patches" in one.name for one in kernel.inputs), form
    return replace(kernel, name=name), module


def compare(forms: list[Convolution], folder: Path, *, infinite: bool = False) -> None:
    """`infinite`: one value of each image is infinity."""
    rng, kernels, jobs = np.random.default_rng(0), list[Kernel](), list[Job]()
    expected: list[tuple[Convolution, Array, Array]] = []
    bounds = Bounds(())
    for number, form in enumerate(forms):
        kind, shape = form.kind, (form.filters, form.channels, *form.size)
        w = values(form.weights, shape, rng, float(np.prod(shape[1:])) ** -0.5)
        kernel, module = scheduled(form, f"conv_{number}", w)
        kernels.append(kernel)
        bounds = module.bounds
        (call,) = (one for f in module.functions for one in f.body if one.op == "call_kernel")
        table = {one.name: one.data for one in module.constants}
        for n, *size in SIZES:
            if not form.fits(*size):
                continue
            axes = (*size, form.channels) if form.last[0] else (form.channels, *size)
            x = values(kind, (n, *axes), rng)
            if infinite:
                x[(0,) * x.ndim] = np.inf
            b = values("i32" if DType(kind).is_int else kind, (form.filters,), rng)
            given = {"x": x, "b": b}
            pairs = zip(kernel.inputs, call.inputs, strict=True)
            every = {
                **{one.name: table[var.name] for one, var in pairs if var.name in table},
                **given,
            }
            arrays = tuple(every[one.name] for one in kernel.inputs)
            jobs.append(Job(kernel.name, arrays, {"n": n, "h": size[0], "w": size[1]}, seed=n))
            total = "i32" if DType(kind).is_int else kind
            exacts = (exact(x, kind), exact(w, form.weights), exact(b, total))
            expected.append((form, *wanted(form, *exacts)))
    answers = Shim(kernels, bounds, folder).run(jobs)
    for job, (form, value, terms), answer in zip(jobs, expected, answers, strict=True):
        found = exact(answer.outputs[0], form.kind if form.kind in ROUNDED else "i32")
        finite = np.isfinite(value)
        assert (np.isfinite(found) == finite).all(), (form, job.sizes)
        unit = ROUNDED.get(form.kind, 0.0)
        value, terms, found = value[finite], terms[finite], found[finite]
        most = unit * 1.01 * np.abs(value) + (2.0**-18 * terms + 2.0**-20 if unit else 0)
        assert (np.abs(found - value) <= most).all(), (form, job.sizes)


PLANES = Convolution(20, 20)
SHORT = Convolution(3, 40, (7, 7), (2, 2), pads=((3, 3), (3, 3)))
BYTES = Convolution(3, 24, kind="u8", zero=100, strides=(2, 1))
OTHERS = [
    Convolution(64, 96),
    Convolution(1, 5, pads=((0, 0), (0, 0)), strides=(1, 3)),
    Convolution(40, 24, (5, 3), (1, 2), (2, 1), ((2, 1), (0, 3))),
    Convolution(200, 17),
    Convolution(12, 136, (1, 3), pads=((0, 0), (1, 1)), kind="bf16"),
    Convolution(24, 24, last=(True, False)),
    Convolution(24, 48, strides=(2, 2), last=(True, True), kind="bf16"),
    Convolution(64, 96, kind="i8", zero=3, last=(True, False)),
    Convolution(200, 24, kind="u8", zero=7, last=(True, True)),
    Convolution(24, 24, dilations=(2, 2), pads=((2, 2), (2, 2)), kind="i8", zero=-128),
    Convolution(17, 33, (4, 2), pads=((1, 2), (0, 1)), kind="i8"),
]


@pytest.mark.parametrize(
    "forms",
    [
        pytest.param([BYTES], marks=pytest.mark.slow),
        pytest.param([PLANES, SHORT], marks=pytest.mark.long),
        *(pytest.param([one], marks=pytest.mark.long) for one in OTHERS),
    ],
    ids=repr,
)
def test_results_are_as_exact_as_the_type(forms: list[Convolution], tmp_path: Path) -> None:
    compare(forms, tmp_path)


@pytest.mark.long
def test_infinity_reaches_the_results_of_its_windows_alone(tmp_path: Path) -> None:
    """Groups and filters that do not exist are zeros in both factors."""
    compare([replace(PLANES, filters=5), replace(SHORT, filters=5)], tmp_path, infinite=True)
