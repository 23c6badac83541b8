# SPDX-License-Identifier: Apache-2.0
"""What the rest of the compiler knows of ops by name: existing names, and no second record."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx.defs
import pytest

from relax_aot.frontends.importing import operators_of
from relax_aot.frontends.onnx import contrib
from relax_aot.frontends.onnx import table as onnx_table
from relax_aot.frontends.tflite import table as tflite_table
from relax_aot.frontends.tflite.schema import OPERATORS
from relax_aot.ir.graph import FORMS
from relax_aot.ops import all_ops
from tests.conftest import ROOT
from tests.ops.test_against_onnx import NODES

PACKAGE = ROOT / "relax_aot"
GRAPH_LEVEL = ("diagnose", "externs", "frontends", "inference", "quantization", "transforms")
"""Folders that handle calls of ops. Elsewhere names as `max` are functions of kernels."""
MOST = 2
"""A longer collection of op names is knowledge that belongs into their records."""
PSEUDO = {"view", "call", "call_tir"}
RUNTIME_ONLY = "SimplifiedLayerNormalization"
"""An operator of ONNX Runtime that stands in the default domain."""


def trees(folders: tuple[str, ...]) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def words(nodes: list[ast.expr]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def op_tables(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Collections that hold nothing but names of ops, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            names = set(words(node.elts))
            if len(names) > MOST and names <= all_ops().keys():
                yield node.lineno, names


def named_ops(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names that `emit` and `call` are given, and names that a call's `op` is compared with."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="emit"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield node.lineno, name
            case ast.Compare(left=ast.Attribute(attr="op"), comparators=[right]):
                parts = right.elts if isinstance(right, ast.Tuple | ast.Set) else [right]
                for name in filter(str.isidentifier, words(parts)):
                    yield node.lineno, name


@pytest.mark.slow
def test_what_holds_of_an_op_is_in_its_record() -> None:
    folders = tuple(p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "ops")
    found = [
        f"{path.relative_to(ROOT)}:{line}: {sorted(names)}"
        for path, tree in trees(folders)
        for line, names in op_tables(tree)
    ]
    assert not found, "tables of op names; add a trait to the records instead:\n" + "\n".join(found)


@pytest.mark.slow
def test_names_of_ops_exist() -> None:
    known = {*all_ops(), *FORMS, *PSEUDO}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, tree in trees(GRAPH_LEVEL)
        for line, name in named_ops(tree)
        if name not in known
    ]
    assert not found, "no such op:\n" + "\n".join(found)


def test_handlers_and_tables_name_operators_that_exist() -> None:
    contributed = {n for n in onnx_table.handlers() if n.startswith(contrib.DOMAIN)}
    own = onnx_table.handlers().keys() - contributed - {RUNTIME_ONLY}
    assert all(onnx.defs.has(name) for name in own)
    assert tflite_table.handlers().keys() <= set(OPERATORS)
    for table in (onnx_table, tflite_table):
        known = operators_of(table.__package__)
        assert known.limits.keys() <= known.handlers.keys(), table.__package__
    assert NODES.keys() <= all_ops().keys()


@pytest.mark.parametrize("name", all_ops())
def test_samples_give_declared_attributes_only(name: str) -> None:
    """Every attribute of a record is one that `reference` or `lower` takes, and samples agree."""
    import numpy as np

    from relax_aot.ir.graph import attr_value
    from relax_aot.ops._attributes import problem_of

    op = all_ops()[name]
    for sample in op.samples(np.random.default_rng(0)):
        attrs = {key: attr_value(value) for key, value in sample.attrs.items()}
        assert problem_of(name, op.attributes, attrs) == ""
