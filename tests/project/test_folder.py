# SPDX-License-Identifier: Apache-2.0
"""Whatever happens while a project is written: the old one is intact, or the new one is whole."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relax_aot import driver
from relax_aot.cli.main import cli
from relax_aot.project import folder as module
from relax_aot.project.folder import OutputError, exchange, write_folder
from relax_aot.project.packaging import NAMES
from tests.conftest import ROOT

OLD = {"relax_aot.json": b"{}", "a.c": b"old", "raot/x.h": b"old"} | {
    f"old{n}.c": b"old" * n for n in range(40)
}
NEW = {"relax_aot.json": b"{ }", "a.c": b"new", "raot/y.h": b"new"} | {
    f"new{n}.c": b"new" * n for n in range(40)
}


def write_for_ever(target: Path) -> None:
    while True:
        write_folder(NEW, target)
        write_folder(OLD, target)


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def failing(monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> None:
    """The call number `at` of a method of Path ends as on a full disk."""
    real, calls = getattr(Path, name), [0]

    def method(self: Path, *arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise OSError(28, "No space left on device")
        return real(self, *arguments, **named)

    monkeypatch.setattr(Path, name, method)


@pytest.mark.slow
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("name", ["open", "mkdir", "rename"])
def test_a_full_disk_leaves_the_old_project(name: str, exchanges: bool, tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_folder(OLD, target)
    failures = 0
    for at in range(1, len(NEW) + 5):
        with pytest.MonkeyPatch.context() as monkeypatch:
            if not exchanges:
                monkeypatch.setattr(module, "exchange", lambda one, other: False)
            failing(monkeypatch, name, at)
            try:
                write_folder(NEW, target)
            except OutputError as error:
                failures += 1
                assert "No space left on device" in str(error)
        assert content(target) in (OLD, NEW), f"{name} number {at}"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        write_folder(OLD, target)
    assert failures > 0 or (name, exchanges) == ("rename", True)


def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    target = tmp_path / "locked" / "out"
    write_folder(OLD, target)
    target.parent.chmod(0o500)
    try:
        if os.access(target.parent, os.W_OK):
            # The superuser may write anywhere but here.
            target = Path("/proc/out")
        with pytest.raises(OutputError, match="cannot write"):
            write_folder(NEW, target)
    finally:
        (tmp_path / "locked").chmod(0o700)
    assert content(tmp_path / "locked" / "out") == OLD


@pytest.mark.slow
def test_killed_at_any_time(tmp_path: Path) -> None:
    """Fifty writers end by SIGKILL at random moments; each leaves one project or the other."""
    target, seen = tmp_path / "out", set()
    write_folder(OLD, target)
    if not exchange(target, write_folder(OLD, tmp_path / "other")):
        pytest.skip("no file system here that exchanges two folders")
    chance = random.Random(0)
    for _ in range(50):
        writer = os.fork()
        if writer == 0:
            write_for_ever(target)
        time.sleep(chance.uniform(0.005, 0.05))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        found = content(target)
        assert found in (OLD, NEW)
        seen.add(found["a.c"])
    assert seen == {b"old", b"new"}


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    write_folder(OLD, tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    write_folder(NEW, tmp_path / "link")
    assert content(tmp_path / "real") == NEW and (tmp_path / "link").is_symlink()


def test_other_people_s_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(OutputError, match="holds other files"):
        write_folder(NEW, tmp_path / "mine")
    with pytest.raises(OutputError, match="is a file"):
        write_folder(NEW, tmp_path / "mine" / "thesis.txt")
    assert content(tmp_path / "mine") == {"thesis.txt": b"years"}


def listing(*names: str) -> bytes:
    return json.dumps({"files": ["relax_aot.json", *names]}).encode()


@pytest.mark.parametrize("links", [True, False])
def test_what_the_user_added_stays(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    write_folder({"relax_aot.json": listing("a.c", "gone.c"), "a.c": b"1", "gone.c": b"2"}, target)
    for name in ("mine.c", "build/deep/x.o", "proof/proof.json", "raot/mine.h"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(name)
    (target / "link").symlink_to("mine.c")
    (target / "nowhere").symlink_to("not/there")
    (target / "folder").symlink_to(tmp_path)
    if not links:
        monkeypatch.delattr(os, "link")
        monkeypatch.setattr(os, "link", failing_link, raising=False)
    new = {"relax_aot.json": listing("a.c", "raot/x.h"), "a.c": b"3", "raot/x.h": b"4"}
    write_folder(new, target)
    kept = {"mine.c": b"mine.c", "build/deep/x.o": b"build/deep/x.o", "raot/mine.h": b"raot/mine.h"}
    assert content(target) == new | kept | {"link": b"mine.c"}
    assert str((target / "nowhere").readlink()) == "not/there"
    assert (target / "folder").readlink() == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def failing_link(*arguments: Any, **named: Any) -> None:
    raise OSError(1, "Operation not permitted")


def test_a_file_of_the_user_s_is_not_written_over(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_folder({"relax_aot.json": listing("a.c"), "a.c": b"1"}, target)
    (target / "main.c").write_text("mine")
    before = content(target)
    new = {"relax_aot.json": listing("a.c", "main.c"), "a.c": b"3", "main.c": b"4"}
    with pytest.raises(OutputError, match=r"out/main\.c is not of the project .* move it"):
        write_folder(new, target)
    (target / "zephyr").write_text("a file")
    with pytest.raises(OutputError, match="zephyr stands in the way"):
        write_folder({"relax_aot.json": listing("zephyr/y"), "zephyr/y": b""}, target)
    assert content(target) == before | {"zephyr": b"a file"}
    (target / "zephyr").unlink()
    (target / "raot").mkdir()
    (target / "raot" / "mine.h").write_text("")
    with pytest.raises(OutputError, match=r"raot/mine.h stands in the way"):
        write_folder({"relax_aot.json": listing("raot"), "raot": b""}, target)
    (target / "raot" / "mine.h").unlink()
    (target / "main.c").write_text("4")
    write_folder(new, target)
    assert content(target) == new


@pytest.mark.slow
def test_a_project_names_its_files(tmp_path: Path) -> None:
    model = ROOT / "examples" / "gesture" / "gesture.onnx"
    project = driver.compile_model(model, "host", driver.Options(bounds={"n": (1, 8)}))
    for kind in NAMES:
        at = project.write(tmp_path / "out", kind)
        assert json.loads((at / "relax_aot.json").read_text())["files"] == sorted(content(at))
        (at / "mine.txt").write_text(kind)
        (project.write(at, kind) / "mine.txt").unlink()


@pytest.mark.parametrize("package", ["flat", "zephyr", "platformio"])
@pytest.mark.long
def test_an_edit_of_the_bounds_is_kept_or_refused(package: str, tmp_path: Path) -> None:
    model = ROOT / "examples" / "gesture" / "gesture.onnx"
    runner, out = CliRunner(), tmp_path / "out"

    def compiled(bound: int, *more: str) -> Result:
        bounds = ["--bound", f"n={bound}", "--package", package, *more]
        return runner.invoke(cli, ["compile", str(model), "-o", str(out), *bounds])

    assert compiled(64).exit_code == 0
    (config,) = out.rglob("gesture_config.h")
    generated = config.read_text()
    edited = generated.replace("GESTURE_N_MAX 64", "GESTURE_N_MAX 32")
    assert edited != generated
    config.write_text(edited)
    for more in ((), ("--optimize", "size")):
        again = compiled(64, *more)
        assert again.exit_code == 0 and config.read_text() == edited
        assert "gesture_config.h: your edit is kept" in again.output
    other = compiled(128)
    assert isinstance(other.exception, OutputError) and config.read_text() == edited
    for part in ("was edited", "N_MAX 32", "N_MAX 128", "delete"):
        assert part in str(other.exception)
    assert compiled(32).exit_code == 0 and "N_MAX 32" in config.read_text()
    config.unlink()
    assert compiled(128).exit_code == 0 and "N_MAX 128" in config.read_text()
    assert "your edit" not in compiled(128).output
