# SPDX-License-Identifier: Apache-2.0
"""Functions behind sums are computed in vectors: the machine code of kernels, as shipped files
build it, calls no scalar function and has no loop over single floats.

Every activation follows a product, convolutions with channels first and last, depthwise
convolutions of both layouts and a layer normalization. Sizes leave no rest behind vectors. What is
not computed in vectors yet is listed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from onnx.parser import parse_model

from relax_aot import driver
from relax_aot.driver import Options
from tests.models.onnx_text import Array

ACTIVATIONS = {
    "sigmoid": "{y} = Sigmoid({x})",
    "tanh": "{y} = Tanh({x})",
    "erf": "{y} = Erf({x})",
    "exp": "{y} = Exp({x})",
    "silu": "{y}_s = Sigmoid({x}) {y} = Mul({x}, {y}_s)",
    "gelu": "{y} = Gelu({x})",
    "gelu_tanh": '{y} = Gelu<approximate="tanh">({x})',
    "mish": "{y} = Mish({x})",
    "elu": "{y} = Elu({x})",
    "selu": "{y} = Selu({x})",
    "celu": "{y} = Celu({x})",
    "softplus": "{y} = Softplus({x})",
    "softsign": "{y} = Softsign({x})",
    "hard_swish": "{y} = HardSwish({x})",
    "hard_sigmoid": "{y} = HardSigmoid({x})",
    "leaky_relu": "{y} = LeakyRelu({x})",
}
PRODUCERS: dict[str, tuple[str, str, str, dict[str, tuple[int, ...]]]] = {
    "rows": ("64, 32", "64, 64", "{c} = MatMul({x}, rows_w)", {"w": (32, 64)}),
    "first": ("1, 4, 16, 32", "1, 8, 16, 32", "{c} = Conv<pads=[1,1,1,1]>({x}, first_w)",
              {"w": (8, 4, 3, 3)}),
    "last": ("1, 8, 16, 32", "1, 8, 16, 32",
             "last_b = Conv({x}, last_a) {c} = Conv<pads=[1,1,1,1]>(last_b, last_w)",
             {"a": (32, 8, 1, 1), "w": (32, 32, 3, 3), "e": (8, 32, 1, 1)}),
    "each": ("1, 8, 2, 31", "1, 8, 2, 31",
             "each_b = Conv({x}, each_a) {c} = Conv<pads=[1,1,1,1], group=32>(each_b, each_w)",
             {"a": (32, 8, 1, 1), "w": (32, 1, 3, 3), "e": (8, 32, 1, 1)}),
    "planes": ("1, 8, 2, 31", "1, 8, 2, 31",
               "{c} = Conv<pads=[1,1,1,1], group=8>({x}, planes_w)", {"w": (8, 1, 3, 3)}),
    "normal": ("64, 64", "64, 64", "{c} = LayerNormalization({x}, normal_w, normal_b)",
               {"w": (64,), "b": (64,)}),
}  # fmt: skip
"""Shapes of the input and of the result, the operators, and the shapes of weights. With `e`, a
convolution follows the activation, so that its image may have its channels last."""
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fno-strict-aliasing",
         "-DRAOT_CONTRACTION_OFF", "-fno-trapping-math")  # fmt: skip
AVX2 = ("-mavx2", "-mfma")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
TARGETS = {
    "avx2": ("host", "", AVX2),
    "avx512": ("host", "", AVX512),
    "asimd": ("raspberry-pi-5", "aarch64-linux-gnu-", ("-mcpu=cortex-a76",)),
}
CALL = re.compile(r"(?:call|bl)\s+[0-9a-f]+ <([^>+]+)>|R_\w*(?:PLT32|CALL26)\s+([\w.]+)")
"""Of a function in the same file, or of another one, by its relocation."""
VECTORS = re.compile(r"raot_(multiply|tile|depthwise|(expm?1?|tanh|sigmoid|erf)_f32)|mem(set|cpy)")
"""Functions whose work is in vectors."""
SINGLE = re.compile(r"\bv?(fn?m(add|sub)\d*|mul|add|sub|div|sqrt)s[sd]\b"
                    r"|\bf(n?m?(add|sub|ul)|div|sqrt)\s+[sd]\d")  # fmt: skip
WIDE = re.compile(r"%[yz]mm|\.4s")


def net(activation: str) -> ModelProto:
    rng = np.random.default_rng(0)
    inputs, results, lines = [], [], []
    arrays: dict[str, Array] = {}
    for name, (given, made, text, weights) in PRODUCERS.items():
        inputs.append(f"float[{given}] {name}_x")
        results.append(f"float[{made}] {name}_y")
        last = f"{name}_z" if "e" in weights else f"{name}_y"
        lines.append(text.format(x=f"{name}_x", c=f"{name}_c"))
        lines.append(ACTIVATIONS[activation].format(x=f"{name}_c", y=last))
        lines += [f"{name}_y = Conv({last}, {name}_e)"] if "e" in weights else []
        arrays |= {f"{name}_{key}": rng.normal(size=shape) for key, shape in weights.items()}
    model = parse_model(
        '<ir_version: 9, opset_import: ["" : 20]>'
        f"g ({', '.join(inputs)}) => ({', '.join(results)}) {{ {' '.join(lines)} }}"
    )
    for name, array in arrays.items():
        tensor = numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    return model


def name_of(called: re.Match[str]) -> str:
    return called[1] or called[2]


def scalar_code(text: str, kernels: set[str]) -> Iterator[str]:
    """Calls and loops of kernels in disassembled code that compute single floats."""
    functions = re.finditer(r"^[0-9a-f]+ <([^>]+)>:\n((?:.+\n)*)", text, re.MULTILINE)
    for name, body in (found.groups() for found in functions):
        if name.partition(".")[0] not in kernels:
            continue
        lines = re.findall(r"^\s*([0-9a-f]+):\s+(.+)$", body, re.MULTILINE)
        code = [(int(at, 16), line) for at, line in lines]
        for at, line in code:
            called = CALL.match(line)
            if called and not VECTORS.match(name_of(called)):
                yield f"{name} calls {name_of(called)}"
            target = re.search(r"^(?:j|b|cb|tb)\S*\s+(?:.*[,\s])?([0-9a-f]+) <", line)
            if target and int(target[1], 16) < at:
                loop = [inner for place, inner in code if int(target[1], 16) <= place <= at]
                single = [inner for inner in loop if SINGLE.search(inner)]
                if single and not any(map(WIDE.search, loop)):
                    yield f"{name} loops over {single[0]}"


SCALAR = {("asimd", "silu")}
"""GCC 12 makes no vectors of the rows of depthwise convolutions with channels first."""
CASES = [
    pytest.param(target, name, marks=[] if (target, name) == ("avx2", "silu") else pytest.mark.long)
    for target in TARGETS
    for name in ACTIVATIONS
]


@pytest.mark.parametrize(("target", "activation"), CASES)
@pytest.mark.long
def test_activations_are_computed_in_vectors(target: str, activation: str, tmp_path: Path) -> None:
    board, tools, flags = TARGETS[target]
    if not all(shutil.which(f"{tools}{tool}") for tool in ("gcc", "objdump")):
        pytest.skip(f"{tools}gcc is not installed")
    project = driver.compile_model(net(activation), board, Options(name="m"))
    project.write(tmp_path)
    source, built = tmp_path / "m.c", tmp_path / "m.o"
    paths = [f"-I{tmp_path}", "-c", str(source), "-o", str(built)]
    command = [f"{tools}gcc", *FLAGS, *flags, *paths]
    subprocess.run(command, check=True)
    dump = [f"{tools}objdump", "-dr", "--no-show-raw-insn", str(built)]
    text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    kernels = set(re.findall(r"^RAOT_NOINLINE static void (\w+)\(", source.read_text(), re.M))
    assert len(kernels) >= len(PRODUCERS)
    assert bool(list(scalar_code(text, kernels))) == ((target, activation) in SCALAR)
