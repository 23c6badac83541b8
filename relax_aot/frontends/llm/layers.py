# SPDX-License-Identifier: Apache-2.0
"""The parts of language models, as calls of ops: embeddings, products, norms, rotary positions,
attention over a cache that grows.

Rows are tokens: a value is [n, width]. Weights have the names and shapes of the checkpoint, and
products multiply by their transpose. Weights of half precision are decoded where they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relax_aot.frontends.llm.checkpoint import Checkpoint
from relax_aot.frontends.llm.rotary import Rotation
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import ONE, Dim
from relax_aot.ir.graph import Condition, State, Var
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array
from relax_aot.ops.matmul_groups import MOST, WIDE_MOST

ACTIVATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "silu": ("swish", {"alpha": 1.0}),
    "swish": ("swish", {"alpha": 1.0}),
    "gelu": ("gelu", {"approximate": "none"}),
    "gelu_new": ("gelu", {"approximate": "tanh"}),
    "gelu_pytorch_tanh": ("gelu", {"approximate": "tanh"}),
    "gelu_fast": ("gelu", {"approximate": "tanh"}),
    "gelu_python": ("gelu", {"approximate": "none"}),
    "quick_gelu": ("swish", {"alpha": 1.702}),
    "relu": ("relu", {}),
    "relu2": ("relu", {}),
    "sigmoid": ("sigmoid", {}),
    "tanh": ("tanh", {}),
}
"""Activations by their names in `config.json`, as ops and their attributes."""
SQUARED = ("relu2",)
"""Activations whose results are multiplied by themselves."""

STORED = ("f32", "f16", "int8", "int16x8")
"""Forms of the numbers in caches. int8: with one scale for each token and head. int16x8: the same,
and attention multiplies them by integers of 16 bits."""
LARGEST_SUM = 2**31 - 1
LONGEST_SCALED = LARGEST_SUM // (MOST * 1023)
"""The keys of int16x8, for which the largest weight of a row has at least 10 bits."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of an attention: `queries` of them share the keys of `keys`, of `size` numbers."""

    queries: int
    keys: int
    size: int


@dataclass(frozen=True, slots=True)
class Quantized:
    """Rows of a cache as bytes, and their scales."""

    values: Var
    scales: Var


@dataclass(frozen=True, slots=True)
class Sight:
    """What attention makes of scores, and which keys a query sees."""

    scale: float
    """Of scores."""
    window: int | None = None
    """Of so many tokens, the query's own among them; None: of all."""
    cap: float | None = None
    """Scores become cap * tanh(score / cap)."""


@dataclass
class Net:
    """One entry under construction, for `rows` new tokens behind `past` ones."""

    builder: FunctionBuilder
    checkpoint: Checkpoint
    past: Dim
    rows: Dim
    windows: Mapping[int, Dim] = field(default_factory=dict)
    """The rows in front of the new ones in caches that keep the last rows, by their windows."""
    stored: str = "f32"
    """One of STORED: the form of the numbers in caches."""
    label: str = ""
    """What the names of caches begin with."""
    longest: int = 1
    """The most keys that a query sees."""
    pool: int | None = None
    """The rows of caches that several texts share."""
    places: Var | None = None
    """Where the rows of this text are among them, [past + n]."""
    narrowed: int | None = None
    """The number of the layer whose last row alone is read: behind its caches, others are left
    out."""
    used: set[str] = field(default_factory=set)
    """The names of weights that were read."""
    states: list[State] = field(default_factory=list)
    caches: list[Var] = field(default_factory=list)
    """The new values of the states."""

    # Calls

    def call(self, op: str, *args: Var | None, at: str, **attrs: Any) -> Var:
        """`at` says which part of the model it is."""
        return self.builder.call(op, *args, name=at.rpartition(".")[2], origin=at, **attrs)[0]

    def reshape(self, x: Var, *shape: Dim | int, at: str) -> Var:
        return self.call("reshape", x, at=at, shape=tuple(map(Dim.of, shape)))

    def widened(self, x: Var, at: str) -> Var:
        if x.type.dtype is DType.F32:
            return x
        return self.call("cast", x, at=at, to=DType.F32, saturate=False)

    # Weights

    def weights(self, name: str, *shape: int) -> Array:
        self.used.add(name)
        return self.checkpoint.weights(name, shape)

    def matrix(self, name: str, *shape: int) -> Var:
        """Weights as they are stored."""
        return self.builder.constant(name, self.weights(name, *shape))

    def vector(self, name: str, size: int, offset: float = 0.0) -> Var:
        """Few weights, in float32, to which `offset` is added."""
        values = self.weights(name, size).astype(np.float32)
        return self.builder.constant(name, values + np.float32(offset) if offset else values)

    # Layers

    def embedding(self, tokens: Var, table: Var, at: str) -> Var:
        """A row of the table for each token."""
        # Unsigned, so that a negative token is not a row counted from the end of the table.
        tokens = self.call("cast", tokens, at=at, to=DType.U32, saturate=False)
        rows = self.widened(self.call("gather", table, tokens, at=at, axis=0), at)
        return self.reshape(rows, self.rows, table.type.shape[1], at=at)

    def positions(self, at: str, longest: int, width: int, behind: int) -> Var:
        """The rows of a table of positions of the new tokens, which `behind` others are in front
        of."""
        whole = self.weights(f"{at}.weight", longest + behind, width)
        table = self.builder.constant(at, whole[behind : behind + self.longest])
        where = {"starts": (self.past,), "lengths": (self.rows,), "axes": (0,), "steps": (1,)}
        return self.widened(self.call("slice", table, at=at, **where), at)

    def product(self, x: Var, weights: Var, at: str, bias: Var | None = None) -> Var:
        """x times the transpose of the weights [outputs, inputs]."""
        columns = self.widened(self.call("transpose", weights, at=at, perm=(1, 0)), at)
        y = self.call("matmul", x, columns, at=at)
        return y if bias is None else self.call("add", y, bias, at=at)

    def linear(self, x: Var, outputs: int, at: str, *, bias: bool = False) -> Var:
        """The product with the weights of the layer `at`, which may be the product of two
        matrices: their order follows from its cost."""
        inputs = x.type.shape[1].constant
        outer, inner = self.checkpoint.factors(at) or (at, None)
        added = self.vector(f"{outer}.bias", outputs) if bias else None
        if inner is None:
            return self.product(x, self.matrix(f"{at}.weight", outputs, inputs), at, added)
        rank = self.checkpoint.rows(inner) or 0
        left, right = (
            self.widened(self.matrix(f"{name}.weight", *shape), name)
            for name, shape in ((outer, (outputs, rank)), (inner, (rank, inputs)))
        )
        return self.product(x, self.call("matmul", left, right, at=at), at, added)

    def rms_norm(self, x: Var, epsilon: float, at: str, offset: float = 0.0) -> Var:
        scale = self.vector(f"{at}.weight", x.type.shape[-1].constant, offset)
        return self.call("rms_norm", x, scale, at=at, axis=-1, epsilon=epsilon)

    def layer_norm(
        self, x: Var, epsilon: float, at: str, parts: Sequence[str], offset: float = 0.0
    ) -> Var:
        """`parts`: which of weight and bias there are. `offset`: added to the weight."""
        size = x.type.shape[-1].constant
        scale = self.vector(f"{at}.weight", size, offset) if "weight" in parts else None
        bias = self.vector(f"{at}.bias", size) if "bias" in parts else None
        return self.call("layer_norm", x, scale, bias, at=at, axis=-1, epsilon=epsilon)

    def head_norms(self, x: Var, epsilon: float, at: str) -> Var:
        """Each head of x[n, heads, size], centered and normalized by weights of its own."""
        heads, size = (axis.constant for axis in x.type.shape[1:])
        if f"{at}.weight" in self.checkpoint.tensors:
            own = self.weights(f"{at}.weight", heads, size)
        else:
            rows = [self.weights(f"{at}.norms.{one}.weight", size) for one in range(heads)]
            own = np.stack(rows)
        y = self.call("layer_norm", x, None, None, at=at, axis=-1, epsilon=epsilon)
        scale = self.builder.constant(at, own.astype(np.float32))
        return self.call("mul", y, scale, at=at)

    def activated(self, x: Var, kind: str, at: str) -> Var:
        """`kind`: one of ACTIVATIONS."""
        op, attrs = ACTIVATIONS[kind]
        y = self.call(op, x, at=at, **attrs)
        return self.call("mul", y, y, at=at) if kind in SQUARED else y

    def leaving(self, x: Var, number: int, at: str) -> Var:
        """The rows of x that are computed behind the caches of the layer with this number."""
        if number != self.narrowed or x.type.shape[0] == ONE:
            return x
        where = {"starts": (self.rows - 1,), "lengths": (1,), "axes": (0,), "steps": (1,)}
        return self.call("slice", x, at=at, **where)

    # Attention

    def rotation(self, given: Rotation, at: str) -> tuple[Var, Var]:
        """Cosines and sines of the new positions, [n, 1, pairs]."""
        places = self.call(
            "range", at=at, start=self.past, step=1, length=self.rows, dtype=DType.I64
        )
        column = self.reshape(self.widened(places, at), self.rows, 1, 1, at=at)
        frequencies = self.builder.constant("frequencies", given.frequencies)
        angles = self.call("mul", column, frequencies, at=at)
        cos, sin = (self.call(op, angles, at=at) for op in ("cos", "sin"))
        return self.scaled(cos, given.factor, at), self.scaled(sin, given.factor, at)

    def rotated(self, x: Var, rotation: tuple[Var, Var], at: str) -> Var:
        """x[n, heads, size]. The first numbers of a head are the coordinates of points that are
        rotated: as many pairs, half of them apart, as the rotation has."""
        cos, sin = rotation
        half, size = (v.type.shape[2].constant for v in (cos, x))
        first, second = self.columns(x, 0, half, at), self.columns(x, half, half, at)
        real = self.difference(first, cos, second, sin, at)
        imaginary = self.call(
            "add", self.call("mul", second, cos, at=at), self.call("mul", first, sin, at=at), at=at
        )
        rest = [self.columns(x, 2 * half, size - 2 * half, at)] if 2 * half < size else []
        return self.call("concat", real, imaginary, *rest, at=at, axis=2)

    def columns(self, x: Var, start: int, length: int, at: str) -> Var:
        """So many numbers of the last axis of x[n, heads, size]."""
        where = {"starts": (start,), "lengths": (length,), "axes": (2,), "steps": (1,)}
        return self.call("slice", x, at=at, **where)

    def times(self, x: Var, factor: float, at: str) -> Var:
        scale = self.builder.constant("scale", np.array(factor, np.float32))
        return self.call("mul", x, scale, at=at)

    def scaled(self, x: Var, factor: float, at: str) -> Var:
        """Times a factor that may be 1."""
        return x if factor == 1.0 else self.times(x, factor, at)

    def capped(self, x: Var, cap: float | None, at: str) -> Var:
        """cap * tanh(x / cap)."""
        if cap is None:
            return x
        return self.times(self.call("tanh", self.times(x, 1 / cap, at), at=at), cap, at)

    def bounded(self, x: Var, most: float, at: str) -> Var:
        """Between -most and most."""
        low, high = (
            self.builder.constant("bound", np.array(one, np.float32)) for one in (-most, most)
        )
        return self.call("clip", x, low, high, at=at)

    def difference(self, a: Var, b: Var, c: Var, d: Var, at: str) -> Var:
        """a b - c d."""
        return self.call("sub", self.call("mul", a, b, at=at), self.call("mul", c, d, at=at), at=at)

    def kept(self, window: int | None) -> Dim:
        """The rows in front of the new ones in the caches of a layer."""
        return self.past if window is None else self.windows.get(window, self.past)

    def counted(self) -> None:
        """Counts tokens, where no cache has them all: a state whose rows have no elements."""
        shape = (self.rows, Dim.of(0))
        none = self.builder.constant("none", np.zeros((1, 0), np.float32))
        new = self.call("expand", none, at="tokens", shape=shape)
        self.appended(new, "tokens_before", (0, 1), "tokens", self.past)

    def cached(
        self, new: Var, name: str, perm: tuple[int, ...], at: str, before: Dim
    ) -> Var | Quantized:
        """new[n, heads, size] behind the rows of the state `name`, of which there are some
        `before`, with axes in the order of `perm`; in floats, or as they are multiplied."""
        name = self.label + name
        if self.stored == "int16x8":
            # What products sum is contiguous.
            perm = (1, 2, 0) if perm == (1, 0, 2) else (1, 0, 2)
            found = self.builder.call("quantize_rows", new, name=name, origin=at, multiple=1)
            values = self.appended(found[0], name, perm, at, before)
            return Quantized(values, self.appended(found[1], f"{name}_scale", (1, 0), at, before))
        if self.stored == "int8":
            codes, scales = self.builder.call(
                "quantize_rows", new, name=name, origin=at, multiple=1
            )
            scales = self.reshape(scales, *new.type.shape[:2], 1, at=at)
            present, scale = (
                self.widened(self.appended(one, label, perm, at, before), at)
                for one, label in ((codes, name), (scales, f"{name}_scale"))
            )
            return self.call("mul", present, scale, at=at)
        if self.stored == "f16":
            new = self.call("cast", new, at=at, to=DType.F16, saturate=False)
        return self.widened(self.appended(new, name, perm, at, before), at)

    def share(self, pool: int, context: int) -> None:
        """Caches with so many rows, of which each call names those of its text, up to a context."""
        total = self.past + self.rows
        self.builder.require(Condition("<=", total, Dim.of(context)), "the context")
        self.pool = pool
        places = self.builder.param("places", TensorType(DType.I32, (total,)))
        # Unsigned, so that a negative place is not a row counted from the end.
        self.places = self.call("cast", places, at="places", to=DType.U32, saturate=False)

    def pooled(self, new: Var, name: str, at: str, pool: int, places: Var) -> Var:
        """The rows of this text in a pool, the new ones among them."""
        where = {"starts": (self.past,), "lengths": (self.rows,), "axes": (0,), "steps": (1,)}
        own = self.call("slice", places, at=at, **where)
        own = self.reshape(self.call("cast", own, at=at, to=DType.I64, saturate=False),
                           self.rows, 1, at=at)  # fmt: skip
        type_ = TensorType(new.type.dtype, (Dim.of(pool), *new.type.shape[1:]))
        past = self.builder.param(name, type_)
        (present,) = self.builder.call(
            "scatter_nd", past, own, new, name=f"{name}_next", origin=at, reduction="none"
        )
        self.states.append(State(past.name, present.name))
        self.caches.append(present)
        return self.call("gather", present, places, at=at, axis=0)

    def appended(self, new: Var, name: str, perm: tuple[int, ...], at: str, before: Dim) -> Var:
        """The state `name` with new rows, which it has on the axis of axis 0."""
        if self.pool is not None and self.places is not None:
            rows = self.pooled(new, name, at, self.pool, self.places)
            return self.call("transpose", rows, at=at, perm=perm)
        if perm != tuple(range(len(perm))):
            new = self.call("transpose", new, at=at, perm=perm)
        axis, shape = perm.index(0), list(new.type.shape)
        shape[axis] = before
        past = self.builder.param(name, TensorType(new.type.dtype, tuple(shape)))
        (present,) = self.builder.call(
            "concat", past, new, name=f"{name}_next", origin=at, axis=axis
        )
        self.states.append(State(past.name, present.name))
        self.caches.append(present)
        return present

    def attention(
        self, q: Var, k: Var | Quantized, v: Var | Quantized, heads: Heads, sight: Sight, at: str
    ) -> Var:
        """Each query sees the keys up to its own position: queries are those of the last rows.
        q[queries' rows, queries, size], k[keys, size, past + n], v[keys, past + n, size], or the
        other way around where they are quantized. Queries that share keys are an axis of their
        own."""
        rows, past = q.type.shape[0], self.kept(sight.window)
        group, total = heads.queries // heads.keys, past + self.rows
        q = self.times(q, sight.scale, at)
        q = self.reshape(q, rows, heads.keys, group, heads.size, at=at)
        q = self.call("transpose", q, at=at, perm=(1, 2, 0, 3))
        if isinstance(k, Quantized):
            scores = self.scaled_scores(q, k, at)
        else:
            k = self.reshape(k, heads.keys, 1, heads.size, total, at=at)
            scores = self.call("matmul", q, k, at=at)
        scores = self.capped(scores, sight.cap, at)
        if rows != ONE or sight.window is not None:  # the last row sees all keys
            left = -1 if sight.window is None else sight.window - 1
            where = {"shift": total - rows, "left": left, "right": 0}
            scores = self.call("attention_mask", scores, None, at=at, **where)
        weights = self.call("softmax", scores, at=at, axis=-1, masked=True)
        if isinstance(v, Quantized):
            found = self.scaled_mix(weights, v, at)
        else:
            v = self.reshape(v, heads.keys, 1, total, heads.size, at=at)
            found = self.call("matmul", weights, v, at=at)
        found = self.call("transpose", found, at=at, perm=(2, 0, 1, 3))
        return self.reshape(found, rows, heads.queries * heads.size, at=at)

    def scaled_scores(self, q: Var, k: Quantized, at: str) -> Var:
        """Queries by quantized keys, whose scales are those of columns."""
        keys, total, size = k.values.type.shape
        values = self.reshape(k.values, keys, 1, total, size, at=at)
        columns = self.call("transpose", values, at=at, perm=(0, 1, 3, 2))
        q, rows = self.wide_rows(q, size.constant, at)
        scales = self.reshape(k.scales, keys, 1, total, at=at)
        return self.call("matmul_scaled", q, columns, rows, scales, at=at)

    def scaled_mix(self, weights: Var, v: Quantized, at: str) -> Var:
        """Sums of quantized values, whose scales the weights are multiplied by."""
        keys, size, total = v.values.type.shape
        scales = self.reshape(v.scales, keys, 1, 1, total, at=at)
        weights = self.call("mul", weights, scales, at=at)
        weights, rows = self.wide_rows(weights, self.longest, at)
        values = self.reshape(v.values, keys, 1, size, total, at=at)
        columns = self.call("transpose", values, at=at, perm=(0, 1, 3, 2))
        return self.call("matmul_scaled", weights, columns, rows, None, at=at)

    def wide_rows(self, x: Var, longest: int, at: str) -> tuple[Var, Var]:
        """Rows of at most so many numbers as integers of 16 bits, and their scales: sums of their
        products with bytes have 32 bits."""
        most = min(WIDE_MOST, LARGEST_SUM // (MOST * longest))
        values, scales = self.builder.call(
            "quantize_rows", x, name="rows", origin=at, multiple=1, most=most
        )
        return values, scales
