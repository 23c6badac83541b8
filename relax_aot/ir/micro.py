"""What a micro-kernel is: a C function of the runtime with one contract, told also in Python.

A schedule writes the loops around calls of micro-kernels (`Micro` in loops.py). The record
of each gives what everybody else needs: types of its operands, how far it reads and writes,
how much it does, and what it computes. The C function and `run` give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from relax_aot.ir.types import DType

Array = NDArray[Any]
Sizes = Sequence[int]


@dataclass(frozen=True, slots=True)
class Operand:
    name: str
    dtype: DType
    written: bool = False


@dataclass(frozen=True, slots=True)
class MicroKernel:
    """`name`: of the C function, which takes the addresses of the operands and then the sizes;
    `header`: where it stands; `reach`: elements of each operand from its address on;
    `run`: writes what the C function writes, into flat arrays that long; `table`: the C struct
    of int16_t that holds the sizes, where they are not passed one by one."""

    name: str
    header: str
    operands: tuple[Operand, ...]
    sizes: tuple[str, ...]
    reach: Callable[[Sizes], Sequence[int]]
    multiply_adds: Callable[[Sizes], int]
    run: Callable[[Sequence[Array], Sizes], None]
    table: str = ""
