"""Makes pages of the repository that lie outside docs/ pages of the site.

MkDocs calls the functions below while it builds. A link from a page to `../README.md` or
`../../examples/gesture/README.md` leads to the page's copy under `repository/`; other files that
pages link to are copied as they are.
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
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"(```.*?^```|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def _home(uri: str) -> str:
    """The path in the repository that a page of the site has."""
    if uri.startswith(f"{OUTSIDE}/"):
        return uri.removeprefix(f"{OUTSIDE}/")
    return f"docs/{uri}"


def _uri(path: str) -> str:
    """The place on the site of a path in the repository."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{OUTSIDE}/{path}"


def _targets(path: str) -> Iterable[str]:
    """Files of the repository that a page links to."""
    for part in CODE.split((ROOT / path).read_text(encoding="utf-8"))[::2]:
        for _, target, _ in LINK.findall(part):
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if "://" not in target and (ROOT / found).is_file():
                yield found


def on_config(config: Any) -> Any:
    """Behind the pages that mkdocs.yml puts in order come the others of the same folder, so that a
    new page needs no line."""
    for section in config.nav:
        for pages in section.values() if isinstance(section, dict) else ():
            folder = ROOT / "docs" / posixpath.dirname(pages[0])
            found = sorted(f"{folder.name}/{page.name}" for page in folder.glob("*.md"))
            pages += [page for page in found if page not in pages]
    return config


def on_files(files: Files, config: Any, **_: Any) -> Files:
    known = {_home(file.src_uri) for file in files}
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
    home = _home(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        start, target, end = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        if "://" in target or files.get_file_from_path(_uri(path)) is None:
            return match[0]
        return f"{start}{posixpath.relpath(_uri(path), here or '.')}{end}"

    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts)
