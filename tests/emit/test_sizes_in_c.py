# SPDX-License-Identifier: Apache-2.0
"""Sizes as C computes them: at the ends of their ranges, under UBSan, against plain integers.

What `relax_aot/emit/fits.py` lets pass must neither overflow nor differ; what overflows must
be among what it refuses.
"""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path
from random import Random

import pytest

from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.emit.c_dims import dim_c, greatest_c
from relax_aot.emit.fits import Reach, all_sides
from relax_aot.emit.fractions import Polynomial
from relax_aot.inference.build import FunctionBuilder
from relax_aot.ir.dims import Bounds, Dim, ceildiv, dim_max, dim_min, maximize
from relax_aot.ir.graph import Symbol
from relax_aot.ir.loops import For, Let
from relax_aot.ir.types import DType, TensorType
from relax_aot.planning import TooLarge
from relax_aot.project.board import load_board
from relax_aot.resources import data_dir

NAMES = ("n", "m", "k")
INT32_MAX = 2**31 - 1
HIGHS = (3, 100, 46340, 2**20, 2**29, INT32_MAX)
FLAGS = (
    "-std=c11", "-O1", "-Wall", "-Wextra", "-fsanitize=undefined",
    "-fsanitize-undefined-trap-on-error",
)  # fmt: skip


def n_of(random: Random) -> Dim:
    return Dim.of(random.choice(NAMES))


def random_dim(random: Random, depth: int = 3) -> Dim:
    if depth == 0 or random.random() < 0.15:
        number = Dim.of(random.randint(-9, 9))
        return n_of(random) if random.random() < 0.8 else number
    a, b = random_dim(random, depth - 1), random_dim(random, depth - 1)
    k = random.randint(2, 9)
    d = dim_max(b, 1) * random.choice((1, k, dim_max(n_of(random), 1)))
    return random.choice(
        (
            a // d * d, a - a // d * d * random.choice((1, k)),
            a + b, a - b, a * b, a * k, a // k, a % k, ceildiv(a, k), dim_min(a, b),
            dim_max(a, b), -a, a // (dim_max(b, 0) + 1), a % (dim_max(b, 0) + k),
        )
    )  # fmt: skip


def fits(dim: Dim, lows: dict[str, int], highs: dict[str, int]) -> bool:
    ranges = Bounds.of({name: (lows[name], highs[name]) for name in NAMES})
    reach = Reach({name: Polynomial.of(name) for name in NAMES}, ranges.lows)
    return all(side.above.evaluate(highs) <= INT32_MAX for side in all_sides(dim, reach))


def corners(lows: dict[str, int], highs: dict[str, int]) -> list[dict[str, int]]:
    """The ends of the ranges and their neighbors."""
    choices = [
        sorted({low, min(low + 1, high), (low + high) // 2, max(high - 1, low), high})
        for low, high in ((lows[n], highs[n]) for n in NAMES)
    ]
    return [dict(zip(NAMES, point, strict=True)) for point in product(*choices)]


def program(seed: int, count: int) -> tuple[str, int]:
    """A C program that compares, and the greatest value in it."""
    random, functions, checks, greatest, made = Random(seed), [], [], 0, 0
    while made < count:
        dim = random_dim(random)
        lows = {n: random.choice((0, 1, 1, 2)) for n in NAMES}
        highs = {n: max(random.choice(HIGHS), lows[n]) for n in NAMES}
        if dim.is_constant or not fits(dim, lows, highs):
            continue
        bounds = Bounds.of({n: (lows[n], INT32_MAX) for n in NAMES})
        text = dim_c(dim, {n: n for n in NAMES}, bounds)
        parameters = ", ".join(f"int32_t {n}" for n in NAMES)
        unused = " ".join(f"(void){n};" for n in NAMES)
        functions.append(f"static int32_t f{made}({parameters}) {{ {unused} return {text}; }}")
        for point in random.sample(corners(lows, highs), 12):
            expected = dim.evaluate(point)
            greatest = max(greatest, abs(expected))
            values = ", ".join(str(point[n]) for n in NAMES)
            checks.append(f'    if (f{made}({values}) != {expected}) {{ puts("{dim}"); bad = 1; }}')
        top = greatest_c(
            dim,
            {n: f"H{made}_{n}" for n in NAMES},
            Bounds.of({n: (lows[n], highs[n]) for n in NAMES}),
        )
        ends = maximize(dim, Bounds.of({n: (lows[n], highs[n]) for n in NAMES})).evaluate(highs)
        defines = "\n".join(f"#define H{made}_{n} {highs[n]}" for n in NAMES)
        functions.append(f'{defines}\n_Static_assert(({top}) == {ends}LL, "f{made}");')
        made += 1
    head = '#include <stdint.h>\n#include <stdio.h>\n#include "raot/index.h"\n'
    body = "\n".join([*functions, "int main(void)\n{\n    int bad = 0;", *checks])
    return f"{head}{body}\n    return bad;\n}}\n", greatest


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_size_overflows_where_it_is_let_pass(compiler: str, tmp_path: Path) -> None:
    text, greatest = program(7, 250)
    assert greatest > 2**30, "the sample does not come near the limit"
    (tmp_path / "sizes.c").write_text(text)
    include = str(data_dir("runtime_c") / "include")
    command = [compiler, *FLAGS, f"-I{include}", "sizes.c", "-o", "sizes"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:2000]
    ran = subprocess.run(["./sizes"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[:2000]


@pytest.mark.slow
class CInt(int):
    """An integer whose operators are those of C: quotients are cut off towards zero."""

    def __add__(self, other: int) -> CInt:
        return CInt(int(self) + int(other))

    def __sub__(self, other: int) -> CInt:
        return CInt(int(self) - int(other))

    def __mul__(self, other: int) -> CInt:
        return CInt(int(self) * int(other))

    def __neg__(self) -> CInt:
        return CInt(-int(self))

    def __truediv__(self, other: int) -> CInt:
        whole = abs(int(self)) // abs(int(other))
        return CInt(whole if (self < 0) == (other < 0) else -whole)

    def __mod__(self, other: int) -> CInt:
        return CInt(int(self) - int(self / other) * int(other))


@pytest.mark.parametrize("seed", range(40))
def test_divisors_and_factors_keep_their_value(seed: int) -> None:
    """Those that are products, or negative, as numbers that several kernels share may be."""
    random = Random(seed)
    values = {"n": random.randint(20, 90), "m": random.randint(1, 5), "k": random.randint(-4, -1)}
    bounds = Bounds.of({"n": (20, 90), "m": (1, 5), "k": (-4, -1)})
    n, m, k = map(Dim.of, values)
    parts = [k * -2, -k, m * 3, m - k, -(k * m), m * k * -2]
    dim = (n - m) // parts[seed % len(parts)]
    for _ in range(2):
        part = random.choice(parts)
        dim = random.choice(
            [dim * part, (dim + n) // part, n - dim * part, (dim * part + 3) % part]
        )
    text = dim_c(dim, {name: name for name in values}, bounds)
    numbers = re.sub(r"\b(\d+)\b", r"CInt(\1)", text)
    known = {name: CInt(value) for name, value in values.items()} | {
        "CInt": CInt,
        "raot_floor_div": lambda a, b: CInt(int(a) // int(b)),
        "raot_floor_mod": lambda a, b: CInt(int(a) % int(b)),
    }
    assert eval(numbers, known) == dim.evaluate(values), text  # noqa: S307


def test_what_overflows_is_refused() -> None:
    """By plain integers: a sum of positive terms that passes 2**31 is never let pass."""
    random, refused = Random(11), 0
    for _ in range(400):
        dim = random_dim(random)
        highs = {n: random.choice(HIGHS) for n in NAMES}
        passed = fits(dim, dict.fromkeys(NAMES, 1), highs)
        for point in corners(dict.fromkeys(NAMES, 1), highs):
            if abs(dim.evaluate(point)) > INT32_MAX:
                assert not passed, (str(dim), highs)
                refused += 1
    assert refused > 100


def tile_index(h: Dim, w: Dim) -> tuple[list[Let], Dim]:
    """The places of a row of tiles of 128 elements of a matrix, and one in a matrix twice as wide;
    `block` is a loop variable."""
    tiles = ceildiv(h * w, 128)
    b, line, element, i, j = map(Dim.of, ("block", "line", "element", "i", "j"))
    lets = [
        Let("line", b // tiles),
        Let("element", dim_min(128 * b - 128 * line * tiles, h * w - 1)),
        Let("i", element // w),
        Let("j", element - i * w),
    ]
    return lets, 2 * i * (2 * w) + j * w


def test_an_index_in_a_tile_gets_no_further_than_its_matrix() -> None:
    h, w = Dim.of("h"), Dim.of("w")
    lets, index = tile_index(h, w)
    bounds = Bounds.of({"h": (1, 90), "w": (1, 90)})
    blocks = 3 * ceildiv(h * w, 128)
    own = {name: Polynomial.of(name) for name in ("h", "w")}
    reach = Reach(own, bounds.lows).inside(For("block", Dim.of(0), blocks, ()))
    found: list[Polynomial] = []
    for let in lets:
        found += all_sides(let.value, reach)
        reach = reach.after(let)
    found += all_sides(index, reach)
    sides = [side.above for side in found]
    assert all(sum(p for _, p in monomial) <= 2 for side in sides for _, monomial in side.terms)
    for sizes in ({"h": 1, "w": 1}, {"h": 90, "w": 90}, {"h": 13, "w": 57}, {"h": 90, "w": 1}):
        most = max(side.evaluate(sizes) for side in sides)
        for block in range(blocks.evaluate(sizes)):
            known = {**sizes, "block": block}
            for let in lets:
                known[let.name] = let.value.evaluate(known)
                assert reach.names[let.name].above.evaluate(sizes) >= known[let.name] >= 0
            assert most >= index.evaluate(known)


def test_parts_of_a_sum_are_together_as_long_as_the_sum() -> None:
    """Steps of 32, of which two parts are an iteration: the index is about the size of a matrix."""
    k, n, pair, half = map(Dim.of, ("k", "n", "pair", "half"))
    names = {name: Polynomial.of(name) for name in ("k", "n")}
    reach = Reach(names, Bounds.of({"k": (1, 8192), "n": (1, 8192)}).lows)
    reach = reach.after(Let("parts", ceildiv(k, 32)))
    reach = reach.inside(For("pair", Dim.of(0), ceildiv(Dim.of("parts"), 2), ()))
    reach = reach.inside(For("half", Dim.of(0), Dim.of(2), ()))
    reach = reach.after(Let("part", 2 * pair + half))
    sides = [side.above for side in all_sides(32 * Dim.of("part") * n, reach)]
    most = max(side.evaluate({"k": 8192, "n": 8192}) for side in sides)
    assert 8192 * 8192 <= most <= 8192 * (8192 + 160)


def test_an_index_that_cannot_be_computed_is_one_error() -> None:
    """The result is small, the way to it is not."""
    b = FunctionBuilder()
    n = b.symbol(Symbol("n", 1, 2000))
    x = b.param("x", TensorType(DType.F32, (n,)))
    (y,) = b.call(
        "slice",
        x,
        name="y",
        starts=(n * n * n % 7,),
        lengths=(1,),
        axes=(0,),
        steps=(1,),
    )
    with pytest.raises(TooLarge, match="Use a smaller bound"):
        driver.compile_module(b.module((y,)), load_board("host"), Options(name="far"))
