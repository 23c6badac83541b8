# SPDX-License-Identifier: Apache-2.0
"""Examples of what a pass does, in the text form; the tests run every one of them.

A text is a whole module, or `symbol`, `const` and `kernel` lines alone. A main function that
calls each kernel is then added, and only kernels are shown.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """`before` becomes `after`, or stays as it is where `after` is empty.

    In `after`, `...` stands for any text in a line, and as a line for any number of lines.
    """

    why: str
    before: str
    after: str = ""
    refused: str = ""
    """The reason for leaving `before` as it is, of passes that report reasons."""
    target: str = ""
    """The target that a schedule is made for."""
