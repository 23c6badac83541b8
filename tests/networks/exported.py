# SPDX-License-Identifier: Apache-2.0
"""A network as an ONNX model, by either of PyTorch's exporters."""

from __future__ import annotations

import io
import warnings
from typing import Any

import onnx
import torch
from torch import nn

from tests.networks.network import Network


def built(network: Network) -> nn.Module:
    """The module with random weights, the same in every run, ready for inference."""
    torch.manual_seed(0)
    module = network.build().eval()
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            # Statistics of an untrained network are zeros and ones: they would hide errors.
            assert part.running_mean is not None and part.running_var is not None
            part.running_mean.normal_(0, 0.2)
            part.running_var.uniform_(0.5, 1.5)
    return module


def export(network: Network, exporter: str) -> onnx.ModelProto:
    """The model as the exporter writes it."""
    module = built(network)
    examples = {name: torch.from_numpy(a) for name, a in network.arrays(1).items()}
    torch.backends.mha.set_fastpath_enabled(False)  # no exporter knows its operator
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            program = torch.onnx.export(
                module,
                kwargs=examples,
                dynamic_shapes=dynamic_shapes(network),
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            return program.model_proto
        stream = io.BytesIO()
        torch.onnx.export(
            module,
            tuple(examples.values()),
            stream,
            input_names=list(examples),
            dynamic_axes=dynamic_axes(network),
            dynamo=False,
        )
        return onnx.load_from_string(stream.getvalue())


def dynamic_axes(network: Network) -> dict[str, dict[int, str]]:
    return {
        name: {axis: size for axis, size in enumerate(port.shape) if isinstance(size, str)}
        for name, port in network.inputs.items()
    }


def dynamic_shapes(network: Network) -> dict[str, dict[int, Any]]:
    """The same for torch.export; `16*h` is a derived dimension there."""
    dims = {
        symbol: torch.export.Dim(symbol, min=low, max=high)
        for symbol, (low, high) in network.bounds.items()
    }
    return {
        name: {
            axis: _dim(size, dims) for axis, size in enumerate(port.shape) if isinstance(size, str)
        }
        for name, port in network.inputs.items()
    }


def _dim(text: str, dims: dict[str, Any]) -> Any:
    """`h`, `16*h`, `m + n` is not one of them."""
    factor, _, symbol = text.rpartition("*")
    return dims[symbol] if not factor else int(factor) * dims[symbol]
