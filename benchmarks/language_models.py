# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of language models on this machine, paired with llama.cpp.

    python benchmarks/language_models.py [--runs 40] [--shape S] [--kinds F32,F16,BF16,Q8_0,Q4_0]
        [--threads 2] [--prefill 64,256] [--chunk 64] [--without-avx512] [--llama2c runq.so]
        [--boards raspberry-pi-4b,jetson-orin-nano-cpu]

Models have random weights: S = width 288, hidden 768, 6 layers of 6 heads; M = 768, 2048, 12 layers
of 12 heads; both with a tied vocabulary of 32000. Decode is one token after 16 and 256 others,
prefill is 64 and 256 tokens, which ours reads in chunks. All sides read the same weights and are
called alternately, so that a busy machine hits all; the median of processor time counts. With
several threads, it is the median of the fastest quarter of elapsed times: others that run on the
machine stop one thread, for which the rest wait. Our caches of keys and values are float32,
those of llama.cpp float16, its default. Ours is the library that the project's own CMakeLists.txt
builds, which chooses instructions at run time; `--without-avx512` leaves out those of AVX-512, as
packages of llama.cpp often do. llama.cpp is the package `llama-cpp-python`; without it, ours is
measured alone. `--llama2c` names a library of llama2.c's `runq.c`, with weights of 8 bits in groups
of 32 and caches of float32, which Q8_0 is compared with:

    cc -shared -fPIC -Ofast -fopenmp -march=native -Dmain=runq_main runq.c -o runq.so -lm

With `--boards`, the instructions of one decoded token on these emulated boards are counted instead.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SHAPES: dict[str, dict[str, Any]] = {
    "S": {"width": 288, "hidden": 768, "layers": 6, "queries": 6, "keys": 6, "size": 48},
    "M": {"width": 768, "hidden": 2048, "layers": 12, "queries": 12, "keys": 12, "size": 64},
}
WORDS, CONTEXT, GROUP, TOKEN = 32000, 264, 32, 77
CONTEXTS = (16, 256)
FASTEST = 4
"""With several threads, one in so many calls counts."""
TOGETHER, PAUSE = 20, 0.3
"""Calls of one side, and seconds before them: threads of the other one look for work that long."""
KINDS = {"F32": None, "F16": None, "BF16": None, "Q8_0": "q8_0", "Q4_0": "q4_0"}
"""The form of the weights, and the option `quantize` for it."""
TOKENS: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [f"<{number}>" for number in range(WORDS)],
    "tokenizer.ggml.scores": [float(-number) for number in range(WORDS)],
    "tokenizer.ggml.token_type": [1] * WORDS,
}
"""Without which llama.cpp reads no file."""
SHIM = """
#include "lm.h"
static RAOT_ALIGNAS(64) unsigned char arena[LM_ARENA_BYTES];
static RAOT_ALIGNAS(64) unsigned char state[LM_STATE_BYTES];
static float logits[LM_DECODE_LOGITS_COUNT];
static struct lm_memory memory = {
    .arena = arena, .arena_bytes = sizeof arena, .state = state};
int bench_reset(void) { return lm_init(&memory); }
int bench_truncate(int length) { return lm_truncate_m(&memory, length); }
int bench_read(const int32_t *tokens, int count)
{
    const struct lm_prefill_dims dims = {.n = count};
    const struct lm_prefill_inputs in = {.tokens = tokens};
    const struct lm_prefill_outputs out = {.logits = logits};
    const struct lm_decode_inputs next = {.token = tokens};
    const struct lm_decode_outputs found = {.logits = logits};
    return count == 1 ? lm_decode_run(&memory, &next, &found)
                      : lm_prefill_run(&memory, &dims, &in, &out);
}
"""
TEAM = """
#include "lm_threads.h"
static struct lm_threads threads;
int bench_start(void) { return lm_threads_start(&threads, &memory) > 0 ? 0 : 1; }
"""


class Side(Protocol):
    """What is measured."""

    name: str

    def reset(self) -> None: ...

    def truncate(self, length: int) -> None:
        """Forgets tokens but the first ones."""

    def read(self, tokens: list[int], start: int) -> float:
        """Seconds of tokens behind `start` others, up to the logits of the last one."""


class Ours:
    """The shipped library, behind functions with plain arguments."""

    name = "ours"

    def __init__(self, model: Path, quantize: str | None, given: argparse.Namespace) -> None:
        import relax_aot as rx

        self.chunk, threads = given.chunk, given.threads
        folder = model.with_name("out")
        flags = ["-DRAOT_AVX512=OFF"] if given.without_avx512 else []
        entries = rx.load_llm(model, context=CONTEXT, chunk=self.chunk, tokenizer=False)
        rx.compile(entries, name="lm", quantize=quantize, threads=threads).write(folder)
        (folder / "shim.c").write_text(SHIM + (TEAM if threads > 1 else ""))
        build = folder / "build"
        pic = "-DCMAKE_POSITION_INDEPENDENT_CODE=ON"
        _run("cmake", "-S", str(folder), "-B", str(build), pic, *flags)
        _run("cmake", "--build", str(build))
        (archive,) = build.glob("lib*.a")
        shim, library = str(folder / "shim.c"), str(folder / "lm.so")
        more = ["-lm", "-pthread", "-o", library]
        _run("cc", "-shared", "-fPIC", f"-I{folder}", shim, str(archive), *more)
        self.library, self.clock = ctypes.CDLL(library), clock_of(threads)
        if threads > 1:
            self.reset()
            _require(self.library.bench_start() == 0)

    def reset(self) -> None:
        _require(self.library.bench_reset() == 0)

    def truncate(self, length: int) -> None:
        _require(self.library.bench_truncate(length) == 0)

    def read(self, tokens: list[int], start: int) -> float:
        data = (ctypes.c_int32 * len(tokens))(*tokens)
        before = self.clock()
        for first in range(0, len(tokens), self.chunk):
            count = min(self.chunk, len(tokens) - first)
            _require(self.library.bench_read(ctypes.byref(data, 4 * first), count) == 0)
        return self.clock() - before


class LlamaCpp:
    """The package llama-cpp-python."""

    name = "llama.cpp"

    def __init__(self, model: Path, threads: int) -> None:
        self.c: Any = importlib.import_module("llama_cpp.llama_cpp")
        self.quiet = self.c.llama_log_callback(lambda level, text, user: None)
        self.c.llama_log_set(self.quiet, ctypes.c_void_p(0))
        self.c.llama_backend_init()
        self.model = self.c.llama_model_load_from_file(
            str(model).encode(), self.c.llama_model_default_params()
        )
        given = self.c.llama_context_default_params()
        given.n_ctx, given.n_batch, given.n_ubatch = 512, 256, 256
        given.n_threads = given.n_threads_batch = threads
        self.clock = clock_of(threads)
        self.context = self.c.llama_init_from_model(self.model, given)
        self.memory = self.c.llama_get_memory(self.context)

    def reset(self) -> None:
        self.c.llama_memory_clear(self.memory, True)

    def truncate(self, length: int) -> None:
        self.c.llama_memory_seq_rm(self.memory, 0, length, -1)

    def read(self, tokens: list[int], start: int) -> float:
        batch = self.c.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for at, token in enumerate(tokens):
            batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, start + at, 1
            batch.seq_id[at][0], batch.logits[at] = 0, at == len(tokens) - 1
        before = self.clock()
        status = self.c.llama_decode(self.context, batch)
        self.c.llama_synchronize(self.context)
        seconds = self.clock() - before
        self.c.llama_batch_free(batch)
        _require(status == 0)
        return seconds


class Llama2c:
    """A library of llama2.c's `runq.c`, which reads tokens one by one."""

    name = "llama2.c"

    def __init__(self, library: Path, model: Path, threads: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.c, self.clock = ctypes.CDLL(str(library.resolve())), clock_of(threads)
        # Its struct has sizes and pointers, about 300 bytes.
        self.model = ctypes.create_string_buffer(4096)
        self.c.build_transformer(self.model, str(model).encode())

    def reset(self) -> None:
        pass

    def truncate(self, length: int) -> None:
        pass

    def read(self, tokens: list[int], start: int) -> float:
        before = self.clock()
        for at, token in enumerate(tokens, start):
            self.c.forward(self.model, token, at)
        return self.clock() - before


def _require(condition: bool) -> None:
    if not condition:
        raise SystemExit("a call failed")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def clock_of(threads: int) -> Callable[[], float]:
    return time.process_time if threads == 1 else time.perf_counter


def middle(seconds: list[float], threads: int) -> float:
    """The median, of several threads that of the fastest ones."""
    count = len(seconds) if threads == 1 else max(len(seconds) // FASTEST, 1)
    return statistics.median(sorted(seconds)[:count])


def measured(
    sides: list[Side], runs: int, threads: int, prefills: Sequence[int]
) -> dict[str, list[float]]:
    """Tokens per second of each side, by what is measured."""
    prompt = prompt_of(max(CONTEXTS))
    found: dict[str, list[float]] = {}
    for context in CONTEXTS:
        for side in sides:
            side.reset()
            side.read(prompt[:context], 0)
        seconds: list[list[float]] = [[] for _ in sides]
        together = 1 if threads == 1 else TOGETHER
        for _ in range(-(-runs // together)):
            for number, side in enumerate(sides):
                time.sleep(0 if threads == 1 else PAUSE)
                for _ in range(together):
                    seconds[number].append(side.read([TOKEN], context))
                    side.truncate(context)
        found[f"decode at {context}"] = [1 / middle(one, threads) for one in seconds]
    for length in prefills:
        seconds = [[] for _ in sides]
        for _ in range(max(runs // 4, 3)):
            for number, side in enumerate(sides):
                side.reset()
                time.sleep(0 if threads == 1 else PAUSE)
                seconds[number].append(side.read(prompt[:length], 0))
        found[f"prefill of {length}"] = [length / middle(one, threads) for one in seconds]
    return found


def counted(model: Path, quantize: str | None, board: str, chunk: int) -> list[int]:
    """Instructions of a decoded token on an emulated board, after each of CONTEXTS."""
    import numpy as np

    import relax_aot as rx

    entries = rx.load_llm(model, context=CONTEXT, chunk=chunk, tokenizer=False)
    project = rx.compile(entries, name="lm", quantize=quantize, board=board)
    found = []
    for context in CONTEXTS:
        prompt = np.array(prompt_of(context), np.int32)
        firsts = range(0, context, chunk)
        calls = [("prefill", {"tokens": prompt[first : first + chunk]}) for first in firsts]
        *_, last = project.emulate([*calls, ("decode", {"token": np.array(TOKEN, np.int32)})])
        _require(last.status == 0 and last.instructions is not None)
        found.append(int(last.instructions or 0))
    return found


def has_llama_cpp() -> bool:
    return importlib.util.find_spec("llama_cpp") is not None


def lengths(text: str) -> list[int]:
    found = [int(one) for one in text.split(",")]
    if not all(0 < one <= max(CONTEXTS) for one in found):
        raise argparse.ArgumentTypeError(f"prefills have 1 to {max(CONTEXTS)} tokens")
    return found


def prompt_of(count: int) -> list[int]:
    return [(at * 7919 + 3) % WORDS for at in range(count)]


def compared(path: Path, model: Any, kind: str, given: argparse.Namespace) -> None:
    """Prints tokens per second of all sides."""
    sides: list[Side] = [Ours(path, KINDS[kind], given)]
    if has_llama_cpp():
        sides.append(LlamaCpp(path, given.threads))
    if given.llama2c and kind == "Q8_0":
        from tests.frontends.llm.llama2c_files import written

        other = path.with_suffix(".bin")
        other.write_bytes(written(model, version=2, group=GROUP, context=CONTEXT))
        sides.append(Llama2c(given.llama2c, other, given.threads))
    first, *others = (side.name for side in sides)
    print(f"{'tokens per second':<22} {first:>7}" + "".join(f"{one:>11}  ratio" for one in others))
    for what, found in measured(sides, given.runs, given.threads, given.prefill).items():
        beside = "".join(f"{one:>11.0f} {found[0] / one:>6.2f}" for one in found[1:])
        print(f"{kind:<5} {what:<16} {found[0]:>7.0f}{beside}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--shape", choices=SHAPES, default="S")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prefill", type=lengths, default=[64, 256])
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--llama2c", type=Path)
    parser.add_argument("--without-avx512", action="store_true")
    parser.add_argument("--boards", type=lambda text: text.split(","), default=[])
    given = parser.parse_args()
    from tests.frontends.llm.checkpoints import Llama
    from tests.frontends.llm.gguf_files import file_of

    if given.boards:
        contexts = "".join(f"   after {context:>3}" for context in CONTEXTS)
        print(f"million instructions of a token {contexts}")
    elif not has_llama_cpp():
        print("llama-cpp-python is not installed: measured without it")
    for kind in given.kinds.split(","):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "model.gguf"
            own = "BF16" if kind == "BF16" else "F32"
            model = Llama(words=WORDS, kind=own, **SHAPES[given.shape])
            path.write_bytes(file_of(model, kind, text=TOKENS))
            for board in given.boards:
                counts = counted(path, KINDS[kind], board, given.chunk)
                shown = "".join(f"{count / 1e6:>12.2f}" for count in counts)
                print(f"{kind:<5} {board:<25} {shown}", flush=True)
            if not given.boards:
                compared(path, model, kind, given)


if __name__ == "__main__":
    main()
