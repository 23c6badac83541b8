# SPDX-License-Identifier: Apache-2.0
"""Random arithmetic of two sizes, whose results cut, pad, count and repeat rows that then meet.

    python -m tests.fuzz.size_arithmetic --seeds 0:5000

Each model is imported and evaluated with the NumPy references of its ops at every size, and
compared with ONNX Runtime: what shape arithmetic deduces is wrong in the imported module
already, so nothing is compiled. ONNX Runtime sees the sizes of each run only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

import relax_aot as rx
from relax_aot.errors import InternalError, RelaxAotError
from relax_aot.evaluation.reference import EvaluationError, evaluate
from relax_aot.frontends import UnsupportedError
from relax_aot.inference.sizes import SizeError
from relax_aot.ir.graph import Module
from tests.fuzz.chains import seed_range

Array = NDArray[Any]
HIGHS = {"n": 5, "m": 7}
FAR = 2**62
LONGEST_TABLE = 12
ARITHMETIC = (
    "Add", "Sub", "Min", "Max", "Add to 1", "Sub from", "Sub 1", "Mul 1", "Div 1", "Mod 1", "Min 1",
    "Max 1", "Neg", "share", "ceiling",
)  # fmt: skip
MOVES = (
    "slice", "slice", "slice", "head", "tail", "range", "expand", "pad", "tile", "meet", "meet",
)  # fmt: skip


@dataclass
class _Draft:
    """A graph that grows: tensors have rows, and lists of one number hold sizes."""

    rng: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def constant(self, value: Any, kind: type) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def whole(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def drawn(self, low: int, high: int) -> str:
        return self.whole(int(self.rng.integers(low, high)))

    def call(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def one_of(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def size(self, sizes: list[str]) -> str:
        """A number made of one or two others."""
        kind, a, b = self.one_of(ARITHMETIC), self.one_of(sizes), self.one_of(sizes)
        match kind:
            case "Add" | "Sub" | "Min" | "Max":
                return self.call(kind, a, b)
            case "Neg":
                return self.call("Neg", a)
            case "Sub from":
                return self.call("Sub", self.drawn(7, 15), a)
            case "share":
                factor = self.constant([self.one_of((0.25, 0.5, 0.75, 1.5))], np.float32)
                return self._whole(self.call("Mul", self._real(a), factor))
            case "ceiling":
                divisor = self.constant([self.rng.integers(2, 5)], np.float32)
                part = self.call("Div", self._real(a), divisor)
                return self._whole(self.call("Ceil", part))
        return self.call(kind.split()[0], a, self.drawn(1, 5))

    def _real(self, value: str) -> str:
        return self.call("Cast", value, to=TensorProto.FLOAT)

    def _whole(self, value: str) -> str:
        return self.call("Cast", value, to=TensorProto.INT64)

    def rows(self, values: list[str], sizes: list[str]) -> str:
        """A tensor whose rows are cut, repeated or counted as sizes say."""
        kind, x = self.one_of(MOVES), self.one_of(values)
        a, b, zero = self.one_of(sizes), self.one_of(sizes), self.whole(0)
        match kind:
            case "slice":
                step = self.whole(self.one_of((1, 1, 1, 2, -1)))
                return self.call("Slice", x, a, b, zero, step)
            case "head":
                return self.call("Slice", x, zero, a, zero)
            case "tail":
                return self.call("Slice", x, self.call("Neg", a), self.whole(FAR), zero)
            case "range":
                ends = (self.call("Squeeze", end, zero) for end in (a, b))
                step = self.constant(self.one_of((1, 2, -1)), np.int64)
                count = self._real(self.call("Range", *ends, step))
                return self.call("Unsqueeze", count, self.whole(1))
            case "expand":
                row = self.constant(self.rng.integers(0, 9, (1, 3)), np.float32)
                return self.call("Expand", row, self.call("Concat", a, self.whole(1), axis=0))
            case "pad":
                return self.call("Pad", x, self.call("Concat", a, zero, b, zero, axis=0))
            case "tile":
                times = self.call("Min", a, self.whole(3))
                return self.call("Tile", x, self.call("Concat", times, self.whole(1), axis=0))
        return self.call(self.one_of(("Add", "Mul")), x, self.one_of(values))


def random_model(seed: int) -> onnx.ModelProto:
    """A model of one input f32[n, m] and of one or two results with one or three columns."""
    draft = _Draft(np.random.default_rng(seed))
    sizes = [draft.call("Shape", "x", start=axis, end=axis + 1) for axis in (0, 1)]
    for _ in range(int(draft.rng.integers(1, 5))):
        sizes.append(draft.size(sizes))
    table = draft.constant(draft.rng.integers(0, 99, (LONGEST_TABLE, 3)), np.float32)
    apart = draft.call("Unsqueeze", "x", draft.whole(2))
    values = [
        table,
        draft.call("ReduceSum", apart, draft.whole(0), keepdims=0),
        draft.call("ReduceSum", apart, draft.whole(1), keepdims=0),
        draft.call("Reshape", "x", draft.whole(-1, 1)),
    ]
    for _ in range(int(draft.rng.integers(1, 4))):
        values.append(draft.rows(values, sizes))
    results = [values[-1]]
    if draft.rng.random() < 0.7:
        results.append(draft.call("Add", draft.one_of(values[-2:]), draft.one_of(values)))
    graph = helper.make_graph(
        _read(draft.nodes, results),
        "sizes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*HIGHS])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in results],
        draft.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _read(nodes: list[NodeProto], results: list[str]) -> list[NodeProto]:
    """The nodes that a result needs: ONNX Runtime computes all, and may end in another."""
    needed, kept = set(results), list[NodeProto]()
    for node in reversed(nodes):
        if node.output[0] in needed:
            needed |= set(node.input)
            kept.insert(0, node)
    return kept


def fault(seed: int) -> str:
    """What is wrong with one model; empty if nothing is."""
    model = random_model(seed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    try:
        module = rx.load(model, bounds={name: (1, high) for name, high in HIGHS.items()})
    except (SizeError, UnsupportedError):
        return ""  # sizes that depend on one symbol do not broadcast; a bound is asked for
    except RelaxAotError as error:
        runs = any(_expected(session, n, m) is not None for n, m in _sizes())
        return f"{seed}: {error}" if runs or isinstance(error, InternalError) else ""
    for n, m in _sizes():
        expected = _expected(session, n, m)
        got = _tried(partial(_results, module, _input(n, m), {"n": n, "m": m}))
        if got is None and (expected is None or _related(module, {"n": n, "m": m})):
            continue
        if got is None or expected is None:
            who = "ONNX Runtime" if got is None else "relax_aot"
            return f"{seed}: only {who} runs at n={n}, m={m}"
        for one, other in zip(got, expected, strict=True):
            if one.shape != other.shape or not np.array_equal(one, other):
                return f"{seed}: {one.shape} instead of {other.shape} at n={n}, m={m}, or values"
    return ""


def _sizes() -> Iterator[tuple[int, ...]]:
    return product(*(range(1, high + 1) for high in HIGHS.values()))


def _input(n: int, m: int) -> Array:
    return np.random.default_rng(n * 9 + m).integers(-9, 9, (n, m)).astype(np.float32)


def _expected(session: Any, n: int, m: int) -> list[Array] | None:
    return _tried(partial(session.run, None, {"x": _input(n, m)}))


def _tried(run: Callable[[], list[Array]]) -> list[Array] | None:
    try:
        return run()
    except (EvaluationError, ValueError, Fail, InvalidArgument, RuntimeException):
        return None


def _results(module: Module, x: Array, sizes: dict[str, int]) -> list[Array]:
    return list(evaluate(module, {"x": x}, sizes).values())


def _related(module: Module, sizes: dict[str, int]) -> bool:
    """Whether a condition fails whose sides depend on one symbol: such sizes do not broadcast."""
    for condition in module.conditions:
        left, right = condition.left.evaluate(sizes), condition.right.evaluate(sizes)
        holds = left == right if condition.relation == "==" else left <= right
        if not holds and condition.left.symbols & condition.right.symbols:
            return True
    return False


def main(arguments: list[str]) -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=seed_range, default=range(1000))
    found = [text for seed in parser.parse_args(arguments).seeds if (text := fault(seed))]
    sys.stdout.write("\n".join((*found, f"{len(found)} wrong\n")))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
