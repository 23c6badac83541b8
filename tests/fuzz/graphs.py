# SPDX-License-Identifier: Apache-2.0
"""Random ONNX graphs with symbolic sizes, and what they compute by ONNX Runtime, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from onnx import ModelProto, helper, numpy_helper

from tests.fuzz.steps import STEPS, Step
from tests.fuzz.values import Graph, Rejected, Sizes, Value, model_of, outer_names, value_info
from tests.fuzz.wide_steps import WIDE_STEPS, WILD_STEPS

LOOPS = ("i0", "i1", "i2", "i1_2", "at", "w", "t", "count", "place", "height", "i0_tile", "channel")
"""Sizes may be called what loops and indices of kernels are called."""
ATTEMPTS = 12
"""So many draws for one step."""


@dataclass(frozen=True)
class Fuzzed:
    model: ModelProto
    bounds: dict[str, tuple[int, int]]
    assignments: tuple[Sizes, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


WILD_EVERY = 5
"""Each such wide graph has special values among its inputs."""


def random_graph(seed: int) -> Fuzzed:
    random = Random(seed)
    return drawn(random, STEPS, (3, 14))


def wide_graph(seed: int) -> Fuzzed:
    """A graph with scattering, unpooling, resizing, recurrences, data-dependent sizes."""
    random = Random(f"wide {seed}")
    wild = seed % WILD_EVERY == WILD_EVERY - 1
    return drawn(random, WILD_STEPS if wild else WIDE_STEPS, (4, 12), wild=wild)


def drawn(
    random: Random,
    steps: Sequence[tuple[Step, int]],
    counts: tuple[int, int],
    *,
    wild: bool = False,
) -> Fuzzed:
    names = random.sample(LOOPS, 3) if random.random() < 0.4 else ["N", "M", "K"]
    lows = {name: random.randint(1, 3) for name in names}
    symbols = {name: (low, low + random.choice((2, 4, 7))) for name, low in lows.items()}
    g = Graph(random, symbols, assignments(random, symbols), wild=wild)
    rank = random.choice((1, 2, 2, 3, 3, 4, 4))
    choices: list[str | int] = [*names, 3, 4, 1]
    dims = [random.choice(choices) for _ in range(rank)]
    dims[random.randrange(rank)] = names[0]
    if rank > 2 and random.random() < 0.7:
        dims[1] = 4
    dtype = "float16" if random.random() < 0.06 else "float32"
    g.input(dims, dtype)
    functions, weights = zip(*steps, strict=True)
    for _ in range(random.randint(*counts)):
        for _ in range(ATTEMPTS):
            state = (list(g.nodes), list(g.pool), dict(g.constants), list(g.inputs), set(g.used))
            try:
                random.choices(functions, weights)[0](g)
                break
            except Rejected:
                g.nodes, g.pool, g.constants, g.inputs, g.used = state
    return finished(g)


def assignments(random: Random, symbols: dict[str, tuple[int, int]]) -> tuple[Sizes, ...]:
    """Lowest, highest, and two between; no two symbols agree everywhere."""
    while True:
        found = [{name: low for name, (low, _) in symbols.items()}]
        found.append({name: high for name, (_, high) in symbols.items()})
        for _ in range(2):
            found.append({name: random.randint(*bounds) for name, bounds in symbols.items()})
        columns = {tuple(a[name] for a in found) for name in symbols}
        if len(columns) == len(symbols) and all(len(set(c)) > 1 for c in columns):
            return tuple(found)


def finished(g: Graph) -> Fuzzed:
    made = [v for v in g.pool if any(v.name in node.output for node in g.nodes)]
    read = {name for node in g.nodes for name in node.input} | g.used
    outputs = [v for v in made if v.name not in read or g.random.random() < 0.15]
    if not outputs:
        outputs = made[-1:] or g.inputs[:1]
    if g.random.random() < 0.05 and g.inputs[0] not in outputs:
        outputs.append(g.inputs[0])
    if g.random.random() < 0.03:
        outputs.append(g.drawn_constant([2, 3]))
    g.random.shuffle(outputs)
    graph = helper.make_graph(
        g.nodes,
        "fuzzed",
        [value_info(v.name, v.dtype, g.dims(v)) for v in g.inputs],
        [value_info(v.name, v.dtype, [None] * v.rank) for v in outputs],
        [numpy_helper.from_array(array, name) for name, array in g.constants.items()],
    )
    named = {dim for v in g.inputs for dim in g.dims(v)}
    bounds = {name: bound for name, bound in g.symbols.items() if name in named}
    alive = needed(g, outputs)
    bounds |= {name: b for name, b in g.computed.items() if name.rpartition("_")[0] in alive}
    return Fuzzed(model_of(graph), bounds, g.assignments, tuple(g.inputs), tuple(outputs))


def needed(g: Graph, outputs: Sequence[Value]) -> set[str]:
    """Names of the values that these outputs depend on."""
    found = {value.name for value in outputs}
    for node in reversed(g.nodes):
        if found & set(node.output):
            found |= outer_names(node) | set(node.output)
    return found
