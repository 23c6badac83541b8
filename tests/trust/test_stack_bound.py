"""The stack bound from the compiler's figures beside the painted high-water mark on a board.

Both are counted from the call of the model's run by the table of the harness. A library
function without figures counts a fixed number of bytes, which a path may end with.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relax_aot.verify.emulate import build_image, emulate_cases
from relax_aot.verify.samples import cases_of
from relax_aot.verify.stack import LIBRARY_BYTES, worst_stack
from tests.end_to_end.subjects import SUBJECTS, project_of

FEW = ("gesture", "small_encoder", "image_net", "gru_tagger")
BOARDS = ("mps2-an385", "mps2-an386", "mps2-an500")
CASES = [
    pytest.param(
        name, board, marks=[] if name in FEW and board != "mps2-an500" else pytest.mark.long
    )
    for name in SUBJECTS
    for board in BOARDS
]


@pytest.mark.qemu
@pytest.mark.parametrize(("name", "board"), CASES)
def test_the_bound_holds_and_is_close(name: str, board: str, tmp_path: Path) -> None:
    project = project_of(name, board)
    cases = cases_of(project.interface, SUBJECTS[name].at, {})
    painted = max(run.stack_bytes for run in emulate_cases(project, cases))
    bound = worst_stack(build_image(project, tmp_path).stack_files, "run")
    assert painted <= bound.bytes
    unknown = 0 if bound.exact else LIBRARY_BYTES
    assert bound.bytes <= 1.3 * painted + unknown, bound.path
