# SPDX-License-Identifier: Apache-2.0
"""The texts that the model is trained on: the documentation in a Python installation.

They are what `help()` shows: the docstrings of the standard library, those of built-in classes and
functions, and the topics of the language reference. Everybody who has this Python has them, under
the license of Python (PSF). The order is fixed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from pydoc_data import topics

FOLDERS_LEFT_OUT = {
    *("__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data"),
    *("site-packages", "test", "tests", "turtledemo"),
}

# Modules in C, whose docstrings no source file has.
BUILT_IN = (
    *("_asyncio", "_bisect", "_codecs", "_collections", "_csv", "_datetime", "_decimal"),
    *("_elementtree", "_functools", "_heapq", "_io", "_json", "_operator", "_pickle", "_random"),
    *(
        "_socket",
        "_sre",
        "_struct",
        "_thread",
        "_weakref",
        "array",
        "binascii",
        "builtins",
        "cmath",
    ),
    *("errno", "faulthandler", "gc", "itertools", "marshal", "math", "select", "sys", "time"),
    *("unicodedata", "zlib"),
)


def from_sources() -> Iterator[str]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if not FOLDERS_LEFT_OUT & set(path.relative_to(root).parts):
            yield from of_module(path.stem, ast.parse(path.read_bytes()))


def of_module(name: str, module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        match node:
            case ast.Module():
                title = f"module {name}"
            case ast.ClassDef():
                title = f"class {node.name}"
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                title = f"{node.name}({ast.unparse(node.args)})"
            case _:
                continue
        yield document(title, ast.get_docstring(node))


def from_built_in() -> Iterator[str]:
    for module in map(importlib.import_module, BUILT_IN):
        for name, value in sorted(vars(module).items()):
            yield document(name, described(value))
            if inspect.isclass(value):
                for part in sorted(vars(value)):
                    yield document(part, described(getattr(value, part, None)))


def described(value: object) -> str | None:
    own = inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)
    return inspect.getdoc(value) if own else None


def from_topics() -> Iterator[str]:
    for name, text in sorted(topics.topics.items()):
        yield document(name, textwrap.dedent(text))


def document(title: str, text: str | None) -> str:
    """Title and text, without examples of the interpreter and without characters beyond ASCII."""
    paragraphs = (text or "").strip().encode("ascii", "ignore").decode().split("\n\n")
    kept = [part.strip("\n") for part in paragraphs if ">>>" not in part and part.strip()]
    return "\n".join([title, *("\n\n".join(kept).splitlines())]) if kept else ""


def documents() -> list[str]:
    """Each text once: many classes repeat those of their bases."""
    found: dict[str, str] = {}
    for text in [*from_sources(), *from_built_in(), *from_topics()]:
        body = text.partition("\n")[2]
        if len(body) >= 20:
            found.setdefault(body, text)
    return list(found.values())
