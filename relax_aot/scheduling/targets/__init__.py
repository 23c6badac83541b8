# SPDX-License-Identifier: Apache-2.0
"""What schedules ask of a target, one file per instruction set.

Each file has a `TARGET`; `find` takes the one whose features the board has, the most
demanding first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from relax_aot.ir.graph import Array
from relax_aot.ir.loops import For, Kernel, Stmt
from relax_aot.ir.types import DType
from relax_aot.microkernels.convolve import COLUMNS
from relax_aot.scheduling.contraction import Contraction, Weighted
from relax_aot.scheduling.writer import Writer


@dataclass(frozen=True, slots=True)
class Target:
    """`needs`: features of a board; `families`: those it is made for, empty for all;
    `strategies` for integer contractions and `floats`: the first that matches is taken.

    `registers` hold one float each; a load reaches `reach` bytes from its pointer;
    `pointers` can be kept at once; `block` operations at most stand in an unrolled block;
    `code` bytes of blocks make a model count as twice as slow. The float micro-kernel is given
    tiles of `rows` rows (0: no tiles), and `panel` bytes at most of an image are gathered for
    it, a multiple of `lanes` columns, up to `spare_panel` where the arena becomes no larger;
    `strip` bytes of one for a depthwise convolution (0: none). A kernel that sums and does not
    multiply is computed for `sums` rows at a time (0: one), which hides latency and takes as many
    rows of scratch; a target with `partial_sums` lanes (1: none) does so only with ordered sums.
    `dots`: the form of the dot products of quantized bytes with weights in groups
    (microkernels/groups.py; empty: none); products of floats with such weights have tiles of
    `group_rows` (0: `rows`), for which weights are decoded once, or split their rows into integers,
    which changes bits (`parts`: the form of the micro-kernels; empty: they do not). With `halves`,
    vectors convert operands of half precision as tiles read them; tiles have `half_rows` rows (0:
    `rows`) where each of them would convert its right operand again. `half_sums`: sums of products
    of half precision have tiles of floats.
    `functions`: elements of a strip for which micro-kernels compute elementary functions (0:
    loops compute them), `gates`: the same for gates, 1 where only rows are computed so, `fixed`:
    for those of integers, `sigmoids`: for sigmoid where the others are loops. `rescales`: they
    rescale rows of sums of gates. `softmax`: one computes whole rows. `scans`: micro-kernels check
    contiguous indices. `quotients`: they quantize rows by a division. `byte_rows`: they multiply
    rows of bytes by bytes that are computed too, `wide_rows`: rows of 16-bit integers. `stores`:
    they begin the sums of tiles of floats and store the results, of so many columns by constants
    where a tile has few rows (0: they do not). Rows of an image that are read at
    places of a table are expanded in `expands` bytes at most (0: none).
    `channels_last`: images of bytes between kernels have this layout, those of floats with at least
    `float_channels` (0: none). `transposes`: micro-kernels transpose floats. `lookups`: they look
    rows of bytes up. A row of scores that may take more than `score_row` bytes is computed in
    blocks of `score_block` keys.
    `integers`: tiles of floats round their factors to integers, which changes bits.
    `separate`: a multiplication and an addition take less time than FMA, so tiles round twice; they
    begin and store several columns in an iteration. `waits`: loads of constants wait for flash.
    `scratch`: by so many bytes may a kernel make the arena larger to save products.
    `compact`: one function for all convolutions rather than fast loops for each. `lean`: names of
    kernels that keep little scratch.

    Kernels for a `device` are loops over its blocks (scheduling/devices): of `threads` threads, one
    for each element, or of `team` warps, with `shared` bytes of memory of their own. `matrices`:
    the types that it has matrix units for; `tf32`: they may round the factors of floats. Of
    `nests`, strategies for a whole loop of the kernel, the first that matches is taken.
    `reduced`: kernels and the numbers of their launches whose tiles are smaller than usual, as
    registers did not suffice, each as often as it takes the next smaller ones.
    """

    name: str
    needs: tuple[str, ...]
    registers: int
    pointers: int
    reach: int
    block: int
    code: int
    families: tuple[str, ...] = ()
    rows: int = 0
    panel: int = 0
    spare_panel: int = 0
    lanes: int = 8
    strip: int = 0
    sums: int = 0
    dots: str = ""
    group_rows: int = 0
    parts: str = ""
    halves: bool = False
    half_rows: int = 0
    half_sums: bool = False
    partial_sums: int = 1
    functions: int = 0
    gates: int = 0
    fixed: int = 0
    rescales: bool = False
    sigmoids: int = 0
    softmax: bool = False
    scans: bool = False
    quotients: bool = False
    byte_rows: bool = False
    wide_rows: bool = False
    stores: int = 0
    expands: int = 0
    channels_last: bool = False
    float_channels: int = 0
    transposes: bool = False
    lookups: bool = False
    score_row: int = 1 << 13
    score_block: int = 256
    strategies: tuple[Strategy, ...] = ()
    floats: tuple[FloatStrategy, ...] = ()
    integers: bool = False
    separate: bool = False
    waits: bool = False
    scratch: int = 0
    compact: bool = False
    lean: frozenset[str] = frozenset()
    device: bool = False
    threads: int = 256
    team: int = 8
    shared: int = 48 << 10
    matrices: tuple[DType, ...] = ()
    tf32: bool = False
    nests: tuple[DeviceStrategy, ...] = ()
    reduced: tuple[tuple[str, int], ...] = ()

    @property
    def has_byte_lines(self) -> bool:
        """Whether micro-kernels for lines of bytes are faster than loops: on Cortex-M with Helium
        or the DSP extension."""
        return self.channels_last or (self.dots == "_s16" and not self.compact)

    def panel_columns(self, steps: int) -> int:
        """Columns of a panel of so many floats each; 0 if none fits."""
        fits = self.panel // (steps * DType.F32.bytes)
        return min(COLUMNS, fits // self.lanes * self.lanes)


@dataclass(frozen=True, slots=True)
class Context:
    """What holds for one kernel: `constants` are the inputs whose data are known, `finite`
    those that hold neither infinity nor NaN, `balanced` those of bytes above -128, `share` its part
    of the model's work, `calls` the constants of each call, empty where they may be replaced;
    `lean`: it keeps little scratch; `room`: bytes of scratch that make the arena no larger;
    `reduced`: numbers of launches, from the next one on, each as often as its tiles are to be
    smaller."""

    target: Target
    constants: frozenset[str] = frozenset()
    finite: frozenset[str] = frozenset()
    share: float = 1.0
    balanced: frozenset[str] = frozenset()
    calls: Sequence[Mapping[str, Array]] = ()
    lean: bool = False
    room: int = 0
    reduced: tuple[int, ...] = ()

    def reduced_at(self, launches: Sequence[Stmt]) -> int:
        """Of the launch behind those that a strategy has written."""
        return self.reduced.count(sum(isinstance(stmt, For) for stmt in launches))


Emit = Callable[[], None]
Strategy = Callable[[Weighted, Writer, Context], Emit | None]
"""Returns what writes the loops of a contraction; None where it does not match."""
FloatStrategy = Callable[[Contraction, Writer, Context], tuple[float, Emit] | None]
"""For one order of the factors: how well it matches, and what writes the loops."""
DeviceStrategy = Callable[[Kernel, For, Writer, Context], tuple[For, ...] | None]
"""For a loop of a kernel's body: loops over blocks in its place, with names and scratch of the
writer, whose ranges are those of the sizes; None where it does not match."""


def all_targets(*, device: bool = False) -> tuple[Target, ...]:
    """The most demanding first; those of devices only with `device`."""
    names = sorted(module.name for module in iter_modules(__path__))
    found = [import_module(f"{__name__}.{name}") for name in names]
    targets = [module.TARGET for module in found if hasattr(module, "TARGET")]
    targets = [target for target in targets if device or not target.device]
    return tuple(sorted(targets, key=lambda target: (-len(target.needs), not target.families)))


def find(family: str, features: Iterable[str]) -> Target:
    has = set(features)
    return next(
        target
        for target in all_targets(device=True)
        if has.issuperset(target.needs) and (not target.families or family in target.families)
    )
