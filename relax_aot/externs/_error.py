# SPDX-License-Identifier: Apache-2.0
"""What a user can get wrong about externs."""

from __future__ import annotations

from relax_aot.errors import RelaxAotError


class ExternError(RelaxAotError):
    """A table of externs, its C header, or the model does not fit the others."""
