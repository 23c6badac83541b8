# SPDX-License-Identifier: Apache-2.0
"""Frama-C Eva on a generated project: no run, whatever its sizes and numbers, does anything
undefined.

A driver calls the model with every int32_t as each size, and any bytes as inputs, state and
arena. Eva follows all these calls at once; what it cannot exclude is an alarm. The C is the
one that runs on targets without vectors.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relax_aot.emit.render import render
from relax_aot.errors import RelaxAotError
from relax_aot.files import write_files
from relax_aot.project import Project
from relax_aot.project.folder import write_folder
from relax_aot.project.packaging import MARKER
from relax_aot.toolchain.tools import find
from relax_aot.verify.program import require_linked

DRIVER = "proof/driver.c"
RESULT = "proof/proof.json"
WIDE, NARROW = "gcc_x86_64", "gcc_x86_32"
"""Machines with pointers of 64 and of 32 bits, by Frama-C's names."""
FLAGS = (
    "-c11", "-warn-special-float", "none",
    "-eva", "-eva-split-limit", "4096", "-eva-msg-key=-initial-state,-final-states",
    "-cpp-extra-args=-I. -CC -U__SSE__ -U__SSE2__ -U__AVX__",
)  # fmt: skip
_ALARM = re.compile(r"^\[eva:alarm\] (\S+): Warning: ?(.*(?:\n  .*)*)", re.MULTILINE)


class ProofError(RelaxAotError):
    """Frama-C came to no end."""


@dataclass(frozen=True, slots=True)
class Proof:
    """`alarms` are what Eva could not exclude; `statuses` what it thinks that runs answer."""

    alarms: tuple[str, ...]
    functions: int
    statements: int
    statements_seen: int
    statuses: tuple[str, ...]
    seconds: float
    version: str
    command: tuple[str, ...]
    files: Mapping[str, bytes]
    """What is put into the project, by path."""

    @property
    def ok(self) -> bool:
        """No alarm, and not because no run came to its end."""
        return not self.alarms and any(_may_be_ok(status) for status in self.statuses)

    def lines(self) -> list[str]:
        return [
            f"{len(self.alarms)} alarms in {self.functions} functions",
            f"{self.statements_seen} of {self.statements} statements reached",
            f"{self.seconds:.0f} s, Frama-C {self.version}",
            *self.alarms,
        ]


def command_of(project: Project) -> tuple[str, ...]:
    """What is run in the project's folder."""
    wide = project.board.family == "host" or project.board.prefix.startswith("aarch64")
    return _command(WIDE if wide else NARROW, project.units)


def _command(machine: str, units: Sequence[str]) -> tuple[str, ...]:
    return ("frama-c", "-machdep", machine, *FLAGS, DRIVER, *units)


def prove(project: Project, seconds: float | None = None) -> Proof:
    """Runs Eva in a folder of its own; `seconds` is the longest that it may take."""
    if project.interface.stepwise:
        raise ProofError(
            "Frama-C cannot analyze a run that returns between kernels: prove the model without "
            "--stepwise; its kernels and checks are the same"
        )
    if project.interface.threaded:
        raise ProofError(
            "Frama-C cannot analyze threads: prove the model without --threads; its loops and"
            " checks are the same"
        )
    require_linked(project, "a proof")
    driver = render("verify/proof.c.j2", model=project.view).encode()
    files = project.packaged("flat") | {DRIVER: driver}
    return _run(project.name, files, command_of(project), seconds)


def write(project: Project, proof: Proof, folder: Path) -> Path:
    """The project with what was found in its folder proof/."""
    return write_folder(project.packaged("flat") | proof.files, folder)


def prove_again(folder: Path, seconds: float | None = None) -> Proof:
    """For a project that was proven before and has been changed since, its bounds say. What is
    found takes the place of what lies in proof/."""
    try:
        paths = [path for path in folder.rglob("*") if path.is_file()]
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        command = json.loads(files[RESULT])["command"]
        at = command.index(DRIVER)
        machine = command[command.index("-machdep") + 1]
        units = [unit for unit in command[at + 1 :] if not unit.startswith("-")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        units = []
    if not units or machine not in (WIDE, NARROW) or not {MARKER, DRIVER, *units} <= files.keys():
        raise ProofError(
            f"{folder} contains no project with a proof; create it with"
            f" relax-aot prove MODEL -o {folder}"
        )
    proof = _run(folder.name, files, _command(machine, units), seconds)
    write_folder({**files, **proof.files}, folder)
    return proof


def _run(
    name: str, files: Mapping[str, bytes], command: tuple[str, ...], seconds: float | None
) -> Proof:
    program = find("frama-c")
    with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
        write_files(Path(scratch), files)
        start = time.monotonic()
        try:
            done = subprocess.run(
                [program, *command[1:]],
                cwd=scratch,
                env={**os.environ, "PWD": scratch},
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise ProofError(
                f"Frama-C did not finish {name} after {seconds:.0f} s; use a larger --seconds "
                "or smaller bounds"
            ) from None
        took = time.monotonic() - start
    if "ANALYSIS SUMMARY" not in done.stdout:
        raise ProofError(f"Frama-C failed on {name}:\n{(done.stdout + done.stderr)[-2000:]}")
    return _proof(done.stdout, took, command, files[DRIVER])


def _proof(said: str, took: float, command: tuple[str, ...], driver: bytes) -> Proof:
    alarms = tuple(f"{place}: {_one_line(text)}" for place, text in _ALARM.findall(said))
    counted = re.search(r"(\d+) alarms? generated", said)
    if (int(counted[1]) if counted else 0) != len(alarms):
        alarms += (f"{counted[1] if counted else 0} alarms",)
    functions, reached = (
        re.search(pattern, said)
        for pattern in (
            r"(\d+) functions? analyzed",
            r"(\d+) statements? reached \(out of (\d+)\)",
        )
    )
    shown = re.findall(r"Frama_C_show_each_status:\s*(.*)", said)
    proof = Proof(
        alarms,
        int(functions[1]) if functions else 0,
        int(reached[2]) if reached else 0,
        int(reached[1]) if reached else 0,
        tuple(dict.fromkeys(shown)),
        took,
        _version(),
        command,
        {},
    )
    quoted = " ".join(f"'{part}'" if " " in part else part for part in command)
    figures = {
        "ok": proof.ok,
        "alarms": list(alarms),
        "functions": proof.functions,
        "statements": proof.statements,
        "statements_reached": proof.statements_seen,
        "frama_c": proof.version,
        "command": list(command),
    }
    files = {
        DRIVER: driver,
        "proof/command.txt": f"{quoted}\n".encode(),
        RESULT: (json.dumps(figures, indent=1) + "\n").encode(),
        "proof/frama-c.txt": said.encode(),
    }
    return replace(proof, files=files)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _may_be_ok(status: str) -> bool:
    """Whether a set of numbers as Eva writes it, `{0; -9}` or `[-9..0]`, holds RAOT_OK."""
    ends = re.fullmatch(r"\[(-?\d+|--)\.\.(-?\d+|--)\].*", status.strip())
    if ends is not None:
        low, high = ends.groups()
        return (low == "--" or int(low) <= 0) and (high == "--" or int(high) >= 0)
    return "0" in re.findall(r"-?\d+", status)


def _version() -> str:
    said = subprocess.run(
        [find("frama-c"), "-version"], capture_output=True, text=True, check=False
    ).stdout
    return said.split()[0] if said.strip() else "unknown"
