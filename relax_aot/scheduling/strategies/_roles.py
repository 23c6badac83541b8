# SPDX-License-Identifier: Apache-2.0
"""The reduction loops of a contraction by what windows do along them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd

from relax_aot.ir.dims import ONE, ZERO, Dim, ceildiv
from relax_aot.ir.loops import Buffer, Load
from relax_aot.scheduling.contraction import Weighted, step_of, stride, symbols_of
from relax_aot.scheduling.weighted import WHOLE, Span, window
from relax_aot.scheduling.windows import Axis, axis_of
from relax_aot.scheduling.writer import Writer


@dataclass(frozen=True, slots=True)
class Roles:
    """`across` is the axis of the last loop over positions, where `column` moves and may be
    clipped; `line` may be clipped elsewhere; `channel` is never clipped. Without a column, `across`
    counts positions themselves."""

    across: Axis
    column: int | None
    line: int | None
    channel: int | None

    @property
    def on_axis(self) -> bool:
        """Whether the last loop over positions moves along one axis of x, and may be clipped only
        at both of its ends."""
        cut = self.across.reduction is not None and symbols_of(self.across.reduction)
        return self.across.dimension >= 0 and (not cut or self.across.clips == (True, True))

    @property
    def order(self) -> list[int]:
        levels = (self.line, self.channel, self.column)
        return [level for level in levels if level is not None]

    @property
    def inner(self) -> list[int]:
        return [level for level in (self.line, self.channel) if level is not None]

    @property
    def phases(self) -> int:
        """Dilated windows share columns with those so many positions further on."""
        return self.across.dilation // gcd(self.across.stride, self.across.dilation)

    @property
    def advance(self) -> int:
        """Columns of the strip from one window to the next."""
        return self.across.stride * self.phases // self.across.dilation

    def gather(
        self, w: Writer, found: Weighted, at: Mapping[str, Dim], to: Buffer | Load, columns: Dim
    ) -> None:
        """Copies columns from the window at a position on, every `dilation`-th of the image."""
        spans, first, sizes = self.source(w, found, at, columns)
        known: dict[int | None, Span] = dict(zip(self.inner, spans, strict=True))
        line, channel = (known.get(level, WHOLE) for level in (self.line, self.channel))
        w.micro(
            f"raot_im2col_nhwc_{found.suffix}", strip=to, image=first, channels=channel.count,
            lines=line.count, first1=line.first, last1=line.last, line_step=line.step,
            channel_step=ONE if self.channel is None else channel.step, **sizes,
        )  # fmt: skip

    def source(
        self, w: Writer, found: Weighted, at: Mapping[str, Dim], columns: Dim
    ) -> tuple[list[Span], Load, dict[str, int | Dim]]:
        """The inner reductions at a position, column 0 of the image, and which columns."""
        spans, first = window(w, found, self.inner, at)
        axis, lead, width = self.across, ZERO, columns
        if self.column is not None:
            lead = at[axis.variable] * axis.stride - axis.before
            rest = lead - lead // axis.dilation * axis.dilation
            index = (rest if n == axis.dimension else dim for n, dim in enumerate(first.index))
            first = Load(first.buffer, tuple(index))
            lead, width = lead // axis.dilation, ceildiv(axis.size - rest, axis.dilation)
        step = axis.step * axis.dilation
        sizes: dict[str, int | Dim] = {"zero": found.x_zero - found.flip, "flip": found.flip}
        sizes |= {"columns": columns, "first": lead, "width": width, "column_step": step}
        return spans, first, sizes


def roles_of(found: Weighted) -> Roles | None:
    if len(found.reductions) > 3:
        return None
    if not found.positions:
        one = Axis(-1, None, None, 1, 1, 1, 0, ONE, ONE)
        return _with_rest(found, one, None, list(range(len(found.reductions))))
    last = found.positions[-1]
    axis = axis_of(found.x, last, found.reductions, found.counts)
    if axis is None:  # it moves along several axes of x
        steps = stride(found.x, last.variable)
        cut = any(last.variable in symbols_of(loop) for loop in found.reductions)
        if steps is None or cut:
            return None
        axis = Axis(-1, None, None, 1, 1, 1, 0, ONE, steps)
    column = None if axis.reduction is None else found.reductions.index(axis.reduction)
    if axis.reduction is None:
        axis = replace(axis, stride=1, dilation=1, step=step_of(found.x, last.variable))
    elif symbols_of(axis.reduction) and axis.clips is None:
        return None
    rest = [at for at in range(len(found.reductions)) if at != column]
    if any(last.variable in symbols_of(found.reductions[at]) for at in rest):
        return None
    return _with_rest(found, axis, column, rest)


def _with_rest(found: Weighted, axis: Axis, column: int | None, rest: list[int]) -> Roles | None:
    cut = [at for at in rest if symbols_of(found.reductions[at])]
    others = [at for at in rest if at not in cut]
    if len(cut) > 1 or len(rest) > 2:
        return None
    line = cut[0] if cut else (others.pop(0) if len(others) > 1 else None)
    return Roles(axis, column, line, others[0] if others else None)
