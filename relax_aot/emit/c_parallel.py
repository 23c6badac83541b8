# SPDX-License-Identifier: Apache-2.0
"""Parallel loops as C: some iterations as a function, and a call that shares them among threads.

The function takes what the loop uses as parameters, as every other does. A second function unpacks
them from a struct, which is what `raot_parallel` hands to each thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.emit.c_expr import Scope
from relax_aot.emit.c_names import Names
from relax_aot.emit.c_outline import role_of, written_buffers
from relax_aot.ir.axes import CORE
from relax_aot.ir.loops import Buffer, For, Kernel, Stmt
from relax_aot.ir.rewrite import map_statements
from relax_aot.scheduling.threads import AXIS, Chunk

TEAM = "team"
"""The threads, in functions that have parallel loops."""
NAMES = (TEAM, "first", "last", "loop", "worker")
"""What the functions of this file call their own."""


def serial(kernel: Kernel, *, threads: bool) -> Kernel:
    """The kernel without loops that C runs one iteration after the other: those on other axes
    than threads, and those of a kernel that can fail."""
    if not kernel.parallel:
        return kernel
    kept = AXIS if threads and not kernel.fallible else ""

    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.axis in ("", kept):
            return stmt
        return replace(stmt, axis="")

    return replace(kernel, body=map_statements(kernel.body, rule))


@dataclass(frozen=True, slots=True)
class Used:
    """What a part of a function uses: scalars, then buffers, those that it writes last."""

    scalars: tuple[str, ...]
    buffers: tuple[tuple[str, str], ...]
    """Name in the kernel, and in C."""
    declarations: tuple[str, ...]
    written: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.scalars, *(c_name for _, c_name in self.buffers))


def used_in(
    text: str,
    body: tuple[Stmt, ...],
    scope: Scope,
    declared: Mapping[str, str],
    types: Mapping[str, str],
) -> Used:
    """What `text`, the C of `body`, uses from outside. `declared`: scalars that are not int32_t;
    `types`: of elements, by the name of the buffer in the kernel."""
    words = set(re.findall(r"\w+", text))
    scalars = [name for name in dict.fromkeys(scope.names.values()) if name in words]
    written = written_buffers(body)
    buffers = {name: c for name, c in scope.buffers.items() if c in words}
    order = sorted(buffers, key=lambda name: name in written)
    declarations = [declared.get(name, f"int32_t {name}") for name in scalars]
    declarations += [
        f"{'' if name in written else 'const '}{types[name]} *restrict {buffers[name]}"
        for name in order
    ]
    pairs = tuple((name, buffers[name]) for name in order)
    return Used(tuple(scalars), pairs, tuple(declarations), frozenset(written))


def chunk_c(chunk: Chunk, scope: Scope) -> str:
    """The number of iterations that a thread takes at a time."""
    if chunk.symbol and chunk.least > scope.bounds.range(chunk.symbol)[0]:
        return f"{scope.names[chunk.symbol]} < {chunk.least} ? INT32_MAX : {chunk.iterations}"
    return str(chunk.iterations)


def part_name(function: str, loop: For, claimed: Names) -> str:
    """Named by what the variable counts, if that has a name."""
    stem = re.sub(r"(_\d+)+$", "", loop.variable) or loop.variable
    role = role_of(stem)
    return claimed.claim(f"{function}_{'part' if role == stem else role}")


def functions(
    name: str, variable: str, kernel: str, used: Used, body: str, copies: Mapping[str, Buffer]
) -> str:
    """The struct and the two functions of a parallel loop. `copies`: core-local buffers, by their
    names in C."""
    members = [text.replace(" *restrict ", " *") for text in used.declarations]
    members += [f"size_t {c_name}_copy" for c_name in copies]
    arguments = [
        f"loop->{c_name}" + (f" + (size_t)worker * loop->{c_name}_copy" if c_name in copies else "")
        for c_name in used.names
    ]
    parameters = ", ".join([*used.declarations, "int32_t first", "int32_t last"])
    idle = "" if copies else "    (void)worker;\n"
    return (
        f"/* Iterations first to last - 1 of the loop over {variable} in {kernel}. */\n"
        f"RAOT_NOINLINE static void {name}({parameters})\n"
        f"{{\n{body}\n}}\n\n"
        f"struct {name}_loop {{\n" + "".join(f"    {member};\n" for member in members) + "};\n\n"
        f"static void {name}_chunk(const void *context, int32_t first, int32_t last,"
        " int32_t worker)\n"
        f"{{\n    const struct {name}_loop *const loop = context;\n\n{idle}"
        f"    {name}({', '.join([*arguments, 'first', 'last'])});\n}}\n\n"
    )


def is_copied(buffer: Buffer) -> bool:
    return buffer.scope == CORE
