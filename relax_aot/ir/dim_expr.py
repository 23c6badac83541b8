# SPDX-License-Identifier: Apache-2.0
"""Integer expressions in normal form, and their text. Part of dims.py.

A `Dim` is a sum of products of atoms; an atom is a symbol or an opaque floor division,
modulo, minimum or maximum. `==` means equal for all values of the symbols, as far as the
normal form sees; what it does not see is asked with `prove_eq`. There is no `<`:
`prove_le` answers True or "not proven".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import floordiv, mod
from typing import Any, TypeAlias

from relax_aot.ir.lexer import quoted
from relax_aot.ir.parameters import Parameter


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
Term = tuple[int, Monomial]
Value: TypeAlias = "Dim | int"


class Dim:
    """See the module's text. Immutable; equal ones are one object as long as it is remembered,
    so what was found out about a size (its symbols, its text) is found out once."""

    __slots__ = ("__dict__", "_hash", "terms")
    terms: tuple[Term, ...]
    _hash: int

    def __new__(cls, terms: tuple[Term, ...]) -> Dim:
        return _remembered(terms)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("terms", "_hash"):
            raise AttributeError(name)
        object.__setattr__(self, name, value)

    @staticmethod
    def of(value: int | Atom | Dim) -> Dim:
        if isinstance(value, Dim):
            return value
        if type(value) is int:  # by far the most frequent
            return _constant(value)
        if isinstance(value, Atom):
            return Dim(((1, ((value, 1),)),))
        if isinstance(value, Parameter):
            return Dim.of(value.symbol) * value.scale + value.offset
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
        if self is other:
            return True
        if isinstance(other, int):
            return self.is_constant and self.constant == other
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Dim({self})"

    @cached_property
    def is_polynomial(self) -> bool:
        """A sum of products of symbols and numbers."""
        return len(self.parts) == 1

    @cached_property
    def divides(self) -> bool:
        """A quotient or a remainder is in it."""
        return any(isinstance(atom, FloorDiv | Mod) for part in self.parts for atom in part.atoms)

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        return frozenset(atom for _, monomial in self.terms for atom, _ in monomial)

    @cached_property
    def parts(self) -> tuple[Dim, ...]:
        """It, and every size inside its quotients, remainders, minima and maxima."""
        compound = (atom for _, monomial in self.terms for atom, _ in monomial)
        inner = (part for atom in compound for part in atom_parts(atom))
        return (self, *(one for part in inner for one in part.parts))

    @cached_property
    def symbols(self) -> frozenset[str]:
        return frozenset(a for part in self.parts for a in part.atoms if isinstance(a, str))

    @cached_property
    def sorted_symbols(self) -> tuple[str, ...]:
        return tuple(sorted(self.symbols))

    @cached_property
    def symbol(self) -> str | None:
        """The symbol that this is, if it is one alone."""
        if len(self.terms) == 1 and self.terms[0][0] == 1 and len(self.terms[0][1]) == 1:
            ((atom, power),) = self.terms[0][1]
            return atom if power == 1 and isinstance(atom, str) else None
        return None

    def __add__(self, other: Value) -> Dim:
        return _sum(self, other if type(other) is Dim else Dim.of(other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Value) -> Dim:
        return _difference(self, other if type(other) is Dim else Dim.of(other))

    def __rsub__(self, other: Value) -> Dim:
        return _difference(Dim.of(other), self)

    def __mul__(self, other: Value) -> Dim:
        return _product(self, other if type(other) is Dim else Dim.of(other))

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
        if self.symbols.isdisjoint(values):
            return self
        if self.symbol is not None:
            return Dim.of(values[self.symbol])

        def value(atom: Atom) -> Dim:
            if isinstance(atom, str):
                return Dim.of(values.get(atom, atom))
            return ATOMS[type(atom)][0](*(part.substitute(values) for part in atom_parts(atom)))

        return Dim.of(combined(self, value))

    def evaluate(self, values: Mapping[str, int]) -> int:
        return int(evaluated(self, values))

    def __str__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        return dim_text(self)


@lru_cache(maxsize=1 << 16)
def _remembered(terms: tuple[Term, ...]) -> Dim:
    made = object.__new__(Dim)
    object.__setattr__(made, "terms", terms)
    object.__setattr__(made, "_hash", hash(terms))
    return made


def atom_parts(atom: Atom) -> tuple[Dim, ...]:
    match atom:
        case str():
            return ()
        case FloorDiv() | Mod():
            return (atom.numerator, atom.denominator)
        case Min() | Max():
            return atom.args


@lru_cache(maxsize=4096)
def _constant(value: int) -> Dim:
    return Dim(((value, ()),)) if value else Dim(())


@lru_cache(maxsize=1 << 16)
def _sum(left: Dim, right: Dim) -> Dim:
    if not right.terms:
        return left
    if not left.terms:
        return right
    sums = {monomial: c for c, monomial in left.terms}
    for c, monomial in right.terms:
        sums[monomial] = sums.get(monomial, 0) + c
    return _normal(sums)


@lru_cache(maxsize=1 << 16)
def _difference(left: Dim, right: Dim) -> Dim:
    return left + right * -1


@lru_cache(maxsize=1 << 16)
def _product(left: Dim, right: Dim) -> Dim:
    if right.is_constant:
        k = right.constant
        if k == 0:
            return _constant(0)
        return left if k == 1 else Dim(tuple((c * k, m) for c, m in left.terms))
    if left.is_constant:
        return right * left.constant
    sums: dict[Monomial, int] = {}
    for a, left_monomial in left.terms:
        for b, right_monomial in right.terms:
            monomial = _times(left_monomial, right_monomial)
            sums[monomial] = sums.get(monomial, 0) + a * b
    return _normal(sums)


def _key(atom: Atom) -> tuple[int, str]:
    return (0, atom) if isinstance(atom, str) else (1, _atom_text(atom))


@lru_cache(maxsize=1 << 16)
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


def quotient(left: Monomial, right: Monomial) -> Monomial | None:
    """left / right, where that is a product of atoms."""
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return tuple((atom, power) for atom, power in powers.items() if power)


def term_quotient(left: Term, right: Term) -> Dim | None:
    """left / right, where that is one term."""
    (a, atoms), (b, others) = left, right
    rest = None if a % b else quotient(atoms, others)
    return None if rest is None else Dim(((a // b, rest),))


@lru_cache(maxsize=1 << 16)
def linear(dim: Dim, symbol: str) -> tuple[int, Dim] | None:
    """(c, rest) where `dim` is `c * symbol + rest`, c is not 0 and the rest is without it."""
    terms = {monomial: c for c, monomial in dim.terms}
    coefficient = terms.pop(((symbol, 1),), 0)
    rest = _normal(terms)
    return None if coefficient == 0 or symbol in rest.symbols else (coefficient, rest)


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
        inner, constant = _single(rest)
        if isinstance(inner, FloorDiv) and inner.denominator.is_constant:
            step = inner.denominator.constant  # the normal form has none below 1
            dividend = inner.numerator + constant * step
            return quotient + _floordiv(dividend, _constant(step * k))
        return quotient + Dim.of(FloorDiv(rest, b))
    if a == 0:
        return a
    return Dim.of(FloorDiv(a, b))


def _single(dim: Dim) -> tuple[Atom | None, int]:
    """The atom and the number, where a dim is the sum of the two."""
    first, *others = dim.terms
    constant = sum(c for c, monomial in others if not monomial)
    alone = first[0] == 1 and len(first[1]) == 1 and all(not m for _, m in others)
    (atom, power), *_ = first[1]
    return (atom if alone and power == 1 else None), constant


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
        inner, constant = _single(rest)
        if isinstance(inner, Mod) and inner.denominator.is_constant:
            if inner.denominator.constant % k == 0:
                return _mod(inner.numerator + constant, b)
            if inner.denominator.constant + constant <= k:
                return rest
        return Dim.of(Mod(rest, b))
    return _constant(0) if a in (0, b) else Dim.of(Mod(a, b))


def ceildiv(a: Value, b: Value) -> Dim:
    """a / b rounded up; b is positive."""
    right = Dim.of(b)
    return (Dim.of(a) + right - 1) // right


def dim_min(*dims: Value) -> Dim:
    return _fold(Min, dims)


def dim_max(*dims: Value) -> Dim:
    return _fold(Max, dims)


def row_major(index: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """Where an element of an array lies in memory."""
    place = Dim.of(0)
    for position, size in zip(index, shape, strict=True):
        place = place * size + position
    return place


def _fold(kind: type[Min] | type[Max], dims: Iterable[Value]) -> Dim:
    flat: list[Dim] = []
    for value in dims:
        dim = Dim.of(value)
        atom = dim.terms[0][1][0][0] if len(dim.terms) == 1 and dim.terms[0][1] else None
        whole = atom is not None and Dim.of(atom) == dim
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
    return Dim.of(kind(tuple(sorted(set(kept), key=str))))


ATOMS: Mapping[type, tuple[Callable[..., Dim], Callable[..., Any]]] = {
    FloorDiv: (floordiv, floordiv), Mod: (mod, mod), Min: (dim_min, min), Max: (dim_max, max),
}  # fmt: skip
"""What makes an atom of sizes, and what computes it of numbers."""


def evaluated(
    dim: Dim, values: Mapping[str, Any], functions: Mapping[type, Callable[..., Any]] = {}
) -> Any:
    """The value of a size; `functions` compute its atoms of numbers of another kind."""
    # Like `combined`, without a call for each symbol: sizes are evaluated a million times.
    total: Any = 0
    for c, monomial in dim.terms:
        term: Any = c
        for atom, power in monomial:
            if isinstance(atom, str):
                base = values[atom]
            else:
                parts = [evaluated(part, values, functions) for part in atom_parts(atom)]
                base = functions.get(type(atom), ATOMS[type(atom)][1])(*parts)
            for _ in range(power):
                term = term * base
        total = total + term
    return total


def combined(dim: Dim, value: Callable[[Atom], Any]) -> Any:
    """The sum of products, with a value for each atom."""
    total: Any = 0
    for c, monomial in dim.terms:
        term: Any = c
        for atom, power in monomial:
            base = value(atom)
            for _ in range(power):
                term = term * base
        total = total + term
    return total


# Text


def dim_text(dim: Dim) -> str:
    """As it is written by hand: brackets only where the meaning needs them, or the reader."""
    if not dim.terms:
        return "0"
    text = ""
    for c, monomial in dim.terms:
        factors = [atom for atom, power in monomial for _ in range(power)]
        alone = len(factors) == 1 and abs(c) == 1 and (text != "" or c > 0)
        texts = [_bare_text(atom) if alone else _atom_text(atom) for atom in factors]
        if abs(c) != 1 or not factors:
            texts.insert(0, str(abs(c)))
        term = "*".join(texts)
        if not text:
            text = term if c > 0 else f"-{term}"
        else:
            text += f" + {term}" if c > 0 else f" - {term}"
    return text


def _bare_text(atom: Atom) -> str:
    """A quotient or rest without brackets around it."""
    match atom:
        case FloorDiv():
            return f"{_dividend(atom.numerator)} // {_divisor(atom.denominator)}"
        case Mod():
            return f"{_dividend(atom.numerator)} % {_divisor(atom.denominator)}"
    return _atom_text(atom)


def _dividend(dim: Dim) -> str:
    """A product of names needs no brackets: operators of one rank group to the left."""
    plain = len(dim.terms) == 1 and dim.terms[0][0] > 0
    plain = plain and not any(isinstance(a, FloorDiv | Mod) for a, _ in dim.terms[0][1])
    return str(dim) if plain else f"({dim})"


def _divisor(dim: Dim) -> str:
    single = dim.symbol is not None or (dim.is_constant and dim.constant > 0)
    return str(dim) if single else f"({dim})"


@lru_cache(maxsize=1 << 16)
def _atom_text(atom: Atom) -> str:
    match atom:
        case str():
            return quoted(atom)
        case FloorDiv() | Mod():
            return f"({_bare_text(atom)})"
        case Min():
            return f"min({', '.join(map(str, atom.args))})"
        case Max():
            return f"max({', '.join(map(str, atom.args))})"


ZERO, ONE = Dim.of(0), Dim.of(1)
