# SPDX-License-Identifier: Apache-2.0
"""Child process of `verify.host`: runs a sanitized library for its parent."""

from __future__ import annotations

import sys
from pathlib import Path

from relax_aot.verify.host import serve

if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
