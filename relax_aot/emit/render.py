# SPDX-License-Identifier: Apache-2.0
"""Jinja, set up once."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jinja2

from relax_aot.emit.includes import without_unused
from relax_aot.emit.wrap import wrapped
from relax_aot.resources import data_dir


@cache
def environment() -> jinja2.Environment:
    """Undefined fields are errors; templates place text and compute nothing."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(template: str, **view: Any) -> str:
    """The text of `template` without blank lines at its start or end; C without long lines
    and without two blank lines in a row or unused headers."""
    text = environment().get_template(template).render(**view).strip("\n") + "\n"
    if not template.endswith((".c.j2", ".cu.j2", ".h.j2")):
        return text
    text = "\n".join([line.rstrip(" ") for line in without_unused(text).split("\n")])
    return wrapped(re.sub(r"\n{3,}", "\n\n", text))


def render_html(template: str, **view: Any) -> str:
    """Like `render`, with every field escaped for HTML: text from a model is untrusted."""
    page = environment().overlay(autoescape=True)
    return page.get_template(template).render(**view).strip("\n") + "\n"
