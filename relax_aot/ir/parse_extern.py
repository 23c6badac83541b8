# SPDX-License-Identifier: Apache-2.0
"""Text -> externs. Part of parse.py."""

from __future__ import annotations

from relax_aot.ir.extern import Extern, ExternParam, Returns, Role
from relax_aot.ir.lexer import Cursor
from relax_aot.ir.parse_values import tensor_type


def extern(cursor: Cursor) -> Extern:
    """An extern, from its word on."""
    cursor.advance()
    cursor.expect("@")
    name = cursor.name("the name of the extern")
    cursor.expect("=")
    function = cursor.name("the name of the C function")
    cursor.expect("(")
    header = cursor.string("its header, as a string")
    cursor.expect(")")
    cursor.expect("(")
    params = cursor.listed(")", lambda: _param(cursor))
    cursor.expect("->")
    returns = Returns(cursor.one_of([r.value for r in Returns], "what it returns"))
    return Extern(name, function, header, params, returns)


def _param(cursor: Cursor) -> ExternParam:
    name = cursor.name("the name of a parameter")
    cursor.expect(":")
    role = Role(cursor.one_of([role.value for role in Role], "what the parameter is for"))
    words = [cursor.name("a C type")]
    while cursor.token.kind == "name" and not cursor.ahead.is_mark("["):
        words.append(cursor.advance().text)
    type_ = tensor_type(cursor) if cursor.token.kind == "name" else None
    return ExternParam(name, role, " ".join(words), type_)
