# SPDX-License-Identifier: Apache-2.0
"""Finds templates/, boards/ and runtime_c/ in a checkout and in a wheel."""

from __future__ import annotations

from pathlib import Path


def data_dir(name: str) -> Path:
    """The wheel carries the folders in `_data/`; a checkout has them next to the package."""
    package = Path(__file__).resolve().parent
    packed = package / "_data" / name
    return packed if packed.is_dir() else package.parent / name
