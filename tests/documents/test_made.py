# SPDX-License-Identifier: Apache-2.0
"""The generated pages and pictures of docs/ are up to date."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from docs.tools import pages, pictures
from tests.conftest import ROOT


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in pages.SLOW else ()) for n in pages.PAGES],
)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (pages.REFERENCE / name).read_text(encoding="utf-8") == pages.PAGES[name](), (
        f"generate it again: make pages, or python -m docs.tools.pages {name}"
    )


@pytest.mark.parametrize("name", pictures.PICTURES_BY_NAME)
def test_a_picture_is_what_the_code_draws(name: str) -> None:
    text = (pictures.PICTURES / name).read_text(encoding="utf-8")
    assert ET.fromstring(text).tag.endswith("svg")
    assert text == pictures.PICTURES_BY_NAME[name](), "generate it again: make pages"


def test_every_option_and_public_name_has_its_row() -> None:
    """Counted from outside: what `--help` shows, and what `from relax_aot import *` brings."""
    import relax_aot
    from relax_aot.cli.main import cli

    options = (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8")
    for name, command in cli.commands.items():
        part = options.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            if parameter.opts[0].startswith("-"):
                assert f"`{parameter.opts[0]}`" in part, (name, parameter.opts)
    python = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    missing = [n for n in relax_aot.__all__ if f"rx.{n}" not in python]
    assert missing == ["Module", "__version__"]
