# SPDX-License-Identifier: Apache-2.0
"""Kernels of one product, their device forms, and random inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from relax_aot.evaluation.scalars import array_of
from relax_aot.ir.check import check
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Barrier, For, If, Kernel, Lit, Stmt
from relax_aot.ir.rewrite import map_statements
from relax_aot.ir.types import DType
from relax_aot.ops import deduce
from relax_aot.ops._op import Array
from relax_aot.scheduling.nest import names_in
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Context, Target
from relax_aot.scheduling.targets.cuda import TARGET
from relax_aot.scheduling.writer import Writer
from tests.transforms.examples import example_module

Strategy = Callable[[Kernel, For, Writer, Context], "tuple[For, ...] | None"]


ORDERED = replace(TARGET, partial_sums=1)
"""Sums have the order of the loops."""


def device_form(
    text: str,
    strategy: Strategy,
    name: str = "",
    finite: frozenset[str] = frozenset("w"),
    target: Target = ORDERED,
    reduced: tuple[int, ...] = (),
) -> tuple[Kernel, Kernel | None, Bounds]:
    """The kernel of a text, and its device form by a strategy; `name`: of the device form;
    `reduced`: launches with smaller tiles."""
    module = example_module(text)
    (kernel,) = module.kernels
    w = Writer(names_in(kernel), module.bounds)
    (loop,) = kernel.body
    assert isinstance(loop, For)
    made = strategy(kernel, loop, w, Context(target, finite=finite, reduced=reduced))
    if made is None:
        return kernel, None, module.bounds
    scratch = (*kernel.scratch, *w.scratch)
    device = replace(kernel, body=made, scratch=scratch)
    check(with_kernels(module, {kernel.name: device}), deduce)
    return kernel, replace(device, name=name or kernel.name), module.bounds


def inputs(kernel: Kernel, sizes: Mapping[str, int], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    made: list[Array] = []
    for buffer in kernel.inputs:
        shape = [size.evaluate(sizes) for size in buffer.shape]
        if buffer.dtype.is_int:
            low, high = buffer.dtype.limits if buffer.dtype.bytes == 1 else (0, 8)
            made.append(rng.integers(low, high + 1, shape).astype(buffer.dtype.numpy))
        else:
            values = rng.normal(size=shape).astype(np.float32)
            made.append(array_of(values.ravel().tolist(), buffer.dtype).reshape(shape))
    return made


def cast_rows(text: str, x: str = "i, k") -> str:
    """The kernel with a left factor that is stored as floats."""
    return text.replace("%x: f16", "%x: f32").replace(f"%x[{x}]", f"cast(%x[{x}], f16, wrap)")


ALWAYS = Lit(True, DType.BOOL)


def without_barriers(kernel: Kernel) -> Kernel:
    """A planted fault: nothing waits for another thread."""

    def rule(one: Stmt) -> Stmt:
        return If(ALWAYS, ()) if isinstance(one, Barrier) else one

    return replace(kernel, body=map_statements(kernel.body, rule))


def without_conditions(kernel: Kernel, word: str) -> Kernel:
    """A planted fault: conditions with a word in them always hold."""

    def rule(one: Stmt) -> Stmt:
        found = isinstance(one, If) and word in str(one.condition)
        return replace(one, condition=ALWAYS) if isinstance(one, If) and found else one

    return replace(kernel, body=map_statements(kernel.body, rule))
