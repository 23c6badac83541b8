# SPDX-License-Identifier: Apache-2.0
"""What of a model cannot be compiled, gathered so that one run finds every reason."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from relax_aot.errors import InternalError, RelaxAotError
from relax_aot.frontends import ModelError, UnsupportedError

BROKEN = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip
"""What a handler raises for a node that breaks the rules of its operator (wrong counts, ranks,
kinds of attributes), and what an error in the handler raises."""


class Refused(Exception):
    """Why one node cannot be compiled, and the way out; all of a model's are collected."""


class Lost(Exception):
    """A value that a refused node would have made: the numbers of the refusals behind it."""

    def __init__(self, refusals: frozenset[int]) -> None:
        super().__init__(refusals)
        self.refusals = refusals


class Refusals:
    """The refusals of one model, each once; a number stands for each."""

    def __init__(self, model: str, verb: str) -> None:
        """`verb` is the command that lists what can be compiled."""
        self.model = model
        self.verb = verb
        self.lines: list[str] = []

    def add(self, label: str, reason: str) -> frozenset[int]:
        line = f"{label}: {reason}"
        if line not in self.lines:
            self.lines.append(line)
        return frozenset({self.lines.index(line)})

    def stop(self, numbers: Iterable[int]) -> None:
        """Raise UnsupportedError with all of these, where there is any."""
        lines = "".join(f"\n  {self.lines[number]}" for number in sorted(numbers))
        if lines:
            raise UnsupportedError(
                f"{self.model} cannot be compiled:{lines}\n"
                f"`{self.verb}` lists the operators that can, with their limits; a package of yours"
                " may bring others (docs/how-to/extend.md)."
            )

    def stop_all(self) -> None:
        self.stop(range(len(self.lines)))

    @contextmanager
    def located(
        self, label: str, breach: Callable[[], str | None] = lambda: None
    ) -> Iterator[None]:
        """Errors that pass say in which node they arose. `breach` says which rule of its operator
        the node breaks: "" for none, None if unknown."""
        where = f"in node {label} of {self.model}"
        try:
            yield
        except RelaxAotError as error:
            if not any(note.startswith("in node") for note in getattr(error, "__notes__", ())):
                error.add_note(where)
            raise
        except BROKEN as e:
            found = _unexpected(e, breach())
            found.add_note(where)
            raise found from e


def _unexpected(error: Exception, breach: str | None) -> RelaxAotError:
    """Blames the model only for a rule that it breaks."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    raised = f"{type(error).__name__}: {error}, {Path(frame.filename).name}:{frame.lineno}"
    if breach:
        return ModelError(f"a node breaks the rules of its operator: {breach}")
    if breach is None:
        return ModelError(
            f"a node breaks the rules of its operator, or relax_aot has an error ({raised});"
            " if the model runs elsewhere, report it with `relax-aot bug`"
        )
    return InternalError(
        f"internal error of relax_aot ({raised}); the node keeps the rules of its operator:"
        " report it with `relax-aot bug`"
    )
