# SPDX-License-Identifier: Apache-2.0
"""The site builds without a warning, asks no network for anything, and its notebook runs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.conftest import ROOT

NOTEBOOK = ROOT / "docs" / "tutorial" / "any_length.ipynb"


def require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install '.[docs]'")


class References(HTMLParser):
    """`loaded`: what a browser fetches by itself; `links`: where a click leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(found.get("href", ""))
        elif "src" in found:
            self.loaded.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("mkdocs", "material")
    folder = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_and_no_link_leads_nowhere(site: Path) -> None:
    pages = {path: References(path.read_text("utf-8")) for path in site.rglob("*.html")}
    documents = [p for p in (ROOT / "docs").rglob("*.md") if p.name != "README.md"]
    made = {path.relative_to(site).with_suffix(".md") for path in pages}
    assert {p.relative_to(ROOT / "docs") for p in documents} <= made
    broken = []
    for path, page in pages.items():
        for target in page.links + page.loaded:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not place.exists():
                broken.append(f"{path.name}: {target}")
            elif parts.fragment and place.suffix == ".html":
                known = pages[place].ids if place in pages else {parts.fragment}
                if unquote(parts.fragment) not in known:
                    broken.append(f"{path.name}: {target}")
    assert broken == []


@pytest.mark.slow
def test_the_first_page_is_the_readme_with_the_list_of_pages(site: Path) -> None:
    text = (site / "index.html").read_text("utf-8")
    page = References(text)
    assert "From model to board" in text
    assert "pictures/sizes.svg" in page.loaded
    assert {"tutorial/keyword_spotting.html", "reference/options.html"} <= set(page.links)
    for named in re.findall(r"<a href=[^>]*>([^<]*)</a>", text):
        assert not named.endswith((".md", ".ipynb", ".html")), named
    assert not (site / "repository" / "README.html").exists()


@pytest.mark.slow
def test_the_site_loads_nothing_from_a_network(site: Path) -> None:
    outside = []
    for path in site.rglob("*.html"):
        page = References(path.read_text("utf-8"))
        outside += [f"{path.name}: {r}" for r in page.loaded if urlsplit(r).netloc]
    for path in site.rglob("*.css"):
        text = path.read_text("utf-8")
        outside += re.findall(r"url\(\W*https?://[^)]*\)|@import[^;]*https?://[^;]*", text)
    assert outside == []


@pytest.mark.slow
@pytest.mark.long
def test_the_notebook_runs(tmp_path: Path) -> None:
    require("nbclient", "ipykernel")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = (
        "import nbclient, nbformat, sys\n"
        "book = nbformat.read(sys.argv[1], as_version=4)\n"
        "assert all(cell.get('outputs', []) == [] for cell in book.cells), 'outputs are not kept'\n"
        "done = nbclient.NotebookClient(book, timeout=300).execute()\n"
        "print(sum(bool(cell.get('outputs')) for cell in done.cells))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, NOTEBOOK],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) == 5
    assert (tmp_path / "build" / "notebook" / "memory.svg").is_file()
