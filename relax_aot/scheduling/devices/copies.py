# SPDX-License-Identifier: Apache-2.0
"""Copies of the factors of a matrix product to shared memory, in the types of matrix units.

Where neighbors in memory of 16, 8 or 4 bytes are always aligned and belong to one line of a
matrix, a thread copies them at once and does not wait (cp.async). Of other factors, such as those
of windows or decoded weights, a thread gathers 16 bytes of a line in its registers and stores them
at once. Outside of a window, bytes are the zero point. Padding puts the eight rows that one access
of the matrix units reads in different banks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd, prod

from relax_aot.ir.axes import LANES
from relax_aot.ir.dims import (
    ONE,
    ZERO,
    Bounds,
    Dim,
    ceildiv,
    dim_max,
    dim_min,
    prove_le,
    row_major,
    simplify,
)
from relax_aot.ir.loops import (
    Buffer,
    Expr,
    For,
    If,
    Lit,
    Load,
    Select,
    Store,
)
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import follow, moved, stride
from relax_aot.scheduling.devices.operands import (
    At,
    Product,
    all_of,
    below,
    clamped,
    extent,
    inside,
    split,
)
from relax_aot.scheduling.devices.vectors import BYTES, vectors, whole_chunks
from relax_aot.scheduling.devices.window_bits import Words, bits_of, have_bits, quotient, words_of
from relax_aot.scheduling.devices.window_tables import Known, Path, WindowTable, bounded
from relax_aot.scheduling.nest import greatest
from relax_aot.scheduling.writer import Writer

REACH = 1024
"""Bytes that are part of the address of a copy. Of numbers above about 2 KB compilers make another
address."""
STEP_PAD = 8
"""Floats between steps whose lines are neighbors: four of them are read by eight lanes each."""
SECTOR = 32
"""Bytes of a line of a cache that are read at once."""
MOST_PREDICATES = 4
"""Vectors of a step that a thread copies or not. More predicates take registers."""
FEW = 128
"""Lines that have a padding each."""
MOST_PLACES = 512
"""Of a table in shared memory, 16 bytes each."""
Pair = tuple[Dim, Dim]
"""A line and a step."""


@dataclass(frozen=True, slots=True)
class Side:
    """A factor in shared memory: so many `lines` (rows or columns) and `steps` of it. `rows`: the
    steps of a line are neighbors, else the lines of a step. `vector`: the elements that are
    copied at once; 0 where it is one after the other. `zeros`: lines beyond the last one are zeros;
    else others are in their place, whose addresses are the same for all steps. `apart`:
    addresses take two registers of a thread each and are computed once, else those of one part are
    computed together. `open`: the places of its window that are inside, for each pixel that a lane
    copies (window_bits.py). `places`: for each step, or as many as a thread copies at once or a
    part has, how far ahead of the first one it is, and the bits of its place. `near`: numbers in a
    distance are parts of instructions, for which addresses are kept from one part to the next.
    `kept`: addresses for one half of shared memory are kept for the other one. `few_lines`: a
    thread copies several whole vectors of a line, too, so that it has fewer addresses. `steady`:
    both factors are copied at once, without windows (sum_parts.py); `sector`: the fewest bytes of a
    line that neighbors copy at once then."""

    name: str
    product: Product
    load: Load
    loops: tuple[For, ...]
    lines: int
    steps: int
    rows: bool
    vector: int
    shared: Buffer
    zeros: bool = False
    apart: bool = True
    open: Words | None = None
    places: WindowTable | None = None
    near: bool = True
    kept: bool = True
    few_lines: bool = False
    steady: bool = False
    sector: int = SECTOR

    @property
    def pitch(self) -> Dim:
        return self.shared.shape[-1]

    @property
    def order(self) -> str:
        """In names of micro-kernels."""
        return "" if self.rows else "_steps"

    @property
    def kind(self) -> DType:
        return self.shared.dtype

    @property
    def width(self) -> int:
        """Elements of 16 bytes."""
        return BYTES // self.kind.bytes

    @property
    def fill(self) -> Lit:
        """What stands for elements that do not exist. Beyond the last step, too, where windows are
        clipped, as one condition holds for both."""
        if self.kind.is_float:
            return Lit(0.0, self.kind)
        padded, right = self.load == self.product.padded, self.load == self.product.found.right
        zero = self.product.fills[right] if padded else 0
        return Lit(zero, self.kind)

    @property
    def _stop(self) -> Dim:
        """The end of the lines in memory."""
        count = extent(self.loops)
        whole = not self.rows and self.load in self.product.filled
        return ceildiv(count, self.width) * self.width if whole else count

    @property
    def moving(self) -> int:
        """The axis along which the next part of a factor is: 0 for lines, 1 for steps."""
        return 0 if self.zeros else 1

    def place(self, half: Dim, line: Dim, step: Dim) -> tuple[Dim, ...]:
        if not self.rows:
            return half, step, line
        high = self.lines // folds(self.lines)
        if high == self.lines:
            return half, line, step
        return half, line % high, line // high * self.steps + step

    def copy(
        self, w: Writer, thread: Dim, threads: int, batch: At, half: Dim, first: Pair,
        *, lane: Dim = ZERO, known: Known | None = None, whole: bool = False,
    ) -> None:  # fmt: skip
        """Copies the lines and steps from `first` on to one half of shared memory. `whole`: none
        of them is beyond the last one of its axis. `lane`: that of the thread. `known`: what the
        table of places has for it."""
        ends = (self._stop, extent(self.product.steps))
        with self.chunks(w, thread, threads) as (e, place, far):
            to = self.shared[self.place(half, *place)]
            if self.vector:
                self._vector(w, batch, to, place, far, first, ends, (lane, e), known, whole=whole)
            else:
                self._gather(w, batch, to, place, first, ends, whole=whole)

    def read(
        self, w: Writer, role: str, line: Dim, behind: Sequence[Dim], to: Load, lane_row: int
    ) -> None:
        """Loads a matrix to registers of which a lane has `lane_row` elements. How far it is behind
        the first one from `line` on is apart from the address, which threads compute once. `role`:
        `left` or `right`."""
        w.micro(
            f"raot_load_{role}{self.order}_{self.kind.value}", to=to, pitch=self.pitch,
            far=row_major(behind, self.shared.shape), lane_row=lane_row,
            **{"from": self.shared[self.place(ZERO, line, ZERO)]},
        )  # fmt: skip

    def opened(self, w: Writer, warp: Dim, threads: int, batch: At, first: Dim) -> Side:
        """The side with words for the pixels that each lane copies, if it has any and words have
        enough bits. Those of floats have none. `first`: the line."""
        *places, _ = self.product.steps
        if not self._has_words(w.bounds):
            return self
        words = words_of(w, places, -(-self.count // threads), packed=self.places is not None)
        with w.range("lane", LANES, axis="lane") as lane:
            thread = w.named("thread", warp * LANES + lane)
            words.start(w, lane)
            with self.chunks(w, thread, threads) as (e, place, _):
                line = clamped(first + place[0], extent(self.loops), self.lines, w)
                at = {**batch, **split(w, self.loops, line)}
                words.put(w, (lane, e), bits_of(w, places, self.product.window(w, self.load, at)))
        self._tabulate(w, warp, threads, words)
        return replace(self, open=words)

    def tabulated(self, w: Writer, threads: int) -> Side:
        """The side with memory for a table of places, where it takes less than to compute them: two
        parts of one pixel share what is computed. All chunks of a thread are of one place then. The
        first part needs none."""
        if not self._has_words(w.bounds):
            return self
        steps = self.steps if self._one_pixel(w.bounds) else self.vector
        count = simplify(ceildiv(extent(self.product.steps), steps), w.bounds)
        alike = self.lines % (threads * self.vector // self.steps) == 0
        several = prove_le(self.steps + 1, extent(self.product.steps), w.bounds)
        few = several and count.is_constant and count.constant <= MOST_PLACES
        if whole_chunks(self.product.steps, 2 * self.steps, w.bounds) or not (alike and few):
            return self
        entries = w.reserve("places", DType.I32, "shared", count, 4)
        return replace(self, places=WindowTable(self.path, entries, steps))

    def _tabulate(self, w: Writer, warp: Dim, threads: int, words: Words) -> None:
        if self.places is None:
            return
        inner = self.product.steps[-1].extent

        def bits(position: Dim) -> list[Expr]:
            number = w.short("number", quotient(position, inner))
            return [words.bit(number, Dim.of(n)) for n in range(words.pixels)]

        with w.range("lane", LANES, axis="lane") as lane:
            self.places.fill(w, warp * LANES + lane, threads, bits)

    def known(self, w: Writer, thread: Dim, start: Dim) -> Known | None:
        """What the table has for the chunks of a thread in the part that begins at a step."""
        if self.places is None:
            return None
        each = self.steps // self.places.steps
        entry = w.named("entry", thread % each)
        return self.places.known(w, entry, each * simplify(start // self.steps, w.bounds))

    def _has_words(self, bounds: Bounds) -> bool:
        *places, _ = self.product.steps
        pixels = self.kind.bytes <= 2 and self.vector > 0 and self.load == self.product.padded
        return pixels and have_bits(places, bounds)

    @property
    def _each(self) -> int:
        """The elements of a chunk, which a thread copies one after the other or at once."""
        return self.vector or self.width

    @property
    def count(self) -> int:
        """Of chunks."""
        return self.lines * self.steps // self._each

    @contextmanager
    def chunks(self, w: Writer, thread: Dim, threads: int) -> Iterator[tuple[Dim, Pair, Pair]]:
        """The number of each chunk of a thread, its place, and how far it is from that of the first
        one."""
        with w.range("e", ceildiv(Dim.of(self.count), threads)) as e:
            rest = self.count % threads != 0
            with w.when(*[below(thread + e * threads, Dim.of(self.count))] if rest else ()):
                yield e, *self._chunk(w, (thread, e, threads), self._each)

    def _chunk(self, w: Writer, at: tuple[Dim, Dim, int], each: int) -> tuple[Pair, Pair]:
        """The place of a chunk of `each` elements, and how far it is from that of the first chunk
        of its thread, where that is the same for all threads, else 0. Consecutive threads have
        neighbors in memory. `at`: the thread, the number of its chunk, and how many threads there
        are."""
        thread, e, threads = at
        chunk = thread + e * threads
        if self.rows and each > 1 and not self.vector and self.lines_are_neighbors:
            outer = w.named("outer", chunk // self.lines)
            return (w.named("inner", chunk % self.lines), outer * each), (ZERO, ZERO)
        wide, high = self.steps // each, self.lines
        if not self.rows:
            wide, high = self.lines // each, self.steps
        group, far = gcd(wide, threads), (ZERO, ZERO)
        if self._has_near_vectors:
            group = self._near_group(group, high, threads)
        if high % (threads // group) == 0:  # the chunks of all threads are as far apart
            far = (e // (wide // group) * (threads // group), e % (wide // group) * group * each)
            outer = w.named("outer", thread // group) + far[0]
            inner = w.named("inner", thread % group * each) + far[1]
        else:
            outer, inner = w.named("outer", chunk // wide), chunk % wide * each
            inner = w.named("inner", inner)
        return ((outer, inner), far) if self.rows else ((inner, outer), (far[1], far[0]))

    @property
    def _has_near_vectors(self) -> bool:
        """Whether a thread copies several vectors of one line, as short ones. More whole ones take
        registers that compilers use for addresses of two parts."""
        most = self.width if self.few_lines else self.width - 1
        plain = type(self) is Side and self.kind.is_half and 0 < self.vector <= most
        known = self.shared.shape[0] == 2 and extent(self.product.steps).is_constant
        return plain and (self.steady or known) and self.product.padded is None

    def _neighbors(self, far: Dim, e: Dim, bounds: Bounds) -> int:
        """How many vectors of one step a thread copies. `far`: how far the line of chunk `e` is
        from that of the first one."""
        step = simplify(far.substitute(dict.fromkeys(e.symbols, ONE)), bounds)
        return self.lines // step.constant if step.is_constant and step != 0 else 1

    def _has_predicates(self, group: int) -> bool:
        """Whether a thread copies as many vectors of a step as may have a predicate each, if so
        many threads copy it."""
        return not self.rows and self.lines // self.vector // group >= MOST_PREDICATES

    def _near_group(self, group: int, high: int, threads: int) -> int:
        """The threads that copy neighbors of one line, of `group` that may: as few as copy `sector`
        bytes, so that a thread has more of its vectors in one line and fewer addresses; of a step
        no more than have a predicate each."""
        while (
            group % 2 == 0
            and not (self.steady and self._has_predicates(group))
            and group // 2 * self.vector * self.kind.bytes >= self.sector
            and high % (threads // group * 2) == 0
        ):
            group //= 2
        return group

    @property
    def lines_are_neighbors(self) -> bool:
        return stride(self.load, self.loops[-1].variable) == 1

    @property
    def _steps_are_one_axis(self) -> bool:
        """Whether the elements of a line are one axis of an array in memory, as packed ones are."""
        steps = self.product.steps
        names = {loop.variable for loop in steps}
        return (
            self.load != self.product.padded
            and sum(not names.isdisjoint(dim.symbols) for dim in self.load.index) == 1
            and all(loop.start == 0 for loop in steps)
            and all(follow(self.load, *pair) for pair in pairwise(steps))
        )

    def steps_at(self, w: Writer, place: Dim, position: Dim) -> dict[str, Dim]:
        """The loop variables of a step that is at a place of its part. Where all steps of a part
        are of one pixel of a window, this pixel is the same for all threads."""
        steps = self.product.steps
        if self._steps_are_one_axis:
            return {
                **dict.fromkeys((lp.variable for lp in steps), ZERO),
                steps[-1].variable: position,
            }
        if len(steps) == 1 or not self._one_pixel(w.bounds):
            return split(w, steps, position)
        at = split(w, steps, simplify(position - place, w.bounds))
        return {**at, steps[-1].variable: at[steps[-1].variable] + place}

    def _one_pixel(self, bounds: Bounds) -> bool:
        """Whether all steps of a part are of one pixel of a window."""
        return whole_chunks(self.product.steps, self.steps, bounds)

    @property
    def path(self) -> Path:
        return Path(self.load, self.product.steps)

    def _pixel(
        self, w: Writer, line: At, step: Pair, own: Pair, known: Known | None
    ) -> tuple[dict[str, Dim], Dim, list[Expr]]:
        """The element that is in the place of a step in the first pixel of a window, how far ahead
        of it that of the step is, and when the step is inside of the image. `step`: its place in
        its part, and its position. `own`: the lane, and the number of its chunk."""
        place, position = step
        steps, apart = self.product.steps, place if self._one_pixel(w.bounds) else ZERO
        at = {**line, **self.path.first(apart)}
        if known is not None and self.open is not None:
            return at, known[0], [self.open.has(own, known[1][self.open.column(own[1]),])]
        ahead = self.path.ahead(w, position - apart)
        if self.open is None:
            exact = {**line, **self.steps_at(w, place, position)}
            return at, ahead, inside(exact, self.product.window(w, self.load, exact))
        number = w.short("number", quotient(position - apart, steps[-1].extent))
        return at, ahead, [self.open.has(own, self.open.bit(number, own[1]))]

    def element(
        self, w: Writer, batch: At, line: Dim, place: Pair, far: Pair, first: Pair,
        exact: tuple[bool, ...],
    ) -> tuple[dict[str, Dim], Dim]:  # fmt: skip
        """The element in the place of a chunk in the first part, and how far ahead of it that of
        this part is, of a factor that has no windows. Of chunks whose distance is part of an
        instruction, or where addresses are not apart, the element is that of the first chunk of the
        thread. `exact`: the axes that end with a part."""
        shifts, ahead = [ZERO, ZERO], ZERO
        for axis, loops in enumerate((self.loops, self.product.steps)):
            one_axis = self.few_lines and axis == 1 and self._steps_are_one_axis
            alone = len(loops) == 1 or one_axis
            step = stride(self.load, loops[-1].variable) if alone else None
            if axis == 0 and step is not None and self.apart and self.zeros:
                line, ahead = place[0], first[0] * step
            if step is None or not step.is_constant or not exact[axis]:
                continue
            if not self.apart or self.is_near(far[axis] * step, w.bounds):
                shifts[axis] = far[axis]
                ahead += far[axis] * step
        at = {**batch, **split(w, self.loops, line - shifts[0])}
        position = place[1] + first[1]
        if self.zeros or not self.apart:
            return {**at, **self.steps_at(w, place[1], position - shifts[1])}, ahead
        axes = self.path.axes
        one_axis = len(axes) == 1 or simplify(axes[0][1] % self.steps, w.bounds) == 0
        own = place[1] if one_axis else ZERO
        return {**at, **self.path.first(own - shifts[1])}, ahead + self.path.ahead(
            w, position - own
        )

    def is_near(self, distance: Dim, bounds: Bounds) -> bool:
        """Whether a distance between elements, which is a number, is part of an instruction."""
        return greatest(distance, bounds) * self.kind.bytes <= REACH

    def _near(self, ahead: Dim, numbers: frozenset[str], bounds: Bounds) -> Dim:
        """The part of a distance that is part of an instruction. `numbers`: the variables of loops
        that compilers unroll. What is the same for a part is no such number unless it is `kept`."""
        terms = [Dim((term,)) for term in ahead.terms]
        terms = [one for one in terms if one.symbols <= numbers and (self.kept or one.symbols)]
        terms = [one for one in terms if prove_le(0, one, bounds) and self.is_near(one, bounds)]
        return sum(terms, ZERO)

    def _in_parts(self, ahead: Dim) -> tuple[Dim, Dim, Dim]:
        """A distance as a rest, a number of parts, and how far apart these are, where that is no
        number: the sizes of the factor that are in all of its terms. One instruction multiplies
        both and adds the product, of less than 4 GB, to an address."""
        sizes = {name for size in self.load.buffer.shape for name in size.symbols}
        alike = [
            atom for atom in ahead.atoms
            if Dim.of(atom).symbols <= sizes and all(atom in dict(own) for _, own in ahead.terms)
        ]  # fmt: skip
        if not (alike and self.apart) or ahead.symbols <= sizes or self.kind.bytes > 2:
            return ahead, ZERO, ZERO
        number = gcd(*(number for number, _ in ahead.terms))
        apart = prod(map(Dim.of, alike), start=Dim.of(number))
        return ZERO, ahead // apart, apart

    def _vector(
        self, w: Writer, batch: At, to: Load, place: Pair, far: Pair, first: Pair, ends: Pair,
        own: Pair, known: Known | None, *, whole: bool,
    ) -> None:  # fmt: skip
        """Copies neighbors, as many of them as there are; zeros behind them. How far a part is
        behind the first one is apart from the address, which threads compute once. Where a part has
        several pixels, or a thread some vectors of a step, lines beyond the last one are zeros,
        which takes no other address. `own`: the lane, and the number of its chunk."""
        loops = self.loops
        positions = [near + start for near, start in zip(place, first, strict=True)]
        even = [
            simplify(stop % size, w.bounds) == 0 or (whole and axis == self.moving)
            for axis, stop, size in zip((0, 1), ends, (self.lines, self.steps), strict=True)
        ]
        padded, conditions = self.load == self.product.padded, list[Expr]()
        pixels_apart = self.product.padded and not padded and not self._one_pixel(w.bounds)
        alone = self.rows and len(loops) == 1
        whole_vectors = self.product.divides(self.vector, ends[1], w.bounds)
        if pixels_apart and alone and whole_vectors and not even[0]:
            conditions.append(below(positions[0], ends[0]))
            even[0] = True
        along, across = (1, 0) if self.rows else (0, 1)
        count = Dim.of(self.vector)
        repeats = self.rows or self.product.divides(self.vector, ends[0], w.bounds)
        few = self.steady and not self.rows
        few = few and self._neighbors(far[0], own[1], w.bounds) == MOST_PREDICATES
        if few and repeats and not even[0]:
            conditions.append(below(positions[0], ends[0]))
            even[0] = True
        exact = tuple(even)
        if repeats and not self.zeros and not even[0]:
            last = ends[0] - (1 if self.rows else self.vector)
            positions[0] = w.named("last", dim_min(positions[0], last))
            even[0] = True
        if not even[along]:
            count = dim_max(dim_min(ends[along] - positions[along], self.vector), 0)
        if not even[across]:
            count *= dim_max(dim_min(ends[across] - positions[across], 1), 0)
        if padded:
            at = {**batch, **split(w, loops, positions[0])}
            at, ahead, conditions = self._pixel(w, at, (place[1], positions[1]), own, known)
        else:
            at, ahead = self.element(w, batch, positions[0], place, far, first, exact)
        if conditions and not even[1]:
            conditions.append(below(positions[1], ends[1]))
            count = Dim.of(self.vector)
        numbers = own[1].symbols | (to.index[0].symbols if self.kept else frozenset[str]())
        near = self._near(ahead, numbers, w.bounds) if self.near and not padded else ZERO
        of = "" if self.vector == self.width else str(self.vector)
        zero = conditions and self.fill.value == 0
        if zero:
            count = self.counted(w, all_of(conditions))
        apart = self.place(to.index[0], *far)
        near_place = (own - behind for own, behind in zip(place, far, strict=True))
        begin = self.shared[tuple(simplify(d, w.bounds) for d in self.place(ZERO, *near_place))]
        rest, part, each = self._in_parts(ahead - near)
        with w.block() as copied:
            w.micro(
                f"raot_copy_async{of}_{to.dtype.value}", to=begin,
                count=w.named("count", count), ahead=w.named("ahead", rest),
                part=w.named("part", part), apart=each, near=near,
                far=row_major(apart, self.shared.shape),
                **{"from": moved(self.load, at)},
            )  # fmt: skip
        if zero or not conditions:
            w.add(*copied)
            return
        with w.block() as filled:
            some = w.reserve("some", self.kind, "register", self.width)
            with w.range("s", self.width) as s:
                w.add(Store(some, (s,), self.fill))
            w.micro(f"raot_store{self.width}_{self.kind.value}", to=to, **{"from": some})
        w.add(If(all_of(conditions), tuple(copied), tuple(filled)))

    def counted(self, w: Writer, condition: Expr) -> Dim:
        """How many elements are copied: all of a vector, or none."""
        chosen = Select(condition, Lit(self.vector, DType.I64), Lit(0, DType.I64))
        return bounded(w, "count", chosen, Dim.of(self.vector))

    def _gather(
        self, w: Writer, batch: At, to: Load, place: Pair, first: Pair, ends: Pair, *, whole: bool
    ) -> None:
        """Gathers steps of a line in registers, and stores them at once."""
        product, steps = self.product, self.product.steps
        line, step = (own + start for own, start in zip(place, first, strict=True))
        partial = self.zeros and not whole and simplify(ends[0] % self.lines, w.bounds) != 0
        beyond = [below(line, ends[0])] if partial else []
        if not self.zeros:
            line = clamped(line, ends[0], self.lines, w)
        at = {**batch, **split(w, self.loops, line)}
        window = product.window(w, self.load, at)
        some = w.reserve("some", self.kind, "register", self.width)
        total, inner = ends[1], steps[-1].variable
        rest = simplify(total % self.steps, w.bounds) != 0 and not (whole and self.moving)
        if rest or window or beyond:
            with w.range("s", self.width) as s:
                w.add(Store(some, (s,), self.fill))
        if whole_chunks(steps, self.width, w.bounds) and inner not in window:
            at |= self.steps_at(w, place[1], step)
            conditions = [*beyond, *([below(step, total)] if rest else []), *inside(at, window)]
            with w.when(*conditions), w.range("s", self.width) as s:
                value = product.value(w, self.load, {**at, inner: at[inner] + s})
                w.add(Store(some, (s,), value))
        else:
            with w.range("s", self.width) as s:
                own = {**at, **split(w, steps, step + s)}
                conditions = [*beyond, *([below(step + s, total)] if rest else [])]
                with w.when(*conditions, *inside(own, window)):
                    w.add(Store(some, (s,), product.value(w, self.load, own)))
        w.micro(f"raot_store{self.width}_{self.kind.value}", to=to, **{"from": some})


def side_of(
    w: Writer, product: Product, load: Load, kind: DType, size: tuple[int, int], name: str,
    *, zeros: bool = False, halves: int = 2, apart: bool = True,
) -> Side:  # fmt: skip
    """How a factor is copied: along the axis on which its elements are neighbors. Reserves
    `halves` of shared memory. `size`: lines and steps."""
    loops = product.rows if load == product.found.left else product.columns
    width, along = vectors(product, load, loops, w.bounds)
    rows = not along or along[0] == product.steps
    shared = reserved_tile(w, name, kind, size, rows=rows, halves=halves)
    return Side(name, product, load, loops, *size, rows, width, shared, zeros, apart)


def reserved_tile(
    w: Writer, name: str, kind: DType, size: tuple[int, int], *, rows: bool, halves: int = 2
) -> Buffer:
    """`halves` of shared memory for the lines and steps of a factor."""
    lines, steps = size
    pad = BYTES // kind.bytes if rows or kind.is_half else STEP_PAD
    if rows:
        both = folds(lines)
        return w.reserve(f"{name}_tile", kind, "shared", halves, lines // both, both * steps + pad)
    return w.reserve(f"{name}_tile", kind, "shared", halves, steps, lines + pad)


def folds(lines: int) -> int:
    """How many lines are in one row of shared memory: of many lines two, which have one padding."""
    return 2 if lines > FEW else 1
