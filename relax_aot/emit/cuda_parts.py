# SPDX-License-Identifier: Apache-2.0
"""The parts of a run on a GPU: launches that are one graph, and products that a library computes.

Without a library, a run is one part. With it, the launches in the place of a product are a part of
their own, which is left out where the library computes the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from relax_aot.emit.c_names import comment
from relax_aot.emit.cuda_control import Call
from relax_aot.emit.cuda_library import LibraryProduct


@dataclass(frozen=True, slots=True)
class CallView:
    note: str
    text: str


@dataclass(frozen=True, slots=True)
class PartView:
    """Launches in one graph. `run` is a member of the block of the host."""

    run: str
    calls: tuple[CallView, ...]
    first_call: str
    """What is added to the arrays of all launches, and of all words; nothing for the first."""
    first_word: str
    product: CallView | None
    """The product of a library that these launches stand in for, as a statement."""
    start: str
    """A call that starts the part in a stream."""


def parts_of(
    calls: Sequence[Call],
    products: Sequence[LibraryProduct],
    functions: Sequence[str],
    slots: Mapping[str, str],
    tail: str,
) -> tuple[PartView, ...]:
    """`tail`: what stands behind the names of a run; `slots`: C of the places of values."""
    groups = [(own, tuple(made)) for own, made in groupby(calls, key=lambda call: call.product)]
    views = []
    first_call = first_word = 0
    for number, (own, made) in enumerate(groups):
        run = f"run{tail}[{number}]" if products else f"run{tail}"
        graph = f"&device->{run}"
        start = f"raot_cuda_start(cuda, {graph}, stream)"
        product = None
        if own is not None:
            place = f"&device->products{tail}[{own}]"
            start = f"raot_blas_start(cuda, &device->blas, {place}, {graph}, stream)"
            text = _product(products[own], f"{place}, &product_kinds{tail}[{own}]", slots)
            product = CallView(comment(f"where cuBLASLt computes it: {made[0].note}"), text)
        views.append(
            PartView(
                run,
                tuple(_call(call, run, functions, slots) for call in made),
                f" + {first_call}" if first_call else "",
                f" + {first_word}" if first_word else "",
                product,
                start,
            )
        )
        first_call += len(made)
        first_word += sum(len(call.words) for call in made)
    return tuple(views)


def _call(call: Call, run: str, functions: Sequence[str], slots: Mapping[str, str]) -> CallView:
    words = ", ".join(slots.get(word, word) for word in call.words)
    text = (
        f"raot_launch(&device->cuda, &device->{run}, {functions.index(call.function)}u,"
        f" {call.grid}, {call.threads}u, (const raot_address[]){{{words}}}, {len(call.words)}u);"
    )
    return CallView(comment(f"{call.function}: {call.note}".removesuffix(": ")), text)


def _product(product: LibraryProduct, places: str, slots: Mapping[str, str]) -> str:
    left, right, *others = (slots.get(place, place) for place in product.operands)
    operands = f"{{{left}, {right}}}, {', '.join(others)}, {product.workspace_bytes}u"
    return (
        f"raot_blas_launch(&device->cuda, &device->blas, {places}, {product.wanted},"
        f" &(const struct raot_blas_sizes){{{', '.join(product.sizes)}}},"
        f" &(const struct raot_blas_operands){{{operands}}});"
    )
