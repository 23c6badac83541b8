# SPDX-License-Identifier: Apache-2.0
"""Projects whose C is more than a model: language models with their text, growing states, and the
part of models on GPUs that runs on the host. Other tests run them; the build matrix builds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import relax_aot as rx
from relax_aot import driver
from relax_aot.driver import Options
from tests.models.onnx_text import model_of


def language_model(kind: str, board: str, **options: Any) -> Any:
    """With a tokenizer of that kind and the functions that generate texts."""
    from tests.frontends.llm.checkpoints import Llama
    from tests.frontends.llm.tokenizer_files import KINDS

    shape = Llama(words=700, width=16, hidden=20, layers=1, queries=2, keys=1, size=8,
                  config={"eos_token_id": 2})  # fmt: skip
    with TemporaryDirectory() as folder:
        path = shape.write(Path(folder) / kind)
        KINDS[kind]().save(str(path / "tokenizer.json"))
        entries = rx.load_llm(path, context=40, chunk=16, **options)
        return rx.compile(entries, board=board, name=f"text_{kind}").built


def growing(board: str) -> Any:
    """Rows are appended to a state, of which the oldest are dropped."""
    model = model_of(
        "growing (float[k, 4] x, float[m, 4] past) => (float[q, 4] present, float[4] y)",
        """
        present = Concat <axis = 0> (past, x)
        y = ReduceSum <keepdims = 0> (present, axes)""",
        {"axes": np.array([0], np.int64)},
    )
    options = Options(
        bounds={"k": (1, 3)}, state={"past": "present"}, window={"m": 9}, name="growing"
    )
    return driver.compile_model(model, board, options)


def on_gpu(board: str) -> Any:
    """CUDA C++ as source, for a GPU next to the board's processor."""
    weights = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    text = "gpu (float[n, 256] x) => (float[n, 256] y)"
    model = model_of(text, "y = MatMul(x, w)", {"w": weights})
    gpu = "jetson-orin-nano" if board == "aarch64-linux" else "cuda-host"
    options = Options(
        bounds={"n": (1, 4096)}, emit="cuda-source", name="gpu", libraries=("cublaslt",)
    )
    return driver.compile_model(model, gpu, options)


PROGRAMS: dict[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "growing": (("M4", "M55", "aarch64", "host"), growing),
    "words": (("M7", "aarch64", "host"), partial(language_model, "llama3")),
    "pieces": (("aarch64", "host"), partial(language_model, "llama2")),
    "unigram": (("host",), partial(language_model, "unigram")),
    "normalized": (("host",), partial(language_model, "qwen2", speculate=3)),
    "pool": (("aarch64", "host"), partial(language_model, "gemma", pool=64)),
    "gpu": (("aarch64", "host"), on_gpu),
}
"""By name: the targets of the build matrix, and what makes the project for a board."""
