# SPDX-License-Identifier: Apache-2.0
"""The lengths of growing states on the host, and the calls that lead to a length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from relax_aot.emit.interface import DimField, Interface
from relax_aot.ir.dims import Dim
from relax_aot.verify.program import lengths_after
from relax_aot.verify.samples import SizeChoiceError, allowed
from relax_aot.verify.sizes import InputError, given_sizes

ERR_SIZE = -4


class Holder(Protocol):
    """A runner whose model has growing states."""

    def get_length(self, index: int) -> int: ...

    def truncate_length(self, index: int, length: int) -> int: ...


def lengths_of(holder: Holder, fields: Sequence[DimField], *, exists: bool) -> dict[str, int]:
    """The lengths by the names of the source; those of a state that does not exist are what
    init sets."""
    return {
        field.source: holder.get_length(index) if exists else field.first
        for index, field in enumerate(fields)
    }


def truncated(
    holder: Holder, fields: Sequence[DimField], requested: Mapping[str, Any], *, exists: bool
) -> list[tuple[str, int]]:
    """Truncate each length; the names in C that were refused, with their statuses."""
    wanted = given_sizes(fields, requested)
    refused = []
    for index, field in enumerate(fields):
        if field.source in wanted:
            length = wanted[field.source]
            if abs(length) >= 2**31:
                raise InputError(f"the length {field.source} is {length}; sizes in C are int32_t")
            if not exists and field.first and length != field.first:
                raise InputError(
                    f"the first call creates the state, with {field.source}={field.first}: truncate"
                    " it after a call"
                )
            empty = 0 if length == field.first else ERR_SIZE
            status = holder.truncate_length(index, length) if exists else empty
            if status:
                refused.append((field.c_name, status))
    return refused


def calls_to(interface: Interface, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes (by symbol) of calls that append to an empty state until it has the lengths in
    `sizes`, or more; other sizes are those of `sizes` where they do not matter."""
    names = [field.symbol.name for field in interface.lengths]
    return calls_between(interface, dict.fromkeys(names, 0), sizes)


def calls_between(
    interface: Interface, held: Mapping[str, int], sizes: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """The same from the lengths `held` on."""
    held = dict(held)
    while (missing := max((sizes[n] - length for n, length in held.items()), default=0)) > 0:
        call = _appending(interface, {**sizes, **held}, missing)
        if call is None:
            wanted = ", ".join(f"{name}={sizes[name]}" for name in held)
            raise SizeChoiceError(f"no calls lead to {wanted}: the state stays at {held}")
        yield call
        held = after(interface, call)


def after(interface: Interface, sizes: Mapping[str, int]) -> dict[str, int]:
    """The lengths after a call, by symbol."""
    found = lengths_after(interface, sizes)
    return {field.symbol.name: found[field.source] for field in interface.lengths}


def _appending(
    interface: Interface, sizes: Mapping[str, int], missing: int
) -> dict[str, int] | None:
    """The sizes with as many new rows as are missing, else fewer, else more."""
    for call in fitting(interface, sizes, missing):
        if any(length > sizes[name] for name, length in after(interface, call).items()):
            return call
    return None


def fitting(interface: Interface, sizes: Mapping[str, int], rows: int) -> Iterator[dict[str, int]]:
    """The sizes that a call accepts, with `rows` new rows, with fewer, and with more."""
    steps = [
        field.symbol.growth.after - Dim.of(field.symbol.name)
        for field in interface.lengths
        if field.symbol.growth is not None
    ]
    used = frozenset[str]().union(*(step.symbols for step in steps))
    free = [field.symbol for field in interface.dims if field.symbol.name in used]
    highest = max((symbol.high for symbol in free), default=0)
    for value in (*range(min(rows, highest), -1, -1), *range(rows + 1, highest + 1)):
        chosen = {s.name: min(max(value, s.low), s.high) for s in free}
        call = {**sizes, **chosen}
        if _within(interface, call) and allowed(interface, call):
            yield call
        if not free:
            return


def _within(interface: Interface, sizes: Mapping[str, int]) -> bool:
    return all(f.symbol.low <= sizes[f.symbol.name] <= f.symbol.high for f in interface.sizes)
