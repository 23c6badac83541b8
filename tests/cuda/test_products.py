# SPDX-License-Identifier: Apache-2.0
"""Products on devices as the CUDA C++ says, on a CPU with sanitizers: the values of the plain
loops."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np

from relax_aot.evaluation.interpret import run_kernel
from relax_aot.ir.dims import Bounds
from relax_aot.ir.loops import Kernel
from relax_aot.scheduling.devices import matrix_units, products
from tests.cuda.shim import Job, Shim
from tests.scheduling.devices import test_matrix_units, test_products
from tests.scheduling.devices.kernels import Strategy, device_form, inputs

EDGES = ("rows below, at and above a tile",)
FORMS: dict[str, tuple[ModuleType, Strategy, tuple[str, ...]]] = {
    "small_tiles": (test_products, partial(products.product, tiles=test_products.TILES), ()),
    "tiles": (test_products, products.product, EDGES),
    "small_matrices": (
        test_matrix_units,
        partial(matrix_units.matrix_product, tiles=test_matrix_units.TILES),
        (),
    ),
    "matrices": (test_matrix_units, matrix_units.matrix_product, EDGES),
}
"""The cases of a file by a strategy: those that are named, or all."""


def test_printed_kernels_have_the_values_of_the_plain_loops(tmp_path: Path) -> None:
    plain: dict[str, Kernel] = {}
    device: dict[str, Kernel] = {}
    jobs: list[Job] = []

    for form, (file, strategy, names) in FORMS.items():
        for number, case in enumerate(names or file.CASES):
            text, sizes = file.CASES[case]
            kernel, made, _ = device_form(text, strategy, f"{form}_{number}")
            assert made is not None
            plain[made.name], device[made.name] = kernel, made
            one = sizes[-1]
            jobs.append(Job(made.name, tuple(inputs(kernel, one)), one, seed=1))
    bounds = Bounds.of({"n": (0, 70), "k": (0, 40)})
    answers = Shim([*device.values()], bounds, tmp_path).run(jobs)
    for job, answer in zip(jobs, answers, strict=True):
        (expected,) = run_kernel(plain[job.kernel], job.inputs, job.sizes)
        (found,) = answer.outputs
        wide = [np.asarray(one, np.float32) for one in (found, expected)]
        np.testing.assert_array_equal(wide[0], wide[1], job.kernel)
