# SPDX-License-Identifier: Apache-2.0
"""A farm gives every task's answer, also where workers die."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relax_aot.cli.farm import FarmError, Task, run_task, run_with, tasks_of
from tests.cli.in_process import relax_aot
from tests.cli.test_cli import started
from tests.conftest import ROOT

distributed: Any = pytest.importorskip("distributed")

GESTURE = ROOT / "examples" / "gesture" / "gesture.onnx"
LIST = """
[[model]]
path = "gesture.onnx"
bound = ["n=32"]
at = ["n=1", "n=32"]

[[model]]
path = "gesture.onnx"
bound = ["n=8"]
board = ["host", "microbit"]
name = "small"
"""


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    (tmp_path / "gesture.onnx").write_bytes(GESTURE.read_bytes())
    (tmp_path / "list.toml").write_text(LIST)
    return tmp_path / "list.toml"


def test_a_list_becomes_tasks(listed: Path) -> None:
    tasks = tasks_of([str(listed)], ["host"], ["n=5"], {"optimize": "size"})
    assert [(t.board, t.at) for t in tasks] == [
        ("host", ("n=1",)), ("host", ("n=32",)), ("host", ("n=5",)), ("microbit", ("n=5",)),
    ]  # fmt: skip
    assert [t.options["bound"] for t in tasks] == [("n=32",)] * 2 + [("n=8",)] * 2
    assert tasks[3].options["name"] == "small" and tasks[3].options["optimize"] == "size"
    assert tasks[0].files == {"gesture.onnx": GESTURE.read_bytes()}


@pytest.mark.parametrize(
    "text", ["", "model = 1", "[[model]]\nbound = ['n=3']", "[[model]]\npath='m.onnx'\nbnd=['n=3']",
             "[[model]]\npath='m.onnx'\nbound='n=3'", "\x00"],
)  # fmt: skip
def test_a_bad_list_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(FarmError, match=r"list\.toml"):
        tasks_of([str(tmp_path / "list.toml")], ["host"], [], {})


def test_the_list_of_the_document_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "verify_many.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```toml\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "gesture.onnx").write_bytes(GESTURE.read_bytes())
    (tmp_path / "list.toml").write_text(shown)
    assert len(tasks_of([str(tmp_path / "list.toml")], ["host"], [], {})) == 4


def test_what_a_user_can_mend_is_the_answer(listed: Path) -> None:
    (task, *_) = tasks_of([str(listed)], ["host"], [], {})
    result, error, _where = run_task(Task(task.model, task.files, "host", (), {}))
    assert result is None and "bound" in error


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
        ) as cluster,
    ):
        yield cluster


def killer(client: Any, killed: list[int]) -> None:
    """Waits until a worker has a task, and kills it."""
    pids = client.run(os.getpid)
    while not killed:
        busy = [address for address, keys in client.processing().items() if keys]
        if busy:
            os.kill(pids[busy[0]], signal.SIGKILL)
            killed.append(pids[busy[0]])
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_a_worker_that_is_killed_costs_no_answer(cluster: Any, listed: Path) -> None:
    sizes = [f"n={n}" for n in (1, 2, 17, 31)]
    tasks = tasks_of([str(GESTURE)], ["host"], sizes, {"bound": ("n=32",)})
    killed: list[int] = []
    with distributed.Client(cluster) as client:
        client.wait_for_workers(3)
        thread = threading.Thread(target=killer, args=(client, killed), daemon=True)
        thread.start()
        answers = run_with(client, tasks, retries=2)
        thread.join(60)
    assert killed
    assert [answer.task for answer in answers] == tasks
    assert all(answer.ok for answer in answers), [answer.error for answer in answers]
    assert max(answer.tries for answer in answers) == 2
    assert not any(answer.where.endswith(f":{killed[0]}") for answer in answers)
    dims = [a.result["targets"][0]["runs"][0]["dims"] for a in answers if a.result]
    assert dims == [{"n": n} for n in (1, 2, 17, 31)]


def deadly(task: Task) -> tuple[None, str, str]:
    """Takes its worker down, unless it is the good one."""
    if task.board == "deadly":
        os._exit(9)
    return None, "fine", "here"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_task_that_kills_every_worker_is_given_up(cluster: Any) -> None:
    tasks = [Task("m", {}, board, ()) for board in ("good", "deadly", "good")]
    with distributed.Client(cluster) as client:
        client.wait_for_workers(3)
        answers = run_with(client, tasks, retries=1, work=deadly)
    assert [a.error for a in answers[::2]] == ["fine", "fine"]
    assert answers[1].tries == 2 and "KilledWorker" in answers[1].error


@pytest.mark.long
def test_the_command_line_spreads_a_list(listed: Path) -> None:
    command = ("verify", "list.toml", "--farm", "--workers", "2", "--json", "all.json")
    done = started(*command, folder=listed.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 equal" in done.stdout
    answers = json.loads((listed.parent / "all.json").read_text())
    assert [a["board"] for a in answers] == ["host", "host", "host", "microbit"]
    assert answers[3]["result"]["targets"][0]["runs"][0]["instructions"] > 0


def test_several_models_need_a_farm(tmp_path: Path) -> None:
    done = relax_aot("verify", "a.onnx", "b.onnx", folder=tmp_path)
    assert done.returncode == 2 and "--farm" in done.stderr
