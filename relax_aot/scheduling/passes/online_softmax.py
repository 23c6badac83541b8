# SPDX-License-Identifier: Apache-2.0
"""Online softmax: a row of scores that is too long is computed in blocks of keys.

A kernel that computes the scores of a row, their maximum, powers, sum and quotients, and then the
sum of values weighted by them, keeps the whole row in scratch. In blocks of keys, it keeps one
block: with each block come a greater maximum m, the sum of powers, and the weighted sums of
values. Those of the blocks before are multiplied by exp(m_before - m). One division at the end
gives the results.

A block of nothing but -inf adds nothing, and a row of them gives what it gave before. Blocks begin
at fixed positions of keys, so the bits of a row depend on neither other rows nor masked keys
behind it.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867; Dao
et al., "FlashAttention", arXiv:2205.14135, for the weighted sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from relax_aot.fusion.accesses import accesses
from relax_aot.fusion.legality import opaque
from relax_aot.ir.builder import At
from relax_aot.ir.dims import ZERO, Bounds, Dim, ceildiv, dim_max, dim_min, prove_le
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import (
    Apply,
    Assign,
    Binary,
    Buffer,
    Declare,
    Expr,
    For,
    Kernel,
    Lit,
    Load,
    Local,
    Select,
    Stmt,
    Store,
    apply,
    binary,
    expressions,
    parts,
    walk,
)
from relax_aot.ir.rewrite import map_accesses, map_index_dims, map_statements
from relax_aot.ir.types import DType
from relax_aot.scheduling.join import join_around
from relax_aot.scheduling.nest import bounds_known, names_in, ranges, without_lets
from relax_aot.scheduling.passes import shared_scratch
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.writer import Writer

_ATTENTION = """
            symbol s in 1..9
            symbol n in 0..5000
            kernel @attend(%q: f32[s, 4], %k: f32[n, 4], %v: f32[n, 8]) -> (%y: f32[s, 8]) scratch (%w: f32[n]) {
              for i in 0..s {
                for j in 0..n {
                  local score: f32 = 0.0:f32
                  for d in 0..4 {
                    score = (score + (%q[i, d] * %k[j, d]))
                  }
                  %w[j] = (score * 0.5:f32)
                }
                local peak: f32 = -inf:f32
                for j in 0..n {
                  peak = max(peak, %w[j])
                }
                local total: f32 = 0.0:f32
                for j in 0..n {
                  %w[j] = exp_below(%w[j], peak)
                  total = (total + %w[j])
                }
                for j in 0..n {
                  %w[j] = fraction(%w[j], total)
                }
                for d in 0..8 {
                  local mix: f32 = 0.0:f32
                  for j in 0..n {
                    mix = (mix + (%w[j] * %v[j, d]))
                  }
                  %y[i, d] = mix
                }
              }
            }"""  # noqa: E501

EXAMPLES = (
    Example(
        why="a row of up to 5000 scores: 256 at a time",
        before=_ATTENTION,
        after="""
            kernel @attend(%q: f32[s, 4], %k: f32[n, 4], %v: f32[n, 8]) -> (%y: f32[s, 8]) scratch (%w: f32[256], %peak_0: f32[], %total_0: f32[], %factor: f32[], %sums: f32[8]) {
              for i in 0..s {
                %peak_0[] = -inf:f32
                %total_0[] = 0.0:f32
                for d in 0..8 {
                  %sums[d] = 0.0:f32
                }
                for key_block in 0..(n + 255) // 256 {
                  let width = max(1, min(-256*key_block + n, 256))
                  for j in 0..width {
                    local score: f32 = 0.0:f32
                    for d in 0..4 {
                      score = (score + (%q[i, d] * %k[j + 256*key_block, d]))
                    }
                    %w[j] = (score * 0.5:f32)
                  }
                  local last: f32 = %peak_0[]
                  local most: f32 = last
                  for j in 0..width {
                    most = max(most, %w[j])
                  }
                  %peak_0[] = most
                  local shift: f32 = select((most == -inf:f32), 0.0:f32, most)
                  local scale: f32 = exp_below(last, shift)
                  local part: f32 = 0.0:f32
                  for j in 0..width {
                    %w[j] = exp_below(%w[j], shift)
                    part = (part + %w[j])
                  }
                  %total_0[] = (part + (%total_0[] * scale))
                  %factor[] = scale
                  for d in 0..8 {
                    local mix: f32 = 0.0:f32
                    for j in 0..width {
                      mix = (mix + (%w[j] * %v[j + 256*key_block, d]))
                    }
                    %sums[d] = (mix + (%sums[d] * %factor[]))
                  }
                }
                local whole: f32 = %total_0[]
                whole = select((index(n) == index(0)), 1.0:f32, whole)
                for d in 0..8 {
                  %y[i, d] = (%sums[d] / whole)
                }
              }
            }""",  # noqa: E501
        target="fpu",
    ),
    Example(
        why="a row of up to 2048 scores is kept",
        before=_ATTENTION.replace("5000", "2048"),
        target="fpu",
    ),
    Example(
        why="the weights of a row are a result: all of them are needed at the end",
        before=_ATTENTION.replace(
            "(%y: f32[s, 8]) scratch (%w: f32[n])", "(%y: f32[s, 8], %w: f32[n])"
        ),
        target="fpu",
    ),
)

_ZERO, _ONE, _LOWEST = (Lit(value, DType.F32) for value in (0.0, 1.0, -inf))


def run(module: Module, target: Target) -> Module:
    """Kernels whose row of scores may take more than `target.score_row` bytes, in blocks. Kernels
    that fusion left apart are joined for it, so that all entries of a model have the same
    blocks."""

    def blocked(kernel: Kernel) -> Kernel:
        return in_blocks(kernel, module.bounds, target.score_row, target.score_block)

    module = join_around(module, "exp_below", lambda kernel: blocked(kernel) is not kernel)
    module = shared_scratch.run(module, target)
    return with_kernels(module, {kernel.name: blocked(kernel) for kernel in module.kernels})


def in_blocks(kernel: Kernel, bounds: Bounds, most: int, block: int) -> Kernel:
    """The kernel in blocks of `block` keys, if it is an attention whose row of scores may take more
    than `most` bytes at the highest sizes; unchanged otherwise."""
    loops, body, found = _rows(kernel, bounds)
    if found is None:
        return kernel
    fixed = replace(bounds, raisable=frozenset())
    if prove_le(found.length * DType.F32.bytes, most, fixed):
        return kernel
    w = Writer(names_in(kernel), bounds)
    with w.block() as blocked, w.nest(loops):
        w.add(*body[: found.first])
        rows = _emit(found, w, block)
        w.add(*body[found.end :])
    scratch = tuple(rows.get(buffer.name, buffer) for buffer in kernel.scratch)
    return replace(kernel, scratch=(*scratch, *w.scratch), body=tuple(blocked))


def attention_of(kernel: Kernel, bounds: Bounds) -> tuple[list[For], Attention] | None:
    """The loops over rows and the attention, if it is all that a kernel does."""
    loops, body, found = _rows(kernel, bounds)
    return (loops, found) if found and (found.first, found.end) == (0, len(body)) else None


def _rows(kernel: Kernel, bounds: Bounds) -> tuple[list[For], tuple[Stmt, ...], Attention | None]:
    """The loops over rows, the statements of a row, and the attention in them."""
    if kernel.parallel or not kernel.scratch or opaque(kernel.body):
        return [], kernel.body, None
    loops: list[For] = []
    body, inside = without_lets(kernel.body), bounds
    while len(body) == 1 and isinstance(body[0], For) and bounds_known(body[0], inside):
        loops.append(body[0])
        inside, body = ranges((body[0],), inside), body[0].body
    found = _attention(body, kernel)
    known = found is not None and found.length.symbols <= set(bounds)
    return loops, body, found if known else None


# What is matched


@dataclass(frozen=True, slots=True)
class Attention:
    """The statements `first` to `end` of a row: `scores` store the row in the buffers `rows`, then
    come each `power` of a `score` and the sums `mix` of values with their quotients, in loops over
    `key`. `one_total`: a row of nothing but -inf gives zeros."""

    first: int
    end: int
    length: Dim
    rows: frozenset[str]
    scores: tuple[For, ...]
    score: Load
    power: Load
    key: str
    mix: _Mix
    one_total: bool


@dataclass(frozen=True, slots=True)
class _Mix:
    """`for loops { sum = 0; for keys { sum += product }; after }`."""

    loops: tuple[For, ...]
    sum: Local
    keys: For
    after: tuple[Stmt, ...]


def _attention(body: Sequence[Stmt], kernel: Kernel) -> Attention | None:
    for at in range(1, len(body)):
        found = _softmax(body, at, kernel)
        if found is not None:
            return found
    return None


def _softmax(body: Sequence[Stmt], at: int, kernel: Kernel) -> Attention | None:
    """The attention whose loop over the maximum is statement `at`."""
    match body[at - 1], body[at]:
        case (
            Declare(Local() as peak, Lit(start)),
            For(key, begin, length, (Assign(changed, Apply("max", (old, Load() as score))),)),
        ) if peak == changed == old and (start, begin, peak.dtype) == (-inf, ZERO, DType.F32):
            pass
        case _:
            return None
    rest = [*body[at + 1 :]]
    if rest and rest[0] == Assign(peak, _replaced(peak, _LOWEST, _ZERO)):
        rest.pop(0)
    match rest[:2]:
        case [
            Declare(Local() as total, Lit(0.0)),
            For(
                also,
                _,
                _,
                (
                    Store(buffer, index, Apply("exp_below", (power, below))),
                    Assign(summed, Binary("+", before, Load() as term)),
                ),
            ) as powers,
        ] if (summed, before, below) == (total, total, peak) and term == Load(buffer, index):
            del rest[:2]
        case _:
            return None
    one_total = bool(rest) and rest[0] == Assign(total, _replaced(total, _ZERO, _ONE))
    del rest[:one_total]
    if len(rest) < 2 or not isinstance(rest[0], For) or not isinstance(power, Load):
        return None
    own = _at(term, also, rest[0].variable)
    if rest[0].body != (Store(own.buffer, own.index, Apply("fraction", (own, total))),):
        return None
    mix = _mix(rest[1])
    if mix is None or _at(score, key, also) != power:
        return None
    first = at - 1
    while first and _is_score(body[first - 1], length, kernel):
        first -= 1
    end = len(body) - len(rest) + 2
    scores = tuple(stmt for stmt in body[first : at - 1] if isinstance(stmt, For))
    rows = frozenset(a.name for a in accesses(scores) if a.stored) | {term.buffer.name}
    found = Attention(
        first, end, length, rows, scores, power, term, also, mix, one_total
    )  # fmt: skip
    keys = (body[at], powers, rest[0], mix.keys)
    same = all(isinstance(k, For) and (k.start, k.stop) == (ZERO, length) for k in keys)
    return found if same and scores and _is_legal(found, body, kernel) else None


def _replaced(local: Local, what: Lit, by: Lit) -> Expr:
    return Select(Binary("==", local, what), by, local)


def _at(load: Load, key: str, other: str) -> Load:
    """The same load for another key."""
    return Load(load.buffer, tuple(d.substitute({key: Dim.of(other)}) for d in load.index))


def _is_score(stmt: Stmt, length: Dim, kernel: Kernel) -> bool:
    """Whether it is a loop over keys that stores scratch alone, one element for each key."""
    if not isinstance(stmt, For) or (stmt.start, stmt.stop) != (ZERO, length):
        return False
    scratch = {buffer.name for buffer in kernel.scratch}
    stored = [access for access in accesses((stmt,)) if access.stored]
    return bool(stored) and all(access.name in scratch for access in stored)


def _mix(stmt: Stmt) -> _Mix | None:
    loops: list[For] = []
    block: tuple[Stmt, ...] = (stmt,)
    while len(block) == 1 and isinstance(block[0], For):
        loops.append(replace(block[0], body=()))
        block = block[0].body
    if not loops or len(block) < 3 or any(loop.start != ZERO for loop in loops):
        return None
    match block:
        case (
            Declare(Local() as sum_, Lit(0.0)),
            For(_, _, _, (Assign(changed, Binary("+", old, Binary("*"))),)) as keys,
            *after,
        ) if changed == old == sum_ and sum_.dtype is DType.F32:
            plain = all(isinstance(stmt, Declare | Store) for stmt in after)
            return _Mix(tuple(loops), sum_, keys, tuple(after)) if plain else None
    return None


def _is_legal(found: Attention, body: Sequence[Stmt], kernel: Kernel) -> bool:
    """Whether the row buffers are used by the matched statements alone, each element for its key,
    and nothing that is read is written in between."""
    matched, others = body[found.first : found.end], [*body[: found.first], *body[found.end :]]
    if any(access.name in found.rows for access in accesses(tuple(others))):
        return False
    scratch = {buffer.name: buffer for buffer in kernel.scratch}
    if not all(name in scratch and scratch[name].dtype is DType.F32 for name in found.rows):
        return False
    for access in accesses(tuple(matched)):
        if access.name not in found.rows:
            continue
        keys = [loop for loop in access.ranges if loop.stop == found.length]
        moving = [dim for dim in access.at if not dim.is_constant]
        if len(moving) != 1 or not any(moving[0] == Dim.of(k.variable) for k in keys):
            return False
    written = {a.name for a in accesses(found.mix.after) if a.stored}
    read = {a.name for a in accesses((*found.scores, found.mix.keys)) if not a.stored}
    extents = [loop.stop for loop in found.mix.loops]
    sizes = set(kernel.free_symbols)
    uses_row = any(
        isinstance(part, Load) and part.buffer.name == found.power.buffer.name
        for stmt in found.mix.keys.body
        for expr in expressions(stmt)
        for part in parts(expr)
    )
    later = {local for stmt in walk(tuple(others)) for local in _locals(stmt)}
    made = {stmt.local for stmt in matched if isinstance(stmt, Declare)}
    return (
        uses_row
        and written.isdisjoint(read | found.rows)
        and all(extent.symbols <= sizes for extent in extents)
        and later.isdisjoint(made)
    )


def _locals(stmt: Stmt) -> Iterator[Local]:
    return (expr for expr in expressions(stmt) if isinstance(expr, Local))


# What is written


def _emit(found: Attention, w: Writer, size: int) -> dict[str, Buffer]:
    """Writes the blocks. Returns the row buffers as they are in a block."""
    mix = found.mix
    scalar: At = ()
    peak, total, factor = (w.buffer(n, DType.F32) for n in ("peak", "total", "factor"))
    sums = w.buffer("sums", DType.F32, *(loop.stop for loop in mix.loops))
    at = tuple(Dim.of(loop.variable) for loop in mix.loops)
    w.add(Store(peak, scalar, _LOWEST), Store(total, scalar, _ZERO))
    with w.nest(mix.loops):
        w.add(Store(sums, at, _ZERO))
    rows: dict[str, Buffer] = {}
    with w.range("key_block", ceildiv(found.length, size)) as number:
        base = number * size
        width = dim_max(dim_min(found.length - base, size), 1)  # a block has a key
        width = w.let("width", width, width, width)
        in_block = _in_block(found, rows, base, width, size)
        w.add(*in_block(found.scores))
        _powers(found, w, in_block, (peak, total, factor))
        with w.nest(mix.loops):
            added = Binary("*", sums[at], factor[scalar])
            w.add(Declare(mix.sum, _ZERO), *in_block((mix.keys,)))
            w.add(Store(sums, at, Binary("+", mix.sum, added)))
    whole = Local(w.fresh("whole"), DType.F32)
    w.add(Declare(whole, total[scalar]))
    if found.one_total:
        w.add(Assign(whole, _replaced(whole, _ZERO, _ONE)))
    elif not prove_le(1, found.length, w.bounds):  # no key: the sum of nothing
        w.add(Assign(whole, Select(binary("==", found.length, 0), _ONE, whole)))
    with w.nest(mix.loops):
        w.finish(mix.after, mix.sum, Binary("/", sums[at], whole), {})
    return rows


def _in_block(
    found: Attention, rows: dict[str, Buffer], base: Dim, width: Dim, size: int
) -> Callable[[Sequence[Stmt]], tuple[Stmt, ...]]:
    """Statements for the keys of one block; row buffers hold one block."""

    def narrowed(buffer: Buffer, index: At) -> tuple[Buffer, At]:
        if buffer.name not in found.rows:
            return buffer, index
        (axis,) = (n for n, dim in enumerate(index) if not dim.is_constant)
        shape = (*buffer.shape[:axis], Dim.of(size), *buffer.shape[axis + 1 :])
        rows[buffer.name] = replace(buffer, shape=shape)
        at = (*index[:axis], index[axis] - base, *index[axis + 1 :])
        return rows[buffer.name], at

    def rule(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or (stmt.start, stmt.stop) != (ZERO, found.length):
            return stmt
        of_row = (a for a in accesses((stmt,)) if a.name in found.rows)
        if not any(Dim.of(stmt.variable) in access.at for access in of_row):
            return stmt
        key = {stmt.variable: base + Dim.of(stmt.variable)}
        inner = map_index_dims(stmt.body, lambda dim: dim.substitute(key))
        return replace(stmt, stop=width, body=inner)

    return lambda body: map_accesses(map_statements(tuple(body), rule), narrowed)


def _powers(
    found: Attention,
    w: Writer,
    in_block: Callable[[Sequence[Stmt]], tuple[Stmt, ...]],
    state: tuple[Buffer, Buffer, Buffer],
) -> None:
    """The powers of the scores of a block below the new maximum, and their sum."""
    peak, total, factor = (buffer[()] for buffer in state)
    names = ("last", "most", "shift", "scale", "part")
    last, most, shift, scale, part = (Local(w.fresh(name), DType.F32) for name in names)
    score, power = found.score, found.power

    def each_key(*body: Stmt) -> None:
        w.add(*in_block((For(found.key, ZERO, found.length, body),)))

    w.add(Declare(last, peak), Declare(most, last))
    each_key(Assign(most, apply("max", most, score)))
    w.add(Store(peak.buffer, (), most), Declare(shift, _replaced(most, _LOWEST, _ZERO)))
    w.add(Declare(scale, apply("exp_below", last, shift)), Declare(part, _ZERO))
    stored = Store(power.buffer, power.index, apply("exp_below", score, shift))
    each_key(stored, Assign(part, Binary("+", part, power)))
    w.add(Store(total.buffer, (), Binary("+", part, Binary("*", total, scale))))
    w.add(Store(factor.buffer, (), scale))
