# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can cause, and mend."""

from __future__ import annotations


class RelaxAotError(Exception):
    """Its text says what was expected, what came, where, and the way out."""


class InternalError(RelaxAotError):
    """An error of relax_aot itself: the input may be right."""
