# SPDX-License-Identifier: Apache-2.0
"""The first value for which the NumPy references differ from ONNX Runtime.

Such a difference is not a bug of the C: the frontend read an operator incorrectly, or the op's
reference is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax_aot.diagnose.values import all_values
from relax_aot.evaluation.reference import evaluate
from relax_aot.ir.graph import Module
from relax_aot.project import Project
from relax_aot.verify.compare import Difference
from relax_aot.verify.error_model import ErrorModel, ModelCall
from relax_aot.verify.index_draws import drawn_inside
from relax_aot.verify.job import named_inputs
from relax_aot.verify.judge import Judge
from relax_aot.verify.onnx_values import OnnxValues
from relax_aot.verify.samples import Case, cases_of

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class SourceDifference:
    """The call at `position` of the entry has the first difference. `wanted` is the expected
    result, and `arrays` are the inputs and the earlier values by name."""

    position: int
    difference: Difference
    wanted: Array
    arrays: Mapping[str, Array]


def first_source_difference(
    project: Project, outside: OnnxValues, sizes: Sequence[Mapping[str, int]]
) -> SourceDifference | None:
    shown = all_values(project.source_module)
    for case in drawn_inside(project, cases_of(project.interface, sizes, {}), set()):
        found = _in_case(shown, project, outside, case)
        if found is not None:
            return found
    return None


def _in_case(
    shown: Module, project: Project, outside: OnnxValues, case: Case
) -> SourceDifference | None:
    feed = {p.name: a for p, a in zip(project.interface.inputs, case.inputs, strict=True)}
    named = named_inputs(project.interface, case)
    for param in shown.main.params:
        if param.name not in feed:  # a state begins with zeros
            shape = [size.evaluate(case.sizes) for size in param.type.shape]
            zeros = np.zeros(shape, param.type.dtype.numpy)
            feed[param.name] = named[shown.source_name(param.name)] = zeros
    values = evaluate(shown, feed, case.sizes)
    wanted = outside(named, case.sizes)
    model = ErrorModel({"": shown}, [ModelCall(named, case.sizes)])
    judge = Judge(None, model, foreign=True)
    for position, call in enumerate(shown.main.body):
        for out in call.outs:
            if out.name not in wanted or out.name not in values:
                continue
            found = judge(0, shown.source_name(out.name), values[out.name], wanted[out.name])
            if not found.ok:
                return SourceDifference(position, found, wanted[out.name], {**feed, **values})
    return None
