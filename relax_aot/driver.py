# SPDX-License-Identifier: Apache-2.0
"""The compiler in one function: each line is a stage, each stage a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relax_aot import (
    externs,
    frontends,
    fusion,
    lowering,
    planning,
    project,
    pruning,
    quantization,
    scheduling,
    transforms,
)
from relax_aot.binaries.cubin import local_bytes
from relax_aot.emit.c_names import identifier
from relax_aot.emit.initial import Initial
from relax_aot.emit.layers import FUNCTIONS
from relax_aot.emulation.targets import target_of
from relax_aot.errors import RelaxAotError
from relax_aot.externs.rule import ProductRule
from relax_aot.frontends import entries as frontends_entries
from relax_aot.frontends import llm
from relax_aot.frontends.llm.text_files import LanguageModel, TextFiles, tokenizer_of
from relax_aot.frontends.text import data_beside, text_of, write_stages
from relax_aot.fusion.summary import Summary
from relax_aot.ir import check
from relax_aot.ir.dims import Dim
from relax_aot.ir.entries import Entries
from relax_aot.ir.graph import Module
from relax_aot.ir.parameters import Undecided
from relax_aot.ir.rewrite import substitute_dims
from relax_aot.ops import deduce
from relax_aot.planning import order
from relax_aot.planning.regions import Region
from relax_aot.planning.text import plan_text
from relax_aot.progress import finished, note, step
from relax_aot.project import Project, scratch
from relax_aot.project.board import Board, load_board
from relax_aot.project.crowded import Reduced, together, with_registers
from relax_aot.project.cuda import Device, assemble_device, assemble_device_entries
from relax_aot.project.cuda_board import require_device
from relax_aot.project.entries import Compiled, EntriesProject, assemble_entries
from relax_aot.project.fit import require_fit
from relax_aot.project.llm import with_pool, with_text
from relax_aot.quantization.summary import Quantized
from relax_aot.scheduling import threads
from relax_aot.toolchain import nvrtc
from relax_aot.transforms import fold_constants, integers, reassociate
from relax_aot.verify import fused_kernels
from relax_aot.verify.prelude import after_calls
from relax_aot.verify.text import HostTokenizer

SHOWN = 5
"""Names in one message."""
STAGES_PER_BOARD = 11
"""What compile_module shows; for progress alone."""

Stage = tuple[str, Module | str]
"""A name, and the module after it (or another text)."""


OPTIMIZE = ("speed", "size", "memory")
OFFSETS = ("static", "dynamic")
NUMERICS = ("blocked", "ordered", "tf32")
THREADED = ("host", "linux")
"""Families of boards whose programs have threads."""


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options, in addition to the model and the board."""

    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fix: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    assume: tuple[str, ...] = ()
    window: Mapping[str, int] = field(default_factory=dict)
    """The rows that growing states keep, by the symbol of their length."""
    optimize: str = "speed"
    name: str | None = None
    externs: tuple[str | os.PathLike[str], ...] = ()
    libraries: tuple[str, ...] = ()
    weights: str = "auto"
    """How weights reach the program: one of emit.weights.FORMS."""
    stepwise: bool = False
    """Generate also a run that returns between kernels."""
    quantize: quantization.Choice | None = None
    calibrate: Mapping[str, Any] = field(default_factory=dict)
    """Sample inputs by name, with a leading axis of samples."""
    offsets: str = "static"
    """One of OFFSETS: whether a run computes where values lie in the arena."""
    numerics: str = "blocked"
    """One of NUMERICS: whether float sums have partial sums, or the order of the plain loops; or
    products of floats may round their factors too."""
    reassociate: bool = False
    """Multiply chains of matrices in the order with the fewest multiply-adds."""
    functions: str = "auto"
    """One of emit.layers.FUNCTIONS: whether repeated layers are functions."""
    threads: int = 1
    """That share the loops of a run at most."""
    emit: str = "auto"
    """One of project.cuda_board.EMIT: what a project for a GPU holds of its kernels."""
    annotate: bool = False
    """Whether the C holds comments that help Frama-C, which `prove` runs."""
    check: bool = False
    """Whether the invariants of ir/check.py are checked after every stage, and fused kernels
    run in the interpreter together with their parts."""

    @property
    def further(self) -> tuple[str, ...]:
        """Options that headers state in addition, as the command line has them."""
        dynamic = ("--offsets dynamic",) * (self.offsets == "dynamic")
        numerics = (f"--numerics {self.numerics}",) * (self.numerics != "blocked")
        inline = ("--functions inline",) * (self.functions == "inline")
        threads = (f"--threads {self.threads}",) * (self.threads > 1)
        reassociate = ("--reassociate",) * self.reassociate
        emit = (f"--emit {self.emit}",) * (self.emit != "auto")
        return (*dynamic, *numerics, *reassociate, *inline, *threads, *emit)


def load(source: Any, options: Options) -> Module:
    """Model file (or ModelProto) -> Module. A size that can have one value only is that number."""
    return _with_fixed_sizes(frontends.load(source, imported(options)))


def _with_fixed_sizes(module: Module) -> Module:
    fixed = {
        s.name: Dim.of(s.low)
        for s in module.symbols
        if s.low == s.high and not s.inner and s.growth is None
    }
    return substitute_dims(module, fixed) if fixed else module


def coded(module: Module, options: Options) -> tuple[Module, Quantized | None]:
    """The module with the quantized values that were asked for, and what they cost. What it
    computes from there on is integers: that is what results are compared with."""
    if options.quantize is None:
        return module, None
    _require_data(module)
    module = fold_constants.run(reassociate.run(module))
    module, quantized = quantization.quantize(module, options.calibrate, options.quantize)
    return integers.run(replace(module, replaceable=options.weights == "blob")), quantized


def imported(options: Options) -> frontends.ImportOptions:
    """What concerns frontends."""
    return frontends.ImportOptions(
        bounds=options.bounds,
        fix=options.fix,
        state=options.state,
        assume=options.assume,
        window=options.window,
        replaceable=options.weights == "blob",
    )


def compile_module(
    module: Module,
    board: Board,
    options: Options,
    dump: Callable[[str, Module | str], None] = lambda stage, value: None,
) -> Project:
    """Module -> Project; `dump` is given what each stage makes."""
    planned = _planned(module, board, options, _externs(options), dump)
    return _assembled(module, planned, board, options)


def _assembled(module: Module, planned: _Planned, board: Board, options: Options) -> Project:
    name = model_name(module, options)
    if board.cuda is not None:
        device = _device(board, options)
        on_gpu = with_registers(
            planned.with_tiles,
            lambda plan: plan.module.kernel_table,
            lambda plan: assemble_device(planned.original, plan, name, device),
        )
        require_fit(board, on_gpu.needs, weights_apart=False)
        return replace(on_gpu, fusion=planned.fusion, floats=planned.floats)
    built = project.assemble(
        planned.original, planned.plan, name, board, planned.table, options.weights,
        options.optimize, stepwise=options.stepwise, annotate=options.annotate,
        ordered=options.numerics == "ordered", also=options.further, threads=options.threads,
        functions=options.functions,
    )  # fmt: skip
    require_fit(board, built.needs, weights_apart=built.interface.weights_apart)
    return replace(built, fusion=planned.fusion, floats=planned.floats)


def _externs(options: Options) -> externs.ExternTable:
    return externs.read_externs([Path(path) for path in options.externs], options.libraries)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A module after all stages before C."""

    original: Module
    plan: planning.Plan
    table: externs.ExternTable
    fusion: Summary
    floats: tuple[str, ...]
    again: Callable[[Reduced], planning.Plan]

    def with_tiles(self, reduced: Reduced) -> planning.Plan:
        """With smaller tiles for some launches."""
        return self.again(reduced) if reduced else self.plan


def _planned(
    module: Module,
    board: Board,
    options: Options,
    table: externs.ExternTable,
    dump: Callable[[str, Module | str], None],
) -> _Planned:
    """With replaceable weights, the code depends on no quantization parameter where it can."""
    try:
        replaceable = replace(module, replaceable=options.weights == "blob")
        return _stages(replaceable, board, options, table, dump)
    except Undecided as error:
        note(
            f"the code depends on quantization parameters ({error}): a retrained model needs new "
            "code. Please report this model"
        )
        return _stages(replace(module, replaceable=False), board, options, table, dump)


def _stages(
    module: Module,
    board: Board,
    options: Options,
    table: externs.ExternTable,
    dump: Callable[[str, Module | str], None],
) -> _Planned:
    for name, given, known in (
        ("optimize", options.optimize, OPTIMIZE),
        ("offsets", options.offsets, OFFSETS),
        ("numerics", options.numerics, NUMERICS),
        ("functions", options.functions, FUNCTIONS),
    ):
        if given not in known:
            raise RelaxAotError(f"{name} is one of {', '.join(known)}, not {given!r}")
    _require_device(board, options, table)
    _require_threads(board, options.threads)
    dump("frontend", module)
    _require_data(module)
    original = module
    # A GPU takes all rows, and a run that returns between kernels has its position in one part.
    undivided = options.stepwise or board.cuda is not None
    module = lowering.one_part(module, options.threads, undivided=undivided)
    if options.reassociate:
        module = reassociate.run_all(module)
    keeps_half = module.keeps_half or board.has_flash
    calls_floats = board.has_flash and "fpu" not in board.features
    module = transforms.run(replace(module, keeps_half=keeps_half, calls_floats=calls_floats))
    dump("transforms", module)
    floats = integers.stays(module)
    module = externs.place(module, table)
    products = table.products
    table = table.used_by(module)
    if table.rules:
        dump("externs", module)
    spends = options.optimize == "speed" and not board.has_flash
    module = lowering.lower(module, target_of(board).rows if spends else 0)
    dump("lowering", module)
    module = lowering.check_then_trust(module)
    dump("checks", module)
    module = pruning.run(module)
    dump("pruning", module)
    fused = _fused(module, board, options)
    if options.check:
        fused_kernels.compare_fused(module, fused.module)
    module = fused.module
    dump("fusion", module)
    dump("fusion-summary", fused.summary.text)

    def plan(reduced: Reduced) -> planning.Plan:
        made = _scheduled(module, board, options, products, reduced)
        dump("scheduling", made)
        made = order.run(made, keep_states=options.stepwise)
        dump("order", made)
        found = planning.plan(
            made, regions=_regions(board, options), keep_states=options.stepwise,
            dynamic=options.offsets == "dynamic",
        )  # fmt: skip
        dump("plan", plan_text(found))
        return found

    return _Planned(original, plan(()), table, fused.summary, floats, plan)


def _scheduled(
    module: Module, board: Board, options: Options, products: Sequence[ProductRule],
    reduced: Reduced,
) -> Module:  # fmt: skip
    def schedule(lean: frozenset[str]) -> Module:
        return scheduling.schedule(
            module, target_of(board), options.optimize, options.numerics,
            lenient=not options.check, threads=options.threads, products=products, lean=lean,
            reduced=reduced,
        )  # fmt: skip

    smallest = options.optimize == "memory"
    return scratch.scheduled(
        module, schedule, board, smallest=smallest, keep_states=options.stepwise
    )


def _require_device(board: Board, options: Options, table: externs.ExternTable) -> None:
    refused = {
        f"--threads {options.threads}": options.threads > 1,
        "--stepwise": options.stepwise,
        "--offsets dynamic": options.offsets == "dynamic",
        "--extern": bool(table.rules),
    }
    libraries = {f"--library {rule.library}": True for rule in table.products}
    wanted = {**libraries, "--numerics tf32": options.numerics == "tf32"}
    require_device(board.name, board.cuda, options.emit, refused, wanted)
    if options.numerics == "tf32" and "mma_tf32" not in board.features:
        raise RelaxAotError(f"--numerics tf32 needs matrix units for it; {board.name} has none")
    if libraries and options.numerics == "ordered":
        raise RelaxAotError(
            f"{', '.join(libraries)} does not keep the order of sums, as --numerics ordered does;"
            " leave out one of them"
        )


def _require_threads(board: Board, count: int) -> None:
    if not 1 <= count <= threads.GREATEST:
        raise RelaxAotError(f"threads is a number from 1 to {threads.GREATEST}, not {count}")
    if count > 1 and board.family not in THREADED:
        raise RelaxAotError(
            f"the board {board.name} has no threads: --threads {count} needs a board of the family "
            f"{' or '.join(THREADED)}, such as host or aarch64-linux"
        )


def load_entries(sources: Mapping[str, Any], options: Options) -> Entries:
    """Model files by the name of their entry -> the entries of one model."""
    return _with_numbers(frontends_entries.load_entries(sources, imported(options)))


def load_llm(
    sources: Mapping[str, llm.Entry],
    folder: str | os.PathLike[str],
    options: Options,
    prefix: bytes | Sequence[int] | None = None,
    text: TextFiles | None = None,
) -> LanguageModel:
    """The entries of the language model in a folder. The keys and values of a prefix, a text or
    tokens, are in the state from the beginning. Its projects have the tokenizer of `text`."""
    one = sources["decode"]
    pool = None if one.pool is None else (one.pool, one.context)
    entries = LanguageModel(load_entries(sources, options).modules, text=text, pool=pool)
    if prefix is None:
        return entries
    tokens = _tokens(Path(folder), prefix) if isinstance(prefix, bytes) else prefix
    return replace(entries, prelude=llm.prefix_calls(sources, tokens))


def _tokens(folder: Path, text: bytes) -> list[int]:
    """By the tokenizer of a checkpoint; names of special tokens in the text are these tokens."""
    tokenizer = tokenizer_of(folder)
    if tokenizer is None:
        raise RelaxAotError(
            f"{folder} has no tokenizer, which the text of a prefix needs; give its tokens in"
            " Python: load_llm(..., prefix=[1, 2])"
        )
    tokens: list[int] = HostTokenizer(tokenizer).encode(text, special=True).tolist()
    return tokens


def read_entries(path: Path, options: Options) -> Entries:
    """The text of several entries, with the data of large constants."""
    data = data_beside(path)
    read = frontends_entries.read_entries(text_of(path), data, imported(options))
    return _with_numbers(read)


def _with_numbers(entries: Entries) -> Entries:
    """A size that can have one value only is that number; it has one bound in all entries."""
    modules = tuple((name, _with_fixed_sizes(module)) for name, module in entries.modules)
    return replace(entries, modules=modules)


def compile_entries(
    entries: Entries,
    board: Board,
    options: Options,
    dump_folder: str | os.PathLike[str] | None = None,
    tables: str = "auto",
) -> EntriesProject:
    """Entries -> one project. `dump_folder` receives every stage's text form, a folder for each
    entry. Tables of a tokenizer are text if `tables` is c."""
    project = _compiled_entries(entries, board, options, dump_folder)
    if not isinstance(entries, LanguageModel):
        return project
    if entries.pool is not None:
        project = with_pool(project, *entries.pool)
    return project if entries.text is None else with_text(project, entries.text, tables)


def _compiled_entries(
    entries: Entries,
    board: Board,
    options: Options,
    dump_folder: str | os.PathLike[str] | None = None,
) -> EntriesProject:
    initial = _initial(entries, board, options)
    entries, quantized = _coded_entries(entries, options)
    planned: dict[str, _Planned] = {}
    table = _externs(options)
    for number, (name, module) in enumerate(entries.modules):
        stages: list[Stage] = []

        def record(stage: str, value: Module | str, to: list[Stage] = stages) -> None:
            if options.check:
                check_stage(stage, value)
            to.append((stage, value if dump_folder is not None else ""))

        step(f"compiling the entry {name}", number, len(entries.modules))
        planned[name] = _planned(module, board, options, externs.for_some(table), record)
        if dump_folder is not None:
            write_stages(stages, Path(dump_folder) / name)
    finished()
    externs.require_taken(table, [one.plan.module for one in planned.values()])
    parts = [
        Compiled(
            name, one.original, one.plan, one.table, one.fusion, one.floats, quantized.get(name)
        )
        for name, one in planned.items()
    ]
    name = options.name or "model"
    if board.cuda is not None:
        device = _device(board, options)
        return with_registers(
            lambda less: [
                replace(part, plan=planned[part.name].with_tiles(less)) for part in parts
            ],
            lambda made: together([one.plan.module.kernel_table for one in made]),
            lambda made: assemble_device_entries(made, name, device),
        )
    return assemble_entries(
        parts, name, board, options.weights, options.optimize, _regions(board, options),
        stepwise=options.stepwise, ordered=options.numerics == "ordered", also=options.further,
        threads=options.threads, functions=options.functions, initial=initial,
    )  # fmt: skip


def _initial(entries: Entries, board: Board, options: Options) -> Initial:
    """What calls that are made while compiling leave in the states. They are made by the same
    entries on this machine."""
    if not entries.prelude:
        return Initial()
    if board.cuda is not None:
        raise RelaxAotError(
            f"the board {board.name} has a GPU, on which init clears the state: calls while"
            " compiling are for other boards"
        )
    step("computing the initial state")
    plain = replace(entries, prelude=())
    own = replace(options, weights="auto", stepwise=False, threads=1)
    return after_calls(_compiled_entries(plain, load_board("host"), own), entries.prelude)


def _device(board: Board, options: Options) -> Device:
    assert board.cuda is not None
    here = tuple(major for major in board.cuda.toolkits if nvrtc.installed_compiler(major))
    return Device(
        board, board.cuda, nvrtc.cubin, local_bytes, options.emit == "cuda-source", here,
        options.weights, options.optimize, options.numerics, options.further,
    )  # fmt: skip


def _coded_entries(entries: Entries, options: Options) -> tuple[Entries, Mapping[str, Quantized]]:
    """Each entry with quantized values of its own. Samples and layers that are kept are those of
    all, or of one entry where its name and a dot stand before theirs."""
    choice = options.quantize
    if choice is None:
        return entries, {}
    modules: dict[str, Module] = {}
    found: dict[str, Quantized] = {}
    for name, module in entries.modules:
        others = tuple(f"{other}." for other in entries.names if other != name)
        keep = [n.removeprefix(f"{name}.") for n in choice.keep_float if not n.startswith(others)]
        given = {n: a for n, a in options.calibrate.items() if not n.startswith(others)}
        arrays = given | {
            n.removeprefix(f"{name}."): a for n, a in given.items() if n.startswith(f"{name}.")
        }
        own = replace(options, quantize=replace(choice, keep_float=tuple(keep)), calibrate=arrays)
        try:
            modules[name], quantized = coded(module, own)
        except RelaxAotError as error:
            error.add_note(f"in the entry {name}")
            raise
        assert quantized is not None
        found[name] = quantized
    return frontends_entries.joined(modules), found


def _regions(board: Board, options: Options) -> tuple[Region, ...]:
    """Weights apart from the code lie where the program says."""
    if options.weights != "blob":
        return board.regions
    return tuple(region for region in board.regions if not region.constants)


def _require_data(module: Module) -> None:
    """A text may have come without the bytes of its large constants."""
    absent = [f"%{constant.name}" for constant in module.constants if constant.absent]
    if absent:
        shown = ", ".join(absent[:SHOWN]) + (", ..." if len(absent) > SHOWN else "")
        raise RelaxAotError(
            f"the bytes of {len(absent)} constants are digests without data: {shown};"
            " give them by name or digest, in a .npz next to the file or with `constants`"
        )


def _fused(module: Module, board: Board, options: Options) -> fusion.Fused:
    """For memory, weights may be read again for every row, where that makes the arena smaller."""
    lenient = not options.check
    result = fusion.fuse(module, scheduling.fusion_policy(target_of(board)), lenient=lenient)
    if options.optimize == "memory":
        small = fusion.fuse(module, fusion.Policy(rows_over_weights=True), lenient=lenient)
        if planning.plan(small.module).arena_bytes < planning.plan(result.module).arena_bytes:
            result = small
    for one in result.summary.unproven:
        note(
            f"kernel {one.kernel} stays unfused, because the fusion checker could not prove it "
            f"equal to its parts ({one.reason}); results are correct. Please report this model"
        )
    return result


def compile_model(
    source: Any,
    board: str = "host",
    options: Options | None = None,
    dump_folder: str | os.PathLike[str] | None = None,
) -> Project:
    """Model file -> Project. `dump_folder` receives every stage's text form."""
    options = options or Options()
    (result,) = compile_for(source, [board], options, dump_folder)
    return result


def compile_for(
    source: Any,
    boards: Sequence[str],
    options: Options,
    dump_folder: str | os.PathLike[str] | None = None,
) -> tuple[Project, ...]:
    """Model file -> one project per board; the file is read once."""
    targets = [load_board(name) for name in boards]
    stages: list[Stage] = []
    step("reading the model")
    module, quantized = coded(load(source, options), options)

    def record(stage: str, value: Module | str) -> None:
        count = STAGES_PER_BOARD * len(targets)
        step(f"compiling: {stage} done", min(len(stages), count), count)
        if options.check:
            check_stage(stage, value)
        stages.append((stage, value if dump_folder is not None else ""))

    projects: list[Project] = []
    dumped: list[Stage] = []
    for target in targets:
        built = compile_module(module, target, options, record)
        projects.append(replace(built, quantized=quantized))
        dumped = dumped or list(stages)
    finished()
    if dump_folder is not None:
        write_stages(dumped, Path(dump_folder))
    return tuple(projects)


def check_stage(stage: str, value: Module | str) -> None:
    if isinstance(value, Module):
        try:
            check.check(value, deduce)
        except RelaxAotError as error:
            error.add_note(f"after the stage {stage}")
            raise


def model_name(module: Module, options: Options) -> str:
    return options.name or identifier(Path(module.source or "model").stem).lower()
