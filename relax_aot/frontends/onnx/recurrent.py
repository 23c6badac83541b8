# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and simple RNN."""

from __future__ import annotations

from typing import Any

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.refusals import Refused
from relax_aot.ir.graph import Var
from relax_aot.ops._recurrent import PARAMETERS
from relax_aot.ops.recurrent import ACTIVATIONS

INPUTS = {"lstm": 8, "gru": 6, "rnn": 6}
LENGTHS = 4
"""The input that has the lengths of the sequences; initial states follow."""
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
USUAL = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}
ORDER = {"y": (2, 0, 1, 3), "state": (1, 0, 2)}
"""From our order of axes to that of layout 1, in which the batch comes first."""


def _recurrent(kind: str) -> Handler:
    def handle(node: Node) -> Results:
        batch_first = bool(node.attr("layout", 0))
        args = [node.optional(index) for index in range(INPUTS[kind])]
        if args[0] is None or args[1] is None or args[2] is None:
            raise ModelError("a recurrent layer needs X, W and R")
        if batch_first:
            args = [_time_first(node, arg, index) for index, arg in enumerate(args)]
        hidden = args[2].type.shape[-1]  # type: ignore[union-attr]  # checked above
        size = int(node.attr("hidden_size", 0))
        if not size and not hidden.is_constant:
            raise ModelError("a recurrent layer needs hidden_size, or an R of known sizes")
        size = size or hidden.constant
        args = [_as_weights(node, arg, index, GATES[kind] * size) for index, arg in enumerate(args)]
        attrs: dict[str, Any] = {
            "hidden": size,
            "direction": node.attr("direction", "forward"),
            "activations": _activations(node, kind),
            "clip": float(node.attr("clip", 0.0)),
        }
        if kind == "gru":
            attrs["linear_before_reset"] = bool(node.attr("linear_before_reset", 0))
        if kind == "lstm":
            attrs["input_forget"] = bool(node.attr("input_forget", 0))
        y, *states = node.emit_all(kind, *args, **attrs)
        states = [
            _without_empty(node, args[LENGTHS], state, begun, number)
            for number, (state, begun) in enumerate(zip(states, args[LENGTHS + 1 :], strict=False))
        ]
        if not batch_first:
            return (y, *states)
        transposed = [node.emit("transpose", state, perm=ORDER["state"]) for state in states]
        return (node.emit("transpose", y, perm=ORDER["y"]), *transposed)

    return handle


def _without_empty(
    node: Node, lengths: Var | None, state: Var, begun: Var | None, number: int
) -> Var:
    """A final state, zeros for sequences of length 0, as ONNX Runtime has them."""
    used = any(node.requested[1 + number : 2 + number])
    known = None if lengths is None else node.builder.numeric(lengths)
    if lengths is None or begun is None or not used or (known is not None and known.all()):
        return state
    empty = node.emit("equal", lengths, node.scalar(0, lengths))
    rows = node.reshape(empty, (1, *lengths.type.shape, 1))
    return node.emit("where", rows, node.scalar(0, state), state)


def _as_weights(node: Node, arg: Var | None, index: int, rows: int) -> Var | None:
    """Weights whose type does not say how many rows they have; it is checked on entry."""
    if arg is None or index not in (1, 2) or arg.type.rank != 3:
        return arg
    ways, given, width = arg.type.shape
    if given.is_constant:
        return arg
    return node.emit("match_cast", arg, shape=(ways, rows, width))


def _time_first(node: Node, arg: Var | None, index: int) -> Var | None:
    """The input and the initial states change their first two axes; weights have no batch."""
    if arg is None or index not in (0, 5, 6):
        return arg
    return node.emit("transpose", arg, perm=(1, 0, 2))


def _activations(node: Node, kind: str) -> tuple[str, ...]:
    ways = 2 if node.attr("direction", "forward") == "bidirectional" else 1
    given = [bytes(name).decode() for name in node.attr("activations") or []]
    names = tuple(name.lower() for name in given or USUAL[kind] * ways)
    if kind == "rnn":
        names = names[:ways]  # the default that ONNX states is of two directions, always
    if len(names) != len(USUAL[kind]) * ways:
        raise ModelError(f"a recurrent layer has the activations {given}")
    alphas, betas = (
        [float(value) for value in node.attr(f"activation_{which}") or []]
        for which in ("alpha", "beta")
    )
    return tuple(_with_parameters(name, alphas, betas) for name in names)


def _with_parameters(name: str, alphas: list[float], betas: list[float]) -> str:
    """The parameters stand in the order of the activations that have some."""
    if name not in ACTIVATIONS:
        raise Refused(f"activation {name!r} is not supported")
    values = list(PARAMETERS.get(name, ()))
    if values and alphas:
        values[0] = alphas.pop(0)
    if len(values) > 1 and betas:
        values[1] = betas.pop(0)
    return " ".join([name, *map(repr, values)])


HANDLERS: dict[str, Handler] = {name: _recurrent(name.lower()) for name in ("LSTM", "GRU", "RNN")}
