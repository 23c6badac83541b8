# SPDX-License-Identifier: Apache-2.0
"""The tokens that end a text, as a checkpoint states them."""

from __future__ import annotations

from pathlib import Path

from relax_aot.frontends import ModelError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.checkpoint import CONFIG
from relax_aot.frontends.llm.json_file import read_json

GENERATION = "generation_config.json"
MOST_ENDS = 100


def end_tokens(folder: Path) -> tuple[int, ...]:
    """`eos_token_id` of generation_config.json, else of config.json: a token or several."""
    for name in (GENERATION, CONFIG):
        path = folder / name
        found = read_json(path).get("eos_token_id") if path.is_file() else None
        if found is None:
            continue
        listed = found if isinstance(found, list) else [found]
        if len(listed) > MOST_ENDS or not all(_is_token(one) for one in listed):
            shown = printable(str(found)[:80])
            raise ModelError(f"{path}: eos_token_id is {shown}, expected tokens")
        return tuple(listed)
    return ()


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
