# SPDX-License-Identifier: Apache-2.0
"""Static figures of the machine code of products: registers, spills, shared memory, occupancy and
the instructions of hot loops. They are kept in figures.txt, so that a change shows in a diff;
rewrite it with `pytest --update-golden tests/cuda/test_figures.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from relax_aot.binaries.cubin import DeviceFunction, read_cubin
from relax_aot.binaries.sass import DeviceCode, DeviceLoop
from relax_aot.emit.cuda_module import device_source
from relax_aot.fusion import fuse
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Kernel
from relax_aot.ir.parse import parse
from relax_aot.lowering import lower
from relax_aot.scheduling import fusion_policy, schedule_device
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.devices.products import product
from relax_aot.scheduling.targets import Target, cuda, cuda_mma
from relax_aot.toolchain.nvdisasm import disassembled
from relax_aot.toolchain.nvrtc import cubin
from tests.cuda.figure_models import (
    ANY_WINDOWS,
    ATTENTION,
    BY_ROWS,
    BYTE_WINDOWS,
    BYTES,
    CAUSAL,
    CAUSAL_FLOATS,
    CHOSEN_FLOATS,
    CONVOLUTION,
    DECODED,
    FIRST_LAYER,
    FLOATS,
    FOUR_BITS,
    GROUPS,
    GROUPS_AND_ZEROS,
    HALF_WINDOWS,
    LINEAR,
    MADE,
    MASKED,
    MASKED_FLOATS,
    MASKED_SUMS,
    PIXEL_ROWS,
    POINTS,
    SCALED,
    SEEN,
    SOFTMAX,
    TRANSPOSED,
    WIDE,
    WINDOW,
    WINDOW_FLOATS,
    any_size,
    batches,
    grouped,
    halves,
    heads,
    matmul,
    of_sizes,
    one_row,
    packed_weights,
    points,
    symbolic,
)
from tests.cuda.occupancy import occupancy
from tests.cuda.toolkits import needs_compilers, needs_disassembler, needs_fixed_addresses
from tests.scheduling.devices.kernels import ORDERED, Strategy, cast_rows, device_form
from tests.transforms.examples import example_module

pytestmark = [needs_compilers, needs_disassembler]
FILE = Path(__file__).with_name("figures.txt")
UPDATE = "rewrite it with `pytest --update-golden tests/cuda/test_figures.py`, and review the diff"
CHIPS = {87: 12, 90: 13}
"""Compute capability: CUDA major of the compiler."""
COUNTED = ("FFMA", "HMMA", "IMMA", "IDP", "MUFU", "LDS", "LDSM", "STS", "LDG", "LDGSTS", "BAR")


def alone(text: str) -> tuple[Kernel, Bounds]:
    """The device form of a kernel, or of a function of one kernel."""
    if "func @main" in text:
        module = fuse(lower(parse(text)), fusion_policy(cuda_mma.TARGET)).module
    else:
        module = example_module(text)
    module = schedule_device(module, cuda_mma.TARGET)
    (kernel,) = module.kernels
    return kernel, module.bounds


@dataclass(frozen=True)
class Subject:
    """`strategy`: of the kernel in the text; without one, the text is a function. `enough`: what
    must hold of the hot loop of its first launch, that of large sizes, or of `every` one."""

    text: str
    strategy: Strategy | None
    enough: Callable[[DeviceLoop], bool]
    occupancy: float = 0.25
    target: Target = ORDERED
    every: bool = False


def mostly_ffma(loop: DeviceLoop) -> bool:
    return loop.share("FFMA") >= 0.75


def attends(loop: DeviceLoop) -> bool:
    return loop.share("FFMA", "HMMA", "MUFU") >= 0.4


def loads_vectors(loop: DeviceLoop) -> bool:
    return any("LDG" in one.opcode and "128" in one.opcode for one in loop.instructions)


def mostly_imma(loop: DeviceLoop) -> bool:
    return len(loop.instructions) <= 2.2 * loop.mix["IMMA"]


def mostly_hmma(loop: DeviceLoop) -> bool:
    return len(loop.instructions) <= 2.2 * loop.mix["HMMA"]


def hmma_of_few_columns(loop: DeviceLoop) -> bool:
    """Of at most 16 columns (decision 0076)."""
    return len(loop.instructions) <= 3.2 * loop.mix["HMMA"]


def rounds_for_hmma(loop: DeviceLoop) -> bool:
    """Rounding takes two instructions for each element, 32 for 8 products."""
    return len(loop.instructions) <= 8 * loop.mix["HMMA"]


def multiply_adds(loop: DeviceLoop) -> int:
    return loop.mix["FFMA"] + 256 * (loop.mix["HMMA"] + loop.mix["IMMA"])


ROUNDING = replace(cuda_mma.TARGET, tf32=True)
SUBJECTS = {
    "product f32": Subject(matmul("f32", "k, j"), product, mostly_ffma, every=True),
    "product f32, weights by columns": Subject(
        matmul("f32", "j, k"), product, mostly_ffma, every=True
    ),
    **{
        f"product f32 of {depth} steps": Subject(
            matmul("f32", "k, j", depth), product, mostly_ffma, every=True
        )
        for depth in (24, 27, 64, 147)
    },
    "product f32 of any sizes": Subject(
        "symbol m in 1..4096" + matmul("f32", "j, k", 128).replace("128", "m").replace("768", "m"),
        product,
        mostly_ffma,
        every=True,
    ),
    "convolution f32": Subject(CONVOLUTION, None, mostly_ffma, every=True),
    "convolution f32, 7x7 of 3 channels": Subject(FIRST_LAYER, None, mostly_ffma),
    "convolution f32, 3x3 of 3 channels, 24 filters": Subject(
        CONVOLUTION.replace("64, 28", "3, 28")
        .replace("96, 64, 3", "24, 3, 3")
        .replace("0..64", "0..3")
        .replace("0..96", "0..24")
        .replace("n, 96", "n, 24"),
        None,
        mostly_ffma,
    ),
    "transposed convolution f32": Subject(TRANSPOSED, None, mostly_ffma, every=True),
    "transposed convolution f32, images of any size": Subject(
        "symbol h in 1..32\nsymbol w in 1..32"
        + TRANSPOSED.replace("14, 14", "h, w").replace("28, 28", "2*h, 2*w").replace("96", "32"),
        None,
        mostly_ffma,
        every=True,
    ),
    "convolution f32 of points": Subject(POINTS, product, mostly_ffma, every=True),
    **{
        f"convolution f32 of points, {channels} channels, {filters} filters": Subject(
            points(channels, filters), None, mostly_ffma, every=True
        )
        for channels, filters in ((8, 16), (16, 16), (16, 32), (24, 24), (32, 8), (48, 16))
    },
    "attention f32": Subject(ATTENTION, None, attends, 0.125),
    **{
        f"attention f32, head size {size}, scaled and masked": Subject(
            heads(size, MASKED, "%c: f16[]", "%mask: f16[n, n]").replace("f16", "f32"),
            None,
            attends,
            0.125,
        )
        for size in (80, 128, 256)
    },
    "attention f16, keys by rows": Subject(BY_ROWS.replace("f32", "f16"), None, attends, 0.125),
    "attention bf16, keys by rows": Subject(BY_ROWS.replace("f32", "bf16"), None, attends, 0.125),
    **{
        f"attention f16, head size {size}, scaled": Subject(
            heads(size, SCALED, "%c: f16[]"), None, attends, 0.125
        )
        for size in (32, 64, 96, 128)
    },
    **{
        f"attention f16, head size {size}, scaled and masked": Subject(
            heads(size, MASKED, "%c: f16[]", "%mask: f16[n, n]"), None, attends, 0.125
        )
        for size in (32, 64, 96, 128)
    },
    **{
        f"attention f16, head size {size}, {what} by a mask": Subject(
            heads(size, SEEN, "%c: f16[]", "%fill: f16[]", f"%seen: bool[{rows}, n]"),
            None,
            attends,
            0.125,
        )
        for size in (32, 64, 96, 128)
        for what, rows in (("keys chosen", "n"), ("keys shut", "1"))
    },
    "attention f16, head size 64, a mask of choices added": Subject(
        heads(64, MADE, "%c: f16[]", "%seen: bool[n, n]"), None, attends, 0.125
    ),
    **{
        f"attention f16, head size {size}, masked": Subject(
            heads(size, MASKED_SUMS, "%mask: f16[n, n]"), None, attends, 0.125
        )
        for size in (16, 64)
    },
    "attention f16, head size 64, masked softmax of floats": Subject(
        heads(64, WIDE, "%c: f32[]", "%mask: f32[n, n]").replace(SOFTMAX, ""), None, attends, 0.125
    ),
    **{
        f"attention f16, head size {size}, {what}": Subject(
            heads(size, score, "%c: f16[]"), None, attends, 0.125
        )
        for size in (16, 32, 64, 128)
        for what, score in (("causal", CAUSAL), ("over a window", WINDOW))
    },
    **{
        f"attention f16, head size {size}, groups of 3 heads, causal": Subject(
            grouped(size), None, attends, 0.125
        )
        for size in (16, 32, 64, 128)
    },
    **{
        f"attention f16, head size {size}, groups of 3 heads, over a window": Subject(
            grouped(size, "left=256, right=0"), None, attends, 0.125
        )
        for size in (16, 32, 64)
    },
    "attention of floats from f16": Subject(FLOATS, None, attends, 0.125),
    "attention of floats from f16, causal": Subject(CAUSAL_FLOATS, None, attends, 0.125),
    "attention of floats from f16, keys chosen by a mask": Subject(
        CHOSEN_FLOATS, None, attends, 0.125
    ),
    **{
        f"attention of floats from f16, head size {size}{what}": Subject(
            text.replace("64", str(size)), None, attends, 0.125
        )
        for size in (16, 32)
        for what, text in (
            (", causal", CAUSAL_FLOATS),
            (", over a window", WINDOW_FLOATS),
            (", keys chosen by a mask", CHOSEN_FLOATS),
            (", masked", MASKED_FLOATS),
        )
    },
    "product f16": Subject(matmul("f16", "k, j"), matrix_product, mostly_hmma, every=True),
    "product f16, weights by columns": Subject(
        matmul("f16", "j, k"), matrix_product, mostly_hmma, every=True
    ),
    "linear layer f16": Subject(LINEAR, None, mostly_hmma),
    "product f16 of 128 steps": Subject(
        matmul("f16", "k, j", 128), matrix_product, mostly_hmma, every=True
    ),
    "product f16 of any sizes": Subject(
        "symbol m in 1..4096" + matmul("f16", "k, j", 128).replace("128", "m").replace("768", "m"),
        matrix_product,
        mostly_hmma,
        every=True,
    ),
    **{
        f"product f16 of {m} * m steps{what}, {c} * c columns": Subject(
            symbolic(weights, f"{m}*m", f"{c}*c"),
            matrix_product,
            mostly_hmma,
            every=True,
        )
        for what, weights in (("", "j, k"), (", weights by rows", "k, j"))
        for m, c in ((4, 4), (4, 2), (2, 4), (2, 2))
    },
    **{
        f"product {kind} of {m} steps{what}, {c} columns": Subject(
            symbolic(weights, m, c).replace("f16", kind), matrix_product, mostly_hmma, every=True
        )
        for kind, weights, what, m, c in (
            ("f16", "j, k", "", "m", "c"),
            ("f16", "k, j", ", weights by rows", "m", "c"),
            ("bf16", "k, j", ", weights by rows", "m", "c"),
            ("f16", "j, k", "", "m", "768"),
            *(("f16", "j, k", "", "4*m", columns) for columns in ("50", "96", "768")),
            ("f16", "k, j", ", weights by rows", "m", "768"),
            ("f16", "k, j", ", weights by rows", "768", "c"),
        )
    },
    **{
        f"product f16 of {m} steps, weights by rows, {c} columns": Subject(
            symbolic("k, j", m, str(c)), matrix_product, enough, every=True
        )
        for c, enough in ((16, hmma_of_few_columns), (32, mostly_hmma), (48, mostly_hmma))
        for m in ("768", "m")
    },
    **{
        f"batch of products f16 of any sizes{what}": Subject(
            batches(x, w), matrix_product, mostly_hmma, every=True
        )
        for what, x, w in (
            ("", "i, k", "k, j"),
            (", right factor transposed", "i, k", "j, k"),
            (", left factor transposed", "k, i", "k, j"),
            (", both factors transposed", "k, i", "j, k"),
        )
    },
    "product f16, vectors of 8 bytes": Subject(
        matmul("f16", "j, k", 772), matrix_product, mostly_hmma, every=True
    ),
    "product f16, vectors of 4 bytes": Subject(
        matmul("f16", "j, k", 774), matrix_product, mostly_hmma, every=True
    ),
    "product f16, vectors of 4 bytes, weights by rows": Subject(
        matmul("f16", "k, j", 774), matrix_product, mostly_hmma, every=True
    ),
    "product f16, vectors of 8 bytes, weights by rows": Subject(
        matmul("f16", "k, j", 772), matrix_product, mostly_hmma, every=True
    ),
    "product f16, left factor transposed": Subject(
        matmul("f16", "j, k", 256)
        .replace("%x: f16[n, 256]", "%x: f16[256, n]")
        .replace("%x[i, k]", "%x[k, i]"),
        matrix_product,
        mostly_hmma,
        every=True,
    ),
    "product f16 of odd lengths": Subject(
        matmul("f16", "j, k", 99), matrix_product, mostly_hmma, every=True
    ),
    **{
        f"product f16 of odd lengths, {what}": Subject(
            text, matrix_product, mostly_hmma, every=True
        )
        for what, text in (
            ("96 columns", symbolic("k, j", "99", "96")),
            ("96 columns, weights by columns", symbolic("j, k", "99", "96")),
            ("51 columns", symbolic("k, j", "99", "51")),
            ("100 rows", symbolic("j, k", "99", "768").replace("1..4096", "1..100")),
            ("floats that are cast", cast_rows(symbolic("j, k", "99", "768"))),
            ("floats that are cast, 96 columns", cast_rows(symbolic("k, j", "99", "96"))),
        )
    },
    "product f16, floats that are cast": Subject(
        cast_rows(matmul("f16", "k, j")), matrix_product, mostly_hmma, every=True
    ),
    "product f16 of odd lengths, weights of bytes": Subject(
        DECODED.replace("768", "99"), None, mostly_hmma, every=True
    ),
    "convolution f16": Subject(halves(CONVOLUTION), None, mostly_hmma, every=True),
    "convolution f16, 7x7 of 3 channels": Subject(
        halves(FIRST_LAYER), None, mostly_hmma, every=True
    ),
    "convolution f16, planes of any size": Subject(
        any_size(halves(CONVOLUTION)), None, mostly_hmma, every=True
    ),
    **{
        f"convolution f16, {channels} planes, {filters} filters": Subject(
            of_sizes(halves(CONVOLUTION), channels, filters), None, mostly_hmma, every=True
        )
        for channels, filters in ((40, 96), (20, 20), (128, 128))
    },
    "product f16, weights of bytes": Subject(DECODED, None, mostly_hmma),
    "product f16, weights of bytes by rows": Subject(
        DECODED.replace("%s: f16[768, 1]", "%s: f16[768]").replace("{trans_b=true}", "{}"),
        None,
        mostly_hmma,
    ),
    "product f16, weights of bytes in groups": Subject(GROUPS, None, mostly_hmma),
    "product f16, weights of bytes in groups with zero points": Subject(
        GROUPS_AND_ZEROS, None, mostly_hmma
    ),
    **{
        f"product f16, packed weights of {bits} bits": Subject(
            packed_weights(bits), None, mostly_hmma
        )
        for bits in (4, 8)
    },
    "product f16, packed weights of 4 bits with zero points": Subject(
        packed_weights(4, "%z"), None, mostly_hmma
    ),
    "product f32, packed weights of 4 bits with zero points": Subject(
        packed_weights(4, "%z").replace("f16", "f32"), None, mostly_ffma
    ),
    "product bf16, packed weights of 4 bits": Subject(
        packed_weights(4).replace("f16", "bf16"), None, mostly_hmma
    ),
    "product f16, weights of type i4": Subject(FOUR_BITS, None, mostly_hmma),
    "one row f16, packed weights of 4 bits": Subject(
        packed_weights(4, "%z", "1..1"), None, loads_vectors, 0.5
    ),
    "convolution f16, channels last": Subject(HALF_WINDOWS, None, mostly_hmma, every=True),
    "convolution f16, pixels as rows": Subject(PIXEL_ROWS, None, mostly_hmma, every=True),
    "convolution f16, images of any size": Subject(ANY_WINDOWS, None, mostly_hmma, every=True),
    **{
        f"convolution f16, {channels} channels": Subject(
            HALF_WINDOWS.replace("64", str(channels)), None, mostly_hmma, every=True
        )
        for channels in (32, 128, 40)
    },
    **{
        f"convolution f16, {filters} filters{what}": Subject(
            text.replace("96", str(filters)), None, mostly_hmma
        )
        for filters in (24, 64)
        for what, text in (
            ("", HALF_WINDOWS),
            (", pixels as rows", PIXEL_ROWS),
            (", images of any size", ANY_WINDOWS),
        )
    },
    **{
        f"convolution f16, channels last, {channels} channels, {filters} filters": Subject(
            of_sizes(HALF_WINDOWS, channels, filters), None, mostly_hmma, every=True
        )
        for channels, filters in ((24, 24), (64, 8), (256, 24))
    },
    "product of bytes": Subject(BYTES, matrix_product, mostly_imma, every=True),
    "product of bytes of 776 steps": Subject(
        BYTES.replace("k in 0..768", "k in 0..776")
        .replace(", 768]", ", 776]")
        .replace("%y: i32[n, 776]", "%y: i32[n, 768]"),
        matrix_product,
        mostly_imma,
        every=True,
    ),
    "product of bytes, a zero point": Subject(
        BYTES.replace("cast(%x[i, k], i32, wrap)", "(cast(%x[i, k], i32, wrap) - 3:i32)"),
        matrix_product,
        mostly_imma,
        every=True,
    ),
    "product of bytes, a zero point and constant weights": Subject(
        BYTES.replace("cast(%x[i, k], i32, wrap)", "(cast(%x[i, k], i32, wrap) - 3:i32)").replace(
            "kernel", "const %w: i8[768, 768] = splat 5\n    kernel", 1
        ),
        None,
        mostly_imma,
    ),
    "convolution of bytes, channels last, constant weights": Subject(
        BYTE_WINDOWS.replace("kernel", "const %w: i8[96, 3, 3, 64] = splat 5\n    kernel", 1),
        None,
        mostly_imma,
        every=True,
    ),
    "convolution of bytes in planes, 20 channels, constant weights": Subject(
        of_sizes(
            BYTE_WINDOWS.replace("kernel", "const %w: i8[96, 3, 3, 64] = splat 5\n    kernel", 1)
            .replace("28, 28, 64", "64, 28, 28")
            .replace("%x[b, i + k - 1, j + l - 1, d]", "%x[b, d, i + k - 1, j + l - 1]"),
            20,
            40,
        ),
        None,
        mostly_imma,
        every=True,
    ),
    "product of bytes, weights by rows": Subject(
        BYTES.replace("j, k", "k, j"), matrix_product, mostly_imma, every=True
    ),
    "product of bytes of any sizes, zero points, weights by rows": Subject(
        "symbol m in 1..1024"
        + BYTES.replace("cast(%x[i, k], i32, wrap)", "(cast(%x[i, k], i32, wrap) - 3:i32)")
        .replace("cast(%w[j, k], i32, wrap)", "(cast(%w[k, j], i32, wrap) - 5:i32)")
        .replace("768", "m"),
        matrix_product,
        mostly_imma,
        every=True,
    ),
    "convolution of bytes, channels last": Subject(
        BYTE_WINDOWS, matrix_product, lambda loop: len(loop.instructions) <= 8 * loop.mix["IMMA"]
    ),
    "one row f32": Subject(one_row("f32", "k, j"), product, loads_vectors, 0.5, cuda.TARGET),
    "one row f16, weights by columns": Subject(
        one_row("f16", "j, k"), matrix_product, loads_vectors, 0.5, cuda.TARGET
    ),
    "product bf16": Subject(matmul("bf16", "k, j"), matrix_product, mostly_hmma),
    "product f32, rounded to tf32": Subject(
        matmul("f32", "k, j"), matrix_product, rounds_for_hmma, target=ROUNDING
    ),
    "product f32, rounded to tf32, weights by columns": Subject(
        matmul("f32", "j, k"), matrix_product, rounds_for_hmma, target=ROUNDING
    ),
}


@dataclass(frozen=True)
class Figures:
    function: DeviceFunction
    code: DeviceCode
    threads: int
    dynamic_bytes: int
    chip: int

    @property
    def shared_bytes(self) -> int:
        return self.function.shared_bytes + self.dynamic_bytes

    @property
    def occupancy(self) -> float:
        return occupancy(self.function, self.threads, self.dynamic_bytes, self.chip)

    @property
    def hot(self) -> tuple[DeviceLoop, ...]:
        """The loops with most multiply-adds: of an attention, also that of keys which its queries
        do not all see."""
        counts = [*map(multiply_adds, self.code.loops)]
        pairs = zip(self.code.loops, counts, strict=True)
        return tuple(loop for loop, count in pairs if count == max(counts))

    @property
    def multiplies(self) -> bool:
        """Whether a loop has multiply-adds, which copies of rows have not."""
        return any(map(multiply_adds, self.code.loops))

    @property
    def text(self) -> str:
        function = self.function
        text = (
            f"registers {function.registers}, local {function.local_bytes}, shared"
            f" {self.shared_bytes}, occupancy {self.occupancy:.0%}"
        )
        if not self.code.loops:
            return f"{text}; {len(self.code.instructions)} without a loop"
        for loop in self.hot:
            mix = ", ".join(f"{name} {loop.mix[name]}" for name in COUNTED if loop.mix[name])
            text += f"; loop of {len(loop.instructions)}: {mix}"
        return text


@cache
def figures(name: str, chip: int) -> tuple[Figures, ...]:
    """Of each launch."""
    subject = SUBJECTS[name]
    if subject.strategy is None:
        device, bounds = alone(subject.text)
    else:
        _, made, bounds = device_form(subject.text, subject.strategy, target=subject.target)
        assert made is not None
        device = made
    source = device_source("model", [device], bounds)
    binary = cubin(source.text, "model", chip, CHIPS[chip])
    codes, functions = disassembled(binary), read_cubin(binary)
    return tuple(
        Figures(
            functions.function(one.c_name), codes[one.c_name], one.threads, one.dynamic_bytes, chip
        )
        for one in source.launches[device.name]
    )


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_hot_loops_do_mostly_products(name: str, chip: int) -> None:
    for one in figures(name, chip):
        assert one.function.local_bytes == 0, "spills"
        assert one.occupancy >= SUBJECTS[name].occupancy
    large, *others = (one for one in figures(name, chip) if one.multiplies)
    for one in (large, *others) if SUBJECTS[name].every else (large,):
        assert all(map(SUBJECTS[name].enough, one.hot)), one.text


@pytest.mark.long
@needs_fixed_addresses
def test_figures_are_the_committed_ones(*, update_golden: bool) -> None:
    lines = [
        f"{name}, sm_{chip}, launch {number}: {one.text}"
        for name in SUBJECTS
        for chip in CHIPS
        for number, one in enumerate(figures(name, chip))
    ]
    text = "\n".join(lines) + "\n"
    if update_golden:
        FILE.write_text(text)
    assert FILE.read_text() == text, UPDATE
