"""PyTorch as the reference: an exported program, run eagerly."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from relax_aot.frontends import torch as frontend
from relax_aot.frontends.torch.program import Traced
from relax_aot.ir.graph import Module
from relax_aot.verify.onnx_reference import ReferenceFailed

Array = NDArray[Any]


class TorchReference:
    """Runs the program itself; inputs that were fixed and states are filled in."""

    def __init__(
        self, source: Any, module: Module, fix: Mapping[str, Any], state: Mapping[str, str]
    ) -> None:
        program = source.program if isinstance(source, Traced) else source
        if not frontend.accepts(source) or not hasattr(program, "graph_signature"):
            raise ReferenceFailed(
                "--reference torch runs programs of PyTorch (torch.export.ExportedProgram, given"
                " in Python): use onnxruntime, litert or numpy"
            )
        self._program = program
        self._outputs = [module.source_name(result.name) for result in module.main.results]
        self._fix, self._state = dict(fix), dict(state)
        self._held: dict[str, Array] = {}

    def reset(self) -> None:
        """Begin with states of zeros."""
        self._held.clear()

    def __call__(
        self,
        inputs: Mapping[str, Array],
        state_shapes: Mapping[str, tuple[int, ...]],
        sizes: Mapping[str, int],
    ) -> dict[str, Array]:
        import torch
        from torch.utils import _pytree

        given = [
            _tensor(self._input(name, inputs, state_shapes))
            for name in self._program.graph_signature.user_inputs
        ]
        args, kwargs = _pytree.tree_unflatten(given, self._program.call_spec.in_spec)
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                found = self._program.module()(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, AssertionError) as error:
            raise ReferenceFailed(f"PyTorch cannot run these sizes: {error}") from None
        arrays = [_array(tensor) for tensor in _pytree.tree_leaves(found)]
        if len(arrays) != len(self._outputs):
            raise ReferenceFailed(
                f"the program has {len(arrays)} results, the compiled model {len(self._outputs)}"
            )
        results = dict(zip(self._outputs, arrays, strict=True))
        for name, output in self._state.items():
            if output in results:
                self._held[name] = results[output]
        return results

    def _input(
        self, name: Any, inputs: Mapping[str, Array], state_shapes: Mapping[str, tuple[int, ...]]
    ) -> Array:
        if name in inputs:
            return inputs[name]
        if name in self._held:
            return self._held[name]
        if name in self._state:
            return np.zeros(state_shapes[name], np.float32)
        raise ReferenceFailed(f"the program's input {name!r} is no input of the compiled model")


def _tensor(array: Array) -> Any:
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _array(tensor: Any) -> Array:
    import torch

    kept = tensor.detach().contiguous()
    if kept.dtype == torch.bfloat16:
        return np.asarray(kept.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(kept.numpy())
