# SPDX-License-Identifier: Apache-2.0
"""Images of floats with their channels last: results are those of ONNX Runtime at every size,
tiles keep the bits of the plain loops, and only the order of taps and channels changes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper, parser

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.graph import Module
from relax_aot.ir.loops import Kernel, Micro, Multiply, walk
from relax_aot.ir.types import shape_of
from relax_aot.scheduling import schedule_contractions
from relax_aot.scheduling.passes import float_channels_last
from relax_aot.scheduling.strategies._texts import IMAGE_NHWC
from relax_aot.scheduling.targets import find
from relax_aot.verify.host import host_model
from tests.transforms.examples import example_module

Array = NDArray[Any]
HOST = find("host", ())

WINDOWS = """
    symbol b in 1..2
    symbol h in 1..7
    symbol w in 1..36
    const %w: f32[{filters}, {taps}, {taps}, {depth}] = splat 0.5
    kernel @conv(%x: f32[{image}], %w: f32[{filters}, {taps}, {taps}, {depth}], %s: f32[{filters}], %z: f32[{result}]) -> (%y: f32[{result}]) {{
      for n in 0..b {{
        for f in 0..{filters} {{
          for i in 0..{high} {{
            for j in 0..{wide} {{
              local sum: f32 = %s[f]
              for k in max(({before} - {stride}*i + {near}) // {apart}, 0)..min((h + {before} - {stride}*i + {near}) // {apart}, {taps}) {{
                for l in max(({before} - {stride}*j + {near}) // {apart}, 0)..min((w + {before} - {stride}*j + {near}) // {apart}, {taps}) {{
                  {sum}
                }}
              }}
              %y[{at}] = max((sum + %z[{at}]), 0.0:f32)
            }}
          }}
        }}
      }}
    }}"""  # noqa: E501
PLACE = "{stride}*i + {apart}*k - {before}, {stride}*j + {apart}*l - {before}"
FORMS = {
    "channels": ("h, w, 2", "{place}, c", "{high}, {wide}, 33", "i, j, f"),
    "planar": ("10, h, w", "c, {place}", "{high}, {wide}, 33", "i, j, f"),
    "depthwise": ("h, w, 65", "{place}, f", "{high}, {wide}, 65", "i, j, f"),
    "gathered": ("65, h, w", "f, {place}", "{high}, {wide}, 65", "i, j, f"),
    "planes": ("65, h, w", "f, {place}", "65, {high}, {wide}", "f, i, j"),
}
"""The axes of the image and of the result behind the batch, and the places that are accessed."""


def windows(form: str, stride: int, apart: int, taps: int) -> Module:
    """Convolutions of windows of `taps` x `taps`, whose borders are as wide as half of a window."""
    before, deep = apart * (taps // 2), {"channels": 2, "planar": 10}.get(form, 0)
    extent = "({0} - 1) // {1} + 1"
    sizes = {"high": extent.format("h", stride), "wide": extent.format("w", stride)}
    place = PLACE.format(stride=stride, apart=apart, before=before)
    axes = [f"b, {part}".format(**sizes) for part in FORMS[form][::2]]
    image, result = (f"n, {part}".format(place=place) for part in FORMS[form][1::2])
    inner = f"for c in 0..{deep} {{\n sum = fma(%x[{image}], %w[f, k, l, c], sum)\n }}"
    text = WINDOWS.format(
        filters=33 if deep else 65, depth=deep or 1, taps=taps, at=result,
        image=axes[0], result=axes[1], **sizes,
        stride=stride, apart=apart, before=before, near=apart - 1,
        sum=inner if deep else f"sum = fma(%x[{image}], %w[f, k, l, 0], sum)",
    )  # fmt: skip
    module = example_module(text)
    (weights,) = module.constants
    drawn = np.random.default_rng(0).normal(size=weights.data.shape).astype(np.float32)
    return replace(module, constants=(replace(weights, data=drawn),))


CASES = [
    *((form, 3, *step) for form in FORMS if form != "planes" for step in ((1, 1), (2, 1), (1, 2))),
    ("channels", 2, 1, 1),
    ("channels", 5, 1, 1),
    ("depthwise", 7, 1, 1),
    ("planes", 7, 2, 1),
]


@pytest.mark.parametrize(("form", "taps", "stride", "apart"), CASES)
def test_windows_keep_the_bits_of_the_plain_loops(
    form: str, taps: int, stride: int, apart: int
) -> None:
    """Sizes below a window, of one tile, and of several with a rest."""
    module = windows(form, stride, apart, taps)
    (plain,) = module.kernels
    after = schedule_contractions(module, HOST)
    (tiled,) = after.kernels
    assert any(isinstance(s, Micro) for s in walk(tiled.body))
    few = form == "channels" and taps < 5 and apart == 1  # results at corners
    in_place = form == "depthwise" or few
    copied = any(isinstance(s, Micro) and s.name == "raot_transpose_f32" for s in walk(tiled.body))
    assert copied or form != "planar"
    assert any(buffer.name == "strip" for buffer in tiled.scratch) != in_place
    rng = np.random.default_rng(stride + apart)
    for b, h, w in ((1, 1, 1), (2, 2, 3), (1, 7, 6), (1, 3, 30), (1, 6, 35)):
        sizes = {"b": b, "h": h, "w": w}

        def draw(kernel: Kernel, sizes: dict[str, int] = sizes) -> list[Array]:
            shapes = [[dim.evaluate(sizes) for dim in one.shape] for one in kernel.inputs]
            return [rng.normal(size=shape).astype(np.float32) for shape in shapes]

        given = dict(zip((one.name for one in plain.inputs), draw(plain), strict=True))
        given["w"] = module.constant_table["w"].data
        packed = {c.name: c.data for c in after.constants}
        packed = {
            one.name: packed[var.name]
            for one, var in zip(tiled.inputs, after.functions[0].body[0].inputs, strict=True)
            if var.name in packed
        }
        (wanted,) = run_kernel(plain, [given[one.name] for one in plain.inputs], sizes)
        (found,) = run_kernel(tiled, [{**given, **packed}[one.name] for one in tiled.inputs], sizes)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("filters", "lines"), [(32, 1), (64, 6)])
def test_a_strip_has_more_lines_where_weights_fill_a_cache(filters: int, lines: int) -> None:
    text = IMAGE_NHWC
    for old, new in (
        ("9, 11", "6, 6"), ("0..9", "0..6"), ("0..11", "0..6"), ("-i + 10", "-i + 7"),
        ("-j + 12", "-j + 7"), ("0..5", "0..256"), ("5]", "256]"), ("0..8", f"0..{filters}"),
        ("f32[8,", f"f32[{filters},"), ("6, 8]", f"6, {filters}]"),
    ):  # fmt: skip
        text = text.replace(old, new)
    (tiled,) = schedule_contractions(example_module(text), HOST).kernels
    (strip,) = (buffer for buffer in tiled.scratch if buffer.name == "strip")
    assert strip.shape == shape_of(lines + 2, 8, 256)


@pytest.mark.parametrize(
    ("end", "known"), [("sum * sigmoid(sum)", True), ("max(sum, 0.0:f32)", False)]
)
def test_lengths_of_tiles_are_known_where_loops_follow_them(end: str, known: bool) -> None:
    """A micro-kernel that stores results takes any length."""
    module = example_module(f"""
        symbol n in 1..9
        const %w: f32[24, 72] = splat 0.5
        kernel @points(%x: f32[n, 24], %w: f32[24, 72]) -> (%y: f32[n, 72]) {{
          for i in 0..n {{
            for f in 0..72 {{
              local sum: f32 = 0.0:f32
              for c in 0..24 {{
                sum = fma(%x[i, c], %w[c, f], sum)
              }}
              %y[i, f] = ({end})
            }}
          }}
        }}""")
    (tiled,) = schedule_contractions(module, HOST).kernels
    tiles = [stmt for stmt in walk(tiled.body) if isinstance(stmt, Multiply | Micro)]
    widths = [tile.columns for tile in tiles if isinstance(tile, Multiply)]
    assert (widths == [32, 8]) == known
    assert len(tiles) == (2 if known else 1)


def test_the_order_of_sums_changes_only_where_it_may() -> None:
    """With ordered sums, the channels stay outside of the taps, and no bit changes."""
    module = example_module(float_channels_last.EXAMPLES[0].before)
    plain = module.kernel_table["conv"]
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=shape).astype(np.float32) for shape in ((1, 3, 9), (16, 3, 2))]
    (wanted,) = run_kernel(plain, inputs, {})
    last = wanted.transpose(0, 2, 1)
    exact = np.einsum("ckl,fck->fl", np.stack([inputs[0][0, :, i : i + 8] for i in (0, 1)], 1).astype(np.float64), inputs[1])  # fmt: skip  # noqa: E501
    for numerics in ("ordered", "blocked"):
        kernel = float_channels_last.run(module, HOST, numerics).kernel_table["conv"]
        (found,) = run_kernel(kernel, inputs, {})
        assert found.shape == (1, 8, 16)
        assert np.array_equal(found, last) == (numerics == "ordered")
        np.testing.assert_allclose(found[0].T, exact, rtol=0, atol=6 * 2.0**-24 * 20)


NETS = {
    "residual": """
        { a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w0, b0)
          p = Relu(a)
          c = Conv<pads=[1,1,1,1], group=20>(p, w1)
          d = Clip(c, low, high)
          e = Conv(d, w2, b2)
          f = Add(e, a)
          k = Conv<pads=[2,2,2,2], dilations=[2,2]>(f, w3)
          m = MaxPool<kernel_shape=[2,2], strides=[2,2], pads=[0,0,1,1]>(k)
          s = GlobalAveragePool(m)
          y = Mul(m, s) }""",
    "concatenated": """
        { a = Conv<pads=[0,2,1,0], group=2>(x, w4)
          t = HardSwish(a)
          c = Conv<pads=[1,0,1,0]>(t, w5)
          e = Sigmoid(c)
          d = Concat<axis=1>(e, c)
          y = Conv<pads=[1,1,1,1], strides=[1,2]>(d, w6) }""",
    "narrow": """
        { a = Conv(x, w7)
          c = Conv<pads=[1,1,1,1], group=20>(a, w1)
          p = Relu(c)
          y = Conv(p, w8) }""",
    "pooled": """
        { a = Conv<pads=[1,1,1,1]>(x, w11)
          p = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(a)
          q = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(p)
          r = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=0>(q)
          d = Concat<axis=1>(a, p, q, r)
          y = Conv(d, w15) }""",
    "normalized": """
        { a = Conv(x, w7)
          t = Transpose<perm=[0,2,3,1]>(a)
          l = LayerNormalization(t, v0, v1)
          b = Transpose<perm=[0,3,1,2]>(l)
          c = Conv<pads=[3,3,3,3], group=20>(b, w9)
          e = Transpose<perm=[0,2,3,1]>(c)
          d = MatMul(e, v2)
          p = Sigmoid(d)
          r = MatMul(p, v3)
          u = Transpose<perm=[0,3,1,2]>(r)
          f = Add(b, u)
          y = Conv(f, w8) }""",
    "resized": """
        <float[4] two = {1, 1, 2, 2}, float[4] half = {1, 1, 0.5, 0.75}> {
          a = Conv(x, w7)
          p = Relu(a)
          l = Resize<mode="linear">(p, , two)
          c = Resize<mode="cubic", antialias=1>(l, , half)
          r = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(c, , two)
          y = Conv<pads=[1,1,1,1]>(r, w10) }""",
    "skipped": """
        { a = Conv<pads=[1,1,1,1]>(x, w11)
          p = Relu(a)
          c = Conv<pads=[1,1,1,1]>(p, w12)
          d = Concat<axis=1>(c, p)
          y = Conv<pads=[1,1,1,1]>(d, w13) }""",
    "alone": """
        { y = Conv<pads=[2,1,1,2], dilations=[1,2]>(x, w14, b14) }""",
    "result": """
        { a = Conv(x, w7)
          p = Relu(a)
          y = Conv<pads=[1,1,1,1], group=20>(p, w1) }""",
}
LAST = {"narrow": {"a", "p"}, "normalized": {"f"}, "result": set[str](), "alone": set[str](),
        "resized": {"p", "l", "c", "r"}, "skipped": {"p", "c", "d"},
        "pooled": {"a", "p", "q", "d"}}  # fmt: skip
SHAPES = {
    "w0": (20, 4, 3, 3), "b0": (20,), "w1": (20, 1, 3, 3), "w2": (20, 20, 1, 1), "b2": (20,),
    "w3": (36, 20, 3, 3), "w4": (40, 2, 2, 3), "w5": (24, 40, 3, 1), "w6": (17, 48, 3, 3),
    "w7": (20, 4, 1, 1), "w8": (5, 20, 1, 1), "w9": (20, 1, 7, 7),
    "w10": (5, 20, 3, 3), "w11": (20, 4, 3, 3), "w12": (16, 20, 3, 3), "w13": (18, 36, 3, 3),
    "w14": (32, 4, 5, 3), "b14": (32,), "w15": (24, 80, 1, 1),
    "v0": (20,), "v1": (20,), "v2": (20, 40), "v3": (40, 20),
}  # fmt: skip


def net(name: str) -> ModelProto:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,4,h,w] x) => (float[?,?,?,?] y) {NETS[name]}""")
    rng = np.random.default_rng(1)
    arrays = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    arrays |= {"low": np.array(-1.0), "high": np.array(6.0)}
    for name, array in arrays.items():
        if any(name in node.input for node in model.graph.node):
            tensor = numpy_helper.from_array(array.astype(np.float32), name)
            model.graph.initializer.append(tensor)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_nets_give_the_results_of_onnx_runtime(name: str) -> None:
    model = net(name)
    options = Options(bounds={"n": (1, 3), "h": (3, 40), "w": (3, 40)}, name="m", check=True)
    project = driver.compile_model(model, options=options)
    last = {part.decode() for part in re.findall(rb"(\w+)_nhwc", project.files[project.units[0]])}
    assert last == LAST.get(name, last) and (last or name in LAST)
    host = host_model(project, sanitize=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(2)
    for n, h, w in ((1, 3, 3), (2, 5, 40), (3, 17, 4), (1, 40, 40), (1, 7, 31)):
        x = rng.normal(size=(n, 4, h, w)).astype(np.float32)
        (theirs,) = session.run(None, {"x": x})
        wanted = np.asarray(theirs)
        scale = float(np.abs(wanted).max())
        np.testing.assert_allclose(host(x=x)["y"], wanted, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("channels", [4, 16])
def test_a_result_that_is_also_stored_as_a_row_has_no_channels(channels: int) -> None:
    """The product and what a view of it becomes are stored by one kernel, at two and one axes."""
    text = f"""
    symbol n in 1..4
    const %c: f32[3, {channels}] = splat 0.5
    func @main(%x: f32[n, 3]) {{
      %v: f32[n, {channels}] = matmul(%x, %c)
      %w: f32[{channels}*n] = view(%v)
      %y: f32[{channels}*n] = neg(%w)
      return %v, %y
    }}
    """
    host = rx.compile(rx.parse(text), name="rows").host()
    for n in (1, 3, 4):
        x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
        expected = np.repeat(0.5 * x.sum(1, keepdims=True), channels, axis=1)
        got = host(x=x)
        np.testing.assert_array_equal(got["v"], expected)
        np.testing.assert_array_equal(got["y"], -expected.reshape(-1))
