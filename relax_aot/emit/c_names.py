# SPDX-License-Identifier: Apache-2.0
"""Text from a model becomes C here, and nowhere else.

A name is a legal identifier, unique without regard to case; a comment is one line of
printable ASCII that can neither end the comment nor begin another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from relax_aot.emit.foreign_macros import FOREIGN_MACROS

# C11 and C++17 keywords, names of the headers that we include, and our own.
RESERVED = frozenset([
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "union", "unsigned", "void", "volatile", "while", "_Alignas", "_Alignof", "_Atomic",
    "_Bool", "_Complex", "_Generic", "_Imaginary", "_Noreturn", "_Static_assert",
    "_Thread_local", "alignas", "alignof", "and", "and_eq", "asm", "bitand", "bitor", "bool",
    "catch", "char16_t", "char32_t", "class", "compl", "concept", "const_cast", "consteval",
    "constexpr", "constinit", "co_await", "co_return", "co_yield", "decltype", "delete",
    "dynamic_cast", "explicit", "export", "false", "friend", "mutable", "namespace", "new",
    "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected",
    "public", "reinterpret_cast", "requires", "static_assert", "static_cast", "template",
    "this", "thread_local", "throw", "true", "try", "typeid", "typename", "using", "virtual",
    "wchar_t", "xor", "xor_eq", "typeof", "unix", "linux", "main", "errno", "NULL", "EOF",
    "offsetof", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t",
    "uint64_t", "size_t", "intptr_t", "uintptr_t", "ptrdiff_t", "memcpy", "memset", "memmove",
    "memcmp", "near", "far", "huge", "interrupt",
])  # fmt: skip


LOCALS = frozenset(
    ["memory", "dims", "in", "out", "arena", "state", "weights", "result", "status", "need"]
)
"""Names that the templates use in functions."""


# Macros of <stdint.h>, <limits.h> and <math.h>: they are replaced wherever they stand.
_MACRO = re.compile(
    r"U?(?:INT|SHRT|LONG|LLONG)(?:(?:_LEAST|_FAST)?\d+|MAX|PTR)?_(?:MAX|MIN|C|WIDTH)"
    r"|[SU]?CHAR_(?:MAX|MIN|BIT|WIDTH)|(?:SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC|MB_LEN)_(?:MAX|MIN|WIDTH)"
    r"|NAN|INFINITY|HUGE_VAL[FL]?|FP_[A-Z0-9]+|MATH_[A-Z]+|M_[A-Z0-9_]+|math_errhandling"
    r"|is(?:finite|inf|nan|normal|greater|greaterequal|less|lessequal|lessgreater|unordered)"
    r"|fpclassify|signbit|log2|assert|complex|(?:PRI|SCN)[diouxX]\w+|[A-Z]_\w+"
    r"|s[ai]_\w+|st_[acm]tim\w*|sigev_\w+"
)


class Names:
    """Hands out identifiers of one C scope that differ behind what stands `before` each of them.
    `reserved`: names that the templates have there; members of structs have none."""

    def __init__(
        self, taken: Iterable[str] = (), before: str = "", reserved: Iterable[str] = LOCALS
    ) -> None:
        self._taken = {name.lower() for name in (*RESERVED, *reserved, *taken)}
        # C11 tells internal names and macros apart by 63 characters (5.2.4.1). Four are left of a
        # name, whatever stands before it.
        self._room = max(63 - len(before), 4)
        self._spelt = _legal if before else identifier

    def claim(self, wanted: str) -> str:
        """A legal identifier close to `wanted` that is not used."""
        base = self._spelt(wanted)
        base = base if len(base) <= self._room else base[: self._room].rstrip("_")
        name, count = base, 1
        while name.lower() in self._taken:
            count += 1
            end = f"_{count}"
            name = base[: max(self._room - len(end), 1)] + end
        self._taken.add(name.lower())
        return name


def identifier(text: str) -> str:
    """Letters, digits and single underscores; begins with a letter; at most 48 characters, and
    one more where the name would be the library's.

    Headers that come before ours may define macros: a name in capitals alone (`INPUT`, `PI`, `N`)
    is written in small letters, and one that is known as a macro (`stdin`, `abs`) ends with an
    underscore.
    """
    name = _legal(text)
    name = name.lower() if name.isupper() else name
    taken = name.lower().startswith("raot_") or name in FOREIGN_MACROS or _MACRO.fullmatch(name)
    return f"{name}_" if taken else name


def _legal(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:48].strip("_") or "v"
    return name if name[0].isalpha() else f"v{name}"


_ESCAPED = {'"': '\\"', "\\": "\\\\", "?": "\\?", "\\012": "\\n"}


def comment(text: str, limit: int = 400) -> str:
    """One line for a C comment: printable ASCII without `*/`, `/*`, `//`, trigraphs, `\\`."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    plain = plain.replace("\\", "/").replace("*/", "* /").replace("/*", "/ *")
    while "//" in plain:
        plain = plain.replace("//", "/")
    while "??" in plain:
        plain = plain.replace("??", "?")
    plain = plain.replace("*/", "* /").replace("/*", "/ *")
    return plain if len(plain) <= limit else plain[: limit - 4] + " ..."


def string(text: str, width: int = 70) -> tuple[str, ...]:
    """A string literal of C for the UTF-8 of a text, as lines of about `width` characters that the
    compiler joins."""
    plain = [chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}" for byte in text.encode()]
    shown = [_ESCAPED.get(one, one) for one in plain]
    lines, line = [], ""
    for one in shown:
        line += one
        if len(line) >= width or one == "\\n":
            lines.append(line)
            line = ""
    return tuple(f'"{one}"' for one in (*lines, line) if one) or ('""',)
