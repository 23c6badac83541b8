# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM of the domain com.microsoft, by the operators that it stands for.

What goes into a product is quantized by its own range: the sequence at once, the hidden state of
all samples in each iteration, as ONNX Runtime does on one thread.
"""

from __future__ import annotations

from onnx import GraphProto, parser

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.onnx.contrib import DOMAIN
from relax_aot.frontends.refusals import Refused

NAME = f"{DOMAIN}.DynamicQuantizeLSTM"
LIMITS = {NAME: "activations Sigmoid, Tanh, Tanh; no clip; no coupled gates (input_forget)"}

INPUTS = (
    "X", "W", "R", "B", "lens", "h", "c", "P", "W_scale", "W_zero", "R_scale", "R_zero",
)  # fmt: skip
USUAL = [b"sigmoid", b"tanh", b"tanh"]
WAYS = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
"""For each direction whether it runs from the end."""


def _dynamic_quantize_lstm(node: Node) -> Results:
    given = {name: node.optional(index) for index, name in enumerate(INPUTS)}
    found = {name: value for name, value in given.items() if value is not None}
    needed = ("X", "W", "R", "W_scale", "W_zero", "R_scale", "R_zero")
    missing = [name for name in needed if name not in found]
    if missing:
        raise ModelError(f"its inputs {', '.join(missing)} are missing")
    ways = WAYS[node.attr("direction", "forward")]
    names = [bytes(name).lower() for name in node.attr("activations") or USUAL * len(ways)]
    if names != USUAL * len(ways):
        raise Refused(f"the activations {names} are not supported; only Sigmoid, Tanh, Tanh")
    if node.attr("clip", 0.0) or node.attr("input_forget", 0):
        raise Refused("clip and coupled gates (input_forget) are not supported")
    graph = _definition(set(found), int(node.required("hidden_size")), ways)
    return node.import_body(graph, node.builder, node.scope, found)


def _definition(given: set[str], hidden: int, ways: tuple[int, ...]) -> GraphProto:
    """The layer as a graph. Its operators mean the same in every operator set from 9 on."""
    lines = [
        "shape = Shape (X)",
        "zero = Constant <value = int64[1] {0}> ()",
        "one = Constant <value = int64[1] {1}> ()",
        f"width = Constant <value = int64[1] {{{hidden}}}> ()",
        "halves = Constant <value = int64[2] {2, -1}> ()",
        "length = Gather <axis = 0> (shape, zero)",
        "batch = Gather <axis = 0> (shape, one)",
        "rows = Concat <axis = 0> (length, one, batch, width)",
        "flat = Concat <axis = 0> (one, batch, width)",
        "part = Concat <axis = 0> (batch, width)",
        "none = ConstantOfShape <value = float[1] {0.0}> (part)",
    ]
    x = "X"
    if "lens" in given:
        x = "masked"
        lines += [
            "start = Constant <value = int64 {0}> ()",
            "step = Constant <value = int64 {1}> ()",
            "ends = Cast <to = 7> (lens)",
            "stop = Squeeze (length)",
            "steps = Range (start, stop, step)",
            "upright = Constant <value = int64[3] {-1, 1, 1}> ()",
            "turn = Reshape (steps, upright)",
            "each = Constant <value = int64[2] {-1, 1}> ()",
            "end = Reshape (ends, each)",
            "keep = Less (turn, end)",
            "last = ReduceMax <keepdims = 0> (ends)",
            "seen = Less (turn, last)",
            "silence = Constant <value = float {0.0}> ()",
            "masked = Where (seen, X, silence)",
        ]
    for way, backwards in enumerate(ways):
        lines += _one_way(given, way, backwards, x)
    for result in ("Y", "Y_h", "Y_c"):
        axis = 1 if result == "Y" else 0
        parts = ", ".join(f"{result}{way}" for way in range(len(ways)))
        lines.append(f"{result} = Concat <axis = {axis}> ({parts})")
    inputs = ", ".join(f"float {name}" for name in INPUTS if name in given)
    body = "\n".join(lines)
    text = f"lstm ({inputs}) => (float Y, float Y_h, float Y_c) {{\n{body}\n}}"
    return parser.parse_graph(text)


def _one_way(given: set[str], way: int, backwards: int, x: str) -> list[str]:
    """One direction: `way` is its place in the weights."""
    lines = [f"d{way} = Constant <value = int64 {{{way}}}> ()"]
    for name in INPUTS[1:]:
        if name in given and name != "lens":
            lines.append(f"{name}{way} = Gather <axis = 0> ({name}, d{way})")
    weights = f"W{way}, W_scale{way}, W_zero{way}"
    lines.append(f"xw{way} = {DOMAIN}.DynamicQuantizeMatMul ({x}, {weights})")
    product = f"xw{way}"
    if "B" in given:
        product = f"biased{way}"
        lines += [
            f"b{way} = Reshape (B{way}, halves)",
            f"b_first{way} = Gather <axis = 0> (b{way}, zero)",
            f"b_second{way} = Gather <axis = 0> (b{way}, one)",
            f"bias{way} = Add (b_first{way}, b_second{way})",
            f"biased{way} = Add (xw{way}, bias{way})",
        ]
    h, c = (f"{name}{way}" if name in given else "none" for name in ("h", "c"))
    scanned, count = f"{product}, keep" if "lens" in given else product, 1 + ("lens" in given)
    directions = ", ".join([str(backwards)] * count)
    scan = f"num_scan_inputs = {count}, scan_input_directions = [{directions}]"
    scan += f", scan_output_directions = [{backwards}], body = {_turn(given, way)}"
    lines += [
        f"last_h{way}, last_c{way}, y{way} = Scan <{scan}> ({h}, {c}, {scanned})",
        f"Y{way} = Reshape (y{way}, rows)",
        f"Y_h{way} = Reshape (last_h{way}, flat)",
        f"Y_c{way} = Reshape (last_c{way}, flat)",
    ]
    return lines


def _turn(given: set[str], way: int) -> str:
    """One step of the recurrence; gates lie in the order input, output, forget, cell."""
    gates = "{0, 4, -1}"
    lines = [
        f"hr = {DOMAIN}.DynamicQuantizeMatMul (h, R{way}, R_scale{way}, R_zero{way})",
        "sums = Add (xw, hr)",
        f"apart = Constant <value = int64[3] {gates}> ()",
        "gates = Reshape (sums, apart)",
    ]
    peepholes = f"P{way}" if "P" in given else ""
    for place, name in enumerate("iofg"):
        lines += [
            f"at_{name} = Constant <value = int64 {{{place}}}> ()",
            f"{name}0 = Gather <axis = 1> (gates, at_{name})",
        ]
    if peepholes:
        lines += [
            "thirds = Constant <value = int64[2] {3, -1}> ()",
            f"peep = Reshape ({peepholes}, thirds)",
        ]

    def gate(name: str, cell: str) -> None:
        before = f"{name}0"
        if peepholes:
            before = f"{name}1"
            lines.extend(
                [
                    f"peep_{name} = Gather <axis = 0> (peep, at_{name})",
                    f"seen_{name} = Mul (peep_{name}, {cell})",
                    f"{name}1 = Add ({name}0, seen_{name})",
                ]
            )
        lines.append(f"{name} = Sigmoid ({before})")

    gate("i", "c")
    gate("f", "c")
    lines += ["g = Tanh (g0)", "kept = Mul (f, c)", "new = Mul (i, g)", "next_c = Add (kept, new)"]
    gate("o", "next_c")
    lines += ["shown = Tanh (next_c)", "next_h = Mul (o, shown)"]
    results = "next_h, next_c, next_h"
    inputs = "float h, float c, float xw"
    if "lens" in given:
        inputs += ", bool going"
        lines += [
            "held_h = Where (going, next_h, h)",
            "held_c = Where (going, next_c, c)",
            "nothing = Constant <value = float {0.0}> ()",
            "row = Where (going, next_h, nothing)",
        ]
        results = "held_h, held_c, row"
    else:
        lines.append("row = Identity (next_h)")
        results = "next_h, next_c, row"
    outputs = ", ".join(f"float {name}" for name in results.split(", "))
    body = " ".join(lines)
    return f"turn ({inputs}) => ({outputs}) {{ {body} }}"


HANDLERS: dict[str, Handler] = {NAME: _dynamic_quantize_lstm}
