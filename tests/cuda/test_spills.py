# SPDX-License-Identifier: Apache-2.0
"""No kernel spills registers, whatever the depth of its products and the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relax_aot as rx
from relax_aot.binaries.cubin import read_cubin
from relax_aot.emit import cuda_module
from relax_aot.emit.cuda_module import DeviceSource, device_source
from relax_aot.fusion import fuse
from relax_aot.lowering import lower
from relax_aot.project.board import load_board
from relax_aot.scheduling import fusion_policy, schedule_device
from relax_aot.scheduling.devices.matrix_units import matrix_product
from relax_aot.scheduling.devices.products import product
from relax_aot.scheduling.targets.cuda_mma import TARGET
from relax_aot.toolchain.nvrtc import cubin
from tests.conftest import ROOT
from tests.cuda.figure_models import points
from tests.cuda.occupancy import occupancy
from tests.cuda.test_figures import alone
from tests.cuda.toolkits import needs_compilers
from tests.scheduling.devices.kernels import device_form
from tests.transforms.examples import example_module

pytestmark = needs_compilers

GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"


def occupied(source: DeviceSource, sm: int, toolkit: int) -> dict[str, float]:
    """The part of the warps of a processor, by kernel."""
    code = read_cubin(cubin(source.text, source.name, sm, toolkit))
    launches = [one for own in source.launches.values() for one in own]
    return {
        one.c_name: occupancy(code.function(one.c_name), one.threads, one.dynamic_bytes, sm)
        for one in launches
    }


def spilled(text: str, name: str, sm: int, toolkit: int) -> dict[str, int]:
    """The bytes of local memory of a thread, by kernel."""
    code = read_cubin(cubin(text, name, sm, toolkit))
    assert code.functions
    return {f.name: f.local_bytes for f in code.functions if f.local_bytes}


@pytest.mark.slow
@pytest.mark.parametrize(
    "board",
    [
        "jetson-orin-nano",
        pytest.param("jetson-xavier", marks=pytest.mark.long),
        pytest.param("jetson-thor", marks=pytest.mark.long),
        pytest.param("cuda-sm90", marks=pytest.mark.long),
    ],
)
def test_a_model_of_small_products_spills_nothing(board: str) -> None:
    project = rx.compile(GESTURE, board=board, bounds={"n": 128}).built
    cuda = load_board(board).cuda
    assert cuda is not None and cuda.toolkits
    text = project.files[f"{project.name}.cu"].decode()
    for toolkit in cuda.toolkits:
        assert spilled(text, project.name, cuda.sm, toolkit) == {}


@pytest.mark.long
@pytest.mark.parametrize("board", ["jetson-orin-nano", "jetson-xavier", "jetson-thor", "cuda-sm90"])
def test_a_model_of_bytes_spills_nothing(board: str, shared_models: Path) -> None:
    model = shared_models / "resnet8_int8_qdq.onnx"
    project = rx.compile(model, board=board, emit="cuda-source").built
    cuda = load_board(board).cuda
    assert cuda is not None
    text = project.files[f"{project.name}.cu"].decode()
    for toolkit in cuda.toolkits:
        assert spilled(text, project.name, cuda.sm, toolkit) == {}


def convolution(kind: int, form: tuple[int, int, int, int, int], operator: str) -> onnx.ModelProto:
    """Between two layers of points. `form`: channels, filters, and the size, strides and padding of
    the window."""
    channels, filters, size, stride, pad = form
    first = (filters, channels) if operator == "Conv" else (channels, filters)
    shapes = {"v": (channels, 16, 1, 1), "w": (*first, size, size), "u": (16, filters, 1, 1)}
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weights = [numpy_helper.from_array(np.ones(s, dtype), name) for name, s in shapes.items()]
    window: dict[str, Any] = {"strides": [stride] * 2, "pads": [pad] * 4}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node(operator, ["b", "w"], ["c"], **window),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "u"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", kind, ["n", 16, "h", "w"])
    y = helper.make_tensor_value_info("y", kind, ["n", 16, "i", "j"])
    graph = helper.make_graph(nodes, "convolution", [x], [y], weights)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


@pytest.mark.long
@pytest.mark.parametrize("board", ["jetson-orin-nano", "jetson-xavier", "jetson-thor", "cuda-sm90"])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize(
    "form",
    [
        (3, 24, 3, 1, 1), (8, 24, 4, 2, 1), (24, 24, 3, 1, 1), (32, 24, 3, 2, 1),
        (24, 40, 5, 1, 2), (32, 64, 2, 2, 0), (40, 96, 4, 2, 1), (64, 64, 3, 1, 1),
        (64, 128, 3, 2, 1), (9, 33, 7, 2, 3),
    ],
)  # fmt: skip
def test_convolutions_of_any_form_spill_nothing(
    form: tuple[int, int, int, int, int], kind: int, operator: str, board: str
) -> None:
    bounds = {"n": (1, 4), "h": (8, 32), "w": (8, 32)}
    model = convolution(kind, form, operator)
    made = rx.compile(model, name="net", board=board, bounds=bounds, emit="cuda-source").built
    cuda = load_board(board).cuda
    assert cuda is not None
    text = made.files["net.cu"].decode()
    for toolkit in cuda.toolkits:
        assert spilled(text, "net", cuda.sm, toolkit) == {}


@pytest.mark.long
def test_blocks_of_one_warp_that_spill_have_more_registers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For which compilers want several blocks less: 18 for 24."""
    monkeypatch.setattr(cuda_module, "RESIDENT", 768)
    monkeypatch.setattr(cuda_module, "BLOCKS", 24)
    model = convolution(TensorProto.FLOAT16, (3, 24, 3, 1, 1), "Conv")
    made = rx.compile(
        model, name="net", board="cuda-sm90", emit="cuda-source",
        bounds={"n": (1, 4), "h": (8, 32), "w": (8, 32)},
    ).built  # fmt: skip
    text = made.files["net.cu"].decode()
    assert "__launch_bounds__(32, 18)" in text
    assert spilled(text, "net", 90, 12) == {}


@pytest.mark.slow
@pytest.mark.long
def test_the_source_alone_is_that_of_the_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where compilers said what spills: three blocks of 256 threads do, and two are left."""
    monkeypatch.setattr(cuda_module, "RESIDENT", 768)
    model = convolution(TensorProto.FLOAT16, (40, 96, 4, 2, 1), "Conv")
    text = {}
    for emit in ("cubin", "cuda-source"):
        made = rx.compile(
            model, name="net", board="jetson-orin-nano", emit=emit,
            bounds={"n": (1, 4), "h": (8, 32), "w": (8, 32)},
        ).built  # fmt: skip
        text[emit] = made.files["net.cu"]
    assert text["cubin"] == text["cuda-source"]
    assert b"__launch_bounds__(256, 2)" in text["cubin"]
    assert b"__launch_bounds__(256, 3)" in text["cubin"], "functions that do not spill"


@pytest.mark.slow
@pytest.mark.long
def test_sizes_that_are_divisors_are_read_again_behind_a_crowded_loop() -> None:
    """No register holds their reciprocals meanwhile: two blocks of 256 threads fit."""
    model = convolution(TensorProto.FLOAT16, (40, 96, 4, 2, 1), "Conv")
    made = rx.compile(
        model, name="net", board="jetson-orin-nano", emit="cuda-source",
        bounds={"n": (1, 4), "h": (8, 32), "w": (8, 32)},
    ).built  # fmt: skip
    text = made.files["net.cu"].decode()
    assert "raot_size(h)" in text and "raot_size(w)" in text
    assert "__launch_bounds__(256, 1)" not in text


PRODUCT = """
    symbol n in 1..4096
    symbol m in 1..4096
    symbol c in 1..4096
    kernel @dot(%x: {x}, %w: {w}, %b: {kind}[{columns}]) -> (%y: {y}) {{
      for i in 0..n {{
        for j in 0..{columns} {{
          local sum: {kind} = 0.0:{kind}
          for k in 0..{depth} {{
            sum = {added}
          }}
          %y[i, j] = max(({total} + %b[j]), 0.0:{kind})
        }}
      }}
    }}"""


def product_text(kind: str, depth: str, columns: str, *, transposed: bool) -> str:
    place = "j, k" if transposed else "k, j"
    return PRODUCT.format(
        kind=kind,
        depth=depth,
        columns=columns,
        x=f"{kind}[n, {depth}]",
        w=f"{kind}[{columns}, {depth}]" if transposed else f"{kind}[{depth}, {columns}]",
        y=f"{kind}[n, {columns}]",
        added=f"fma(%x[i, k], %w[{place}], sum)"
        if kind == "f32"
        else f"(sum + (%x[i, k] * %w[{place}]))",
        total="sum" if kind == "f32" else f"cast(cast(sum, f32, wrap), {kind}, wrap)",
    )


@pytest.mark.parametrize(
    ("depth", "columns"),
    [
        ("24", "50"),
        *(
            pytest.param("4*m", columns, marks=pytest.mark.slow)
            for columns in ("50", "96", "200", "768")
        ),
        *(
            pytest.param(depth, columns, marks=pytest.mark.long)
            for depth in ("8", "16", "24", "40", "72", "100", "136", "770", "m")
            for columns in ("768", "c")
        ),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_products_of_any_depth_spill_nothing(
    kind: str, transposed: bool, depth: str, columns: str
) -> None:
    strategy = product if kind == "f32" else matrix_product
    text = product_text(kind, depth, columns, transposed=transposed)
    _, device, bounds = device_form(text, strategy)
    if device is None:
        assert kind == "f16" and depth == columns == "8", "no tiles for this product"
        return
    source = device_source("model", [device], bounds)
    for sm, toolkit in ((87, 11), (90, 12)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)


def test_products_of_constant_rows_spill_nothing() -> None:
    text = product_text("f16", "256", "256", transposed=False)
    text = text.replace("symbol n in 1..4096", "symbol n in 128..128")
    _, device, bounds = device_form(text, matrix_product)
    assert device is not None
    source = device_source("model", [device], bounds)
    for sm, toolkit in ((87, 12), (90, 13)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)


@pytest.mark.parametrize(
    "function",
    [
        "sigmoid(%p)",
        "tanh(%p)",
        "div(%p, %d)",
        pytest.param("mish(%p)", marks=pytest.mark.slow),
    ],
)
def test_functions_with_quotients_behind_sums_spill_nothing(function: str) -> None:
    """A division would call a function for subnormal numbers, and calls take registers."""
    device, bounds = alone(f"""
    symbol n in 1..4096
    func @main(%x: f16[n, 768], %w: f16[1024, 768], %d: f16[1024]) {{
      %p: f16[n, 1024] = gemm(%x, %w, _) {{trans_b=true}}
      %s: f16[n, 1024] = {function}
      %y: f16[n, 1024] = mul(%s, %d)
      return %y
    }}""")
    source = device_source("model", [device], bounds)
    for sm, toolkit in ((87, 12), (90, 12)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)


WINDOWS = """
    symbol n in 1..8
    symbol h in 3..64
    symbol w in 3..64
    kernel @conv(%x: {of}[n, h, w, {c}], %w: {of}[96, 3, 3, {c}]) -> (%y: {of}[n, h, w, 96]) {{
      for b in 0..n {{
        for i in 0..h {{
          for j in 0..w {{
            for c in 0..96 {{
              local sum: {of} = 0.0:{of}
              for k in max(-i + 1, 0)..min(-i + h + 1, 3) {{
                for l in max(-j + 1, 0)..min(-j + w + 1, 3) {{
                  for d in 0..{c} {{
                    sum = (sum + (%x[b, i + k - 1, j + l - 1, d] * %w[c, k, l, d]))
                  }}
                }}
              }}
              %y[b, i, j, c] = sum
            }}
          }}
        }}
      }}
    }}"""


@pytest.mark.slow
@pytest.mark.parametrize("depth", [24, 32, 40, 64, 96])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_windows_of_any_depth_spill_nothing(kind: str, depth: int) -> None:
    _, device, bounds = device_form(WINDOWS.format(of=kind, c=depth), matrix_product)
    assert device is not None
    source = device_source("model", [device], bounds)
    for sm, toolkit in ((87, 11), (87, 12), (90, 13)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)


def test_windows_without_padding_spill_nothing() -> None:
    """Pixels without overlap, as where a model halves its image."""
    text = WINDOWS.format(of="f16", c=96)
    for old, new in (
        ("max(-i + 1, 0)..min(-i + h + 1, 3)", "0..2"),
        ("max(-j + 1, 0)..min(-j + w + 1, 3)", "0..2"),
        ("i + k - 1, j + l - 1", "2*i + k, 2*j + l"),
        ("n, h, w, 96], %w", "n, 2*h, 2*w, 96], %w"),
        ("3, 3, ", "2, 2, "),
    ):
        assert old in text
        text = text.replace(old, new)
    _, device, bounds = device_form(text, matrix_product)
    assert device is not None
    source = device_source("model", [device], bounds)
    for sm, toolkit in ((87, 12), (90, 12)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)


@pytest.mark.parametrize("filters", [8, 16])
@pytest.mark.parametrize("channels", [32, 48, 64])
@pytest.mark.long
def test_points_of_few_filters_spill_nothing(channels: int, filters: int) -> None:
    device, bounds = alone(points(channels, filters))
    source = device_source("model", [device], bounds)
    for sm, toolkit in ((87, 11), (90, 12), (90, 13)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)


def known_weights(
    kind: str, channels: int, filters: int, size: int, stride: int, apart: int = 1
) -> str:
    """A convolution of images of any size, whose windows have pixels that are so far apart."""
    pad = size // 2 * apart
    return f"""
    symbol n in 1..64
    symbol h in 7..64
    symbol w in 7..64
    const %w: {kind}[{filters}, {channels}, {size}, {size}] = splat 0.5
    func @main(%x: {kind}[n, {channels}, h, w], %b: {kind}[{filters}]) {{
      %y: {kind}[n, {filters}, (h - 1)//{stride} + 1, (w - 1)//{stride} + 1] = conv(%x, %w, %b) {{
        strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}],
        dilations=[{apart}, {apart}], group=1}}
      return %y
    }}"""


def test_channels_that_are_copied_behind_sums_spill_nothing() -> None:
    """24 of 40 channels, then the others."""
    device, bounds = alone(known_weights("f16", 40, 24, 3, 2))
    source = device_source("model", [device], bounds)
    assert spilled(source.text, "model", 90, 12) == {}


@pytest.mark.parametrize(
    ("channels", "filters", "size"),
    [
        (40, 32, 5),  # 15 vectors of one warp, which has its own part of the image
        (96, 40, 3),  # half of the channels are copied while sums are in registers
        (40, 96, 3),  # as many warps for each quarter of a processor
    ],
)
def test_copies_of_planes_spill_nothing_and_leave_room(
    channels: int, filters: int, size: int
) -> None:
    device, bounds = alone(known_weights("f16", channels, filters, size, 1))
    source = device_source("model", [device], bounds)
    for sm, toolkit in ((87, 12), (90, 12)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)
        assert min(occupied(source, sm, toolkit).values()) >= 0.25, (sm, toolkit)


BOARDS = [("jetson-orin-nano", 87), ("cuda-sm90", 90)]


@pytest.mark.long
@pytest.mark.parametrize(("board", "sm"), BOARDS)
@pytest.mark.parametrize(
    ("size", "causal", "masked"),
    [(144, 1, False), (160, 0, True), (176, 1, False), (192, 1, False), (192, 1, True),
     (208, 0, False), (256, 1, False)],
)  # fmt: skip
def test_wide_heads_spill_nothing_with_masks(
    size: int, causal: int, masked: bool, board: str, sm: int
) -> None:
    """Queries of the widest are in shared memory; where that is not enough, blocks are smaller."""
    shapes = [f"[1, 8, n, {size}] q", f"[1, 1, m, {size}] k", f"[1, 1, m, {size}] v"]
    shapes += ["[n, m] mask"] * masked
    inputs = ", ".join(f"float16{shape}" for shape in shapes)
    made = f"y = Attention <is_causal = {causal}> (q, k, v{', mask' * masked})"
    text = f"heads ({inputs}) => (float16[1, 8, n, {size}] y) {{ {made} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> {text}')
    bounds = {"n": (1, 1024), "m": (1, 1024)}
    project = rx.compile(model, name="net", board=board, emit="cuda-source", bounds=bounds).built
    assert project.crowded == {}
    assert spilled(project.files["net.cu"].decode(), "net", sm, 12) == {}


@pytest.mark.long
@pytest.mark.parametrize(("board", "sm"), BOARDS)
def test_products_that_spill_keep_no_addresses(board: str, sm: int) -> None:
    """They spill with all warps, and with less than a quarter they do not."""
    module = example_module("""
    symbol n in 1..4096
    symbol m in 1..1024
    func @main(%x: f16[n, 4*m], %w: f16[4*m, 4*m]) {
      %p: f16[n, 4*m] = gemm(%x, %w, _) {trans_b=true}
      %y: f16[n, 4*m] = gelu(%p)
      return %y
    }""")
    project = rx.compile(module, name="net", board=board, emit="cuda-source").built
    code = read_cubin(cubin(project.files["net.cu"].decode(), "net", sm, 12))
    launches = [one for own in project.launches.values() for one in own]
    for one in launches[:-1]:
        own = code.function(one.c_name)
        assert own.local_bytes == 0
        assert occupancy(own, one.threads, one.dynamic_bytes, sm) >= 0.25


@pytest.mark.parametrize(
    ("channels", "filters", "size", "stride"),
    [(160, 32, 7, 2), (256, 48, 3, 1)],
)
@pytest.mark.long
def test_planes_on_their_way_spill_nothing_and_leave_room(
    channels: int, filters: int, size: int, stride: int
) -> None:
    """Threads hold pixels of the next part next to their sums."""
    device, bounds = alone(known_weights("f16", channels, filters, size, stride, 2))
    source = device_source("model", [device], bounds)
    for sm, toolkit in ((87, 12), (90, 12)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)
        assert min(occupied(source, sm, toolkit).values()) >= 0.25, (sm, toolkit)


@pytest.mark.long
@pytest.mark.parametrize("channels", [3, 8, 16, 24, 32, 40, 48, 64, 96])
@pytest.mark.parametrize("filters", [8, 24])
@pytest.mark.parametrize(("size", "stride"), [(1, 1), (1, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_convolutions_of_few_filters_spill_nothing(
    kind: str, size: int, stride: int, filters: int, channels: int
) -> None:
    module = example_module(known_weights(kind, channels, filters, size, stride))
    module = schedule_device(fuse(lower(module), fusion_policy(TARGET)).module, TARGET)
    source = device_source("model", module.kernels, module.bounds)
    for sm, toolkit in ((87, 12), (90, 12), (90, 13)):
        assert spilled(source.text, "model", sm, toolkit) == {}, (sm, toolkit)
