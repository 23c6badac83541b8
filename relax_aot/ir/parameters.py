# SPDX-License-Identifier: Apache-2.0
"""Numbers of a program that new weights may change: zero points, scales, shifts and limits.

Where weights are replaceable, the code may depend on the range of such a number, never on its
value. So comparisons are answered by the range alone, and one that the range leaves open raises
`Undecided`. Arithmetic with integers keeps track of the formula; arrays see the value.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack, unpack
from typing import Self


class Undecided(Exception):
    """The code would depend on the value of a parameter."""


class Parameter(int):
    """`scale * symbol + offset`, with the symbol in `low..high`, both included."""

    symbol: str
    scale: int
    offset: int
    limits: tuple[int, int]

    @classmethod
    def of(
        cls, value: int, symbol: str, limits: tuple[int, int], scale: int = 1, offset: int = 0
    ) -> Self:
        made = super().__new__(cls, value)
        made.symbol, made.limits, made.scale, made.offset = symbol, limits, scale, offset
        return made

    @property
    def value(self) -> int:
        return int.__int__(self)

    @property
    def range(self) -> tuple[int, int]:
        ends = [self.scale * end + self.offset for end in self.limits]
        return min(ends), max(ends)

    def _with(self, value: int, scale: int, offset: int) -> int:
        if scale == 0:
            return value
        return self.of(value, self.symbol, self.limits, scale, offset)

    @property
    def words(self) -> tuple[int, int]:
        """Limits of the number as it is stored."""
        return self.range

    def __repr__(self) -> str:
        return f"{self.value}@{self.scale}*{self.symbol}+{self.offset}"

    def __str__(self) -> str:
        return str(self.value)

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        """Equal for all values."""
        same = isinstance(other, Parameter) and self.symbol == other.symbol
        return same and repr(self) == repr(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        """A parameter may always be other than 0."""
        return True

    def __lt__(self, other: int) -> bool:
        low, high = self.range
        least, most = other.range if isinstance(other, Parameter) else (other, other)
        if high < least:
            return True
        if low < most:
            raise Undecided(f"{self!r} < {other!r}")
        return False

    def __ge__(self, other: int) -> bool:
        return not self < other

    def __le__(self, other: int) -> bool:
        return self < other + 1

    def __gt__(self, other: int) -> bool:
        return not self <= other

    def __neg__(self) -> int:
        return self * -1

    def __add__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        if not isinstance(other, Parameter):
            return self._with(self.value + other, self.scale, self.offset + other)
        if other.symbol != self.symbol:
            raise Undecided(f"{self!r} + {other!r}")
        scale, offset = self.scale + other.scale, self.offset + other.offset
        return self._with(self.value + other.value, scale, offset)

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return self + -other if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: int) -> int:
        return -self + other if isinstance(other, int) else NotImplemented

    def __mul__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        if isinstance(other, Parameter):
            raise Undecided(f"{self!r} * {other!r}")
        return self._with(self.value * other, self.scale * other, self.offset * other)

    __rmul__ = __mul__

    def __lshift__(self, other: int) -> int:
        raise Undecided(f"{self!r} << {other!r}")

    def __rlshift__(self, other: int) -> int:
        raise Undecided(f"{other!r} << {self!r}")

    def __mod__(self, other: int) -> int:
        if self.scale % other:
            raise Undecided(f"{self!r} % {other}")
        return self.offset % other

    def __floordiv__(self, other: int) -> int:
        if self.scale % other:
            raise Undecided(f"{self!r} // {other}")
        return self._with(self.value // other, self.scale // other, self.offset // other)


class FloatParameter(float):
    """A number of 32 bits; its magnitude is at most `most`."""

    symbol: str
    most: float

    @classmethod
    def of(cls, value: float, symbol: str, most: float) -> Self:
        made = super().__new__(cls, value)
        made.symbol, made.most = symbol, most
        return made

    @property
    def value(self) -> float:
        return float.__float__(self)

    @property
    def words(self) -> tuple[int, int]:
        """Limits of the number as it is stored: positive floats grow with their words."""
        return 1, int(unpack("i", pack("f", self.most))[0])

    def __repr__(self) -> str:
        return f"{self.value!r}@{self.symbol}"

    def __str__(self) -> str:
        return repr(self.value)

    __hash__ = float.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloatParameter) and repr(self) == repr(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return True


def whole(number: float) -> int:
    """The value of an integer literal."""
    return number if isinstance(number, Parameter) else int(number)


def fraction(number: float) -> float:
    """The value of a float literal."""
    return number if isinstance(number, FloatParameter) else float(number)


def surely(test: Callable[[], bool]) -> bool:
    """Whether something holds whatever the values of parameters are."""
    try:
        return test()
    except Undecided:
        return False


def plain(number: int) -> int:
    """The value itself: whoever asks makes sure that it does not decide what the code is."""
    return number.value if isinstance(number, Parameter) else number
