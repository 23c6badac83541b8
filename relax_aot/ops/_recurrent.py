# SPDX-License-Identifier: Apache-2.0
"""Attributes and NumPy references of the recurrent ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relax_aot.ops._op import Array, is_float

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
STATES = {"lstm": 2, "gru": 1, "rnn": 1}


DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each way through the sequence, whether it begins at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The attributes of a recurrent op."""

    hidden: int
    direction: str
    activations: Sequence[str]
    clip: float = 0.0
    linear_before_reset: bool = False
    input_forget: bool = False
    """LSTM: what is forgotten makes room for what enters."""
    cell_clip: float = 0.0
    """LSTM: between which numbers the cell's state is kept (TensorFlow Lite); 0 for none."""

    @property
    def reverses(self) -> tuple[bool, ...]:
        return DIRECTIONS[self.direction]


def argument_names(kind: str) -> tuple[str, ...]:
    base = ("x", "w", "r", "b", "lens", "h0")
    return (*base, "c0", "p") if kind == "lstm" else base


PARAMETERS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0,),
    "hardsigmoid": (float(np.float32(0.2)), 0.5),
    "leakyrelu": (float(np.float32(0.01)),),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0,),
}
"""Activations with parameters, alpha and beta, and their defaults, which are of float32."""


def shared_activations(kind: str) -> tuple[str, ...]:
    return {"lstm": ("f", "g", "h"), "gru": ("f", "g"), "rnn": ("f",)}[kind]


# The meaning, in NumPy


def _np_activation(text: str) -> Callable[[Array], Array]:
    name, *values = text.split()
    alpha, *rest = [float(value) for value in values] or PARAMETERS.get(name, (0.0,))
    beta = rest[0] if rest else 0.0
    functions: dict[str, Callable[[Array], Array]] = {
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        "tanh": np.tanh,
        "relu": lambda v: np.maximum(v, 0),
        "softsign": lambda v: v / (1 + np.abs(v)),
        "softplus": lambda v: np.logaddexp(v, 0),
        "affine": lambda v: alpha * v + beta,
        "elu": lambda v: np.where(v < 0, alpha * np.expm1(v), v),
        "hardsigmoid": lambda v: np.clip(alpha * v + beta, 0, 1),
        "leakyrelu": lambda v: np.where(v < 0, alpha * v, v),
        "scaledtanh": lambda v: alpha * np.tanh(beta * v),
        "thresholdedrelu": lambda v: np.where(v < alpha, 0, v),
    }
    return functions[name]


@dataclass(frozen=True)
class Products:
    """The sums of products of the gates in one direction, with their biases: of an input, of the
    state, and of GRU's last gate and the state that the reset gate scaled."""

    input: Callable[[Array], Array]
    state: Callable[[Array], Array]
    scaled: Callable[[Array], Array]


def reference_of(kind: str) -> Callable[..., tuple[Array, ...]]:
    def products(cell: Cell, arrays: dict[str, Array | None], way: int) -> Products:
        w, r, b = (arrays.get(name) for name in ("w", "r", "b"))
        assert w is not None and r is not None
        count, last = GATES[kind] * cell.hidden, 2 * cell.hidden
        wb, rb = np.split(np.zeros(2 * count) if b is None else b[way], 2)
        return Products(
            lambda x: w[way] @ x + wb,
            lambda h: r[way] @ h + rb,
            lambda scaled: r[way][last:] @ scaled + rb[last:],
        )

    def reference(cell: Cell, *args: Array | None) -> tuple[Array, ...]:
        named = dict(zip(argument_names(kind), args, strict=False))
        return reference_by(kind, cell, named, products)

    return reference


def reference_by(
    kind: str,
    cell: Cell,
    named: Mapping[str, Array | None],
    products: Callable[[Cell, dict[str, Array | None], int], Products],
    functions: Mapping[str, Callable[[Array], Array]] | None = None,
) -> tuple[Array, ...]:
    """The results in double precision; `products` are given the arguments by name, and the number
    of a direction. `functions` take the place of activations."""
    arrays = {
        n: None if a is None else a.astype(np.float64 if is_float(a) else np.int64)
        for n, a in named.items()
    }
    x, given = arrays["x"], named["x"]
    assert x is not None and given is not None
    seq, batch, _ = x.shape
    ways = len(cell.reverses)
    y = np.zeros((seq, ways, batch, cell.hidden))
    states = np.zeros((STATES[kind], ways, batch, cell.hidden))
    for way, reverse in enumerate(cell.reverses):
        sums = products(cell, arrays, way)
        for n in range(batch):
            lens = arrays.get("lens")
            length = seq if lens is None else int(lens[n])
            order = range(length - 1, -1, -1) if reverse else range(length)
            _np_run(kind, cell, arrays, sums, way, n, order, y, states, functions or {})
    return (y.astype(given.dtype), *[s.astype(given.dtype) for s in states])


def _np_run(
    kind: str,
    cell: Cell,
    arrays: dict[str, Array | None],
    sums: Products,
    way: int,
    n: int,
    order: Sequence[int],
    y: Array,
    states: Array,
    others: Mapping[str, Callable[[Array], Array]],
) -> None:
    size, x = cell.hidden, arrays["x"]
    assert x is not None
    h0, c0, p = (arrays.get(name) for name in ("h0", "c0", "p"))
    h = np.zeros(size) if h0 is None else h0[way, n]
    c = np.zeros(size) if c0 is None else c0[way, n]
    peep = np.zeros(3 * size) if p is None else p[way]
    names = cell.activations[way * len(shared_activations(kind)) :]
    functions = [others.get(name) or _np_activation(name) for name in names]

    def clip(v: Array) -> Array:
        return v if cell.clip <= 0 else np.clip(v, -cell.clip, cell.clip)

    for t in order:
        a, s = sums.input(x[t, n]), sums.state(h)
        if kind == "rnn":
            h = functions[0](clip(a + s))
        elif kind == "lstm":
            i, o, f, g = np.split(a + s, 4)
            pi, po, pf = np.split(peep, 3)
            i, f = functions[0](clip(i + pi * c)), functions[0](clip(f + pf * c))
            f = 1 - i if cell.input_forget else f
            c = f * c + i * functions[1](clip(g))
            c = c if cell.cell_clip <= 0 else np.clip(c, -cell.cell_clip, cell.cell_clip)
            h = functions[0](clip(o + po * c)) * functions[2](c)
        else:
            z = functions[0](clip((a + s)[:size]))
            reset = functions[0](clip((a + s)[size : 2 * size]))
            if cell.linear_before_reset:
                g = functions[1](clip(a[2 * size :] + reset * s[2 * size :]))
            else:
                g = functions[1](clip(a[2 * size :] + sums.scaled(reset * h)))
            h = (1 - z) * g + z * h
        y[t, way, n] = h
    states[0, way, n] = h
    if kind == "lstm":
        states[1, way, n] = c
