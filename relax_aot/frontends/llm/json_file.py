# SPDX-License-Identifier: Apache-2.0
"""JSON from files that are not trusted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from relax_aot.frontends import ModelError
from relax_aot.frontends.bounds import printable

GREATEST_BYTES = 100_000_000


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file."""
    try:
        size = path.stat().st_size
        if size > GREATEST_BYTES:
            raise ModelError(f"cannot read {path}: {size} bytes; at most {GREATEST_BYTES}")
        return json_object(path.read_bytes(), str(path))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None


def json_object(text: bytes, what: str) -> dict[str, Any]:
    """The object that a text is; `what` names it in messages. A name that occurs twice is an
    error, because readers differ in which of them they take."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(name for name, times in Counter(n for n, _ in pairs).items() if times > 1)
            raise ModelError(f"{what} has {printable(twice)!r} twice")
        return found

    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ModelError(f"{what} is not JSON: {printable(said)}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{what} is not a JSON object")
    return value
