# SPDX-License-Identifier: Apache-2.0
"""The C of a call of a micro-kernel. Sizes beyond eight arguments are one struct, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relax_aot.emit.c_names import Names
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Micro


def micro_call(
    call: Micro,
    operands: Sequence[str],
    size: Callable[[Dim], str],
    claimed: Names,
) -> Iterator[str]:
    """Lines of C. Where kernels share a function, a table in flash is one parameter."""
    kernel = call.kernel
    if not kernel.struct:
        arguments = [*operands, *map(size, call.sizes)]
        yield f"{call.name}({', '.join(arguments)});"
        return
    struct = f"const struct {kernel.struct}"
    if kernel.in_flash and len(call.sizes) == 1:
        address = size(call.sizes[0])
    else:
        name = claimed.claim("sizes")
        yield f"{'static ' * kernel.in_flash}{struct} {name} = {{"
        for member, dim in zip(kernel.sizes, call.sizes, strict=True):
            yield f"    .{member} = {size(dim)},"
        yield "};"
        address = f"&{name}"
    yield f"{call.name}({', '.join([*operands, address])});"
