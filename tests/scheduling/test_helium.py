# SPDX-License-Identifier: Apache-2.0
"""Quantized nets on a Cortex-M55: every length keeps the bits, and innermost loops are vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.binaries.elf import Program
from relax_aot.project import Project
from relax_aot.project.board import load_board
from relax_aot.quantization import Choice
from relax_aot.scheduling.passes import fma
from relax_aot.toolchain.disassembly import HELIUM, Instruction, instructions
from relax_aot.verify.emulate import build_image, emulate
from tests.conftest import ROOT
from tests.models.onnx_text import Array, model_of, random_weights

BOARD = "mps3-an547"
SCALAR = {
    "raot_quantize_lines": "products next to the middle of two integers are divided",
    "softmax": "a few numbers, looked up in a table",
}
"""Functions with innermost loops without vectors, by a part of the name, and why."""
LENGTHS = (1, 2, 3, 17, 49, 50, 130, 131)
BLOCK = """
    d{n} = Conv <group = {c}, {attributes}> ({x}, dw{n}, db{n})
    r{n} = Relu (d{n})
    p{n} = Conv (r{n}, pw{n}, pb{n})
    x{n} = Relu (p{n})
"""
WINDOWS = (
    (5, "kernel_shape = [5], pads = [2, 2]"),
    (7, "kernel_shape = [7], pads = [3, 3], strides = [2]"),
    (3, "kernel_shape = [3], pads = [4, 4], dilations = [4]"),
    (19, "kernel_shape = [19], pads = [9, 9]"),
)
"""Taps and attributes of the depthwise convolutions of a net."""


def net(windows: tuple[tuple[int, str], ...]) -> Project:
    """Blocks of a depthwise convolution over 40 or 32 channels and a pointwise one, quantized."""
    channels = [40, *[32] * (len(windows) - 1)]
    shapes: dict[str, tuple[int, ...]] = {"wf": (32, 3)}
    text = ""
    for n, ((taps, attributes), c) in enumerate(zip(windows, channels, strict=True)):
        shapes |= {f"dw{n}": (c, 1, taps), f"db{n}": (c,), f"pw{n}": (32, c, 1), f"pb{n}": (32,)}
        x = f"x{n - 1}" if n else "x"
        text += BLOCK.format(n=n, c=c, x=x, attributes=attributes)
    last = f"x{len(windows) - 1}"
    text += f"pooled = GlobalAveragePool ({last})\n flat = Flatten (pooled)\n y = MatMul (flat, wf)"
    weights = random_weights(np.random.default_rng(1), **shapes)
    model = model_of("wake (float[1, 40, n] x) => (float[1, 3] y)", text, weights)
    samples = np.random.default_rng(2).normal(size=(1, 40, 60)).astype(np.float32)
    options = driver.Options(
        bounds={"n": (1, max(LENGTHS))}, quantize=Choice("int8"), calibrate={"x": samples}
    )
    return driver.compile_model(model, BOARD, options)


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("windows", [(WINDOWS[0],) * 4, WINDOWS], ids=["wake_word", "windows"])
def test_lengths_keep_the_bits(
    windows: tuple[tuple[int, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    samples = [{"x": rng.normal(size=(1, 40, n)).astype(np.float32)} for n in LENGTHS]
    # Next to the middle of two integers, and what is no number.
    samples[-1]["x"][0, :4, :4] = [[np.nan, np.inf, -np.inf, -0.0], [1e30, -1e30, 1e-40, 0]] * 2
    fast = emulate(net(windows), samples)
    monkeypatch.setattr(
        "relax_aot.scheduling.schedule", lambda m, target, *_, **__: fma.run(m, target)
    )
    plain = emulate(net(windows), samples)
    for n, a, b in zip(LENGTHS, fast, plain, strict=True):
        assert a.status == b.status == 0
        assert a.outputs["y"].tobytes() == b.outputs["y"].tobytes(), n
    if windows == (WINDOWS[0],) * 4:
        products = 40 * 5 + 40 * 32 + 3 * (32 * 5 + 32 * 32)
        for n in (49, 50, 130):
            assert 3 * (fast[LENGTHS.index(n)].instructions or 0) < n * products, n


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("windows", [(WINDOWS[0],) * 4, WINDOWS], ids=["wake_word", "windows"])
def test_innermost_loops_are_vectors(windows: tuple[tuple[int, str], ...], tmp_path: Path) -> None:
    assert not scalar_loops(net(windows), tmp_path)


@pytest.mark.qemu
@pytest.mark.long
@pytest.mark.parametrize("name", ["kws_int8_qdq.onnx", "kws_int8.tflite", "resnet8_int8_qdq.onnx",
                                  "resnet8_int8.tflite"])  # fmt: skip
def test_innermost_loops_of_shared_models_are_vectors(
    name: str, shared_models: Path, tmp_path: Path
) -> None:
    assert not scalar_loops(
        driver.compile_model(str(shared_models / name), BOARD, driver.Options()), tmp_path
    )


IMAGES = ((1, 1), (1, 40), (40, 1), (2, 3), (6, 7), (17, 40), (40, 39))
"""Heights and widths."""


def image_net(
    channels: int, window: tuple[int, int], stride: int, pads: tuple[int, ...], width: int = 40
) -> Project:
    """A depthwise convolution of images between pointwise ones, quantized."""
    text = f"""
        a = Conv <kernel_shape = [1, 1]> (x, wa, ba)
        r = Relu (a)
        d = Conv <group = {channels}, kernel_shape = [{window[0]}, {window[1]}],
            strides = [{stride}, {stride}], pads = [{", ".join(map(str, pads))}]> (r, wd, bd)
        c = Clip (d, low, high)
        y = Conv <kernel_shape = [1, 1]> (c, we, be)"""
    shapes = {"wa": (channels, 3, 1, 1), "ba": (channels,), "wd": (channels, 1, *window),
              "bd": (channels,), "we": (5, channels, 1, 1), "be": (5,)}  # fmt: skip
    weights = random_weights(np.random.default_rng(channels + window[0]), **shapes)
    weights |= {"low": np.zeros((), np.float32), "high": np.ones((), np.float32)}
    model = model_of("image (float[1, 3, h, w] x) => (float[1, 5, p, q] y)", text, weights)
    samples = np.random.default_rng(5).normal(size=(1, 1, 3, 40, width)).astype(np.float32)
    options = driver.Options(
        bounds={"h": (1, 40), "w": (1, width)}, quantize=Choice("int8"), calibrate={"x": samples}
    )
    return driver.compile_model(model, BOARD, options)


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "taps", "stride", "lines"),
    [(37, 3, 1, 4), (6, 3, 2, 4), (20, 5, 1, 8), (33, 5, 2, 8), (5, 7, 1, 8)],
    ids=["many", "few", "5x5", "5x5_strided", "7x7"],
)
def test_depthwise_images_keep_the_bits(
    channels: int, taps: int, stride: int, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(6)
    samples = [{"x": rng.normal(size=(1, 3, *size)).astype(np.float32)} for size in IMAGES]
    net = partial(image_net, channels, (taps, taps), stride, (taps // 2,) * 4)
    project = net()
    text = project.files[f"{project.name}.c"].decode()
    assert f"raot_interleave{lines}_channels_s8(" in text
    fast = emulate(project, samples)
    monkeypatch.setattr(
        "relax_aot.scheduling.schedule", lambda m, target, *_, **__: fma.run(m, target)
    )
    plain = emulate(net(), samples)
    for size, a, b in zip(IMAGES, fast, plain, strict=True):
        assert a.status == b.status == 0
        assert a.outputs["y"].tobytes() == b.outputs["y"].tobytes(), size


@pytest.mark.qemu
@pytest.mark.slow
def test_no_vector_of_conditions_is_a_constant(tmp_path: Path) -> None:
    """GCC 12.2 makes wrong constants of vectors of conditions: it must not find any."""
    project = image_net(8, (2, 3), 2, (1, 2, 0, 2), width=1)
    code = functions_of(build_image(project, tmp_path).elf)
    assert not [name for name, one in code if constant_conditions(one)]


def constant_conditions(code: Sequence[Instruction]) -> list[str]:
    """The constants that are moved to the register of conditions."""
    found = []
    written: dict[str, Instruction] = {}
    for instruction in code:
        operands = ["".join(part.split()[:1]) for part in instruction.operands.split(",")]
        move = written.get(operands[-1])
        if not instruction.name.startswith("vmsr"):
            written[operands[0]] = instruction
        elif move is not None and re.match("mov|mvn", move.name) and "#" in move.operands:
            found.append(move.operands)
    return found


def residual_net(seed: int, weights_in: str = "auto") -> Project:
    """Dilated convolutions with sums of two images, whose weights may need more than 32 bits, a
    function by a table, and two images as one with their scales changed."""
    text = """
        a = Conv <kernel_shape = [3], pads = [1, 1]> (x, wa, ba)
        l = LeakyRelu <alpha = 0.1> (a)
        c = Conv <kernel_shape = [3], pads = [2, 2], dilations = [2]> (l, wc, bc)
        s = Add (l, c)
        r = Relu (s)
        d = Conv <kernel_shape = [1]> (r, wd, bd)
        t = Add (d, r)
        both = Concat <axis = 1> (t, l)
        y = Conv <kernel_shape = [1]> (both, we, be)"""
    shapes = {"wa": (24, 8, 3), "ba": (24,), "wc": (24, 24, 3), "bc": (24,), "wd": (24, 24, 1),
              "bd": (24,), "we": (16, 48, 1), "be": (16,)}  # fmt: skip
    weights = random_weights(np.random.default_rng(seed), **shapes)
    model = model_of("residual (float[1, 8, n] x) => (float[1, 16, n] y)", text, weights)
    samples = np.random.default_rng(seed + 1).normal(size=(1, 8, 60)).astype(np.float32)
    options = driver.Options(
        bounds={"n": (1, max(LENGTHS))},
        quantize=Choice("int8"),
        calibrate={"x": samples},
        weights=weights_in,
    )
    return driver.compile_model(model, BOARD, options)


@pytest.mark.qemu
@pytest.mark.long
def test_multipliers_in_a_block_are_no_sizes() -> None:
    """Sums of two images, whose multipliers are read from the block of weights."""
    samples = [{"x": np.random.default_rng(4).normal(size=(1, 8, 17)).astype(np.float32)}]
    block, text = (emulate(residual_net(2, where), samples)[0] for where in ("blob", "auto"))
    assert block.status == text.status == 0
    assert block.outputs["y"].tobytes() == text.outputs["y"].tobytes()


@pytest.mark.qemu
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.long
def test_sums_and_tables_are_vectors(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    samples = [{"x": rng.normal(size=(1, 8, n)).astype(np.float32)} for n in LENGTHS]
    project = residual_net(seed)
    assert not scalar_loops(project, tmp_path)
    fast = emulate(project, samples)
    monkeypatch.setattr(
        "relax_aot.scheduling.schedule", lambda m, target, *_, **__: fma.run(m, target)
    )
    plain = emulate(residual_net(seed), samples)
    for n, a, b in zip(LENGTHS, fast, plain, strict=True):
        assert a.status == b.status == 0
        assert a.outputs["y"].tobytes() == b.outputs["y"].tobytes(), n


POOLS = """
    xq = QuantizeLinear (x, s, z)
    xd = DequantizeLinear (xq, s, z)
    fd = DequantizeLinear (w, s, o)
    c = Conv <pads = [1, 1, 1, 1]> (xd, fd)
    cq = QuantizeLinear (c, t, z)
    cd = DequantizeLinear (cq, t, z)
    windows = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (cd)
    wq = QuantizeLinear (windows, t, z)
    blocks = AveragePool <kernel_shape = [4, 4], strides = [4, 4]> (cd)
    bq = QuantizeLinear (blocks, t, z)
    vd = DequantizeLinear (v, s, o)
    wd = DequantizeLinear (wq, t, z)
    wc = Conv (wd, vd)
    wy = QuantizeLinear (wc, t, z)
    bd = DequantizeLinear (bq, t, z)
    bc = Conv (bd, vd)
    by = QuantizeLinear (bc, t, z)
"""


@pytest.mark.qemu
@pytest.mark.parametrize("channels", [3, 20, 70])
def test_pools_with_ties_keep_the_bits(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the means lie in the middle between two results, where the order of the model
    decides."""
    rng = np.random.default_rng(channels)
    one = {"s": 0.0625, "t": 0.3}
    weights = {name: np.array(value, np.float32) for name, value in one.items()}
    weights |= {"z": np.array(3, np.int8), "o": np.array(0, np.int8)}
    weights["w"] = rng.integers(-9, 12, (channels, 2, 3, 3)).astype(np.int8)
    weights["v"] = rng.integers(-9, 12, (channels, channels, 1, 1)).astype(np.int8)
    outputs = f"int8[1, {channels}, h, i] wy, int8[1, {channels}, j, k] by"
    model = model_of(f"pools (float[1, 2, 8, n] x) => ({outputs})", POOLS, weights)
    options = driver.Options(bounds={"n": (4, 21)})
    samples = [{"x": rng.normal(size=(1, 2, 8, n)).astype(np.float32)} for n in (4, 9, 16, 21)]
    built = driver.compile_model(model, BOARD, options)
    text = built.files[built.units[0]].decode()
    names = ("raot_sum_columns_f32_s8", "raot_sum_rows_f32_s8", "raot_quantize_lines_s8")
    assert channels < 8 or all(f"{name}(" in text for name in names)
    fast = emulate(built, samples)
    monkeypatch.setattr(
        "relax_aot.scheduling.schedule", lambda m, target, *_, **__: fma.run(m, target)
    )
    plain = emulate(driver.compile_model(model, BOARD, options), samples)
    for a, b in zip(fast, plain, strict=True):
        assert a.status == b.status == 0
        assert {k: v.tobytes() for k, v in a.outputs.items()} == {
            k: v.tobytes() for k, v in b.outputs.items()
        }


@pytest.mark.qemu
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_means_with_ties_are_those_of_onnx_runtime(dtype: str) -> None:
    """Four sums of every fourth element, with and without others left over."""
    text = """
        xd = DequantizeLinear (x, s, z)
        mean = GlobalAveragePool (xd)
        y = QuantizeLinear (mean, s, z)
    """
    weights = {"s": np.array(0.3, np.float32), "z": np.array(3, dtype)}
    model = model_of(f"m ({dtype}[2, 5, 3, n] x) => ({dtype}[2, 5, 1, 1] y)", text, weights)
    built = driver.compile_model(model, BOARD, driver.Options(bounds={"n": (1, 40)}))
    suffix = "s8" if dtype == "int8" else "u8"
    assert f"raot_sum_lanes_f32_{suffix}(" in built.files[built.units[0]].decode()
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    samples = [
        {"x": rng.integers(info.min, info.max + 1, (2, 5, 3, n)).astype(dtype)}
        for n in (1, 2, 3, 4, 8, 13, 39, 40)
    ]
    floats = onnxruntime.SessionOptions()
    floats.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), floats)
    for sample, run in zip(samples, emulate(built, samples), strict=True):
        (right,) = session.run(None, sample)
        assert run.status == 0
        np.testing.assert_array_equal(run.outputs["y"], right)


def test_a_scale_that_two_passes_pack_is_one_constant() -> None:
    """The quantization of an array, and that of a product."""
    text = """
        u = QuantizeLinear (x, s, z)
        product = Mul (w, w)
        y = QuantizeLinear (product, s, z)
    """
    weights: dict[str, Array] = {"s": np.array(0.3, np.float32), "z": np.array(3, np.int8)}
    model = model_of("m (float[12] x, float[12] w) => (int8[12] u, int8[12] y)", text, weights)
    built = driver.compile_model(model, BOARD, driver.Options(check=True, name="m"))
    text = built.files[built.units[0]].decode()
    assert len(set(re.findall(r"m_quantized_scale_\w+", text))) == 1


def test_a_scalar_loop_is_found() -> None:
    code = [
        Instruction(0, "movs", "r0, #4", True),
        Instruction(2, "vldrb.u8", "q0, [r1], #16", False),
        Instruction(6, "ldrb", "r2, [r1], #1", False),
        Instruction(10, "subs", "r0, #1", True),
        Instruction(12, "bne", "6 <f+0x6>", True),
        Instruction(14, "le", "lr, 2 <f+0x2>", False),
        Instruction(18, "b", "2 <f+0x2>", True),
    ]
    assert innermost(code) == [code[2:5]]
    assert not is_vector(code[2:5]) and is_vector(code[1:5])
    copies = [Instruction(4 * k, name, "r0, [r1]", False) for k, name in enumerate(4 * ["ldr"])]
    assert is_vector(copies) and not is_vector(copies[1:]) and not is_vector([*copies, code[2]])


def scalar_loops(project: Project, folder: Path) -> list[str]:
    """The functions of kernels that have an innermost loop without vectors or calls, and all that
    have constant conditions."""
    image = build_image(project, folder)
    kernels = {kernel.c_name for kernel in project.view.kernels}
    harness = "".join(path.read_text() for path in (ROOT / "boards" / "families").rglob("*.[chS]"))
    found = []
    for name, code in functions_of(image.elf):
        found += [f"{name}: condition {constant}" for constant in constant_conditions(code)]
        own = name.partition(".")[0]
        ours = own.startswith("raot_") and not re.search(rf"\b{own}\b", harness)
        if own not in kernels and not ours:
            continue
        loops = [loop for loop in innermost(code) if not is_vector(loop)]
        if loops and not any(part in own for part in SCALAR):
            found.append(f"{name}: {loops[0]}")
    return found


def functions_of(elf: Path) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    """The name and the instructions of each function."""
    prefix, changed = load_board(BOARD).prefix, elf.stat().st_mtime_ns
    for function in Program(elf).functions:
        yield (
            function.name,
            instructions(elf, changed, prefix, function.start, function.end, HELIUM),
        )


def is_vector(loop: list[Instruction]) -> bool:
    """Whether a loop has vectors, leaves them to a function that it calls, or copies four words
    and more."""
    names = [one.name for one in loop]
    counts = r"adds?|subs?|cmp|b\w*|le|ldrd?|strd?"
    if names.count("ldr") + 2 * names.count("ldrd") >= 4 and all(
        re.fullmatch(counts, name) for name in names
    ):
        return True
    return any(
        re.match(r"blx?$", one.name) or (one.name[0] == "v" and re.search(r"\bq\d", one.operands))
        for one in loop
    )


def innermost(code: list[Instruction] | tuple[Instruction, ...]) -> list[list[Instruction]]:
    """Natural loops that contain no other one: Aho, Sethi and Ullman, section 10.4."""
    at = {one.address: n for n, one in enumerate(code)}
    after: dict[int, list[int]] = {n: [] for n in range(len(code))}
    for n, one in enumerate(code):
        target = re.search(r"(?:^|, )([0-9a-f]+) <", one.operands)
        jumps = re.fullmatch(
            r"b(?!l|x|f|ic|k)\w*|cbn?z|le|letp|wls\w*|dls\w*", one.name.partition(".")[0]
        )
        if target and jumps and not one.name.startswith("dls") and int(target[1], 16) in at:
            after[n].append(at[int(target[1], 16)])
        ends = one.name.partition(".")[0] in ("b", "bx") or "pc}" in one.operands
        ends = ends or one.operands.startswith("pc, ")
        if not ends and n + 1 < len(code):
            after[n].append(n + 1)
    dominators = _dominators(after)
    bodies: dict[int, set[int]] = {}
    for n, targets in after.items():
        for header in targets:
            if n in dominators and header in dominators[n]:
                bodies.setdefault(header, {header}).update(_body(n, header, after))
    return [
        [code[n] for n in sorted(body)]
        for header, body in sorted(bodies.items())
        if not any(other in body for other in bodies if other != header)
    ]


def _body(latch: int, header: int, after: Mapping[int, list[int]]) -> set[int]:
    before: dict[int, list[int]] = {}
    for n, targets in after.items():
        for target in targets:
            before.setdefault(target, []).append(n)
    body, waiting = {header}, [latch]
    while waiting:
        n = waiting.pop()
        if n not in body:
            body.add(n)
            waiting += before.get(n, [])
    return body


def _dominators(after: Mapping[int, list[int]]) -> dict[int, set[int]]:
    """Of every reachable instruction."""
    found: dict[int, set[int]] = {0: {0}}
    waiting = [0]
    while waiting:
        n = waiting.pop(0)
        for target in after[n]:
            own = (found[target] & found[n] if target in found else set(found[n])) | {target}
            if target == 0:
                own = {0}
            if found.get(target) != own:
                found[target] = own
                waiting.append(target)
    return found
