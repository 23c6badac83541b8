# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers that the package `tokenizers` trains, and texts to compare it with our C."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import trainers as train

from tests.conftest import ROOT

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<unk>", "<s>", "</s>", "<|end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SAMPLES = (
    "hello world's DON'T I'LL it\u017f '\u017f don't",
    "def f(x):\n    return [x ** 2 for _ in range(10)]  # c\n\n\n\tif x != 0x1F: pass\r\n",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u03b1\u03b2\u03b3 \u0395\u03bb",
    "\u4f60\u597d\u4e16\u754c\uff0c\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002\u3053\u3093",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0958",
    "\uc548\ub155\ud558\uc138\uc694 \u1100\u1161\u11a8 \u1112\u1161\u11ab",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u05e9\u05dc",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f937\U0001f3fd\u200d",
    "e\u0301 A\u030a \u212b q\u0323\u0307\u0301 \u0344 o\u0302\u0323 \u1e69 s\u0307\u0323",
    "1234567890 \u0661\u0662\u0663 \u2167 \u00bd 3.14 1,000",
    "\t\n  \r\n\n   x \u00a0 \u2003 \u200b \x85 \x1c \u3000 ",
    "<|end|> <s></s><unk> <0x41> <0x>",
    "\u2581x \u2581\u2581 y\u2581z",
)


@cache
def corpus() -> tuple[str, ...]:
    """Texts that stay the same, so that each word keeps its tokens."""
    return (*SAMPLES * 4, *(ROOT / "LICENSE").read_text(encoding="utf-8").split("\n\n"))


def byte_level(
    pattern: str | None, *, nfc: bool = False, whole: bool = False, digits: bool = False,
    size: int = 700, removed: bool = False,
) -> Tokenizer:  # fmt: skip
    """BPE of bytes; without a pattern, that of ByteLevel."""
    made = Tokenizer(models.BPE(ignore_merges=whole))
    if nfc:
        made.normalizer = normalizers.NFC()
    own = pattern is None
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    if pattern is not None:
        behavior = "removed" if removed else "isolated"
        steps = [pre_tokenizers.Split(Regex(pattern), behavior, invert=removed)]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own))
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        corpus(),
        train.BpeTrainer(
            vocab_size=size, special_tokens=SPECIAL, initial_alphabet=letters, show_progress=False
        ),
    )
    made.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)]),
        ]
    )
    return made


def sentence_piece(
    scheme: str, *, unigram: bool = False, bytes_: bool = True, split: bool = True,
    fuse: bool = True, size: int = 900,
) -> Tokenizer:  # fmt: skip
    """BPE of code points, or unigram. `scheme`: that of Metaspace, or `llama2` or `gemma` for what
    these checkpoints have instead."""
    special = [*SPECIAL[:3], *(BYTES if bytes_ else ())]
    trainer: Any
    if unigram:
        made = Tokenizer(models.Unigram())
        trainer = train.UnigramTrainer(
            vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    else:
        made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=bytes_))
        trainer = train.BpeTrainer(
            vocab_size=size, special_tokens=special, limit_alphabet=120, show_progress=False
        )
    marks = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    made.pre_tokenizer = marks
    made.train_from_iterator(corpus(), trainer)
    ends: list[Any] = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.pre_tokenizer = None
    if scheme == "llama2":
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
        ends.append(decoders.Strip(" ", 1, 0))
    elif scheme == "gemma":
        made.normalizer = normalizers.Replace(" ", "\u2581")
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    made.decoder = decoders.Sequence(ends)
    if not bytes_ and scheme in ("always", "first", "never"):
        made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    fields = json.loads(made.to_str())
    kept = [one for one in fields["added_tokens"] if one["content"] in SPECIAL]
    fields["added_tokens"] = [one | {"normalized": False} for one in kept]
    if unigram:
        fields["model"]["byte_fallback"] = bytes_
    return Tokenizer.from_str(json.dumps(fields))


def stripping(made: Tokenizer, **flags: bool) -> Tokenizer:
    """With added tokens that take spaces around their names."""
    fields = json.loads(made.to_str())
    fields["added_tokens"] = [one | flags for one in fields["added_tokens"]]
    return Tokenizer.from_str(json.dumps(fields))


def with_spaces(made: Tokenizer) -> Tokenizer:
    """With added tokens of spaces and digits, which are found in normalized text."""
    for text in ("  ", "    ", "12"):
        made.add_tokens([AddedToken(text, normalized=True)])
    return made


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": lambda: byte_level(None),
    "llama3": lambda: byte_level(LLAMA3, whole=True),
    "qwen2": lambda: byte_level(QWEN2, nfc=True),
    "gpt4o": lambda: byte_level(GPT4O, removed=True),
    "smollm": lambda: byte_level(None, digits=True),
    "llama2": lambda: sentence_piece("llama2"),
    "gemma": lambda: sentence_piece("gemma"),
    "first": lambda: sentence_piece("first", bytes_=False),
    "unfused": lambda: sentence_piece("never", bytes_=False, fuse=False),
    "undivided": lambda: sentence_piece("always", split=False),
    "unigram": lambda: sentence_piece("always", unigram=True, bytes_=False),
    "unigram_bytes": lambda: sentence_piece("llama2", unigram=True),
    "neox": lambda: with_spaces(byte_level(None, nfc=True)),
    "phi3": lambda: stripping(sentence_piece("llama2"), rstrip=True),
    "phi4": lambda: stripping(byte_level(LLAMA3), lstrip=True, rstrip=True),
}


def assigned(char: str) -> bool:
    """Whether Python and the package agree on a character. Letters of later versions of Unicode
    are not known to Python, and marks of versions behind 3.2 not to all of the package."""
    if unicodedata.category(char) in ("Cn", "Cs"):
        return False
    joins = unicodedata.combining(char) or unicodedata.decomposition(char)
    return not joins or unicodedata.ucd_3_2_0.category(char) != "Cn"


def texts(seed: int, count: int) -> Iterator[bytes]:
    """Mixed texts: samples, random code points, long runs, and invalid UTF-8."""
    rng = random.Random(seed)
    for _ in range(count):
        parts = [sample[rng.randrange(4) :][: rng.randrange(1, 40)] for sample in
                 rng.choices(SAMPLES, k=rng.randrange(1, 7))]  # fmt: skip
        kind = rng.random()
        if kind < 0.3:
            drawn = (chr(rng.choice((rng.randrange(0x110000), rng.randrange(0x3000))))
                     for _ in range(40))  # fmt: skip
            parts.append("".join(filter(assigned, drawn)))
        elif kind < 0.4:
            parts.append(rng.choice("a \n1\u00e9\u6f22'<") * rng.randrange(1, 200))
        text = "".join(parts).encode()
        if kind > 0.8:
            changed = bytearray(text)
            for _ in range(rng.randrange(1, 8)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            text = bytes(changed)[: rng.randrange(1, len(text) + 1)]
            # Changed bytes may make a character that only one of them knows.
            read = text.decode("utf-8", "surrogateescape")
            known = (c if "\udc80" <= c <= "\udcff" or assigned(c) else "?" for c in read)
            text = "".join(known).encode("utf-8", "surrogateescape")
        yield text
