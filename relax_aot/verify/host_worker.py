# SPDX-License-Identifier: Apache-2.0
"""Child process of `verify.host`: runs a sanitized library for its parent.

It imports next to nothing of the package: under a sanitizer, that takes ten times as long.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import IO

from relax_aot.verify.library import Library


def serve(path: Path, requests: IO[bytes], replies: IO[bytes]) -> None:
    """One library; requests are answered in order until the pipe closes."""
    library = Library(path)
    while True:
        try:
            name, *arguments = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(getattr(library, name)(*arguments), replies)
        replies.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
