# SPDX-License-Identifier: Apache-2.0
"""Every stage of every model is sound, and prints as text that reads back as the same module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from onnx import helper

from relax_aot import driver, fusion, lowering, scheduling, transforms
from relax_aot.driver import Options
from relax_aot.inference.refine import refine
from relax_aot.inference.requirements import complete
from relax_aot.ir.check import problems
from relax_aot.ir.graph import Array, Module
from relax_aot.ir.parse import parse
from relax_aot.ir.text import to_text
from relax_aot.microkernels import all_micro_kernels
from relax_aot.ops import deduce
from relax_aot.scheduling.targets import find as find_target
from tests.end_to_end.subjects import SUBJECTS, Subject
from tests.end_to_end.test_data_sizes import BOOL, FLOAT, INT64, model


def data_of(module: Module) -> dict[str, Array]:
    return {constant.name: constant.data for constant in module.constants}


def assert_sound(module: Module) -> None:
    text = to_text(module)
    again = parse(text, data_of(module), all_micro_kernels())
    assert to_text(again) == text
    assert again == module
    assert refine(module) == module, "what is exact stays as it is"
    assert list(problems(module, deduce)) == []


def stated_by_ops(module: Module) -> Module:
    """Without what the user assumes."""
    kept = tuple(c for c in module.conditions if not c.origin.startswith("assumed: "))
    return replace(module, conditions=kept)


def counted() -> Any:
    """Data-dependent sizes: `define`, and what must hold of them: `check`."""
    return model(
        [
            helper.make_node("NonZero", ["x"], ["places"]),
            helper.make_node("Transpose", ["places"], ["rows"]),
            helper.make_node("GatherND", ["x", "rows"], ["values"]),
            helper.make_node("Compress", ["x", "chosen"], ["kept"], axis=1),
            helper.make_node("Unique", ["values"], ["once"]),
            helper.make_node("ReduceSum", ["kept"], ["total"], keepdims=0),
            helper.make_node("Mul", ["once", "z"], ["product"]),
        ],
        {"x": (FLOAT, ("n", "m")), "chosen": (BOOL, ("m",)), "z": (FLOAT, ("k",))},
        {"places": (INT64, 2), "kept": (FLOAT, 2), "product": (FLOAT, 1), "total": (FLOAT, 0)},
    )


def picked() -> Any:
    """Boxes that are picked in a `loop`."""
    return model(
        [
            helper.make_node(
                "NonMaxSuppression", ["boxes", "scores", "most", "over", "least"], ["picked"]
            )
        ],
        {
            "boxes": (FLOAT, (1, "boxes", 4)),
            "scores": (FLOAT, (1, 2, "boxes")),
            "most": (INT64, ()),
            "over": (FLOAT, ()),
            "least": (FLOAT, ()),
        },
        {"picked": (INT64, 2)},
    )


DATA_SIZES = {
    "counted": Subject(counted, Options(bounds={"n": (1, 4), "m": (1, 5), "k": (1, 20)})),
    "picked": Subject(picked, Options(bounds={"boxes": (1, 6)})),
}
MODELS = SUBJECTS | DATA_SIZES


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_stage_is_sound_and_reads_back(name: str) -> None:
    subject = MODELS[name]
    module = driver.load(subject.model(), subject.options)
    assert_sound(module)
    assert complete(module) == module, "a frontend has stated all that ops need"
    assert complete(replace(module, conditions=())) == stated_by_ops(module)
    module = transforms.run(module)
    assert_sound(module)
    module = lowering.lower(module)
    assert_sound(module)
    module = fusion.fuse(module).module
    assert_sound(module)
    assert_sound(scheduling.schedule(module, find_target("host", ()), "speed"))
