# SPDX-License-Identifier: Apache-2.0
"""Images of floats between kernels with their channels last (NHWC).

An image with many channels that a convolution with known weights, or a pool with a border, reads or
writes, and that only kernels access, is stored with axis 1 behind the others, so that vectors hold
the channels of a position: windows are then contiguous, and no border or width leaves lanes unused.
All kernels that access such an image are convolutions, or loops over its elements or its windows,
whose loop over channels becomes the innermost one. Inputs, results and states of the model keep
their layout.

Unless orders are kept, the sums of a convolution that reads or writes such an image run over the
channels of one tap after another (docs/decisions/0043), and those of clipped windows in planes
whose filters fill vectors (docs/decisions/0065).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product

from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module, Var
from relax_aot.ir.loops import (
    Assign,
    Bind,
    Buffer,
    For,
    If,
    Kernel,
    Load,
    Micro,
    Multiply,
    Stmt,
    Store,
    expressions,
    walk,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import Contraction, contraction_of, symbols_of
from relax_aot.scheduling.nest import chain_of, without_lets
from relax_aot.scheduling.passes import channels_last
from relax_aot.scheduling.passes.channels_last import agreeing, kernel_calls, operands
from relax_aot.scheduling.strategies.f32_nhwc import windows_of
from relax_aot.scheduling.targets import Target

MOST_REDUCTIONS = 3
"""Loops of a sum that a tile takes."""
LEAST_FILLED = 4
"""Filters that fill this part of a vector read images with their channels last."""
Pair = tuple[str, str]

EXAMPLES = (
    Example(
        why="what a convolution writes and a pool reads; the channels of a tap are summed first",
        target="host",
        before="""
            const %w: f32[16, 3, 2] = splat 0.5
            func @main(%x: f32[1, 3, 9]) {
              %y: f32[1, 16, 8] = call_kernel(%x, %w) {kernel=@conv}
              %z: f32[1, 16, 4] = call_kernel(%y) {kernel=@pool}
              return %z
            }
            kernel @conv(%x: f32[1, 3, 9], %w: f32[16, 3, 2]) -> (%y: f32[1, 16, 8]) {
              for f in 0..16 {
                for i in 0..8 {
                  local sum: f32 = 0.0:f32
                  for c in 0..3 {
                    for k in 0..2 {
                      sum = fma(%x[0, c, i + k], %w[f, c, k], sum)
                    }
                  }
                  %y[0, f, i] = sum
                }
              }
            }
            kernel @pool(%y: f32[1, 16, 8]) -> (%z: f32[1, 16, 4]) {
              for c in 0..16 {
                for i in 0..4 {
                  %z[0, c, i] = max(%y[0, c, 2*i], %y[0, c, 2*i + 1])
                }
              }
            }""",
        after="""
            ...
              %y.nhwc: f32[1, 8, 16] = call_kernel(%x, %w) {kernel=@conv}
              %z: f32[1, 16, 4] = call_kernel(%y.nhwc) {kernel=@pool}
            ...
                  for k in 0..2 {
                    for c in 0..3 {
                      sum = fma(%x[0, c, i + k], %w[f, c, k], sum)
                    }
                  }
                  %y[0, i, f] = sum
            ...
              for i in 0..4 {
                for c in 0..16 {
                  %z[0, c, i] = max(%y[0, 2*i, c], %y[0, 2*i + 1, c])
                }
              }
            ...""",
    ),
    Example(
        why="planes that windows are clipped in: the channels of a tap are summed first",
        target="host",
        before="""
            const %w: f32[16, 3, 3] = splat 0.5
            kernel @conv(%x: f32[1, 3, 9], %w: f32[16, 3, 3]) -> (%y: f32[1, 16, 9]) {
              for f in 0..16 {
                for i in 0..9 {
                  local sum: f32 = 0.0:f32
                  for c in 0..3 {
                    for k in max(-i + 1, 0)..min(-i + 10, 3) {
                      sum = fma(%x[0, c, i + k - 1], %w[f, c, k], sum)
                    }
                  }
                  %y[0, f, i] = sum
                }
              }
            }""",
        after="""
            ...
                  for k in max(-i + 1, 0)..min(-i + 10, 3) {
                    for c in 0..3 {
                      sum = fma(%x[0, c, i + k - 1], %w[f, c, k], sum)
                    }
                  }
                  %y[0, f, i] = sum
            ...""",
    ),
    Example(
        why="too few filters to fill vectors",
        target="host",
        before="""
            const %w: f32[3, 16, 2] = splat 0.5
            func @main(%x: f32[1, 16, 9]) {
              %y: f32[1, 16, 9] = call_kernel(%x) {kernel=@double}
              %z: f32[1, 3, 8] = call_kernel(%y, %w) {kernel=@conv}
              return %z
            }
            kernel @double(%x: f32[1, 16, 9]) -> (%y: f32[1, 16, 9]) {
              for c in 0..16 {
                for i in 0..9 {
                  %y[0, c, i] = (%x[0, c, i] + %x[0, c, i])
                }
              }
            }
            kernel @conv(%y: f32[1, 16, 9], %w: f32[3, 16, 2]) -> (%z: f32[1, 3, 8]) {
              for f in 0..3 {
                for i in 0..8 {
                  local sum: f32 = 0.0:f32
                  for c in 0..16 {
                    for k in 0..2 {
                      sum = fma(%y[0, c, i + k], %w[f, c, k], sum)
                    }
                  }
                  %z[0, f, i] = sum
                }
              }
            }""",
    ),
)


def run(module: Module, target: Target, numerics: str = "blocked") -> Module:
    """Every image that may be, for targets whose vectors hold channels."""
    if not target.float_channels:
        return module
    chosen, keep = _chosen(module, target.float_channels), numerics == "ordered"
    names = channels_last.changed_by(module, chosen)
    module = channels_last.moved(module, chosen)
    kernels = tuple(
        _reordered(kernel, names[kernel.name], module.bounds, keep=keep)
        if names.get(kernel.name) or keep
        else _alone(kernel, module, target.float_channels)
        for kernel in module.kernels
    )
    return replace(module, kernels=kernels)


# Which images


def _chosen(module: Module, least: int) -> set[Var]:
    calls = kernel_calls(module)
    fixed: set[Var] = {constant.var for constant in module.constants}
    useful: set[Var] = set()
    alike: list[set[Var]] = []
    for function in module.functions:
        fixed |= {*function.params, *function.results}
        for call in function.body:
            if call.op != "call_kernel":
                fixed |= {*call.inputs, *call.outs}
    for kernel in module.kernels:
        good, bad, pairs = _accessed(kernel, module, least)
        for call in calls[kernel.name]:
            of = {b.name: var for b, var in operands(kernel, call) if _is_image(b, least)}
            alike += [{of[one], of[other]} for one, other in pairs if {one, other} <= {*of}]
            for buffer, var in operands(kernel, call):
                if buffer.name in bad or buffer in kernel.scratch or not _is_image(buffer, least):
                    fixed.add(var)
                elif buffer.name in good:
                    useful.add(var)
    chosen = agreeing(module, useful - fixed)
    while apart := [pair for pair in alike if pair & chosen and not pair <= chosen]:
        chosen = agreeing(module, chosen - set().union(*apart))
    return chosen


def _is_image(buffer: Buffer, least: int) -> bool:
    if buffer.dtype is not DType.F32 or len(buffer.shape) < 3:
        return False
    channels = buffer.shape[1]
    many = channels.is_constant and channels.constant >= least
    return many and any(dim != 1 for dim in buffer.shape[2:])


def _accessed(kernel: Kernel, module: Module, least: int) -> tuple[set[str], set[str], set[Pair]]:
    """Images that become faster to access with their channels last, those that do not, and pairs
    that become so together: images and results of depthwise convolutions, and of samplings."""
    images = {buffer.name for buffer in kernel.buffers if len(buffer.shape) > 2}
    known = _known(kernel, module)
    good: set[str] = set()
    bad: set[str] = set()
    pairs: set[Pair] = set()
    if kernel.parallel:
        return good, images, pairs
    for stmt in without_lets(kernel.body):
        found = contraction_of(stmt, module.bounds)
        if found is None:
            if not _follows(stmt, images, module.bounds):
                bad |= images - _innermost(stmt, images)
            elif sampled := _sampled(stmt, images) or _pooled(stmt, images, module.bounds):
                good |= sampled
                pairs |= set(product(sampled, sampled))
            continue
        ways = (_convolution(way, known, module.bounds, least) for way in (found, found.swapped))
        way = next((way for way in ways if way is not None), None)
        if way is None:
            return good, images, pairs
        good |= way[0]
        bad |= way[1]
        pairs |= way[2]
    return good - bad, bad, pairs


def _known(kernel: Kernel, module: Module) -> frozenset[str]:
    """The operands whose data are known."""
    table, calls = module.constant_table, module.kernel_calls[kernel.name]
    return frozenset(
        buffer.name
        for at, buffer in enumerate(kernel.inputs)
        if calls and all(call.inputs[at].name in table for call in calls)
    )


def _convolution(
    found: Contraction, known: frozenset[str], bounds: Bounds, least: int
) -> tuple[set[str], set[str], set[Pair]] | None:
    """The images that a convolution or a product makes faster, those whose axis 1 are no channels,
    and the pairs of its channels: some filters less than a vector has lanes are no reason, but no
    hindrance."""
    image, weights = found.left, found.right
    if (image.buffer.name in known, weights.buffer.name in known) != (False, True):
        return None
    if found.sum.dtype is not DType.F32 or len(found.reductions) > MOST_REDUCTIONS:
        return None
    roles = windows_of(found)
    if roles is None or not found.is_regular(bounds):
        return None
    if roles.channels.stop.constant * LEAST_FILLED < least:
        return None
    own = roles.channels.variable
    stores = [stmt for stmt in found.after if isinstance(stmt, Store)]
    loads = [e for s in found.after for e in expressions(s) if isinstance(e, Load)]
    places: list[Load | Store] = [*stores, *(load for load in loads if len(load.index) > 2)]
    last = {place.buffer.name for place in places if place.index[-1] == Dim.of(own)}
    results = {place.buffer.name for place in places} - last
    apart = [place for place in places if place.buffer.name in results]
    if any(len(place.index) < 2 or own not in place.index[1].symbols for place in apart):
        return None
    images = {image.buffer.name} if _has_channels(found) else set[str]()
    own_channels = images and own in image.index[1].symbols
    pairs = {(image.buffer.name, name) for name in results} if own_channels else set()
    many = roles.channels.stop.constant >= least
    return images | results if many else set(), last | ({image.buffer.name} - images), pairs


def _has_channels(found: Contraction) -> bool:
    """Whether axis 1 of the left operand are channels: no position moves along it."""
    index = found.left.index
    moving = {loop.variable for loop in found.swapped.columns}
    return len(index) > 2 and not moving & index[1].symbols


def _follows(stmt: Stmt, images: set[str], bounds: Bounds) -> bool:
    """Whether a loop nest accesses all images at a channel that is one of its loops, so that this
    may be the innermost one."""
    if not isinstance(stmt, For):
        return False
    found = chain_of(stmt, bounds)
    if found is None:
        return False
    channel = _channel(found.leaf, images)
    return channel is not None and channel in found.free - symbols_of(*found.loops)


def _sampled(stmt: Stmt, images: set[str]) -> set[str]:
    """The images of a nest that reads them at places of tables, or the same ones for several
    positions: these are not side by side. Otherwise none."""
    found = [place for place in _places((stmt,)) if place.buffer.name in images]
    held = {inner.name for inner in walk((stmt,)) if isinstance(inner, Bind)}
    wide = [place for place in found if any(dim != 1 for dim in place.buffer.shape[2:])]
    stored, read = (
        [
            frozenset[str]().union(*(dim.symbols for dim in place.index[2:]))
            for place in wide
            if isinstance(place, kind)
        ]
        for kind in (Store, Load)
    )
    moving = set().union(*stored)
    apart = any(names & held or moving - names for names in read)
    return {place.buffer.name for place in found} if apart else set()


def _pooled(stmt: Stmt, images: set[str], bounds: Bounds) -> set[str]:
    """The images of a pool whose windows may reach beyond its image."""
    found = chain_of(stmt, bounds) if isinstance(stmt, For) else None
    inner = [loop for loop in walk(found.leaf) if isinstance(loop, For)] if found else []
    own = {loop.variable for loop in found.loops} if found else set()
    clipped = any((loop.start.symbols | loop.stop.symbols) & own for loop in inner)
    return {place.buffer.name for place in _places((stmt,))} & images if clipped else set()


def _innermost(stmt: Stmt, images: set[str]) -> set[str]:
    """The images that a statement accesses at a channel that is its innermost loop there, in
    every access: they may change without its loops. Those that it does not access are such."""

    def others(inner: Stmt, variable: str) -> Iterator[str]:
        match inner:
            case For():
                body, variable = inner.body, inner.variable
            case If():
                body = (*inner.then, *inner.otherwise)
            case Micro() | Multiply():
                yield from images
                return
            case _:
                body = ()
        for part in body:
            yield from others(part, variable)
        for place in () if body else _places((inner,)):
            if place.buffer.name in images and place.index[1] != Dim.of(variable):
                yield place.buffer.name

    return images - set(others(stmt, ""))


def _channel(leaf: Sequence[Stmt], images: set[str]) -> str | None:
    """The variable that every access to an image counts axis 1 by, from its first channel or from
    another one; None where there is no such."""
    channels = {place.index[1] for place in _places(leaf) if place.buffer.name in images}
    names = {name for channel in channels for name in channel.symbols}
    counted = all((channel - Dim.of(name)).is_constant for channel in channels for name in names)
    return names.pop() if len(names) == 1 and counted else None


def _places(leaf: Sequence[Stmt]) -> Iterator[Load | Store]:
    for stmt in walk(leaf):
        if isinstance(stmt, Store):
            yield stmt
        for expr in expressions(stmt):
            if isinstance(expr, Load):
                yield expr


# The order of loops


def _reordered(kernel: Kernel, names: Collection[str], bounds: Bounds, *, keep: bool) -> Kernel:
    if not names:
        return kernel
    body: list[Stmt] = []
    for stmt in without_lets(kernel.body):
        found = contraction_of(stmt, bounds)
        if found is not None and isinstance(stmt, For):
            body.append(stmt if keep else _channels_innermost(stmt, found))
        elif isinstance(stmt, For):
            body.append(_elements(stmt, names, bounds))
        else:
            body.append(stmt)
    return replace(kernel, body=tuple(body))


def _alone(kernel: Kernel, module: Module, least: int) -> Kernel:
    """Clipped windows between images in planes, such as an input and a result of the model, with
    the channels of a tap first: filters that fill vectors are summed from a strip with channels
    last."""
    known, body = _known(kernel, module), list(kernel.body)
    for at, stmt in enumerate(body):
        (plain,) = without_lets((stmt,)) if isinstance(stmt, For) else (stmt,)
        found = contraction_of(plain, module.bounds)
        if found is None or not isinstance(plain, For) or kernel.parallel:
            continue
        for way in (found, found.swapped):
            good = _convolution(way, known, module.bounds, least)
            roles = windows_of(way) if good is not None and way.clipped_by else None
            if roles is not None and roles.dense and roles.channels.stop.constant % least == 0:
                body[at] = _channels_innermost(plain, found)
    return replace(kernel, body=tuple(body))


def _elements(stmt: For, names: Collection[str], bounds: Bounds) -> Stmt:
    found = chain_of(stmt, bounds)
    if found is None:
        return stmt
    last = {p.index[-1] for p in _places(found.leaf) if p.buffer.name in names}
    counted = {name for dim in last for name in dim.symbols if (dim - Dim.of(name)).is_constant}
    inner = [lp for lp in found.loops if lp.variable in counted]
    loops = [lp for lp in found.loops if lp not in inner] + inner
    return _nested(loops, found.leaf)


def _nested(loops: Sequence[For], leaf: Sequence[Stmt]) -> For:
    body = tuple(leaf)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    (outer,) = body
    assert isinstance(outer, For)
    return outer


def _channels_innermost(stmt: For, found: Contraction) -> For:
    """The reductions with those that windows are not clipped by, the channels, behind the taps."""
    ways = [way for way in (found, found.swapped) if windows_of(way) is not None]
    roles = windows_of(ways[0])
    assert roles is not None
    taps = [lp for lp in found.reductions if lp.variable in {axis.tap for axis in roles.axes}]
    others = [lp for lp in found.reductions if lp not in taps]
    first, *after = found.nest.leaf
    inner = [s for s in walk(found.nest.leaf) if isinstance(s, Assign)]
    chain = _nested([*taps, *others], inner)
    leaf = [s if not isinstance(s, For) else chain for s in (first, *after)]
    return _nested(found.nest.loops, leaf)
