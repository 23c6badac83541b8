# SPDX-License-Identifier: Apache-2.0
"""Arguments of the Python interface: of a wrong kind they are errors of ours, and no option that
is given is without effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner

import relax_aot as rx
from relax_aot.cli.main import cli
from relax_aot.cli.options import options_of, parse_bound

TEXT = """symbol n in 1..8
symbol m in 1..8

func @main(%x: f32[n], %w: f32[m], %s: f32[2], %c: f32[2]) {
  %y: f32[n] = add(%x, %x)
  %z: f32[m] = relu(%w)
  %t: f32[2] = add(%s, %c)
  return %y, %z, %t
}
"""
SMALL = "symbol n in 1..4\nfunc @main(%x: f32[n]) {\n  %y: f32[n] = relu(%x)\n  return %y\n}\n"
WRONG = (
    5, -1, 2.5, True, None, b"x", "no such", "a\0b", ["x", 3], [["n", 1]], (1, 2, 3), {1: 2},
    {"n": object()}, {"n": "8"}, {"n": (1, 2, 3)}, {"n": (8, 1)}, {"n": 2**40}, {"n": -1},
    {"n": True}, {"x": object()}, {"x": ["y"]}, object(), np.zeros(3), np.float32, lambda: 0,
)  # fmt: skip
"""No function takes all of them."""


def two() -> rx.Module:
    return rx.load(rx.parse(TEXT), fix={"c": [1.0, 2.0]})


def entries() -> rx.EntriesProject:
    return rx.compile({"one": rx.parse(SMALL), "two": rx.parse(SMALL)}, name="both")


def functions(folder: Path) -> dict[str, tuple[Callable[..., object], dict[str, Any]]]:
    """Every public function, with arguments that are right."""
    module = two()
    project = rx.compile(rx.parse(SMALL), name="small")
    several, x = entries(), np.zeros(3, np.float32)
    host, entries_host = project.host(), several.host()
    return {
        "load": (rx.load, {"source": module}),
        "compile": (rx.compile, {"source": rx.parse(SMALL)}),
        "parse": (rx.parse, {"text": TEXT}),
        "parse_entries": (rx.parse_entries, {"text": f"entry a\n{SMALL}"}),
        "save": (rx.save, {"module": module, "path": folder / "a.raot"}),
        "Project.write": (project.write, {"folder": folder / "w"}),
        "Project.host": (project.host, {}),
        "Project.report": (project.report, {"path": folder / "r.txt", "format": "txt"}),
        "Project.at": (lambda sizes: project.at(sizes), {"sizes": {"n": 2}}),
        "Project.emulate": (lambda arrays: project.emulate(arrays), {"arrays": {}}),
        "EntriesProject.write": (several.write, {"folder": folder / "w2"}),
        "EntriesProject.host": (several.host, {}),
        "EntriesProject.at": (lambda sizes: several.at(sizes), {"sizes": {"n": 2}}),
        "EntriesProject.emulate": (several.emulate, {"calls": []}),
        "host": (lambda arrays: host(arrays), {"arrays": {"x": x}}),
        "host x": (lambda x: host(x=x), {"x": x}),
        "host.at": (lambda sizes: host.at(sizes)(x=x), {"sizes": {"n": 3}}),
        "host.run_at": (host.run_at, {"sizes": {"n": 3}, "inputs": [x]}),
        "entry": (lambda arrays: entries_host.one(arrays), {"arrays": {"x": x}}),
        "entry.at": (lambda sizes: entries_host.one.at(sizes)(x=x), {"sizes": {"n": 3}}),
        "entry.run_at": (entries_host.run_at, {"entry": "one", "sizes": {"n": 3}, "inputs": [x]}),
        "entry.reset": (lambda sizes: entries_host.reset(sizes), {"sizes": {}}),
        "entries item": (lambda name: entries_host[name], {"name": "one"}),
    }


@pytest.mark.slow
def test_arguments_of_a_wrong_kind_are_errors_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = 0
    for name, (function, right) in functions(tmp_path).items():
        for parameter in inspect.signature(function).parameters:
            if (name, parameter) == ("load", "dynamic_shapes"):
                continue  # torch.export says what it takes
            for wrong in WRONG:
                try:
                    function(**(right | {parameter: wrong}))
                except rx.RelaxAotError as error:
                    assert str(error), (name, parameter, wrong)
                    refused += 1
                except Exception as error:
                    raise AssertionError(f"{name}({parameter}={wrong!r})") from error
    assert refused > 700


def test_positional_arrays_are_refused_with_the_way_out() -> None:
    host = rx.compile(rx.parse(SMALL)).host()
    x = np.zeros(3, np.float32)
    for arrays in ((x,), (x, x), ([x],)):
        with pytest.raises(rx.RelaxAotError, match=r"by name.*host\(x=\.\.\.\)"):
            host(*arrays)


def test_options_for_a_loaded_module_have_their_effect() -> None:
    module = two()
    makers: list[Any] = [rx.load, lambda m, **o: rx.compile(m, **o).built.source_module]
    for make in makers:
        bound = make(module, bounds={"n": (2, 4)})
        assert [(s.low, s.high) for s in bound.symbols if s.name == "n"] == [(2, 4)]
        fixed = make(module, fix={"w": [1.0, 2.0, 3.0]})
        assert [p.name for p in fixed.main.params] == ["x", "s"]
        assert not any(s.name == "m" and s.low < s.high for s in fixed.symbols)
        state = make(module, state={"s": "t"})
        assert [s.input for s in state.states] == ["s"]
        assumed = make(module, assume=["n <= m"])
        assert [str(c) for c in assumed.conditions] == ["0 <= m - n"]
    host = rx.compile(module, state={"s": "t"}, fix={"w": [1.0, -2.0]}).host()
    answer = host(x=np.ones(3, np.float32))
    np.testing.assert_array_equal(answer["z"], np.array([1.0, 0.0], np.float32))
    assert set(answer) == {"y", "z"}


def test_bounds_of_a_loaded_module_are_only_narrowed() -> None:
    module = two()
    makers: list[Any] = [rx.load, rx.compile]
    for make in makers:
        with pytest.raises(rx.RelaxAotError, match=r"loaded for 1\.\.8.*load the model"):
            make(module, bounds={"n": 64})
        with pytest.raises(rx.RelaxAotError, match="no such symbol"):
            make(module, bounds={"q": 4})


def test_options_for_loaded_entries_have_their_effect() -> None:
    loaded = rx.load({"one": rx.parse(SMALL), "two": rx.parse(SMALL)})
    for again in (
        rx.load(loaded, bounds={"n": (2, 3)}),
        rx.load({"one": loaded.modules[0][1]}, bounds={"n": (2, 3)}),
    ):
        assert next((s.low, s.high) for _, m in again.modules for s in m.symbols) == (2, 3)
    project = rx.compile(loaded, bounds={"n": (2, 3)})
    assert (project.built.bounded[0].symbol.low, project.built.bounded[0].symbol.high) == (2, 3)
    with pytest.raises(rx.RelaxAotError, match="no such symbol"):
        rx.compile(loaded, bounds={"q": 4})


GIVEN: dict[str, tuple[Any, str]] = {
    "board": ("mps2-an386", ""),
    "name": ("mine", ""),
    "bounds": ({"n": (1, 2)}, ""),
    "fix": ({"w": [1.0]}, ""),
    "state": ({"s": "t"}, ""),
    "assume": (["n <= m"], ""),
    "window": ({"n": 8}, "not the length of a growing state"),
    "optimize": ("size", ""),
    "offsets": ("dynamic", ""),
    "numerics": ("ordered", ""),
    "reassociate": (True, ""),
    "functions": ("inline", ""),
    "externs": (["none.toml"], "none.toml"),
    "libraries": (["none"], "none"),
    "weights": ("blob", ""),
    "stepwise": (True, ""),
    "threads": (2, ""),
    "emit": ("cubin", "host has none"),
    "quantize": ("int8w", "no matrix product"),
    "calibrate": ({"x": np.zeros((1, 3), np.float32)}, "calibrate belongs to quantize int8"),
    "calibration": ("entropy", "calibration belongs to quantize int8"),
    "keep_float": (["relu"], "keep_float belongs to quantize"),
    "symmetric": (True, "symmetric belongs to quantize int8"),
}
"""For each option of compile a value that is not its default, and what is said where it does
not change the project."""


CHAIN = """
func @main(%a: f32[2, 64], %b: f32[64, 64], %c: f32[64, 1]) {
  %d: f32[2, 64] = matmul(%a, %b)
  %y: f32[2, 1] = matmul(%d, %c)
  return %y
}"""


def test_no_option_of_compile_is_without_effect() -> None:
    assert set(GIVEN) == set(inspect.signature(rx.compile).parameters) - {"source"}
    module = two()
    plain = rx.compile(module).files
    for option, (value, why) in GIVEN.items():
        if option == "reassociate":
            continue
        try:
            files = rx.compile(module, **{option: value}).files
        except rx.RelaxAotError as error:
            assert why and why in str(error), (option, error)
        else:
            assert files != plain, option
    chain = rx.parse(CHAIN)
    assert rx.compile(chain, reassociate=True).files != rx.compile(chain).files
    for option in ("calibrate", "calibration", "symmetric"):
        with pytest.raises(rx.RelaxAotError, match="belongs to quantize int8"):
            rx.compile(module, quantize="int8w", **{option: GIVEN[option][0]})


def test_no_option_of_load_is_without_effect() -> None:
    options = set(inspect.signature(rx.load).parameters) - {"source"}
    assert options == {"examples", "dynamic_shapes", "bounds", "fix", "state", "assume", "window"}
    module = two()
    for option in ("bounds", "fix", "state", "assume", "window"):
        (value, why) = GIVEN[option]
        given: dict[str, Any] = {option: value}
        try:
            assert str(rx.load(module, **given)) != str(module)
        except rx.RelaxAotError as error:
            assert why and why in str(error), (option, error)
    for option in ("examples", "dynamic_shapes"):
        sources: list[Any] = [module, rx.load({"a": rx.parse(SMALL)})]
        for source in sources:
            with pytest.raises(rx.RelaxAotError):
                rx.load(source, **cast(Any, {option: ()}))


@pytest.mark.parametrize(
    ("option", "needed"),
    [
        ("--workers=2", "--farm"), ("--scheduler=tcp://a:1", "--farm"), ("--retries=1", "--farm"),
        ("--baud=9600", "--serial"), ("--sanitize --board mps2-an386", "--board host"),
        ("--calibration=entropy", "--quantize int8"), ("--keep-float=relu", "--quantize int8"),
        ("--activations=symmetric", "--quantize int8"),
        ("--quantize=int8w --activations=symmetric", "--quantize int8"),
    ],
)  # fmt: skip
def test_options_of_verify_that_would_have_no_effect(
    option: str, needed: str, tmp_path: Path
) -> None:
    (tmp_path / "a.raot").write_text(SMALL)
    done = CliRunner().invoke(cli, ["verify", str(tmp_path / "a.raot"), *option.split()])
    assert isinstance(done.exception, rx.RelaxAotError), done.output
    assert option.partition("=")[0].split()[0].strip() and needed in str(done.exception)


def test_the_bound_0_is_one_message_in_both_interfaces() -> None:
    said = []
    for bound in (
        lambda: parse_bound("n=0"),
        lambda: rx.load(rx.parse(TEXT), bounds={"n": 0}),
        lambda: options_of(["n=0"], [], [], []),
    ):
        with pytest.raises(rx.RelaxAotError, match=r"0\.\.0.*\(0, 0\)") as caught:
            bound()
        said.append(str(caught.value))
    assert len(set(said)) == 1
    assert parse_bound("n=0..0") == ("n", (0, 0))
