"""cppcheck's MISRA add-on finds no required rule broken but those that the reference lists."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from relax_aot import driver
from tests.conftest import ROOT
from tests.trust.proven import PROVEN

PAGE = ROOT / "docs" / "reference" / "misra.md"
FEW = ("mlp",)
MOST = 10
"""Required rules that may be on the list."""


@cache
def categories() -> dict[str, frozenset[str]]:
    rows = re.findall(r"^\| (mandatory|advisory) \| (.*) \|$", PAGE.read_text(), re.M)
    return {name: frozenset(rules.split(", ")) for name, rules in rows}


@cache
def listed() -> frozenset[str]:
    return frozenset(re.findall(r"^\| ([\d.]+) \| required \| \S", PAGE.read_text(), re.M))


def test_the_list_is_short() -> None:
    assert 0 < len(listed()) <= MOST
    assert not listed() & (categories()["mandatory"] | categories()["advisory"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.long) for n in PROVEN]
)
def test_no_other_required_rule(name: str, tmp_path: Path) -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("cppcheck is not installed")
    subject = PROVEN[name]
    project = driver.compile_model(subject.make(), "host", subject.options)
    folder = project.write(tmp_path / "out")
    configurations = ["--max-configs=1"] if name in FEW else []
    done = subprocess.run(
        ["cppcheck", "--addon=misra", "--enable=style", "--std=c11", *configurations, "-I.", "-q",
         *project.units],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, list[str]] = {}
    for place, rule in re.findall(r"^(\S+:\d+):.*\[misra-c2012-([\d.]+)\]$", done.stderr, re.M):
        found.setdefault(rule, []).append(place)
    assert found, "the add-on said nothing at all"
    broken = {
        rule: places[:3]
        for rule, places in found.items()
        if rule not in categories()["advisory"] | listed()
    }
    assert not broken
