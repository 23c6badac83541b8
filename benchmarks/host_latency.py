# SPDX-License-Identifier: Apache-2.0
"""Latency on this machine with one thread, compared with ONNX Runtime in the same run.

    python benchmarks/host_latency.py [--runs 50] [--native] [--json FILE] [MODEL.onnx ...]

Without models: a transformer encoder (width 256, 4 layers) at n = 1, 16, 64, 256, a layer of 8-bit
products with a dynamic scale, single operators of rows at 256 x 1024, and the MLPerf Tiny models of
../shared/models that are there. Both sides are called alternately and each pair gives a ratio, so
that a busy machine hits both; the median of the ratios is what counts. Ours is the C function
alone, in the library that the project's own CMakeLists.txt builds; theirs is `run` with bound
inputs. A TensorFlow Lite model is listed next to the QDQ model of its name. Published figures are
of another machine (BASELINES): milliseconds of ONNX Runtime there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

LINE = 64
"""Bytes of a line of the cache, at which ONNX Runtime begins its memory too."""
Sizes = dict[str, int]


SHARED = ROOT.parent / "shared" / "models"
OPEN = {"resnet8_int8.tflite": {"input_1_int8_0": 1}, "kws_int8.tflite": {"input_1_0": 1}}
"""Batches that the converter left open."""
TINY = ("fp32.onnx", "int8_qdq.onnx", "int8_qop.onnx", "int8.tflite")
PUBLISHED = {("encoder", 1): 0.68, ("encoder", 16): 1.91, ("encoder", 64): 5.21,
             ("encoder", 256): 20.1, ("resnet8_fp32.onnx", 0): 0.278}  # fmt: skip
PRODUCTS = """
    scaled, step, zero = DynamicQuantizeLinear (x)
    sums = MatMulInteger (scaled, w, zero, wz)
    floats = Cast <to = 1> (sums)
    scale = Mul (step, ws)
    y = Mul (floats, scale)
"""


def products() -> Any:
    """x: float[n, 256] times 8-bit weights, to y: float[n, 1024]."""
    from tests.models.onnx_text import model_of

    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {
        "w": rng.integers(-127, 128, (256, 1024)).astype(np.int8),
        "wz": np.array(0, np.int8), "ws": np.array(0.01, np.float32),
    }  # fmt: skip
    return model_of("products (float[n, 256] x) => (float[n, 1024] y)", PRODUCTS, weights)


ROWS = {
    "layer_norm": "y = LayerNormalization (x, w, b)",
    "softmax": "y = Softmax (x)",
    **{name.lower(): f"y = {name} (x)" for name in ("Tanh", "Gelu", "Sigmoid", "Erf")},
}
"""Operators of x: float[n, 1024], with a weight for each column."""


def rows(text: str) -> Any:
    """The model of one of ROWS."""
    from onnx import numpy_helper, parser

    header = '<ir_version: 9, opset_import: ["" : 20]>'
    model = parser.parse_model(
        f"{header}\nrows (float[n, 1024] x) => (float[n, 1024] y) {{{text}}}"
    )
    rng = np.random.default_rng(0)
    for name in ("w", "b"):
        if f", {name}" in text:
            data = rng.normal(size=1024).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(data, name))
    return model


def subjects(folder: Path, models: list[str]) -> list[tuple[str, Path, Sizes, list[Sizes]]]:
    """(name, file, bounds, sizes to run at)."""
    if models:
        return [(Path(model).stem, Path(model), {}, [{}]) for model in models]
    import onnx

    from tests.models.encoder import encoder

    made = []
    for name, model, bounds in (
        ("encoder", encoder(), {"n": 256, "batch": 1}),
        ("products", products(), {"n": 256}),
    ):
        path = folder / f"{name}.onnx"
        onnx.save(model, path)
        made.append((name, path, bounds, [{"n": n} for n in (1, 16, 64, 256)]))
    for name, text in ROWS.items():
        path = folder / f"{name}.onnx"
        onnx.save(rows(text), path)
        made.append((name, path, {"n": 256}, [{"n": 256}]))
    tiny = [SHARED / f"{net}_{kind}" for net in ("resnet8", "kws") for kind in TINY]
    made += [(path.name, path, OPEN.get(path.name, {}), [{}]) for path in tiny if path.exists()]
    return made


def ours(project: Any, built: Path, feeds: dict[str, Any], sizes: Sizes) -> Callable[[], None]:
    """A call of the model's C function in the library `built`, everything made ready before."""
    from relax_aot.verify.library import Guarded, Library

    library = Library(built)
    ffi, model = library._ffi, library.model
    held = [Guarded(feeds[port.name].nbytes, 64, 0) for port in project.interface.inputs]
    for memory, port in zip(held, project.interface.inputs, strict=True):
        memory.data[:] = np.ascontiguousarray(feeds[port.name]).reshape(-1).view(np.uint8)
    made = [Guarded(int(model.output_bytes[i]), 64, 0) for i in range(model.output_count)]
    arena = Guarded(library.arena_bytes, LINE, 0)
    memory = library.memory(arena, library.arena_bytes)
    dims = library._ints([sizes.get(f.symbol.name, 1) for f in project.interface.dims])
    inputs = library._pointers("const void *[]", held)
    outputs = library._pointers("void *[]", made)
    result = library._ints([0] * max(int(model.result_count), 1))

    def call() -> None:
        status = model.run(memory, dims, inputs, outputs, result)
        assert status == 0, f"status {status}"

    call.kept = (ffi, held, made, arena, library)  # type: ignore[attr-defined]  # keeps memory
    return call


def theirs(path: Path, feeds: dict[str, Any]) -> Callable[[], None]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    wanted = session.get_inputs()
    if {one.name for one in wanted} != set(feeds):
        kinds = {"tensor(int8)": np.int8, "tensor(uint8)": np.uint8}
        feeds = {one.name: np.zeros(one.shape, kinds.get(one.type, np.float32)) for one in wanted}
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return lambda: session.run_with_iobinding(binding)


def paired(one: Callable[[], None], other: Callable[[], None], runs: int) -> dict[str, float]:
    """Medians in milliseconds, and the median of the ratios of pairs."""
    times: list[tuple[float, float]] = []
    for _ in range(runs + 3):
        start = time.perf_counter()
        one()
        middle = time.perf_counter()
        other()
        times.append((middle - start, time.perf_counter() - middle))
    times = times[3:]
    return {
        "ours_ms": 1e3 * statistics.median(a for a, _ in times),
        "onnxruntime_ms": 1e3 * statistics.median(b for _, b in times),
        "ratio": statistics.median(a / b for a, b in times),
    }


def inputs_of(project: Any, sizes: Sizes) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    feeds = {}
    for port in project.interface.inputs:
        shape = [
            dim.evaluate({**dict.fromkeys(dim.symbols, 1), **sizes}) for dim in port.type.shape
        ]
        feeds[port.name] = rng.normal(size=shape).astype(port.type.dtype.numpy)
    return feeds


def beside(path: Path) -> Path:
    """What ONNX Runtime runs."""
    if path.suffix != ".tflite":
        return path
    return path.with_name(f"{path.stem}_qdq.onnx")


def main() -> None:
    from relax_aot import driver
    from tests.project.shipped import shipped_library

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--json")
    parser.add_argument("--native", action="store_true", help="build with RAOT_NATIVE")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, path, bounds, every in subjects(Path(folder), arguments.models):
            options = driver.Options(bounds={k: (1, v) for k, v in bounds.items()})
            project = driver.compile_model(path, "host", options)
            place = Path(folder) / f"{name}-built"
            place.mkdir()
            built = shipped_library(
                project, place, ["-DRAOT_NATIVE=ON"] if arguments.native else []
            )
            for sizes in every:
                feeds = inputs_of(project, sizes)
                call = ours(project, built, feeds, sizes)
                found = paired(call, theirs(beside(path), feeds), arguments.runs)
                published = PUBLISHED.get((name, sizes.get("n", 0)))
                rows.append({"model": name, "sizes": sizes, **found, "published_ms": published})
                shown = ", ".join(f"{k} = {v}" for k, v in sizes.items()) or "fixed"
                print(
                    f"{name:22} {shown:8} {found['ours_ms']:9.3f} ms  ONNX Runtime"
                    f" {found['onnxruntime_ms']:9.3f} ms  ratio {found['ratio']:.2f}"
                    + (f"  (published {published} ms)" if published else "")
                )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
