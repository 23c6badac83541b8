# SPDX-License-Identifier: Apache-2.0
"""Programs of a project: the chat whose weights are a file, that of a board, and no heap."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

import relax_aot as rx
from relax_aot.cli.main import cli
from tests.frontends.llm.checkpoints import Llama
from tests.frontends.llm.tokenizer_files import KINDS

STRICT = ("-std=c11", "-O0", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wmissing-prototypes",
          "-Werror", "-ffp-contract=off", "-fno-strict-aliasing")  # fmt: skip
CONTEXT, CHUNK = 60, 4
PROMPT = "def f(x): return"
HEAP = """
#include <stddef.h>
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void __libc_free(void *old);
int heap_calls;
void *malloc(size_t bytes) { heap_calls++; return __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { heap_calls++; return __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { heap_calls++; return __libc_realloc(old, bytes); }
void free(void *old) { heap_calls++; __libc_free(old); }
"""
"""Linked in front of the C library, whose allocator it counts."""
MAIN = """
#include "toy_generate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern int heap_calls;
static RAOT_ALIGNAS(TOY_ALIGNMENT) unsigned char arena[TOY_GENERATE_ARENA_BYTES];
static RAOT_ALIGNAS(TOY_ALIGNMENT) unsigned char state[TOY_STATE_BYTES];
static char kept[4096];
static size_t used;
static int keep(void *user, int32_t token, const char *text, size_t bytes)
{
    (void)user; (void)token;
    memcpy(kept + used, text, bytes);
    used += bytes;
    return 0;
}
int main(void)
{
    const struct toy_memory memory = {arena, sizeof arena, state};
    const struct toy_sampling how = {.max_tokens = 30, .temperature = 0.7f, .options = 1};
    int32_t count = 0;
    const int before = heap_calls;
    const int failed = toy_init(&memory) != RAOT_OK ||
        toy_generate(&memory, PROMPT, strlen(PROMPT), &how, keep, NULL, &count) != RAOT_OK;
    const int calls = heap_calls - before;
    free(realloc(malloc(3), 5));
    printf("%d %d %d %d %zu %zu\\n", failed, calls, heap_calls - before - calls, (int)count,
           sizeof arena, sizeof state);
    return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "toy"
    folder.mkdir()
    shape = Llama(words=690, width=32, hidden=64, layers=1, queries=2, keys=1, size=8)
    shape.write(folder)
    KINDS["llama3"]().save(str(folder / "tokenizer.json"))
    return folder


def project(folder: Path, out: Path, *more: str) -> str:
    options = ["--context", str(CONTEXT), "--chunk", str(CHUNK), "--name", "toy", "-o", str(out)]
    done = CliRunner().invoke(cli, ["llm", str(folder), *options, *more])
    assert done.exit_code == 0, done.output
    return done.output


def run(command: Sequence[str | Path], at: Path, said: str = "") -> str:
    done = subprocess.run(
        command, cwd=at, input=said, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:3000]
    return done.stdout


def expected(folder: Path, count: int, numerics: str = "blocked") -> str:
    model = rx.load_llm(folder, context=CONTEXT, chunk=CHUNK)
    host = rx.compile(model, name="toy", numerics=numerics).host()
    return str(host.generate(PROMPT, max_tokens=count))


@pytest.mark.slow
@pytest.mark.long
def test_a_chat_maps_its_weights(folder: Path, tmp_path: Path) -> None:
    project(folder, tmp_path / "out", "--weights", "blob")
    out, units = tmp_path / "out", ("toy.c", "toy_tokenizer.c", "toy_generate.c", "chat/main.c")
    run(["gcc", *STRICT, "-I.", *units, "-lm", "-o", "chat/run"], out)
    command = [str(out / "chat" / "run"), "--max-tokens", "9"]
    assert run(command, out, PROMPT) == expected(folder, 9) + "\n"
    # The file lies elsewhere, or is that of another program.
    shutil.move(out / "toy_weights.bin", tmp_path / "w.bin")
    given = [*command, "--weights", str(tmp_path / "w.bin")]
    assert run(given, out, PROMPT) == expected(folder, 9) + "\n"
    damaged = bytearray((tmp_path / "w.bin").read_bytes())
    damaged[5] ^= 1
    (tmp_path / "w.bin").write_bytes(damaged)
    for wrong in (given, command):
        done = subprocess.run(wrong, cwd=out, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "not the weights of this program" in done.stderr


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.parametrize("weights", ["asm", "blob"])
def test_a_board_writes_the_text_of_the_host(folder: Path, weights: str, tmp_path: Path) -> None:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    board = ("--board", "mps2-an500", "--numerics", "ordered", "--weights", weights)
    said = project(folder, tmp_path, *board)
    given = (f"PROMPT={PROMPT}", "EXTRA=-DMAX_TOKENS=9 -Wall -Wextra -Werror")
    text = run(["make", "-s", "-C", "board", "run", *given], tmp_path)
    assert text == PROMPT + expected(folder, 9, numerics="ordered") + "\n"
    sizes = run(["arm-none-eabi-nm", "-S", "board/toy.elf"], tmp_path)
    taken = {name: int(size, 16) for size, name in re.findall(r" (\w{8}) \w (\w+)$", sizes, re.M)}
    printed = {int(number) for number in re.findall(r"(\d+) bytes", said)}
    assert taken["arena"] in printed and taken["state"] in printed
    assert not {"malloc", "_malloc_r", "free", "_sbrk"} & set(taken)


@pytest.mark.slow
@pytest.mark.long
def test_no_call_of_the_heap(folder: Path, tmp_path: Path) -> None:
    said = project(folder, tmp_path)
    units = ["toy.c", "toy_weights.c", "toy_tokenizer.c", "toy_generate.c"]
    run(["gcc", *STRICT, "-I.", "-c", *units], tmp_path)
    objects = [unit.replace(".c", ".o") for unit in units]
    wanted = re.findall(r" U (\w+)$", run(["nm", "-u", *objects], tmp_path), re.M)
    assert not {"malloc", "calloc", "realloc", "free", "mmap", "sbrk"} & set(wanted)
    (tmp_path / "main.c").write_text(MAIN.replace("PROMPT", f'"{PROMPT}"'))
    (tmp_path / "heap.c").write_text(HEAP)
    run(["gcc", "-std=c11", "-I.", "main.c", "heap.c", *objects, "-lm", "-o", "run"], tmp_path)
    failed, calls, known, count, *sizes = map(int, run([tmp_path / "run"], tmp_path).split())
    assert (failed, calls, known, count) == (0, 0, 3, 30)
    assert set(sizes) <= {int(number) for number in re.findall(r"(\d+) bytes", said)}
