# SPDX-License-Identifier: Apache-2.0
"""The error model: legitimate roundings pass, faults of 4 units in the last place are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.ir.types import DType
from relax_aot.ops import all_ops
from relax_aot.ops._op import Op, Trait, is_float
from relax_aot.verify import host
from relax_aot.verify.compare import Bound, compare_bounded
from relax_aot.verify.error_model import ErrorModel, ModelCall
from relax_aot.verify.job import Job, run_job
from relax_aot.verify.op_cases import cases_of
from relax_aot.verify.ulp import unit_in_last_place
from relax_aot.verify.wide import wide_attr

Array = NDArray[Any]
ROWS, COLUMNS = 24, 20


def product(depth: int, dtype: str = "f32") -> str:
    return (
        f"func @main(%a: {dtype}[{ROWS}, {depth}], %b: {dtype}[{depth}, {COLUMNS}]) {{\n"
        f"  %y: {dtype}[{ROWS}, {COLUMNS}] = matmul(%a, %b)\n  return %y\n}}\n"
    )


def operands(depth: int, *, positive: bool = False, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng((depth, seed))
    arrays = {"a": rng.normal(size=(ROWS, depth)), "b": rng.normal(size=(depth, COLUMNS))}
    return {k: (np.abs(v) if positive else v).astype(np.float32) for k, v in arrays.items()}


def bound_of(depth: int, arrays: dict[str, Array]) -> Bound:
    module = rx.parse(product(depth))
    return ErrorModel({"": module}, [ModelCall(arrays, {})]).bounds(0)["y"]


def serial(a: Array, b: Array) -> Array:
    """One float32 product and one float32 sum after the other."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4, 16, 128, 1024])
def test_serial_float32_sums_pass_and_bounds_are_at_most_three_times_their_error(
    depth: int, positive: bool
) -> None:
    errors, allowed = [], []
    for seed in range(4):
        arrays = operands(depth, positive=positive, seed=seed)
        bound = bound_of(depth, arrays)
        found = serial(arrays["a"], arrays["b"])
        reversed_order = serial(arrays["a"][:, ::-1], arrays["b"][::-1])
        for one in (found, reversed_order):
            assert (np.abs(one - bound.exact) <= bound.allowed).all()
        errors.append(np.abs(found - bound.exact).max())
        allowed.append(np.median(bound.allowed))
    assert np.mean(allowed) <= 3 * np.mean(errors)


@pytest.mark.parametrize("depth", [1, 4, 16])
def test_faults_of_four_units_are_found_at_depths_up_to_sixteen(depth: int) -> None:
    """Faults in all elements, in every fourth row, and in the largest element of each row."""
    found = {"all": 0, "rows": 0, "largest": 0}
    for seed in range(10):
        arrays = operands(depth, seed=seed)
        bound = bound_of(depth, arrays)
        right = serial(arrays["a"], arrays["b"])
        unit = unit_in_last_place(right, DType.F32).astype(np.float32)
        places = {
            "all": np.ones_like(right),
            "rows": np.zeros_like(right),
            "largest": (np.abs(right) == np.abs(right).max(axis=1, keepdims=True)) * 1.0,
        }
        places["rows"][seed % 4 :: 4] = 1
        expected = bound.exact.astype(np.float32)
        for name, where in places.items():
            wrong = right + 4 * unit * where.astype(np.float32)
            found[name] += not compare_bounded("y", wrong, expected, bound).ok
        assert compare_bounded("y", right, expected, bound).ok
    assert found == {"all": 10, "rows": 10, "largest": 10}


def test_exact_sums_are_held_to_one_unit() -> None:
    """Sums of small whole numbers round nowhere, whatever their depth."""
    arrays = {k: np.rint(v * 8) for k, v in operands(200).items()}
    bound = bound_of(200, arrays)
    np.testing.assert_array_equal(bound.exact, arrays["a"] @ arrays["b"].astype(np.float64))
    np.testing.assert_array_equal(bound.allowed, unit_in_last_place(bound.exact, DType.F32))


def test_a_sum_that_is_exact_in_one_order_alone_is_not_held_to_one_unit() -> None:
    """1 - 1 + 2**-26 rounds nowhere, 1 + 2**-26 - 1 is zero."""
    module = rx.parse("""
        func @main(%x: f32[1, 3]) {
          %y: f32[1] = reduce(%x) {axes=[1], keepdims=false, kind="sum"}
          return %y
        }""")
    x = np.array([[1, -1, 2.0**-26]], np.float32)
    bound = ErrorModel({"": module}, [ModelCall({"x": x}, {})]).bounds(0)["y"]
    np.testing.assert_array_equal(bound.exact, np.float32(2.0**-26))
    assert (bound.allowed >= 2.0**-26).all()


def test_kernels_that_sum_nothing_are_allowed_their_functions() -> None:
    """As the dump of a schedule has them: the errors of functions reach what reads them, whose own
    units may be far smaller."""
    module = rx.parse("""
        kernel @powers(%x: f32[64]) -> (%y: f32[64]) {
          for i in 0..64 {
            %y[i] = exp(%x[i])
          }
        }
        kernel @differences(%x: f32[64], %y: f32[64]) -> (%z: f32[64]) {
          for i in 0..64 {
            %z[i] = (%y[i] - cast(cast(%y[i], i32, wrap), f32, wrap))
          }
        }
        func @main(%x: f32[64]) {
          %y: f32[64] = call_kernel(%x) {kernel=@powers}
          %z: f32[64] = call_kernel(%x, %y) {kernel=@differences}
          return %z
        }""")
    arrays = {"x": np.random.default_rng(0).uniform(3, 5, 64).astype(np.float32)}
    bounds = ErrorModel({"": module}, [ModelCall(arrays, {})]).bounds(0)
    unit = np.spacing(np.exp(arrays["x"]))
    assert np.median(bounds["z"].allowed / unit) > 1


def test_infinite_masks_leave_the_bounds_of_what_they_do_not_hide() -> None:
    """Scores of attention are masked by adding -inf, which rounding changes nowhere."""
    module = rx.parse("""
    func @main(%q: f32[6, 40], %k: f32[40, 6], %mask: f32[6, 6], %v: f32[6, 40]) {
      %scores = matmul(%q, %k)
      %masked = add(%scores, %mask)
      %shares = softmax(%masked)
      %y = matmul(%shares, %v)
      return %y
    }
    """)
    rng = np.random.default_rng(5)
    shapes = {"q": (6, 40), "k": (40, 6), "v": (6, 40)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    never = np.triu(np.full((6, 6), -np.inf, np.float32), 1)
    bound = ErrorModel({"": module}, [ModelCall(arrays | {"mask": never}, {})]).bounds(0)["y"]
    units = bound.allowed / unit_in_last_place(bound.exact, DType.F32)
    hidden, seen = np.median(units[1:5]), np.median(units[5])
    assert hidden > 0.6 * seen, (hidden, seen)


def test_a_quantized_value_at_a_tie_may_be_either() -> None:
    """And with it all that integers make of it. Others may not move by a step."""
    module = rx.parse("""
    const %step: f32[] = [0.0078125]
    const %zero: i8[] = [0]
    func @main(%x: f32[40]) {
      %s: f32[40] = sigmoid(%x)
      %q: i8[40] = quantize(%s, %step, %zero) {precision=f32, saturate=true, to=i8}
      %t: i8[40] = transpose(%q) {perm=[0]}
      %y: f32[40] = dequantize(%t, %step, %zero) {to=f32}
      return %y
    }
    """)
    share = (np.arange(40) * 2 + 20.25) / 128
    share[7] = 50.5 / 128
    x = np.log(share / (1 - share)).astype(np.float32)
    bound = ErrorModel({"": module}, [ModelCall({"x": x}, {})]).bounds(0)["y"]
    assert np.flatnonzero(bound.allowed >= 0.0078125).tolist() == [7]


@pytest.mark.parametrize(("dtype", "bits"), [("f16", 11), ("bf16", 8), ("f64", 53)])
def test_units_are_those_of_the_output_type(dtype: str, bits: int) -> None:
    x = np.array([1.0, 1.5, -3.0, 0.0, np.inf])
    unit = unit_in_last_place(x, DType(dtype))
    np.testing.assert_array_equal(unit[:3], np.array([1, 1, 2]) * 2.0 ** (1 - bits))
    assert unit[3] > 0 and np.isfinite(unit).all()


def test_sums_of_doubles_are_allowed_what_doubles_round() -> None:
    """NumPy's own doubles are the exact value here, and round as those of the C do."""
    rng = np.random.default_rng(9)
    arrays = {"a": rng.normal(size=(ROWS, 300)), "b": rng.normal(size=(300, COLUMNS))}
    module = rx.parse(product(300, "f64"))
    bound = ErrorModel({"": module}, [ModelCall(arrays, {})]).bounds(0)["y"]
    total = np.zeros((ROWS, COLUMNS))
    for k in range(300):
        total = total + arrays["a"][:, k : k + 1] * arrays["b"][k : k + 1]
    assert (np.abs(total - bound.exact) <= bound.allowed).all()
    assert (bound.allowed < 1e-12).all()


HALVES = """
<ir_version: 9, opset_import: ["": 17]>
g (float16[n, 32] x) => (float16[n, 12] y)
<float16[32, 48] w1, float16[48, 12] w2> {
  h = MatMul(x, w1)
  r = Relu(h)
  t = MatMul(r, w2)
  y = Softmax<axis = -1>(t)
}
"""


def halves() -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    model = parser.parse_model(HALVES.replace("<float16[32, 48] w1, float16[48, 12] w2>", ""))
    for name, shape in (("w1", (32, 48)), ("w2", (48, 12))):
        weights = (rng.normal(size=shape) / 4).astype(np.float16)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model


@pytest.mark.parametrize("reference", ["onnxruntime", "numpy"])
def test_networks_in_half_precision_are_equal(reference: str) -> None:
    options = Options(bounds={"n": (1, 7)}, name="halves")
    project = driver.compile_model(halves(), "host", options)
    result = run_job(Job(halves(), (project,), reference=reference))
    assert result.ok
    shares = [d.of_allowed for t in result.targets for run in t.runs for d in run.outputs]
    assert 0 < max(shares) <= 1


ATTENTION = """
<ir_version: 10, opset_import: ["": 23]>
g (float16[1, 2, n, 32] q, float16[1, 2, n, 32] k, float16[1, 2, n, 32] v)
  => (float16[1, 2, n, 32] y) {
  y = Attention(q, k, v)
}
"""


def test_a_reference_that_rounds_inside_an_operator_is_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ONNX Runtime's attention in half precision; what is ours has to be right all the same."""
    model = parser.parse_model(ATTENTION)
    project = driver.compile_model(model, "host", Options(bounds={"n": (1, 40)}, name="scores"))
    assert run_job(Job(model, (project,), reference="onnxruntime")).ok

    def four_units(outputs: dict[str, Array]) -> None:
        y = outputs["y"]
        y += 4 * unit_in_last_place(y, DType.F16).astype(np.float16)

    faulty(monkeypatch, four_units)
    assert not run_job(Job(model, (project,), reference="onnxruntime")).ok


def faulty(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Array]], None]) -> None:
    """The host gives other outputs than the C."""
    right = host.HostModel._run

    def run(self: host.HostModel, *arguments: Any) -> dict[str, Array]:
        outputs = right(self, *arguments)
        change(outputs)
        return outputs

    monkeypatch.setattr(host.HostModel, "_run", run)


@pytest.mark.parametrize("depth", [1, 16])
def test_verify_finds_planted_faults_of_four_units(
    monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    model = parser.parse_model(f"""
    <ir_version: 9, opset_import: ["": 17]>
    g (float[n, {depth}] a, float[{depth}, 20] b) => (float[n, 20] y) {{ y = MatMul(a, b) }}
    """)
    project = driver.compile_model(model, "host", Options(bounds={"n": (1, 24)}, name="product"))

    def equal(reference: str) -> bool:
        return run_job(Job(model, (project,), reference=reference)).ok

    assert equal("onnxruntime") and equal("numpy")

    def four_units(outputs: dict[str, Array]) -> None:
        y = outputs["y"]
        y += 4 * unit_in_last_place(y, DType.F32).astype(np.float32)

    faulty(monkeypatch, four_units)
    assert not equal("onnxruntime") and not equal("numpy")


def attributes(op: Op, given: Mapping[str, Any]) -> dict[str, Any]:
    """With defaults, and with types as an evaluation in doubles has them."""
    if op.record is not None:
        record = op.record(**given)
        given = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: wide_attr(value) for name, value in given.items()}


def in_doubles(op: Op) -> list[Array]:
    """Floats that the reference makes of doubles that are no floats of 32 bits."""
    found: list[Array] = []
    noise = np.random.default_rng(4)
    for case in cases_of([op]):
        floats = [a for a in case.sample.args if a is not None and is_float(a)]
        gives_floats = any(type_.dtype.is_float for type_ in case.results)
        if case.symbolic or not floats or not gives_floats:
            continue
        wide = [
            a
            if a is None or not is_float(a)
            else np.float64(a) * (1 + noise.uniform(1e-10, 1e-9, a.shape))
            for a in case.sample.args
        ]
        with np.errstate(all="ignore"):
            results = op.reference(*wide, **attributes(op, case.sample.attrs))
        every = map(np.asarray, results if isinstance(results, tuple) else (results,))
        found += [a for a in every if is_float(a) and a.size]
    return found


@pytest.mark.parametrize("name", all_ops())
def test_references_keep_doubles(name: str) -> None:
    """A result of 32 bits counts as exact: its own rounding would be allowed nothing."""
    op = all_ops()[name]
    if op.view or any(map(op.has, (Trait.EXACT, Trait.DISCONTINUOUS, Trait.MOVES))):
        return
    results = in_doubles(op)
    with np.errstate(all="ignore"):
        kept = [not np.array_equal(np.float32(a), a, equal_nan=True) for a in results]
    assert not results or any(kept)
