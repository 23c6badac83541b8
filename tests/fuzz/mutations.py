# SPDX-License-Identifier: Apache-2.0
"""Model files with bytes changed, and what the compiler makes of them, in a process of its own.

Run as a module, it reads requests from standard input: a file with a model (or none: the board is
shown alone), its options, a board and an empty folder to work in. It answers how the command ended,
every file that was opened for writing, made, moved or removed elsewhere, the seconds of processor
time that it took, and the most memory that the process has had so far.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

from onnx import ModelProto

from relax_aot.cache import cache_dir

MEMORY = 6 * 2**30
"""Of address space: what asks for more has no bound on its size."""

WRITES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod",
          "os.truncate", "os.chown", "os.utime", "shutil.rmtree", "shutil.move",
          "shutil.copyfile", "os.mkfifo", "subprocess.Popen", "os.system", "os.exec",
          "socket.connect")  # fmt: skip

BELOW = ("os.mkdir", "os.remove", "os.rmdir")
"""Of these, the ones whose last argument is the folder that the path starts in."""


def mutated(data: bytes, other: bytes, random: Random) -> bytes:
    """The bytes with one to eight changes, as a bad disk or an enemy would make them."""
    result = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        if not result:
            break
        at = random.randrange(len(result))
        length = random.choice((1, 2, 4, 16, 64, 256))
        match random.randrange(9):
            case 0:
                result[at] ^= 1 << random.randrange(8)
            case 1:
                result[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 2:
                result[at:at] = random.randbytes(length)
            case 3:
                del result[at : at + length]
            case 4:
                result[at:at] = result[at : at + length]
            case 5:
                result[at : at + 10] = b"\xff" * 9 + b"\x01"  # the number -1
            case 6:
                start = random.randrange(len(other))
                result[at : at + length] = other[start : start + length]
            case 7:
                del result[at:]
            case _:
                result[at] = (result[at] + random.choice((-1, 1))) % 256
    return bytes(result)


def structured(data: bytes, other: bytes, random: Random) -> bytes:
    """Changes to the early part of a file, where names, shapes and attributes stand."""
    limit = min(len(data), 4096)
    return mutated(data[:limit], other, random) + data[limit:]


def changed_fields(data: bytes, other: bytes, random: Random) -> bytes:
    """Still a model, with one to three fields that hold something else."""
    model = ModelProto.FromString(data)
    donor = ModelProto.FromString(other)
    for _ in range(random.randint(1, 3)):
        _change(model, donor, random)
    return bytes(model.SerializeToString())


def _change(message: Any, donor: Any, random: Random) -> None:
    """One field somewhere below, most likely far below."""
    fields = [(field, value) for field, value in message.ListFields() if _list(value) or value]
    if not fields:
        return
    field, value = random.choice(fields)
    if not _list(value):
        if field.message_type is not None:
            _change(value, donor, random)
        elif field.enum_type is not None:
            setattr(message, field.name, random.choice(field.enum_type.values).number)
        else:
            setattr(message, field.name, _another(value, random))
        return
    at = random.randrange(len(value))
    kind = random.random()
    if kind < 0.1:
        del value[at]
    elif kind < 0.2:
        value.extend([value[at]])
    elif field.message_type is not None:
        theirs = list(getattr(donor.graph, field.name, ()))
        if kind < 0.3 and theirs and type(theirs[0]) is type(value[at]):
            value[at].CopyFrom(random.choice(theirs))
        else:
            _change(value[at], donor, random)
    elif kind < 0.5:
        value[at] = random.choice(list(value))
    else:
        value[at] = _another(value[at], random)


def _list(value: Any) -> bool:
    return hasattr(value, "extend") and not isinstance(value, bytes)


def _another(value: Any, random: Random) -> Any:
    if isinstance(value, bytes):
        return mutated(value, value or b"?", random)
    if isinstance(value, str):
        return random.choice((value + "x", "", value[:-1], "/../x", "\x00", "Add", "If", "x1"))
    if isinstance(value, float):
        return random.choice((0.0, -value, float("nan"), float("inf"), 3e38))
    extreme = (0, -1, 1, 2, 3, value + 1, value - 1, 100, 2**20, 2**31 - 1)
    return random.choice(extreme)


class Watch:
    """Notes what the interpreter writes."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.on = False
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = args
            writing = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writing or (isinstance(mode, str) and set(mode) & set("wax+")):
                self.paths.append(str(path))
        elif event in WRITES:
            folder = args[-1] if event in BELOW and isinstance(args[-1], int) else -1
            start = Path(f"/proc/self/fd/{folder}").resolve() if folder >= 0 else Path()
            self.paths.append(str(start / str(args[0])))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from relax_aot import driver  # noqa: F401
    from relax_aot.cli import main as cli
    from relax_aot.cli import output as cli_output

    watch = Watch()
    for line in sys.stdin:
        request = json.loads(line)
        if request["model"] is None:
            sys.argv = ["relax-aot", "boards", request["board"]]
        else:
            sys.argv = ["relax-aot", "compile", request["model"], "-o", request["output"]]
            sys.argv += ["--quiet", "--board", request["board"]]
        for name, (low, high) in request["bounds"].items():
            sys.argv += ["--bound", f"{name}={low}..{high}"]
        said = io.StringIO()
        began = time.process_time()
        watch.paths, watch.on = [], True
        try:
            with redirect_stdout(said), redirect_stderr(said):
                code = cli.main()
            told = {0: "compiled", cli_output.USER_ERROR: "refused"}
            ended = told.get(code, f"exit {code}")
        except BaseException:  # noqa: BLE001
            ended = "traceback"
            said.write(traceback.format_exc())
        watch.on = False
        took = time.process_time() - began
        if ended == "refused" and not said.getvalue().strip():
            ended = "silent"
        outside = [p for p in watch.paths if not _below(p, Path(request["output"]))]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answer = [ended, said.getvalue()[-3000:], outside, took, peak]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _below(path: str, folder: Path) -> bool:
    """`folder` itself, what is in it, or the sibling that becomes it when all is written; and
    the compiler's cache, where the planner's search is kept once it is built."""
    whole = Path(os.path.normpath(Path.cwd() / path))
    if whole == folder.parent or whole.is_relative_to(cache_dir()):
        return True  # made where it is missing
    if not whole.is_relative_to(folder.parent):
        return False
    rest = whole.relative_to(folder.parent).parts
    return bool(rest) and (rest[0] == folder.name or rest[0].startswith(f".{folder.name}."))


if __name__ == "__main__":
    main()
