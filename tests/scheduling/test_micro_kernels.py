"""Micro-kernels by themselves: on random tiles each computes what its record says, as portable C
and, on a core that has the instructions, by those."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relax_aot import planning, project
from relax_aot.externs import read_externs
from relax_aot.ir.loops import MICRO_KERNELS
from relax_aot.ir.micro_fours import MICRO_KERNELS as FOURS
from relax_aot.ir.micro_tiles import MICRO_KERNELS as TILED
from relax_aot.ir.parse import parse
from relax_aot.ir.types import DType
from relax_aot.planning import order
from relax_aot.project.board import load_board
from relax_aot.verify.emulate import emulate
from relax_aot.verify.host import host_model

Array = NDArray[Any]
Sizes = Mapping[str, int]
Random = np.random.Generator
TILES = 12
SCALES = ("scale", "scales")
SCRATCH = ("panel",)
LANES = {"last": 4, "channel": 1}
"""How many multipliers stand beside each other, before as many shifts."""


def _between(rng: Random, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def _window(rng: Random, lines: int) -> tuple[int, int]:
    first = _between(rng, 0, lines - 1)
    return first, _between(rng, first, lines)


def _rows(rng: Random) -> Sizes:
    count0, count1, count2 = (_between(rng, 1, high) for high in (9, 3, 3))
    places, width = _between(rng, 1, 8), _between(rng, 1, 12)
    first1, last1 = _window(rng, count1)
    step2, apart = _between(rng, 1, 3), _between(rng, 1, 2)
    return {
        "zero": _between(rng, -128, 127), "flip": 0, "places": places,
        "depth": -(-count0 * count1 * count2 // 16) * 16, "count0": count0, "step0": 40,
        "to0": 1, "count1": count1, "first1": first1, "last1": last1, "step1": 400,
        "to1": count0 * count2, "count2": count2, "step2": step2, "to2": count0,
        "lead": _between(rng, -2, 3), "apart": apart, "tap": 1, "width": width,
    }  # fmt: skip


def _strip(rng: Random) -> Sizes:
    channels, lines = _between(rng, 1, 40), _between(rng, 1, 3)
    first1, last1 = _window(rng, lines)
    beside = rng.random() < 0.7
    return {
        "zero": _between(rng, -128, 127), "flip": 0, "channels": channels,
        "channel_step": 1 if beside else 200, "lines": lines, "first1": first1, "last1": last1,
        "line_step": 8000, "columns": _between(rng, 1, 12), "first": _between(rng, -3, 4),
        "width": _between(rng, 1, 14), "column_step": channels if beside else _between(rng, 1, 3),
    }  # fmt: skip


def _scaled(rng: Random) -> Sizes:
    channels = _between(rng, 1, 37)
    low, high = (-128, 127) if rng.random() < 0.6 else (-100, 90)
    places, beside = _between(rng, 1, 5), rng.random() < 0.5
    return {
        "channels": channels, "places": places,
        "out_step": channels + _between(rng, 0, 3) if beside else 1,
        "channel_step": 1 if beside else places + _between(rng, 0, 40),
        "zero": _between(rng, -128, 127),
        "low": low, "high": high,
    }  # fmt: skip


def _requantize(rng: Random) -> Sizes:
    columns = _between(rng, 1, 20)
    return {
        "rows": _between(rng, 1, 5), "columns": columns, "out_step": columns + 3,
        "sum_step": 24, "scale_step": _between(rng, 0, 1), "zero": _between(rng, -128, 127),
        "shift": _between(rng, 37, 43),
    }  # fmt: skip


def _sum_codes(rng: Random) -> Sizes:
    columns = _between(rng, 1, 40)
    return {
        "rows": _between(rng, 1, 4), "columns": columns, "out_step": columns,
        "a_step": columns + 1, "b_step": columns + 2, "by_a": _between(rng, -(2**22), 2**22),
        "by_b": _between(rng, -(2**22), 2**22), "more": _between(rng, -(2**28), 2**28),
        "shift": _between(rng, 18, 23),
    }  # fmt: skip


def _plane(rng: Random) -> Sizes:
    columns = _between(rng, 1, 9)
    return {
        "zero": 5, "rows": _between(rng, 1, 5), "width": _between(rng, 1, 12),
        "top": _between(rng, -2, 2), "left": _between(rng, -2, 1), "image_rows": 4,
        "image_columns": columns, "row_step": 30, "step": _between(rng, 1, 3),
    }  # fmt: skip


def _depthwise(rng: Random) -> Sizes:
    columns, stride = _between(rng, 1, 12), _between(rng, 1, 2)
    return {
        "rows": _between(rng, 1, 6), "columns": columns, "width": (columns - 1) * stride + 3,
        "stride": stride, "sum_step": columns,
    }  # fmt: skip


def _rows_product(rng: Random) -> Sizes:
    return {
        "channels": 4 * _between(rng, 1, 4), "depth": 16 * _between(rng, 1, 5),
        "places": _between(rng, 1, 8),
    }  # fmt: skip


def _last_product(rng: Random) -> Sizes:
    depth = _between(rng, 1, 150)
    step = depth + _between(rng, -3, 4)
    return {
        "groups": _between(rng, 1, 5), "depth": depth, "places": _between(rng, 1, 5),
        "row_step": max(step, 1),
    }  # fmt: skip


def _quads(rng: Random) -> Sizes:
    columns, step = _between(rng, 3, 40), int(rng.choice([1, 2, 5, 17, 18, 64]))
    beside = rng.random() < 0.5
    return {
        "flip": 0, "blocks": _between(rng, 1, 4), "length": _between(rng, 4, 40),
        "top": _between(rng, -3, 3), "left": _between(rng, -3, 2), "lines": _between(rng, 4, 10),
        "columns": columns, "line_step": 1 if beside else columns * step,
        "step": 10 * step if beside else step,
    }  # fmt: skip


def _quads_product(rng: Random) -> Sizes:
    count, stride = _between(rng, 1, 30), _between(rng, 1, 2)
    return {
        "blocks": _between(rng, 1, 3), "outs": _between(rng, 1, 2), "count": count,
        "stride": stride, "length": count * stride + _between(rng, 0, 3),
    }  # fmt: skip


def _channel(rng: Random) -> Sizes:
    lines, count, beside = _between(rng, 1, 5), _between(rng, 1, 30), rng.random() < 0.5
    step = int(rng.choice([1, 2, 7]))
    low, high = (-128, 127) if rng.random() < 0.6 else (-100, 90)
    return {
        "lines": lines, "count": count,
        "line_step": count * step + _between(rng, 0, 1) if beside else 1,
        "step": step if beside else lines, "zero": _between(rng, -128, 127), "low": low,
        "high": high,
    }  # fmt: skip


def _frame(rng: Random) -> Sizes:
    return {"zero": _between(rng, -128, 127), "count": _between(rng, 1, 70)}


CUT = ((3, 1, 1, 1), (3, 2, 0, 1), (3, 2, 1, 2), (1, 1, 0, 1), (4, 1, 2, 1), (1, 2, 0, 1))
"""Taps, step, padding, distance of taps."""


def _convolve(rng: Random) -> dict[str, int]:
    found = {"filters": int(rng.choice([1, 5, 9, 35])), "channels": int(rng.choice([1, 3, 7]))}
    for name in ("line", "pixel"):
        taps, step, pad, apart = CUT[rng.integers(len(CUT))]
        extent = int(rng.integers(4, 8))
        found |= {f"{name}s": extent, f"{name}_taps": taps, f"{name}_step": step}
        found |= {f"{name}_pad": pad, f"{name}_apart": apart}
        found[f"out_{name}s"] = (extent + 2 * pad - (taps - 1) * apart - 1) // step + 1
    low, high = [(-128, 32640), (0, 32640), (0, 16576)][rng.integers(3)]
    found |= {"low": low, "high": high, "direct": 0, "tile": int(rng.choice([4, 8, 32]))}
    return found | {"starts": int(rng.integers(2)), "adds": int(rng.integers(2))}


def _convolve_each(rng: Random) -> dict[str, int]:
    channels = int(rng.choice([1, 5, 9, 35]))
    return _convolve(rng) | {"filters": channels, "channels": channels}


TILES_OF: dict[str, Callable[[Random], Sizes]] = {
    "raot_rows": _rows,
    "raot_multiply_rows": _rows_product,
    "raot_requantize": _requantize,
    "raot_sum_codes": _sum_codes,
    "raot_plane": _plane,
    "raot_depthwise": _depthwise,
    "raot_beside": _strip,
    "raot_multiply_last": _last_product,
    "raot_last": _scaled,
    "raot_frame_quads": _frame,
    "raot_quads": _quads,
    "raot_multiply_quads": _quads_product,
    "raot_channel": _channel,
    "raot_convolve_last": lambda rng: {**_convolve(rng), "pixel_apart": 1},
    "raot_convolve_each": _convolve_each,
    "raot_convolve_planes": _convolve_each,
    "raot_convolve": _convolve,
}
ELSEWHERE = {kernel.name for kernel in (*TILED, *FOURS)}
"""What tests/scheduling/test_micro_tiles.py runs."""
HERE = [name for name in MICRO_KERNELS if name not in ELSEWHERE]
NAMES = [name for name in HERE if any(f"{name}_".startswith(f"{key}_") for key in TILES_OF)]


def _sizes(name: str, rng: Random) -> tuple[int, ...]:
    key = next(key for key in TILES_OF if f"{name}_".startswith(f"{key}_"))
    found = dict(TILES_OF[key](rng))
    if name.endswith("_u8") and "flip" in found:
        found["flip"] = 128
    if name.endswith("_u8") and "low" in found:
        found |= {"low": found["low"] + 128, "high": found["high"] + 128}
    return tuple(found[size] for size in MICRO_KERNELS[name].sizes)


def _data(name: str, operand: str, dtype: DType, count: int, rng: Random) -> Array:
    """Random numbers; sums and scales as large as they are where micro-kernels are used."""
    if dtype is DType.F32 and operand not in SCALES:
        return rng.normal(size=count).astype(np.float32)
    if operand in SCALES and dtype is DType.F32:
        return rng.uniform(1e-4, 1e-2, count).astype(np.float32)
    if operand in SCALES:
        found = rng.integers(2**30, 2**31, count)
        lanes = next((many for key, many in LANES.items() if f"_{key}_" in name), None)
        if lanes is not None:
            shifts = found.reshape(-1, 2, lanes)[:, 1]
            shifts[...] = -rng.integers(4 if "nearest" in name else 3, 11, shifts.shape)
        return found.astype(np.int32)
    if dtype is DType.I32:
        wide = rng.integers(-(2**17), 2**17, count)
        near = rng.integers(-300, 300, count)
        return np.where(rng.random(count) < 0.3, near, wide).astype(np.int32)
    if operand == "weights" and dtype is DType.I16:
        return rng.integers(-128, 128, count).astype(np.int16)
    low, high = dtype.limits
    found = rng.integers(low, high + 1, count)
    ends = rng.choice([low, high], count)
    return np.where(rng.random(count) < 0.2, ends, found).astype(dtype.numpy)


def _program(name: str) -> tuple[str, dict[str, Array], dict[str, Array]]:
    """A module that calls the micro-kernel once per tile, its inputs, and what it should give,
    masked where it may leave anything."""
    rng = np.random.default_rng(len(name))
    record = MICRO_KERNELS[name]
    params, calls, kernels, results = [], [], [], []
    inputs: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    for tile in range(TILES):
        sizes = _sizes(name, rng)
        reach = record.reach(sizes)
        arrays, buffers, reserved = [], [], ""
        for operand, count in zip(record.operands, reach, strict=True):
            count = max(count, 1)
            buffers.append(f"%{operand.name}: {operand.dtype.value}[{count}]")
            if operand.name in SCRATCH:
                reserved += f"  reserve {buffers[-1]}\n"
                arrays.append(np.zeros(count, operand.dtype.numpy))
            elif operand.written:
                arrays.append(np.zeros(count, operand.dtype.numpy))
                results.append((f"y{tile}", f"{operand.dtype.value}[{count}]", operand))
            else:
                arrays.append(_data(name, operand.name, operand.dtype, count, rng))
                if name == "raot_multiply_last_s8" and operand.name == "weights":
                    starts = arrays[-1].reshape(sizes[0], -1)
                    starts[:, 4:8] = starts[:, :4]
                inputs[f"{operand.name}{tile}"] = arrays[-1]
                params.append(f"%{operand.name}{tile}: {operand.dtype.value}[{count}]")
        again = [a + 1 if o.written else a for a, o in zip(arrays, record.operands, strict=True)]
        for operands in (arrays, again):
            record.run(operands, sizes)
        for a, b, operand in zip(arrays, again, record.operands, strict=True):
            if operand.written and operand.name not in SCRATCH:
                expected[f"y{tile}"] = np.ma.masked_array(a, a != b)
        given = ", ".join(f"%{o.name}{tile}" for o in record.operands if not o.written)
        made, type_, out = results[-1]
        calls.append(f"  %{made}: {type_} = call_kernel({given}) {{kernel=@k{tile}}}")
        read = ", ".join(b for b, o in zip(buffers, record.operands, strict=True) if not o.written)
        count = max(reach[[o.written for o in record.operands].index(True)], 1)
        at = ", ".join(f"%{o.name}[0]" for o in record.operands)
        kernels.append(
            f"kernel @k{tile}({read}) -> (%{out.name}: {type_}) {{\n{reserved}"
            f"  for i in 0..{count} {{\n    %{out.name}[i] = 0:{out.dtype.value}\n  }}\n"
            f"  micro {name}({at}) [{', '.join(map(str, sizes))}]\n}}\n"
        )
    text = f"func @main({', '.join(params)}) {{\n" + "\n".join(calls)
    text += f"\n  return {', '.join('%' + made for made, _, _ in results)}\n}}\n\n"
    return text + "\n".join(kernels), inputs, expected


def _built(text: str, board: str, *flags: str) -> project.Project:
    module = parse(text)
    plan = planning.plan(order.run(module))
    target = load_board(board)
    target = dataclasses.replace(target, flags=(*target.flags, *flags))
    return project.assemble(module, plan, "m", target, read_externs([], []))


def _same(found: Array, wanted: Any) -> None:
    assert wanted.count() > 0 or wanted.size == 1
    np.testing.assert_array_equal(found[~wanted.mask], wanted.compressed())


def _marked(name: str) -> Any:
    """Whole images take their time."""
    return pytest.param(name, marks=pytest.mark.slow) if name.startswith("raot_convolve") else name


@pytest.mark.parametrize("name", [_marked(name) for name in NAMES])
def test_portable_c_computes_what_the_record_says(name: str) -> None:
    text, inputs, expected = _program(name)
    found = host_model(_built(text, "host"))(inputs)
    for result, wanted in expected.items():
        _same(found[result], wanted)


@pytest.mark.qemu
@pytest.mark.parametrize("name", NAMES)
def test_helium_computes_what_the_record_says(name: str) -> None:
    _check_on_helium(name)


WITH_ASSEMBLY = ("raot_multiply_last_s8", "raot_multiply_quads_s8", "raot_multiply_rows_s8")
"""Kernels with an assembly form for Helium, which the test above runs."""
FORMS = {
    "intrinsics": ("-DRAOT_NO_ASSEMBLY",),
    "debug": ("-O0",),
    "reserved": ("-Os", "-fno-omit-frame-pointer", "-ffixed-r9"),
    "small": ("-Os", "-DRAOT_NO_ASSEMBLY"),
    "plain": ("-DRAOT_NO_INTRINSICS",),
}


def _forms() -> Iterator[Any]:
    """The intrinsics of kernels that have assembly, and that of -Os; all other pairs take long."""
    for form, flags in FORMS.items():
        for name in NAMES:
            short = form == "intrinsics" and name in WITH_ASSEMBLY
            short = short or (form, name) == ("reserved", "raot_convolve_last_f32")
            marks = () if short else (pytest.mark.slow, pytest.mark.long)
            yield pytest.param(name, flags, id=f"{name}-{form}", marks=marks)


@pytest.mark.qemu
@pytest.mark.parametrize(("name", "flags"), list(_forms()))
def test_every_form_on_helium_gives_the_same(name: str, flags: tuple[str, ...]) -> None:
    _check_on_helium(name, *flags)


def _check_on_helium(name: str, *flags: str) -> None:
    text, inputs, expected = _program(name)
    (run,) = emulate(_built(text, "mps3-an547", *flags), [inputs])
    assert run.status == 0
    for result, wanted in expected.items():
        _same(run.outputs[result], wanted)
