# SPDX-License-Identifier: Apache-2.0
"""C functions of the user that calls of the graph run.

    %y: f32[n, 40], %y.work: f32[40] = call_extern(%x, %gain) {extern=@rms, rows=n, width=40}

The arguments are what the C function reads; the results are what it writes, scratch last;
the attributes give its scalar parameters by their C names. An `Extern` says which of the
C parameters is which, so a call is complete without knowing how it came about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from relax_aot.ir.lexer import quoted
from relax_aot.ir.types import DType, TensorType


class Role(Enum):
    """What a parameter of the C function is for."""

    INPUT = "in"
    OUTPUT = "out"
    UPDATE = "update"
    """Read and written: one argument of the call goes in, one result comes out."""
    SCRATCH = "scratch"
    VALUE = "value"


class Returns(Enum):
    """What the function's return value means."""

    NOTHING = "nothing"
    IGNORED = "ignored"
    STATUS = "status"
    """An `enum raot_status`: the run ends with it unless it is RAOT_OK."""
    CODE = "code"
    """An integer: the run ends with RAOT_ERR_EXTERN unless it is 0."""


@dataclass(frozen=True, slots=True)
class ExternParam:
    """A parameter, in the C prototype's order.

    `c_type` is the element type of a buffer or the type of a value. `type` is the tensor as
    the author declared it, over symbols of the extern's own; None for a value.
    """

    name: str
    role: Role
    c_type: str
    type: TensorType | None = None

    def __str__(self) -> str:
        words = [quoted(self.name) + ":", self.role.value, self.c_type]
        return " ".join([*words, str(self.type)] if self.type else words)


@dataclass(frozen=True, slots=True)
class Extern:
    """`name` is unique in the module; `header` is the file that declares `function`."""

    name: str
    function: str
    header: str
    params: tuple[ExternParam, ...]
    returns: Returns = Returns.NOTHING

    def of_role(self, *roles: Role) -> tuple[ExternParam, ...]:
        return tuple(param for param in self.params if param.role in roles)

    @property
    def read(self) -> tuple[ExternParam, ...]:
        """In the order of a call's arguments."""
        return self.of_role(Role.INPUT, Role.UPDATE)

    @property
    def written(self) -> tuple[ExternParam, ...]:
        """In the order of a call's results: outputs and what is updated, then scratch."""
        return self.of_role(Role.OUTPUT, Role.UPDATE) + self.of_role(Role.SCRATCH)

    def problems(self, reads: int, writes: int, names: set[str]) -> Iterator[str]:
        """What is wrong with a call that gives so many arguments and results, and these values."""
        if reads != len(self.read):
            yield f"extern @{self.name} reads {len(self.read)} values, the call passes {reads}"
        if writes != len(self.written):
            yield f"extern @{self.name} writes {len(self.written)} values, the call has {writes}"
        values = {param.name for param in self.of_role(Role.VALUE)}
        if names != values:
            yield f"extern @{self.name} takes the values {sorted(values)}, not {sorted(names)}"

    @property
    def fallible(self) -> bool:
        return self.returns in (Returns.STATUS, Returns.CODE)

    def __str__(self) -> str:
        """`extern @rms = fast_rms("rms.h") (x: in float f32[m, k]) -> nothing`."""
        function = f"{quoted(self.function)}({json.dumps(self.header)})"
        params = ", ".join(map(str, self.params))
        return f"extern @{quoted(self.name)} = {function} ({params}) -> {self.returns.value}"


INTEGER_RANGES = {
    "bool": (0, 1), "_Bool": (0, 1),
    "int8_t": (-(2**7), 2**7 - 1), "uint8_t": (0, 2**8 - 1),
    "int16_t": (-(2**15), 2**15 - 1), "uint16_t": (0, 2**16 - 1),
    "int32_t": (-(2**31), 2**31 - 1), "uint32_t": (0, 2**32 - 1),
    "int64_t": (-(2**63), 2**63 - 1), "uint64_t": (0, 2**64 - 1),
    "int": (-(2**31), 2**31 - 1), "unsigned int": (0, 2**32 - 1),
    "long": (-(2**31), 2**31 - 1), "unsigned long": (0, 2**32 - 1),
    "long long": (-(2**63), 2**63 - 1), "unsigned long long": (0, 2**64 - 1),
    "size_t": (0, 2**32 - 1), "ptrdiff_t": (-(2**31), 2**31 - 1),
}  # fmt: skip
"""What the C types of values hold on every target: `long` and `size_t` have 32 bits on some."""
FLOATS = {"float": DType.F32, "double": DType.F64}
