"""Symbolic sizes: integer expressions in normal form.

A `Dim` is a sum of products of atoms; an atom is a symbol or an opaque floor division,
modulo, minimum or maximum. `==` means equal for all values of the symbols, as far as the
normal form sees; what it does not see is asked with `prove_eq`. There is no `<`:
`prove_le` answers True or "not proven".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import TypeAlias

from relax_aot.errors import RelaxAotError


@dataclass(frozen=True, slots=True)
class FloorDiv:
    numerator: Dim
    denominator: Dim


@dataclass(frozen=True, slots=True)
class Mod:
    numerator: Dim
    denominator: Dim


@dataclass(frozen=True, slots=True)
class Min:
    args: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Max:
    args: tuple[Dim, ...]


Atom = str | FloorDiv | Mod | Min | Max
Monomial = tuple[tuple[Atom, int], ...]
Value: TypeAlias = "Dim | int"


class Dim:
    """See the module's text. Immutable."""

    __slots__ = ("__dict__", "_hash", "terms")
    terms: tuple[tuple[int, Monomial], ...]
    _hash: int

    def __init__(self, terms: tuple[tuple[int, Monomial], ...]) -> None:
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "_hash", hash(terms))

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("terms", "_hash"):
            raise AttributeError(name)
        object.__setattr__(self, name, value)

    @staticmethod
    def of(value: int | str | Dim) -> Dim:
        if isinstance(value, Dim):
            return value
        if isinstance(value, str):
            return Dim(((1, ((value, 1),)),))
        return _constant(int(value))

    @property
    def is_constant(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][1])

    @property
    def constant(self) -> int:
        if not self.terms:
            return 0
        if not self.is_constant:
            raise ValueError(f"{self} is not a constant")
        return self.terms[0][0]

    def __int__(self) -> int:
        return self.constant

    def __bool__(self) -> bool:
        raise TypeError("a Dim has no truth value; ask prove_eq or prove_le")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.is_constant and self.constant == other
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Dim({self})"

    @cached_property
    def symbols(self) -> frozenset[str]:
        found: set[str] = set()
        for _, monomial in self.terms:
            for atom, _ in monomial:
                if isinstance(atom, str):
                    found.add(atom)
                else:
                    for part in _parts(atom):
                        found |= part.symbols
        return frozenset(found)

    def __add__(self, other: Value) -> Dim:
        right = Dim.of(other)
        if not right.terms:
            return self
        if not self.terms:
            return right
        sums = {monomial: c for c, monomial in self.terms}
        for c, monomial in right.terms:
            sums[monomial] = sums.get(monomial, 0) + c
        return _normal(sums)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Dim(tuple((-c, monomial) for c, monomial in self.terms))

    def __sub__(self, other: Value) -> Dim:
        return self + (-Dim.of(other))

    def __rsub__(self, other: Value) -> Dim:
        return Dim.of(other) + (-self)

    def __mul__(self, other: Value) -> Dim:
        right = Dim.of(other)
        if right.is_constant:
            k = right.constant
            if k == 0:
                return _constant(0)
            return self if k == 1 else Dim(tuple((c * k, m) for c, m in self.terms))
        if self.is_constant:
            return right * self.constant
        sums: dict[Monomial, int] = {}
        for a, left_monomial in self.terms:
            for b, right_monomial in right.terms:
                monomial = _times(left_monomial, right_monomial)
                sums[monomial] = sums.get(monomial, 0) + a * b
        return _normal(sums)

    __rmul__ = __mul__

    def __floordiv__(self, other: Value) -> Dim:
        return _floordiv(self, Dim.of(other))

    def __rfloordiv__(self, other: Value) -> Dim:
        return _floordiv(Dim.of(other), self)

    def __mod__(self, other: Value) -> Dim:
        return _mod(self, Dim.of(other))

    def __rmod__(self, other: Value) -> Dim:
        return _mod(Dim.of(other), self)

    def substitute(self, values: Mapping[str, Value]) -> Dim:
        if not (self.symbols & values.keys()):
            return self
        total = _constant(0)
        for c, monomial in self.terms:
            term = _constant(c)
            for atom, power in monomial:
                base = _substitute_atom(atom, values)
                for _ in range(power):
                    term = term * base
            total = total + term
        return total

    def evaluate(self, values: Mapping[str, int]) -> int:
        total = 0
        for c, monomial in self.terms:
            term = c
            for atom, power in monomial:
                term *= _evaluate_atom(atom, values) ** power
            total += term
        return total

    def __str__(self) -> str:
        return dim_text(self)


def _parts(atom: FloorDiv | Mod | Min | Max) -> tuple[Dim, ...]:
    if isinstance(atom, FloorDiv | Mod):
        return (atom.numerator, atom.denominator)
    return atom.args


@lru_cache(maxsize=4096)
def _constant(value: int) -> Dim:
    return Dim(((value, ()),)) if value else Dim(())


def _key(atom: Atom) -> tuple[int, str]:
    return (0, atom) if isinstance(atom, str) else (1, _atom_text(atom))


def _monomial_key(monomial: Monomial) -> tuple[int, tuple[tuple[tuple[int, str], int], ...]]:
    degree = sum(power for _, power in monomial)
    return (-degree, tuple((_key(atom), power) for atom, power in monomial))


def _normal(sums: Mapping[Monomial, int]) -> Dim:
    kept = [(c, m) for m, c in sums.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda term: _monomial_key(term[1]))
    return Dim(tuple(kept))


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: _key(item[0])))


def _atom(atom: Atom) -> Dim:
    return Dim(((1, ((atom, 1),)),))


def _split(dim: Dim, k: int) -> tuple[Dim, Dim]:
    """dim = k * quotient + rest, term by term; the rest's constant is in 0..k-1."""
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for c, monomial in dim.terms:
        q, r = divmod(c, k)
        if monomial and r:
            q, r = 0, c
        quotient[monomial], rest[monomial] = q, r
    return _normal(quotient), _normal(rest)


def _floordiv(a: Dim, b: Dim) -> Dim:
    if b.is_constant:
        k = b.constant
        if k == 0:
            raise ZeroDivisionError(f"({a}) // 0")
        if k < 0:
            return _floordiv(-a, _constant(-k))
        if k == 1:
            return a
        quotient, rest = _split(a, k)
        if rest.is_constant:
            return quotient + rest.constant // k
        if len(rest.terms) == 1 and rest.terms[0][0] == 1 and len(rest.terms[0][1]) == 1:
            (inner, power), *_ = rest.terms[0][1]
            nested = isinstance(inner, FloorDiv) and inner.denominator.is_constant and power == 1
            if nested and isinstance(inner, FloorDiv) and inner.denominator.constant > 0:
                return quotient + _floordiv(
                    inner.numerator, _constant(inner.denominator.constant * k)
                )
        return quotient + _atom(FloorDiv(rest, b))
    if a == 0:
        return a
    return _atom(FloorDiv(a, b))


def _mod(a: Dim, b: Dim) -> Dim:
    if b.is_constant:
        k = b.constant
        if k == 0:
            raise ZeroDivisionError(f"({a}) % 0")
        if k < 0:
            return -_mod(-a, _constant(-k))
        _, rest = _split(a, k)
        if rest.is_constant:
            return _constant(rest.constant % k)
        return _atom(Mod(rest, b))
    return _constant(0) if a in (0, b) else _atom(Mod(a, b))


def ceildiv(a: Value, b: Value) -> Dim:
    """a / b rounded up; b is positive."""
    right = Dim.of(b)
    return (Dim.of(a) + right - 1) // right


def dim_min(*dims: Value) -> Dim:
    return -_extreme(tuple(-Dim.of(d) for d in dims)) if _plain(dims) else _fold(Min, dims)


def dim_max(*dims: Value) -> Dim:
    return _fold(Max, dims)


def _plain(dims: Iterable[Value]) -> bool:
    return all(Dim.of(d).is_constant for d in dims)


def _extreme(dims: tuple[Dim, ...]) -> Dim:
    return _constant(max(d.constant for d in dims))


def _fold(kind: type[Min] | type[Max], dims: Iterable[Value]) -> Dim:
    flat: list[Dim] = []
    for value in dims:
        dim = Dim.of(value)
        atom = dim.terms[0][1][0][0] if len(dim.terms) == 1 and dim.terms[0][1] else None
        whole = atom is not None and _atom(atom) == dim
        flat.extend(atom.args if whole and isinstance(atom, kind) else (dim,))
    kept: list[Dim] = []
    for dim in flat:
        for position, other in enumerate(kept):
            apart = dim - other
            if apart.is_constant:
                better = apart.constant > 0 if kind is Max else apart.constant < 0
                if better:
                    kept[position] = dim
                break
        else:
            kept.append(dim)
    if len(kept) == 1:
        return kept[0]
    return _atom(kind(tuple(sorted(set(kept), key=str))))


def _substitute_atom(atom: Atom, values: Mapping[str, Value]) -> Dim:
    match atom:
        case str():
            return Dim.of(values[atom]) if atom in values else _atom(atom)
        case FloorDiv():
            return atom.numerator.substitute(values) // atom.denominator.substitute(values)
        case Mod():
            return atom.numerator.substitute(values) % atom.denominator.substitute(values)
        case Min():
            return dim_min(*(a.substitute(values) for a in atom.args))
        case Max():
            return dim_max(*(a.substitute(values) for a in atom.args))


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    match atom:
        case str():
            return values[atom]
        case FloorDiv():
            return atom.numerator.evaluate(values) // atom.denominator.evaluate(values)
        case Mod():
            return atom.numerator.evaluate(values) % atom.denominator.evaluate(values)
        case Min():
            return min(a.evaluate(values) for a in atom.args)
        case Max():
            return max(a.evaluate(values) for a in atom.args)


# Text


def dim_text(dim: Dim) -> str:
    if not dim.terms:
        return "0"
    text = ""
    for c, monomial in dim.terms:
        factors = [_atom_text(atom) for atom, power in monomial for _ in range(power)]
        if abs(c) != 1 or not factors:
            factors.insert(0, str(abs(c)))
        term = "*".join(factors)
        if not text:
            text = term if c > 0 else f"-{term}"
        else:
            text += f" + {term}" if c > 0 else f" - {term}"
    return text


def _atom_text(atom: Atom) -> str:
    match atom:
        case str():
            return atom
        case FloorDiv():
            return f"(({atom.numerator}) // ({atom.denominator}))"
        case Mod():
            return f"(({atom.numerator}) % ({atom.denominator}))"
        case Min():
            return f"min({', '.join(map(str, atom.args))})"
        case Max():
            return f"max({', '.join(map(str, atom.args))})"


class DimSyntaxError(RelaxAotError):
    """Text that is not a size expression; says where."""


_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_]*)|(//|[-+*%(),]))")


def parse_dim(text: str) -> Dim:
    """Sums, products, `//`, `%`, `min(...)`, `max(...)` over symbols and integers."""
    tokens: list[tuple[str, int]] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise DimSyntaxError(
                f"unexpected {text[position:].strip()[0]!r} in {text!r}, column {position + 1}"
            )
        tokens.append((match.group(match.lastindex or 0), match.start(match.lastindex or 0)))
        position = match.end()
    parser = _Parser(text, tokens)
    result = parser.sum()
    if parser.at < len(tokens):
        parser.fail("the end")
    return result


class _Parser:
    def __init__(self, text: str, tokens: list[tuple[str, int]]) -> None:
        self.text, self.tokens, self.at = text, tokens, 0

    def fail(self, expected: str) -> None:
        there = self.tokens[self.at] if self.at < len(self.tokens) else ("the end", len(self.text))
        raise DimSyntaxError(
            f"expected {expected}, got {there[0]} in {self.text!r}, column {there[1] + 1}"
        )

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        if self.peek() in wanted:
            self.at += 1
            return self.tokens[self.at - 1][0]
        return ""

    def sum(self) -> Dim:
        total = self.product()
        while sign := self.take("+", "-"):
            right = self.product()
            total = total + right if sign == "+" else total - right
        return total

    def product(self) -> Dim:
        total = self.unary()
        while sign := self.take("*", "//", "%"):
            right = self.unary()
            if sign != "*" and right == 0:
                self.fail("a divisor other than 0")
            total = (
                total * right if sign == "*" else total // right if sign == "//" else total % right
            )
        return total

    def unary(self) -> Dim:
        if self.take("-"):
            return -self.unary()
        if self.take("("):
            inner = self.sum()
            if not self.take(")"):
                self.fail("`)`")
            return inner
        token = self.peek()
        if token.isdigit():
            self.at += 1
            return Dim.of(int(token))
        if not token or not (token[0].isalpha() or token[0] == "_"):
            self.fail("a size")
        self.at += 1
        if token in ("min", "max") and self.take("("):
            args = [self.sum()]
            while self.take(","):
                args.append(self.sum())
            if not self.take(")"):
                self.fail("`)`")
            return dim_min(*args) if token == "min" else dim_max(*args)
        return Dim.of(token)


# Bounds and proofs


@dataclass(frozen=True)
class Bounds:
    """What is known of symbols: the range of each, both ends included."""

    ranges: tuple[tuple[str, tuple[int, int]], ...]

    @staticmethod
    def of(ranges: Mapping[str, tuple[int, int]]) -> Bounds:
        return Bounds(tuple(sorted((n, (int(a), int(b))) for n, (a, b) in ranges.items())))

    @cached_property
    def _table(self) -> dict[str, tuple[int, int]]:
        return dict(self.ranges)

    @cached_property
    def _cache(self) -> dict[Dim, tuple[int, int]]:
        return {}

    def range(self, name: str) -> tuple[int, int]:
        return self._table[name]

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def with_range(self, name: str, low: int, high: int) -> Bounds:
        return Bounds.of({**self._table, name: (low, high)})


ENUMERATED = 4096


def interval(dim: Dim, bounds: Bounds) -> tuple[int, int]:
    """Least and greatest value; sound always, exact where `dim` is monotone in each symbol
    or the box is small."""
    if dim.is_constant:
        return dim.constant, dim.constant
    cached = bounds._cache.get(dim)
    if cached is None:
        cached = _interval(dim, bounds)
        bounds._cache[dim] = cached
    return cached


def _interval(dim: Dim, bounds: Bounds) -> tuple[int, int]:
    low, high = _natural(dim, bounds)
    names = sorted(dim.symbols)
    if _trivial(dim):
        return low, high
    points = 1
    for name in names:
        start, stop = bounds.range(name)
        points *= stop - start + 1
    if points <= ENUMERATED:
        ranges = [range(a, b + 1) for a, b in map(bounds.range, names)]
        values = [dim.evaluate(dict(zip(names, point, strict=True))) for point in product(*ranges)]
        return min(values), max(values)
    signs = {name: _direction(dim, name, bounds) for name in names}
    if all(signs.values()):
        at_low = {n: bounds.range(n)[0 if signs[n] > 0 else 1] for n in names}
        at_high = {n: bounds.range(n)[1 if signs[n] > 0 else 0] for n in names}
        return dim.evaluate(at_low), dim.evaluate(at_high)
    return low, high


def _trivial(dim: Dim) -> bool:
    """Natural interval arithmetic is exact: each symbol occurs once, in no atom."""
    seen: set[Atom] = set()
    for _, monomial in dim.terms:
        for atom, power in monomial:
            if not isinstance(atom, str) or atom in seen or power > 1:
                return False
            seen.add(atom)
    return True


def _direction(dim: Dim, name: str, bounds: Bounds) -> int:
    """+1 where dim never falls as the symbol grows, -1 where it never rises, else 0."""
    start, stop = bounds.range(name)
    if start == stop:
        return 1
    low, high = _step(dim, name, bounds.with_range(name, start, stop - 1))
    return 1 if low >= 0 else -1 if high <= 0 else 0


def _step(dim: Dim, name: str, bounds: Bounds) -> tuple[int, int]:
    """Bounds of how much `dim` changes when the symbol grows by one."""
    low = high = 0
    for c, monomial in dim.terms:
        if len(monomial) == 1 and monomial[0][1] == 1:
            least, most = _atom_step(monomial[0][0], name, bounds)
            ends = (c * least, c * most)
        else:
            term = Dim(((c, monomial),))
            ends = _natural(term.substitute({name: Dim.of(name) + 1}) - term, bounds)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _atom_step(atom: Atom, name: str, bounds: Bounds) -> tuple[int, int]:
    if isinstance(atom, str):
        return (1, 1) if atom == name else (0, 0)
    parts = [_step(part, name, bounds) for part in _parts(atom)]
    if all(part == (0, 0) for part in parts):
        return 0, 0
    if isinstance(atom, FloorDiv) and atom.denominator.is_constant:
        k = atom.denominator.constant
        return parts[0][0] // k, -(-parts[0][1] // k)
    if isinstance(atom, Min | Max):
        return min(low for low, _ in parts), max(high for _, high in parts)
    low, high = _atom_interval(atom, bounds)
    after = _natural(_substitute_atom(atom, {name: Dim.of(name) + 1}), bounds)
    return after[0] - high, after[1] - low


def _natural(dim: Dim, bounds: Bounds) -> tuple[int, int]:
    """Interval arithmetic over the normal form."""
    low = high = 0
    for c, monomial in dim.terms:
        term = (c, c)
        for atom, power in monomial:
            base = _atom_interval(atom, bounds)
            for _ in range(power):
                corners = [x * y for x in term for y in base]
                term = (min(corners), max(corners))
            if power % 2 == 0 and base[0] < 0 < base[1]:
                pass  # still sound, only wider
        low, high = low + term[0], high + term[1]
    return low, high


def _atom_interval(atom: Atom, bounds: Bounds) -> tuple[int, int]:
    match atom:
        case str():
            return bounds.range(atom)
        case FloorDiv():
            a, b = interval(atom.numerator, bounds), interval(atom.denominator, bounds)
            if b[0] <= 0 <= b[1]:
                widest = max(abs(a[0]), abs(a[1]))
                return -widest - 1, widest + 1
            corners = [x // y for x in a for y in b]
            return min(corners), max(corners)
        case Mod():
            a, b = interval(atom.numerator, bounds), interval(atom.denominator, bounds)
            if b[0] <= 0:
                widest = max(abs(b[0]), abs(b[1]))
                return -widest, widest
            if a[0] >= 0:
                return (0 if a[1] >= b[0] else a[0]), min(a[1], b[1] - 1)
            return 0, b[1] - 1
        case Min():
            parts = [interval(a, bounds) for a in atom.args]
            return min(p[0] for p in parts), min(p[1] for p in parts)
        case Max():
            parts = [interval(a, bounds) for a in atom.args]
            return max(p[0] for p in parts), max(p[1] for p in parts)


def prove_le(a: Value, b: Value, bounds: Bounds) -> bool:
    """a <= b for all values in bounds; False means "not proven"."""
    return _nonnegative(Dim.of(b) - Dim.of(a), bounds)


def prove_lt(a: Value, b: Value, bounds: Bounds) -> bool:
    return _nonnegative(Dim.of(b) - Dim.of(a) - 1, bounds)


def prove_eq(a: Value, b: Value, bounds: Bounds) -> bool:
    apart = Dim.of(a) - Dim.of(b)
    if apart == 0:
        return True
    if not (apart.symbols <= set(bounds)):
        return False
    return interval(apart, bounds) == (0, 0) or (
        _nonnegative(apart, bounds) and _nonnegative(-apart, bounds)
    )


def _nonnegative(dim: Dim, bounds: Bounds) -> bool:
    if dim.is_constant:
        return dim.constant >= 0
    if not (dim.symbols <= set(bounds)):
        return False
    if interval(dim, bounds)[0] >= 0:
        return True
    # One division at a time: q*b <= a <= q*b + b - 1.
    for c, monomial in dim.terms:
        for atom, power in monomial:
            if not isinstance(atom, FloorDiv) or power != 1 or len(monomial) != 1:
                continue
            if not atom.denominator.is_constant or atom.denominator.constant <= 0:
                continue
            k = atom.denominator.constant
            bound = atom.numerator - (k - 1) if c > 0 else atom.numerator
            rest = dim - _atom(atom) * c
            if interval(rest * k + bound * c, bounds)[0] >= 0:
                return True
    return False


def is_multiple(dim: Dim, k: int, bounds: Bounds) -> bool:
    return all(c % k == 0 for c, _ in dim.terms) or interval(dim % k, bounds) == (0, 0)


def simplify(dim: Dim, bounds: Bounds) -> Dim:
    """Drop what the bounds decide: pinned symbols, useless min, max, mod and divisions."""
    pinned = {n: bounds.range(n)[0] for n in dim.symbols if len(set(bounds.range(n))) == 1}
    dim = dim.substitute(pinned)
    total = _constant(0)
    for c, monomial in dim.terms:
        term = _constant(c)
        for atom, power in monomial:
            base = _simplify_atom(atom, bounds)
            for _ in range(power):
                term = term * base
        total = total + term
    low, high = interval(total, bounds)
    return _constant(low) if low == high else total


def _simplify_atom(atom: Atom, bounds: Bounds) -> Dim:
    match atom:
        case str():
            return _atom(atom)
        case FloorDiv():
            a, b = simplify(atom.numerator, bounds), simplify(atom.denominator, bounds)
            return a // b
        case Mod():
            a, b = simplify(atom.numerator, bounds), simplify(atom.denominator, bounds)
            low, high = interval(a, bounds)
            return a if low >= 0 and b.is_constant and high < b.constant else a % b
        case Min():
            return dim_min(*_useful(atom.args, bounds, keep_least=True))
        case Max():
            return dim_max(*_useful(atom.args, bounds, keep_least=False))


def _useful(args: tuple[Dim, ...], bounds: Bounds, *, keep_least: bool) -> list[Dim]:
    dims = [simplify(a, bounds) for a in args]
    kept: list[Dim] = []
    for position, dim in enumerate(dims):
        others = kept + dims[position + 1 :]
        beaten = any(
            prove_le(o, dim, bounds) if keep_least else prove_le(dim, o, bounds) for o in others
        )
        if not beaten:
            kept.append(dim)
    return kept


def maximise(dim: Dim, bounds: Bounds) -> Dim:
    """A bound that follows the highs: in the result a symbol stands for its declared high.

    For all boxes with these lows and any highs, no value of `dim` in the box is greater.
    """
    return _extremise(dim, bounds, upwards=True)


def minimise(dim: Dim, bounds: Bounds) -> Dim:
    return _extremise(dim, bounds, upwards=False)


def _extremise(dim: Dim, bounds: Bounds, *, upwards: bool) -> Dim:
    if dim.is_constant:
        return dim
    wide = Bounds.of({n: (bounds.range(n)[0], 2**31 - 1) for n in bounds})
    signs = {name: _direction(dim, name, wide) for name in dim.symbols}
    if all(signs.values()):
        taken_low = {n: bounds.range(n)[0] for n, s in signs.items() if (s > 0) != upwards}
        return dim.substitute(taken_low)
    total = _constant(0)
    for c, monomial in dim.terms:
        total = total + _extremise_term(c, monomial, bounds, wide, upwards=upwards)
    return total


def _extremise_term(
    c: int, monomial: Monomial, bounds: Bounds, wide: Bounds, *, upwards: bool
) -> Dim:
    """A product's bound: exact where no factor can be negative, else by magnitudes."""
    term = _constant(c)
    if all(_atom_interval(atom, wide)[0] >= 0 for atom, _ in monomial):
        for atom, power in monomial:
            base = _extremise_atom(atom, bounds, wide, upwards=(c > 0) == upwards)
            for _ in range(power):
                term = term * base
        return term
    if len(monomial) == 1 and monomial[0][1] == 1:
        return _extremise_atom(monomial[0][0], bounds, wide, upwards=(c > 0) == upwards) * c
    magnitude = _constant(abs(c))
    for atom, power in monomial:
        high = _extremise_atom(atom, bounds, wide, upwards=True)
        low = _extremise_atom(atom, bounds, wide, upwards=False)
        for _ in range(power):
            magnitude = magnitude * dim_max(high, -low)
    return magnitude if upwards else -magnitude


def _extremise_atom(atom: Atom, bounds: Bounds, wide: Bounds, *, upwards: bool) -> Dim:
    match atom:
        case str():
            return _atom(atom) if upwards else _constant(bounds.range(atom)[0])
        case FloorDiv():
            a = _extremise(atom.numerator, bounds, upwards=upwards)
            if interval(atom.denominator, wide)[0] <= 0:
                # The divisor may be negative: no quotient is further from 0 than this.
                high = _extremise(atom.numerator, bounds, upwards=True)
                low = _extremise(atom.numerator, bounds, upwards=False)
                magnitude = dim_max(high, -low) + 1
                return magnitude if upwards else -magnitude
            ends = (
                a // _extremise(atom.denominator, bounds, upwards=False),
                a // _extremise(atom.denominator, bounds, upwards=True),
            )
            return dim_max(*ends) if upwards else dim_min(*ends)
        case Mod():
            if interval(atom.denominator, wide)[0] <= 0:
                high = _extremise(atom.denominator, bounds, upwards=True)
                low = _extremise(atom.denominator, bounds, upwards=False)
                magnitude = dim_max(high, -low)
                return magnitude if upwards else -magnitude
            if not upwards:
                return _constant(0)
            top = _extremise(atom.denominator, bounds, upwards=True) - 1
            if interval(atom.numerator, wide)[0] < 0:
                return top
            return dim_min(_extremise(atom.numerator, bounds, upwards=True), top)
        case Min():
            return dim_min(*(_extremise(a, bounds, upwards=upwards) for a in atom.args))
        case Max():
            return dim_max(*(_extremise(a, bounds, upwards=upwards) for a in atom.args))


def solve_for(dim: Dim, symbol: str, value: Dim) -> tuple[Dim, Dim] | None:
    """`dim == value` for one symbol: (solution, expression that must be 0), or None."""
    coefficient, rest = 0, _constant(0)
    for c, monomial in dim.terms:
        if monomial == ((symbol, 1),):
            coefficient = c
        else:
            rest = rest + Dim(((c, monomial),))
    if coefficient == 0 or symbol in rest.symbols:
        return None
    target = value - rest
    if coefficient < 0:
        target, coefficient = -target, -coefficient
    return target // coefficient, target % coefficient


_RELATION = re.compile(r"(<=|>=|==|<|>)")


def parse_relation(text: str) -> tuple[str, Dim]:
    """`n <= 2*m` -> (">=0", 2*m - n); `==` -> ("==0", difference)."""
    pieces = _RELATION.split(text)
    if len(pieces) != 3:
        raise DimSyntaxError(f"expected one of <= < >= > == in {text!r}")
    left, right = parse_dim(pieces[0]), parse_dim(pieces[2])
    match pieces[1]:
        case "<=":
            return ">=0", right - left
        case "<":
            return ">=0", right - left - 1
        case ">=":
            return ">=0", left - right
        case ">":
            return ">=0", left - right - 1
        case _:
            return "==0", left - right
