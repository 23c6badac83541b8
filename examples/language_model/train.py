# SPDX-License-Identifier: Apache-2.0
"""Trains the model and writes `pydoc.gguf`. Needs PyTorch, tokenizers and gguf.

    python -m examples.language_model.train [STEPS]

Matrices of the layers are trained by Muon (Jordan and others, 2024), which takes half as many steps
as AdamW here; the table and the norms by AdamW.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional as f

from examples.language_model.documents import documents
from examples.language_model.gguf_file import write
from examples.language_model.network import CONTEXT, WORDS, Network

END = "<|endoftext|>"
BATCH, STEPS, WARM = 16, 1100, 50
RATE, DECAY = 8e-3, 0.1
TESTED = 40  # one text of so many is not trained on


def train_tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def stream(texts: list[Tensor]) -> Tensor:
    """All texts in a new order, cut into rows with one token more than the context."""
    tokens = torch.cat(random.sample(texts, len(texts)))
    start = random.randrange(CONTEXT)
    count = (len(tokens) - 1 - start) // CONTEXT
    rows = [tokens[start + i * CONTEXT :][: CONTEXT + 1] for i in range(count)]
    return torch.stack(rows)


def batches(texts: list[Tensor]) -> Iterator[Tensor]:
    while True:
        rows = stream(texts)
        yield from rows[torch.randperm(len(rows))].split(BATCH)[:-1]


def loss_of(network: Network, rows: Tensor) -> Tensor:
    logits = network(rows[:, :-1])
    return f.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def tested_loss(network: Network, texts: list[Tensor]) -> float:
    """The mean over rows of texts in their order."""
    tokens = torch.cat(texts)
    rows = tokens[: len(tokens) // CONTEXT * CONTEXT].unflatten(0, (-1, CONTEXT))
    with torch.no_grad():
        return float(loss_of(network, rows))


def slope(step: int, steps: int) -> float:
    """The part of the rate at a step: up at once, slowly down, then to nearly nothing."""
    turn = steps * 32 // 55
    slow = steps * 18 / 11
    late = 0.02 + (1.0 - turn / slow) * (steps - step) / (steps - turn)
    return min((step + 1) / WARM, 1.02 - step / slow, late)


def train(network: Network, texts: list[Tensor], tested: list[Tensor], steps: int) -> None:
    inner = [p for p in network.blk.parameters() if p.ndim == 2]
    outer = [p for p in network.parameters() if all(p is not other for other in inner)]
    optimizers = [
        torch.optim.Muon(inner, RATE, DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(outer, RATE / 2, (0.9, 0.95), weight_decay=0, fused=True),
    ]
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["initial_lr"] = group["lr"]
    begin = time.monotonic()
    for step, rows in zip(range(steps), batches(texts), strict=False):
        loss = loss_of(network, rows)
        network.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * slope(step, steps)
            optimizer.step()
        if step % 100 == 99 or step == steps - 1:
            spent = time.monotonic() - begin
            print(f"step {step + 1}: loss {loss.item():.3f}, {spent:.0f} s", flush=True)
        if step % 300 == 299 or step == steps - 1:
            print(f"texts that were not trained on: {tested_loss(network, tested):.3f}", flush=True)


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    texts = documents()
    tokenizer = train_tokenizer(texts)
    rows = [torch.tensor([0, *tokenizer.encode(text).ids]) for text in texts]
    print(f"{len(texts)} texts, {sum(map(len, texts))} bytes, {sum(map(len, rows))} tokens")
    tested = rows[::TESTED]
    trained = [row for number, row in enumerate(rows) if number % TESTED]
    network = Network()
    print(f"{sum(p.numel() for p in network.parameters())} weights")
    train(network, trained, tested, steps)
    write(Path(__file__).with_name("pydoc.gguf"), network, tokenizer, END)


if __name__ == "__main__":
    main()
