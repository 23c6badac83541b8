# SPDX-License-Identifier: Apache-2.0
"""`<name>_generate` gives the text that tokenizer, entries and sampler give one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer

import relax_aot as rx
from relax_aot import driver
from relax_aot.cli.main import cli
from relax_aot.frontends.llm import entries_of
from relax_aot.frontends.llm.text_files import read_text_files
from relax_aot.project.board import load_board
from relax_aot.project.entries import EntriesProject
from relax_aot.project.llm import with_text
from relax_aot.toolchain.compilers import host_compiler
from relax_aot.verify.host import build_library
from tests.frontends.llm.chat_templates import CHATML, reference
from tests.frontends.llm.checkpoints import Llama
from tests.frontends.llm.tokenizer_files import KINDS
from tests.runtime_c.sampling import expected

SIZE, CAPACITY, INDEX, ARENA, MISMATCH = -4, -7, -6, -2, -5
CONTEXT, CHUNK, WORDS, END = 60, 4, 690, 77
ROLES = ("system", "user", "assistant")
TEMPLATE = CHATML.replace("<|start|>", "<s>")
DECLARED = """
struct toy_memory { void *arena; size_t arena_bytes; void *state; };
struct toy_sampling { uint64_t seed; float temperature; int32_t top_k; float top_p, min_p,
    repetition_penalty; int32_t max_tokens; uint32_t options; int32_t grammar; };
int toy_init(const struct toy_memory *memory);
int32_t toy_get_m(const struct toy_memory *memory);
struct raot_message { int role; const char *text; size_t bytes; };
int toy_answer(const struct toy_memory *memory, const struct raot_message *messages, int32_t count,
    const struct toy_sampling *sampling,
    int (*on_token)(void *user, int32_t token, const char *text, size_t bytes), void *user,
    int32_t *generated);
int toy_generate(const struct toy_memory *memory, const char *prompt, size_t bytes,
    const struct toy_sampling *sampling,
    int (*on_token)(void *user, int32_t token, const char *text, size_t bytes), void *user,
    int32_t *generated);
size_t arena_bytes(void);
size_t state_bytes(void);
int calls(int again);
int prefills(int again);
"""
SIZES = """
#include "toy_generate.h"
size_t arena_bytes(void);
size_t state_bytes(void);
size_t arena_bytes(void) { return TOY_GENERATE_ARENA_BYTES; }
size_t state_bytes(void) { return TOY_STATE_BYTES; }
"""
# Counts the calls of the entries that continue a text, and those that read a prompt.
COUNTED = """
#include "toy_generate.h"
int calls(int again);
int prefills(int again);
static int counted, read;
int calls(int again)
{
    const int found = counted;

    counted = again ? 0 : counted;
    return found;
}
int prefills(int again)
{
    const int found = read;

    read = again ? 0 : read;
    return found;
}
static enum raot_status prefilled(const struct toy_memory *memory,
    const struct toy_prefill_dims *dims, const struct toy_prefill_inputs *in,
    const struct toy_prefill_outputs *out)
{
    read++;
    return toy_prefill_run(memory, dims, in, out);
}
static enum raot_status decoded(const struct toy_memory *memory,
    const struct toy_decode_inputs *in, const struct toy_decode_outputs *out)
{
    counted++;
    return toy_decode_run(memory, in, out);
}
#ifdef TOY_K_MAX
static enum raot_status verified(const struct toy_memory *memory,
    const struct toy_verify_dims *dims, const struct toy_verify_inputs *in,
    const struct toy_verify_outputs *out)
{
    counted++;
    return toy_verify_run(memory, dims, in, out);
}
#undef toy_verify_run
#define toy_verify_run verified
#endif
#undef toy_decode_run
#define toy_decode_run decoded
#undef toy_prefill_run
#define toy_prefill_run prefilled
#include "toy_generate.c"
"""
FLAGS = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wdouble-promotion",
         "-Wundef", "-Wvla", "-Werror", "-ffp-contract=off", "-fno-strict-aliasing", "-shared",
         "-fPIC")  # fmt: skip


@dataclass(frozen=True)
class Answer:
    status: int
    generated: int
    tokens: list[int]
    text: bytes
    held: int

    @property
    def chosen(self) -> list[int]:
        """Without -1, with which the rest of a text comes that ends within a character."""
        return [token for token in self.tokens if token >= 0]


@dataclass
class Generator:
    """The C of a project, with caches that are kept from call to call."""

    ffi: Any
    library: Any
    memory: Any = field(init=False)

    def __post_init__(self) -> None:
        bytes_, state = self.library.arena_bytes(), self.library.state_bytes()
        self.blocks = [np.zeros(size + 64, np.uint8) for size in (bytes_, state)]
        at = [b.ctypes.data + -b.ctypes.data % 64 for b in self.blocks]
        self.memory = self.ffi.new(
            "struct toy_memory *",
            [self.ffi.cast("void *", at[0]), bytes_, self.ffi.cast("void *", at[1])],
        )
        self.clear()

    def clear(self) -> None:
        assert self.library.toy_init(self.memory) == 0
        self.library.calls(1)
        self.library.prefills(1)

    def __call__(self, prompt: bytes, stop: int | None = None, **sampling: Any) -> Answer:
        return self._call(
            lambda *rest: self.library.toy_generate(self.memory, prompt, len(prompt), *rest),
            stop, sampling,
        )  # fmt: skip

    def answer(self, messages: Sequence[tuple[str, str]], **sampling: Any) -> Answer:
        """The answer to messages as (role, content)."""
        texts = [self.ffi.from_buffer(content.encode()) for _, content in messages]
        rows = [[ROLES.index(role), text, len(text)]
                for (role, _), text in zip(messages, texts, strict=True)]  # fmt: skip
        given = self.ffi.new("struct raot_message[]", rows)
        return self._call(
            lambda *rest: self.library.toy_answer(self.memory, given, len(rows), *rest),
            None, sampling,
        )  # fmt: skip

    def _call(self, call: Callable[..., int], stop: int | None, sampling: dict[str, Any]) -> Answer:
        tokens: list[int] = []
        text: list[bytes] = []

        @self.ffi.callback("int(void *, int32_t, const char *, size_t)")  # type: ignore[untyped-decorator]
        def on_token(_user: Any, token: int, data: Any, size: int) -> int:
            tokens.append(token)
            text.append(bytes(self.ffi.buffer(data, size)))
            return int(len(tokens) == stop)

        counted = self.ffi.new("int32_t *", -1)
        how = self.ffi.new("struct toy_sampling *", sampling)
        status = call(how, on_token, self.ffi.NULL, counted)
        held = self.library.toy_get_m(self.memory)
        return Answer(status, counted[0], tokens, b"".join(text), held)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose vocabulary is smaller than that of its tokenizer."""
    folder = tmp_path_factory.mktemp("model") / "toy"
    folder.mkdir()
    shape = Llama(words=WORDS, width=16, hidden=20, layers=1, queries=2, keys=1, size=8,
                  config={"eos_token_id": 2})  # fmt: skip
    shape.write(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, END]}))
    KINDS["llama3"]().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def library(folder: Path) -> tuple[Any, Any]:
    return built(folder, folder.parent / "out")


def built(folder: Path, out: Path, *more: str) -> tuple[Any, Any]:
    """The project of the model, as a library."""
    options = ["--context", str(CONTEXT), "--chunk", str(CHUNK), "--name", "toy", "-o", str(out)]
    done = CliRunner().invoke(cli, ["llm", str(folder), *options, *more])
    assert done.exit_code == 0, done.output
    (out / "sizes.c").write_text(SIZES)
    (out / "counted.c").write_text(COUNTED)
    units = ["toy.c", "toy_weights.c", "toy_tokenizer.c", "counted.c", "sizes.c"]
    command = [*host_compiler().command, *FLAGS, "-I.", *units, "-o", "toy.so"]
    built = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    ffi = cffi.FFI()
    ffi.cdef(DECLARED)
    return ffi, ffi.dlopen(str(out / "toy.so"))


@pytest.fixture
def generator(library: tuple[Any, Any]) -> Generator:
    return Generator(*library)


@pytest.fixture(scope="module")
def entries(folder: Path) -> Any:
    model = rx.load_llm(folder, context=CONTEXT, chunk=CHUNK)
    return rx.compile(model, name="toy").host()


def continued(
    entries: Any, prompt: Sequence[int], seed: int, count: int, how: dict[str, float]
) -> tuple[list[int], bool]:
    """The tokens behind a prompt in empty caches, and whether a choice was near."""
    if entries_length(entries):
        entries.truncate(m=0)
    seen, found, near = list(prompt), [], False
    for start in range(0, len(prompt), CHUNK):
        part = np.array(prompt[start : start + CHUNK], np.int32)
        logits = entries.prefill(tokens=part)["logits"]
    for number in range(count):
        token, close = expected(logits, seed, tuple(seen), how, skipped=number)
        near |= close
        if token in (2, END):
            break
        found.append(token)
        seen.append(token)
        logits = entries.decode(token=np.array(token, np.int32))["logits"]
    return found, near


def entries_length(entries: Any) -> int:
    try:
        return int(entries.length("m"))
    except rx.RelaxAotError:
        return 0


PROMPT = "def f(x): return"


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"repetition_penalty": 1.5},
        {"temperature": 0.7, "top_k": 20, "top_p": 0.9},
        {"temperature": 3.0, "min_p": 0.05, "repetition_penalty": 2.0},
        {"temperature": 1.0},
    ],
    ids=str,
)
def test_text_is_that_of_its_parts(
    how: dict[str, float], generator: Generator, entries: Any, tokenizer: Tokenizer
) -> None:
    prompt = tokenizer.encode(PROMPT).ids
    exact = {name: float(np.float32(value)) for name, value in how.items()}
    for seed in range(4):
        tokens, near = continued(entries, prompt, seed, 12, exact)
        fresh = Generator(generator.ffi, generator.library)
        sampling: dict[str, Any] = {"seed": seed, "max_tokens": 12, "options": 1, **how}
        found = fresh(PROMPT.encode(), **sampling)
        kept = [token for token in found.tokens if token >= 0]
        assert near or kept == tokens
        assert (found.status, found.generated) == (0, len(kept))
        assert found.held == len(prompt) + len(kept)
        assert found.text.decode() == tokenizer.decode(kept)


@pytest.mark.slow
def test_callers_stop_and_continue(generator: Generator, tokenizer: Tokenizer) -> None:
    first = generator(PROMPT.encode(), stop=3, seed=1, temperature=1.0)
    assert (first.status, first.generated, len(first.tokens)) == (0, 3, 3)
    assert first.held == len(tokenizer.encode(PROMPT, add_special_tokens=False).ids) + 3
    second = generator(b" and", seed=1, max_tokens=2, temperature=1.0)
    assert (second.status, second.generated) == (0, 2)
    assert second.held == first.held + 2 + len(tokenizer.encode(" and").ids) - 1


@pytest.mark.slow
def test_refused_prompts_change_nothing(generator: Generator, tokenizer: Tokenizer) -> None:
    before = generator(b"def", max_tokens=2, temperature=1.0)
    state = generator.blocks[1].copy()
    texts = {n: tokenizer.decode([n]) for n in range(WORDS, tokenizer.get_vocab_size())}
    unknown = next(text for n, text in texts.items() if n in tokenizer.encode(text).ids)
    for prompt, sampling, status in (
        (b"", {}, SIZE), (b"x", {"grammar": 1}, SIZE), (b"a1" * CONTEXT, {}, CAPACITY),
        (b"a" * 100_000, {}, CAPACITY), (unknown.encode(), {}, INDEX),
    ):  # fmt: skip
        found = generator(prompt, **sampling)
        assert (found.status, found.generated, found.tokens) == (status, -1, [])
        assert found.held == before.held
        assert (generator.blocks[1] == state).all()
    generator.memory.arena_bytes -= 1
    assert generator(b"x").status == ARENA


@pytest.mark.slow
def test_answers_continue_conversations(
    library: tuple[Any, Any], entries: Any, tokenizer: Tokenizer
) -> None:
    generator = Generator(*library)
    talk = [("system", "a b"), ("user", "def f")]
    prompt = tokenizer.encode(reference(TEMPLATE, talk), add_special_tokens=False).ids
    first, near = continued(entries, prompt, 3, 2, {"temperature": 1.0})
    found = generator.answer(talk, seed=3, temperature=1.0, max_tokens=2)
    assert near or (found.status, found.chosen) == (0, first)
    before, _, rest = reference(TEMPLATE, [*talk, ("assistant", "!!"), ("user", "c")]).partition(
        "!!"
    )
    prompt = tokenizer.encode(before, add_special_tokens=False).ids + found.chosen
    prompt += tokenizer.encode(rest, add_special_tokens=False).ids
    second, close = continued(entries, prompt, 3, 2, {"temperature": 1.0})
    again = generator.answer([("user", "c")], seed=3, temperature=1.0, max_tokens=2)
    assert near or close or (again.status, again.chosen) == (0, second)
    assert again.held == len(prompt) + again.generated
    state = generator.blocks[1].copy()
    for messages, status in (
        ([("system", "a"), ("user", "b")], MISMATCH), ([("assistant", "b")], MISMATCH), ([], SIZE),
        ([("user", "x")] * 17, SIZE), ([("user", "a1" * CONTEXT)], CAPACITY),
    ):  # fmt: skip
        refused = generator.answer(messages)
        assert (refused.status, refused.generated) == (status, -1)
        assert (generator.blocks[1] == state).all()


@pytest.mark.slow
def test_a_full_context_ends_the_text(generator: Generator) -> None:
    found = generator(b"def f", seed=5, temperature=5.0)
    ended = found.status == 0 and found.held < CONTEXT
    assert ended or (found.status, found.held) == (CAPACITY, CONTEXT)
    full = generator(b" " * 3, temperature=5.0)
    while full.status == 0:
        full = generator(b" x", temperature=5.0, seed=full.held)
    assert full.status == CAPACITY
    assert full.held <= CONTEXT


@pytest.mark.slow
@pytest.mark.long
def test_texts_begin_with_a_prefix(
    folder: Path, entries: Any, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "prefix.txt").write_text("def f<|end_of_text|>(x)")
    first = tokenizer.encode("def f<|end_of_text|>(x)").ids
    prompt = tokenizer.encode(": return", add_special_tokens=False).ids
    wanted, near = continued(entries, [*first, *prompt], 0, 6, {})
    fixed = Generator(*built(folder, tmp_path / "out", "--prefix", str(tmp_path / "prefix.txt")))
    assert fixed.library.toy_get_m(fixed.memory) == len(first)
    found = fixed(b": return", max_tokens=6)
    assert near or (found.tokens, found.held) == (wanted, len(first) + len(prompt) + len(wanted))


MOST = 3
REPEATED = b"x = x + x = x + x ="


@pytest.fixture(scope="module")
def proposing(folder: Path) -> Generator:
    return Generator(*built(folder, folder.parent / "speculating", "--speculate", str(MOST)))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [{}, {"repetition_penalty": 1.5}, {"temperature": 0.05}, {"temperature": 2.0, "top_p": 0.9}],
    ids=str,
)
def test_proposals_do_not_change_the_text(
    how: dict[str, Any], generator: Generator, proposing: Generator
) -> None:
    """Every number of tokens, from every length of the text, until the context is full."""
    calls = [0, 0]
    for seed, prompt, most in product(range(3), (REPEATED, b"a"), (0, 1, 2, 7, 20)):
        answers = []
        for number, one in enumerate((generator, proposing)):
            one.clear()
            first = one(prompt, seed=seed, max_tokens=most, **how)
            answers.append([first, one(b" x", seed=seed + 9, max_tokens=5, **how)])
            calls[number] += one.library.calls(1)
        assert answers[1] == answers[0]
    # A model with random weights repeats itself, unless many tokens are likely.
    assert calls[1] < calls[0] if how else 2 * calls[1] < calls[0]


@pytest.mark.slow
@pytest.mark.long
def test_proposals_with_caches_of_windows(folder: Path, tmp_path: Path) -> None:
    """Tokens that were dropped for proposals that are rejected were behind the window."""
    shape = Llama(words=WORDS, width=16, hidden=20, layers=2, queries=2, keys=1, size=8,
                  architecture="MistralForCausalLM", config={"sliding_window": 6})  # fmt: skip
    model = shape.write(tmp_path / "toy")
    (model / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    forms: tuple[tuple[str, ...], ...] = ((), ("--cache", "window", "--speculate", str(MOST)))
    whole, kept = (
        Generator(*built(model, tmp_path / f"out{number}", *more))
        for number, more in enumerate(forms)
    )
    assert len(kept.blocks[1]) < len(whole.blocks[1])
    calls = [0, 0]
    for seed, temperature in product(range(4), (0.0, 0.5, 1.0)):
        answers = []
        for number, one in enumerate((whole, kept)):
            one.clear()
            answers.append(one(REPEATED, seed=seed, temperature=temperature))
            calls[number] += one.library.calls(1)
        assert answers[0] == answers[1]
    assert calls[1] < calls[0]


@pytest.mark.slow
@pytest.mark.long
def test_callers_stop_between_proposals(generator: Generator, proposing: Generator) -> None:
    for stop in range(1, 12):
        answers = []
        for one in (generator, proposing):
            one.clear()
            answers.append([one(REPEATED, stop=stop), one(b" and", max_tokens=9)])
        assert answers[0] == answers[1]
        assert answers[0][0].generated <= stop


def test_a_prefix_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    for command in (["chat", str(folder)], ["llm", str(folder), "-o", str(tmp_path / "out")]):
        done = CliRunner().invoke(cli, [*command, "--prefix", str(tmp_path / "none.txt")])
        assert "none.txt: No such file" in str(done.exception)


def test_a_chat_needs_a_tokenizer_and_the_place_of_the_line(tmp_path: Path) -> None:
    Llama(layers=1).write(tmp_path)
    done = CliRunner().invoke(cli, ["chat", str(tmp_path)])
    assert "has no tokenizer, which chat needs" in str(done.exception)
    KINDS["smollm"]().save(str(tmp_path / "tokenizer.json"))
    for options, problem in (
        (["--template", "x"], "the template 'x' has no {}"),
        (["--system", "x"], "--system: the template has no place for one"),
    ):
        done = CliRunner().invoke(cli, ["chat", str(tmp_path), *options])
        assert problem in str(done.exception)


@pytest.mark.parametrize(
    "option", [("--seed", "-1"), ("--top-k", "4294967297"), ("--temperature", "-1")], ids=str
)
def test_values_that_a_chat_cannot_hold_are_refused(option: tuple[str, str]) -> None:
    done = CliRunner().invoke(cli, ["chat", "model", *option])
    assert (done.exit_code, done.exception.__class__) == (2, SystemExit)
    assert option[0] in done.output


@pytest.mark.slow
@pytest.mark.long
def test_a_chat_continues_lines(folder: Path, entries: Any, tokenizer: Tokenizer) -> None:
    command = [sys.executable, "-m", "relax_aot", "chat", str(folder), "--context", str(CONTEXT)]
    command += ["--chunk", str(CHUNK), "--max-tokens", "4", "--template", "x {}\\n"]
    lines = "a b\nc\n"
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tokens: list[int] = []
    answers = []
    for number, line in enumerate(lines.splitlines()):
        tokens += tokenizer.encode(f"x {line}\n", add_special_tokens=number == 0).ids
        found, _ = continued(entries, tokens, 0, 4, {})
        tokens += found
        answers.append(tokenizer.decode(found))
    assert done.stdout == "".join(f"{answer}\n" for answer in answers)
    assert f"context {len(tokens)} of {CONTEXT}]" in done.stderr
    long = subprocess.run(
        [*command, "--max-tokens", "1"], input="a" * 65_537 + "\nb", capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "a line of more than 65536 bytes is not read" in long.stderr
    assert long.stdout.count("\n") == 1
    full = subprocess.run(
        [*command, "--max-tokens", "0"], input="\n" + "d e " * CONTEXT + "\n" + "a b\n" * 20,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert full.returncode == 0
    assert "the message has no room; the next one begins a new conversation" in full.stderr
    assert "the context is full; the next message begins a new conversation" in full.stderr
    wrong = subprocess.run(
        [*command, "--temperature", "nan"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode != 0
    assert "--temperature: no such option, or not a value of it" in wrong.stderr


# On a GPU


@pytest.fixture(scope="module")
def device_project(folder: Path) -> EntriesProject:
    sources = entries_of(folder, CONTEXT, CHUNK)
    options = driver.Options(name="toy", emit="cuda-source")
    text = read_text_files(folder)
    assert text is not None
    loaded = driver.load_entries(sources, options)
    return with_text(driver.compile_entries(loaded, load_board("cuda-host"), options), text)


@pytest.fixture(scope="module")
def on_device(device_project: EntriesProject) -> Generator:
    project = device_project
    size = next(s.number for s in project.view.sizes if s.macro == "TOY_DEVICE_BYTES")
    ffi = cffi.FFI()
    host = "void *arena; size_t arena_bytes; void *state;"
    ffi.cdef(DECLARED.replace(host, "void *device; size_t device_bytes;"))
    made = Generator.__new__(Generator)
    made.ffi, made.library = ffi, ffi.dlopen(str(build_library(project)))
    made.blocks = [np.zeros(size + (1 << 18), np.uint8)]
    at = made.blocks[0].ctypes.data + -made.blocks[0].ctypes.data % 64
    made.memory = ffi.new("struct toy_memory *", [ffi.cast("void *", at), size + (1 << 18) - 64])
    assert made.library.toy_init(made.memory) == 0
    return made


@pytest.mark.long
def test_the_project_of_a_gpu_has_no_warning(
    device_project: EntriesProject, tmp_path: Path
) -> None:
    for path, content in device_project.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    command = [*host_compiler().command, *flags, "-fsyntax-only", "-I."]
    for unit in ("toy_generate.c", "chat/main.c"):
        done = subprocess.run([*command, unit], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.long
def test_a_gpu_generates_the_text_of_the_host(on_device: Generator, library: Any) -> None:
    for prompt in (PROMPT, "x", " and then"):
        assert on_device.library.toy_init(on_device.memory) == 0
        host = Generator(*library)
        assert on_device(prompt.encode(), max_tokens=9) == host(prompt.encode(), max_tokens=9)
    full = on_device(b"again", max_tokens=100)
    assert (full.status, full.held) == (CAPACITY, CONTEXT)
    small = on_device.ffi.new("struct toy_memory *", [on_device.memory.device, 5000])
    before = on_device.blocks[0].copy()
    counted = on_device.ffi.new("int32_t *", -1)
    how = on_device.ffi.new("struct toy_sampling *")
    never = on_device.ffi.callback("int(void *, int32_t, const char *, size_t)", lambda *_: 1)
    null = on_device.ffi.NULL
    assert on_device.library.toy_generate(small, b"x", 1, how, never, null, counted) == ARENA
    assert counted[0] == -1 and np.array_equal(before, on_device.blocks[0])
