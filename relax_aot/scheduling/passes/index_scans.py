# SPDX-License-Identifier: Apache-2.0
"""Checks of contiguous indices by a micro-kernel with vector minima and maxima, on targets whose
compilers make no vectors of the comparisons.

`lowering/index_checks.py` writes the loops: each index is compared with the ends of its range, and
a scalar becomes 1 where one is outside. Indices may count from the end of the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.ir.axes import REGISTER
from relax_aot.ir.dims import ONE, ZERO, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Buffer,
    Cast,
    Declare,
    Expr,
    For,
    If,
    Index,
    Kernel,
    Lit,
    Load,
    Local,
    Reserve,
    Select,
)
from relax_aot.ir.rewrite import map_expr
from relax_aot.ir.types import DType
from relax_aot.scheduling.apply import rewrite_nests
from relax_aot.scheduling.contraction import moved, stride
from relax_aot.scheduling.nest import names_in, nested, without_lets
from relax_aot.scheduling.targets import Emit, Target
from relax_aot.scheduling.writer import Writer

EXAMPLES = (
    Example(
        why="both axes of the indices are one range of memory",
        before="""
            symbol n in 1..99
            kernel @check(%i: i32[n, 3]) -> () {
              local outside: i32 = 0:i32
              for a in 0..n {
                for b in 0..3 {
                  local raw: i64 = cast(%i[a, b], i64, wrap)
                  local at: i64 = select((raw < 0:i64), (raw + index(64)), raw)
                  if ((at < index(0)) || (index(63) < at)) {
                    outside = 1:i32
                  }
                }
              }
              bind none in 0..0 = outside
            }""",
        after="""
            kernel @check(%i: i32[n, 3]) -> () {
              local outside: i32 = 0:i32
              reserve %a_outside: i32[1]
              micro raot_outside_i32(...) [3*n, -64, 63]
              outside = max(outside, %a_outside[0])
              bind none in 0..0 = outside
            }""",
        target="mve",
    ),
    Example(
        why="pairs of indices of two axes",
        before="""
            symbol n in 1..99
            kernel @check(%i: i32[n, 2]) -> () {
              local outside: i32 = 0:i32
              for a in 0..n {
                local at: i64 = cast(%i[a, 0], i64, wrap)
                if ((at < index(0)) || (index(63) < at)) {
                  outside = 1:i32
                }
              }
              bind none in 0..0 = outside
            }""",
        target="mve",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Checks of indices by micro-kernels, where the target has them."""
    if not target.scans:
        return module
    return replace(module, kernels=tuple(_scanned(kernel, module) for kernel in module.kernels))


def _scanned(kernel: Kernel, module: Module) -> Kernel:
    if kernel.parallel or not kernel.fallible:
        return kernel
    w = Writer(names_in(kernel), module.bounds)

    def match(loop: For, _: tuple[For, ...]) -> Emit | None:
        found = _scan_of(loop)
        return None if found is None else lambda: _emit(found, w)

    with w.block() as body:
        rewrite_nests(kernel.body, w, match)
    return replace(kernel, body=tuple(body))


@dataclass(frozen=True, slots=True)
class _Scan:
    """`outside` becomes 1 where one of `count` indices, from `first` on, is not in low..high."""

    name: str
    outside: Local
    first: Load
    count: Dim
    low: Dim
    high: Dim


def _emit(found: _Scan, w: Writer) -> None:
    flag = Buffer(w.fresh(f"{found.name}_outside"), DType.I32, (ONE,), REGISTER)
    w.add(Reserve(flag))
    w.micro(
        f"raot_outside_{found.first.dtype.value}", outside=flag, indices=found.first,
        count=found.count, low=found.low, high=found.high,
    )  # fmt: skip
    either = Apply("max", (found.outside, Load(flag, (ZERO,))))
    w.add(Assign(found.outside, either))


def _scan_of(loop: For) -> _Scan | None:
    """The scan that a loop nest is: without other statements, of contiguous indices."""
    loops, body = nested(*without_lets((loop,)))
    *declared, last = body
    match last:
        case If(
            Binary("||", Binary("<", at, Index(low)), Binary("<", Index(high), end)),
            (Assign(outside, Lit(1)),),
            (),
        ) if at == end and all(isinstance(stmt, Declare) for stmt in declared):
            pass
        case _:
            return None
    values = {s.local: s.value for s in declared if isinstance(s, Declare)}
    found = _index(_written_out(at, values), low, high)
    if found is None or any(one.axis for one in loops):
        return None
    load, low = found
    count = ONE
    for one in reversed(loops):
        if stride(load, one.variable) != count or not _is_rectangle(one, loops):
            return None
        count = count * one.extent
    first = moved(load, {one.variable: one.start for one in loops})
    return _Scan(loop.variable, outside, first, count, low, high)


def _is_rectangle(loop: For, loops: list[For]) -> bool:
    variables = {one.variable for one in loops}
    return variables.isdisjoint(loop.start.symbols | loop.stop.symbols)


def _written_out(expr: Expr, values: Mapping[Local, Expr]) -> Expr:
    """Without the scalars that the loop declares; each is declared by those before it."""
    for _ in values:
        expr = map_expr(expr, lambda e: values.get(e, e) if isinstance(e, Local) else e)
    return expr


def _index(at: Expr, low: Dim, high: Dim) -> tuple[Load, Dim] | None:
    """The index that is read, and its least value: below 0 where it counts from the end."""
    match _widened(at):
        case Select(Binary("<", raw, Lit(0)), Binary("+", below, Index(size)), above) if (
            raw == below == above and low == 0 and high == size - 1
        ):
            at, low = raw, -size
    load = _widened(at)
    if isinstance(load, Load) and load.dtype in (DType.I32, DType.I64):
        return load, low
    return None


def _widened(expr: Expr) -> Expr:
    """What an integer of 64 bits is a copy of."""
    while isinstance(expr, Cast) and expr.dtype is DType.I64 and expr.value.dtype.is_int:
        expr = expr.value
    return expr
