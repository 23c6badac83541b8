# SPDX-License-Identifier: Apache-2.0
"""Models whose states grow: one attention layer with a cache, and programs in text form."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Arrays = dict[str, np.ndarray[Any, Any]]
WIDTH = 64
STATE = {"past_k": "present_k", "past_v": "present_v"}


def tokens(rng: np.random.Generator, rows: int) -> np.ndarray[Any, Any]:
    return rng.normal(size=(rows, WIDTH)).astype(np.float32)


@cache
def attention(rows: int | str, heads: int = 1) -> onnx.ModelProto:
    """`rows` new tokens attend to all tokens: keys and values are appended to a cache of the
    usual form, `[1, heads, m, width]`."""
    rng = np.random.default_rng(0)
    depth = WIDTH // heads
    constants = {
        name: (rng.normal(size=(WIDTH, WIDTH)) / 8).astype(np.float32)
        for name in ("wq", "wk", "wv", "wo")
    }
    constants["split"] = np.array([1, -1, heads, depth])
    constants["merge"] = np.array([-1, WIDTH])
    constants["scale"] = np.array(depth**-0.5, np.float32)
    node = helper.make_node
    nodes = [
        made
        for c in "qkv"
        for made in (
            node("MatMul", ["x", f"w{c}"], [f"p{c}"]),
            node("Reshape", [f"p{c}", "split"], [f"r{c}"]),
            node("Transpose", [f"r{c}"], [f"t{c}"], perm=[0, 2, 1, 3]),
        )
    ]
    nodes += [
        node("Concat", ["past_k", "tk"], ["present_k"], axis=2),
        node("Concat", ["past_v", "tv"], ["present_v"], axis=2),
        node("Transpose", ["present_k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["tq", "kt"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "present_v"], ["found"]),
        node("Transpose", ["found"], ["rows"], perm=[0, 2, 1, 3]),
        node("Reshape", ["rows", "merge"], ["merged"]),
        node("MatMul", ["merged", "wo"], ["y"]),
    ]

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    inputs = [value("x", rows, WIDTH)]
    inputs += [value(name, 1, heads, "m", depth) for name in STATE]
    outputs = [value("y", rows, WIDTH)]
    outputs += [value(name, 1, heads, "total", depth) for name in STATE.values()]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, initializers)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


class ByHand:
    """The model in ONNX Runtime, with past and present handled by the caller."""

    def __init__(self, heads: int = 1) -> None:
        import onnxruntime

        model = attention("s", heads)
        self._session = onnxruntime.InferenceSession(model.SerializeToString())
        self.past: Arrays = {
            name: np.zeros((1, heads, 0, WIDTH // heads), np.float32) for name in STATE
        }

    def __call__(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        names = ["y", *STATE.values()]
        y, *present = self._session.run(names, {"x": x, **self.past})
        self.past = dict(zip(STATE, present, strict=True))
        return np.asarray(y)

    def truncate(self, length: int) -> None:
        self.past = {name: array[:, :, :length] for name, array in self.past.items()}

    @property
    def length(self) -> int:
        return int(self.past["past_k"].shape[2])


HEAD = "symbol m in 0..24\nsymbol s in 1..8\nstate %past = %present\n"
APPENDED = "%present: f32[2, m + s, 4] = concat(%past, %x) {axis=1}"
PLAIN = f"{HEAD}func @main(%past: f32[2, m, 4], %x: f32[2, s, 4]) {{\n  "
SIDES = "{then=@a, else=@b, defines=[], then_sizes=[], else_sizes=[]}"
PROGRAMS = {
    "rows on the first axis": f"""{HEAD}func @main(%past: f32[m, 8], %x: f32[s, 8]) {{
  %present: f32[m + s, 8] = concat(%past, %x) {{axis=0}}
  %y: f32[m + s, 8] = mul(%present, %present)
  return %y, %present
}}""",
    "rows on a middle axis": f"""{PLAIN}{APPENDED}
  %t: f32[2, 4, m + s] = transpose(%present) {{perm=[0, 2, 1]}}
  %y: f32[2, m + s, m + s] = matmul(%present, %t)
  return %y, %present
}}""",
    "rows of bytes on the last axis": f"""{HEAD}func @main(%past: i8[3, m], %x: i8[3, s]) {{
  %present: i8[3, m + s] = concat(%past, %x) {{axis=1}}
  %y: f32[3, m + s] = cast(%present) {{to=f32}}
  return %y, %present
}}""",
    "views that keep the stride": f"""{PLAIN[:-2]}
  %p: f32[2, m, 2, 2] = reshape(%past) {{shape=[2, m, 2, 2]}}
  %z: f32[2, s, 2, 2] = reshape(%x) {{shape=[2, s, 2, 2]}}
  %c: f32[2, m + s, 2, 2] = concat(%p, %z) {{axis=1}}
  %present: f32[2, m + s, 4] = reshape(%c) {{shape=[2, m + s, 4]}}
  %v: f32[2, 4*m + 4*s] = reshape(%present) {{shape=[2, 4*m + 4*s]}}
  %y: f32[2, 4*m + 4*s] = mul(%v, %v)
  return %y, %present
}}""",
    "views that need a copy": f"""{PLAIN}{APPENDED}
  %v: f32[2*m + 2*s, 4] = reshape(%present) {{shape=[2*m + 2*s, 4]}}
  %w: f32[2*m, 4] = reshape(%past) {{shape=[2*m, 4]}}
  %y: f32[2*m + 2*s, 4] = mul(%v, %v)
  %z: f32[2*m, 4] = add(%w, %w)
  return %y, %z, %present
}}""",
    "a value of another stride": f"""{PLAIN}%q: f32[2, m + s, 4] = concat(%past, %x) {{axis=1}}
  %f: f32[8*m + 8*s] = reshape(%q) {{shape=[8*m + 8*s]}}
  %g: f32[8*m + 8*s] = mul(%f, %f)
  %present: f32[2, m + s, 4] = reshape(%g) {{shape=[2, m + s, 4]}}
  %y: f32[2, m + s, 4] = exp(%present)
  return %y, %present
}}""",
    "old rows that are read last": f"""{PLAIN}{APPENDED}
  %e: f32[2, m + s, 4] = exp(%present)
  %f: f32[2, m, 4] = slice(%e) {{starts=[s], lengths=[m], axes=[1], steps=[1]}}
  %y: f32[2, m, 4] = mul(%past, %f)
  return %y, %present
}}""",
    "rows that are returned": f"""{PLAIN}{APPENDED}
  %y: f32[2, m, 4] = copy(%past)
  %z: f32[2, m + s, 4] = copy(%present)
  return %y, %z, %present
}}""",
    "rows that change": f"""{PLAIN}%d: f32[2, m, 4] = tanh(%past)
  %present: f32[2, m + s, 4] = concat(%d, %x) {{axis=1}}
  %y: f32[2, m, 4] = mul(%past, %past)
  return %y, %present
}}""",
    "rows in front": f"""{PLAIN}%present: f32[2, m + s, 4] = concat(%x, %past) {{axis=1}}
  %y: f32[2, m, 4] = mul(%past, %past)
  return %y, %present
}}""",
    "a branch that reads them": f"""{PLAIN.replace("(%past", "(%c: bool[], %past")}{APPENDED}
  %y: f32[2, m + s, 4] = if(%c, %present) {SIDES}
  return %y, %present
}}
func @a(%present: f32[2, m + s, 4]) {{
  %e: f32[2, m + s, 4] = exp(%present)
  return %e
}}
func @b(%present: f32[2, m + s, 4]) {{
  %f: f32[2, m + s, 4] = mul(%present, %present)
  return %f
}}""",
    "two lengths": """symbol m in 0..16
symbol k in 0..30
symbol s in 1..8
state %past = %present
state %old = %new
func @main(%past: f32[m, 8], %old: f32[2, k], %x: f32[s, 8]) {
  %present: f32[m + s, 8] = concat(%past, %x) {axis=0}
  %o: f32[2, 1] = fill() {shape=[2, 1], value=1.5, dtype=f32}
  %new: f32[2, k + 1] = concat(%old, %o) {axis=1}
  %y: f32[m + s, 8] = mul(%present, %present)
  %z: f32[2, k + 1] = mul(%new, %new)
  return %y, %z, %present, %new
}""",
}
STAGED = {"rows that change", "rows in front"}
"""Programs that do not only append, so that the new state is copied at the end."""
