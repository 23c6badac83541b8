# SPDX-License-Identifier: Apache-2.0
"""The layers of the classifier in NumPy, forwards and backwards.

Each layer answers its result and a function that takes the gradient of the result to the
gradients of its arguments, in their order. Sequences are [batch, steps, channels]; weights have
the shapes that ONNX gives them. All works in the precision of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Backward = Callable[[Array], tuple[Array, ...]]


def conv(x: Array, w: Array, b: Array, *, stride: int = 1) -> tuple[Array, Backward]:
    """One-dimensional convolution, w: [out, in, taps], padded so that stride 1 keeps the length."""
    windows, spread = _windows(x, w.shape[2], stride, 1)
    y = b + sum(window @ w[:, :, tap].T for tap, window in enumerate(windows))

    def backward(dy: Array) -> tuple[Array, ...]:
        flat = _rows(dy)
        dw = np.stack([flat.T @ _rows(window) for window in windows], axis=2)
        dx = spread([dy @ w[:, :, tap] for tap in range(w.shape[2])])
        return dx, dw, flat.sum(axis=0)

    return y, backward


def depthwise(
    x: Array, w: Array, b: Array, *, stride: int = 1, dilation: int = 1
) -> tuple[Array, Backward]:
    """Each channel convolved by itself, w: [channels, 1, taps], padded likewise."""
    windows, spread = _windows(x, w.shape[2], stride, dilation)
    y = b + sum(window * w[:, 0, tap] for tap, window in enumerate(windows))

    def backward(dy: Array) -> tuple[Array, ...]:
        dw = np.stack([(dy * window).sum(axis=(0, 1)) for window in windows], axis=1)
        dx = spread([dy * w[:, 0, tap] for tap in range(w.shape[2])])
        return dx, dw[:, None], dy.sum(axis=(0, 1))

    return y, backward


def linear(x: Array, w: Array, b: Array) -> tuple[Array, Backward]:
    """x w^T + b over the last axis, w: [out, in]."""

    def backward(dy: Array) -> tuple[Array, ...]:
        flat = _rows(dy)
        return dy @ w, flat.T @ _rows(x), flat.sum(axis=0)

    return x @ w.T + b, backward


def relu(x: Array) -> tuple[Array, Backward]:
    return np.maximum(x, 0), lambda dy: (dy * (x > 0),)


def gru(x: Array, w: Array, r: Array, wb: Array, rb: Array) -> tuple[Array, Backward]:
    """Gated recurrent unit from a state of zeros: the states after every step.

    Gates stand in ONNX's order (update, reset, new) in w: [3*hidden, in], r: [3*hidden, hidden]
    and the two biases; the reset gate applies after the product (`linear_before_reset=1`).
    """
    batch, steps, _ = x.shape
    hidden = r.shape[1]
    gates = x @ w.T + wb
    states = np.zeros((batch, steps + 1, hidden), x.dtype)
    kept = []
    for t in range(steps):
        past = states[:, t] @ r.T + rb
        both = _sigmoid(gates[:, t, : 2 * hidden] + past[:, : 2 * hidden])
        update, reset = both[:, :hidden], both[:, hidden:]
        new = np.tanh(gates[:, t, 2 * hidden :] + reset * past[:, 2 * hidden :])
        states[:, t + 1] = (1 - update) * new + update * states[:, t]
        kept.append((update, reset, new, past[:, 2 * hidden :]))

    def backward(dy: Array) -> tuple[Array, ...]:
        dgates, dpasts = np.empty_like(gates), np.empty_like(gates)
        carried = np.zeros((batch, hidden), x.dtype)
        for t in reversed(range(steps)):
            update, reset, new, past = kept[t]
            dstate = dy[:, t] + carried
            dnew = dstate * (1 - update) * (1 - new**2)
            dupdate = dstate * (states[:, t] - new) * update * (1 - update)
            dreset = dnew * past * reset * (1 - reset)
            dgates[:, t] = np.concatenate([dupdate, dreset, dnew], axis=1)
            dpasts[:, t] = np.concatenate([dupdate, dreset, dnew * reset], axis=1)
            carried = dstate * update + dpasts[:, t] @ r
        flat_gates, flat_pasts = _rows(dgates), _rows(dpasts)
        return (
            dgates @ w,
            flat_gates.T @ _rows(x),
            flat_pasts.T @ _rows(states[:, :-1]),
            flat_gates.sum(axis=0),
            flat_pasts.sum(axis=0),
        )

    return states[:, 1:], backward


def mean_and_peak(x: Array) -> tuple[Array, Backward]:
    """The mean and the greatest of each channel over all steps, side by side."""
    steps, channels = x.shape[1:]
    peak = x.argmax(axis=1)[:, None]

    def backward(dy: Array) -> tuple[Array, ...]:
        dx = np.repeat(dy[:, None, :channels] / steps, steps, axis=1)
        at_peak = np.take_along_axis(dx, peak, axis=1) + dy[:, None, channels:]
        np.put_along_axis(dx, peak, at_peak, axis=1)
        return (dx,)

    y = np.concatenate([x.mean(axis=1), np.take_along_axis(x, peak, axis=1)[:, 0]], axis=1)
    return y, backward


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def cross_entropy(logits: Array, labels: npt.NDArray[np.int64]) -> tuple[float, Array]:
    """Mean loss of the labels, and its gradient by the logits."""
    right = labels[..., None]
    p = softmax(logits)
    loss = -np.log(np.take_along_axis(p, right, axis=-1) + np.finfo(p.dtype).tiny).mean()
    np.put_along_axis(p, right, np.take_along_axis(p, right, axis=-1) - 1, axis=-1)
    return float(loss), p / labels.size


def _windows(
    x: Array, taps: int, stride: int, dilation: int
) -> tuple[list[Array], Callable[[list[Array]], Array]]:
    """What each tap sees of the padded x, and the way back: gradients per tap to that of x."""
    steps = x.shape[1]
    margin = dilation * (taps - 1) // 2
    padded = np.pad(x, ((0, 0), (margin, margin), (0, 0)))
    span = stride * ((steps - 1) // stride) + 1
    seen = [slice(dilation * tap, dilation * tap + span, stride) for tap in range(taps)]

    def spread(gradients: list[Array]) -> Array:
        dpadded = np.zeros_like(padded)
        for where, gradient in zip(seen, gradients, strict=True):
            dpadded[:, where] += gradient
        return dpadded[:, margin : margin + steps]

    return [padded[:, where] for where in seen], spread


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))
