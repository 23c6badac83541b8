# SPDX-License-Identifier: Apache-2.0
"""The C of a tokenizer as a program."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relax_aot.emit.tokenizer import emit_tokenizer
from relax_aot.frontends.llm.tokenizer import read_tokenizer
from relax_aot.frontends.llm.tokenizer.tables import Tokenizer
from relax_aot.project import runtime_headers
from relax_aot.toolchain.compilers import host_compiler
from tests.conftest import ROOT

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wvla", "-Wdouble-promotion",
          "-Wundef", "-Werror")  # fmt: skip
SANITIZED = ("-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FRAME, SPECIAL = 1, 2
LONGEST, CAPACITY = 20_000, 60_000


@dataclass(frozen=True)
class Program:
    """`longest`: the longest word for which it has scratch memory."""

    path: Path

    def _run(self, orders: bytes) -> bytes:
        done = subprocess.run([self.path], input=orders, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def encode(
        self,
        texts: Sequence[bytes],
        options: int = FRAME | SPECIAL,
        longest: int = LONGEST,
        capacity: int = CAPACITY,
    ) -> list[list[int] | int]:
        """The tokens of each text, or a status."""
        head = [struct.pack("=5i", 0, len(text), options, longest, capacity) for text in texts]
        answer = self._run(
            b"".join(part for pair in zip(head, texts, strict=True) for part in pair)
        )
        numbers = np.frombuffer(answer, np.int32)
        found: list[list[int] | int] = []
        at = 0
        for _ in texts:
            status, count = numbers[at : at + 2].tolist()
            at += 2 + count
            found.append(status or numbers[at - count : at].tolist())
        assert at == len(numbers)
        return found

    def decode(self, tokens: Sequence[int]) -> list[bytes | int]:
        """The text of each token, and that of the end; or statuses."""
        answer = self._run(struct.pack(f"={len(tokens) + 2}i", 1, len(tokens), *tokens))
        found: list[bytes | int] = []
        at = 0
        for _ in range(len(tokens) + 1):
            status, count = struct.unpack_from("=2i", answer, at)
            at += 8 + count
            found.append(status or answer[at - count : at])
        return found

    def decoded(self, tokens: Sequence[int]) -> bytes:
        return b"".join(text for text in self.decode(tokens) if isinstance(text, bytes))


def program_of(folder: Path, flags: Sequence[str] = STRICT) -> Program:
    """The program of the tokenizer in a folder."""
    return program_with(read_tokenizer(folder), folder, flags)


def program_with(tokenizer: Tokenizer, folder: Path, flags: Sequence[str] = STRICT) -> Program:
    """The program of a tokenizer, in a folder."""
    sources = emit_tokenizer(tokenizer, "toy")
    files = {path: text.encode() for path, text in sources.files.items()} | sources.blocks
    files |= runtime_headers(files)
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    main = ROOT / "tests" / "frontends" / "llm" / "tokenizer_program.c"
    command = [*host_compiler().command, *flags, "-I.", str(main), sources.unit, "-o", "toy"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Program(folder / "toy")
