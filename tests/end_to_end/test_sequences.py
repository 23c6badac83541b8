# SPDX-License-Identifier: Apache-2.0
"""Sequences of tensors, as lists of the compiler or rows of a tensor: ONNX Runtime's values."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import relax_aot as rx
from relax_aot.errors import RelaxAotError

HEADER = '<ir_version: 10, opset_import: ["" : 21]> g'
SIGNATURE = "(float[N,7] x) => (float[?,?] y)"
PLACES = "int64 first = {0}, int64 last = {-1}, int64 two = {2}"
MODELS = {
    "chunks of two, the last of one": f"""{SIGNATURE} <{PLACES}>
        {{ s = SplitToSequence<axis=1>(x, two) a = SequenceAt(s, first) b = SequenceAt(s, last)
          y = Mul(a, b) }}""",
    "parts of given sizes, joined in another order": f"""{SIGNATURE}
        <{PLACES}, int64[3] parts = {{3, 0, 4}}>
        {{ s = SplitToSequence<axis=1>(x, parts) a = SequenceAt(s, last) t = SequenceErase(s)
          u = SequenceInsert(t, a, first) y = ConcatFromSequence<axis=-1>(u) }}""",
    "single columns, stacked again": """(float[N,7] x) => (float[?,?,?] y)
        { s = SplitToSequence<axis=1, keepdims=0>(x) n = SequenceLength(s)
          f = CastLike(n, x) t = ConcatFromSequence<axis=0, new_axis=1>(s) y = Add(t, f) }""",
    "built up from nothing": f"""{SIGNATURE} <{PLACES}>
        {{ e = SequenceEmpty() a = Neg(x) s = SequenceInsert(e, a) t = SequenceInsert(s, x, last)
          u = SequenceConstruct(x, a) b = SequenceAt(u, last)
          v = SequenceInsert(t, b) y = ConcatFromSequence<axis=0>(v) }}""",
}

LOOP = "(float[N,7] x) => (float[?,?] y, float[7] z)"
BEGIN = """n_shape = Shape(x) zero = Constant<value = int64 {0}>()
    n = Gather(n_shape, zero) true = Constant<value = bool {1}>() a = Gather(x, zero)"""
BODY = "seq(float[7]) s, float[7] c) => (bool on, seq(float[7]) t, float[7] d)"
LOOPS = {
    "appended, stacked": f"""{LOOP}
        {{ {BEGIN} e = SequenceEmpty()
          s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
            {{ r = Gather(x, i) d = Sub(r, c) t = SequenceInsert(s, d) on = Identity(true) }}>
          y = ConcatFromSequence<axis=1, new_axis=1>(s) }}""",
    "what an If chooses": f"""{LOOP}
        {{ {BEGIN} e = SequenceEmpty()
          s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
            {{ r = Gather(x, i) d = Sub(r, c) k = ReduceSum<keepdims=0>(d) none = CastLike(zero, k)
              more = Less(none, k)
              t = If(more) <
                then_branch = g1 () => (seq(float[7]) t1) {{ t1 = SequenceInsert(s, d) }},
                else_branch = g2 () => (seq(float[7]) t2)
                  {{ m = Neg(r) t2 = SequenceInsert(s, m) }}>
              on = Identity(true) }}>
          y = ConcatFromSequence<axis=1, new_axis=1>(s) }}""",
    "two in each iteration behind a first, joined": f"""(float[N,7] x) => (float[?] y, float[7] z)
        {{ {BEGIN} e = SequenceConstruct(a)
          s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
            {{ r = Gather(x, i) d = Sub(r, c) u = SequenceInsert(s, d) t = SequenceInsert(u, r)
              on = Identity(go) }}>
          y = ConcatFromSequence<axis=0>(s) }}""",
    "items of a sequence, until data end it": f"""{LOOP}
        {{ {BEGIN} e = SequenceEmpty() p = SplitToSequence<axis=0, keepdims=0>(x)
          m = SequenceLength(p) limit = Constant<value = float {{2.0}}>()
          s, w = Loop(m, true, e, a) <body = b (int64 i, bool go, {BODY}
            {{ r = SequenceAt(p, i) d = Sub(r, c) k = ReduceSum<keepdims=0>(d) j = Abs(k)
              on = Less(j, limit) t = SequenceInsert(s, d) }}>
          back = Constant<value = int64 {{-1}}>() l = SequenceAt(s, back) g = SequenceLength(s)
          f = Cast<to=1>(g) z = Mul(l, f) q = SequenceInsert(s, z)
          y = ConcatFromSequence<axis=0, new_axis=1>(q) }}""",
    "a sequence that an iteration leaves alone": f"""{LOOP}
        {{ {BEGIN} two = Constant<value = int64 {{2}}>() e = SplitToSequence<axis=1>(x, two)
          s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
            {{ r = Gather(x, i) d = Sub(r, c) t = Identity(s) on = Identity(go) }}>
          v = SequenceErase(s, two) y = ConcatFromSequence<axis=1>(v) }}""",
    "read where it is appended to": f"""{LOOP}
        {{ {BEGIN} f = Exp(a) e = SequenceConstruct(a, f)
          s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
            {{ back = Constant <value = int64 {{-1}}>() l = SequenceAt(s, back) p = SequenceAt(s, i)
              q = Mul(l, p) r = Gather(x, i) d = Sub(q, r) t = SequenceInsert(s, d)
              on = Identity(go) }}>
          y = ConcatFromSequence<axis=0, new_axis=1>(s) }}""",
    "read and appended to, until data end it": f"""{LOOP}
        {{ {BEGIN} e = SplitToSequence<axis=0, keepdims=0>(x)
          s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
            {{ r = SequenceAt(s, i) d = Sub(r, c) k = ReduceSum<keepdims=0>(d)
              limit = Constant<value = float {{2.0}}>() on = Less(k, limit)
              t = SequenceInsert(s, d) }}>
          y = ConcatFromSequence<axis=0, new_axis=1>(s) }}""",
    "the oldest of three is replaced": f"""{LOOP}
        {{ {BEGIN} f = Exp(a) g = Neg(a) e = SequenceConstruct(f, g, a)
          s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
            {{ m = ConcatFromSequence<axis=0, new_axis=1>(s) k = ReduceMax<keepdims=0>(m)
              r = Gather(x, i) d = Sub(r, k) u = SequenceErase(s, zero) t = SequenceInsert(u, d)
              on = Identity(go) }}>
          y = ConcatFromSequence<axis=0, new_axis=1>(s) }}""",
}
MODELS |= LOOPS | {
    "rows of a dynamic axis, in slices that keep it": """(float[N,7] x, int64 k) => (float[?,?] y)
        { one = Constant<value = int64 {1}>() s = SplitToSequence(x, one) a = SequenceAt(s, k)
          t = SplitToSequence<axis=1>(x, one) b = SequenceAt(t, k)
          u = ConcatFromSequence<axis=1>(t) v = ConcatFromSequence<axis=0>(s)
          c = Mul(a, u) d = Add(c, v) y = Add(d, b) }""",
    "rows and columns that PyTorch unbinds": """(float[N,7] x, int64 k) => (float[?] y)
        { one = Constant<value = int64 {1}>() s = SplitToSequence<keepdims=0>(x, one)
          a = SequenceAt(s, k) t = SplitToSequence<axis=1, keepdims=0>(x, one)
          b = SequenceAt(t, k) c = ReduceMax<keepdims=0>(b) y = Add(a, c) }""",
    "a function of each item": """(float[N,7] x) => (float[?,?] y)
        { s = SplitToSequence<axis=0, keepdims=0>(x)
          t = SequenceMap<body = b (float[7] r) => (float[7] q) { q = Softmax(r) }>(s)
          y = ConcatFromSequence<axis=0, new_axis=1>(t) }""",
    "which of equal tensors data say": """(float[N,7] x, int64 k) => (float[?,?] y)
        { a = Neg(x) b = Exp(x) s = SequenceConstruct(x, a, b) y = SequenceAt(s, k) }""",
}


@pytest.mark.parametrize("text", MODELS.values(), ids=MODELS.keys())
def test_a_list_that_the_compiler_knows_needs_no_sequence_at_run_time(text: str) -> None:
    model = parser.parse_model(f"{HEADER} {text}")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    host = rx.compile(model, bounds={"N": 5}, name="m").host()
    for n in (1, 3, 5):
        arrays = {"x": np.linspace(-1, 1, n * 7, dtype=np.float32).reshape(n, 7)}
        if len(session.get_inputs()) > 1:
            arrays["k"] = np.array(-1)
        found = host(**arrays)
        for output, theirs in zip(session.get_outputs(), session.run(None, arrays), strict=True):
            np.testing.assert_allclose(found[output.name], theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            """(float[N,7] x, int64 k) => (float[?,?] y) <int64[2] parts = {3, 4}>
            { s = SplitToSequence<axis=1>(x, parts) y = SequenceAt(s, k) }""",
            r"the tensors of a sequence",
        ),
        (
            """(float[N,7] x) => (float[?,?] y) <int64 k = {0}, int64 two = {2}>
            { s = SplitToSequence<axis=0>(x, two) y = SequenceAt(s, k) }""",
            r"s \(SplitToSequence\): N determines the number of parts",
        ),
        (
            f"""{LOOP} {{ {BEGIN} e = SequenceEmpty()
            s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
              {{ d = SequenceAt(s, i) t = SequenceInsert(s, d) on = Identity(go) }}>
            y = ConcatFromSequence<axis=0>(s) }}""",
            "an iteration reads the sequence 's', which begins empty",
        ),
        (
            f"""{LOOP} {{ {BEGIN} e = SequenceEmpty()
            s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
              {{ d = Gather(x, i) k = ReduceSum<keepdims=0>(d) more = Cast<to=9>(k)
                t = If(more) <
                  then_branch = g1 () => (seq(float[7]) t1) {{ t1 = SequenceInsert(s, d) }},
                  else_branch = g2 () => (seq(float[7]) t2) {{ t2 = Identity(s) }}>
                on = Identity(go) }}>
            y = ConcatFromSequence<axis=0>(s) }}""",
            "append in both branches",
        ),
        (
            f"""{LOOP} {{ {BEGIN} e = SequenceConstruct(a)
            s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
              {{ d = Neg(c) t = SequenceInsert(s, d, zero) on = Identity(go) }}>
            y = ConcatFromSequence<axis=0>(s) }}""",
            "an iteration inserts into the sequence 's' at an index",
        ),
        (
            f"""{LOOP} {{ {BEGIN} e = SequenceConstruct(a)
            s, z = Loop(n, true, e, a) <body = b (int64 i, bool go, {BODY}
              {{ d = Neg(c) t = SequenceErase(s) on = Identity(go) }}>
            y = ConcatFromSequence<axis=0>(s) }}""",
            "nothing to join",
        ),
        (
            """(float[N,7] x) => (float[?,?] y) { s = SequenceConstruct(x, x) y = Neg(s) }""",
            r"y \(Neg\): its input 's' is a sequence",
        ),
    ],
)
def test_what_only_run_time_knows_of_a_sequence_is_refused(text: str, why: str) -> None:
    with pytest.raises(RelaxAotError, match=why):
        rx.compile(parser.parse_model(f"{HEADER} {text}"), bounds={"N": 5}, name="m")
