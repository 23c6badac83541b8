# SPDX-License-Identifier: Apache-2.0
"""Whether an output may take the memory of an input, by executing the kernel with and without.

Both executions start from memory of unknown contents. In one the two buffers are one array: what
the kernel stores is what it loads from there on. The permission is right if all results are equal.
"""

from __future__ import annotations

from dataclasses import replace

from relax_aot.fusion.checking.arrays import Array
from relax_aot.fusion.checking.compare import Comparison, same_arrays
from relax_aot.fusion.checking.execute import NotFollowedError, execute
from relax_aot.fusion.checking.terms import World
from relax_aot.ir.loops import Kernel
from relax_aot.ir.rewrite import map_buffers


def keeps_results(kernel: Kernel, pair: tuple[str, str], world: World) -> bool:
    """`pair` names an input and an output of one type. False where it is not proven."""
    source, target = pair
    buffers = {buffer.name: buffer for buffer in kernel.buffers}
    names = {name: name for name in buffers}
    contents = world.term("given", pair)
    given = {
        name: Array(buffers[name].dtype, buffers[name].shape, contents) for name in (source, target)
    }

    body = map_buffers(kernel.body, lambda b: buffers[target] if b.name == source else b)
    changed = replace(kernel, body=body)
    try:
        apart = execute(kernel, names, world, given).arrays
        one = execute(changed, names, world, {target: given[target]}).arrays
        comparison = Comparison(world, lambda _: None)
        outputs = [output.name for output in kernel.outputs]
        return all(same_arrays(comparison, apart[name], one[name]) for name in outputs)
    except (NotFollowedError, LookupError, ValueError, RecursionError):
        return False
