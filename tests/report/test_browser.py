# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: nothing is fetched, nothing overflows, text can be read in light and
dark, every block says its name, and it prints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.report import write_report
from tests.conftest import NO_BROWSER
from tests.models.encoder import encoder
from tests.report.test_report import hostile_model

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
READABLE = 4.5
"""Contrast that WCAG 2.2, success criterion 1.4.3, asks for."""

CONTRASTS = """
() => {
  const levels = (c) => c.match(/[0-9.]+/g).slice(0, 3).map(Number).map((v) => {
    v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  const light = (c) => { const [r, g, b] = levels(c);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05); };
  const paper = getComputedStyle(document.body).backgroundColor;
  const found = [];
  for (const e of document.querySelectorAll("p, td, th, figcaption, h1, h2"))
    found.push([e.textContent.slice(0, 40), ratio(getComputedStyle(e).color, paper)]);
  for (const text of document.querySelectorAll("svg text")) {
    const rect = text.parentElement.querySelector(":scope > rect");
    const under = rect ? getComputedStyle(rect).fill : paper;
    found.push([text.textContent, ratio(getComputedStyle(text).fill, under)]);
  }
  return found;
}
"""

OVERHANGS = """
() => [...document.querySelectorAll("g > rect + text")].filter((text) => {
  const inside = text.parentElement.querySelector("rect").getBBox(), box = text.getBBox();
  return text.textContent && (box.x + box.width > inside.x + inside.width + 1
                              || box.y + box.height > inside.y + inside.height + 3);
}).map((text) => text.textContent)
"""

POINTED = """
() => [...document.querySelectorAll("g.block, .ladder g")].map((block) => {
  const rect = block.querySelector("rect");
  const wide = rect.getBBox(); if (wide.width < 1 || wide.height < 1) return true;
  block.scrollIntoView({block: "center", inline: "center"});
  const box = rect.getBoundingClientRect();
  const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return hit !== null && hit.parentElement.querySelector("title") !== null;
})
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    programs = [path for name in BROWSERS if (path := shutil.which(name))]
    if not programs:
        pytest.skip(NO_BROWSER)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        started = engine.chromium.launch(
            executable_path=programs[0], args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = encoder(width=16, heads=2, layers=2, hidden=24)
    options = Options(bounds={"n": (1, 40), "batch": (1, 2)}, name="enc")
    project = driver.compile_model(model, "mps2-an386", options)
    return write_report(project, tmp_path_factory.mktemp("report") / "report.html")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_everything_can_be_read(browser: Any, page_file: Path, scheme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(page_file.as_uri())
    assert asked == [page_file.as_uri()]
    assert said == []
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 50
    assert [row for row in contrasts if row[1] < READABLE] == []
    assert page.evaluate(OVERHANGS) == []
    pointed = page.evaluate(POINTED)
    assert len(pointed) > 20 and all(pointed)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.slow
def test_sections_stand_below_each_other_and_print(browser: Any, page_file: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.goto(page_file.as_uri())
    tops = page.evaluate(
        "[...document.querySelectorAll('h2')].map((h) => h.getBoundingClientRect().top)"
    )
    assert len(tops) >= 10 and all(upper + 20 < lower for upper, lower in pairwise(tops))
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert [row for row in page.evaluate(CONTRASTS) if row[1] < READABLE] == []
    hidden = page.evaluate(
        "[...document.querySelectorAll('.scroll')]"
        ".filter((e) => e.scrollHeight > e.clientHeight + 1).length"
    )
    assert hidden == 0
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()


@pytest.mark.slow
def test_names_from_a_model_are_not_run(browser: Any, tmp_path: Path) -> None:
    project = driver.compile_model(hostile_model(), "host", Options(bounds={"n": (1, 5)}))
    path = write_report(project, tmp_path / "report.html")
    page = browser.new_page()
    opened: list[str] = []

    def opens(dialog: Any) -> None:
        opened.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", opens)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert opened == [] and asked == [path.as_uri()]
    assert page.evaluate("document.scripts.length + document.images.length") == 0
    page.close()
