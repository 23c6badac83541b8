# SPDX-License-Identifier: Apache-2.0
"""What quantization a model did to it, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relax_aot.ops.matmul_groups import MOST
from relax_aot.quantization.weight_only import KINDS

POOR_DECIBELS = 15.0
"""Below this a layer by itself loses what makes its result; half of the bits of an i8."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A call that works on quantized values."""

    name: str
    op: str
    origin: str
    sqnr: float
    """Signal to noise of its result in the quantized model, in decibels."""
    alone: float | None
    """The same if its operands were exact: what this layer adds."""


@dataclass(frozen=True, slots=True)
class Quantized:
    kind: str
    layers: tuple[Layer, ...] = ()
    spoiling: tuple[str, ...] = ()
    """Layers because of which results are infinite or NaN that were not."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Results of recurrent layers that stay floats though they were to be quantized, with why."""

    @property
    def suggestion(self) -> tuple[str, ...]:
        """Layers that had better stay in floats, the worst first."""
        poor = [x for x in self.layers if x.alone is not None and x.alone < POOR_DECIBELS]
        names = (x.name for x in sorted(poor, key=lambda x: x.alone or 0.0))
        return tuple(dict.fromkeys((*self.spoiling, *names)))

    @property
    def errors(self) -> tuple[str, ...]:
        """How far values are off at most, where that is known without samples."""
        kind = KINDS.get(self.kind)
        if kind is None:
            return ()
        place = f"block of {kind.group}" if kind.form else "row"
        rows = (
            f"an activation is off by at most 1/{2 * MOST} of the largest magnitude in its {place}"
        )
        return (kind.error, rows) if kind.dynamic else (kind.error,)

    def lines(self) -> tuple[str, ...]:
        """A table for people."""
        left = [f"stays float: recurrent layer %{name}: {why}" for name, why in self.left.items()]
        if not self.layers:
            return (f"weights quantized: {self.kind}", *self.errors, *left)
        width = max(len(layer.name) for layer in self.layers)
        rows = [f"{'layer':{width}}  {'op':13} {'SQNR dB':>8} {'alone':>8}"]
        for layer in self.layers:
            alone = "" if layer.alone is None else f"{layer.alone:.1f}"
            rows.append(f"{layer.name:{width}}  {layer.op:13} {layer.sqnr:8.1f} {alone:>8}")
        if self.spoiling:
            rows.append(f"infinite or NaN because of quantization: from {', '.join(self.spoiling)}")
        keep = " ".join(f"--keep-float {name}" for name in self.suggestion)
        rows.append(f"keep in float: {keep}" if keep else "no quantized layer needs --keep-float")
        return (*rows, *left)
