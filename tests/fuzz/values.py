# SPDX-License-Identifier: Apache-2.0
"""Values of a random graph, known at several assignments of sizes at once.

A value carries one array per assignment. Two axes are taken for equal where their sizes agree
at every assignment, so no formula of sizes is ever written down here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

Array = NDArray[Any]
Sizes = dict[str, int]

OPSET, IR_VERSION = 21, 10
LARGEST = 3000
"""Elements of one value at most."""
TAME = 2.0**11
"""Greater magnitudes of floating-point values are not used."""
GRID = 2.0**6
"""Floating-point values that are multiples of its inverse, and tame, are computed exactly."""
NAN_OPEN = (
    "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "ReduceLogSumExp", "TopK", "ArgMax",
    "ArgMin", "Unique", "Hardmax", "Sign",
)  # fmt: skip
"""ONNX leaves open what NaN gives, and ONNX Runtime's result depends on where NaN stands: its
MaxPool, for one, keeps NaN only where it comes first in its window. Its Sign gives 0."""
SIGN_OF_ZERO_OPEN = ("Relu", "Max", "Min", "Clip")
"""Which zero the maximum of 0 and -0 is, IEEE 754 leaves open; ONNX Runtime's result depends on
where -0 stands."""
LOWEST_FOR_INFINITY = ("MaxPool", "GlobalMaxPool")
"""ONNX Runtime gives the lowest finite value for a window of -infinity alone."""
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-42)


@dataclass(frozen=True)
class Value:
    name: str
    arrays: tuple[Array, ...]
    exact: bool
    """Whether any correct computation gives these very bits, so that a step may follow."""
    tolerance: float = 1e-4

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.arrays[0].dtype

    @property
    def rank(self) -> int:
        return self.arrays[0].ndim

    @property
    def floating(self) -> bool:
        return self.dtype.kind == "f"

    def axis(self, axis: int) -> tuple[int, ...]:
        return tuple(array.shape[axis] for array in self.arrays)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(array.shape for array in self.arrays)

    @property
    def has_nan(self) -> bool:
        return self.floating and any(bool(np.isnan(a).any()) for a in self.arrays)

    @property
    def peak(self) -> float:
        return max((float(np.abs(a).max()) for a in self.arrays if a.size), default=0.0)

    @property
    def bottom(self) -> float:
        return min((float(a.min()) for a in self.arrays if a.size), default=0.0)


class Rejected(Exception):
    """This step cannot be taken with these values."""


@dataclass
class Graph:
    """A graph under construction."""

    random: Random
    symbols: dict[str, tuple[int, int]]
    assignments: tuple[Sizes, ...]
    inputs: list[Value] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    pool: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    wild: bool = False
    """Whether inputs have special values: NaN, infinities, -0, subnormals, extreme integers."""
    computed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bounds of data-dependent sizes, which a user has to give."""
    _count: int = 0

    def name(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    # Leaves

    def dim(self, sizes: Sequence[int]) -> str | int:
        """The symbol or number that has these sizes."""
        for name in self.symbols:
            if all(a[name] == size for a, size in zip(self.assignments, sizes, strict=True)):
                return name
        if len(set(sizes)) > 1:
            raise Rejected
        return sizes[0]

    def size(self, *numbers: int) -> str | int:
        """A symbol, or one of these."""
        choices: list[str | int] = [*self.symbols, *numbers]
        return self.random.choice(choices)

    def dims(self, value: Value) -> tuple[str | int, ...]:
        return tuple(self.dim(value.axis(axis)) for axis in range(value.rank))

    def input(self, dims: Sequence[str | int], dtype: str = "float32") -> Value:
        draw = self.draw_wild if self.wild else self.draw
        arrays = tuple(
            draw([size if isinstance(size, int) else a[size] for size in dims], dtype)
            for a in self.assignments
        )
        value = Value(self.name("x"), arrays, True, tolerance_of(np.dtype(dtype)))
        self.inputs.append(value)
        self.pool.append(value)
        return value

    def constant(self, array: Array) -> str:
        name = self.name("c")
        self.constants[name] = array
        return name

    def drawn_constant(self, shape: Sequence[int], dtype: str = "float32") -> Value:
        array = self.draw(shape, dtype)
        return self.known(array)

    def known(self, array: Array) -> Value:
        name = self.constant(array)
        return Value(name, (array,) * len(self.assignments), True, tolerance_of(array.dtype))

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def draw(self, shape: Sequence[int], dtype: str) -> Array:
        source = np.random.default_rng(self.random.randrange(2**32))
        kind = np.dtype(dtype).kind
        if kind == "f":
            return (source.integers(-8, 9, shape) / 4).astype(dtype)
        if kind == "b":
            return source.integers(0, 2, shape).astype(np.bool_)
        low = 0 if kind == "u" else -4
        return source.integers(low, 6, shape).astype(dtype)

    def draw_wild(self, shape: Sequence[int], dtype: str) -> Array:
        array = self.draw(shape, dtype)
        if array.dtype.kind not in "fi" or not array.size:
            return array
        source = np.random.default_rng(self.random.randrange(2**32))
        if array.dtype.kind == "f":
            chosen = source.choice(np.array(SPECIAL), shape).astype(array.dtype)
        else:
            info = np.iinfo(array.dtype)
            chosen = source.choice(np.array([info.min, info.max], array.dtype), shape)
        share = self.random.choice((0.05, 0.2))
        return np.where(source.random(shape) < share, chosen, array)

    # Choices

    def some(self, wanted: Callable[[Value], bool] = lambda value: True) -> Value:
        """A value, one made lately rather than an old one."""
        found = [value for value in self.pool if wanted(value)]
        if not found:
            raise Rejected
        return found[-1 - min(int(self.random.expovariate(0.4)), len(found) - 1)]

    def floating(self, low_rank: int = 0, high_rank: int = 5, *, exact: bool = False) -> Value:
        return self.some(
            lambda v: v.floating and low_rank <= v.rank <= high_rank and (v.exact or not exact)
        )

    def partner(self, value: Value) -> Value:
        """Something that broadcasts with it: known, constant or a new input."""
        choice = self.random.random()
        if choice < 0.55:
            return self.some(lambda v: v.dtype == value.dtype and fits(v, value))
        kept = self.random.randint(0, value.rank)
        tail = list(range(value.rank - kept, value.rank))
        if choice < 0.8:
            shape = [self.dim(value.axis(a)) if self.random.random() < 0.7 else 1 for a in tail]
            if all(isinstance(size, int) for size in shape):
                return self.drawn_constant([int(size) for size in shape], str(value.dtype))
        dims = [self.dim(value.axis(a)) if self.random.random() < 0.8 else 1 for a in tail]
        return self.input(dims, str(value.dtype))

    def axis(self, value: Value) -> int:
        """One that exists, counted from either end."""
        if not value.rank:
            raise Rejected
        return self.random.randrange(-value.rank, value.rank)

    # Steps

    def step(
        self,
        kind: str,
        *inputs: Value | str,
        outs: int = 1,
        exact: bool = False,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """One node, run by ONNX Runtime on its own at every assignment."""
        names = [value if isinstance(value, str) else value.name for value in inputs]
        made = [self.name() for _ in range(outs)]
        node = helper.make_node(kind, names, made, domain=domain, **attributes)
        values = self._evaluated(node, [v for v in inputs if isinstance(v, Value)], exact)
        self.nodes.append(node)
        self.pool += values
        return values

    def _evaluated(self, node: NodeProto, inputs: list[Value], exact: bool) -> list[Value]:
        known = {value.name: value for value in (*self.inputs, *self.pool, *inputs)}
        captured = outer_names(node) - set(node.input)
        needed = [name for name in (*dict.fromkeys(node.input), *sorted(captured)) if name in known]
        self.used |= set(needed)
        if node.op_type == "Unique" and any(not a.size for v in inputs for a in v.arrays):
            raise Rejected  # ONNX Runtime 1.32 ends the process
        if node.op_type.startswith("Reduce") and any(not a.size for v in inputs for a in v.arrays):
            raise Rejected  # ONNX Runtime keeps a shape without elements, whatever is reduced
        if any(v.has_nan for v in inputs) and leaves_nan_open(node):
            raise Rejected
        arrays = []
        for number in range(len(self.assignments)):
            feeds = {name: known[name].arrays[number] for name in needed}
            arrays.append(run_node(node, feeds, self.constants))
        if node.op_type in SIGN_OF_ZERO_OPEN and any(
            has_negative_zero(a) for f in arrays for a in f
        ):
            raise Rejected
        if node.op_type in LOWEST_FOR_INFINITY and any(
            np.isneginf(a).any() for v in inputs for a in v.arrays
        ):
            raise Rejected
        exact = exact and all(known[name].exact for name in needed)
        loosest = max((known[name].tolerance for name in needed), default=1e-4)
        result = []
        for position, name in enumerate(node.output):
            ours = tuple(found[position] for found in arrays)
            value = Value(name, ours, True, max(loosest * 1.2, tolerance_of(ours[0].dtype)))
            if not acceptable(value, wild=self.wild):
                raise Rejected
            discrete = not value.floating and all(known[n].exact for n in needed)
            # ONNX Runtime flushes some subnormal numbers to 0, which lies on the grid.
            regular = not any(has_subnormal(a) for v in inputs for a in v.arrays)
            grid = value.floating and exact and regular and on_grid(value)
            result.append(Value(name, ours, discrete or grid, value.tolerance))
        if any(not v.exact and not v.floating for v in result):
            raise Rejected
        return result


def leaves_nan_open(node: NodeProto) -> bool:
    kind = next((a.s for a in node.attribute if a.name == "reduction"), b"none")
    return node.op_type in NAN_OPEN or kind in (b"max", b"min")


def has_subnormal(array: Array) -> bool:
    if array.dtype.kind != "f":
        return False
    return bool(((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)).any())


def has_negative_zero(array: Array) -> bool:
    return array.dtype.kind == "f" and bool((np.signbit(array) & (array == 0)).any())


def tolerance_of(dtype: np.dtype[Any]) -> float:
    return 1e-2 if dtype == np.float16 else 1e-4


def fits(a: Value, b: Value) -> bool:
    """They broadcast at every assignment, and each axis of one is the other's or always 1."""
    for back in range(1, min(a.rank, b.rank) + 1):
        one, other = a.axis(-back), b.axis(-back)
        if one != other and set(one) != {1} and set(other) != {1}:
            return False
    return True


def acceptable(value: Value, *, wild: bool = False) -> bool:
    if any(a.size > LARGEST or a.ndim > 6 for a in value.arrays):
        return False
    if wild or not value.floating:
        return True
    return all(bool(np.isfinite(a).all()) for a in value.arrays) and value.peak < TAME


def on_grid(value: Value) -> bool:
    if value.dtype == np.float16:
        return False
    finite = (a[np.isfinite(a)] for a in value.arrays)
    return all(bool((a * GRID == np.rint(a * GRID)).all()) for a in finite)


def outer_names(node: NodeProto) -> set[str]:
    """Every name that it or a body of its own reads from around."""
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names |= _free(attribute.g)
    return names


def _free(graph: GraphProto) -> set[str]:
    own = {v.name for v in graph.input} | {c.name for c in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in outer_names(node)}
    return (read | {v.name for v in graph.output}) - own


def run_node(node: NodeProto, feeds: dict[str, Array], constants: dict[str, Array]) -> list[Array]:
    names = outer_names(node) & constants.keys()
    graph = helper.make_graph(
        [node],
        "step",
        [value_info(name, array.dtype, array.shape) for name, array in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output],
        [numpy_helper.from_array(constants[name], name) for name in sorted(names)],
    )
    return run_model(model_of(graph), feeds)


def run_model(model: ModelProto, feeds: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [np.asarray(found) for found in session.run(None, feeds)]
    except Exception as error:
        raise Rejected(str(error)) from error


def value_info(name: str, dtype: np.dtype[Any], shape: Sequence[str | int | None]) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def model_of(graph: GraphProto) -> ModelProto:
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
