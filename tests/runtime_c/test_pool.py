# SPDX-License-Identifier: Apache-2.0
"""Places of several texts: none is taken twice, and all are free in the end."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from relax_aot.toolchain.compilers import host_compiler
from tests.conftest import ROOT

DECLARED = """
void init(int32_t *links, int32_t places);
int32_t extend(int32_t *text, int32_t held, int32_t count);
void share(const int32_t *text, int32_t count, int32_t *other);
void release(const int32_t *text, int32_t count);
int32_t left(void);
"""
SOURCE = f"""
#include "raot/pool.h"
{DECLARED}
static struct raot_pool pool;
void init(int32_t *links, int32_t places) {{ raot_pool_init(&pool, links, places); }}
int32_t extend(int32_t *text, int32_t held, int32_t count)
{{
    return raot_pool_extend(&pool, text, held, count);
}}
void share(const int32_t *text, int32_t count, int32_t *other)
{{
    raot_pool_share(&pool, text, count, other);
}}
void release(const int32_t *text, int32_t count) {{ raot_pool_release(&pool, text, count); }}
int32_t left(void) {{ return pool.free; }}
"""
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-shared",
         "-fPIC")  # fmt: skip
PLACES, FULL = 23, -7


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder: Path = tmp_path_factory.mktemp("pool")
    (folder / "pool.c").write_text(SOURCE)
    include = f"-I{ROOT / 'runtime_c' / 'include'}"
    command = [*host_compiler().command, *FLAGS, include, "pool.c", "-o", "pool.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ffi = cffi.FFI()
    ffi.cdef(DECLARED)
    return ffi, ffi.dlopen(str(folder / "pool.so"))


def test_random_texts(library: tuple[Any, Any]) -> None:
    """Against a count of the texts that hold each place."""
    ffi, c = library
    rng, links, full = np.random.default_rng(0), ffi.new("int32_t[]", PLACES), 0
    c.init(links, PLACES)
    texts: list[list[int]] = [[]]
    for _ in range(3000):
        at = int(rng.integers(len(texts)))
        text, what = texts[at], rng.integers(3)
        buffer = ffi.new("int32_t[]", [*text, *[-1] * 8])
        if what == 0:
            count = int(rng.integers(8))
            free = c.left()
            status = c.extend(buffer, len(text), count)
            assert status == (FULL if count > free else 0)
            full += status == FULL
            taken = [] if status else list(buffer[len(text) : len(text) + count])
            assert not set(taken) & {place for one in texts for place in one}
            assert list(buffer[0 : len(text)]) == text
            text += taken
        elif what == 1 and len(texts) < 6:
            count = int(rng.integers(len(text) + 1))
            other = ffi.new("int32_t[]", PLACES + 1)
            c.share(buffer, count, other)
            texts.append(list(other[0:count]))
            assert texts[-1] == text[:count]
        else:
            count = int(rng.integers(len(text) + 1))
            c.release(buffer + len(text) - count, count)
            del text[len(text) - count :]
            if not text and len(texts) > 1:
                del texts[at]
        held = Counter(place for one in texts for place in one)
        assert c.left() == PLACES - len(held)
        assert {place: links[place] for place in held} == dict(held)
    assert full > 20
    for text in texts:
        c.release(ffi.new("int32_t[]", text), len(text))
    buffer = ffi.new("int32_t[]", PLACES)
    assert c.left() == PLACES and c.extend(buffer, 0, PLACES) == 0
    assert sorted(buffer) == list(range(PLACES))
