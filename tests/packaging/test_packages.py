# SPDX-License-Identifier: Apache-2.0
"""What can be installed: the sdist, the wheel that is built from it, and a checkout (editable).

Nothing is downloaded: the builder is the one of this environment, and a fresh environment
borrows this one's dependencies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import relax_aot
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

DATA_FOLDERS = ("boards", "runtime_c", "templates")


def run(*command: str | Path, folder: Path) -> str:
    # Nothing of the checkout may be importable by accident.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run(
        sys.executable,
        "-m",
        "build",
        "--sdist",
        "--no-isolation",
        "-o",
        folder,
        ROOT,
        folder=folder,
    )
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run("tar", "-xf", sdist, folder=folder)
    (source,) = folder.iterdir()
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "-o",
        folder,
        source,
        folder=folder,
    )
    (built,) = folder.glob("*.whl")
    return built


def fresh_environment(folder: Path) -> Path:
    """A virtual environment's `bin`, in which the dependencies of this one can be imported."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", folder=folder)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(ours) + "\n")
    return folder / "venv" / "bin"


def install(programs: Path, *what: str | Path) -> None:
    run(
        *(sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"),
        *("--no-deps", "--no-index", "--no-build-isolation", *what),
        folder=programs,
    )


def works(programs: Path, elsewhere: Path) -> None:
    """The command line works from a folder that has nothing to do with the checkout."""
    version = run(programs / "relax-aot", "--version", folder=elsewhere)
    assert relax_aot.__version__ in version
    assert "mps2-an386" in run(programs / "relax-aot", "boards", folder=elsewhere)
    model = ROOT / "examples" / "gesture" / "gesture.onnx"
    run(
        *(programs / "relax-aot", "compile", model, "--bound", "n=16", "-o", "out"),
        folder=elsewhere,
    )
    assert (elsewhere / "out" / "raot" / "status.h").is_file()


def tracked(folder: str) -> set[str]:
    """What git would commit of a folder: the packages hold that and nothing else."""
    command = ("git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", folder)
    return set(run(*command, folder=ROOT).splitlines())


def test_the_sdist_is_complete(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {member.partition("/")[2] for member in archive.getnames()}
    for folder in (*DATA_FOLDERS, "relax_aot", "tests", "examples", "docs"):
        assert tracked(folder) <= names, f"missing in the sdist: {sorted(tracked(folder) - names)}"
    assert {"LICENSE", "Makefile", "README.md", "pyproject.toml"} <= names


@pytest.mark.parametrize("folder", DATA_FOLDERS)
def test_the_wheel_carries_the_data_folders(wheel: Path, folder: str) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"relax_aot/_data/{name}" for name in tracked(folder)}
    assert {name for name in names if name.startswith(f"relax_aot/_data/{folder}/")} == expected
    assert expected, f"nothing is tracked in {folder}/"


def test_the_wheel_is_typed_and_licensed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "relax_aot/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


def test_an_installed_wheel_works_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    programs = fresh_environment(tmp_path)
    install(programs, wheel)
    works(programs, tmp_path)
    where = run(
        programs / "python", "-c", "import relax_aot; print(relax_aot.__file__)", folder=tmp_path
    )
    assert str(tmp_path) in where


@pytest.mark.long
def test_an_editable_install_reads_the_checkout(tmp_path: Path) -> None:
    programs = fresh_environment(tmp_path)
    install(programs, "--editable", ROOT)
    works(programs, tmp_path)
    script = "from relax_aot.resources import data_dir; print(data_dir('boards'))"
    boards = run(programs / "python", "-c", script, folder=tmp_path)
    assert Path(boards.strip()) == ROOT / "boards"
