# SPDX-License-Identifier: Apache-2.0
"""Adds pages from outside docs/ to the site.

MkDocs calls the functions below while it builds. The first page is the repository's README
followed by the list of pages in docs/README.md. Other pages outside docs/, such as
`examples/gesture/README.md`, are copied to `repository/`, and so are other files that pages link
to.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = "repository"
FIRST = "README.md"
"""The first page, as a path on the site and as a path in the repository."""
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"(```.*?^```|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def _home(uri: str) -> str:
    """The path in the repository of a page of the site."""
    if uri.startswith(f"{OUTSIDE}/"):
        return uri.removeprefix(f"{OUTSIDE}/")
    return f"docs/{uri}"


def _uri(path: str) -> str:
    """The path on the site of a path in the repository."""
    if path == FIRST:
        return FIRST
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{OUTSIDE}/{path}"


def _targets(path: str) -> Iterable[str]:
    """Files of the repository that a page links to."""
    for part in CODE.split((ROOT / path).read_text(encoding="utf-8"))[::2]:
        for _, target, _ in LINK.findall(part):
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if "://" not in target and (ROOT / found).is_file():
                yield found


def on_config(config: Any) -> Any:
    """Append the pages of each folder that mkdocs.yml does not list."""
    for section in config.nav:
        for pages in section.values() if isinstance(section, dict) else ():
            folder = ROOT / "docs" / posixpath.dirname(pages[0])
            found = sorted(f"{folder.name}/{page.name}" for page in folder.glob("*.md"))
            pages += [page for page in found if page not in pages]
    return config


def on_files(files: Files, config: Any, **_: Any) -> Files:
    known = {_home(file.src_uri) for file in files} | {FIRST}
    waiting = [path for path in known if path.endswith(".md")]
    while waiting:
        for path in _targets(waiting.pop()):
            if path in known:
                continue
            known.add(path)
            files.append(File.generated(config, _uri(path), abs_src_path=str(ROOT / path)))
            if path.endswith(".md"):
                waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    uri = page.file.src_uri
    if uri == FIRST:
        readme = _with_links_of_site((ROOT / FIRST).read_text("utf-8"), FIRST, uri, files)
        pages = re.sub(r"^#", "##", markdown, flags=re.MULTILINE)
        return readme + "\n" + _with_links_of_site(pages, _home(uri), uri, files)
    return _with_links_of_site(markdown, _home(uri), uri, files)


def _with_links_of_site(markdown: str, home: str, uri: str, files: Files) -> str:
    """The text of the file `home` of the repository, with links as they are on the page `uri`."""

    def moved(match: re.Match[str]) -> str:
        start, target, end = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        if "://" in target or files.get_file_from_path(_uri(path)) is None:
            return match[0]
        return f"{start}{posixpath.relpath(_uri(path), posixpath.dirname(uri) or '.')}{end}"

    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts)
