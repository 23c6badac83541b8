# SPDX-License-Identifier: Apache-2.0
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
from relax_aot.verify.reference import Given, Reference, ReferenceFailed

Array = NDArray[Any]


class TorchReference(Reference):
    """Runs the program itself."""

    def __init__(
        self, source: Any, module: Module, fix: Mapping[str, Any], state: Mapping[str, str]
    ) -> None:
        super().__init__(fix, state)
        program = source.program if isinstance(source, Traced) else source
        if not frontend.accepts(source) or not hasattr(program, "graph_signature"):
            raise ReferenceFailed(
                "--reference torch runs programs of PyTorch (torch.export.ExportedProgram, given"
                " in Python): use onnxruntime, litert or numpy"
            )
        self._program = program
        self._outputs = [module.source_name(result.name) for result in module.main.results]

    def run(self, given: Given, sizes: Mapping[str, int]) -> dict[str, Array]:
        import torch
        from torch.utils import _pytree

        names = self._program.graph_signature.user_inputs
        leaves = [_tensor(given(name, *self._declared(name))) for name in names]
        args, kwargs = _pytree.tree_unflatten(leaves, self._program.call_spec.in_spec)
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
        return dict(zip(self._outputs, arrays, strict=True))

    def _declared(self, name: str) -> tuple[Any, list[int | str]]:
        """The element type and the shape of an input; dynamic sizes have no names here."""
        nodes = self._program.graph.nodes
        value: Any = next((node.meta.get("val") for node in nodes if node.name == name), None)
        if not hasattr(value, "dtype"):
            return np.float32, []
        axes = [size if type(size) is int else "" for size in value.shape]
        return _array(value.new_empty(0, device="cpu")).dtype, axes


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
