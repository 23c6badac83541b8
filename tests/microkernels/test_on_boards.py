# SPDX-License-Identifier: Apache-2.0
"""Every micro-kernel of a microcontroller computes what its meaning says on an emulated core that
has the instructions, in each form of its C: one program per header."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from relax_aot import planning, project
from relax_aot.externs import read_externs
from relax_aot.ir.loops import Buffer
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.parse import parse
from relax_aot.ir.unused import without_unused_module
from relax_aot.microkernels import (
    all_micro_kernels,
    byte_peaks,
    byte_rows,
    byte_strips,
    convolve,
    dsp,
    dsp_pairs,
    fixed_gates,
    functions,
    groups,
    lines,
    multiply_half,
    mve,
    ordered_sums,
    outside,
    quantize_range,
    rescale_rows,
    rows,
    scale_sums,
    softmax,
    state_rows,
    winograd,
)
from relax_aot.planning import order
from relax_aot.project.board import load_board
from relax_aot.verify.emulate import emulate
from tests.microkernels.samples import Array, Sample, differs
from tests.microkernels.test_every_micro_kernel import samples

RUNS = {"raspberry-pi-pico": 7}
"""Calls of a micro-kernel that memory has room for; elsewhere 12."""
BOARDS = {
    "mps3-an547": (*mve.MICRO_KERNELS, *convolve.MICRO_KERNELS, *groups.FLOAT_PRODUCTS,
                   *groups.DOTS["_mve"], *groups.SPLITS, *groups.PART_PRODUCTS,
                   *functions.MICRO_KERNELS, *outside.MICRO_KERNELS,
                   *quantize_range.MICRO_KERNELS, *scale_sums.MICRO_KERNELS,
                   *byte_rows.MICRO_KERNELS, *multiply_half.MICRO_KERNELS,
                   *byte_strips.MICRO_KERNELS, *ordered_sums.MICRO_KERNELS,
                   *fixed_gates.MICRO_KERNELS, *rescale_rows.MICRO_KERNELS,
                   *byte_peaks.MICRO_KERNELS),
    "mps2-an386": (*dsp.MICRO_KERNELS, *dsp_pairs.MICRO_KERNELS, *winograd.MICRO_KERNELS,
                   *groups.FLOAT_PRODUCTS, *groups.DOTS["_s16"],
                   *groups.SPLITS, *groups.PART_PRODUCTS,
                   *quantize_range.MICRO_KERNELS, *scale_sums.MICRO_KERNELS,
                   *rows.MICRO_KERNELS, *byte_rows.MICRO_KERNELS, *multiply_half.MICRO_KERNELS,
                   *lines.MICRO_KERNELS, *byte_peaks.MICRO_KERNELS,
                   *state_rows.MICRO_KERNELS, *fixed_gates.MICRO_KERNELS,
                   *rescale_rows.MICRO_KERNELS,
                   *(k for k in mve.MICRO_KERNELS if k.header == "quantize_lines.h")),
    "mps2-an500": (*softmax.MICRO_KERNELS, *rows.MICRO_KERNELS, *lines.MICRO_KERNELS,
                   *(k for k in functions.MICRO_KERNELS
                     if k.name == functions.FUNCTIONS["sigmoid"])),
    **dict.fromkeys(("mps2-an385", "raspberry-pi-pico"),
                    tuple(k for k in dsp_pairs.MICRO_KERNELS
                          if k.header in ("multiply_pairs.h", "depthwise_windows.h")
                          and "f32" not in k.name)),
}  # fmt: skip
HEADERS = list(dict.fromkeys((k.header, board) for board, ks in BOARDS.items() for k in ks))
NAMES = [f"{header}-{board}" for header, board in HEADERS]
WITH_ASSEMBLY = ("multiply_nhwc.h", "depthwise_interleaved4.h")
FORMS = {
    "intrinsics": ("-DRAOT_NO_ASSEMBLY",),
    "debug": ("-O0",),
    "reserved": ("-Os", "-fno-omit-frame-pointer", "-ffixed-r9"),
    "small": ("-Os", "-DRAOT_NO_ASSEMBLY"),
    "plain": ("-DRAOT_NO_INTRINSICS",),
}


@pytest.mark.qemu
@pytest.mark.parametrize(("header", "board"), HEADERS, ids=NAMES)
def test_c_on_a_core_with_the_instructions(header: str, board: str) -> None:
    check(header, board)


def _forms() -> Iterator[Any]:
    """The intrinsics of kernels that have assembly, and that of -Os; all other pairs take long."""
    for form, flags in FORMS.items():
        for header, board in HEADERS:
            short = form == "intrinsics" and header in WITH_ASSEMBLY
            short = short or (form, header) == ("reserved", "convolve.h")
            marks = () if short else (pytest.mark.slow, pytest.mark.long)
            yield pytest.param(header, board, flags, id=f"{header}-{board}-{form}", marks=marks)


@pytest.mark.qemu
@pytest.mark.parametrize(("header", "board", "flags"), list(_forms()))
def test_every_form_gives_the_same(header: str, board: str, flags: tuple[str, ...]) -> None:
    check(header, board, *flags)


def check(header: str, name: str, *flags: str) -> None:
    kernels = [kernel for kernel in BOARDS[name] if kernel.header == header]
    calls = {
        f"m{which}_{n}": (kernel, sample)
        for which, kernel in enumerate(kernels)
        for n, sample in enumerate(samples(kernel.name)[: RUNS.get(name, 12)])
    }
    inputs = {
        f"{name}_{operand.name}": np.resize(array, max(array.size, 1))
        for name, (kernel, sample) in calls.items()
        for operand in (*kernel.meaning.inputs, *kernel.meaning.outputs)
        for array in [sample.arrays[operand.name]]
    }
    module = without_unused_module(parse(program(calls), {}, all_micro_kernels()))
    board = load_board(name)
    stack = max(board.stack_bytes, 1 << 14)
    board = dataclasses.replace(board, flags=(*board.flags, *flags), stack_bytes=stack)
    plan = planning.plan(order.run(module))
    built = project.assemble(module, plan, "m", board, read_externs([], []))
    (run,) = emulate(built, [inputs])
    assert run.status == 0
    for name, (kernel, sample) in calls.items():
        for operand in kernel.meaning.outputs:
            wanted = sample.expected[operand.name]
            found = run.outputs[f"{name}_{operand.name}_after"].reshape(-1)[~wanted.mask]
            assert not differs(kernel, found, wanted.compressed()), f"{kernel.name} {sample.sizes}"


def program(calls: dict[str, tuple[MicroKernel, Sample]]) -> str:
    """A module with one kernel per call, which is given what the written operand holds before."""
    params, lines, results, kernels = [], [], [], []
    for name, (kernel, sample) in calls.items():
        types = {o.name: _type(o, sample.arrays[o.name]) for o in kernel.operands}
        written = kernel.meaning.outputs
        given = {f"%{name}_{o.name}": types[o.name] for o in (*kernel.meaning.inputs, *written)}
        params += [f"{operand}: {type_}" for operand, type_ in given.items()]
        after = [f"%{name}_{out.name}_after" for out in written]
        results += after
        made = ", ".join(f"{new}: {types[o.name]}" for new, o in zip(after, written, strict=True))
        lines.append(f"  {made} = call_kernel({', '.join(given)}) {{kernel=@{name}}}")
        read = [f"%{o.name}: {types[o.name]}" for o in kernel.meaning.inputs]
        read += [f"%{o.name}_before: {types[o.name]}" for o in written]
        body = [f"  reserve %{o.name}: {types[o.name]}" for o in kernel.meaning.scratch]
        for out in written:
            count = max(sample.arrays[out.name].size, 1)
            body += [
                f"  for i in 0..{count} {{",
                f"    %{out.name}[i] = %{out.name}_before[i]",
                "  }",
            ]
        at = ", ".join(f"%{operand.name}[0]" for operand in kernel.operands)
        body.append(f"  micro {kernel.name}({at}) [{', '.join(map(str, sample.sizes))}]")
        outputs = ", ".join(f"%{out.name}: {types[out.name]}" for out in written)
        head = f"kernel @{name}({', '.join(read)}) -> ({outputs}) {{"
        kernels.append("\n".join([head, *body, "}"]))
    main = f"func @main({', '.join(params)}) {{"
    return "\n".join([main, *lines, f"  return {', '.join(results)}", "}", *kernels])


def _type(operand: Buffer, array: Array) -> str:
    return f"{operand.dtype.value}[{max(array.size, 1)}]"


@pytest.mark.slow
@pytest.mark.qemu
def test_halves_are_quantized_away_from_zero() -> None:
    """Each quarter from below the least byte to above the greatest one, by factors of one."""
    x = np.arange(-600, 600, dtype=np.float32) / 4
    text = f"""
        func @main(%x: f32[{x.size}], %by: f32[2]) {{
          %y: i8[{x.size}] = call_kernel(%x, %by) {{kernel=@quantize}}
          return %y
        }}
        kernel @quantize(%x: f32[{x.size}], %by: f32[2]) -> (%y: i8[{x.size}]) {{
          micro raot_quantize_by_s8(%y[0], %x[0], %by[0]) [{x.size}, 1]
        }}"""
    plan = planning.plan(order.run(parse(text, {}, all_micro_kernels())))
    built = project.assemble(plan.module, plan, "m", load_board("mps2-an386"), read_externs([], []))
    (run,) = emulate(built, [{"x": x, "by": np.array([1.0, -3.0], np.float32)}])
    away = np.trunc(x - 3.0 + np.copysign(0.5, x - 3.0))
    np.testing.assert_array_equal(run.outputs["y"], away.clip(-128, 127).astype(np.int8))


LIMITS = [(-np.inf, np.inf), (0.0, np.inf), (0.0, 6.0), (-np.inf, 6.0), (-2.0, 6.0)]


@pytest.mark.slow
@pytest.mark.qemu
def test_sums_become_floats_between_any_limits() -> None:
    """Lines of each length up to two blocks, whose last one has a bias that is NaN."""
    first = "%sums[0, 0], %scale[0], %bias[0], %by[0]"
    counts, rng = range(1, 18), np.random.default_rng(0)
    sums = rng.integers(-3000, 3000, (3, 17)).astype(np.int32)
    scale = rng.uniform(0.001, 0.01, 3).astype(np.float32)
    bias = np.array([0.5, -4.0, np.nan], np.float32)
    operands = "%sums: i32[3, 17], %scale: f32[3], %bias: f32[3], %by: f32[3]"
    made = [f"%y{count}: f32[3, {count}]" for count in counts]
    calls = [
        f"{y} = call_kernel(%sums, %scale, %bias, %by) {{kernel=@scale{count}}}"
        for y, count in zip(made, counts, strict=True)
    ]
    results = ", ".join(f"%y{count}" for count in counts)
    kernels = [
        f"""kernel @scale{count}({operands}) -> ({y}) {{
          micro raot_scale_lines_f32(%y{count}[0, 0], {first}) {sizes}
        }}"""
        for y, count in zip(made, counts, strict=True)
        for sizes in [[3, count, count, 1, 17, 1, 1]]
    ]
    lines = [f"func @main({operands}) {{", *calls, f"return {results}", "}", *kernels]
    plan = planning.plan(order.run(parse("\n".join(lines), {}, all_micro_kernels())))
    built = project.assemble(plan.module, plan, "m", load_board("mps2-an386"), read_externs([], []))
    factor = np.float32(0.75)
    given = {"sums": sums, "scale": scale, "bias": bias}
    runs = emulate(built, [given | {"by": np.array([factor, *ends], "f4")} for ends in LIMITS])
    floats = sums.astype(np.float32) * scale[:, None] * factor + bias[:, None]
    for run, (low, high) in zip(runs, LIMITS, strict=True):
        expected = floats.clip(np.float32(low), np.float32(high))
        for count in counts:
            np.testing.assert_array_equal(run.outputs[f"y{count}"], expected[:, :count])
