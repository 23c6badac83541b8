# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and simple RNN as ONNX defines them, as loops over the sequence. The arguments are
x, w, r, b?, lens?, h0?, and for lstm c0? and peepholes?.

Shapes: x [seq, batch, in]; w [directions, gates*hidden, in]; r [directions, gates*hidden,
hidden]; b [directions, 2*gates*hidden]; lens [batch]; h0, c0 [directions, batch, hidden];
p [directions, 3*hidden]. Results: y [seq, directions, batch, hidden], then the last
states [directions, batch, hidden]. Beyond a sequence's length y is 0 and states stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Condition
from relax_aot.ir.loops import Buffer, Cast
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample, Trait, must_fit, require, require_one_type
from relax_aot.ops._recurrent import (
    DIRECTIONS,
    GATES,
    STATES,
    Cell,
    argument_names,
    reference_of,
)
from relax_aot.ops._recurrent_steps import ACTIVATIONS as ACTIVATIONS
from relax_aot.ops._recurrent_steps import Buffers, Widened, direction
from relax_aot.ops._samples import normals

MEANING = {
    "w": "input weights",
    "r": "recurrent weights",
    "b": "bias",
    "lens": "sequence lengths",
    "h0": "initial state",
    "c0": "initial cell state",
    "p": "peephole weights",
}


def _deduce(kind: str) -> Callable[..., tuple[TensorType, ...]]:
    def deduce(cell: Cell, *args: TensorType | None) -> tuple[TensorType, ...]:
        x, w = args[0], args[1]
        assert x is not None and w is not None
        require(x.rank == 3 and w.rank == 3, f"{kind} needs x and w of rank 3, got {x} and {w}")
        require(x.dtype.is_float, f"{kind} needs float tensors, got {x}")
        named = zip(argument_names(kind), args, strict=False)
        require_one_type(kind, *(type_ for name, type_ in named if name != "lens"))
        gates = Dim.of(GATES[kind] * cell.hidden)
        require(w.shape[1] == gates, f"{kind}: w has {w.shape[1]} rows, expected {gates}")
        ways, hidden = Dim.of(len(cell.reverses)), Dim.of(cell.hidden)
        seq, batch = x.shape[:2]
        state = TensorType(x.dtype, (ways, batch, hidden))
        y = TensorType(x.dtype, (seq, ways, batch, hidden))
        return (y, *[state] * STATES[kind])

    return deduce


def _conditions(kind: str) -> Callable[..., list[Condition]]:
    def conditions(cell: Cell, *args: TensorType | None) -> list[Condition]:
        named = dict(zip(argument_names(kind), args, strict=False))
        x = named["x"]
        assert x is not None
        ways, hidden = Dim.of(len(cell.reverses)), Dim.of(cell.hidden)
        gates, (_, batch, width) = Dim.of(GATES[kind]) * hidden, x.shape
        expected = {
            "w": (ways, gates, width),
            "r": (ways, gates, hidden),
            "b": (ways, gates + gates),
            "lens": (batch,),
            "h0": (ways, batch, hidden),
            "c0": (ways, batch, hidden),
            "p": (ways, Dim.of(3) * hidden),
        }
        found: list[Condition] = []
        for name, shape in expected.items():
            found += must_fit(named.get(name), shape, f"{kind}'s {MEANING[name]}")
        return found

    return conditions


def _lower(kind: str) -> Callable[..., None]:
    def lower(cell: Cell, k: KernelBuilder, *buffers: Buffer | None) -> None:
        names = argument_names(kind)
        count = len(buffers) - 1 - STATES[kind]
        given: Buffers = dict.fromkeys(names)
        given |= dict(zip(names, buffers[:count], strict=False))
        outputs = buffers[count:]
        x = given["x"]
        assert x is not None
        narrow = x.dtype in (DType.F16, DType.BF16)
        states = [
            k.scratch(f"state{i}", DType.F32, state.shape) if narrow else state
            for i, state in enumerate(s for s in outputs[1:] if s is not None)
        ]
        if narrow:
            given = {
                name: Widened(b) if isinstance(b, Buffer) and b.dtype is x.dtype else b
                for name, b in given.items()
            }
        for way, reverse in enumerate(cell.reverses):
            direction(k, kind, cell, given, outputs[0], states, way, reverse)
        if narrow:
            # States are rounded to half precision once, after the last step.
            for rounded, state in zip([s for s in outputs[1:] if s], states, strict=True):
                with k.loops(*state.shape) as at:
                    k.store(rounded[at], Cast(state[at], rounded.dtype))

    return lower


def _samples(kind: str) -> Callable[[np.random.Generator], list[Sample]]:
    usual = {
        "lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",),
    }[kind]  # fmt: skip

    def samples(rng: np.random.Generator) -> list[Sample]:
        gates = GATES[kind]

        def case(
            seq: int, batch: int, size: int, hidden: int, ways: int = 1, **more: Any
        ) -> Sample:
            normal = normals(rng, 0.5)
            args: list[Array | None] = [
                normal(seq, batch, size),
                normal(ways, gates * hidden, size),
                normal(ways, gates * hidden, hidden),
                normal(ways, 2 * gates * hidden) if more.pop("bias", True) else None,
                more.pop("lens", None),
            ]
            if more.pop("initial", False):
                args += [normal(ways, batch, hidden) for _ in range(STATES[kind])]
            if more.pop("peepholes", False):
                args += [normal(ways, 3 * hidden)]
            attrs = {"hidden": hidden, "direction": "forward", "activations": usual * ways}
            return Sample(tuple(args), attrs | more, symbolic=False)

        cases = [
            case(5, 2, 3, 4),
            case(5, 2, 3, 4, bias=False, direction="reverse", initial=True),
            case(4, 3, 2, 5, 2, direction="bidirectional", lens=np.array([4, 1, 3], np.int32)),
            case(3, 1, 2, 3, clip=0.3),
            *(
                case(3, 1, 2, 3, activations=(name,) * len(usual))
                for name in (*ACTIVATIONS, "leakyrelu 0.3", "scaledtanh 1.5 0.5", "affine 0.5 0.1")
            ),
            case(0, 2, 3, 4, initial=True),
        ]
        if kind == "lstm":
            cases.append(case(3, 2, 2, 3, input_forget=True))
            cases.append(case(3, 2, 2, 3, initial=True, peepholes=True))
        if kind == "gru":
            cases.append(case(4, 2, 3, 4, linear_before_reset=True, initial=True))
        return cases

    return samples


OPS = tuple(
    Op(
        kind, _deduce(kind), _lower(kind), reference_of(kind), _samples(kind),
        conditions=_conditions(kind), record=Cell, values={"direction": DIRECTIONS},
        traits=Trait.WIDENS,
    )
    for kind in GATES
)  # fmt: skip
