# SPDX-License-Identifier: Apache-2.0
"""Proposed tokens are those behind the latest place with the most equal tokens before it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from relax_aot.toolchain.compilers import host_compiler
from tests.conftest import ROOT

SOURCE = """
#include "raot/propose.h"
int32_t propose(int32_t *tokens, int32_t count, int32_t most);
int32_t propose(int32_t *tokens, int32_t count, int32_t most)
{
    return raot_propose(tokens, count, most);
}
"""
LEAST, LONGEST = 2, 4
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-shared",
         "-fPIC")  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder: Path = tmp_path_factory.mktemp("propose")
    (folder / "propose.c").write_text(SOURCE)
    include = f"-I{ROOT / 'runtime_c' / 'include'}"
    command = [*host_compiler().command, *FLAGS, include, "propose.c", "-o", "propose.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ffi = cffi.FFI()
    ffi.cdef("int32_t propose(int32_t *tokens, int32_t count, int32_t most);")
    return ffi, ffi.dlopen(str(folder / "propose.so"))


def expected(text: list[int], most: int) -> list[int]:
    for length in range(LONGEST, LEAST - 1, -1):
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == text[len(text) - length :]:
                longer = list(text)
                for place in range(end, end + most):
                    longer.append(longer[place])
                return longer[len(text) :]
    return []


def test_proposals(library: tuple[Any, Any]) -> None:
    ffi, c = library
    rng, found_some = np.random.default_rng(4), 0
    for count in [*range(12), *rng.integers(12, 80, 300).tolist()]:
        text = rng.integers(0, rng.integers(1, 9), count).tolist()
        for most in (0, 1, 5):
            tokens = ffi.new("int32_t[]", [*text, *[-1] * (most + 1)])
            found = c.propose(tokens, count, most)
            wanted = expected(text, most)
            assert list(tokens[count : count + found]) == wanted
            assert list(tokens[0:count]) == text
            assert tokens[count + most] == -1
            found_some += found > 0
    assert found_some > 100
