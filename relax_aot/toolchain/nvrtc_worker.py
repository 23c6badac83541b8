# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ of standard input -> cubin of standard output, by NVRTC, in a process of its own.

NVRTC orders some of what it does by addresses in memory: in a process with a random layout, or
one that has done other things, the same text gives other machine code of the same meaning. So the
layout is fixed (personality(2)), and only this file runs before.

Arguments: the library, its built-in functions or nothing, the name of the file, options.
"""

from __future__ import annotations

import ctypes
import os
import sys

_NO_RANDOM_ADDRESSES = 0x0040000
_PRESENT = 0xFFFFFFFF


def _fix_addresses(arguments: list[str]) -> None:
    """Starts this program again, with the layout fixed. A sandbox may refuse that."""
    personality = ctypes.CDLL(None).personality
    personality.argtypes = (ctypes.c_ulong,)
    now = personality(_PRESENT)
    refused = now < 0 or personality(now | _NO_RANDOM_ADDRESSES) < 0
    if not refused and now & _NO_RANDOM_ADDRESSES == 0:
        os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, *arguments])


def main(path: str, builtins: str, file: str, *options: str) -> int:
    """The exit status of NVRTC; its log goes to standard error."""
    text = sys.stdin.buffer.read()
    if builtins:
        ctypes.CDLL(builtins)  # NVRTC finds them by name alone
    library = ctypes.CDLL(path)
    program = ctypes.c_void_p()
    status = library.nvrtcCreateProgram(ctypes.byref(program), text, file.encode(), 0, None, None)
    if status == 0:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvrtcCompileProgram(program, len(options), given)
        sys.stderr.buffer.write(_contents(library, program, "ProgramLog").rstrip(b"\0"))
    if status == 0:
        sys.stdout.buffer.write(_contents(library, program, "CUBIN"))
        return 0
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    sys.stderr.buffer.write(b"\n" + library.nvrtcGetErrorString(status))
    return 1


def _contents(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    if getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) != 0:
        return b""
    data = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, data)
    return data.raw


if __name__ == "__main__":
    _fix_addresses(sys.argv[1:])
    sys.exit(main(*sys.argv[1:]))
