# SPDX-License-Identifier: Apache-2.0
"""The backend cases that the installed `onnx` package carries, and what they are to us.

Node cases hold model and arrays in memory, the others lie in the package's data folder. A
class says what a case asks for: `core` are numeric tensors, `extended` are element types that
no small core computes with and classical machine learning, `out` is everything else.
"""

from __future__ import annotations

import pickle
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, TypeProto, numpy_helper

from relax_aot.cache import cached_folder, digest_of

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
SEQUENCES = {
    "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
    "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
    "SequenceMap", "SplitToSequence",
}  # fmt: skip
STRINGS = {"RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"}
RANDOM = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip
LOSSES = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
STRING_LISTS = (
    "value_strings", "keys_strings", "values_strings", "classlabels_string", "cats_strings",
)  # fmt: skip
RUNTIMES_DIFFER = (
    "test_maxunpool_export_with_output_shape",
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
)
"""Cases whose expected result ONNX Runtime and PyTorch contradict, where this project follows the
runtimes: docs/reference/where_sources_disagree.md."""
STORED = "cases.pickle"
NARROW = ("FLOAT8", "FLOAT4", "BFLOAT16", "INT2", "UINT2")


@dataclass(frozen=True)
class Case:
    name: str
    model: ModelProto
    data: tuple[tuple[list[Any], list[Any]], ...]
    """Inputs and expected outputs of each data set."""
    rtol: float
    atol: float
    scope: str
    why: str
    """What puts it into its class."""
    kind: str
    """One of KINDS."""


@cache
def all_cases() -> dict[str, Case]:
    """By name, in the package's order. Making them takes the package seconds, so they are kept
    by the versions of what they are made of."""
    versions = (onnx.__version__, np.__version__, sys.version, Path(__file__).read_bytes())
    folder = cached_folder("onnx-cases", digest_of(versions), _keep)
    with (folder / STORED).open("rb") as stream:
        return {case.name: case for case in pickle.load(stream)}


def _keep(folder: Path) -> None:
    with (folder / STORED).open("wb") as stream:
        pickle.dump(list(_read()), stream)


def cases_of(*scopes: str) -> list[Case]:
    return [case for case in all_cases().values() if case.scope in scopes]


def fed_inputs(model: ModelProto) -> list[Any]:
    """The inputs that a caller gives: those without an initializer."""
    initial = {i.name for i in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initial]


def _read() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.model import collect_testcases
        from onnx.backend.test.loader import load_model_tests

        for kind in KINDS:
            tests = {test.name: test for test in load_model_tests(kind=kind)}
            if kind == "simple":
                # Some are made in memory alone.
                tests = {t.name: t for t in collect_testcases() if t.kind == kind} | tests
            for name in sorted(tests):
                test = tests[name]
                model, data = _stored(test) if test.model_dir else _made(test)
                scope, why = classify(name, model)
                yield Case(name, model, data, test.rtol, test.atol, scope, why, kind)


def _made(test: Any) -> tuple[ModelProto, tuple[tuple[list[Any], list[Any]], ...]]:
    data = tuple(
        ([_array(v) for v in inputs], [_array(v) for v in outputs])
        for inputs, outputs in test.data_sets
    )
    return test.model, data


def _array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return [_array(part) for part in value] if isinstance(value, list) else value


def _stored(test: Any) -> tuple[ModelProto, tuple[tuple[list[Any], list[Any]], ...]]:
    root = Path(test.model_dir)
    model = onnx.load(root / "model.onnx")
    data = tuple(
        (
            _side(folder, "input", fed_inputs(model)),
            _side(folder, "output", model.graph.output),
        )
        for folder in sorted(root.glob("test_data_set_*"))
    )
    return model, data


def _side(folder: Path, side: str, values: Iterable[Any]) -> list[Any]:
    found = []
    for index, value in enumerate(values):
        path = folder / f"{side}_{index}.pb"
        if path.exists() and value.type.WhichOneof("value") == "tensor_type":
            found.append(numpy_helper.to_array(TensorProto.FromString(path.read_bytes())))
    return found


# Classes


def classify(name: str, model: ModelProto) -> tuple[str, str]:
    """The class, and what puts the case there."""
    nodes = [n for body in _bodies(model) for n in body.node]
    plain = {node.op_type for node in nodes}
    domains = {node.domain for node in nodes}
    types = _types(model)
    outside = (
        ("results that the runtimes contradict", name in RUNTIMES_DIFFER),
        ("training operators", any("training" in domain for domain in domains)),
        ("maps", "map_type" in types),
        ("sparse tensors", "sparse_tensor_type" in types),
        (
            "sequences and optionals",
            bool(types & {"sequence_type", "optional_type"} or plain & SEQUENCES),
        ),
        ("strings", bool("STRING" in types or plain & STRINGS)),
        ("decoding of images", "ImageDecoder" in plain),
        ("random numbers", bool(plain & RANDOM)),
        ("training losses", bool(plain & LOSSES or re.match(r"test_(nllloss|sce)_", name))),
        ("training mode", _in_training(model)),
        ("complex numbers", bool(types & {"COMPLEX64", "COMPLEX128"})),
    )
    for why, holds in outside:
        if holds:
            return "out", why
    if "ai.onnx.ml" in domains:
        return "extended", "classical machine learning"
    if any(type_.startswith(NARROW) for type_ in types):
        return "extended", "bfloat16, floats of 4 and 8 bits, integers of 2 bits"
    return "core", "numeric tensors"


def _bodies(model: ModelProto) -> Iterator[Any]:
    yield from _graphs(model.graph)
    yield from model.functions


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _types(model: ModelProto) -> set[str]:
    """Names of all element types, and of values that are no tensors."""
    name_of = TensorProto.DataType.Name
    types: set[str] = set()
    for body in _bodies(model):
        for attribute in (a for node in body.node for a in node.attribute):
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.HasField("i"):
                types.add(name_of(attribute.i))
            if attribute.type == AttributeProto.TENSOR:
                types.add(name_of(attribute.t.data_type))
            if attribute.type == AttributeProto.STRINGS and attribute.name.startswith(STRING_LISTS):
                types.add("STRING")
        if isinstance(body, GraphProto):
            types.update(name_of(i.data_type) for i in body.initializer)
            for value in (*body.input, *body.output, *body.value_info):
                types.update(_type_names(value.type))
    return types


def _type_names(type_: TypeProto) -> Iterator[str]:
    kind = type_.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        yield kind
        yield from _type_names(getattr(type_, kind).elem_type)
    elif kind == "map_type":
        yield kind
    elif kind is not None:
        yield kind
        yield TensorProto.DataType.Name(getattr(type_, kind).elem_type)


def _in_training(model: ModelProto) -> bool:
    constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    for graph in _graphs(model.graph):
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            if node.op_type == "BatchNormalization" and (
                any(a.name == "training_mode" and a.i for a in node.attribute)
                or len([o for o in node.output if o]) > 1
            ):
                return True
            if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
                flag = constants.get(node.input[2])
                if flag is None or bool(flag.any()):
                    return True
    return False
