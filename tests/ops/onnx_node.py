# SPDX-License-Identifier: Apache-2.0
"""One ONNX node with the values of its inputs, as a test runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relax_aot.ops._op import Array


@dataclass(frozen=True)
class Node:
    """An ONNX node and the values of its inputs; None is an absent one."""

    op_type: str
    inputs: tuple[Array | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 26


def i64(*values: Any) -> Array:
    return np.array([int(value) for value in values], np.int64)


def scalar(value: Any) -> Array:
    return np.array(value, np.int64)
