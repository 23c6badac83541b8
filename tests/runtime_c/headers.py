# SPDX-License-Identifier: Apache-2.0
"""One C file that includes all headers of the runtime."""

from __future__ import annotations

import re

from tests.conftest import ROOT

HEADERS = ROOT / "runtime_c" / "include"


def all_headers(without: str = "") -> str:
    """Lines that include the headers that no other header includes, and so all others where a
    processor has them. `without`: the beginning of names that are left out."""
    texts = {path.name: path.read_text() for path in sorted(HEADERS.glob("raot/*.h"))}
    included = {
        name for text in texts.values() for name in re.findall(r'^#include "(.*)"', text, re.M)
    }
    names = [n for n in texts if n not in included and not (without and n.startswith(without))]
    return "".join(f'#include "raot/{name}"\n' for name in names)
