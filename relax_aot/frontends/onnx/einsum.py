# SPDX-License-Identifier: Apache-2.0
"""Einsum by matrix products: terms are joined two by two, from the left.

In a pair, a letter is shared by the result (a batch axis), summed (it stands in both terms
and nowhere after), or free (in one term). One matrix product over the axes in this order
does the work; letters of one term that nothing needs are summed beforehand.
"""

from __future__ import annotations

from math import prod
from string import ascii_letters

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Node, Results
from relax_aot.ir.dims import ONE, Dim
from relax_aot.ir.graph import Var

Term = tuple[str, Var]


def einsum(node: Node) -> Results:
    args = node.args()
    terms, result = _terms(node.required("equation"), [arg.type.rank for arg in args])
    sizes: dict[str, Dim] = {}
    values: list[Term] = []
    for letters, arg in zip(terms, args, strict=True):
        while len(set(letters)) < len(letters):
            letters, arg = _diagonal(node, letters, arg)
        for letter, size in zip(letters, arg.type.shape, strict=True):
            if sizes.setdefault(letter, size) == ONE:
                sizes[letter] = size
        values.append((letters, arg))
    for index, (letters, value) in enumerate(values):
        later = set(result).union(*(term for term, _ in values[:index] + values[index + 1 :]))
        values[index] = _summed(node, letters, value, later)
    letters, total = values[0]
    for position, (other, value) in enumerate(values[1:], start=2):
        later = set(result).union(*(term for term, _ in values[position:]))
        letters, total = _joined(node, (letters, total), (other, value), later, sizes)
    if letters == result:
        return total
    return node.emit("transpose", total, perm=tuple(letters.index(letter) for letter in result))


def _terms(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each argument and of the result; `...` gets letters of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"an Einsum has {len(ranks)} arguments for {left!r}")
    unused = [letter for letter in ascii_letters if letter not in equation]
    widths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    dots = "".join(unused[: max([0, *widths])])
    expanded = []
    for term, width, rank in zip(terms, widths, ranks, strict=True):
        if width < 0 or (width and "..." not in term):
            raise ModelError(f"an Einsum has the term {term!r} for an argument of rank {rank}")
        expanded.append(term.replace("...", dots[len(dots) - width :]))
    if not arrow:
        plain = left.replace(",", "").replace("...", "")
        right = "..." * ("..." in left) + "".join(
            letter for letter in sorted(set(plain)) if plain.count(letter) == 1
        )
    result = right.replace("...", dots)
    if not set(result) <= set("".join(expanded)) or len(set(result)) < len(result):
        raise ModelError(f"an Einsum has the result {right!r} for {left!r}")
    return expanded, result


def _diagonal(node: Node, letters: str, value: Var) -> Term:
    """Without the second place of a letter that stands there twice."""
    second = next(axis for axis, letter in enumerate(letters) if letter in letters[:axis])
    first = letters.index(letters[second])
    rest = [axis for axis in range(len(letters)) if axis not in (first, second)]
    moved = node.emit("transpose", value, perm=(*rest, first, second))
    order = "".join(letters[axis] for axis in (*rest, first))
    return order, node.emit("diagonal", moved)


def _summed(node: Node, letters: str, value: Var, needed: set[str]) -> Term:
    """Without the letters that neither another term nor the result has."""
    gone = tuple(axis for axis, letter in enumerate(letters) if letter not in needed)
    if not gone:
        return letters, value
    total = node.emit("reduce", value, kind="sum", axes=gone, keepdims=False)
    return "".join(letter for letter in letters if letter in needed), total


def _joined(node: Node, a: Term, b: Term, needed: set[str], sizes: dict[str, Dim]) -> Term:
    shared = [letter for letter in a[0] if letter in b[0]]
    batch = [letter for letter in shared if letter in needed]
    summed = [letter for letter in shared if letter not in needed]
    rows = [letter for letter in a[0] if letter not in b[0]]
    columns = [letter for letter in b[0] if letter not in a[0]]
    left = _matrix(node, a, [batch, rows, summed], sizes)
    right = _matrix(node, b, [batch, summed, columns], sizes)
    product = node.emit("matmul", left, right)
    letters = [*batch, *rows, *columns]
    return "".join(letters), node.reshape(product, [sizes[letter] for letter in letters])


def _matrix(node: Node, term: Term, groups: list[list[str]], sizes: dict[str, Dim]) -> Var:
    """[batch..., rows, columns]: the batch letters apart, each other group as one axis."""
    letters, value = term
    order = [letter for group in groups for letter in group]
    perm = tuple(letters.index(letter) for letter in order)
    if perm != tuple(range(len(perm))):
        value = node.emit("transpose", value, perm=perm)
    full = tuple(sizes[letter] for letter in order)
    if value.type.shape != full:
        # A size of 1 is repeated.
        value = node.emit("expand", value, shape=full)
    batch, *pair = groups
    merged = [prod((sizes[letter] for letter in group), start=ONE) for group in pair]
    return node.reshape(value, [*(sizes[letter] for letter in batch), *merged])
