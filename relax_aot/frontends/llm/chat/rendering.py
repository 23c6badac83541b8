# SPDX-License-Identifier: Apache-2.0
"""A program that renders the chat template of a checkpoint for conversations.

A template is code from a file that is not trusted: it is rendered in Jinja's sandbox, and in a
process of its own, which has a limit of time and memory. Reads and writes JSON. The variables,
filters and tags are those that checkpoints are written for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

SECONDS, BYTES = 10, 2**30
LONGEST = 100_000
"""Characters of a rendered conversation."""
_ERRORS = (
    jinja2.TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What expressions of a template may end with."""


class _Generation(Extension):
    """{% generation %}: marks answers for training; the text is that of its body."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


def rendered(
    template: str, variables: Mapping[str, str], conversations: Sequence[Sequence[tuple[str, str]]]
) -> list[dict[str, str]]:
    """For each conversation of (role, content) its `text`, or the `error` of the template."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    try:
        compiled = environment.from_string(template)
    except _ERRORS as error:
        return [{"error": _said(error)}] * len(conversations)
    return [_one(compiled, variables, conversation) for conversation in conversations]


def _one(
    template: jinja2.Template, variables: Mapping[str, str], conversation: Sequence[tuple[str, str]]
) -> dict[str, str]:
    messages = [{"role": role, "content": content} for role, content in conversation]
    given = {**variables, "tools": None, "documents": None, "add_generation_prompt": True}
    found = ""
    try:
        for piece in template.generate(**given, messages=messages):
            found += piece
            if len(found) > LONGEST:
                return {"error": f"it writes more than {LONGEST} characters"}
        found.encode()
    except _ERRORS as error:
        return {"error": _said(error)}
    return {"text": found}


def _said(error: Exception) -> str:
    return f"{error}"[:LONGEST] or type(error).__name__


def _limit() -> None:
    """Bound time and memory, where the system can."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


if __name__ == "__main__":
    _limit()
    order = json.load(sys.stdin)
    json.dump(rendered(order["template"], order["variables"], order["conversations"]), sys.stdout)
