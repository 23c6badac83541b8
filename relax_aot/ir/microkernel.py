# SPDX-License-Identifier: Apache-2.0
"""The contract of a micro-kernel: a C function that schedules call on packed operands.

After Exo's instructions, the meaning is the body: a kernel of the loop level whose buffers are the
operands and whose symbols are the sizes. Everything else follows from it. The shape of an operand
is its access range: the elements that the C function may read or write from the operand's address
on. A written operand holds what the body stores; what the body does not store is undefined, unless
the body reads the operand. Instruction sets are listed in `relax_aot/microkernels/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from relax_aot.ir.dims import ZERO, Dim

if TYPE_CHECKING:
    from relax_aot.ir.loops import Buffer, Kernel


@dataclass(frozen=True, slots=True)
class Range:
    """Values of a size or an operand: one of `choices`, or `low..high` in multiples of `step`
    above `low`. Where `high` is None there is no limit, and samples go up to `sampled`. Those of
    `free` choices are samples only."""

    choices: tuple[Dim, ...] = ()
    low: Dim = ZERO
    high: Dim | None = None
    sampled: Dim = ZERO
    step: int = 1
    free: bool = False

    def may_be(self, size: int) -> bool:
        """Whether a constant may be one of them; ends that are no constants allow all."""
        if self.free:
            return True
        if self.choices:
            return any(not choice.is_constant or choice.constant == size for choice in self.choices)
        low, high = self.low, self.high
        below = low.is_constant and size < low.constant
        return not below and not (high is not None and high.is_constant and size > high.constant)

    def __str__(self) -> str:
        if self.free:
            return "any"
        if self.choices:
            return " or ".join(map(str, self.choices))
        if self.high == self.low:
            return str(self.low)
        high = "" if self.high is None else str(self.high)
        return f"{self.low}..{high}" + (f" by {self.step}" if self.step > 1 else "")


@dataclass(frozen=True, slots=True)
class Contract:
    """`sizes`: in the order of the C parameters; `values`: what elements of operands may be, where
    not every number of the type."""

    sizes: dict[str, Range]
    meaning: Kernel
    values: dict[str, Range]


@dataclass(frozen=True)
class MicroKernel:
    """`name`: of the C function; `header`: the file that defines it, and `source` its text where
    the runtime does not have it; `describe`: gives its contract, called when it is first read, as
    most runs of the compiler need few of them; `struct`: the C struct that holds the sizes, where
    they are more than parameters allow; `in_flash`: they are constants, and the C function reads
    them where they lie."""

    name: str
    header: str = field(compare=False)
    describe: Callable[[], Contract] = field(compare=False, repr=False)
    struct: str = field(default="", compare=False)
    in_flash: bool = field(default=False, compare=False)
    source: str = field(default="", compare=False, repr=False)

    @cached_property
    def contract(self) -> Contract:
        return self.describe()

    @property
    def sizes(self) -> dict[str, Range]:
        return self.contract.sizes

    @property
    def meaning(self) -> Kernel:
        return self.contract.meaning

    @property
    def values(self) -> dict[str, Range]:
        return self.contract.values

    @property
    def device(self) -> bool:
        """Whether it is CUDA, which only devices run."""
        return self.header.endswith(".cuh")

    @property
    def operands(self) -> tuple[Buffer, ...]:
        """In the order of the C parameters: written ones, read ones, scratch."""
        return self.meaning.outputs + self.meaning.inputs + self.meaning.scratch

    @property
    def updated(self) -> frozenset[str]:
        """Written operands that the meaning reads: they keep what is not stored."""
        return self.meaning.read & frozenset(self.written)

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(buffer.name for buffer in self.meaning.outputs + self.meaning.scratch)
