# SPDX-License-Identifier: Apache-2.0
"""Random convolutions of bytes and of floats on emulated boards, at sizes at and near all bounds.

    python -m tests.fuzz.convolutions --seeds 0:1000

Windows have strides, dilations and uneven pads, on axes of a fixed size or of a symbol. Taps may
lie outside of the image at every position. Bytes have the bits of ONNX Runtime; guard zones
surround every buffer, and the arena has the bytes that the sizes of a call need.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime

from relax_aot import driver
from relax_aot.emulation.harness import HarnessCall
from relax_aot.verify import emulate
from relax_aot.verify.host import host_model
from tests.models.onnx_text import Array, model_of

BOARDS = ("microbit", "mps2-an385", "mps2-an386", "mps3-an547", "host", "mps2-an505")
SMALL = ("microbit",)
OPTIMIZE = ("speed", "size", "speed", "memory")
SIZES = 8
"""At most, in addition to the corners of the bounds."""
Size = int | str


@dataclass(frozen=True)
class Convolution:
    """`sizes`: of the bounds of the model."""

    model: onnx.ModelProto
    bounds: dict[str, tuple[int, int]]
    inputs: list[Array]
    tolerance: float


def random_convolution(seed: int, *, small: bool) -> Convolution:
    source = random.Random(seed)
    pick, rank = source.choice, source.choice((1, 2, 2, 2, 3))
    floats, unsigned = source.random() < 0.2, source.random() < 0.3
    channels = pick((1, 1, 2, 3, 4) if small else (1, 1, 2, 3, 4, 6, 8, 16))
    groups = pick((1, 1, channels))
    filters = groups * pick((1, 1, 2, 3) if groups > 1 else (1, 3, 4, 5, 8, 17))
    kernel = [pick((1, 2, 3, 3, 4, 5, 7) if rank < 3 else (1, 2, 3)) for _ in range(rank)]
    dilations = [pick((1, 1, 1, 2, 3, 4)) for _ in range(rank)]
    strides = [pick((1, 1, 1, 2, 3)) for _ in range(rank)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    pads = [source.randint(0, reach[axis % rank]) * pick((0, 1, 1)) for axis in range(2 * rank)]
    least = [max(1, reach[a] - pads[a] - pads[rank + a]) for a in range(rank)]
    shape: list[Size] = [pick((1, 1, 2)), channels]
    shape += [max(size, pick((1, 2, 3, 5, 6, 8, 11))) for size in least]
    bounds: dict[str, tuple[int, int]] = {}
    for axis in source.sample([0, *range(2, rank + 2)], pick((1, 1, 2))):
        low = least[axis - 2] + pick((0, 0, 1)) if axis else pick((1, 2))
        bounds[f"s{axis}"] = (low, low + pick((1, 2, 5, 9) if axis else (1, 2)))
        shape[axis] = f"s{axis}"
    weights = (filters, channels // groups, *kernel)
    attributes = (
        f"<kernel_shape = {kernel}, pads = {pads}, dilations = {dilations}, strides = {strides},"
        f" group = {groups}>"
    )
    rng = np.random.default_rng(seed)
    kind = "float" if floats else "uint8" if unsigned else "int8"
    data, text = (_floats if floats else _bytes)(rng, weights, attributes, unsigned)
    given, result = (", ".join(map(str, s)) for s in (shape, ["v0", filters, *"vwu"[:rank]]))
    model = model_of(f"m ({kind}[{given}] x) => ({kind}[{result}] y)", text, data)
    inputs = []
    for sizes in _sizes(source, bounds):
        at = [size if isinstance(size, int) else sizes[size] for size in shape]
        x = rng.normal(size=at) if floats else rng.integers(*_limits(unsigned), at)
        inputs.append(x.astype({"float": np.float32, "uint8": np.uint8, "int8": np.int8}[kind]))
    return Convolution(model, bounds, inputs, 1e-4 if floats else 0.0)


def _limits(unsigned: bool) -> tuple[int, int]:
    return (0, 256) if unsigned else (-128, 128)


def _floats(
    rng: np.random.Generator, shape: tuple[int, ...], attributes: str, _: bool
) -> tuple[dict[str, Array], str]:
    w = (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    b = rng.normal(size=shape[0]).astype(np.float32)
    return {"w": w, "b": b}, f"y = Conv {attributes} (x, w, b)"


def _bytes(
    rng: np.random.Generator, shape: tuple[int, ...], attributes: str, unsigned: bool
) -> tuple[dict[str, Array], str]:
    """Zero points anywhere; weights of all kinds, also where one tap or one filter is zero."""
    dtype, low = (np.uint8, 0) if unsigned else (np.int8, -128)
    far = 64 if unsigned else 128  # ONNX Runtime adds products of unsigned bytes in 16 bits
    w = rng.integers(-far, far, shape).astype(np.int8)
    kind = rng.integers(6)
    if kind == 0:
        w[..., 0] = 0
    if kind == 1:
        w[rng.integers(shape[0])] = 0
    if kind == 2:
        w[:] = -far
    scales = rng.uniform(0.001, 0.02, shape[0] if rng.integers(2) else ()).astype(np.float32)
    step = 0.05 * float(np.mean(scales)) * float(np.sqrt(np.prod(shape[1:]))) * 60
    zeros = [low + int(rng.choice([0, 128, 255, int(rng.integers(256))])) for _ in range(2)]
    data: dict[str, Array] = {
        "xs": np.array(0.05, np.float32), "xz": np.array(zeros[0], dtype), "w": w, "ws": scales,
        "wz": np.zeros(scales.shape, np.int8), "ys": np.array(step, np.float32),
        "yz": np.array(zeros[1], dtype),
        "b": rng.integers(-9000, 9000, shape[0]).astype(np.int32),
    }  # fmt: skip
    return data, f"y = QLinearConv {attributes} (x, xs, xz, w, ws, wz, ys, yz, b)"


def _sizes(source: random.Random, bounds: dict[str, tuple[int, int]]) -> list[dict[str, int]]:
    """All corners, and sizes at and next to a bound, or anywhere."""
    found = [dict(zip(bounds, at, strict=True)) for at in product(*bounds.values())]
    for _ in range(SIZES):
        sizes = {}
        for name, (low, high) in bounds.items():
            sizes[name] = source.choice((low, low + 1, source.randint(low, high), high - 1, high))
        found += [] if sizes in found else [sizes]
    return found


def difference(seed: int) -> str | None:
    board = BOARDS[seed % len(BOARDS)]
    found = random_convolution(seed, small=board in SMALL)
    session = onnxruntime.InferenceSession(found.model.SerializeToString())
    options = driver.Options(bounds=found.bounds, optimize=OPTIMIZE[seed // len(BOARDS) % 4])
    project = driver.compile_model(found.model, board, options)
    for x, y in zip(found.inputs, _results(project, found.inputs), strict=True):
        (wanted,) = session.run(None, {"x": x})
        far = found.tolerance * max(1.0, float(np.abs(wanted).max()))
        if y.shape != wanted.shape or not np.allclose(y, wanted, rtol=0, atol=far):
            return f"seed {seed} on {board}: {x.shape} differs"
    return None


def _results(project: Any, inputs: list[Array]) -> Iterator[Array]:
    if project.board.family == "host":
        host = host_model(project, sanitize=True)
        yield from (host(x=x)["y"] for x in inputs)
        return
    exact = partial(HarnessCall, arena_as_needed=True)
    with patch.object(emulate, "HarnessCall", exact):
        runs = emulate.emulate(project, [{"x": x} for x in inputs])
    for run in runs:
        if run.status != 0:
            raise AssertionError(f"status {run.status}")
        yield run.outputs["y"]


def faults(seeds: Iterable[int]) -> Iterator[str]:
    for seed in seeds:
        try:
            said = difference(seed)
        except Exception as error:  # noqa: BLE001 - any is a fault, which the report shows
            said = f"seed {seed}: {type(error).__name__}: {error}"
        if said is not None:
            yield said


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:200")
    start, _, stop = parser.parse_args().seeds.partition(":")
    found = 0
    for fault in faults(range(int(start), int(stop))):
        found += 1
        sys.stdout.write(f"{fault}\n")
    sys.stdout.write(f"{int(stop) - int(start)} convolutions, {found} faults\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
