# SPDX-License-Identifier: Apache-2.0
"""Builds are kept by the digest of what they were made from."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from relax_aot.errors import RelaxAotError


class CacheError(RelaxAotError):
    """The cache folder cannot be written."""


def cache_dir() -> Path:
    """$RELAX_AOT_CACHE, else `relax_aot` in the user's cache folder."""
    base = os.environ.get("RELAX_AOT_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(base) if base else home / "relax_aot"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(
            f"cannot make the cache folder {path}: {error.strerror}; set RELAX_AOT_CACHE to another"
        ) from error
    return path


def digest_of(parts: Iterable[bytes | str]) -> str:
    """Of the parts in order; where one ends and the next begins counts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:40]


def cached_folder(kind: str, digest: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills, made at most once per digest.

    `make` works in a scratch folder that is moved into place when it is complete, so that
    several processes may ask at once and a failure leaves nothing behind.
    """
    target = cache_dir() / f"{kind}-{digest}"
    if target.is_dir():
        return target
    scratch = Path(tempfile.mkdtemp(dir=cache_dir(), prefix=f".{kind}-"))
    try:
        make(scratch)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target
