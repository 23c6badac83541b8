# SPDX-License-Identifier: Apache-2.0
"""Whole models in which part of the calls are C functions, in any mixture with kernels.

A small library stands for every call that fits it; each model then runs with all of it, and
with random parts of it, against ONNX Runtime.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from relax_aot import driver
from relax_aot.planning.steps import Step, walk_steps
from relax_aot.verify.compare import Tolerance
from relax_aot.verify.job import Job, run_job
from tests.end_to_end.subjects import SUBJECTS

FIRST = {("small_encoder", "all of them may fail"), ("gesture", "all"), ("windows", "some")}
"""What every run of the tests checks; the others take minutes."""
CASES = [
    pytest.param(name, mixture, marks=() if (name, mixture) in FIRST else pytest.mark.long)
    for name, subject in SUBJECTS.items()
    if not subject.shared
    for mixture in ("all", "all of them may fail", "some", "others")
]
UNARY = {
    "relu": "x[i] > 0 ? x[i] : 0",
    "tanh": "tanhf(x[i])",
    "sigmoid": "1 / (1 + expf(-x[i]))",
    "exp": "expf(x[i])",
    "sqrt": "sqrtf(x[i])",
    "neg": "-x[i]",
}
BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
IN_PLACE = ("relu", "tanh", "add", "mul")


def routines() -> dict[str, tuple[str, str, str, str]]:
    """Name -> C parameters, C body, pattern, arguments in TOML."""
    found = {}
    n = 'n = { size = "n" }'
    both = 'a = { input = "f32[*n]" }\nb = { input = "f32[*n]" }\ny = { output = "f32[*n]" }\n'
    for name, formula in UNARY.items():
        found[name] = (
            "const float *x, int n, float *y",
            f"for (int i = 0; i < n; i++) y[i] = {formula};",
            f"%y = {name}(%x)",
            f'x = {{ input = "f32[*n]" }}\n{n}\ny = {{ output = "f32[*n]" }}',
        )
    for name, sign in BINARY.items():
        found[name] = (
            "const float *a, const float *b, int n, float *y",
            f"for (int i = 0; i < n; i++) y[i] = a[i] {sign} b[i];",
            f"%y = {name}(%a, %b)",
            both + n,
        )
    for name in IN_PLACE:
        params, body, pattern, arguments = found.pop(name)
        first = "x" if name in UNARY else "a"
        found[name] = (
            params.replace(f"const float *{first},", "").replace("float *y", f"float *{first}"),
            body.replace("y[i]", f"{first}[i]"),
            pattern,
            arguments.replace(
                f'{first} = {{ input = "f32[*n]" }}',
                f'{first} = {{ update = "f32[*n]", of = "{first}", to = "y" }}',
            ).replace('\ny = { output = "f32[*n]" }', ""),
        )
    found["matmul"] = (
        "const float *x, const float *w, int m, int k, int n, double *work, float *y",
        (
            "for (int i = 0; i < m; i++) { for (int j = 0; j < n; j++) { work[j] = 0;"
            " for (int l = 0; l < k; l++) work[j] += (double)x[i * k + l] * (double)w[l * n + j]; }"
            " for (int j = 0; j < n; j++) y[i * n + j] = (float)work[j]; }"
        ),
        "%y = matmul(%x, %w)",
        (
            'x = { input = "f32[*m, k]" }\nw = { input = "f32[k, n]" }\n'
            'm = { size = "m" }\nk = { size = "k" }\nn = { size = "n" }\n'
            'work = { scratch = "f64[n]" }\ny = { output = "f32[*m, n]" }'
        ),
    )
    found["softmax"] = (
        "const float *x, int m, int k, float *y",
        (
            "for (int i = 0; i < m; i++, x += k, y += k) { float top = -INFINITY, sum = 0;"
            " for (int j = 0; j < k; j++) top = fmaxf(top, x[j]);"
            " for (int j = 0; j < k; j++) sum += y[j] = expf(x[j] - top);"
            " for (int j = 0; j < k; j++) y[j] /= sum; }"
        ),
        "%y = softmax(%x) {axis=-1}",
        (
            'x = { input = "f32[*m, k]" }\nm = { size = "m" }\nk = { size = "k" }\n'
            'y = { output = "f32[*m, k]" }'
        ),
    )
    return found


def library(folder: Path, chosen: list[str], fallible: bool) -> Path:
    """The table of the chosen routines; fallible ones say that all went well."""
    table = routines()
    result, after = ("int", " return 0;") if fallible else ("void", "")
    folder.mkdir()
    heads = {name: f"{result} my_{name}({table[name][0]})" for name in chosen}
    (folder / "my.h").write_text("".join(f"{head};\n" for head in heads.values()))
    bodies = (f"{heads[name]}\n{{ {table[name][1]}{after} }}\n" for name in chosen)
    (folder / "my.c").write_text('#include "my.h"\n#include <math.h>\n' + "".join(bodies))
    parts = ['header = "my.h"\nsources = ["my.c"]\n']
    for name in chosen:
        _, _, pattern, arguments = table[name]
        returns = 'returns = "code"\n' if fallible else ""
        parts.append(
            f"[[extern]]\nfunction = \"my_{name}\"\nreplaces = '{pattern}'\n{returns}"
            f"[extern.arguments]\n{arguments}\n"
        )
    (folder / "my.toml").write_text("\n".join(parts))
    return folder / "my.toml"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mixture"), CASES)
def test_any_mixture_equals_onnx_runtime(name: str, mixture: str, tmp_path: Path) -> None:
    names = sorted(routines())
    source = random.Random(name + mixture)
    chosen = names if mixture.startswith("all") else source.sample(names, len(names) // 2)
    table = library(tmp_path / "lib", chosen, fallible="fail" in mixture)
    subject = SUBJECTS[name]
    options = replace(subject.options, libraries=(str(table),))
    model = subject.model()
    project = driver.compile_model(model, "host", options)
    job = Job(
        source=model, projects=(project,), fix=options.fix, state=options.state, at=subject.at,
        tolerance=Tolerance(1e-4, 1e-5), sanitize=True,
    )  # fmt: skip
    result = run_job(job)
    assert [run.dims for target in result.targets for run in target.runs if not run.ok] == []
    steps = [s for s in walk_steps(project.plan.program.nodes) if isinstance(s, Step)]
    called = {step.call.op for step in steps} - {"guard"}  # checks of lengths that are data
    assert called <= {"call_kernel", "call_extern"}
    if mixture.startswith("all") and name in ("small_encoder", "gesture"):
        assert called == {"call_kernel", "call_extern"}
