# SPDX-License-Identifier: Apache-2.0
"""A quantized model next to the float model that it was made from.

`verify` compares a quantized model with its own numbers. What quantization costs is another
question: the signal-to-noise ratio of each output, how often the largest class is the same, and,
with labels, how often it is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.frontends.arrays import read_npz
from relax_aot.ir.types import DType

Array = NDArray[Any]
Outputs = Mapping[str, Array]
KEY = "labels"


class LabelError(RelaxAotError):
    """Labels that do not fit the samples."""


@dataclass(frozen=True, slots=True)
class FloatRow:
    """One output over all calls. The ratio is in decibels, None where there is no noise. The worst
    element is given as call and index; agreement is a share of the rows of classes."""

    name: str
    snr_db: float | None
    max_abs: float
    call: int
    worst: tuple[int, ...]
    top_class_agreement: float | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of samples whose largest class is the label; `float_model` is None where no float
    model is compared."""

    output: str
    samples: int
    float_model: float | None
    reference: float
    board: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def float_rows(outputs: Sequence[Outputs], floats: Sequence[Outputs]) -> tuple[FloatRow, ...]:
    """Each float output against that of the float model, over all calls that gave one."""
    names = dict.fromkeys(name for one in outputs for name in one)
    rows = []
    for name in names:
        pairs = [
            (number, one[name].astype(np.float64), other[name].astype(np.float64))
            for number, (one, other) in enumerate(zip(outputs, floats, strict=True))
            if name in one
            and name in other
            and one[name].shape == other[name].shape
            and one[name].size
            and DType.of(one[name].dtype).is_float
        ]
        if pairs:
            rows.append(_row(name, pairs))
    return tuple(rows)


def _row(name: str, pairs: Sequence[tuple[int, Array, Array]]) -> FloatRow:
    signal = sum(float(np.square(other).sum()) for _, _, other in pairs)
    noise = sum(float(np.square(one - other).sum()) for _, one, other in pairs)
    ratio = 10 * log10(signal / noise) if noise > 0 and signal > 0 and isfinite(noise) else None
    most = [float(np.abs(one - other).max()) for _, one, other in pairs]
    call, one, other = pairs[int(np.argmax(most))]
    worst = np.unravel_index(int(np.argmax(np.abs(one - other))), one.shape)
    agreement = None
    if all(other.ndim and other.shape[-1] > 1 for _, _, other in pairs):
        same = [one.argmax(-1) == other.argmax(-1) for _, one, other in pairs]
        agreement = float(np.mean(np.concatenate([np.reshape(s, -1) for s in same])))
    return FloatRow(name, ratio, max(most), call, tuple(map(int, worst)), agreement)


def rows_json(rows: Sequence[FloatRow]) -> list[dict[str, Any]]:
    return [asdict(row) | {"worst": list(row.worst)} for row in rows]


def read_labels(path: Path) -> Array:
    """Whole numbers, one for each sample: the array `labels`, or the only one."""
    try:
        arrays = read_npz(path)
    except ValueError as error:
        raise LabelError(f"--labels {path}: cannot read it as .npz: {error}") from None
    if KEY not in arrays and len(arrays) != 1:
        raise LabelError(f"--labels {path} has no array {KEY!r}, only {sorted(arrays)}")
    labels: Array = arrays.get(KEY, next(iter(arrays.values())))
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise LabelError(
            f"--labels {path}: expected whole numbers, one for each sample, got"
            f" {labels.dtype}{list(labels.shape)}"
        )
    return labels


def accuracy(
    labels: Array,
    board: Sequence[Outputs],
    reference: Sequence[Outputs],
    float_model: Sequence[Outputs] | None,
) -> Accuracy:
    """Of the first output that has one row of classes for each sample."""
    if len(labels) != len(board):
        raise LabelError(
            f"{len(labels)} labels, but {len(board)} samples: the numbers must be equal"
        )
    classes = int(labels.max(initial=0)) + 1
    fitting = [
        name
        for name, y in reference[0].items()
        if y.ndim and y.size == y.shape[-1] >= classes and y.size > 1
    ]
    if not fitting or labels.min(initial=0) < 0:
        shapes = ", ".join(f"{name} {list(y.shape)}" for name, y in reference[0].items())
        raise LabelError(
            f"labels are 0 to {classes - 1}, but no output has rows of this many classes: {shapes}"
        )
    name = fitting[0]

    def right(outputs: Sequence[Outputs]) -> float:
        said = [int(one[name].reshape(-1).argmax()) if name in one else -1 for one in outputs]
        return float(np.mean(np.asarray(said) == labels))

    float_share = None if float_model is None else right(float_model)
    return Accuracy(name, len(labels), float_share, right(reference), right(board))
