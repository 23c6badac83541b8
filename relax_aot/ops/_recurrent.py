# SPDX-License-Identifier: Apache-2.0
"""Attributes and NumPy references of the recurrent ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def reference_of(kind: str) -> Callable[..., tuple[Array, ...]]:
    def reference(cell: Cell, *args: Array | None) -> tuple[Array, ...]:
        arrays = {
            n: None if a is None else a.astype(np.float64 if is_float(a) else np.int64)
            for n, a in zip(argument_names(kind), args, strict=False)
        }
        x = arrays["x"]
        assert x is not None and args[0] is not None
        seq, batch, _ = x.shape
        ways = len(cell.reverses)
        y = np.zeros((seq, ways, batch, cell.hidden))
        states = np.zeros((STATES[kind], ways, batch, cell.hidden))
        for way, reverse in enumerate(cell.reverses):
            for n in range(batch):
                lens = arrays.get("lens")
                length = seq if lens is None else int(lens[n])
                order = range(length - 1, -1, -1) if reverse else range(length)
                _np_run(kind, cell, arrays, way, n, order, y, states)
        kept = args[0].dtype
        return (y.astype(kept), *[s.astype(kept) for s in states])

    return reference


def _np_run(
    kind: str,
    cell: Cell,
    arrays: dict[str, Array | None],
    way: int,
    n: int,
    order: Sequence[int],
    y: Array,
    states: Array,
) -> None:
    size, count = cell.hidden, GATES[kind]
    x, w, r = (arrays[name] for name in ("x", "w", "r"))
    assert x is not None and w is not None and r is not None
    b = arrays.get("b")
    wb, rb = np.split(np.zeros(2 * count * size) if b is None else b[way], 2)
    h0, c0, p = (arrays.get(name) for name in ("h0", "c0", "p"))
    h = np.zeros(size) if h0 is None else h0[way, n]
    c = np.zeros(size) if c0 is None else c0[way, n]
    peep = np.zeros(3 * size) if p is None else p[way]
    functions = [_np_activation(a) for a in cell.activations[way * len(shared_activations(kind)) :]]

    def clip(v: Array) -> Array:
        return v if cell.clip <= 0 else np.clip(v, -cell.clip, cell.clip)

    for t in order:
        a, s = w[way] @ x[t, n] + wb, r[way] @ h + rb
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
                inner = r[way][2 * size :] @ (reset * h) + rb[2 * size :]
                g = functions[1](clip(a[2 * size :] + inner))
            h = (1 - z) * g + z * h
        y[t, way, n] = h
    states[0, way, n] = h
    if kind == "lstm":
        states[1, way, n] = c
