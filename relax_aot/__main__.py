# SPDX-License-Identifier: Apache-2.0
"""`relax-aot`, and `python -m relax_aot` which is the same.

An interrupt while modules are imported ends the process at once: it would leave a traceback, and
modules written in C half initialized.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` imports more modules
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """The entry point."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:  # else whoever started it has interrupts ignored
        signal.signal(signal.SIGINT, _interrupt)
    # Hundreds of searches for garbage would take a tenth of the start: modules and programs stay.
    gc.set_threshold(100_000, 20, 20)
    from relax_aot.cli.main import main as command_line

    code = command_line()
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is the interpreter's end
    if code == INTERRUPTED:
        os._exit(code)  # an interrupt in an `exec` would end the process by the signal
    sys.exit(code)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
