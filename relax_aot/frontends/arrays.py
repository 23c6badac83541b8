# SPDX-License-Identifier: Apache-2.0
"""Arrays in .npz files of users."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from relax_aot.ops._op import Array

ZIP = (b"PK\3\4", b"PK\5\6")
"""What archives begin with; the second one is empty. NumPy reads other files as pickles."""


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays by their names; a ValueError says why a file cannot be read."""
    try:
        with path.open("rb") as file:
            if file.read(4) not in ZIP:
                raise ValueError("it is no .npz file")
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return {key: stored[key] for key in stored.files}
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except (EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"it is damaged ({error})") from None
