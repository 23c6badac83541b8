"""Contractions as tiles of `raot_multiply_f32`, for targets that have it in registers.

One output loop gives the rows of a tile, one the columns. Along the columns the right operand
lies side by side in memory and the left one stays; the rows move the left one alone. The tile
is kept in a buffer of the kernel's own, from which each result is stored as the leaf says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

import numpy as np

from relax_aot.ir.builder import less
from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_min, simplify
from relax_aot.ir.graph import Call, Constant, Module, Var
from relax_aot.ir.loops import (
    Buffer,
    For,
    If,
    Kernel,
    Let,
    Load,
    Multiply,
    Reserve,
    Stmt,
    Store,
    expressions,
    walk,
)
from relax_aot.ir.types import DType, TensorType, shape_of
from relax_aot.scheduling.blocking import work_of
from relax_aot.scheduling.convolve import Convolved, convolved
from relax_aot.scheduling.images import Image, image_of, image_tiles
from relax_aot.scheduling.jam import Names, named, over
from relax_aot.scheduling.nest import Nest, bounds_known, names_in, nest_of
from relax_aot.scheduling.packing import Packing, packing
from relax_aot.scheduling.planes import Planes, plane_loops, planes_of
from relax_aot.scheduling.sums import (
    Sum,
    flat,
    greatest,
    indexed_by,
    linear,
    moved,
    moved_expr,
    stored,
    sum_of,
)
from relax_aot.scheduling.targets import Target
from relax_aot.scheduling.windows import interior, whole

COLUMNS = 32
"""As RAOT_TILE_COLUMNS."""
LEAST_COLUMNS = 8
"""Narrower results are not worth a tile."""


@dataclass(frozen=True, slots=True)
class _Contraction:
    """What a nest computes, where it is a contraction that tiles can do."""

    sum: Sum
    rows: For | None
    columns: For
    packing: Packing | None


@dataclass(frozen=True, slots=True)
class Tiled:
    """A kernel by tiles, and the inputs that it wants rearranged."""

    kernel: Kernel
    packings: tuple[Packing, ...]


@dataclass
class _Scope:
    """What holds for one kernel: `constants` are the inputs that may be rearranged, `finite`
    those that hold numbers alone, no infinity and no NaN."""

    names: Names
    constants: frozenset[str]
    finite: frozenset[str]
    target: Target
    packings: list[Packing]
    scratch: list[Buffer]
    share: float


def tile_kernel(
    kernel: Kernel,
    target: Target,
    bounds: Bounds,
    constants: frozenset[str],
    finite: frozenset[str],
    share: float = 1.0,
) -> Tiled:
    """The same results to the bit, by tiles where that can be. `constants`: inputs whose data
    are known; `finite`: those that hold neither infinity nor NaN; `share`: how much of the model's
    work the kernel does. A rearranged input comes after
    the others, and what is not read any more is no input."""
    scope = _Scope(Names(names_in(kernel)), constants, finite, target, [], [], share)
    body = _block(kernel.body, scope, bounds)
    packings = tuple(scope.packings)
    gone = _names_read(kernel.body) - _names_read(body)
    inputs = (*kernel.inputs, *(p.packed for p in packings))
    kept = tuple(buffer for buffer in inputs if buffer.name not in gone)
    pairs = tuple(pair for pair in kernel.in_place if pair[0] not in gone)
    scratch = (*kernel.scratch, *scope.scratch)
    tiled = replace(kernel, inputs=kept, scratch=scratch, body=body, in_place=pairs)
    return Tiled(tiled, packings)


def _names_read(body: Sequence[Stmt]) -> set[str]:
    loads = (expr for stmt in walk(body) for expr in expressions(stmt) if isinstance(expr, Load))
    return {load.buffer.name for load in loads}


def tile_module(module: Module, target: Target) -> Module:
    """Every kernel by tiles, constants rearranged for those that want it."""
    table = module.constant_table
    tiled: dict[str, tuple[Kernel, Tiled]] = {}
    work = {kernel.name: work_of(kernel, module.bounds) for kernel in module.kernels}
    whole_work = max(sum(work.values()), 1)
    for kernel in module.kernels:
        mine = module.kernel_calls[kernel.name]
        known = frozenset(
            buffer.name
            for position, buffer in enumerate(kernel.inputs)
            if all(call.inputs[position].name in table for call in mine)
        )
        finite = frozenset(
            buffer.name
            for position, buffer in enumerate(kernel.inputs)
            if buffer.name in known
            and all(_is_finite(table[call.inputs[position].name]) for call in mine)
        )
        share = work[kernel.name] / whole_work
        done = tile_kernel(kernel, target, module.bounds, known, finite, share)
        tiled[kernel.name] = (kernel, done)
    made: dict[str, Constant] = {}
    rearrange = partial(_call, tiled=tiled, table=table, made=made, replaceable=module.replaceable)
    functions = tuple(
        replace(f, body=tuple(rearrange(call) for call in f.body)) for f in module.functions
    )
    used = {v.name for f in functions for c in f.body for v in c.inputs}
    constants = [c for c in (*module.constants, *made.values()) if c.name in used]
    kernels = tuple(found.kernel for _, found in tiled.values())
    return replace(module, functions=functions, kernels=kernels, constants=tuple(constants))


def _call(
    call: Call,
    tiled: dict[str, tuple[Kernel, Tiled]],
    table: dict[str, Constant],
    made: dict[str, Constant],
    replaceable: bool,
) -> Call:
    """The call with the arguments that its kernel now wants."""
    if call.op != "call_kernel":
        return call
    before, after = tiled[call.ref("kernel")]
    args = dict(zip((b.name for b in before.inputs), call.inputs, strict=True))
    for pack in after.packings:
        source = table[args[pack.load.buffer.name].name]
        data = pack.data(source.data)
        # Calls that rearrange one constant in one way share the result.
        type_ = TensorType(source.type.dtype, shape_of(*data.shape))
        digest = sha256(Constant("", type_, data).digest.encode() + str(data.shape).encode())
        key = f"{source.name}.packed_{digest.hexdigest()[:8]}"
        if key not in made:
            made[key] = Constant(_packed_name(key, source, made, replaceable), type_, data)
        args[pack.packed.name] = made[key].var
    made_scratch = tuple(
        Var(f"{call.outs[0].name}.{buffer.name}", buffer.type)
        for buffer in after.kernel.scratch[len(before.scratch) :]
    )
    arguments = tuple(args[buffer.name] for buffer in after.kernel.inputs)
    return replace(call, outs=(*call.outs, *made_scratch), args=arguments)


def _packed_name(
    key: str, source: Constant, made: Mapping[str, Constant], replaceable: bool
) -> str:
    """What may be replaced has no name that depends on it."""
    if not replaceable:
        return key
    stem = f"{source.name}.packed"
    return f"{stem}_{1 + sum(one.name.startswith(stem) for one in made.values())}"


def _is_finite(constant: Constant) -> bool:
    return constant.type.dtype.is_float and bool(np.isfinite(constant.data).all())


def _block(body: tuple[Stmt, ...], scope: _Scope, bounds: Bounds) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Let) and stmt.value.symbols <= set(bounds):
            bounds = bounds.with_value(stmt.name, stmt.value, stmt.value)
        if not isinstance(stmt, For) or not bounds_known(stmt, bounds):
            result.append(stmt)
            continue
        nest = nest_of(stmt, bounds)
        sum_ = sum_of(nest) if nest is not None else None
        call = _called(sum_, scope) if sum_ is not None else None
        if call is not None:
            scope.packings += [call.packing] if call.packing is not None else []
            scope.scratch += call.scratch
            result.append(call.stmt)
            continue
        sum_ = flat(sum_) if sum_ is not None and _all_known(sum_, bounds) else None
        planes = _planes(sum_, scope, bounds) if sum_ is not None else None
        image = _image(sum_, scope, bounds) if sum_ is not None else None
        found = _contraction(sum_, scope, bounds) if sum_ is not None else None
        if planes is not None:
            made = plane_loops(planes, scope.names, bounds)
            scope.scratch += made.scratch
            result += made.body
        elif image is not None:
            written = image_tiles(image, scope.names, scope.target.rows, bounds)
            scope.scratch += written.scratch
            result += written.body
        elif found is not None:
            if found.packing is not None:
                scope.packings.append(found.packing)
            result += _Tiles(found, scope.names, scope.target.rows).loops(bounds)
        else:
            inner = over(bounds, stmt.variable, stmt.start, stmt.stop)
            body_ = _block(stmt.body, scope, inner)
            result.append(For(stmt.variable, stmt.start, stmt.stop, body_))
    return tuple(result)


def _called(sum_: Sum, scope: _Scope) -> Convolved | None:
    if not scope.target.compact:
        return None
    return convolved(sum_, scope.names, scope.constants, scope.finite, scope.target, scope.share)


def _image(sum_: Sum, scope: _Scope, bounds: Bounds) -> Image | None:
    return image_of(sum_, bounds, scope.constants, scope.finite, scope.target)


def _planes(sum_: Sum, scope: _Scope, bounds: Bounds) -> Planes | None:
    room = scope.target.strip
    return planes_of(sum_, scope.finite, room) if room > 0 else None


def _contraction(sum_: Sum, scope: _Scope, bounds: Bounds) -> _Contraction | None:
    """None where it is none that suits."""
    ways = [_match(way, scope, bounds) for way in (sum_, sum_.turned)]
    return max((w for w in ways if w), key=lambda way: _filled(way, scope, bounds), default=None)


def _all_known(sum_: Sum, bounds: Bounds) -> bool:
    for loop in (*sum_.nest.loops, *sum_.levels):
        if not bounds_known(loop, bounds):
            return False
        bounds = over(bounds, loop.variable, loop.start, loop.stop)
    return True


def _filled(what: _Contraction, scope: _Scope, bounds: Bounds) -> float:
    """How much of a tile the results fill; columns that are cut off at borders count less, and of
    equal ways one whose left operand is read side by side is taken."""
    columns = min(greatest(what.columns, bounds), COLUMNS) / COLUMNS
    rows = 1 if what.rows is None else min(greatest(what.rows, bounds), scope.target.rows)
    beside = linear(what.sum.left, what.sum.levels[-1].variable) == 1
    cut = what.columns.variable in what.sum.windows
    return columns * rows * (0.5 if cut else 1.0) + (0.01 if beside else 0.0)


def _match(sum_: Sum, scope: _Scope, bounds: Bounds) -> _Contraction | None:
    nest, levels, left, right = sum_.nest, sum_.levels, sum_.left, sum_.right
    steady = all(
        linear(load, loop.variable) is not None for load in (left, right) for loop in levels
    )
    if not steady:
        return None
    free = sum_.free
    columns = [
        loop
        for loop in free
        if (linear(right, loop.variable) == 1 or _pack(right, nest, loop, levels, scope))
        and linear(left, loop.variable) == 0
        and interior(loop, levels) is not None
    ]
    if not columns:
        return None
    across = max(columns, key=lambda loop: greatest(loop, bounds))
    if greatest(across, bounds) < LEAST_COLUMNS:
        return None
    down = [
        loop
        for loop in free
        if loop != across
        and _can_be_rows(loop, across, sum_)
        and linear(right, loop.variable) == 0
        and linear(left, loop.variable) is not None
    ]
    # Of loops that fill a tile the innermost one: its elements lie closest.
    most = scope.target.rows
    rows = max(reversed(down), key=lambda loop: min(greatest(loop, bounds), most), default=None)
    pack = _pack(right, nest, across, levels, scope)
    return _Contraction(sum_, rows, across, pack)


def _can_be_rows(loop: For, columns: For, sum_: Sum) -> bool:
    """Windows may be cut off along the rows or along the columns, not along both."""
    if loop.variable not in sum_.windows:
        return True
    return columns.variable not in sum_.windows and interior(loop, sum_.levels) is not None


def _pack(
    load: Load, nest: Nest, columns: For, levels: Sequence[For], scope: _Scope
) -> Packing | None:
    if load.buffer.name not in scope.constants:
        return None
    if linear(load, columns.variable) in (None, 0):
        return None
    full = [whole(level, nest.loops, levels) for level in levels]
    known = [level for level in full if level is not None]
    if len(known) < len(full):
        return None
    name = scope.names.fresh(f"{load.buffer.name}.packed")
    return packing(load, name, nest.loops, columns, known, COLUMNS)


def _parts(rows: int) -> tuple[int, ...]:
    """Where parts of a tile end that sums start in one after another."""
    return (1, rows // 4, rows // 2, rows) if rows >= 12 else (1, rows)


@dataclass
class _Tiles:
    """Writes the loops of one contraction."""

    what: _Contraction
    names: Names
    tile_rows: int

    def loops(self, bounds: Bounds) -> list[Stmt]:
        what = self.what
        tiled = {loop.variable for loop in (what.rows, what.columns) if loop is not None}
        outer = [loop for loop in what.sum.nest.loops if loop.variable not in tiled]
        for loop in outer:
            bounds = over(bounds, loop.variable, loop.start, loop.stop)
        body = self._regions(bounds)
        for loop in reversed(outer):
            body = [For(loop.variable, loop.start, loop.stop, tuple(body))]
        return body

    def _regions(self, bounds: Bounds) -> list[Stmt]:
        """Tiles where no window is cut off, plain loops elsewhere."""
        columns = self.what.columns
        inside = interior(columns, self.what.sum.levels)
        assert inside is not None
        if not inside.full:
            return self._panels((columns.start, columns.stop), {}, bounds)
        result: list[Stmt] = []
        low, high = simplify(inside.start, bounds), simplify(inside.stop, bounds)
        low, bounds = named(f"{columns.variable}_low", low, self.names, bounds, result)
        high, bounds = named(f"{columns.variable}_high", high, self.names, bounds, result)
        result += self._plain(columns.start, low)
        result += self._panels((low, high), dict(inside.full), bounds)
        result += self._plain(high, columns.stop)
        return result

    def _plain(self, start: Dim, stop: Dim) -> list[Stmt]:
        body = self.what.sum.nest.leaf
        if self.what.rows is not None:
            rows = self.what.rows
            body = (For(rows.variable, rows.start, rows.stop, body),)
        return [] if start == stop else [For(self.what.columns.variable, start, stop, body)]

    def _panels(
        self, ends: tuple[Dim, Dim], full: dict[str, tuple[Dim, Dim]], bounds: Bounds
    ) -> list[Stmt]:
        """Panels of columns, and in each of them tiles of rows."""
        what = self.what
        start, stop = ends
        panel = self.names.fresh(f"{what.columns.variable}_panel")
        count = ceildiv(stop - start, COLUMNS)
        inner = over(bounds, panel, Dim.of(0), count)
        column = start + Dim.of(panel) * COLUMNS
        width = simplify(dim_min(stop - column, COLUMNS), inner)
        body: list[Stmt] = []
        width, inner = named("width", width, self.names, inner, body)
        if what.rows is None:
            body += self._tile(column, width, Dim.of(0), Dim.of(1), full, panel, inner)
        else:
            body += self._rows(what.rows, column, width, full, panel, inner)
        return [For(panel, Dim.of(0), count, tuple(body))]

    def _rows(
        self,
        rows: For,
        column: Dim,
        width: Dim,
        full: dict[str, tuple[Dim, Dim]],
        panel: str,
        bounds: Bounds,
    ) -> list[Stmt]:
        """Tiles of rows; where a window is cut off, one row at a time."""
        inside = interior(rows, self.what.sum.levels)
        result: list[Stmt] = []
        if inside is None or not inside.full:
            ends = (rows.start, rows.stop)
            return self._full_rows(rows.variable, ends, column, width, full, panel, bounds)
        low, high = simplify(inside.start, bounds), simplify(inside.stop, bounds)
        low, bounds = named(f"{rows.variable}_low", low, self.names, bounds, result)
        high, bounds = named(f"{rows.variable}_high", high, self.names, bounds, result)
        known = {**full, **dict(inside.full)}
        result += self._full_rows(rows.variable, (low, high), column, width, known, panel, bounds)
        for start, stop in ((rows.start, low), (high, rows.stop)):
            if start == stop:
                continue
            row = self.names.fresh(rows.variable)
            inner = over(bounds, row, start, stop)
            body = self._tile(column, width, Dim.of(row), Dim.of(1), full, panel, inner)
            result.append(For(row, start, stop, tuple(body)))
        return result

    def _full_rows(
        self,
        variable: str,
        ends: tuple[Dim, Dim],
        column: Dim,
        width: Dim,
        full: dict[str, tuple[Dim, Dim]],
        panel: str,
        bounds: Bounds,
    ) -> list[Stmt]:
        start, stop = ends
        tile = self.names.fresh(f"{variable}_tile")
        count = ceildiv(stop - start, self.tile_rows)
        inner = over(bounds, tile, Dim.of(0), count)
        row = start + Dim.of(tile) * self.tile_rows
        height = simplify(dim_min(stop - row, self.tile_rows), inner)
        body: list[Stmt] = []
        height, inner = named("height", height, self.names, inner, body)
        body += self._tile(column, width, row, height, full, panel, inner)
        return [For(tile, Dim.of(0), count, tuple(body))]

    def _tile(
        self,
        column: Dim,
        width: Dim,
        row: Dim,
        height: Dim,
        full: dict[str, tuple[Dim, Dim]],
        panel: str,
        bounds: Bounds,
    ) -> list[Stmt]:
        what = self.what
        shape = (Dim.of(self.tile_rows if what.rows is not None else 1), Dim.of(COLUMNS))
        sums = Buffer(self.names.fresh("sums"), DType.F32, shape)
        result: list[Stmt] = [Reserve(sums)]
        place = (column, width, row, height)
        r, c, at = self._place(place)
        start = moved_expr(what.sum.start, at)
        filled = self._filled(width, COLUMNS, what.columns)
        across = For(str(c), Dim.of(0), filled, (Store(sums, (r, c), start),))
        result += [across] if what.rows is None else self._begun(what.rows, height, r, across)
        origin = {what.columns.variable: column}
        if what.rows is not None:
            origin[what.rows.variable] = row
        levels, starts = self._levels({**full}, origin, result, bounds)
        origin |= starts
        left, right = (moved(load, origin) for load in (what.sum.left, what.sum.right))
        if what.packing is not None:
            first = [origin[loop.variable] for loop in what.sum.levels]
            right = what.packing.at(Dim.of(panel), first)
            levels = tuple(
                (count, step, packed)
                for (count, step, _), packed in zip(levels, what.packing.steps(), strict=True)
            )
        left_row = Dim.of(0) if what.rows is None else linear(what.sum.left, what.rows.variable)
        assert left_row is not None
        result.append(Multiply(sums, height, width, levels, left, left_row, right))
        r, c, at = self._place(place)
        result += self._over(place, r, c, stored(what.sum, Load(sums, (r, c)), at))
        return result

    def _begun(self, rows: For, height: Dim, r: Dim, across: For) -> list[Stmt]:
        """Few rows are begun for few; an analysis that cannot tell one height from another sees
        that what is read has begun."""
        whole = self._filled(height, self.tile_rows, rows)
        if not whole.is_constant or height.is_constant:
            return [For(str(r), Dim.of(0), whole, (across,))]
        result: list[Stmt] = []
        first = 0
        for last in _parts(self.tile_rows):
            loop = For(str(r), Dim.of(first), Dim.of(last), (across,))
            result.append(If(less(first, height), (loop,)) if first else loop)
            first = last
        return result

    def _filled(self, extent: Dim, whole: int, loop: For) -> Dim:
        """A sum starts in all of a tile where what it starts with is there for all of it."""
        placed = loop.variable in indexed_by(self.what.sum.start)
        return extent if extent.is_constant or placed else Dim.of(whole)

    def _place(self, place: tuple[Dim, Dim, Dim, Dim]) -> tuple[Dim, Dim, dict[str, Dim]]:
        """Fresh variables inside a tile, and what the nest's variables are there."""
        column, _, row, _ = place
        c = Dim.of(self.names.fresh("c"))
        at = {self.what.columns.variable: column + c}
        if self.what.rows is None:
            return Dim.of(0), c, at
        r = Dim.of(self.names.fresh("r"))
        return r, c, {**at, self.what.rows.variable: row + r}

    def _over(
        self, place: tuple[Dim, Dim, Dim, Dim], r: Dim, c: Dim, body: tuple[Stmt, ...]
    ) -> list[Stmt]:
        _, width, _, height = place
        loop = For(str(c), Dim.of(0), width, body)
        return [loop] if self.what.rows is None else [For(str(r), Dim.of(0), height, (loop,))]

    def _levels(
        self,
        full: dict[str, tuple[Dim, Dim]],
        at: dict[str, Dim],
        result: list[Stmt],
        bounds: Bounds,
    ) -> tuple[tuple[tuple[Dim, Dim, Dim], ...], dict[str, Dim]]:
        levels = []
        origin: dict[str, Dim] = {}
        for loop in self.what.sum.levels:
            start, stop = full.get(loop.variable, (loop.start, loop.stop))
            start = simplify(start.substitute(at), bounds)
            stop = simplify(stop.substitute(at), bounds)
            start, bounds = named(f"{loop.variable}_first", start, self.names, bounds, result)
            stop, bounds = named(f"{loop.variable}_last", stop, self.names, bounds, result)
            left, right = (linear(load, loop.variable) for load in self._both())
            assert left is not None and right is not None
            levels.append((stop - start, left, right))
            origin[loop.variable] = start
        return tuple(levels), origin

    def _both(self) -> tuple[Load, Load]:
        return self.what.sum.left, self.what.sum.right
