# SPDX-License-Identifier: Apache-2.0
"""Random bad calls: the right status each, and no byte anywhere has changed.

All memory of a call lies in one block, which is compared as a whole afterwards. What is
wrong is chosen here, and so is the status that it must give; the generated code is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import cffi
import numpy as np
import pytest
from numpy.typing import NDArray

from examples.extern_routine import make_model as peaks
from examples.keyword import make_model
from relax_aot import driver
from relax_aot.driver import Options
from relax_aot.emit.interface import Interface
from relax_aot.project import Project
from relax_aot.verify.host import build_library
from relax_aot.verify.library import CDEF
from relax_aot.verify.program import to_bytes
from relax_aot.verify.samples import cases_of
from tests.end_to_end.subjects import SHARED, SUBJECTS, Subject
from tests.fuzz.graphs import random_graph
from tests.models.catalog import CATALOGUE

NULL, ARENA, ALIGN, SIZE, OVERLAP, STATE = -1, -2, -3, -4, -9, -10
GRAPHS = (3, 7, 11, 19)
"""Seeds of random graphs with sizes in several symbols."""


def fuzzed(seed: int) -> Subject:
    made = random_graph(seed)
    options = Options(bounds=made.bounds, name=f"graph{seed}")
    at = tuple({name: sizes[name] for name in made.bounds} for sizes in made.assignments)
    return Subject(lambda: made.model, options, at)


ALL = {
    **SUBJECTS,
    **{f"graph{seed}": fuzzed(seed) for seed in GRAPHS},
    **{
        f"{name}_int8": Subject(
            lambda name=name: SHARED / f"{name}_int8_qdq.onnx",  # type: ignore[misc]  # bound early
            Options(name=name),
            shared=True,
        )
        for name in ("kws", "resnet8")
    },
    "gru_state": Subject(
        CATALOGUE["gru_tagger"].make,
        Options(
            bounds=CATALOGUE["gru_tagger"].bounds,
            state=dict(CATALOGUE["gru_tagger"].state),
            name="gru_state",
        ),
    ),
    "keyword": Subject(
        lambda: make_model.model(make_model.trained(np.random.default_rng(7), words=60)),
        Options(bounds={"n": (1, 80)}, name="keyword"),
        ({"n": 33},),
    ),
    "peaks": Subject(
        peaks.model, Options(bounds={"b": (1, 3), "n": (1, 50)}, name="peaks"), ({"b": 2, "n": 31},)
    ),
}
MANY = sorted(ALL)
FEW = ("gesture", "gru_tagger", "lstm_tagger", "small_encoder", "image_net")
SPACE = 256
"""Bytes between buffers, so that one may be moved without meeting another."""


@cache
def project_of(name: str) -> Project:
    return driver.compile_model(ALL[name].model(), "host", ALL[name].options)


@dataclass
class Setup:
    """A good call of one model, every buffer at its place in one block."""

    ffi: Any
    model: Any
    keep: Any
    interface: Interface
    block: NDArray[np.uint8]
    places: dict[str, tuple[int, int]]
    """Buffer -> address, bytes that this call uses of it."""
    dims: list[int]
    alignment: int

    def call(self, places: dict[str, int], dims: list[int], arena_bytes: int) -> int:
        ffi = self.ffi
        memory = ffi.new("struct raot_buffers *")
        memory.arena = ffi.cast("void *", places["arena"])
        memory.arena_bytes = arena_bytes
        memory.state = ffi.cast("void *", places.get("state", 0))
        named = [n for n in self.places if n.startswith("in:")]
        inputs = [ffi.cast("void *", places[n]) for n in named]
        outputs = [ffi.cast("void *", places[n]) for n in self.places if n.startswith("out:")]
        result = ffi.new("int32_t[]", [-7] * 16)
        status = self.model.run(
            memory,
            ffi.new("int32_t[]", dims or [0]),
            ffi.new("const void *[]", inputs or [ffi.NULL]),
            ffi.new("void *[]", outputs or [ffi.NULL]),
            result,
        )
        assert list(result) == [-7] * 16 or status == 0
        return int(status)


def setup(name: str) -> Setup:
    project = project_of(name)
    interface = project.interface
    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    library = ffi.dlopen(str(build_library(project)))
    model = library.raot_model
    case = cases_of(interface, ALL[name].at[-1:], {})[-1]
    dims = [case.sizes[f.symbol.name] for f in interface.dims]
    inner = {f.symbol.name for f in interface.results}
    sizes = {"arena": int(model.arena_need(ffi.new("int32_t[]", dims or [0])))}
    if interface.has_state:
        sizes["state"] = int(model.state_bytes)
    for port, array in zip(interface.inputs, case.inputs, strict=True):
        sizes[f"in:{port.name}"] = to_bytes(array).size
    for number, port in enumerate(interface.outputs):
        whole = bool(port.type.symbols & inner) or not port.type.symbols <= case.sizes.keys()
        exact = 0 if whole else port.type.bytes.evaluate(case.sizes)
        sizes[f"out:{port.name}"] = int(model.output_bytes[number]) if whole else exact
    alignment = max(int(model.alignment), 64)
    block = np.full(sum(sizes.values()) + (len(sizes) + 2) * (SPACE + alignment), 0xA5, np.uint8)
    at = block.ctypes.data + SPACE
    places = {}
    for buffer, size in sizes.items():
        at += -at % alignment
        places[buffer] = (at, size)
        at += size + SPACE
    made = Setup(ffi, model, library, interface, block, places, dims, int(model.alignment))
    for port, array in zip(interface.inputs, case.inputs, strict=True):
        start = places[f"in:{port.name}"][0] - block.ctypes.data
        data = to_bytes(array)
        block[start : start + data.size] = data
    if interface.has_state:
        memory = ffi.new("struct raot_buffers *")
        memory.state = ffi.cast("void *", places["state"][0])
        assert model.init(memory, ffi.new("int32_t[]", dims or [0])) == 0
    return made


def bad_call(made: Setup, rng: np.random.Generator) -> tuple[int, int, str]:
    """(status wanted, status got, what was wrong) of one call with one thing wrong."""
    places = {name: place for name, (place, _) in made.places.items()}
    sizes = {name: size for name, (_, size) in made.places.items()}
    dims, arena_bytes = list(made.dims), sizes["arena"]
    free = [n for n, f in enumerate(made.interface.dims) if not f.pinned]
    kinds = ["null", "align", "overlap", "overlap"]
    kinds += ["arena"] * (arena_bytes > 0)
    kinds += ["size"] * 2 * bool(made.interface.dims)
    kinds += ["state"] * ("state" in places)
    kind = str(rng.choice(kinds))
    needed = [name for name, size in sizes.items() if size]
    what, wanted = "", 0
    if kind == "null":
        what = str(rng.choice(needed))
        places[what], wanted = 0, NULL
    elif kind == "align":
        units = {n: made.alignment for n in ("arena", "state") if sizes.get(n)}
        ports = {"in": made.interface.inputs, "out": made.interface.outputs}
        for side, listed in ports.items():
            units |= {f"{side}:{p.name}": p.type.dtype.bytes for p in listed}
        units = {name: unit for name, unit in units.items() if unit > 1 and sizes[name]}
        if not units:
            return bad_call(made, rng)
        what = str(rng.choice(sorted(units)))
        places[what] += int(rng.integers(1, units[what]))
        wanted = ALIGN
    elif kind == "arena":
        arena_bytes = int(rng.integers(0, arena_bytes))
        wanted = ARENA
    elif kind == "size":
        position = int(rng.choice(free)) if free else 0
        field = made.interface.dims[position]
        low, high = field.symbol.low, field.symbol.high
        beyond = [low - 1, high + 1, int(rng.integers(high + 1, 2**31)), -(2**31), 2**31 - 1]
        beyond.append(int(rng.integers(-(2**31), low)))
        dims[position] = int(rng.choice([n for n in beyond if not low <= n <= high]))
        what, wanted = field.c_name, SIZE
    elif kind == "state":
        return STATE, without_mark(made, places, dims, arena_bytes), "no mark"
    else:
        written = [n for n in needed if not n.startswith("in:")]
        if len(needed) < 2 or not written:
            return bad_call(made, rng)
        moved = str(rng.choice(written))
        other = str(rng.choice([n for n in needed if n != moved]))
        # Some byte of one is a byte of the other; both stay aligned and inside the block.
        unit = 64
        low = -((sizes[moved] - 1) // unit) * unit
        high = (sizes[other] - 1) // unit * unit
        places[moved] = places[other] + int(rng.integers(low // unit, high // unit + 1)) * unit
        what, wanted = f"{moved} over {other}", OVERLAP
        if "state" in (moved,):
            # The mark of a state that lies elsewhere is not there: that is seen first.
            wanted = STATE
    before = made.block.copy()
    got = made.call(places, dims, arena_bytes)
    changed = int((made.block != before).sum())
    assert changed == 0, f"{kind} {what}: {changed} bytes changed"
    return wanted, got, f"{kind} {what}"


def without_mark(made: Setup, places: dict[str, int], dims: list[int], arena_bytes: int) -> int:
    start = places["state"] - made.block.ctypes.data
    mark = made.block[start : start + 4].copy()
    made.block[start : start + 4] ^= 1
    before = made.block.copy()
    got = made.call(places, dims, arena_bytes)
    assert (made.block == before).all()
    made.block[start : start + 4] = mark
    return got


def run_many(name: str, count: int) -> None:
    made = setup(name)
    rng = np.random.default_rng(len(name))
    places = {n: place for n, (place, _) in made.places.items()}
    good = (places, list(made.dims), made.places["arena"][1])
    for _ in range(count):
        wanted, got, what = bad_call(made, rng)
        assert got == wanted, what
    assert made.call(*good) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_three_hundred_bad_calls(name: str) -> None:
    assert made_of(name)
    run_many(name, 300)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", MANY)
def test_ten_thousand_bad_calls(name: str) -> None:
    assert made_of(name)
    run_many(name, 10_000)


def test_there_are_twenty_models() -> None:
    assert len(MANY) >= 20


def made_of(name: str) -> bool:
    """There is something to get wrong."""
    interface = project_of(name).interface
    return bool(interface.outputs)


@pytest.mark.parametrize("name", FEW)
def test_null_structs_are_refused(name: str) -> None:
    """Every pointer of `<name>_run` that may not be null, one after the other."""
    project = project_of(name)
    interface = project.interface
    count = 1 + sum(map(bool, (interface.dims, interface.inputs, interface.outputs)))
    count += bool(interface.results)
    ffi = cffi.FFI()
    parameters = ", ".join(["void *"] * count)
    ffi.cdef(f"int {interface.name}_run({parameters});")
    library = ffi.dlopen(str(build_library(project)))
    something = ffi.new("char[4096]")
    for position in range(count):
        arguments = [ffi.cast("void *", something)] * count
        arguments[position] = ffi.NULL
        assert getattr(library, f"{interface.name}_run")(*arguments) == NULL
    assert bytes(ffi.buffer(something)) == bytes(4096)
