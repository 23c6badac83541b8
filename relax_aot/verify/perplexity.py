# SPDX-License-Identifier: Apache-2.0
"""How well a language model predicts a text: exp of the mean negative log-probability of tokens.

The text is cut into parts of as many tokens as the caches hold, and each part is read alone, as
`llama-perplexity` of llama.cpp does; here, all tokens of a part but its first are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relax_aot.errors import RelaxAotError
from relax_aot.verify.host import HostEntries


@dataclass(frozen=True, slots=True)
class Perplexity:
    """`tokens`: how many were predicted."""

    tokens: int
    value: float


def parts_of(
    text: NDArray[np.int32], first: NDArray[np.int32], context: int
) -> list[NDArray[np.int32]]:
    """The parts of a text, each behind the tokens `first`; a last one without a prediction goes."""
    size = context - first.size
    if size < 1 or context < 2:
        raise RelaxAotError(
            f"a context of {context} has no room for a token behind those that begin a text:"
            " choose a larger one with --context"
        )
    starts = range(0, text.size, size)
    parts = [np.concatenate([first, text[start : start + size]]) for start in starts]
    found = [part for part in parts if part.size > max(first.size, 1)]
    if not found:
        raise RelaxAotError("the text has too few tokens: at least one is to be predicted")
    return found


def perplexity(
    host: HostEntries, parts: Sequence[NDArray[np.int32]], first: int, chunk: int
) -> Perplexity:
    """`host` has the entry `prefill(tokens[n]) -> logits[n, words]` for up to `chunk` tokens. The
    `first` tokens of each part are not predicted from each other."""
    losses = np.concatenate([_losses(host, part, chunk)[max(first, 1) - 1 :] for part in parts])
    with np.errstate(over="ignore"):
        return Perplexity(losses.size, float(np.exp(losses.mean())))


def _losses(host: HostEntries, part: NDArray[np.int32], chunk: int) -> NDArray[np.float64]:
    """The negative log-probability of each token behind the first."""
    host.reset()
    found = []
    for start in range(0, part.size - 1, chunk):
        tokens = part[start : min(start + chunk, part.size - 1)]
        scores = host.prefill(tokens=tokens)["logits"].astype(np.float64)
        after = part[start + 1 : start + 1 + tokens.size]
        peak = scores.max(axis=1, keepdims=True)
        sums = np.log(np.exp(scores - peak).sum(axis=1)) + peak[:, 0]
        found.append(sums - scores[np.arange(tokens.size), after])
    return np.concatenate(found)
