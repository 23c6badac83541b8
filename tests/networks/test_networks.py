# SPDX-License-Identifier: Apache-2.0
"""Networks of PyTorch's exporters equal ONNX Runtime from the lowest to the highest sizes."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest

import relax_aot as rx
from tests.conftest import NO_TORCH

if not all(map(importlib.util.find_spec, ("torch", "torchvision", "onnxscript"))):
    pytest.skip(NO_TORCH, allow_module_level=True)

from tests.networks import features, language, others, vision, wider
from tests.networks.exported import export

if TYPE_CHECKING:
    from tests.networks.network import Network

SETS = (vision, language, others, features, wider)
NETWORKS = [network for networks in SETS for network in networks.NETWORKS]
CASES = [
    pytest.param(network, exporter, id=f"{network.name}-{exporter}")
    for network in NETWORKS
    for exporter in network.exporters
]


@pytest.mark.long
@pytest.mark.parametrize(("network", "exporter"), CASES)
def test_a_network_equals_onnx_runtime(network: Network, exporter: str) -> None:
    model = export(network, exporter)
    host = rx.compile(model, bounds=network.bounds, name="network").host()
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    for which in range(3):
        arrays = network.arrays(which)
        got = host(arrays)
        for name, wanted in zip(names, session.run(names, arrays), strict=True):
            assert got[name].shape == wanted.shape, name
            assert got[name].dtype == wanted.dtype, name
            if wanted.dtype.kind != "f":
                np.testing.assert_array_equal(got[name], wanted, err_msg=name)
                continue
            finite = np.where(np.isfinite(wanted), np.abs(wanted), 0)
            largest = float(finite.max(initial=0))
            np.testing.assert_allclose(
                got[name], wanted, rtol=0, atol=network.tolerance * largest, err_msg=name
            )
