"""Sizes as C expressions.

Run-time sizes and indices are int32_t; constant expressions over the bounds are
`long long`, so that a raised bound cannot overflow before it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relax_aot.ir.dims import Bounds, Dim, FloorDiv, Max, Min, Mod, interval, maximize, row_major
from relax_aot.ir.evaluate import magnitude

Names = Mapping[str, str]
GREATEST = 2**31 - 1


def dim_c(dim: Dim, names: Names, bounds: Bounds) -> str:
    """An int32_t expression. Atomic or a sum; wrap with `operand_c` inside products."""
    if dim.is_constant:
        return str(dim.constant)
    text = ""
    ordered = sorted(dim.terms, key=lambda term: (not term[1], term[0] < 0))
    for coefficient, factors in ordered:
        parts = [_atom_c(atom, names, bounds) for atom, power in factors for _ in range(power)]
        if abs(coefficient) != 1 or not parts:
            parts.append(str(abs(coefficient)))
        product = " * ".join(parts)
        if not text:
            text = product if coefficient > 0 else f"-{product}"
        else:
            text += f" + {product}" if coefficient > 0 else f" - {product}"
    return text


def operand_c(dim: Dim, names: Names, bounds: Bounds) -> str:
    """`dim_c` in parentheses where it is more than one name or number."""
    text = dim_c(dim, names, bounds)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _atom_c(atom: object, names: Names, bounds: Bounds) -> str:
    match atom:
        case str():
            return names[atom]
        case FloorDiv():
            left, right = atom.numerator, atom.denominator
            if interval(left, bounds)[0] >= 0 and interval(right, bounds)[0] > 0:
                return f"({operand_c(left, names, bounds)} / {operand_c(right, names, bounds)})"
            return f"raot_floor_div({dim_c(left, names, bounds)}, {dim_c(right, names, bounds)})"
        case Mod():
            left, right = atom.numerator, atom.denominator
            if interval(left, bounds)[0] >= 0 and interval(right, bounds)[0] > 0:
                return f"({operand_c(left, names, bounds)} % {operand_c(right, names, bounds)})"
            return f"raot_floor_mod({dim_c(left, names, bounds)}, {dim_c(right, names, bounds)})"
        case Min():
            return _fold_c("raot_min_i32", atom.args, names, bounds)
        case Max():
            return _fold_c("raot_max_i32", atom.args, names, bounds)
        case _:
            raise AssertionError(atom)


def _fold_c(function: str, args: tuple[Dim, ...], names: Names, bounds: Bounds) -> str:
    first, *rest = [dim_c(arg, names, bounds) for arg in args]
    for text in rest:
        first = f"{function}({first}, {text})"
    return first


def linear_c(index: tuple[Dim, ...], shape: tuple[Dim, ...], names: Names, bounds: Bounds) -> str:
    """The row-major position of an element, as `(i * columns + j) * depth + k`; as one sum where
    that leaves no division."""
    if any(map(_divides, index)) and not _divides(whole := row_major(index, shape)):
        return dim_c(whole, names, bounds)
    text = ""
    for position, size in zip(index, shape, strict=True):
        if size == Dim.of(0):
            text = ""
        elif text and size != Dim.of(1):
            text = _times(text, operand_c(size, names, bounds))
        step = dim_c(position, names, bounds)
        if text.isdigit() and step.isdigit():
            text = str(int(text) + int(step))
        elif step != "0":
            text = step if not text else f"{text} + {step}".replace("+ -", "- ")
    return text or "0"


def _times(text: str, factor: str) -> str:
    if text.isdigit() and factor.isdigit():
        return str(int(text) * int(factor))
    if text == "1":
        return factor
    return f"{text} * {factor}" if _atomic(text) else f"({text}) * {factor}"


def _divides(dim: Dim) -> bool:
    return any(isinstance(atom, FloorDiv | Mod) for _, fs in dim.terms for atom, _ in fs)


def _atomic(text: str) -> bool:
    return text.isidentifier() or text.isdigit()


def greatest_c(dim: Dim, macros: Names, bounds: Bounds) -> str:
    """The greatest value over the box, as a `long long` constant expression in the bounds."""
    wide = _open(bounds)
    return _constant_c(maximize(dim, bounds), macros, wide)


def bound_limits(sizes: Iterable[Dim], bounds: Bounds, terms: int) -> dict[str, int]:
    """For each symbol the highest bound at which no constant expression for `sizes`, nor a
    sum of `terms` of them, can pass a `long long`. Above it nothing could be checked in C."""
    greatest = [maximize(size, bounds) for size in set(sizes)]
    declared = {name: bounds.range(name)[1] for name in bounds}

    def held(limit: int) -> bool:
        raised = {name: max(high, limit) for name, high in declared.items()}
        return all(magnitude(size, raised) * terms < 2**63 for size in greatest)

    low, high = 0, GREATEST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if held(middle) else (low, middle - 1)
    return {name: max(declared[name], low) for name in declared}


def _open(bounds: Bounds) -> Bounds:
    """The same lows, with highs that a user may raise."""
    return Bounds.of({name: (bounds.range(name)[0], 2**31 - 1) for name in bounds})


def _constant_c(dim: Dim, macros: Names, wide: Bounds) -> str:
    terms = []
    for coefficient, factors in dim.terms:
        parts = [f"{coefficient}LL"] if coefficient != 1 or not factors else []
        parts += [_constant_atom(atom, macros, wide) for atom, n in factors for _ in range(n)]
        terms.append(" * ".join(parts))
    return " + ".join(terms).replace("+ -", "- ") or "0LL"


def _constant_atom(atom: object, macros: Names, wide: Bounds) -> str:
    match atom:
        case str():
            return f"(long long){macros[atom]}"
        case FloorDiv() | Mod():
            sign = "/" if isinstance(atom, FloorDiv) else "%"
            left = _constant_c(atom.numerator, macros, wide)
            right = _constant_c(atom.denominator, macros, wide)
            if interval(atom.numerator, wide)[0] >= 0 and interval(atom.denominator, wide)[0] > 0:
                return f"(({left}) {sign} ({right}))"
            name = "RAOT_FLOOR_DIV" if sign == "/" else "RAOT_FLOOR_MOD"
            return f"{name}({left}, {right})"
        case Min():
            return _fold_macro("RAOT_MIN", [_constant_c(a, macros, wide) for a in atom.args])
        case Max():
            return _fold_macro("RAOT_MAX", [_constant_c(a, macros, wide) for a in atom.args])
        case _:
            raise AssertionError(atom)


def _fold_macro(name: str, parts: list[str]) -> str:
    first, *rest = parts
    for part in rest:
        first = f"{name}({first}, {part})"
    return first
