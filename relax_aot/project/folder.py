# SPDX-License-Identifier: Apache-2.0
"""A folder is written whole or not at all, whatever interrupts it.

All files are first written to a folder next to it; then the new and the old folder are exchanged in
one step of the file system. Where a file system cannot do that, the old one is moved away
first, and back if the new one cannot take its place.
"""

from __future__ import annotations

import ctypes
import filecmp
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from relax_aot.errors import RelaxAotError
from relax_aot.files import write_file
from relax_aot.project.packaging import DIGESTS, EDITABLE, LISTED, MARKER

_EXCHANGE = 2
"""Linux: RENAME_EXCHANGE of renameat2."""
PROOF = "proof/"
"""What `prove` found is of the files that it read."""
_HERE = -100
"""Linux: AT_FDCWD, paths count from the current folder."""


class OutputError(RelaxAotError):
    """The output folder cannot be written."""


def write_folder(files: Mapping[str, bytes], folder: Path) -> Path:
    """All files into `folder`, by way of a sibling folder that takes its place at once.

    A folder that holds something else than a project of ours is refused. Files that have
    not changed keep their time stamps; what the user added to the project before stays, and so
    does an edited `<name>_config.h`.
    """
    try:
        target = folder.resolve()
        _refuse_others(folder, target)
        edited = _edited(folder, target, files)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            fresh = Path(scratch) / "project"
            for name in files:
                write_file(fresh / name, edited if name in edited else files, name)
                _keep_time(target / name, fresh / name)
            for name in _added(folder, target, files):
                _carry(target / name, fresh / name)
            _take_place(fresh, target, Path(scratch) / "previous")
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or error}") from error
    return folder


def _refuse_others(shown: Path, folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{shown} is a file; give a folder with -o")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise OutputError(f"{shown} holds other files; give a new or empty folder with -o")


def kept_edits(files: Mapping[str, bytes], folder: Path) -> list[str]:
    """Files of a written project that are a user's edit, not what was generated."""
    return [
        name
        for name in sorted(files)
        if name.endswith(EDITABLE) and (folder / name).read_bytes() != files[name]
    ]


def _edited(shown: Path, folder: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Edited files, where the new project generates what the old one did. Else the edit cannot be
    kept, and is not lost without a word."""
    kept: dict[str, bytes] = {}
    for name, digest in _digests(folder / MARKER).items():
        if name not in files or not (folder / name).is_file():
            continue
        now = (folder / name).read_bytes()
        if _code(now) == _code(files[name]) or hashlib.sha256(now).hexdigest() == digest:
            continue
        generated = hashlib.sha256(files[name]).hexdigest()
        if generated != digest or any(other.startswith(PROOF) for other in files):
            raise OutputError(
                f"{shown}/{name} was edited, and the new project has other bounds than the one"
                f" that it was edited in ({_changes(now, files[name])}); delete {name} to get the"
                " generated one, or give another folder with -o"
                if generated != digest
                else f"{shown}/{name} was edited: prove the project as it is, by relax-aot prove"
                f" {shown}, or delete {name}"
            )
        kept[name] = now
    return kept


def _code(text: bytes) -> bytes:
    """Without comments and spacing, which name the bounds too."""
    return b" ".join(re.sub(rb"/\*.*?\*/", b"", text, flags=re.DOTALL).split())


def _changes(now: bytes, generated: bytes) -> str:
    """Lines that differ, shortly."""
    before, after = (
        [line for line in text.decode(errors="replace").splitlines() if line.startswith("#define")]
        for text in (now, generated)
    )
    edited = "; ".join(line for line in before if line not in after)
    fresh = "; ".join(line for line in after if line not in before)
    return f"edited: {edited[:200]}; generated: {fresh[:200]}"


def _digests(marker: Path) -> dict[str, str]:
    """What editable files of the project there were as generated; nothing where it does not say."""
    try:
        said = json.loads(marker.read_text(encoding="utf-8"))[DIGESTS]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(k): str(v) for k, v in said.items()} if isinstance(said, dict) else {}


def _added(shown: Path, folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Files that came to the project there from elsewhere, which must not get lost."""
    ours = _listed(folder / MARKER)
    if ours is None:
        return []
    paths = [p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()]
    names = [path.relative_to(folder).as_posix() for path in paths]
    added = [name for name in names if name not in ours and not name.startswith(PROOF)]
    for name in added:
        if name in files and (folder / name).read_bytes() != files[name]:
            raise OutputError(
                f"{shown}/{name} is not of the project that is there, and would be written over;"
                " move it, or give another folder with -o"
            )
    return [name for name in added if name not in files]


def _listed(marker: Path) -> set[str] | None:
    """The files of the project there; None where it does not say."""
    try:
        said = json.loads(marker.read_text(encoding="utf-8"))[LISTED]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {str(name) for name in said} if isinstance(said, list) else None


def _carry(old: Path, new: Path) -> None:
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        taken = new.exists()
    except (FileExistsError, NotADirectoryError):
        taken = True
    if taken:
        raise OutputError(f"{old} stands in the way of the new project; move it")
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(old, new, follow_symlinks=False)


def _keep_time(old: Path, new: Path) -> None:
    # Weights may be large: two files are compared piece by piece.
    if old.is_file() and filecmp.cmp(old, new, shallow=False):
        shutil.copystat(old, new)


def _take_place(fresh: Path, folder: Path, previous: Path) -> None:
    if not folder.exists():
        fresh.rename(folder)
        return
    if exchange(fresh, folder):
        return
    folder.rename(previous)
    try:
        fresh.rename(folder)
    except OSError:
        previous.rename(folder)
        raise


def exchange(one: Path, other: Path) -> bool:
    """Two paths change places in one step; False where that is not to be had here."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    paths = (os.fsencode(one), os.fsencode(other))
    return bool(rename(_HERE, paths[0], _HERE, paths[1], ctypes.c_uint(_EXCHANGE)) == 0)
