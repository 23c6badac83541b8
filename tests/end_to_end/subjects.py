# SPDX-License-Identifier: Apache-2.0
"""The models that end-to-end tests run, with the sizes to run them at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from tests.conftest import NO_SHARED_MODELS, ROOT
from tests.models.catalog import CATALOGUE
from tests.models.encoder import encoder

SHARED = ROOT.parent / "shared" / "models"
SILERO = Options(
    bounds={"sequence": (576, 576), "batch": (1, 1)},
    fix={"sr": "16000"},
    state={"state": "stateN"},
    name="silero",
)


@dataclass(frozen=True)
class Subject:
    """`source` gives a path or a model; where `shared`, it lies outside the repository."""

    source: Callable[[], Any]
    options: Options
    at: tuple[Mapping[str, int], ...] = ()
    shared: bool = False

    def model(self) -> Any:
        if self.shared and not SHARED.is_dir():
            pytest.skip(NO_SHARED_MODELS)
        return self.source()


def _shared(name: str) -> Callable[[], Path]:
    return lambda: SHARED / name


@cache
def small_encoder() -> Any:
    return encoder(width=64, heads=4, layers=1, hidden=96)


SUBJECTS: dict[str, Subject] = {
    "gesture": Subject(
        lambda: ROOT / "examples" / "gesture" / "gesture.onnx",
        Options(bounds={"n": (1, 128)}, name="gesture"),
        ({"n": 1}, {"n": 2}, {"n": 33}, {"n": 127}, {"n": 128}),
    ),
    "kws": Subject(_shared("kws_fp32.onnx"), Options(name="kws"), shared=True),
    "resnet8": Subject(_shared("resnet8_fp32.onnx"), Options(name="resnet8"), shared=True),
    "silero": Subject(_shared("silero_vad_16k_op15.onnx"), SILERO, shared=True),
    "small_encoder": Subject(
        small_encoder,
        Options(bounds={"n": (1, 40), "batch": (1, 2)}, name="enc"),
        ({"n": 1, "batch": 1}, {"n": 17, "batch": 2}, {"n": 40, "batch": 2}),
    ),
    **{
        name: Subject(entry.make, Options(bounds=entry.bounds, name=name))
        for name, entry in CATALOGUE.items()
    },
}


@cache
def project_of(name: str, board: str = "host") -> Project:
    subject = SUBJECTS[name]
    return driver.compile_model(subject.model(), board, subject.options)


@dataclass
class Runtime:
    """ONNX Runtime on the source model; carries the states of a subject."""

    subject: Subject
    held: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        source = self.subject.model()
        data = str(source) if isinstance(source, Path) else source.SerializeToString()
        self.session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])

    def __call__(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        names = [o.name for o in self.session.get_outputs()]
        values = self.session.run(None, {**feed, **self.held})
        return {n: np.asarray(v) for n, v in zip(names, values, strict=True)}
