# SPDX-License-Identifier: Apache-2.0
"""The one place of the version number."""

from __future__ import annotations

VERSION = "0.1.0"
