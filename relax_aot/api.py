# SPDX-License-Identifier: Apache-2.0
"""The Python interface: load, compile, and what one can do with the result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import onnx
from numpy.typing import NDArray

from relax_aot import arguments, driver
from relax_aot.driver import Options
from relax_aot.frontends.bounds import WrongBound, checked_range
from relax_aot.frontends.entries import EntryError, read_entries
from relax_aot.frontends.llm import CHUNK, ROWS, entries_of, with_draft
from relax_aot.frontends.llm.text_files import LanguageModel, read_text_files
from relax_aot.frontends.text import read
from relax_aot.frontends.text import save as save_text
from relax_aot.frontends.torch import traced
from relax_aot.ir.entries import Entries
from relax_aot.ir.graph import Module
from relax_aot.project import Project as BuiltProject
from relax_aot.project.board import load_board
from relax_aot.project.entries import EntriesProject as BuiltEntries
from relax_aot.quantization.choice import choice_of
from relax_aot.quantization.summary import Quantized
from relax_aot.report import write_report
from relax_aot.verify.emulate import Emulation, EntrySample, emulate
from relax_aot.verify.figures import Memory, memory_of
from relax_aot.verify.host import HostEntries, HostModel, entries_host, host_model
from relax_aot.verify.sizes import as_array, by_name, given_sizes, merged_sizes

Array = NDArray[Any]
Bound = int | tuple[int, int]
_One = str | os.PathLike[str] | onnx.ModelProto | Module
"""What is one model for certain: to type checkers a message may be any mapping too."""


@dataclass(frozen=True)
class Project:
    """A compiled model: write it, run it on the host, run it on an emulated board."""

    built: BuiltProject
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes that no shape determines, as set by `at`."""

    def __repr__(self) -> str:
        """Short, since a notebook shows it: the files are many pages."""
        return f"<relax_aot.Project {self.built.name} for {self.built.board.name}>"

    def write(self, folder: str | os.PathLike[str], package: str = "flat") -> Path:
        """Write the C project to `folder`, completely or not at all. `package` is flat, zephyr,
        esp-idf, platformio, arduino or cmsis-pack."""
        return self.built.write(
            arguments.path("folder", folder), arguments.text("package", package)
        )

    def host(self, *, sanitize: bool = False) -> HostModel:
        """Build the model with the host's compiler. `sanitize` enables ASan and UBSan."""
        sanitize = arguments.flag("sanitize", sanitize)
        return host_model(self.built, sanitize=sanitize, sizes=self.sizes)

    def at(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> Project:
        """Return this project with sizes, by their source names, that the shapes of inputs do not
        determine: `project.at(n=5).emulate(x=...)`."""
        interface = self.built.interface
        given = given_sizes(interface.dims, merged_sizes(sizes, named), interface.fixed_sizes)
        return replace(self, sizes={**self.sizes, **given})

    def emulate(self, /, *arrays: Mapping[str, Array] | None, **named: Array) -> Emulation:
        """Run the model once on the project's emulated board, with arrays by input name."""
        return emulate(self.built, [by_name(arrays, named)], self.sizes)[0]

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        at: Sequence[Mapping[str, int]] = (),
        format: str = "html",
    ) -> Path:
        """Write the report as html, svg, json or txt. `at` are the sizes to show, by default the
        lowest, middle and highest."""
        arguments.kind("at", at, Sequence, "a list of sizes by name")
        known, fixed = self.built.interface.dims, self.built.interface.fixed_sizes
        sizes = [given_sizes(known, arguments.named("at", one), fixed) for one in at]
        form = arguments.text("format", format)
        return write_report(self.built, arguments.path("path", path), sizes, form)

    @property
    def memory(self) -> Memory:
        """Bytes of arena, state, constants, code and stack, on the project's board."""
        return memory_of(self.built)

    @property
    def quantized(self) -> Quantized | None:
        """The quantization noise of each layer, or None without `quantize`."""
        return self.built.quantized

    @property
    def plan(self) -> object:
        """The memory plan: the place of every value."""
        return self.built.plan

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of the C project by their relative paths."""
        return self.built.files


class LoadOptions(TypedDict, total=False):
    """What is said of a model as it is read."""

    bounds: Mapping[str, Bound] | None
    fix: Mapping[str, Any] | None
    state: Mapping[str, str] | None
    assume: Sequence[str]
    window: Mapping[str, int] | None


class CompileOptions(LoadOptions, total=False):
    """Options of `compile`, in addition to the model."""

    board: str
    name: str | None
    optimize: str
    externs: Sequence[str | os.PathLike[str]]
    libraries: Sequence[str]
    weights: str
    stepwise: bool
    offsets: str
    numerics: str
    reassociate: bool
    functions: str
    threads: int
    emit: str
    quantize: str | None
    calibrate: Mapping[str, Array] | None
    calibration: str
    keep_float: Sequence[str]
    symmetric: bool


@dataclass(frozen=True)
class EntriesProject:
    """Several entries compiled as one: they share weights, state and arena."""

    built: BuiltEntries
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes that no shape determines, as set by `at`."""

    def __repr__(self) -> str:
        return f"<relax_aot.EntriesProject {self.built.name} for {self.built.board.name}>"

    @property
    def entries(self) -> Mapping[str, Project]:
        """Each entry separately: its plan, its report, one call with a cleared state."""
        return {name: Project(project) for name, project in self.built.entries.items()}

    def write(self, folder: str | os.PathLike[str], package: str = "flat") -> Path:
        """Write the C project to `folder`, completely or not at all."""
        return self.built.write(
            arguments.path("folder", folder), arguments.text("package", package)
        )

    def host(self, *, sanitize: bool = False) -> HostEntries:
        """Build the entries with the host's compiler. `host.decode(x=...)` calls an entry, and the
        state is kept between calls. `sanitize` enables ASan and UBSan."""
        sanitize = arguments.flag("sanitize", sanitize)
        return entries_host(self.built, sanitize=sanitize, sizes=self.sizes)

    def at(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> EntriesProject:
        """Return this project with sizes, by their source names, that the shapes of inputs do not
        determine: `project.at(m=64).host()`."""
        given = given_sizes(
            self.built.bounded, merged_sizes(sizes, named), self.built.shared.fixed_sizes
        )
        return replace(self, sizes={**self.sizes, **given})

    def emulate(self, calls: Sequence[EntrySample]) -> list[Emulation]:
        """Make calls of entries in order, in one program on the project's emulated board. The state
        is kept between calls. A call is (entry, inputs by name), optionally with sizes by name that
        no shape determines."""
        arguments.kind("calls", calls, Sequence, "a list of calls")
        return emulate(self.built, calls, self.sizes)

    @property
    def memory(self) -> Memory:
        """Bytes of the whole project. One entry runs at a time, so arena and stack are the largest
        of the entries."""
        return memory_of(self.built)

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of the C project by their relative paths."""
        return self.built.files


@overload
def load(
    source: _One,
    examples: Any = ...,
    *,
    dynamic_shapes: Any = ...,
    **options: Unpack[LoadOptions],
) -> Module: ...


@overload
def load(source: Mapping[str, Any] | Entries, **options: Unpack[LoadOptions]) -> Entries: ...


@overload
def load(
    source: Any,
    examples: Any = ...,
    *,
    dynamic_shapes: Any = ...,
    **options: Unpack[LoadOptions],
) -> Module: ...


def load(
    source: Any,
    examples: Any = None,
    *,
    dynamic_shapes: Any = None,
    bounds: Mapping[str, Bound] | None = None,
    fix: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | None = None,
    assume: Sequence[str] = (),
    window: Mapping[str, int] | None = None,
) -> Module | Entries:
    """Load a model file, an `onnx.ModelProto` or a `torch.export.ExportedProgram` as a module. A
    `torch.nn.Module` is traced with `examples` and `dynamic_shapes` as in `torch.export`. The
    options also apply to a loaded module, whose bounds can only be narrowed. `bounds` are upper
    bounds of symbols, or pairs (low, high). `window` is how many rows growing states keep, by the
    symbol of their length. A dict of models by entry name is one model whose entries share weights
    and state."""
    options = _options(bounds, fix, state, assume, window)
    if isinstance(source, Mapping | Entries):
        if examples is not None or dynamic_shapes is not None:
            raise EntryError("load each torch module separately, then load the dict of modules")
        return _loaded_entries(source, options)
    if examples is not None or dynamic_shapes is not None:
        source = traced(source, examples, dynamic_shapes)
    return driver.load(source, options)


def _loaded_entries(source: Mapping[str, Any] | Entries, options: Options) -> Entries:
    if not isinstance(source, Entries):
        return driver.load_entries(arguments.named("source", source), options)
    if options.bounds or options.fix or options.state or options.assume or options.window:
        loaded = driver.load_entries(dict(source.modules), options)
        return replace(source, modules=loaded.modules)
    return source


def load_llm(
    path: str | os.PathLike[str],
    *,
    context: int | None = None,
    chunk: int = CHUNK,
    rows: int = ROWS,
    logits: str = "last",
    prefix: str | Sequence[int] | None = None,
    speculate: int = 0,
    cache: str = "whole",
    cache_type: str = "f32",
    pool: int | None = None,
    draft: str | os.PathLike[str] | None = None,
    tokenizer: bool = True,
    template: str | None = None,
) -> LanguageModel:
    """Load a language model from a folder in Hugging Face layout (config.json and safetensors), or
    from a GGUF file, or *.bin of llama2.c. Its entries `prefill(tokens)` and `decode(token)` share
    weights and caches of `context` tokens, by default those of the model, at most 1024. `chunk` is
    the most tokens of one prefill, of which each thread computes `rows` at a time: fewer take a
    smaller arena, more are faster on hosts. `logits` is last (prefill returns those of its last
    token) or all. `prefix` is what all texts begin with, as text or tokens: `compile` computes its
    keys and values. `speculate` adds the entry `verify(tokens)`, which returns the logits of a
    token and of up to so many that were proposed behind it; `draft` is a smaller model that
    proposes them. `cache` is whole, or window: caches of layers with a sliding window keep the
    tokens that it sees. `cache_type` is f32, f16, int8 or int16x8: how caches store numbers. With
    a `pool`, caches have room for so many tokens of several texts: each call takes `places`, where
    in the pool the tokens of its text are, the new ones behind the others. Projects have the
    `tokenizer` of the model, if there is one, and a function that generates text; `template` is the
    text of each message, in place of that of the checkpoint."""
    folder = arguments.path("path", path)
    most = None if context is None else arguments.number("context", context)
    size, which = arguments.number("chunk", chunk), arguments.text("logits", logits)
    proposals = arguments.number("speculate", speculate)
    sources = entries_of(
        folder, most, size, which, proposals, arguments.text("cache", cache),
        arguments.text("cache_type", cache_type),
        None if pool is None else arguments.number("pool", pool), arguments.number("rows", rows),
    )  # fmt: skip
    if draft is not None:
        sources = with_draft(sources, arguments.path("draft", draft))
    own = None if template is None else arguments.text("template", template)
    spoken = arguments.flag("tokenizer", tokenizer)
    text = read_text_files(Path(folder), own) if spoken else None
    return driver.load_llm(sources, folder, Options(), arguments.prefix(prefix), text)


def parse(
    text: str,
    *,
    constants: Mapping[str, Array] | None = None,
    bounds: Mapping[str, Bound] | None = None,
    window: Mapping[str, int] | None = None,
) -> Module:
    """Parse a module from its text form. `constants` are the data of constants that the text
    contains as digests, by name or digest; `bounds` and `window` are those of `load`."""
    data = _constants(arguments.text("text", text), constants)
    return read(text, data, driver.imported(_options(bounds, None, None, (), window)))


def parse_entries(
    text: str,
    *,
    constants: Mapping[str, Array] | None = None,
    bounds: Mapping[str, Bound] | None = None,
    window: Mapping[str, int] | None = None,
) -> Entries:
    """Parse several entries from text: a line `entry NAME` precedes the text of each."""
    data = _constants(arguments.text("text", text), constants)
    return read_entries(text, data, driver.imported(_options(bounds, None, None, (), window)))


def _constants(text: str, constants: Mapping[str, Array] | None) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, value in arguments.named("constants", constants).items():
        if name not in text:
            raise arguments.WrongArgument(f"constants: the text has no constant {name!r}")
        arrays[name] = as_array(value, f"the constant {name!r}")
    return arrays


def save(module: Module | Entries, path: str | os.PathLike[str]) -> Path:
    """Write the module (or entries) as text for `load` (or `parse_entries`), and large constants to
    a `.npz` next to it."""
    arguments.kind("module", module, (Module, Entries), "a module or entries")
    if isinstance(module, Entries) and module.prelude:
        raise EntryError(
            "the text of entries has no calls that are made while compiling: save the model without"
            " its prefix"
        )
    return save_text(module, arguments.path("path", path))


@overload
def compile(source: _One, **options: Unpack[CompileOptions]) -> Project: ...


@overload
def compile(
    source: Mapping[str, Any] | Entries, **options: Unpack[CompileOptions]
) -> EntriesProject: ...


@overload
def compile(source: Any, **options: Unpack[CompileOptions]) -> Project: ...


def compile(
    source: Any,
    *,
    board: str = "host",
    name: str | None = None,
    bounds: Mapping[str, Bound] | None = None,
    fix: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | None = None,
    assume: Sequence[str] = (),
    window: Mapping[str, int] | None = None,
    optimize: str = "speed",
    externs: Sequence[str | os.PathLike[str]] = (),
    libraries: Sequence[str] = (),
    weights: str = "auto",
    stepwise: bool = False,
    offsets: str = "static",
    numerics: str = "blocked",
    reassociate: bool = False,
    functions: str = "auto",
    threads: int = 1,
    emit: str = "auto",
    quantize: str | None = None,
    calibrate: Mapping[str, Array] | None = None,
    calibration: str = "minmax",
    keep_float: Sequence[str] = (),
    symmetric: bool = False,
) -> Project | EntriesProject:
    """Compile a source of `load`, a module or entries to a C project for a board. `externs` are
    tables of C functions that replace calls, and `libraries` are names of such tables in installed
    packages. `weights` is auto, c (text), asm (included by the assembler) or blob (a separate,
    checked block). `stepwise` adds a run that returns between kernels. `offsets` is static or
    dynamic: a run then computes where values lie for its sizes. `numerics` is blocked (float sums
    have a fixed number of partial sums), ordered (the order of the plain loops), or tf32
    (products of floats on a GPU round their factors to 11 bits). `reassociate` multiplies chains of
    matrices in the order with the fewest multiply-adds. `functions` is auto (repeated layers are
    one C function, where that makes the code smaller) or inline. `threads` is how many threads may
    share the loops of a run; `host` runs with all of them. `emit` is what a project for a GPU holds
    of its kernels: cubin, cuda-source, or auto. `quantize` is int8, which needs `calibrate` (inputs
    by name with a leading axis of samples), int8w, int4w, int8d, int4d, q8_0, q4_0
    or q4_k."""
    options = replace(
        _options(bounds, fix, state, assume, window),
        name=None if name is None else arguments.text("name", name),
        optimize=arguments.text("optimize", optimize),
        externs=arguments.paths("externs", externs),
        libraries=arguments.texts("libraries", libraries),
        weights=arguments.text("weights", weights),
        stepwise=arguments.flag("stepwise", stepwise),
        offsets=arguments.text("offsets", offsets),
        numerics=arguments.text("numerics", numerics),
        reassociate=arguments.flag("reassociate", reassociate),
        functions=arguments.text("functions", functions),
        threads=arguments.number("threads", threads),
        emit=arguments.text("emit", emit),
        quantize=choice_of(
            None if quantize is None else arguments.text("quantize", quantize),
            arguments.text("calibration", calibration),
            arguments.texts("keep_float", keep_float),
            arguments.flag("symmetric", symmetric),
            bool(arguments.named("calibrate", calibrate)),
        ),
        calibrate={
            key: as_array(value, f"calibrate[{key!r}]") for key, value in (calibrate or {}).items()
        },
    )
    target = load_board(arguments.text("board", board))
    if isinstance(source, Mapping | Entries):
        entries = _loaded_entries(source, options)
        return EntriesProject(driver.compile_entries(entries, target, options))
    module, quantized = driver.coded(driver.load(source, options), options)
    built = driver.compile_module(module, target, options)
    return Project(replace(built, quantized=quantized))


def _options(
    bounds: Mapping[str, Bound] | None,
    fix: Mapping[str, Any] | None,
    state: Mapping[str, str] | None,
    assume: Sequence[str],
    window: Mapping[str, int] | None = None,
) -> Options:
    ranges = {
        name: _range(name, bound) for name, bound in arguments.named("bounds", bounds).items()
    }
    return Options(
        ranges,
        arguments.named("fix", fix),
        arguments.named_texts("state", state),
        arguments.texts("assume", assume),
        {
            name: arguments.number(f"window[{name!r}]", rows)
            for name, rows in arguments.named("window", window).items()
        },
    )


def _range(name: str, bound: object) -> tuple[int, int]:
    ends = bound if isinstance(bound, tuple) else (1, bound)
    if len(ends) != 2 or any(isinstance(e, bool) or not isinstance(e, Integral) for e in ends):
        raise WrongBound(f"the bound of {name} is a number or a pair, not {bound!r}")
    low, high = map(int, ends)
    said = f"{low}..{high}" if isinstance(bound, tuple) else str(high)
    return checked_range(name, low, high, f"{name}={said}")
