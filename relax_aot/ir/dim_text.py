# SPDX-License-Identifier: Apache-2.0
"""Text -> size expressions. Part of dims.py; printing is `str(dim)`."""

from __future__ import annotations

import re

from relax_aot.ir.dim_expr import Dim, dim_max, dim_min
from relax_aot.ir.lexer import Cursor, TextError


class DimSyntaxError(TextError):
    """Text that is not a size expression; says where."""


def parse_dim(text: str) -> Dim:
    """Sums, products, `//`, `%`, `min(...)`, `max(...)` over symbols and integers."""
    foreign = re.search(r'[^\w\s*/%()+,-]|[\n"#`]', text)
    if foreign:
        raise DimSyntaxError(
            f"unexpected {foreign.group()!r} in {text!r}, column {foreign.start() + 1}"
        )
    try:
        cursor = Cursor(text)
        result = dim(cursor)
        if cursor.token.kind != "end":
            cursor.fail("the end")
    except TextError as error:
        raise DimSyntaxError(f"{error} in {text!r}") from None
    except RecursionError:
        raise DimSyntaxError(f"{text[:40]!r}... is nested without end, from column 1") from None
    return result


def dim(cursor: Cursor) -> Dim:
    """The size expression at the cursor."""
    total = _product(cursor)
    while sign := cursor.take("+", "-"):
        right = _product(cursor)
        total = total + right if sign == "+" else total - right
    return total


def _product(cursor: Cursor) -> Dim:
    total = _unary(cursor)
    while sign := cursor.take("*", "//", "%"):
        right = _unary(cursor)
        if sign == "*":
            # More terms are a mistake or an attack: products of sums grow without end.
            if len(total.terms) * len(right.terms) > 10_000:
                cursor.fail("a smaller product")
            total = total * right
        elif right == 0:
            cursor.fail("a divisor other than 0")
        else:
            total = total // right if sign == "//" else total % right
    return total


def _unary(cursor: Cursor) -> Dim:
    if cursor.take("-"):
        return -_unary(cursor)
    if cursor.take("("):
        inner = dim(cursor)
        cursor.expect(")")
        return inner
    if cursor.token.kind == "number":
        return Dim.of(integer(cursor))
    if cursor.at_word("min", "max") and cursor.ahead.is_mark("("):
        least = cursor.advance().text == "min"
        cursor.expect("(")
        args = [dim(cursor)]
        while cursor.take(","):
            args.append(dim(cursor))
        cursor.expect(")")
        return dim_min(*args) if least else dim_max(*args)
    return Dim.of(cursor.name("a size"))


def integer(cursor: Cursor) -> int:
    """An unsigned integer."""
    token = cursor.token
    if token.kind != "number" or not token.text.isdigit() or len(token.text) > 1000:
        cursor.fail("an integer")
    cursor.advance()
    return int(token.text)


def parse_relation(text: str) -> tuple[str, Dim]:
    """`n <= 2*m` -> (">=0", 2*m - n); `==` -> ("==0", difference)."""
    pieces = re.split(r"(<=|>=|==|<|>)", text)
    if len(pieces) != 3:
        raise DimSyntaxError(f"expected one of <= < >= > == in {text!r}")
    try:
        left, right = parse_dim(pieces[0]), parse_dim(pieces[2])
    except DimSyntaxError as error:
        raise DimSyntaxError(f"{text!r}: {error}") from None
    if pieces[1] == "==":
        return "==0", left - right
    apart = right - left if pieces[1] in ("<=", "<") else left - right
    return ">=0", apart - (pieces[1] in ("<", ">"))
