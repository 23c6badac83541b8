# SPDX-License-Identifier: Apache-2.0
"""Every ONNX operator that is read: its handler, its versions, and its limits in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import onnx.defs
from onnx import NodeProto

from relax_aot.frontends.importing import Operators, operators_of
from relax_aot.frontends.onnx import contrib
from relax_aot.frontends.onnx.context import Handler, Listed, Node, Results, Stacked
from relax_aot.frontends.onnx.prepare import DOMAINS, NEWEST, OLDEST, qualified
from relax_aot.frontends.refusals import Lost, Refused
from relax_aot.ir.graph import Var
from relax_aot.plugins import Found, Plugin, usable, with_problems


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `relax-aot ops`."""

    operator: str
    versions: str
    limits: str


@cache
def _brought() -> Found[Operators]:
    """The operators of plugins."""
    return usable("onnx", _operators_of, operators_of(__package__).handlers)


def _known() -> Operators:
    """The operators of this folder and of plugins, by `qualified` name."""
    return Operators.joined([operators_of(__package__), *_brought().values])


@cache
def handlers() -> Mapping[str, Handler]:
    """Handlers by `qualified` name, sorted."""
    return _known().handlers


def _operators_of(plugin: Plugin) -> tuple[list[str], Operators]:
    given = getattr(plugin.value, "HANDLERS", None)
    if not isinstance(given, Mapping) or not all(callable(h) for h in given.values()):
        raise plugin.fail("expected HANDLERS, a mapping from operators to functions of a node")
    limits = getattr(plugin.value, "LIMITS", {})
    if not isinstance(limits, Mapping) or not all(isinstance(t, str) for t in limits.values()):
        raise plugin.fail("expected LIMITS, a mapping from operators to strings")
    found = {name: _guarded(plugin, name, handler) for name, handler in given.items()}
    return list(found), Operators(found, limits)


def _guarded(plugin: Plugin, operator: str, handler: Handler) -> Handler:
    """The handler with errors that name the package."""
    guarded = plugin.guarded(f"the handler of {operator}", handler, (Refused, Lost))

    def handle(node: Node) -> Results:
        results = guarded(node)
        if not isinstance(results, Var | Listed | Stacked | tuple):
            raise plugin.fail(
                f"the handler of {operator} returned {type(results).__name__}, not a value"
            )
        return results

    return handle


def supported() -> list[Row]:
    """The operators, with the operator sets of the default domain in which each may stand."""
    limits = _known().limits
    return [Row(name, versions(name), limits.get(name, "")) for name in handlers()]


@cache
def versions(operator: str) -> str:
    """`11..28`: from the operator's first version (or our oldest) to its last."""
    history = list(_history(operator))
    if not history:
        return "1" if operator.startswith(contrib.DOMAIN) else ""
    last = history[0]
    newest = last.since_version - 1 if last.deprecated else NEWEST
    return f"{max(OLDEST, history[-1].since_version)}..{newest}"


def _history(operator: str) -> Iterator[onnx.defs.OpSchema]:
    """Every version of an operator of the default domain, the newest first. A list of all
    operators would take 11 MiB."""
    version = onnx.defs.onnx_opset_version()
    while version > 0:
        try:
            schema = onnx.defs.get_schema(operator, version, "")
        except onnx.defs.SchemaError:
            return
        yield schema
        version = schema.since_version - 1


EARLY = ("LayerNormalization",)
"""ONNX Runtime has these in every operator set, and writes them into models that it optimizes."""

# Why a node has no row. What depends on data has no size that could be planned.
DATA_SIZED = ("StringSplit",)
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform")


def reason_against(node: NodeProto, opset: int) -> str:
    """Why no handler reads this node; empty where one does."""
    if qualified(node) in handlers():
        return _version_problem(node, opset)
    return with_problems(_unsupported(node, opset), _brought().problems)


def _unsupported(node: NodeProto, opset: int) -> str:
    if node.domain not in DOMAINS:
        return f"operators of the domain {node.domain!r} are not supported"
    name = node.op_type
    if name in DATA_SIZED:
        return "the size of its result depends on data, which cannot be planned yet"
    if name in RANDOM or name == "RandomUniformLike":
        return "random numbers are not supported; make them an input"
    if name.startswith("Optional"):
        return "optionals are not supported; export with tensors"
    return f"operator {name} of version {opset} is not supported"


def _version_problem(node: NodeProto, opset: int) -> str:
    if node.domain not in DOMAINS or not versions(node.op_type):
        return ""
    try:
        since = onnx.defs.get_schema(node.op_type, opset, "").since_version
    except (onnx.defs.SchemaError, TypeError):  # a name that is no text comes as bytes
        if node.op_type in EARLY:
            return ""
        return f"operator set {opset} has no operator {node.op_type}"
    known = onnx.defs.onnx_opset_version()
    if opset > known or since > NEWEST:
        newest = min(known, NEWEST)
        return (
            f"operator set {opset} is newer than {newest}, the newest known; export with {newest}"
        )
    return ""
