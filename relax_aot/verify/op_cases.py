# SPDX-License-Identifier: Apache-2.0
"""The samples that each op brings along, as kernels that are ready to run.

A sample gives two cases: its sizes as plain numbers, and each distinct size above 1
replaced by a symbol (5 becomes `n5`), which is how one sample tests both worlds. Whatever
runs kernels can be compared with `Case.expected`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.builder import KernelBuilder
from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.graph import Condition, attr_value
from relax_aot.ir.loops import Buffer, Kernel
from relax_aot.ir.types import DType, TensorType
from relax_aot.ops._op import Array, Op, Sample


@dataclass(frozen=True)
class Case:
    """One op on one sample. Its name says which, and is a C identifier."""

    op: Op
    sample: Sample
    number: int
    symbolic: bool

    @property
    def name(self) -> str:
        return f"{self.op.name}_{self.number}_{'n' if self.symbolic else '1'}"

    @cached_property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes as the op's rules get them, symbols included."""
        return {
            name: attr_value(self._sizes(value) if name in self.sample.sizes else value)
            for name, value in self.sample.attrs.items()
        }

    def _sizes(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return tuple(self._sizes(part) for part in value)
        return self._size(value)

    def _size(self, size: int) -> Dim:
        replaced = self.symbolic and size > 1 and size not in self.sample.fixed
        return Dim.of(f"n{size}" if replaced else size)

    @cached_property
    def types(self) -> tuple[TensorType | None, ...]:
        return tuple(None if a is None else self._type(np.asarray(a)) for a in self.sample.args)

    def _type(self, array: Array) -> TensorType:
        return TensorType(DType.of(array.dtype), tuple(self._size(n) for n in array.shape))

    @cached_property
    def inputs(self) -> tuple[Array, ...]:
        """The arguments that are there."""
        return tuple(np.asarray(a) for a in self.sample.args if a is not None)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """What each symbol is worth."""
        found = [type_.symbols for type_ in self.types if type_ is not None]
        found += [_symbols(self.attrs[name]) for name in self.sample.sizes]
        names = sorted(frozenset[str]().union(*found))
        return {name: int(name.removeprefix("n")) for name in names}

    @cached_property
    def bounds(self) -> Bounds:
        """Each symbol may be smaller and larger than it is, but not 0."""
        return Bounds.of({name: (1, 2 * size) for name, size in self.sizes.items()})

    @cached_property
    def results(self) -> tuple[TensorType, ...]:
        return self.op.result_types(self.types, self.attrs)

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(self.op.conditions(*self.types, **self.attrs))

    @cached_property
    def expected(self) -> tuple[Array, ...]:
        """What the op's reference gives."""
        args = (None if a is None else np.asarray(a) for a in self.sample.args)
        with np.errstate(all="ignore"):
            found = self.op.reference(*args, **self.sample.attrs)
        return tuple(np.asarray(a) for a in (found if isinstance(found, tuple) else (found,)))

    @cached_property
    def kernel(self) -> Kernel:
        """Not for views, which have none."""
        assert not self.op.view
        buffers = [
            None if type_ is None else Buffer(f"x{position}", type_.dtype, type_.shape)
            for position, type_ in enumerate(self.types)
        ]
        outputs = [
            Buffer(f"y{n}", type_.dtype, type_.shape) for n, type_ in enumerate(self.results)
        ]
        builder = KernelBuilder(self.name, [b for b in buffers if b is not None], outputs)
        self.op.lower(builder, *buffers, *outputs, **self.attrs)
        return builder.finish()


Run = Callable[[Case], Sequence[Array]]
"""Runs one case's kernel."""

Executor = Callable[[Sequence[Case]], Run]
"""Made ready once for many cases (say, by compiling all their kernels in one build)."""


def interpreter(_cases: Sequence[Case]) -> Run:
    """The executor that needs no compiler."""
    return lambda case: run_kernel(case.kernel, case.inputs, case.sizes)


def cases_of(ops: Iterable[Op], seed: int = 0) -> Iterator[Case]:
    for op in ops:
        for number, sample in enumerate(op.samples(np.random.default_rng(seed))):
            yield Case(op, sample, number, symbolic=False)
            if sample.symbolic:
                yield Case(op, sample, number, symbolic=True)


def _symbols(value: Any) -> frozenset[str]:
    if isinstance(value, tuple):
        return frozenset[str]().union(*(_symbols(part) for part in value))
    return value.symbols if isinstance(value, Dim) else frozenset()
