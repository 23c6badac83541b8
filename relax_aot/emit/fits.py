# SPDX-License-Identifier: Apache-2.0
"""What must hold of bounds so that nothing passes an int32_t while sizes and indices are
computed in C.

Each expression is taken apart into its positive and its negative terms; with divisions,
minima and maxima replaced by what they cannot exceed, each sum becomes a polynomial in the
highs of symbols. The greatest coefficients of all of them make one polynomial that nothing
passes. It is checked here at the declared highs, and by the C compiler at those it is given.
Sizes in bytes are checked one by one elsewhere; this is about what leads to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from relax_aot.emit.fractions import NOTHING, Polynomial, join
from relax_aot.ir.dim_expr import Atom, Monomial, quotient, term_quotient
from relax_aot.ir.dims import ZERO, Bounds, Dim, FloorDiv, Max, Min, Mod, interval
from relax_aot.ir.loops import Bind, For, If, Let, Micro, Stmt, index_dims
from relax_aot.planning import GREATEST_BYTES, Plan, TooLarge
from relax_aot.planning.steps import Branch, walk_steps

_STEPS = 64
"""Of a division of polynomials."""


@dataclass(frozen=True, slots=True)
class Reach:
    """For each name in an expression a polynomial that it does not pass; the lows of sizes."""

    names: Mapping[str, Polynomial]
    bounds: Bounds
    values: Mapping[str, Dim] = field(default_factory=dict)
    """Of names that stand for an expression."""
    lasts: Mapping[str, Dim] = field(default_factory=dict)
    """The last value of variables whose first is not negative."""
    facts: frozenset[Dim] = frozenset()
    """What is not negative where an index is computed: loops around it run."""

    def extended(self, name: str, reach: Polynomial) -> Reach:
        values = {n: value for n, value in self.values.items() if n != name}
        return replace(self, names={**self.names, name: reach}, values=values)

    def inside(self, loop: For) -> Reach:
        ends = join(_reach(loop.start, self), _reach(loop.stop, self))
        inner = self.extended(loop.variable, ends)
        if not _never_negative(loop.start, self):
            return inner
        facts = self.facts.union(_positive(loop.stop)) if loop.start == ZERO else self.facts
        return replace(inner, lasts={**self.lasts, loop.variable: loop.stop - 1}, facts=facts)

    def after(self, let: Let) -> Reach:
        found = self.extended(let.name, _of_value(let.value, self))
        return replace(found, values={**self.values, let.name: let.value})


def index_reach(plan: Plan) -> Dim:
    """A polynomial in the highs of the entry's symbols, never below an intermediate value of
    a kernel's or a run's sizes and indices."""
    symbols = plan.module.symbols
    entry = {s.name: Polynomial.of(s.name) for s in symbols if not s.inner}
    inner = {s.name: Polynomial.of(s.high) for s in symbols if s.inner}
    reach = Reach(entry | inner, _lows(plan))
    for node in walk_steps(plan.program.nodes):
        if isinstance(node, Branch):
            for size in node.sizes:
                either = join(_reach(size.then, reach), _reach(size.otherwise, reach))
                reach = reach.extended(size.symbol, either)
    declared = {s.name: s.high for s in symbols}
    total = NOTHING
    for where, found in _everything(plan, reach):
        own = join(*found)
        part = own.above
        if part.evaluate(declared) > GREATEST_BYTES:
            raise TooLarge(
                f"{where}: a size or an intermediate index can reach {part} ="
                f" {part.evaluate(declared)}, which may not fit int32_t."
                " Use a smaller bound (--bound)."
            )
        total = join(total, own)
    return total.above


def _everything(plan: Plan, reach: Reach) -> Iterator[tuple[str, list[Polynomial]]]:
    for kernel in plan.module.kernels:
        yield f"kernel {kernel.name}", list(_in_body(kernel.body, reach))
    for condition in plan.module.conditions:
        sides = (condition.left, condition.right)
        yield f"the check of {condition}", [s for d in sides for s in all_sides(d, reach)]
    for node in walk_steps(plan.program.nodes):
        if isinstance(node, Branch):
            dims = [dim for size in node.sizes for dim in (size.then, size.otherwise)]
            yield "sizes of an if", [side for dim in dims for side in all_sides(dim, reach)]


def _in_body(body: Iterable[Stmt], reach: Reach) -> Iterator[Polynomial]:
    """Of every index expression; `reach` grows by the variables on the way."""
    for stmt in body:
        for dim in index_dims(stmt):
            if not (isinstance(stmt, Micro | Bind) and _is_number(dim, reach)):
                yield from all_sides(dim, reach)
        match stmt:
            case For():
                yield from _in_body(stmt.body, reach.inside(stmt))
            case If():
                yield from _in_body(stmt.then, reach)
                yield from _in_body(stmt.otherwise, reach)
            case Let():
                reach = reach.after(stmt)
            case Bind():
                either = join(_reach(stmt.low, reach), _reach(stmt.high, reach))
                reach = reach.extended(stmt.name, either)
            case _:
                pass


def _is_number(dim: Dim, reach: Reach) -> bool:
    """Whether an argument or a limit is a number, or the value of a name that depends on no size,
    such as a multiplier in a block of weights: nothing is computed with it."""
    if dim.is_constant:
        return abs(dim.constant) < 2**31
    found = None if dim.symbol is None else reach.names.get(dim.symbol)
    return found is not None and found.terms.keys() <= {()}


def all_sides(dim: Dim, reach: Reach) -> Iterator[Polynomial]:
    """Of an expression and of all in it."""
    return (side for part in dim.parts for side in _sides(part, reach))


def _sides(dim: Dim, reach: Reach) -> tuple[Polynomial, Polynomial]:
    """How far the positive terms get from 0, which C adds up first, and the negative ones."""
    sums = {True: NOTHING, False: NOTHING}
    for c, monomial in dim.terms:
        sums[c > 0] = sums[c > 0] + _of_product(abs(c), monomial, reach)
    return sums[True], sums[False]


def _of_product(factor: int, monomial: Monomial, reach: Reach) -> Polynomial:
    """A quotient times its own divisor, also under a name, gets no further than what was divided,
    or the divisor itself on the way."""
    for atom, _power in monomial:
        divided = _as_quotient(atom, reach)
        if divided is not None and len(divided.denominator.terms) == 1:
            ((k, divisor),) = divided.denominator.terms
            others = quotient(monomial, ((atom, 1), *divisor)) if divisor else None
            if others is not None and k > 0:
                parts = [_reach(one, reach) for one in (divided.numerator, divided.denominator)]
                below = any(c < 0 for c, _ in divided.numerator.terms)
                whole = parts[0] + parts[1] if below else join(*parts)
                return whole * _of_product(-(-factor // k), others, reach)
    term = Polynomial.of(factor)
    for atom, power in monomial:
        for _ in range(power):
            term = term * _of_atom(atom, reach)
    return term


def _reach(dim: Dim, reach: Reach) -> Polynomial:
    return join(*_sides(dim, reach))


def _above(dim: Dim, reach: Reach) -> Polynomial:
    """What an expression is not greater than; it may be far below 0."""
    above, below = _sides(dim, reach)
    return above if all(_is_size(atom, reach) for atom in dim.atoms) else join(above, below)


def _of_atom(atom: Atom, reach: Reach) -> Polynomial:
    match atom:
        case str():
            return reach.names[atom]
        case FloorDiv():
            # Rounding down takes what is below 0 one further from it.
            down = Polynomial.of(int(any(c < 0 for c, _ in atom.numerator.terms)))
            by = atom.denominator
            least = None if by.is_constant else _of_quotient(atom, reach)
            if least is not None:
                return least
            whole = _reach(atom.numerator, reach)
            return whole / (abs(by.constant) if by.is_constant else 1) + down
        case Mod():
            return _reach(atom.denominator, reach)
        case Min():
            numbers = [arg for arg in atom.args if arg.is_constant]
            if numbers and all(_never_negative(arg, reach) for arg in atom.args):
                # A factor of 0 does not bound the product of the others.
                return Polynomial.of(max(1, numbers[0].constant))
            return join(*(_reach(arg, reach) for arg in atom.args))
        case Max():
            size = any(arg.is_constant and arg.constant >= 0 for arg in atom.args)
            return join(*((_above if size else _reach)(arg, reach) for arg in atom.args))


def _of_quotient(atom: FloorDiv, reach: Reach) -> Polynomial | None:
    """Where a number that is not negative and at most `m*n - 1` is divided by `n`: of `m`."""
    if not _never_negative(atom.numerator, reach):
        return None
    wholes = (_exact(last + 1, atom.denominator) for last in _lasts(atom.numerator, reach))
    found = next((whole for whole in wholes if whole is not None), None)
    return None if found is None else _reach(found, reach)


def _exact(whole: Dim, by: Dim) -> Dim | None:
    """The polynomial that is `whole` when multiplied by `by`."""
    found = ZERO
    for _ in range(_STEPS):
        if whole == ZERO:
            return found
        steps = (term_quotient(term, by.terms[0]) for term in whole.terms)
        step = next((one for one in steps if one is not None), None)
        if step is None:
            return None
        found, whole = found + step, whole - step * by
    return None


def _lasts(dim: Dim, reach: Reach) -> Iterator[Dim]:
    """What `dim` is not greater than. Divisors are extents of loops that run, so above 0."""
    rest = _remainder(dim, reach)
    if rest is not None and rest[0] == 1 and rest[2] == ZERO:
        yield rest[1] - 1
        return
    atom = next((atom for atom in dim.atoms if dim == Dim.of(atom)), None)
    match atom:
        case str(name) if name in reach.values:
            yield from _lasts(reach.values[name], reach)
        case str(name) if name in reach.lasts:
            yield reach.lasts[name]
        case FloorDiv(numerator, denominator):
            for last in _lasts(numerator, reach):
                whole = _exact(last + 1, denominator)
                yield dim if whole is None else whole - 1
        case Min(args):
            for arg in args:
                yield from _lasts(arg, reach)
        case _:
            yield dim


def _of_value(dim: Dim, reach: Reach) -> Polynomial:
    """Of the sum, whatever is passed on the way: `k*m - k*n*(m // n)` is less than `k*n`."""
    found = _remainder(dim, reach)
    if found is None:
        return _reach(dim, reach)
    k, divisor, rest = found
    return _reach(k * divisor, reach) + _reach(rest, reach)


def _remainder(dim: Dim, reach: Reach) -> tuple[int, Dim, Dim] | None:
    """(k, n, rest) where `dim` is `k*(m % n) + rest`, written with the quotient `m // n`."""
    for atom in sorted(dim.atoms, key=str):
        whole = _as_quotient(atom, reach)
        if whole is None:
            continue
        others = ((c, quotient(monomial, ((atom, 1),))) for c, monomial in dim.terms)
        factor = sum((Dim(((c, rest),)) for c, rest in others if rest is not None), ZERO)
        times = _exact(-factor, whole.denominator)
        if times is None or not times.is_constant or times.constant <= 0:
            continue
        rest = dim - factor * Dim.of(atom) - times * whole.numerator
        if len(rest.terms) < len(dim.terms):
            return times.constant, whole.denominator, rest
    return None


def _as_quotient(atom: Atom, reach: Reach) -> FloorDiv | None:
    value = reach.values.get(atom, ZERO) if isinstance(atom, str) else Dim.of(atom)
    found = (one for one in value.atoms if isinstance(one, FloorDiv) and value == Dim.of(one))
    return next(found, None)


def _positive(dim: Dim) -> Iterator[Dim]:
    """What is 0 or more where a product of sizes is 1 or more."""
    yield dim - 1
    if len(dim.terms) == 1:
        for atom in dim.atoms:
            if isinstance(atom, FloorDiv) and atom.denominator.is_constant:
                yield atom.numerator - atom.denominator


def _never_negative(dim: Dim, reach: Reach) -> bool:
    """A sum of sizes above their lows, of variables that begin at 0 and the like."""
    if dim in reach.facts:
        return True
    if dim.symbols <= set(reach.bounds) and interval(dim, reach.bounds)[0] >= 0:
        return True
    above, lows = ZERO, {atom: _low(atom, reach) for atom in dim.atoms}
    if all(low is not None for low in lows.values()):
        names = {atom: Dim.of(f"above {number}") for number, atom in enumerate(lows)}
        for c, monomial in dim.terms:
            term = Dim.of(c)
            for atom, power in monomial:
                for _ in range(power):
                    term = term * (names[atom] + (lows[atom] or 0))
            above = above + term
        if all(c > 0 for c, _ in above.terms):
            return True
    found = _remainder(dim, reach)
    return found is not None and _never_negative(found[2], reach)


def _low(atom: Atom, reach: Reach) -> int | None:
    """What an atom is never below, at least 0; None where it may be negative."""
    dim = Dim.of(atom)
    if dim.symbols <= set(reach.bounds):
        low = interval(dim, reach.bounds)[0]
        if low >= 0:
            return low
    return 0 if _is_size(atom, reach) else None


def _is_size(atom: Atom, reach: Reach) -> bool:
    match atom:
        case str():
            value = reach.values.get(atom)
            return atom in reach.lasts if value is None else _never_negative(value, reach)
        case FloorDiv() | Mod():
            return all(_never_negative(part, reach) for part in (atom.numerator, atom.denominator))
        case Min():
            return all(_never_negative(arg, reach) for arg in atom.args)
        case Max():
            return any(_never_negative(arg, reach) for arg in atom.args)


def _lows(plan: Plan) -> Bounds:
    """The lows of sizes, also those that follow from conditions of a run."""
    bounds = plan.module.bounds
    lows = {s.name: s.low for s in plan.module.symbols}
    for fact in bounds.facts:
        for name in fact.symbols & lows.keys():
            rest = fact - Dim.of(name)
            if rest.is_constant:
                lows[name] = max(lows[name], -rest.constant)
    return Bounds.of({name: (low, low) for name, low in lows.items()}).lows
