# SPDX-License-Identifier: Apache-2.0
"""ExportedProgram -> ONNX model -> Module; ranges of sizes -> bounds."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from relax_aot.frontends import ImportOptions, ModelError, UnsupportedError, onnx
from relax_aot.frontends.bounds import GREATEST, WrongBound
from relax_aot.ir.graph import Module

NEEDED = ("torch", "onnxscript")
SHOWN_CHARACTERS = 1500


@dataclass(frozen=True)
class Traced:
    """A program, and the names of its sizes, which it has lost itself."""

    program: Any
    dynamic_shapes: Any = None


def traced(source: Any, examples: Any, dynamic_shapes: Any) -> Traced:
    """A module run on examples (a tensor, a tuple, or a dict by name), or a program that
    exists, with `dynamic_shapes` as `torch.export.export` takes them."""
    require()
    import torch

    if isinstance(source, torch.export.ExportedProgram):
        if examples is not None:
            raise ModelError("an exported program needs no examples")
        return Traced(source, dynamic_shapes)
    if not isinstance(source, torch.nn.Module):
        raise ModelError(
            "examples and dynamic_shapes are for a torch.nn.Module or an ExportedProgram,"
            f" got {type(source).__name__}"
        )
    if examples is None:
        raise ModelError("a torch.nn.Module needs example inputs: load(module, (x,))")
    if source.training:
        raise ModelError("the module is in training mode; call module.eval() before")
    named = examples if isinstance(examples, Mapping) else None
    single = (examples,) if isinstance(examples, torch.Tensor) else examples
    args = () if named is not None else tuple(single)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(
                source, args, dict(named or {}), dynamic_shapes=dynamic_shapes, strict=False
            )
        except Exception as error:
            raise ModelError(f"torch.export cannot trace the module:\n{_said(error)}") from error
    return Traced(program, dynamic_shapes)


def require() -> None:
    """What the extra brings, or how to get it."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise ModelError(
            f"PyTorch models need {' and '.join(absent)}; install it with:"
            " pip install 'relax-aot[torch]'"
        )


def load_program(traced: Traced, options: ImportOptions) -> Module:
    """Through ONNX, with the ranges of the program's sizes as bounds."""
    require()
    _refuse_mutation(traced.program)
    model = _exported(traced)
    ranges = dict(_ranges(traced.program, model))
    return onnx.load(model, replace(options, bounds=_narrowed(ranges, options.bounds)))


def _refuse_mutation(program: Any) -> None:
    # Before decompositions run, a change is an operator like others, of a copy perhaps.
    signature = program.run_decompositions({}).graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise UnsupportedError(
            f"the program changes {', '.join(sorted(set(changed)))} when it runs, which ONNX "
            "cannot express; make each an input and an output of the module, and give `state`"
        )


def _exported(traced: Traced) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = torch.onnx.export(
                traced.program, dynamo=True, verbose=False, dynamic_shapes=_axes_of_tensors(traced)
            )
        except Exception as error:
            raise UnsupportedError(
                f"PyTorch's ONNX exporter cannot write the program:\n{_said(error)}"
            ) from error
    return found.model_proto


def _axes_of_tensors(traced: Traced) -> Any:
    """`dynamic_shapes` without what stands for numbers and None: the exporter takes names where
    there is one entry for each input of the ONNX model."""
    inputs = traced.program.graph_signature.user_inputs
    flat = [] if traced.dynamic_shapes is None else _flat(traced.dynamic_shapes)
    if len(flat) != len(inputs):
        return traced.dynamic_shapes
    return tuple(axes for axes, name in zip(flat, inputs, strict=True) if isinstance(name, str))


def _flat(shapes: Any) -> list[Any]:
    """The axes of each tensor: a dict by their numbers, a sequence of sizes, or None."""
    if isinstance(shapes, Mapping):
        by_number = all(isinstance(key, int) for key in shapes)
        return [shapes] if by_number else [a for part in shapes.values() for a in _flat(part)]
    if isinstance(shapes, list | tuple):
        of_parts = all(part is None or isinstance(part, Mapping | list | tuple) for part in shapes)
        return [a for part in shapes for a in _flat(part)] if of_parts else [shapes]
    return [shapes]


def _said(error: BaseException) -> str:
    """The error and what it came from, as long as a person reads."""
    text = str(error)
    if error.__cause__ is not None:
        text = f"{error.__cause__}\n{text}"
    return text[:SHOWN_CHARACTERS]


def _ranges(program: Any, model: Any) -> Iterator[tuple[str, tuple[int, int]]]:
    """Lowest and highest value of each symbol, by its name in the ONNX model: names are where
    the program has a size of its own."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = [name for name in program.graph_signature.user_inputs if isinstance(name, str)]
    ports = list(model.graph.input)
    if len(inputs) != len(ports):
        inputs = [port.name for port in ports]
    # By place, for an input that is an output too has another name in the model.
    for name, port in zip(inputs, ports, strict=True):
        sizes = getattr(values.get(name), "shape", ())
        for dim, size in zip(port.type.tensor_type.shape.dim, sizes, strict=False):
            symbols = getattr(getattr(size, "node", None), "expr", None)
            names = set(re.findall(r"[A-Za-z_]\w*", dim.dim_param))
            if symbols is None or len(symbols.free_symbols) != 1 or len(names) != 1:
                continue
            (symbol,) = symbols.free_symbols
            allowed = program.range_constraints.get(symbol)
            if allowed is not None:
                yield names.pop(), (_whole(allowed.lower), _whole(allowed.upper))


def _whole(limit: Any) -> int:
    """A limit of a range; infinite ones are beyond every size."""
    return max(0, int(limit)) if limit.is_finite and limit.is_Integer else GREATEST + 1


def _narrowed(
    ranges: Mapping[str, tuple[int, int]], given: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Bounds that are given may narrow a range. The program was traced for the range alone."""
    bounds = dict(given)
    for name, (low, high) in ranges.items():
        if name not in given:
            if high <= GREATEST:
                bounds[name] = (low, high)
            continue
        if given[name][1] > high or given[name][1] < low:
            raise WrongBound(
                f"the bound {name}={given[name][1]} is outside {low}..{high}, for which the program"
                " was exported; export it with another range"
            )
        bounds[name] = (max(low, given[name][0]), given[name][1])
    return bounds
