# SPDX-License-Identifier: Apache-2.0
"""The chat template of a checkpoint, and what it writes for conversations."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relax_aot.frontends import ModelError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.chat import rendering
from relax_aot.frontends.llm.json_file import read_json

SETTINGS, NAMES, WHOLE = "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
LONGEST = 100_000
"""Characters of a template."""
_SECONDS = 60
"""Of the clock, where processor time is not limited, or the machine is busy."""

Conversation = tuple[tuple[str, str], ...]
"""Messages as (role, content)."""


@dataclass(frozen=True, slots=True)
class Source:
    """A template in Jinja's language; `where` names it in messages. `variables` are the names of
    special tokens, such as `bos_token`."""

    where: str
    template: str
    variables: Mapping[str, str]

    def render(self, conversations: Sequence[Conversation]) -> list[dict[str, str]]:
        """For each conversation its `text`, or the `error` of the template. The answer of an
        assistant is to follow."""
        order = {"template": self.template, "variables": self.variables,
                 "conversations": conversations}  # fmt: skip
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(Path(rendering.__file__))],
                input=json.dumps(order), capture_output=True, text=True, encoding="utf-8",
                check=False, timeout=_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            done = None
        if done is None or done.returncode:
            raise ModelError(
                f"{self.where}: the chat template takes more than {rendering.SECONDS} seconds or "
                f"{rendering.BYTES >> 20} MiB"
            )
        found: list[dict[str, str]] = json.loads(done.stdout)
        return found


def read_source(folder: Path) -> Source | None:
    """The template of a checkpoint in a folder, if it has one."""
    path = folder / SETTINGS
    settings = read_json(path) if path.is_file() else {}
    whole = folder / WHOLE
    where = f"{path}: chat_template"
    found = settings.get("chat_template")
    if whole.is_file():
        where, found = str(whole), _read(whole)
    elif isinstance(found, list):
        found = _default(where, found)
    if found is None:
        return None
    names = read_json(folder / NAMES) if (folder / NAMES).is_file() else {}
    return source_of(where, found, names | settings)


def source_of(where: str, template: Any, fields: Mapping[str, Any]) -> Source:
    """A template, and the special tokens among `fields`."""
    if not isinstance(template, str) or len(template) > LONGEST:
        raise ModelError(f"{where} is no text of at most {LONGEST} characters")
    variables = {}
    for name, value in fields.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            variables[name] = text
    return Source(where, template, variables)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4 * LONGEST + 4).decode("utf-8")
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path} is no UTF-8, or longer than {LONGEST} characters") from None


def _default(where: str, listed: list[Any]) -> Any:
    """Of several templates with names, the one that is meant for conversations."""
    named = {
        one["name"]: one.get("template")
        for one in listed
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }
    if "default" not in named:
        shown = printable(", ".join(named)) or "nothing"
        raise ModelError(f"{where} has no template with the name default, but {shown}")
    return named["default"]
