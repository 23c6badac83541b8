# SPDX-License-Identifier: Apache-2.0
"""Tokenizers in GGUF files: tokens are those of `tokenizers` and of SentencePiece, whose files
llama.cpp's convert_hf_to_gguf.py writes as the tests do."""

from __future__ import annotations

import json
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer

from relax_aot.cli.main import cli
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.llm.text_files import read_text_files, tokenizer_of
from relax_aot.frontends.llm.tokenizer.gguf import gguf_tokenizer
from tests.frontends.llm.checkpoints import Llama
from tests.frontends.llm.gguf_files import file_of
from tests.frontends.llm.tokenizer_files import KINDS, SAMPLES, corpus, texts
from tests.frontends.llm.tokenizer_program import FRAME, STRICT, Program, program_with

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
PRE = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2", "gpt4o": "gpt-4o",
       "smollm": "smollm"}  # fmt: skip
"""Kinds of tokenizers, and what files call their pre-tokenizers."""
DEFINED = "<br>", "\u2581\u2581\u2581"


def metadata(**fields: Any) -> dict[str, Any]:
    return {PREFIX + name: value for name, value in fields.items()}


def bytes_file(reference: Tokenizer, pre: str) -> dict[str, Any]:
    """Of a BPE of bytes."""
    model = json.loads(reference.to_str())["model"]
    added = reference.get_added_tokens_decoder()
    words = {number: text for text, number in reference.get_vocab(with_added_tokens=True).items()}
    numbers = range(len(words))
    special = {n for n, one in added.items() if one.special}
    return metadata(
        model="gpt2",
        pre=pre,
        tokens=[words[n] for n in numbers],
        token_type=[
            CONTROL if n in special else USER_DEFINED if n in added else NORMAL for n in numbers
        ],
        merges=[one if isinstance(one, str) else " ".join(one) for one in model["merges"]],
        bos_token_id=1,
        eos_token_id=2,
        add_bos_token=True,
    )


@cache
def trained(*, prefix: bool = True) -> SentencePieceProcessor:
    """A BPE of SentencePiece. With a prefix, llama.cpp and `tokenizers` begin with it behind each
    token that users define, too, and SentencePiece does not: it has no such tokens then."""
    made = BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=made, model_type="bpe", vocab_size=900,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=prefix, character_coverage=0.98, split_digits=True,
        user_defined_symbols=[] if prefix else [*DEFINED], minloglevel=2, num_threads=1,
    )  # fmt: skip
    return SentencePieceProcessor(model_proto=made.getvalue())


def pieces_file(reference: SentencePieceProcessor, *, prefix: bool = True) -> dict[str, Any]:
    numbers = range(reference.vocab_size())

    def kind(n: int) -> int:
        text = reference.id_to_piece(n)
        if reference.is_unknown(n):
            return UNKNOWN
        if reference.is_control(n):
            return CONTROL
        return BYTE if reference.is_byte(n) else USER_DEFINED if text in defined else NORMAL

    defined = () if prefix else DEFINED
    return metadata(
        model="llama",
        tokens=[reference.id_to_piece(n) for n in numbers],
        scores=[float(reference.get_score(n)) for n in numbers],
        token_type=[kind(n) for n in numbers],
        bos_token_id=1,
        eos_token_id=2,
        unknown_token_id=0,
        add_space_prefix=prefix,
    )


def program(fields: dict[str, Any], folder: Path) -> Program:
    tokenizer = gguf_tokenizer("x.gguf", fields)
    assert tokenizer is not None
    return program_with(tokenizer, folder, (*STRICT, "-O1"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PRE)
def test_tokens_of_bytes_are_those_of_the_reference(kind: str, tmp_path: Path) -> None:
    reference = KINDS[kind]()
    made = program(bytes_file(reference, PRE[kind]), tmp_path)
    given = [b"", *texts(1, 300)]
    for text, tokens in zip(given, made.encode(given), strict=True):
        assert tokens == reference.encode(text.decode("utf-8", "replace")).ids, text
    read = reference.encode(SAMPLES[1]).ids
    assert made.decoded(read).decode() == reference.decode(read)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_are_those_of_sentencepiece(prefix: bool, tmp_path: Path) -> None:
    reference = trained(prefix=prefix)
    made = program(pieces_file(reference, prefix=prefix), tmp_path)
    marks = [b"a" * 50, b"aaa  aaaa   aaaaa" * 9, b"<br>ab<br><br>", "e\u00e9\u6f22".encode() * 30]
    given = [text for text in (b" x", *marks, *texts(6, 300)) if "\u2581" not in text.decode(
        "utf-8", "replace")]  # fmt: skip
    for text, tokens in zip(given, made.encode(given, FRAME), strict=True):
        assert tokens == [1, *reference.encode(text.decode("utf-8", "replace"))], text
    read = reference.encode("Hello  w\u00f6rld \u4f60\U0001f600")
    assert made.decoded(read).decode() == reference.decode(read)


def test_a_file_of_tokenizers_is_read_as_such(tmp_path: Path) -> None:
    reference = KINDS["llama2"]()
    reference.save(str(tmp_path / "tokenizer.json"))
    whole = gguf_tokenizer("x", {"tokenizer.huggingface.json": reference.to_str()})
    alone = tokenizer_of(tmp_path)
    assert whole is not None and alone is not None
    assert whole.words == alone.words and whole.added == alone.added
    assert whole.before == alone.before == (1,)


def test_without_tokens_there_is_no_tokenizer() -> None:
    assert gguf_tokenizer("x", {}) is None
    assert gguf_tokenizer("x", metadata(model="none")) is None


@cache
def small() -> dict[str, Any]:
    words = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "<|im_end|>"]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[NORMAL] * 4, CONTROL]
    return metadata(
        model="llama", tokens=words, token_type=kinds, scores=[-float(n) for n in range(8)],
        bos_token_id=1, eos_token_id=2, eot_token_id=7,
    )  # fmt: skip


def changed(**fields: Any) -> dict[str, Any]:
    return small() | metadata(**fields)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a model": (changed(model="bert"), "tokenizer.ggml.model: bert is not supported, only gpt2"),
    "a pre-tokenizer": (
        changed(model="gpt2", pre="bloom"), "the pre-tokenizer bloom is not supported, only gpt-2",
    ),
    "no pre-tokenizer": (changed(model="gpt2"), "the pre-tokenizer default is not supported"),
    "no merges": (changed(model="gpt2", pre="gpt-2"), "merges is None, expected a list"),
    "numbers for tokens": (changed(tokens=[1, 2]), "expected a list of at most"),
    "types of other tokens": (changed(token_type=[1]), "token_type is [1], expected a number"),
    "an unknown type": (changed(token_type=[9] * 8), "expected a number of 1 to 6 for each of 8"),
    "a token twice": (changed(tokens=["a", "b"] * 4), "tokens has a twice"),
    "half of a character": (changed(tokens=["\udce2"], token_type=[1]), "is no Unicode text"),
    "scores of other tokens": (changed(scores=[1.0]), "expected a number for each of 8 tokens"),
    "a score that is no number": (
        changed(scores=[float("nan")] * 8), "expected a number for each of 8 tokens",
    ),
    "a first token beyond the others": (
        changed(bos_token_id=8), "bos_token_id is 8, expected a number from 0 to 7",
    ),
    "no first token": (
        {k: v for k, v in changed(add_bos_token=True).items() if "bos_token_id" not in k},
        "bos_token_id is None",
    ),
    "words instead of a flag": (changed(add_eos_token="yes"), "expected true or false"),
    "an unused piece": (
        changed(token_type=[2, 3, 3, 1, 1, 5, 1, 3]), "ab is unused, but two pieces make it",
    ),
    "removed spaces": (changed(remove_extra_whitespaces=True), "remove_extra_whitespaces=True"),
    "no text": ({"tokenizer.huggingface.json": 5}, "tokenizer.huggingface.json is no text"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_clear_errors(name: str) -> None:
    fields, message = WRONG[name]
    with pytest.raises(RelaxAotError) as raised:
        gguf_tokenizer("x.gguf", fields)
    assert message in str(raised.value) and str(raised.value).startswith("x.gguf: tokenizer.")


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}<|im_start|>assistant\n{% endif %}"
)


def written(folder: Path, **fields: Any) -> Path:
    model = Llama(words=8, layers=1)
    path = folder / "tiny.gguf"
    path.write_bytes(file_of(model, "F32", text=changed(**fields)))
    return path


def test_ends_and_chat_template_are_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = read_text_files(path)
    assert found is not None and found.ends == (2, 7)
    assert found.chat.answer == "" and found.chat.framed
    data = file_of(Llama(words=8, layers=1), "F32",
                   text=small() | {"tokenizer.chat_template": CHATML})  # fmt: skip
    path.write_bytes(data)
    found = read_text_files(path)
    assert found is not None
    assert found.chat.answer == "<|im_end|>\n<s><|im_start|>assistant\n"
    assert read_text_files(path, "{}!").chat.answer == "!"  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_project_of_a_file_has_its_tokenizer(tmp_path: Path) -> None:
    path, out = written(tmp_path), tmp_path / "out"
    done = CliRunner().invoke(cli, ["llm", str(path), "--context", "8", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "from tiny.gguf: tokenizer.ggml." in (out / "tiny_tokenizer.c").read_text()
    assert (out / "tiny_generate.c").is_file()
