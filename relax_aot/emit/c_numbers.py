"""How the numbers of a kernel stand in its C text: as they are, or as parameters.

Kernels that differ by numbers alone can be one function. For that every number has a place of its
own, also those that C leaves out: `i` is `1 * i + 0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from relax_aot.emit.c_dims import Names, dim_c, linear_c
from relax_aot.ir.dims import Bounds, Dim, FloorDiv, Max, Min, Mod, interval, row_major

Place = tuple[Dim, ...]


class Numbers(Protocol):
    def dim(self, dim: Dim, names: Names, bounds: Bounds) -> str:
        """As dim_c."""

    def linear(self, index: Place, shape: Place, names: Names, bounds: Bounds) -> str:
        """As linear_c."""

    def literal(self, c_type: str, text: str) -> str:
        """A number of a C type."""


class Plain:
    """Numbers as they are."""

    def dim(self, dim: Dim, names: Names, bounds: Bounds) -> str:
        return dim_c(dim, names, bounds)

    def linear(self, index: Place, shape: Place, names: Names, bounds: Bounds) -> str:
        return linear_c(index, shape, names, bounds)

    def literal(self, c_type: str, text: str) -> str:
        return text


@dataclass(frozen=True, slots=True)
class Number:
    c_type: str
    text: str


@dataclass
class Places:
    """Each number has a place. `parameters`: what stands at some of them; the others show the
    number. `found`: the numbers, in the order of their places."""

    parameters: Mapping[int, str] = field(default_factory=dict)
    found: list[Number] = field(default_factory=list)

    def literal(self, c_type: str, text: str) -> str:
        place = len(self.found)
        self.found.append(Number(c_type, text))
        return self.parameters.get(place, text)

    def linear(self, index: Place, shape: Place, names: Names, bounds: Bounds) -> str:
        return self.dim(row_major(index, shape), names, bounds)

    def dim(self, dim: Dim, names: Names, bounds: Bounds) -> str:
        terms = [(c, factors) for c, factors in dim.terms if factors]
        constant = sum(c for c, factors in dim.terms if not factors)
        parts: list[str] = []
        for coefficient, factors in terms:
            atoms = [self._atom(a, names, bounds) for a, power in factors for _ in range(power)]
            number = self._number(coefficient)
            shown = atoms if number == "1" else [*atoms, number]
            parts.append(" * ".join(shown))
        number = self._number(constant)
        parts += [number] if number != "0" or not parts else []
        return " + ".join(parts)

    def _number(self, value: int) -> str:
        text = self.literal("int32_t", str(value))
        return f"({text})" if text.startswith("-") else text

    def _operand(self, dim: Dim, names: Names, bounds: Bounds) -> str:
        text = self.dim(dim, names, bounds)
        return text if text.isidentifier() or text.isdigit() else f"({text})"

    def _atom(self, atom: object, names: Names, bounds: Bounds) -> str:
        match atom:
            case str():
                return names[atom]
            case FloorDiv() | Mod():
                left, right = atom.numerator, atom.denominator
                sign = "/" if isinstance(atom, FloorDiv) else "%"
                if interval(left, bounds)[0] >= 0 and interval(right, bounds)[0] > 0:
                    sides = [self._operand(side, names, bounds) for side in (left, right)]
                    return f"({sides[0]} {sign} {sides[1]})"
                function = "raot_floor_div" if sign == "/" else "raot_floor_mod"
                sides = [self.dim(side, names, bounds) for side in (left, right)]
                return f"{function}({sides[0]}, {sides[1]})"
            case Min() | Max():
                function = "raot_min_i32" if isinstance(atom, Min) else "raot_max_i32"
                first, *rest = [self.dim(arg, names, bounds) for arg in atom.args]
                for text in rest:
                    first = f"{function}({first}, {text})"
                return first
            case _:
                raise AssertionError(atom)
