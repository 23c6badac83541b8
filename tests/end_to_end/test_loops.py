# SPDX-License-Identifier: Apache-2.0
"""Loop and Scan as loops of C: the results of ONNX Runtime, for any number of iterations."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import relax_aot as rx
from relax_aot.errors import RelaxAotError
from relax_aot.ops._op import Array
from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.host import StatusError
from relax_aot.verify.library import FILL
from relax_aot.verify.program import to_bytes


def parsed(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')


def check(host: Any, model: onnx.ModelProto, **arrays: Array) -> dict[str, Array]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(None, arrays), strict=True))
    found: dict[str, Array] = host(**arrays)
    for name, theirs in expected.items():
        theirs = np.asarray(theirs)
        if not theirs.size:  # no turn: ONNX Runtime does not know the size of a row
            assert found[name].shape[0] == 0
            continue
        difference = compare(name, found[name], theirs, Tolerance(1e-5, 1e-6))
        assert difference.ok, (difference, found[name], theirs)
    return found


HALVED = parsed("""
agraph (float[n] x, float limit, int64 most) => (float[n] last, float[rounds, n] all, float sum)
{
    true = Constant <value = bool {1}> ()
    zero = Constant <value = float {0.0}> ()
    last, sum, all = Loop (most, true, x, zero) <body = body
        (int64 i, bool going, float[n] a, float s) => (bool more, float[n] b, float t, float[n] row)
    {
        half = Constant <value = float {0.5}> ()
        b = Mul (a, half)
        peak = ReduceMax <keepdims = 0> (b)
        more = Greater (peak, limit)
        turn = Cast <to = 1> (i)
        t = Add (s, turn)
        row = Add (b, t)
    }>
}
""")


AROUND = parsed("""
agraph (float[n] x) => (float[n] last, float[n, n] all)
{
    true = Constant <value = bool {1}> ()
    shape = Shape (x)
    zero = Constant <value = int64 {0}> ()
    most = Gather (shape, zero)
    last, all = Loop (most, true, x) <body = body
        (int64 i, bool going, float[n] a) => (bool more, float[n] b, float[n] row)
    {
        b = Tanh (a)
        more = Identity (true)
        row = Add (b, x)
    }>
}
""")


def test_a_condition_from_around_the_loop_needs_no_size_from_data() -> None:
    module = rx.load(AROUND, bounds={"n": 5})
    assert [symbol.name for symbol in module.symbols if not symbol.inner] == ["n"]
    assert str(module.functions[0].results[1].type) == "f32[n, n]"
    host = rx.compile(module, name="around").host()
    for n in (1, 3, 5):
        check(host, AROUND, x=np.linspace(-1, 1, n, dtype=np.float32))


@pytest.fixture(scope="module")
def halved() -> Any:
    bounds: dict[str, int | tuple[int, int]] = {"n": 6, "all_0": (0, 8)}
    return rx.compile(HALVED, bounds=bounds, name="halved").host(sanitize=True)


@pytest.mark.parametrize("n", [1, 6, 3])
@pytest.mark.parametrize("limit, most", [(0.3, 8), (100.0, 8), (-1.0, 5), (0.1, 0), (1.0, 1)])
def test_a_condition_ends_the_loop(halved: Any, n: int, limit: float, most: int) -> None:
    x = np.arange(1, n + 1, dtype=np.float32)
    ends = np.array(limit, np.float32), np.array(most, np.int64)
    check(halved, HALVED, x=x, limit=ends[0], most=ends[1])


def test_more_turns_than_memory_was_planned_for_is_a_status(halved: Any) -> None:
    with pytest.raises(StatusError, match="RAOT_ERR_CAPACITY"):
        halved(x=np.ones(3, np.float32), limit=np.array(-1, np.float32), most=np.array(9, np.int64))


GROWN = parsed("""
agraph (float[n, 2] x, float[m] extra, int64 rounds) => (float[k, 2] y, float total)
{
    true = Constant <value = bool {1}> ()
    zero = Constant <value = float {0.0}> ()
    y, total = Loop (rounds, true, x, zero) <body = body
        (int64 i, bool going, float[k, 2] a, float s) => (bool more, float[l, 2] b, float t)
    {
        more = Identity (going)
        first = ReduceSum <keepdims = 1> (a)
        two = Constant <value = int64[2] {1, 2}> ()
        row = Expand (first, two)
        b = Concat <axis = 0> (a, row)
        two_i = Constant <value = int64 {2}> ()
        odd = Mod (i, two_i)
        is_odd = Cast <to = 9> (odd)
        part = If (is_odd) <
            then_branch = g1 () => (float p) { p = ReduceSum <keepdims = 0> (extra) },
            else_branch = g2 () => (float q) { q = ReduceMax <keepdims = 0> (b) }
        >
        t = Add (s, part)
    }>
}
""")


@pytest.fixture(scope="module")
def grown() -> Any:
    bounds: dict[str, int | tuple[int, int]] = {"n": 4, "m": 3, "y_0": 9}
    return rx.compile(GROWN, bounds=bounds, name="grown").host(sanitize=True)


@pytest.mark.parametrize("n, m, rounds", [(1, 1, 0), (4, 3, 5), (2, 2, 3), (1, 3, 8)])
def test_a_carried_value_grows(grown: Any, n: int, m: int, rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    x, extra = (rng.uniform(0, 0.1, shape).astype(np.float32) for shape in ((n, 2), (m,)))
    found = check(grown, GROWN, x=x, extra=extra, rounds=np.array(rounds, np.int64))
    assert found["y"].shape == (n + rounds, 2)


def test_a_value_that_outgrows_its_bound_is_a_status(grown: Any) -> None:
    x, extra = np.ones((4, 2), np.float32), np.ones(1, np.float32)
    with pytest.raises(StatusError, match="RAOT_ERR_CAPACITY"):
        grown(x=x, extra=extra, rounds=np.array(6, np.int64))


def test_a_loop_is_the_same_as_text() -> None:
    module = rx.load(GROWN, bounds={"n": 4, "m": 3, "y_0": 9})
    assert str(rx.parse(str(module))) == str(module)


def test_a_growing_value_needs_a_bound() -> None:
    with pytest.raises(RelaxAotError, match="--bound y_0"):
        rx.load(GROWN, bounds={"n": 4, "m": 3})


SCANNED = parsed("""
agraph (float[b, t, 3] x, float[t, b] gate, float[b, 3] h) => (float[b, 3] last, float[b, t, 3] y,
        float[t, b] back)
{
    last, y, back = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0],
        scan_input_directions = [0, 1], scan_output_axes = [1, 0],
        scan_output_directions = [0, 1], body = body
        (float[b, 3] s, float[b, 3] row, float[b] g)
        => (float[b, 3] s2, float[b, 3] out, float[b] sum)
    {
        axis = Constant <value = int64[1] {1}> ()
        wide = Unsqueeze (g, axis)
        kept = Mul (s, wide)
        mixed = Add (kept, row)
        s2 = Tanh (mixed)
        out = Identity (s2)
        sum = ReduceSum <keepdims = 0> (out, axis)
    }> (h, x, gate)
}
""")


@pytest.mark.slow
def test_a_scan_in_both_directions() -> None:
    host = rx.compile(SCANNED, bounds={"b": 3, "t": 7}, name="scanned").host(sanitize=True)
    for b, t in ((1, 1), (3, 7), (2, 5)):
        rng = np.random.default_rng(b * t)
        arrays = {
            name: rng.normal(size=shape).astype(np.float32)
            for name, shape in (("x", (b, t, 3)), ("gate", (t, b)), ("h", (b, 3)))
        }
        check(host, SCANNED, **arrays)


SUMMED = parsed("""
agraph (float[n] h, float[t, m] x) => (float[k] last, float[t, l] y)
{
    last, y = Scan <num_scan_inputs = 1, body = body
        (float[k] s, float[m] row) => (float[k] s2, float[k] twice)
    {
        s2 = Add (s, row)
        twice = Add (s2, s2)
    }> (h, x)
}
""")
COMPRESSED = parsed("""
agraph (float[n] h, float[t, m] x) => (float[k] last, float[t, l] y)
{
    last, y = Scan <num_scan_inputs = 1, body = body
        (float[k] s, float[m] row) => (float[l] part, float[l] same)
    {
        zero = Constant <value = float {0.0}> ()
        positive = Greater (row, zero)
        part = Compress <axis = 0> (row, positive)
        same = Identity (part)
    }> (h, x)
}
""")


KEPT: dict[str, int | tuple[int, int]] = {"n": (0, 3), "t": (1, 3), "m": (0, 4)}


def test_a_scan_requires_that_its_state_keeps_its_size() -> None:
    conditions = rx.load(SUMMED, bounds=KEPT).conditions
    for n, m in product(range(4), range(5)):
        sizes = {"n": n, "t": 1, "m": m}
        holds = all(c.left.evaluate(sizes) == c.right.evaluate(sizes) for c in conditions)
        assert holds == (m in (n, 1))
    assert {c.relation for c in conditions} == {"=="}


@pytest.mark.slow
@pytest.mark.parametrize("model", [SUMMED, COMPRESSED], ids=["broadcast", "data-dependent"])
def test_the_state_of_a_scan_keeps_its_size(model: onnx.ModelProto) -> None:
    """Where ONNX Runtime has an answer, it is the same; elsewhere no output is written."""
    onnxruntime = pytest.importorskip("onnxruntime")
    errors = onnxruntime.capi.onnxruntime_pybind11_state
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    host = rx.compile(model, bounds=KEPT, name="kept").host(sanitize=True)
    fits = 0
    for n, t, m, negative in product((0, 1, 3), (1, 3), range(5), (0, 1)):
        h, x = np.arange(n, dtype=np.float32), np.full((t, m), 2, np.float32)
        x[:, :negative] = -1
        try:
            expected = session.run(None, {"h": h, "x": x})
        except (errors.Fail, errors.InvalidArgument):
            result = host.runner.run([n, t, m], [to_bytes(h), to_bytes(x)])
            assert (result.status, result.guards_ok) == (-5, True)
            assert all((output == FILL ^ 0xFF).all() for output in result.outputs)
            continue
        fits += 1
        for found, wanted in zip(host(h=h, x=x).values(), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert fits >= 14


COUNTING = """
agraph (float[n, 3] x, float limit) => (int64 last, float[rows, 3] all)
{
    zero = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    two = Constant <value_int = 2> ()
    shape = Shape (x)
    n = Gather (shape, zero)
    end = Sub (n, one)
    begun = FIRST
    last, all = Loop ("", begun, BEGIN) <body = body
        (int64 i, bool going, int64 k) => (bool more, int64 next, float[3] row)
    {
        taken = Gather (x, k)
        row = Tanh (taken)
        next = CHANGE
        counts = LATER
        peak = ReduceMax <keepdims = 0> (row)
        small = Less (peak, limit)
        more = MORE
    }>
}
"""
ALWAYS = "Identity (counts)"


def counting(first: str, begin: str, change: str, later: str, more: str) -> onnx.ModelProto:
    parts = {"FIRST": first, "BEGIN": begin, "CHANGE": change, "LATER": later, "MORE": more}
    text = COUNTING
    for name, part in parts.items():
        text = text.replace(name, part)
    return parsed(text)


DOWN = ("LessOrEqual (zero, end)", "end", "Sub (k, two)", "GreaterOrEqual (next, zero)", ALWAYS)
CHOSEN = "And (counts, small)"
COUNTERS = {
    "up": ("Less (zero, n)", "zero", "Add (k, one)", "Less (next, n)", ALWAYS),
    "mirrored": ("Greater (n, one)", "one", "Add (two, k)", "Greater (n, next)", ALWAYS),
    "down": DOWN,
    "both": ("Less (zero, n)", "zero", "Add (k, one)", "LessOrEqual (next, end)", CHOSEN),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_ends_a_loop(name: str) -> None:
    """The rows need no bound; no iteration runs where the condition is false at first."""
    model = counting(*COUNTERS[name])
    host = rx.compile(model, bounds={"n": (0, 9)}, name="counting").host()
    for n in (0, 1, 2, 5, 9):
        x = np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)
        check(host, model, x=x, limit=np.array(0.3, np.float32))


def test_the_rows_of_a_counted_loop_are_a_size_of_inputs() -> None:
    results = rx.load(counting(*DOWN), bounds={"n": (1, 9)}).main.results
    assert str(results[1].type.shape[0]) == "(n + 1) // 2"


def test_a_condition_of_sizes_may_be_false_before_the_first_iteration() -> None:
    model = parsed("""
agraph (float[n] x, int64 most) => (float[n] last)
{
    zero = Constant <value_int = 1> ()
    size = Size (x)
    begun = Less (zero, size)
    last = Loop (most, begun, x) <body = body
        (int64 i, bool going, float[n] a) => (bool more, float[n] b)
    {
        b = Tanh (a)
        more = Identity (going)
    }>
}
""")
    host = rx.compile(model, bounds={"n": 4}, name="sizes").host()
    for n in (1, 2, 4):
        check(host, model, x=np.ones(n, np.float32), most=np.array(3))


def test_a_condition_may_be_a_constant_or_a_comparison_of_tensors() -> None:
    """As PyTorch exports `while i < 9 and s > limit`: the branches have different ranks."""
    model = parsed("""
agraph (float[1] x, float[1] limit) => (float[1] last, int64 count)
{
    yes = Constant <value = bool {1}> ()
    no = Constant <value = bool {0}> ()
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    nine = Constant <value = int64 {9}> ()
    half = Constant <value = float {0.5}> ()
    last, count = Loop ("", yes, x, zero) <body = body
        (int64 i, bool going, float[1] a, int64 k) => (bool more, float[1] b, int64 next)
    {
        b = Mul (a, half)
        next = Add (k, one)
        counts = Less (next, nine)
        more = If (counts) <
            then_branch = compare () => (bool[1] greater) { greater = Greater (b, limit) },
            else_branch = end () => (bool other) { other = Identity (no) }
        >
    }>
}
""")
    host = rx.compile(model, name="halves").host()
    for x in (1, 100, 10_000):
        array = np.array([x], np.float32)
        check(host, model, x=array, limit=np.array([0.9], np.float32))


NESTED = parsed("""
agraph (float[n] x, float limit, bool begin) => (float[n] last)
{
    two = Constant <value = int64 {2}> ()
    ten = Constant <value = int64 {10}> ()
    last = Loop (two, , x) <body = body
        (int64 i, bool going, float[n] a) => (bool more, float[n] b)
    {
        inside = Loop (ten, begin, a) <body = body
            (int64 j, bool still, float[n] c) => (bool again, float[n] d)
        {
            d = Add (c, c)
            peak = ReduceMax <keepdims = 0> (d)
            again = Less (peak, limit)
        }>
        b = Sub (inside, x)
        more = Identity (going)
    }>
}
""")


def test_what_a_loop_inside_a_loop_carries_ends_with_it() -> None:
    host = rx.compile(NESTED, name="nested", bounds={"n": (1, 8)}).host()
    for size, limit, begin in ((1, 3.0, True), (8, 100.0, True), (3, -1.0, True), (2, 4.0, False)):
        x = np.linspace(-1, 1, size, dtype=np.float32)
        check(host, NESTED, x=x, limit=np.array(limit, np.float32), begin=np.array(begin))


UNREAD = parsed("""
agraph (float[n] x, float[n, 4] m, float s) => (float last, float[n] rows, float[n] y)
{
    a = Tanh (x)
    axis = Constant <value = int64[1] {1}> ()
    b = ReduceMean <keepdims = 0> (m, axis)
    c = Add (a, b)
    d = ReduceMean <keepdims = 0> (c)
    e = Mul (d, s)
    last, rows = Scan <num_scan_inputs = 1, body = body
        (float t, float row) => (float u, float w)
    {
        u = Add (t, e)
        w = Neg (t)
    }> (s, a)
    y = Add (b, rows)
}
""")


def test_a_value_that_no_iteration_reads_is_no_longer_needed() -> None:
    host = rx.compile(UNREAD, name="unread", bounds={"n": (1, 8)}).host()
    rng = np.random.default_rng(4)
    for size in (1, 5, 8):
        x, m = (rng.normal(size=shape).astype(np.float32) for shape in ((size,), (size, 4)))
        check(host, UNREAD, x=x, m=m, s=np.array(0.5, np.float32))
