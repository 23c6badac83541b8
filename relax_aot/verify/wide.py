# SPDX-License-Identifier: Apache-2.0
"""Evaluations of a module for the error model: recorded, in double, and with random roundings.

Monte Carlo arithmetic (Parker, 1997) at the level of calls: `Wide` evaluates every float in
double precision; with a random generator it also disturbs operands and results of each call as
roundings would. The disturbances follow the probabilistic bounds of Higham and Mary (2019): a sum
of n terms in a row has an error of about sqrt(n) roundings.

Discrete decisions (integers, booleans, rounded numbers) are those of the recorded evaluation
at the declared element types, so that all evaluations take the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.evaluation.reference import Evaluation, KernelResults, partial_outputs
from relax_aot.ir.dims import Dim
from relax_aot.ir.graph import Call, Module, Var
from relax_aot.ir.loops import Cast, Kernel, expressions, walk
from relax_aot.ir.types import DType
from relax_aot.ops import all_ops, has
from relax_aot.ops._op import Trait
from relax_aot.verify.depth import Depth, Order, depth_of, depth_of_call
from relax_aot.verify.ulp import FORMATS, unit_in_last_place, unit_roundoff

Array = NDArray[Any]

# Roundings that are uniform in half a unit in the last place, against the magnitude of the
# rounded number: standard deviation 0.42 u, u the unit roundoff. In a serial sum of n terms whose
# signs vary the error is 0.42 u sqrt(n / 2) times the root of the sum of squares; where the signs
# are equal 0.42 u sqrt(n / 3) times the sum.
ROUNDING = 0.18
VARIED_SIGNS = ROUNDING / 2
EQUAL_SIGNS = ROUNDING / 3

ORDERED_SUMS = 16
"""Up to this depth a sum is disturbed term by term in the order of the plain loops, so that the
estimate knows how large each partial sum is. Deeper ones may run in another order."""
ORDERED_SHARE = 0.73
"""What the better estimate needs of the allowed deviations."""

TF32 = 2.0**-11
"""The unit roundoff of factors of 11 significant bits."""
BYTE = 2.0**-8
"""The unit roundoff of bytes: half of a step, relative to the largest element of a row."""
STORED = 12**-0.5
"""Standard deviation of rounding to nearest, in units in the last place."""


class Recorded(Evaluation):
    """An evaluation at the declared types that keeps the results of all calls, in order."""

    def __init__(
        self, module: Module, sizes: dict[str, int], known: KernelResults | None = None
    ) -> None:
        super().__init__(module, sizes, known)
        self.results: list[Array] = []

    def checked(self, call: Call, out: Var, result: Array) -> Array:
        array = super().checked(call, out, result)
        self.results.append(array)
        return array


class Wide(Evaluation):
    """An evaluation with all floats in double precision.

    `unrounded` holds the names of values whose recorded result is exact, as sums of small whole
    numbers are, and `depth` counts the roundings of the other calls. `blocked`: sums may be partial
    sums; `vectors`: functions may be those for vectors; `tf32`: products may round their factors;
    `halves`: those of half precision may round packed weights to it.
    """

    def __init__(
        self,
        module: Module,
        sizes: dict[str, int],
        recorded: Sequence[Array],
        *,
        blocked: bool = False,
        vectors: bool = False,
        tf32: bool = False,
        halves: bool = False,
    ) -> None:
        super().__init__(module, sizes)
        self.blocked, self.vectors, self.tf32, self.halves = blocked, vectors, tf32, halves
        self.constants = {c.name: widened(c.data, c.type.dtype) for c in module.constants}
        self.recorded = recorded
        self.position = 0
        self.depth = 0
        self.unrounded: set[int] = set()

    def op(self, call: Call, args: Sequence[Array | None]) -> tuple[Array, ...]:
        if not any(out.type.dtype.is_float for out in call.outs):
            return self.kept(call)
        if has(call.op, Trait.DISCONTINUOUS):
            return self.kept(call)
        attrs = {name: wide_attr(self.attr(value)) for name, value in call.attrs}
        reference = all_ops()[call.op].reference
        return self.disturbed(
            call,
            args,
            lambda: depth_of_call(call, self.sizes, vectors=self.vectors),
            lambda a: reference(*a, **attrs),
        )

    def kernel(self, call: Call, args: Sequence[Array | None]) -> list[Array]:
        """A kernel in double; the recorded result where it sums nothing and has the operands
        that it had at the declared types, since interpretation is slow."""
        kept = self.kept(call)
        if not any(out.type.dtype.is_float for out in call.outs):
            return list(kept)
        kernel = self.module.kernel_table[call.ref("kernel")]
        depth = depth_of(kernel, self.sizes, vectors=self.vectors)
        same = not depth.sums and all(map(_as_declared, call.args, args))
        wide = widened_kernel(kernel)

        def run(given: Sequence[Array | None]) -> tuple[Array, ...]:
            return kept if same else tuple(self.interpreted(wide, call, given))

        judged = not same or not depth.roundings
        return list(self.disturbed(call, args, lambda: depth, run, judged=judged))

    def interpreted(
        self, kernel: Kernel, call: Call, args: Sequence[Array | None]
    ) -> Sequence[Array]:
        given = zip(kernel.inputs, (a for a in args if a is not None), strict=True)
        inputs = [a.astype(buffer.dtype.numpy) for buffer, a in given]
        partial = partial_outputs(self.module, call, kernel)
        found = run_kernel(kernel, inputs, self.sizes, partial=partial)
        return found + list(self.kept(call))[len(found) :]

    def kept(self, call: Call) -> tuple[Array, ...]:
        """The recorded results of a call, which is the next one."""
        return tuple(self.recorded[self.position : self.position + len(call.outs)])

    def disturbed(
        self,
        call: Call,
        args: Sequence[Array | None],
        depth: Callable[[], Depth],
        run: Callable[[Sequence[Array | None]], Any],
        *,
        judged: bool = True,
    ) -> tuple[Array, ...]:
        """The results of a call in double, which show whether it rounds, unless not `judged`:
        they are the recorded ones then."""
        results = self.tried(call, run, args)
        pairs = zip(results, self.kept(call), strict=True)
        same = judged and all(np.array_equal(np.asarray(a), b, equal_nan=True) for a, b in pairs)
        # A double is no judge of doubles: that both evaluations are one shows nothing.
        same = same and all(out.type.dtype is not DType.F64 for out in call.outs)
        if same and (not _depth(depth).sums or self.exact_in_any_order(call, args, run)):
            self.unrounded.add(self.position)
        else:
            self.depth += _depth(depth).roundings
        return results

    def exact_in_any_order(
        self,
        call: Call,
        args: Sequence[Array | None],
        run: Callable[[Sequence[Array | None]], Any],
    ) -> bool:
        """Whether partial sums are whole multiples of the same unit and have few enough bits. That
        one order rounds nowhere may be luck, where a result is much smaller than its terms."""
        floats = [
            a
            for v, a in zip(call.args, args, strict=True)
            if v is not None and v.type.dtype.is_float
        ]
        unit = prod(_unit_of(a) for a in floats if a is not None)
        sizes = [None if a is None else np.abs(a) if a.dtype.kind == "f" else a for a in args]
        largest = max(
            (float(np.max(np.abs(r), initial=0.0)) for r in self.tried(call, run, sizes)),
            default=0.0,
        )
        return largest <= unit / min(unit_roundoff(out.type.dtype) for out in call.outs)

    def tried(
        self, call: Call, run: Callable[[Sequence[Array | None]], Any], args: Sequence[Array | None]
    ) -> tuple[Array, ...]:
        try:
            found = run(args)
        except (TypeError, ValueError, KeyError, AssertionError):
            return self.kept(call)  # a reference that takes no doubles
        return found if isinstance(found, tuple) else (found,)

    def checked(self, call: Call, out: Var, result: Array) -> Array:
        """Shapes as deduced; discrete values as recorded."""
        kept = self.recorded[self.position]
        self.position += 1
        if not out.type.dtype.is_float:
            return kept
        array = np.asarray(result).astype(np.float64)
        return array if array.shape == kept.shape else kept.astype(np.float64)


class Disturbed(Wide):
    """A wide evaluation in which every call but the exact ones has random roundings."""

    def __init__(
        self,
        module: Module,
        sizes: dict[str, int],
        recorded: Sequence[Array],
        exact: Wide,
        noise: np.random.Generator,
    ) -> None:
        super().__init__(
            module, sizes, recorded, blocked=exact.blocked, vectors=exact.vectors,
            tf32=exact.tf32, halves=exact.halves,
        )  # fmt: skip
        self.unrounded = exact.unrounded
        self.noise = noise
        self.moved: set[str] = set()
        """Integers that are not the recorded ones: a rounding of floats went the other way."""

    def op(self, call: Call, args: Sequence[Array | None]) -> tuple[Array, ...]:
        """Quantized floats are what this evaluation makes of them, and so is what integers are
        computed from them: a step more or less is a rounding."""
        kept = self.kept(call)
        if not all(map(_is_quantity, call.outs)) or has(call.op, Trait.DISCONTINUOUS):
            return super().op(call, args)
        quantizes = has(call.op, Trait.QUANTIZED) and not all(map(_as_declared, call.args, args))
        if not quantizes and not any(v.name in self.moved for v in call.inputs):
            return kept
        attrs = {name: self.attr(value) for name, value in call.attrs}
        reference = all_ops()[call.op].reference
        results = self.tried(call, lambda a: reference(*a, **attrs), args)
        for out, result, one in zip(call.outs, results, kept, strict=True):
            if np.shape(result) == one.shape and not np.array_equal(result, one):
                self.moved.add(out.name)
        return results

    def checked(self, call: Call, out: Var, result: Array) -> Array:
        checked = super().checked(call, out, result)
        if out.name not in self.moved:
            return checked
        return np.asarray(result).astype(out.type.dtype.numpy)

    def disturbed(
        self,
        call: Call,
        args: Sequence[Array | None],
        depth: Callable[[], Depth],
        run: Callable[[Sequence[Array | None]], Any],
        *,
        judged: bool = True,
    ) -> tuple[Array, ...]:
        """The results of a call as roundings at its depth change them."""
        results = self.tried(call, run, args)
        rounds = _depth(depth)
        factors = self.factors(call, args) if rounds.sums else args
        if self.position in self.unrounded and factors is args:
            return results
        if rounds.order is not None and rounds.sums <= ORDERED_SUMS:
            given = self.terms(factors, rounds.order, _computed(call))
            rounds = Depth(0, rounds.steps)
        else:
            given = self.operands(call, factors, rounds)
        moved = results if given is args else self.tried(call, run, given)
        return tuple(
            self.rounded(call, out, np.asarray(result), np.asarray(other), rounds)
            for out, result, other in zip(call.outs, results, moved, strict=True)
        )

    def factors(self, call: Call, args: Sequence[Array | None]) -> Sequence[Array | None]:
        """The operands of what may be products of floats, rounded as matrix units do. Weights that
        are decoded from integers are no operands; those that they multiply are in their place."""
        floats = [a is not None and a.type.dtype is DType.F32 for a in call.args]
        halves = [a for a in call.inputs if a.type.dtype.is_half]
        packed = any(a.type.rank > 1 and a.type.dtype.is_int for a in call.inputs)
        if self.halves and packed and halves:
            roundoff = unit_roundoff(halves[0].type.dtype)
            floats = [a is halves[0] for a in call.args]
        elif self.tf32 and sum(floats) > 1:
            roundoff = TF32
        else:
            return args
        spread = ROUNDING**0.5 * roundoff
        return [
            a * (1 + spread * self.noise.standard_normal(a.shape)) if f and a is not None else a
            for f, a in zip(floats, args, strict=True)
        ]

    def operands(
        self, call: Call, args: Sequence[Array | None], depth: Depth
    ) -> Sequence[Array | None]:
        """Operands whose relative errors give the result the error of the sums inside."""
        steps = depth.steps if depth.sums else depth.steps - 1
        floats = [a is not None and a.type.dtype.is_float for a in call.args]
        if steps + depth.sums <= 0 or not any(floats):
            return args
        variance = VARIED_SIGNS * depth.sums + ROUNDING * steps
        spread = _computed(call) * (variance / sum(floats)) ** 0.5
        if has(call.op, Trait.REQUANTIZES):
            spread = BYTE
        return [
            a * (1 + spread * self.noise.standard_normal(a.shape)) if f and a is not None else a
            for f, a in zip(floats, args, strict=True)
        ]

    def terms(
        self, args: Sequence[Array | None], order: Order, roundoff: float
    ) -> Sequence[Array | None]:
        """The terms of a sum in a row, each with the roundings of all partial sums that it is in,
        and of its own product."""
        position = [n for n, a in enumerate(args) if a is not None][order.operand]
        x = np.asarray(args[position])
        last = tuple(range(x.ndim - len(order.axes), x.ndim))
        moved = np.moveaxis(x, order.axes, last)
        rows = moved.reshape(*moved.shape[: last[0]], -1)
        sums = np.cumsum(self.noise.standard_normal(rows.shape)[..., ::-1], axis=-1)[..., ::-1]
        errors = sums + self.noise.standard_normal(rows.shape)
        if self.blocked:
            errors = errors + self.tree(rows.shape)
        rows = rows * (1 + ORDERED_SHARE * ROUNDING**0.5 * roundoff * errors)
        changed = np.moveaxis(rows.reshape(moved.shape), last, order.axes)
        return [changed if n == position else a for n, a in enumerate(args)]

    def tree(self, shape: tuple[int, ...]) -> Array:
        """The roundings of short sums in lanes (scheduling/passes/partial_sums.py): of the partial
        sums of the elements whose numbers are equal modulo 8, 4, 2 and 1."""
        places = np.arange(shape[-1])
        halves = [h for h in (ORDERED_SUMS >> step for step in range(1, 5)) if h < shape[-1]]
        drawn = [self.noise.standard_normal((*shape[:-1], h))[..., places % h] for h in halves]
        return sum(drawn, np.zeros(shape))

    def rounded(self, call: Call, out: Var, result: Array, moved: Array, depth: Depth) -> Array:
        """A result with the errors of the sums inside, of sums of one sign, and of rounding to
        its type. `moved` has the errors of the sums, which are not those of its neighbors though
        they share an operand: so each has a sign of its own."""
        dtype = out.type.dtype
        if not dtype.is_float:
            return result
        widths = [FORMATS[v.type.dtype.value][0] for v in call.inputs if v.type.dtype.is_float]
        narrows = max(widths, default=0) > FORMATS[dtype.value][0]
        if not depth.roundings and moved is result and not narrows:
            return result
        x = result.astype(np.float64)
        signs = self.noise.integers(0, 2, x.shape) * 2 - 1
        variance = EQUAL_SIGNS * depth.sums + ROUNDING * max(depth.steps - 1, 0)
        spread = _computed(call) * variance**0.5 * np.abs(x)
        stored = STORED * unit_in_last_place(x, dtype)
        other = np.hypot(spread, stored) * self.noise.standard_normal(x.shape)
        total = x + (moved - x) * signs + other
        # Infinities are exact: masks of attention add -inf, which no rounding changes.
        return np.asarray(np.where(np.isfinite(total), total, x))


def _unit_of(array: Array) -> float:
    """The largest power of two of which all elements are multiples; 1 of zeros alone."""
    fractions, exponents = np.frexp(array[np.isfinite(array) & (array != 0)])
    bits = np.ldexp(np.abs(fractions), 53).astype(np.int64)
    lowest = np.log2((bits & -bits).astype(np.float64)) + exponents - 53
    return float(2.0 ** np.min(lowest, initial=np.inf)) if lowest.size else 1.0


def _is_quantity(out: Var) -> bool:
    """Whether it may hold quantized values or sums of them: no index and no condition."""
    dtype = out.type.dtype
    return not dtype.is_float and dtype is not DType.BOOL and dtype.bits <= 32


def widened(array: Array, dtype: DType) -> Array:
    return array.astype(np.float64) if dtype.is_float else array


def widened_kernel(kernel: Kernel) -> Kernel:
    """The kernel with every float in double, unless it looks at the bits of floats."""
    casts = (e for stmt in walk(kernel.body) for e in expressions(stmt) if isinstance(e, Cast))
    if any(cast.mode == "bits" for cast in casts):
        return kernel
    wide = _doubled(kernel)
    assert isinstance(wide, Kernel)
    return wide


def _doubled(node: Any) -> Any:
    if isinstance(node, DType):
        return DType.F64 if node.is_float else node
    if isinstance(node, tuple):
        return tuple(map(_doubled, node))
    if is_dataclass(node) and not isinstance(node, Dim | type):
        made = {f.name: _doubled(getattr(node, f.name)) for f in fields(node)}
        return replace(node, **made)
    return node


def _as_declared(var: Var | None, array: Array | None) -> bool:
    """Whether these are numbers of the declared type."""
    if var is None or array is None or not var.type.dtype.is_float:
        return True
    narrow = array.astype(var.type.dtype.numpy).astype(np.float64)
    return bool(np.array_equal(narrow, array, equal_nan=True))


def wide_attr(value: Any) -> Any:
    return DType.F64 if isinstance(value, DType) and value.is_float else value


def _depth(depth: Callable[[], Depth]) -> Depth:
    try:
        return depth()
    except (TypeError, ValueError, KeyError, AssertionError):
        return Depth(1, 1)  # an op that has no loops of its own


def _computed(call: Call) -> float:
    """The unit roundoff of the arithmetic: halves are computed in float32."""
    types = [v.type.dtype for v in (*call.inputs, *call.outs)]
    return unit_roundoff(DType.F64 if DType.F64 in types else DType.F32)
