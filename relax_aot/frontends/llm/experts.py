# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts (Shazeer et al., arXiv:1701.06538; Jiang et al., arXiv:2401.04088): each
token goes through the few gated products that a router chooses.

The weights of all experts are one tensor, in which products read those of the chosen ones: the
others are neither read nor computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relax_aot.frontends.llm.layers import Net
from relax_aot.ir.graph import Var


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a layer, of which each token takes the `chosen` most likely ones."""

    count: int
    chosen: int
    hidden: int
    normalized: bool
    """Whether the shares of those that are chosen add up to 1."""
    at: str
    """The name of the mixture in a layer."""
    names: tuple[str, str, str]
    """Of the gate, of what it multiplies, and of the product behind them."""
    shared: int = 0
    """The hidden width of an expert that all tokens take; 0: without one."""


def mixed(net: Net, experts: Experts, activation: str, y: Var, at: str) -> Var:
    """The sum of the experts of each row of y[n, width], by their shares."""
    rows, width, hidden = y.type.shape[0], y.type.shape[1].constant, experts.hidden
    shares, places = _routed(net, experts, y, at)
    x = net.reshape(y, rows, 1, 1, width, at=at)
    gate, up, down = experts.names
    gates, values = (_product(net, experts, x, places, f"{at}.{n}", hidden) for n in (gate, up))
    z = net.call("mul", net.activated(gates, activation, at), values, at=at)
    z = _product(net, experts, z, places, f"{at}.{down}", width)
    z = net.reshape(z, rows, experts.chosen, width, at=at)
    shares = net.reshape(shares, rows, 1, experts.chosen, at=at)
    return net.reshape(net.call("matmul", shares, z, at=at), rows, width, at=at)


def _routed(net: Net, experts: Experts, y: Var, at: str) -> tuple[Var, Var]:
    """Shares and numbers of the experts of each row, [n, chosen]."""
    likely = net.linear(y, experts.count, f"{at}.gate")
    if not experts.normalized:
        likely = net.call("softmax", likely, at=at, axis=-1)
    shares, places = net.builder.call(
        "top_k", likely, name="share", origin=at,
        k=experts.chosen, axis=1, largest=True, sorted=True,
    )  # fmt: skip
    # The softmax of the chosen scores: those of all experts, divided by their sum.
    return net.call("softmax", shares, at=at, axis=-1) if experts.normalized else shares, places


def _product(net: Net, experts: Experts, x: Var, places: Var, at: str, outputs: int) -> Var:
    """x[n, 1 or chosen, 1, inputs] times weights of the experts of each row."""
    inputs = x.type.shape[-1].constant
    mixture, _, name = at.rpartition(".")
    found = [
        net.weights(f"{mixture}.experts.{one}.{name}.weight", outputs, inputs).T
        for one in range(experts.count)
    ]
    table = net.builder.constant(at, np.stack(found))
    taken = net.call("gather", table, places, at=at, axis=0)
    return net.call("matmul", x, net.widened(taken, at), at=at)
