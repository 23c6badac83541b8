# SPDX-License-Identifier: Apache-2.0
"""Results of data-dependent sizes: as many elements as ONNX Runtime gives, and `result` says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.bounds import WrongBound
from relax_aot.ops._op import Array
from relax_aot.verify.compare import Tolerance, compare
from relax_aot.verify.host import StatusError, host_model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Shape = tuple[int | str, ...]


def model(
    nodes: list[Any],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, tuple[int, int]],
) -> Any:
    """`outputs` are element types and ranks: their sizes are unknown."""
    graph = helper.make_graph(
        nodes,
        "sizes",
        [helper.make_tensor_value_info(n, t, shape) for n, (t, shape) in inputs.items()],
        [helper.make_tensor_value_info(n, t, [None] * rank) for n, (t, rank) in outputs.items()],
    )
    opset = helper.make_opsetid("", 20)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def check(host: Any, made: Any, **arrays: Array) -> dict[str, Array]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(made.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(None, arrays), strict=True))
    found: dict[str, Array] = host(**arrays)
    for name, theirs in expected.items():
        difference = compare(name, found[name], np.asarray(theirs), Tolerance(1e-5, 1e-6))
        assert difference.ok, (difference, found[name], theirs)
    return found


def chosen_elements() -> Any:
    """What is not zero, and what follows from it: a matrix of as many rows."""
    return model(
        [
            helper.make_node("NonZero", ["x"], ["places"]),
            helper.make_node("Transpose", ["places"], ["rows"]),
            helper.make_node("GatherND", ["x", "rows"], ["values"]),
            helper.make_node("Compress", ["x", "chosen"], ["kept"], axis=1),
            helper.make_node("Unique", ["values"], ["once", "", "inverse", "times"]),
            helper.make_node("Cast", ["times"], ["counted"], to=FLOAT),
            helper.make_node("Mul", ["once", "counted"], ["sums"]),
            helper.make_node("ReduceSum", ["kept"], ["total"], keepdims=0),
        ],
        {"x": (FLOAT, ("n", "m")), "chosen": (BOOL, ("m",))},
        {"places": (INT64, 2), "kept": (FLOAT, 2), "sums": (FLOAT, 1), "inverse": (INT64, 1),
         "total": (FLOAT, 0)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def found() -> tuple[Any, Any]:
    made = chosen_elements()
    return made, rx.compile(made, bounds={"n": 7, "m": 9}, name="found").host(sanitize=True)


@pytest.mark.slow
@pytest.mark.parametrize("n, m", [(1, 1), (7, 9), (4, 5)])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_elements_that_data_choose(found: tuple[Any, Any], n: int, m: int, share: float) -> None:
    made, host = found
    rng = np.random.default_rng(n * m)
    x = (rng.integers(1, 4, (n, m)) * (rng.uniform(size=(n, m)) < share)).astype(np.float32)
    chosen = rng.uniform(size=m) < share
    results = check(host, made, x=x, chosen=chosen)
    assert results["places"].shape == (2, np.count_nonzero(x))


@pytest.fixture(scope="module")
def cut() -> tuple[Any, Any]:
    """Operands of shapes that are inputs."""
    names = ["starts", "ends", "axes", "steps"]
    made = model(
        [
            helper.make_node("Slice", ["x", *names], ["part"]),
            helper.make_node("Pad", ["part", "pads"], ["padded"], mode="constant"),
            helper.make_node("Softmax", ["padded"], ["soft"]),
            helper.make_node("ReduceMax", ["x", "axis"], ["peak"], keepdims=0),
            helper.make_node("TopK", ["x", "k"], ["best", "where"], axis=1),
        ],
        {"x": (FLOAT, ("n", "m")), "starts": (INT64, (2,)), "ends": (INT64, (2,)),
         "axes": (INT64, (2,)), "steps": (INT64, (2,)), "pads": (INT64, (4,)),
         "axis": (INT64, (1,)), "k": (INT64, (1,))},
        {"part": (FLOAT, 2), "soft": (FLOAT, 2), "peak": (FLOAT, 1), "best": (FLOAT, 2),
         "where": (INT64, 2)},
    )  # fmt: skip
    bounds: dict[str, int | tuple[int, int]] = {
        "n": 8,
        "m": 8,
        "padded_0": (0, 9),
        "padded_1": (0, 9),
    }
    return made, rx.compile(made, bounds=bounds, name="cut").host(sanitize=True)


CUTS = [
    ([0, 0], [99, 99], [0, 1], [1, 1]),
    ([-3, 1], [99, -1], [1, 0], [1, 2]),
    ([99, -1], [-99, -99], [0, 1], [-2, -3]),
    ([3, 0], [3, 1], [0, 1], [1, 1]),
]


def cut_inputs(n: int, m: int, case: tuple[list[int], ...], **more: Any) -> dict[str, Array]:
    rng = np.random.default_rng(n + m)
    lists: dict[str, Any] = dict(zip(("starts", "ends", "axes", "steps"), case, strict=True))
    lists |= {"pads": [1, 0, 0, 1], "axis": [-1], "k": [min(m, 2)], **more}
    arrays = {name: np.array(value, np.int64) for name, value in lists.items()}
    return {"x": rng.normal(size=(n, m)).astype(np.float32), **arrays}


@pytest.mark.slow
@pytest.mark.parametrize("n, m", [(1, 1), (8, 8), (5, 6)])
@pytest.mark.parametrize("case", CUTS)
def test_shapes_that_are_inputs(
    cut: tuple[Any, Any], n: int, m: int, case: tuple[list[int], ...]
) -> None:
    made, host = cut
    check(host, made, **cut_inputs(n, m, case))


@pytest.mark.parametrize("status, more", [
    ("RAOT_ERR_CAPACITY", {"pads": [9, 9, 9, 9]}),
    ("RAOT_ERR_SIZE", {"pads": [-9, 0, 0, 0]}),
    ("RAOT_ERR_INDEX", {"axis": [2]}),
    ("RAOT_ERR_INDEX", {"steps": [0, 1]}),
    ("RAOT_ERR_CAPACITY", {"k": [7]}),
    ("RAOT_ERR_SIZE", {"k": [-1]}),
])  # fmt: skip
def test_what_does_not_fit_is_a_status(
    cut: tuple[Any, Any], status: str, more: dict[str, Any]
) -> None:
    _, host = cut
    with pytest.raises(StatusError, match=status):
        host(**cut_inputs(5, 6, CUTS[0], **more))


def test_a_declared_size_is_a_bound_unless_the_user_gives_one() -> None:
    made = model(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        {"x": (FLOAT, (1,)), "shape": (INT64, (1,))},
        {"y": (FLOAT, 1)},
    )
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 6
    x = np.ones(1, np.float32)
    declared = rx.compile(made, name="declared").host()
    for size in (1, 4, 6):
        check(declared, made, x=x, shape=np.array([size]))
    with pytest.raises(StatusError, match="RAOT_ERR_CAPACITY"):
        declared(x=x, shape=np.array([7]))
    given = rx.compile(made, bounds={"y_0": 9}, name="given").host()
    assert given(x=x, shape=np.array([9]))["y"].shape == (9,)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(1, 1), (1, 5), (5, 5), (5, 1)])
def test_an_expanded_size_may_turn_out_to_be_one(n: int, size: int) -> None:
    made = model(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        {"x": (FLOAT, ("n", 2)), "shape": (INT64, (2,))},
        {"y": (FLOAT, 2)},
    )
    host = rx.compile(made, bounds={"n": 5, "y_0": 5}, name="stretched").host(sanitize=True)
    x = np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)
    check(host, made, x=x, shape=np.array([size, 1]))
    if n > 1:
        with pytest.raises(StatusError):
            host(x=x, shape=np.array([n - 1, 2]))


def test_a_size_without_a_bound_is_refused_by_name() -> None:
    made = model(
        [helper.make_node("Tile", ["x", "repeats"], ["y"])],
        {"x": (FLOAT, (3,)), "repeats": (INT64, (1,))},
        {"y": (FLOAT, 1)},
    )
    with pytest.raises(RelaxAotError, match="--bound y_0"):
        rx.load(made)
    with pytest.raises(WrongBound, match="y_1"):
        rx.load(made, bounds={"y_0": 6, "y_1": 6})
    module = rx.load(made, bounds={"y_0": 6})
    assert [(s.name, s.high, s.inner) for s in module.symbols] == [("y_0", 6, True)]


@pytest.mark.parametrize("most", [0, 2, 100])
def test_boxes_that_do_not_overlap(most: int) -> None:
    wanted = helper.make_tensor("most", INT64, [1], [most])
    limits = [helper.make_tensor(n, FLOAT, [1], [v]) for n, v in (("over", 0.4), ("least", 0.3))]
    made = model(
        [
            helper.make_node(
                "NonMaxSuppression", ["boxes", "scores", "most", "over", "least"], ["picked"]
            )
        ],
        {"boxes": (FLOAT, (2, "n", 4)), "scores": (FLOAT, (2, 3, "n"))},
        {"picked": (INT64, 2)},
    )
    made.graph.initializer.extend([wanted, *limits])
    host = rx.compile(made, bounds={"n": 20}, name=f"boxes{most}").host()
    for n in (1, 20, 13):
        rng = np.random.default_rng(n)
        corner = rng.uniform(0, 3, (2, n, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(0.2, 2, (2, n, 2))], axis=2)
        scores = rng.uniform(size=(2, 3, n)).astype(np.float32)
        check(host, made, boxes=boxes.astype(np.float32), scores=scores)


@pytest.mark.slow
def test_axes_that_are_inputs_give_a_rank_that_is_known() -> None:
    made = model(
        [
            helper.make_node("Squeeze", ["x", "gone"], ["narrow"]),
            helper.make_node("Unsqueeze", ["narrow", "added"], ["wide"]),
        ],
        {"x": (FLOAT, ("n", 1, "m")), "gone": (INT64, (1,)), "added": (INT64, (2,))},
        {"narrow": (FLOAT, 2), "wide": (FLOAT, 4)},
    )
    host = rx.compile(made, bounds={"n": 5, "m": 4}, name="axes").host(sanitize=True)
    for (n, m), gone, added in (
        ((5, 4), 1, (0, 3)), ((3, 2), -2, (-1, 1)), ((1, 4), 0, (2, 1)), ((2, 1), 2, (-4, -3)),
    ):  # fmt: skip
        x = np.arange(n * m, dtype=np.float32).reshape(n, 1, m)
        check(host, made, x=x, gone=np.array([gone]), added=np.array(added))
    with pytest.raises(StatusError, match="RAOT_ERR_MISMATCH"):
        host(x=np.ones((5, 1, 4), np.float32), gone=np.array([0]), added=np.array([0, 1]))


def test_a_project_says_what_else_must_hold() -> None:
    """A caller who reads the header alone knows each reason for RAOT_ERR_MISMATCH."""
    made = model([helper.make_node("MatMul", ["x", "y"], ["z"])],
                 {"x": (FLOAT, ("n", "m")), "y": (FLOAT, ("k", 3))}, {"z": (FLOAT, 2)})  # fmt: skip
    sizes = {"n": 8, "m": 9, "k": 9}
    project = rx.compile(made, bounds=sizes, assume=["n <= 2*m"], name="agree")
    header, readme = project.files["agree.h"].decode(), project.files["README.md"].decode()
    assert "/* Required, else RAOT_ERR_MISMATCH: assumed: n <= 2*m */" in header
    assert "| condition | assumed: n <= 2*m |" in readme
    assert "/* Required, else RAOT_ERR_MISMATCH: m == k: matmul's inner sizes */" in header
    with pytest.raises(RelaxAotError, match=r"any allowed size: .*; m is 1\.\.2, k is 3\.\.4"):
        rx.compile(made, bounds={"n": 8, "m": (1, 2), "k": (3, 4)})


def test_a_project_says_which_sizes_data_decide(tmp_path: Path) -> None:
    """Else a caller cannot tell what to fill in from what comes back."""
    made = model([helper.make_node("NonZero", ["x"], ["out"])], {"x": (FLOAT, ("n",))},
                 {"out": (INT64, 2)})  # fmt: skip
    project = rx.compile(made, bounds={"n": 5}, name="found")
    files = project.files
    header, readme = files["found.h"].decode(), files["README.md"].decode()
    assert "/* 0 to 5, data-dependent, returned in `result`: axis 1 of out */" in header
    assert "/* 1 to FOUND_N_MAX: input x, axis 0 */" in header
    assert "need not be set" in header
    assert "including the data-dependent ones" in readme
    assert "| size | out_1: axis 1 of out, 0..5, data-dependent" in readme
    assert "| output | `out`: int64[1, out_1]" in readme
    table = project.report(tmp_path / "r.txt", format="txt").read_text()
    assert " <= " in table and " <= 0 " not in table, table


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_axis_that_turns_out_empty_is_resized_to_an_empty_one(mode: str) -> None:
    made = model(
        [
            helper.make_node("Compress", ["x", "chosen"], ["kept"], axis=2),
            helper.make_node("Constant", [], ["scales"], value_floats=[1.0, 1.0, 0.75, 2.0]),
            helper.make_node("Resize", ["kept", "", "scales"], ["y"], mode=mode),
        ],
        {"x": (FLOAT, (1, 2, 4, "n")), "chosen": (BOOL, (4,))},
        {"y": (FLOAT, 4)},
    )
    host = rx.compile(made, bounds={"n": (1, 5)}).host()
    x = np.random.default_rng(2).normal(size=(1, 2, 4, 3)).astype(np.float32)
    for count in range(5):
        check(host, made, x=x, chosen=np.arange(4) < count)


def test_hardmax_of_an_axis_that_may_be_empty_is_that_of_its_elements() -> None:
    made = model(
        [
            helper.make_node("Compress", ["x", "chosen"], ["kept"], axis=1),
            helper.make_node("Hardmax", ["kept"], ["y"]),
        ],
        {"x": (FLOAT, ("n", 4)), "chosen": (BOOL, (4,))},
        {"y": (FLOAT, 2)},
    )
    host = rx.compile(made, bounds={"n": (1, 5)}).host()
    x = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
    x[1] = -np.inf
    for count in range(5):
        check(host, made, x=x, chosen=np.arange(4) < count)


@pytest.mark.parametrize("reverse", [0, 1])
def test_a_running_sum_begins_with_its_first_element(reverse: int) -> None:
    """The sum of -0 alone is -0, which a quotient shows."""
    made = model(
        [
            helper.make_node("Constant", [], ["axis"], value_int=1),
            helper.make_node("CumSum", ["x", "axis"], ["total"], reverse=reverse),
            helper.make_node("Reciprocal", ["total"], ["y"]),
        ],
        {"x": (FLOAT, ("n", 3))},
        {"y": (FLOAT, 2)},
    )
    host = rx.compile(made, bounds={"n": (1, 5)}).host()
    x = np.array([[-0.0, 0.0, 1.0], [0.0, -0.0, -0.0], [-0.0, -0.0, -0.0]], np.float32)
    check(host, made, x=x)


@pytest.mark.slow
def test_a_padded_axis_that_may_be_empty_is_checked_while_compiling() -> None:
    """`--check` runs fused kernels at sizes that the checks of the run let through alone."""
    made = model(
        [
            helper.make_node("Compress", ["x", "chosen"], ["kept"], axis=0),
            helper.make_node("Constant", [], ["pads"], value_ints=[1, 1]),
            helper.make_node("Pad", ["kept", "pads"], ["padded"], mode="wrap"),
            helper.make_node("Relu", ["padded"], ["y"]),
        ],
        {"x": (FLOAT, (4,)), "chosen": (BOOL, (4,))},
        {"y": (FLOAT, 1)},
    )
    host = host_model(driver.compile_model(made, options=Options(check=True)))
    x = np.array([1, -2, 3, 4], np.float32)
    for count in range(1, 5):
        check(host, made, x=x, chosen=np.arange(4) < count)
    with pytest.raises(StatusError):
        host(x=x, chosen=np.zeros(4, bool))


def test_a_scale_of_resize_that_rounds_unlike_any_expression_is_computed_by_the_program() -> None:
    """In float32, 98 * 4.867347 is 476.99997, and 477 with the ratio 477/98."""
    made = model(
        [
            helper.make_node("Constant", [], ["scales"], value_floats=[1.0, 1.0, 4.867347]),
            helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
        ],
        {"x": (FLOAT, ("b", 1, "n"))},
        {"y": (FLOAT, 3)},
    )
    host = rx.compile(made, bounds={"b": (1, 2), "n": (1, 400)}).host()
    for n in (1, 7, 97, 98, 392, 400):
        check(host, made, x=np.random.default_rng(n).normal(size=(2, 1, n)).astype(np.float32))


def test_a_long_axis_may_be_scaled_by_an_integer() -> None:
    made = model(
        [
            helper.make_node("Constant", [], ["scales"], value_floats=[1.0, 1.0, 2.0]),
            helper.make_node("Resize", ["x", "", "scales"], ["y"]),
        ],
        {"x": (FLOAT, ("b", 1, "n"))},
        {"y": (FLOAT, 3)},
    )
    module = rx.load(made, bounds={"b": (1, 200_000), "n": (1, 4_000_000)})
    assert "f32[b, 1, 2*n]" in str(module)


def quotient_of_sizes(size: list[Any], *, axes: bool = False) -> Any:
    """Older exporters divide sizes, which the nodes `size` make from the shape of r or of x, by
    those of the input."""
    kept = [] if axes else [helper.make_node("Constant", [], ["kept"], value_floats=[1.0, 2.0])]
    listed = [] if axes else [helper.make_node("Concat", ["kept", "ratio"], ["scales"], axis=0)]
    given: dict[str, Any] = {"axes": [2]} if axes else {}
    return model(
        [
            helper.make_node("Shape", ["x"], ["old"], start=2),
            helper.make_node("Shape", ["r"], ["other"]),
            helper.make_node("Constant", [], ["two"], value_ints=[2]),
            *size,
            helper.make_node("Cast", ["old"], ["divisor"], to=FLOAT),
            helper.make_node("Cast", ["new"], ["dividend"], to=FLOAT),
            helper.make_node("Div", ["dividend", "divisor"], ["ratio"]),
            *kept,
            *listed,
            helper.make_node(
                "Resize", ["x", "", "ratio" if axes else "scales"], ["y"], mode="linear", **given
            ),
        ],
        {"x": (FLOAT, ("b", 3, "n")), "r": (FLOAT, ("m",))},
        {"y": (FLOAT, 3)},
    )


SCALED = {
    "another size": [helper.make_node("Identity", ["other"], ["new"])],
    "a further element": [helper.make_node("Add", ["old", "two"], ["new"])],
    "a constant": [helper.make_node("Constant", [], ["new"], value_ints=[13])],
}


@pytest.mark.slow
@pytest.mark.parametrize("axes", [False, True])
@pytest.mark.parametrize("size", SCALED)
def test_quotients_of_sizes_scale_to_these_or_to_one_less(size: str, axes: bool) -> None:
    """In float32, 7 * (31 / 7) is below 31, and 11 * (13 / 11) below 13."""
    made = quotient_of_sizes(SCALED[size], axes=axes)
    host = rx.compile(made, bounds={"b": (1, 2), "n": (1, 41), "m": (1, 40)}).host(sanitize=True)
    for n, m in ((1, 1), (7, 31), (11, 13), (41, 40), (41, 1)):
        x = np.random.default_rng(n).normal(size=(2, 3, n)).astype(np.float32)
        check(host, made, x=x, r=np.zeros(m, np.float32))


def test_a_multiple_of_a_size_is_a_constant_scale() -> None:
    made = quotient_of_sizes([helper.make_node("Mul", ["old", "two"], ["new"])])
    module = rx.load(made, bounds={"b": (1, 2), "n": (1, 41), "m": (1, 40)})
    assert "f32[b, 6, 2*n]" in str(module)


def test_only_scales_of_resize_from_data_give_sizes_that_need_a_bound() -> None:
    made = model(
        [
            helper.make_node("Constant", [], ["kept"], value_floats=[1.0, 2.0]),
            helper.make_node("Concat", ["kept", "ratio"], ["scales"], axis=0),
            helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
        ],
        {"x": (FLOAT, ("b", 3, "n")), "ratio": (FLOAT, (1,))},
        {"y": (FLOAT, 3)},
    )
    bounds = {"b": (1, 2), "n": (1, 9)}
    with pytest.raises(rx.RelaxAotError, match=r"axis 2 of y .*--bound y_2"):
        rx.load(made, bounds=bounds)
    host = rx.compile(made, bounds={**bounds, "y_2": (1, 20)}).host()
    for n, m in ((1, 1), (9, 20), (7, 3)):
        x = np.random.default_rng(n).normal(size=(2, 3, n)).astype(np.float32)
        check(host, made, x=x, ratio=np.array([m / n], np.float32))


def test_a_size_that_is_a_sum_of_booleans_is_bounded() -> None:
    """`y[y > 0] = -1` as PyTorch's exporter writes it: the size of what is put there is a sum."""
    made = model(
        [
            helper.make_node("Constant", [], ["zero"], value_float=0.0),
            helper.make_node("Constant", [], ["put"], value_float=-1.0),
            helper.make_node("Constant", [], ["flat"], value_ints=[-1]),
            helper.make_node("Greater", ["x", "zero"], ["chosen"]),
            helper.make_node("NonZero", ["chosen"], ["places"]),
            helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
            helper.make_node("Reshape", ["chosen", "flat"], ["line"]),
            helper.make_node("Cast", ["line"], ["ones"], to=INT64),
            helper.make_node("ReduceSum", ["ones"], ["count"], keepdims=1),
            helper.make_node("Expand", ["put", "count"], ["values"]),
            helper.make_node("ScatterND", ["x", "rows", "values"], ["y"]),
        ],
        {"x": (FLOAT, ("n", 3))},
        {"y": (FLOAT, 2)},
    )
    host = rx.compile(made, bounds={"n": 6}, name="m").host()
    for n in (1, 6):
        x = np.linspace(-1, 1, n * 3, dtype=np.float32).reshape(n, 3)
        for array in (x, x - 2, x + 2):
            check(host, made, x=array)
