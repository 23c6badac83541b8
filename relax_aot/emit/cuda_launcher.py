# SPDX-License-Identifier: Apache-2.0
"""Launches of a run on a GPU, one behind the other: kernels of the plan, and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relax_aot.emit.contexts import RunContext
from relax_aot.emit.cuda_control import Call, Controls
from relax_aot.emit.cuda_control import Given as Pointer
from relax_aot.emit.cuda_frame import Slots, TooManyLaunches
from relax_aot.emit.cuda_library import LibraryProduct, library_product, type_of
from relax_aot.emit.cuda_module import DeviceSource, Given
from relax_aot.emit.lengths import bytes_before, first_row
from relax_aot.ir.dims import Dim
from relax_aot.ir.loops import Kernel
from relax_aot.ir.types import C_TYPES, TensorType
from relax_aot.planning import greatest_bytes
from relax_aot.planning.steps import Step, Transfer

MOST_LAUNCHES = 8192


@dataclass(slots=True)
class Launcher:
    """Appends launches in the order of the run. `condition` is a word of the frame."""

    context: RunContext
    source: DeviceSource
    controls: Controls
    slots: Slots
    fallible: bool
    calls: list[Call] = field(default_factory=list)
    products: list[LibraryProduct] = field(default_factory=list)

    def add(self, call: Call) -> None:
        self.calls.append(call)
        if len(self.calls) > MOST_LAUNCHES:
            raise TooManyLaunches(
                f"a run needs more than {MOST_LAUNCHES} launches, since loops are launched for"
                " their greatest number of iterations; use a smaller bound (--bound), or a board"
                " without a GPU"
            )

    def step(self, node: Step, condition: int | None) -> None:
        kernel = node.callee
        assert isinstance(kernel, Kernel)
        roots = (*node.args, *node.outs)
        found = [self.place(root) for root in roots]
        places = {b.name: place for b, place in zip(kernel.buffers, found, strict=True)}
        product = self.product(node, found) if condition is None else None
        for launch in self.source.launches[kernel.name]:
            words = []
            for one in launch.parameters:
                match one.given:
                    case Given.FRAME:
                        words.append("frame")
                    case Given.CONDITION:
                        words.append(f"RAOT_WORD({condition})")
                    case Given.BUFFER:
                        words.append(places[one.name])
                    case Given.SIZE:
                        words.append(f"RAOT_WORD({self.context.symbols[one.name]})")
            grid = self.context.dim(self.known(launch.grid))
            self.add(
                Call(
                    launch.c_name, grid, launch.threads, tuple(words), node.call.origin, product,
                    launch.dynamic_bytes,
                )
            )  # fmt: skip

    def product(self, node: Step, places: Sequence[str]) -> int | None:
        """The number of the product that a library computes in the place of a step."""
        roots = (*node.args, *node.outs)
        inside = frozenset(at for at, root in enumerate(roots) if self.before(root))
        made = library_product(self.context, node, places, inside, fallible=self.fallible)
        if made is None:
            return None
        self.products.append(made)
        return len(self.products) - 1

    def known(self, dim: Dim) -> Dim:
        """An upper bound over sizes that the host knows."""
        return self.context.greatest(dim) if dim.symbols & self.slots.sizes.keys() else dim

    def place(self, root: str) -> str:
        before = self.before(root)
        return self.context.values[root] + (f" + {before}" if before else "")

    def before(self, root: str) -> str:
        """The bytes in front of the first row of a window, in C of the host."""
        for part in self.context.interface.states:
            if part.input == root and first_row(self.context, part):
                return on_device(bytes_before(self.context, part))
        return ""

    def type_of(self, root: str) -> TensorType:
        return type_of(self.context, root)

    def pointer(self, name: str, root: str) -> Pointer:
        type_ = C_TYPES[self.type_of(root).dtype]
        return Pointer(f"const {type_}", name, self.place(root))

    def moved(self, transfer: Transfer, condition: int | None, offset: Dim | None = None) -> None:
        source, target = self.place(transfer.source), self.place(transfer.target)
        if source != target or offset is not None:
            self.copied(source, target, transfer.type.bytes, condition, offset)

    def copied(
        self,
        source: str,
        target: str,
        size: Dim,
        condition: int | None = None,
        offset: Dim | None = None,
        before: str = "",
    ) -> None:
        most = greatest_bytes(self.context.greatest(size), self.context.plan.module)
        if most > 0:
            self.add(self.controls.copy(source, target, size, most, condition, offset, before))


def on_device(header: str) -> str:
    """A word of the header, where the block of the host is a variable."""
    return header.replace("((const int32_t *)memory->device)", "device->header")
