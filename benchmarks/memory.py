# SPDX-License-Identifier: Apache-2.0
"""What a model needs: arena, lower bound, and calls and bytes moved before and after fusion.

    python benchmarks/memory.py [--json FILE] [MODEL.onnx ...]

Without models: a transformer encoder (width 256, 4 heads, 4 layers, 1024 hidden; batch 1,
n <= 256) with its bytes over n, and the public models in ../shared/models where that
folder exists. With models: each at its own fixed sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.project import Project
from relax_aot.report.memory_map import lower_bound_at, need_at, need_of_bounds

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "models"
BOUND = 256
LENGTHS = (1, 32, 64, 128, 256)
RAISED = (512, 1024)
SILERO = Options(
    bounds={"sequence": (576, 576), "batch": (1, 1)}, fix={"sr": "16000"},
    state={"state": "stateN"}, name="silero",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Bytes at the upper bounds; the lower bound is that of the fused graph in its order."""

    model: str
    arena_bytes: int
    lower_bound_bytes: int
    calls_before: int
    calls_after: int
    moved_before: int
    moved_after: int


@dataclass(frozen=True, slots=True)
class Point:
    """`bound`: the C is compiled with it; `n`: the size of a run."""

    bound: int
    n: int
    arena_bytes: int
    lower_bound_bytes: int


def encoder_project() -> Project:
    sys.path.insert(0, str(ROOT))
    from tests.models.encoder import encoder

    model = encoder(width=256, heads=4, layers=4, hidden=1024)
    options = Options(bounds={"n": (1, BOUND), "batch": (1, 1)}, name="enc")
    return driver.compile_model(model, "host", options)


def public_models() -> list[tuple[str, Path, Options]]:
    names = ("resnet8_fp32", "resnet8_int8_qdq", "kws_fp32", "kws_int8_qdq")
    plain = [(name, SHARED / f"{name}.onnx", Options()) for name in names]
    return [*plain, ("silero", SHARED / "silero_vad_16k_op15.onnx", SILERO)]


def row_of(name: str, project: Project) -> Row:
    plan, fusion = project.plan, project.fusion
    assert fusion is not None
    before, after = fusion.before, fusion.after
    return Row(
        name, plan.arena_bytes, plan.lower_bound_bytes,
        before.calls, after.calls, before.bytes_moved, after.bytes_moved,
    )  # fmt: skip


def curve_of(project: Project) -> list[Point]:
    """Runs of one build, then the same plan at other bounds."""
    plan = project.plan
    runs = [{"n": n, "batch": 1} for n in LENGTHS]
    points = [
        Point(BOUND, at["n"], need_at(plan, 0, at), lower_bound_at(plan, 0, at)) for at in runs
    ]
    for bound in (*LENGTHS[:-1], *RAISED):
        at = {"n": bound, "batch": 1}
        points.append(Point(bound, bound, need_of_bounds(plan, at), lower_bound_at(plan, 0, at)))
    return points


def print_rows(rows: list[Row]) -> None:
    head = ("model", "arena", "lower bound", "ratio", "calls", "bytes moved")
    print(f"{head[0]:18} {head[1]:>10} {head[2]:>12} {head[3]:>6} {head[4]:>11}  {head[5]}")
    for row in rows:
        ratio = row.arena_bytes / max(row.lower_bound_bytes, 1)
        calls = f"{row.calls_before} -> {row.calls_after}"
        moved = f"{row.moved_before:,} -> {row.moved_after:,}"
        print(
            f"{row.model:18} {row.arena_bytes:>10,} {row.lower_bound_bytes:>12,} {ratio:>6.3f}"
            f" {calls:>11}  {moved}"
        )


def print_curve(points: list[Point]) -> None:
    print(f"\nencoder over n\n{'bound':>6} {'n':>6} {'arena':>10} {'lower bound':>12}")
    for p in points:
        print(f"{p.bound:>6} {p.n:>6} {p.arena_bytes:>10,} {p.lower_bound_bytes:>12,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("models", nargs="*", type=Path)
    chosen = parser.parse_args()
    rows: list[Row] = []
    points: list[Point] = []
    subjects = [(path.stem, path, Options()) for path in chosen.models]
    if not subjects:
        project = encoder_project()
        rows.append(row_of("encoder", project))
        points = curve_of(project)
        subjects = public_models() if SHARED.is_dir() else []
    for name, path, options in subjects:
        rows.append(row_of(name, driver.compile_model(path, "host", options)))
    print_rows(rows)
    if points:
        print_curve(points)
    if chosen.json:
        result: dict[str, Any] = {
            "models": [asdict(row) for row in rows],
            "encoder": [asdict(point) for point in points],
        }
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
