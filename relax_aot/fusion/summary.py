# SPDX-License-Identifier: Apache-2.0
"""What fusion did, in figures."""

from __future__ import annotations

from dataclasses import dataclass

from relax_aot.fusion.check import FusionError
from relax_aot.ir.dims import Dim, interval
from relax_aot.ir.graph import Module


@dataclass(frozen=True, slots=True)
class Traffic:
    """Kernel calls, and the bytes that they read and write at the upper bounds when each
    operand and each result is touched once."""

    calls: int
    bytes_moved: int

    @staticmethod
    def of(module: Module) -> Traffic:
        calls = bytes_moved = 0
        for function in module.functions:
            for call in function.body:
                if call.op != "call_kernel":
                    continue
                calls += 1
                outputs = len(module.kernel_table[call.ref("kernel")].outputs)
                for value in (*dict.fromkeys(call.inputs), *call.outs[:outputs]):
                    bytes_moved += _most(module, value.type.bytes)
        return Traffic(calls, bytes_moved)


@dataclass(frozen=True, slots=True)
class Apart:
    """Two kernels that pass a value and stay two, and why."""

    value: str
    writer: str
    reader: str
    reason: str


@dataclass(frozen=True, slots=True)
class Passed:
    """A value that one kernel leaves in memory for others, with its bytes at the upper bounds.
    `kept`: it is still there after fusion."""

    name: str
    type: str
    greatest_bytes: int
    kept: bool


@dataclass(frozen=True, slots=True)
class Member:
    """One call of a kernel before fusion. `into`: the first results of the calls that compute
    it now; several where it was worth computing twice."""

    kernel: str
    origin: str
    reads: tuple[str, ...]
    writes: tuple[Passed, ...]
    into: tuple[str, ...]

    @staticmethod
    def of(before: Module, after: Module) -> tuple[Member, ...]:
        """What became of each kernel call, in an order in which all calls that became one stand
        together. A value that is still there is computed by the call that
        writes it; one that vanished is computed wherever it is read."""
        home = {
            out.name: call.outs[0].name
            for function in after.functions
            for call in function.body
            if call.op == "call_kernel"
            for out in call.outs
        }
        order = {name: number for number, name in enumerate(dict.fromkeys(home.values()))}
        every = [call for function in before.functions for call in function.body]
        roots: dict[str, str] = {}  # views by what they look at
        for view in (call for call in every if call.op == "view"):
            source = view.inputs[0].name
            roots[view.out.name] = roots.get(source, source)
        calls = [call for call in every if call.op == "call_kernel"]
        readers: dict[str, set[str]] = {}
        found: list[Member] = []
        for call in reversed(calls):
            into = {home[out.name] for out in call.outs if out.name in home}
            into = into or {name for out in call.outs for name in readers.get(out.name, ())}
            reads = tuple(dict.fromkeys(roots.get(v.name, v.name) for v in call.inputs))
            for name in reads:
                readers.setdefault(name, set()).update(into)
            writes = tuple(
                Passed(o.name, str(o.type), _most(before, o.type.bytes), o.name in home)
                for o in call.outs
            )
            into_order = tuple(sorted(into, key=order.__getitem__))
            found.append(Member(call.ref("kernel"), call.origin, reads, writes, into_order))
        found.reverse()
        return tuple(sorted(found, key=lambda m: order[m.into[0]] if m.into else len(order)))


@dataclass(frozen=True, slots=True)
class Summary:
    before: Traffic
    after: Traffic
    apart: tuple[Apart, ...]
    members: tuple[Member, ...]
    unproven: tuple[FusionError, ...] = ()
    """Fused kernels that the checker refused; their parts were left as they are."""

    @property
    def text(self) -> str:
        before, after = self.before, self.after
        lines = [
            f"calls {before.calls} -> {after.calls}",
            f"bytes moved {before.bytes_moved} -> {after.bytes_moved}",
        ]
        lines += [f"not proven: {one.kernel}: {one.reason}" for one in self.unproven]
        lines += [f"separate: {note.writer} | {note.reader}: {note.reason}" for note in self.apart]
        return "\n".join(lines) + "\n"


def _most(module: Module, size: Dim) -> int:
    return max(interval(size, module.bounds)[1], 0)
