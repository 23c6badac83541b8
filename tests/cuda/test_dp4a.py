# SPDX-License-Identifier: Apache-2.0
"""Products of bytes on chips that have no matrix units for them, but dp4a."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from relax_aot import driver
from relax_aot.binaries.cubin import read_cubin
from relax_aot.driver import Options
from relax_aot.emit.cuda_module import device_source
from relax_aot.scheduling.devices.matrix_units import byte_product
from relax_aot.scheduling.targets import cuda_dp4a, find
from relax_aot.toolchain.nvdisasm import disassembled
from relax_aot.toolchain.nvrtc import cubin
from tests.cuda.emulated import Emulated
from tests.cuda.figure_models import BYTE_WINDOWS, BYTES
from tests.cuda.test_host import OK
from tests.cuda.toolkits import needs_compilers, needs_disassembler
from tests.scheduling.devices.kernels import device_form

pytestmark = pytest.mark.slow
ZEROS = BYTES.replace("cast(%x[i, k], i32, wrap)", "(cast(%x[i, k], i32, wrap) - 3:i32)")


def test_chips_from_6_1_on_have_it() -> None:
    found = [find("cuda", features).name for features in ((), ("dp4a",))]
    assert found == ["cuda", "cuda_dp4a"]


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.long
def test_sums_on_a_xavier_are_exact(kind: str) -> None:
    """Of a factor of either sign, with zero points, at sizes of each launch."""
    noise, low = np.random.default_rng(2), np.iinfo(kind).min
    w = noise.integers(-128, 128, (80, 72)).astype(np.int8)
    zero = np.array(low + 3, kind)
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "p", "q"], ["y"])]
    element = TensorProto.INT8 if kind == "int8" else TensorProto.UINT8
    x = helper.make_tensor_value_info("x", element, ["n", 80])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, ["n", 72])
    constants = {"w": w, "p": zero, "q": np.array(5, np.int8)}
    initializers = [numpy_helper.from_array(one, name) for name, one in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = Options(bounds={"n": (1, 1100)}, emit="cuda-source", name=f"bytes_{kind}")
    project = driver.compile_model(model, "jetson-xavier", options)
    assert b"raot_mma_m16n8k32" in project.files[f"bytes_{kind}.cu"]
    found = Emulated(project)
    assert found.init(n=1) == OK
    for n in (1100, 67, 3, 1):
        given = noise.integers(low, low + 256, (n, 80)).astype(kind)
        made = np.zeros((n, 72), np.int32)
        assert found.run([given], [made], n=n) == OK
        real = (given.astype(np.int64) - int(zero)) @ (w.astype(np.int64) - 5)
        np.testing.assert_array_equal(made, real)
    found.close()


@pytest.mark.long
@pytest.mark.parametrize("board", ["jetson-xavier", "jetson-orin-nano"])
def test_bytes_that_are_inputs_are_transposed_before(board: str) -> None:
    """And their lines are added for zero points, at any lengths: the lowest, odd and highest."""
    text = """
        <ir_version: 8, opset_import: ["": 18]>
        product (uint8[m, k] x, int8[k, n] w) => (int32[m, n] y) {
          p = Constant <value = uint8 {131}> ()
          q = Constant <value = int8 {-5}> ()
          y = MatMulInteger(x, w, p, q)
        }"""
    options = Options(bounds=dict.fromkeys("mkn", (1, 150)), emit="cuda-source", name="product")
    project = driver.compile_model(onnx.parser.parse_model(text), board, options)
    assert b"_sums" in project.files["product.cu"] and b"_rows" in project.files["product.cu"]
    found, noise = Emulated(project), np.random.default_rng(3)
    assert found.init(m=1, k=1, n=1) == OK
    for m, k, n in ((1, 1, 1), (67, 33, 129), (150, 150, 150), (131, 64, 144), (3, 150, 7)):
        x = noise.integers(0, 256, (m, k)).astype(np.uint8)
        w = noise.integers(-128, 128, (k, n)).astype(np.int8)
        made = np.zeros((m, n), np.int32)
        assert found.run([x, w], [made], m=m, k=k, n=n) == OK
        np.testing.assert_array_equal(made, (x.astype(np.int64) - 131) @ (w.astype(np.int64) + 5))
    found.close()


@needs_compilers
@needs_disassembler
@pytest.mark.long
@pytest.mark.parametrize("text", [ZEROS, BYTES, BYTE_WINDOWS])
def test_most_instructions_are_products(text: str) -> None:
    """The tool reads no code for sm_72, so that its registers alone are checked."""
    _, device, bounds = device_form(text, byte_product, target=cuda_dp4a.TARGET)
    assert device is not None
    source = device_source("model", [device], bounds)
    launches = source.launches[device.name]
    binaries = {72: cubin(source.text, "model", 72, 11), 75: cubin(source.text, "model", 75, 12)}
    for binary in binaries.values():
        for one in launches:
            assert read_cubin(binary).function(one.c_name).local_bytes == 0
    codes = disassembled(binaries[75])
    tiles = [
        one
        for one in launches
        if any(loop.mix["IDP"] and loop.mix["SHFL"] for loop in codes[one.c_name].loops)
    ]
    assert len(tiles) == 2, "a large and a small one"
    for one in tiles:
        loop = max(codes[one.c_name].loops, key=lambda loop: loop.mix["IDP"])
        assert loop.share("IDP") >= 0.6, loop.mix
        assert loop.share("SHFL") <= 0.3, loop.mix
