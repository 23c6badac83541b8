# SPDX-License-Identifier: Apache-2.0
"""A project built with the host's compiler and called from Python.

Arrays are checked before they reach C: type, rank and every axis (sizes.py) raise errors of
ours; what the generated code refuses raises `StatusError`.
"""

from __future__ import annotations

import os
import pickle
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from relax_aot.cache import cached_folder, digest_of
from relax_aot.emit.interface import Interface
from relax_aot.errors import RelaxAotError
from relax_aot.files import write_files
from relax_aot.project import Project
from relax_aot.project.entries import EntriesProject
from relax_aot.resources import data_dir
from relax_aot.toolchain.compilers import Compiler, host_compiler, host_flags, run
from relax_aot.toolchain.tools import ToolMissing
from relax_aot.verify.cuda import fake_driver, host_files
from relax_aot.verify.generate import (
    FRAME,
    SOURCE,
    SPECIAL,
    UNTOUCHED,
    Generator,
    OnToken,
    Sampling,
    generate_source,
    generates,
    prompt_bytes,
)
from relax_aot.verify.lengths import Holder, lengths_of, truncated
from relax_aot.verify.library import BLOCK, Library, RawResult
from relax_aot.verify.program import Array, Built, alone, program_of
from relax_aot.verify.samples import Case
from relax_aot.verify.sizes import (
    InputError,
    by_name,
    given_sizes,
    merged_sizes,
    ordered_inputs,
    require_shapes,
)

LIBRARY = "model.so"
STRICT_FLAGS = (
    "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wvla", "-Wdouble-promotion",
    "-Werror",
)  # fmt: skip
# Flags of vectorization: FMA contraction is explicit, and no operation traps.
OPTIMISE_FLAGS = (
    "-O3", "-march=native", "-ffp-contract=off", "-DRAOT_CONTRACTION_OFF", "-fno-trapping-math",
    "-fno-strict-aliasing",
)  # fmt: skip
# Warnings are the plain build's matter: instrumentation changes what the compiler sees.
SANITIZE_FLAGS = (
    "-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all", "-ffp-contract=off",
)  # fmt: skip

STATUS_NAMES = {
    0: "RAOT_OK", -1: "RAOT_ERR_NULL", -2: "RAOT_ERR_ARENA", -3: "RAOT_ERR_ALIGN",
    -4: "RAOT_ERR_SIZE", -5: "RAOT_ERR_MISMATCH", -6: "RAOT_ERR_INDEX", -7: "RAOT_ERR_CAPACITY",
    -8: "RAOT_ERR_WEIGHTS", -9: "RAOT_ERR_OVERLAP", -10: "RAOT_ERR_STATE",
    -11: "RAOT_ERR_EXTERN",
    -12: "RAOT_ERR_LIMITS", -13: "RAOT_ERR_DEVICE",
}  # fmt: skip


class StatusError(RelaxAotError):
    """The generated code ended with an error status."""

    def __init__(self, status: int, what: str) -> None:
        self.status = status
        self.name = STATUS_NAMES.get(status, str(status))
        super().__init__(f"{what} ended with {self.name}")


class HostBuildError(RelaxAotError):
    """The host compiler did not accept the project."""


class HostCrash(RelaxAotError):
    """The sanitizer or the operating system stopped the generated code."""


class Runner(Protocol):
    """Where the C runs: in this process, or in a child under the sanitizers."""

    def init(self, dims: Sequence[int]) -> int: ...

    def run(
        self,
        dims: Sequence[int],
        inputs: Sequence[NDArray[np.uint8]],
        arena_bytes: int | None = None,
        arena_shift: int = 0,
    ) -> RawResult: ...

    def arena_need(self, dims: Sequence[int]) -> int: ...


class HostModel:
    """Call it with arrays by input name; it returns a dict of outputs by name. Sizes are read from
    the shapes. `at` sets sizes that no shape determines."""

    def __init__(
        self, interface: Interface, runner: Runner, sizes: Mapping[str, int] | None = None
    ) -> None:
        self.interface = interface
        self.runner = runner
        self.state: NDArray[np.uint8] | None = None
        """The state block after the last call that succeeded."""
        self._program, self._entry, self._held = alone(interface), "", Held()
        self._sizes = given_sizes(interface.dims, sizes or {}, interface.fixed_sizes)

    def __call__(self, /, *arrays: Mapping[str, Array] | None, **named: Array) -> dict[str, Array]:
        return self._call({}, by_name(arrays, named))

    def at(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> SizedCall:
        """Return a callable with sizes that the shapes of inputs do not determine:
        `host.at(n=5)(x=...)`. It shares the state of this model."""
        fields = self._program.fields(self._entry)
        given = given_sizes(fields, merged_sizes(sizes, named), self.interface.fixed_sizes)
        return SizedCall(partial(self._call, given))

    def _call(self, given: Mapping[str, int], arrays: Mapping[str, Array]) -> dict[str, Array]:
        inputs = ordered_inputs(self.interface, arrays)
        return self._run(self._sizes_of(inputs, given), inputs)

    @property
    def _lengths(self) -> dict[str, int]:
        fields = self._program.shared.lengths
        return lengths_of(cast(Holder, self.runner), fields, exists=self._held.sizes is not None)

    def length(self, name: str) -> int:
        """The number of rows that growing states hold, by the source name of their length."""
        lengths = self._lengths
        if name not in lengths:
            raise InputError(f"the model has no length {name!r}; lengths are {sorted(lengths)}")
        if lengths[name] < 0:
            raise StatusError(lengths[name], f"the length {name}")
        return lengths[name]

    def truncate(self, lengths: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Keep the first rows of growing states: `host.truncate(m=3)`."""
        holder, shared, exists = cast(Holder, self.runner), self._program.shared, self._held.sizes
        requested = merged_sizes(lengths, named)
        for name, status in truncated(holder, shared.lengths, requested, exists=exists is not None):
            raise StatusError(status, f"{shared.name}_truncate_{name}")

    def _sizes_of(self, inputs: Sequence[Array], given: Mapping[str, int]) -> dict[str, int]:
        """Return every size by its source name: from `given`, from the inputs, or from the
        state."""
        anew = self._held.sizes is None
        held = self._held.chosen if self._held.sizes is None else self._held.sizes
        known, lengths = {**self._sizes, **given}, self._lengths
        for name, rows in lengths.items():
            if known.get(name, rows) != rows:
                raise InputError(
                    f"{name}={known[name]}: the state holds {rows} rows; a call appends to them,"
                    f" and .truncate({name}=...) keeps fewer"
                )
        return self._program.sizes(self._entry, inputs, known | lengths, held, anew=anew)

    def run_at(self, sizes: Mapping[str, int], inputs: Sequence[Array]) -> dict[str, Array]:
        """Run at the given sizes (by symbol name), with inputs in the order of the interface.
        Growing states are truncated to their length in `sizes`."""
        if isinstance(sizes, Mapping):
            own = {f.symbol.name: self._lengths[f.source] for f in self.interface.lengths}
            sizes = {**own, **sizes}
        require_shapes(self.interface, sizes, inputs)
        return run_case(self, Case(dict(sizes), tuple(inputs), entry=self._entry))

    def _run(self, sizes: Mapping[str, int], inputs: Sequence[Array]) -> dict[str, Array]:
        """Run at the given sizes (by source name), with inputs in the order of the interface."""
        program, name = self._program, self.interface.name
        inputs = [np.asarray(array) for array in inputs]
        dims = program.dims(self._entry, sizes)
        if program.shared.has_init and self._held.sizes is None:
            status = self.runner.init(dims)
            if status:
                raise StatusError(status, f"{program.shared.name}_init")
            self._held.sizes = {f.source: sizes[f.source] for f in program.shaping}
        raw = self.runner.run(dims, program.inputs(self._entry, inputs))
        if raw.status:
            raise StatusError(raw.status, f"{name}_run")
        if not raw.guards_ok:
            raise HostCrash(f"{name}_run wrote outside its memory")
        self.state = raw.state
        return program.outputs(self._entry, sizes, raw)

    def reset(self) -> None:
        """Clear the state before the next call."""
        self._held.sizes = None


def run_case(model: HostModel, case: Case) -> dict[str, Array]:
    """Run a case; the state is kept, whatever the case says."""
    return model._run(model._program.case_sizes(case), case.inputs)


@dataclass
class Held:
    """The sizes that shape the state, by the names of the source."""

    sizes: dict[str, int] | None = None
    """Once the state exists."""
    chosen: dict[str, int] = field(default_factory=dict)
    """Given for the next state."""


class HostEntries:
    """Each entry is an attribute (or an item), called with arrays by input name. The first call or
    `reset` creates the state, which is kept until the next `reset`."""

    def __init__(
        self, project: EntriesProject, runner: Runner, sizes: Mapping[str, int] | None = None
    ) -> None:
        self.project = project
        self.runner = runner
        self._held = Held()
        self._entries = {
            name: HostEntry(project, name, runner, sizes or {}, self._held)
            for name in project.entries
        }

    def __getitem__(self, name: str) -> HostEntry:
        if not isinstance(name, str) or name not in self._entries:
            raise InputError(f"unknown entry {name!r}; entries are {list(self._entries)}")
        return self._entries[name]

    def __getattr__(self, name: str) -> HostEntry:
        if name.startswith("_") or name not in self._entries:
            raise AttributeError(f"unknown entry {name!r}; entries are {self.entries}")
        return self._entries[name]

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the entries, in order."""
        return tuple(self.project.entries)

    def reset(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Clear the state before the next call. `sizes` are the sizes of the state that no input
        determines."""
        requested = merged_sizes(sizes, named)
        shared = self.project.shared
        self._held.chosen = given_sizes(shared.dims, requested, shared.fixed_sizes)
        self._held.sizes = None

    def length(self, name: str) -> int:
        """The number of rows that growing states hold, by the source name of their length."""
        return self[self.entries[0]].length(name)

    def truncate(self, lengths: Mapping[str, int] | None = None, /, **named: int) -> None:
        """Keep the first rows of growing states: `host.truncate(m=3)`."""
        self[self.entries[0]].truncate(lengths, **named)

    def generate(
        self, prompt: str | bytes, *, max_tokens: int = 0, temperature: float = 0.0, top_k: int = 0,
        top_p: float = 0.0, min_p: float = 0.0, repetition_penalty: float = 0.0, seed: int = 0,
        special: bool = False, on_token: OnToken | None = None,
    ) -> str:  # fmt: skip
        """Continue the text that the caches hold with a prompt, and then with the tokens of a
        language model; return their text. Zeros mean: always the most likely token, until the text
        ends. `special`: names of special tokens in the prompt are these tokens. `on_token` is
        called with each token and the text that it completes; a true answer stops. The text ends,
        too, where the caches are full."""
        if not (isinstance(self.runner, Library) and generates(self.project)):
            raise RelaxAotError(
                f"{self.project.name} generates no text: it needs a tokenizer, the logits of the"
                " last token, and a host without sanitizers"
            )
        fields = self.project.bounded + self.project.shared.lengths
        if self._held.sizes is None:
            status = self.runner.init([0] * (1 + len(fields)))
            if status:
                raise StatusError(status, f"{self.project.name}_init")
            self._held.sizes = {}
        begins = all(self.length(f.source) == f.first for f in self.project.shared.lengths)
        sampling = Sampling(
            seed, temperature, top_k, top_p, min_p, repetition_penalty, max_tokens,
            FRAME * begins | SPECIAL * special,
        )  # fmt: skip
        status, count, text = Generator(self.runner)(prompt_bytes(prompt), sampling, on_token)
        if status and count == UNTOUCHED:
            raise StatusError(status, f"{self.project.name}_generate")
        return text

    def run_at(
        self, entry: str, sizes: Mapping[str, int], inputs: Sequence[Array]
    ) -> dict[str, Array]:
        """Run an entry at sizes by their source names, with inputs in the order of its
        interface."""
        interface, fixed = self[entry].interface, self.project.shared.fixed_sizes
        fields = self.project.bounded + interface.all_lengths
        sizes = self[entry]._lengths | given_sizes(fields, merged_sizes(sizes, {}), fixed)
        named = {f.symbol.name: sizes[f.source] for f in interface.sizes if f.source in sizes}
        require_shapes(interface, named, inputs)
        return self[entry]._run(sizes, inputs)

    def sizes_for(
        self, entry: str, inputs: Sequence[Array], given: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Return every size by its source name: from `given`, from the inputs, from the state, or
        from `reset`, in this order."""
        return self[entry]._sizes_of(inputs, given or {})


class HostEntry(HostModel):
    """One entry: call it with arrays by input name; a dict of outputs by name comes back. `at`
    gives the sizes that no shape determines. All entries share the state."""

    def __init__(
        self,
        project: EntriesProject,
        name: str,
        runner: Runner,
        sizes: Mapping[str, int],
        held: Held,
    ) -> None:
        super().__init__(project.entries[name].interface, runner)
        self.name = self._entry = name
        self._program, self._held = program_of(project), held
        self._sizes = given_sizes(project.bounded, sizes, project.shared.fixed_sizes)


class SizedCall:
    """A model, or an entry, with sizes given: call it with arrays by input name."""

    def __init__(self, call: Callable[[dict[str, Array]], dict[str, Array]]) -> None:
        self._call = call

    def __call__(self, /, *arrays: Mapping[str, Array] | None, **named: Array) -> dict[str, Array]:
        return self._call(by_name(arrays, named))


def host_model(
    project: Project,
    *,
    sanitize: bool = False,
    sizes: Mapping[str, int] | None = None,
    workers: bool = True,
) -> HostModel:
    """Build (or find in the cache) and load. With `sanitize`, under ASan and UBSan. `sizes` are
    those that no shape determines, by the names of the source. Without `workers`, one thread runs
    also what is compiled for several."""
    runner = runner_of(project, sanitize=sanitize, workers=workers)
    return HostModel(project.interface, runner, sizes)


def entries_host(
    project: EntriesProject,
    *,
    sanitize: bool = False,
    sizes: Mapping[str, int] | None = None,
    workers: bool = True,
) -> HostEntries:
    """As `host_model`, for several entries."""
    runner = runner_of(project, sanitize=sanitize, workers=workers)
    return HostEntries(project, runner, sizes)


def runner_of(project: Built, *, sanitize: bool, workers: bool = True) -> Runner:
    path = build_library(project, sanitize=sanitize, workers=workers)
    return Child(path) if sanitize else Library(path)


# Building


def build_library(project: Built, *, sanitize: bool = False, workers: bool = True) -> Path:
    """A shared library, under every warning, or under sanitizers. Runs have all threads, or
    without `workers` one."""
    if sanitize:
        sanitizer_runtime()
    flags = SANITIZE_FLAGS if sanitize else (*STRICT_FLAGS, *OPTIMISE_FLAGS)
    if program_of(project).shared.threaded:
        flags = (*flags, "-pthread", *(("-DRAOT_WORKERS",) if workers else ()))
    files = library_files(project)
    if program_of(project).shared.device:
        files = host_files(project, files)
        driver = fake_driver(project)
        flags = (*flags, f'-DRAOT_CUDA_LIBRARY="{driver}"', "-ldl")
        flags = (*flags, f'-DRAOT_CUBLASLT_LIBRARY="{driver}"')
    return build_shared(files, flags, project.foreign)


def library_files(project: Built) -> dict[str, bytes]:
    """The project's sources behind the table of raot_model.h, without its main program."""
    files = {n: c for n, c in project.files.items() if n.endswith((".c", ".h", ".bin"))}
    files.pop("main.c", None)
    shared = program_of(project).shared
    if not shared.weights_linked:
        files[BLOCK] = files.pop(f"{shared.name}_weights.bin")
    files |= {n: text.encode() for n, text in program_of(project).adapter.items()}
    if isinstance(project, EntriesProject) and generates(project):
        files[SOURCE] = generate_source(project).encode()
    common = data_dir("boards") / "families" / "common"
    files["raot_model.h"] = (common / "raot_model.h").read_bytes()
    return files


def processor() -> str:
    """What `-march=native` goes by: a cache may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def build_shared(
    files: Mapping[str, bytes], flags: Sequence[str], foreign: Collection[str] = ()
) -> Path:
    """Compile the `.c` among `files` to a shared library; cached by content. Warnings in
    `foreign` files are their author's matter."""
    compiler = host_compiler()
    flags = (*host_flags(compiler), *flags)
    built_by = repr((compiler, flags, processor(), sorted(foreign)))
    contents = (part for name in sorted(files) for part in (name, files[name]))

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="relax_aot-") as scratch:
            blocks = {name: files[name] for name in files if name == BLOCK}
            write_files(folder, blocks)
            write_files(Path(scratch), {n: files[n] for n in files if n not in blocks})
            sources = sorted(name for name in files if name.endswith(".c") and "/" not in name)
            objects: list[str] = []
            for source in (name for name in sources if name in foreign):
                objects.append(f"foreign{len(objects)}.o")
                arguments = ["-w", "-fPIC", "-I.", "-c", source, "-o", objects[-1]]
                _compile(compiler, [*flags, *arguments], Path(scratch))
            ours = [name for name in sources if name not in foreign]
            target = ["-o", str(folder / LIBRARY), "-lm"]
            arguments = ["-fPIC", "-shared", "-I.", *ours, *objects, *target]
            _compile(compiler, [*flags, *arguments], Path(scratch))

    return cached_folder("host", digest_of([built_by, *contents]), make) / LIBRARY


def _compile(compiler: Compiler, arguments: Sequence[str], folder: Path) -> None:
    done = run(compiler, arguments, folder)
    if done.returncode and "internal compiler error" in done.stderr:
        # GCC 12 at -O3 fails on loops that copy eight bytes and look them up in a table.
        done = run(compiler, [*arguments, "-fno-tree-loop-vectorize"], folder)
    if done.returncode:
        raise HostBuildError(f"{compiler.name} failed:\n{done.stderr[:4000]}")


def sanitizer_runtime() -> str:
    """The library that a program without sanitizers loads first to use one with them."""
    compiler = host_compiler()
    ask = ["-print-file-name=libasan.so"]
    said = "" if compiler.kind == "zig" else run(compiler, ask, Path.cwd()).stdout.strip()
    if not Path(said).is_absolute():
        raise ToolMissing(
            f"{compiler.name} has no AddressSanitizer library; install gcc with:"
            " apt-get install gcc libc6-dev"
        )
    return said


# Sanitizers need their runtime loaded first, so they live in a child.


class Child:
    """A Library in a child process with the sanitizer's runtime preloaded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None

    def init(self, dims: Sequence[int]) -> int:
        return int(self._ask("init", list(dims)))

    def arena_need(self, dims: Sequence[int]) -> int:
        return int(self._ask("arena_need", list(dims)))

    def get_length(self, index: int) -> int:
        return int(self._ask("get_length", index))

    def truncate_length(self, index: int, length: int) -> int:
        return int(self._ask("truncate_length", index, length))

    def run(
        self,
        dims: Sequence[int],
        inputs: Sequence[NDArray[np.uint8]],
        arena_bytes: int | None = None,
        arena_shift: int = 0,
    ) -> RawResult:
        result = self._ask("run", list(dims), list(inputs), arena_bytes, arena_shift)
        assert isinstance(result, RawResult)
        return result

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __del__(self) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "LD_PRELOAD": sanitizer_runtime(),
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
            "PYTHONMALLOC": "malloc",
        }
        return subprocess.Popen(
            [sys.executable, "-m", "relax_aot.verify.host_worker", str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    def _ask(self, *request: object) -> Any:
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            _, text = process.communicate()
            self._process = None
            shown = text.decode(errors="replace")[:3000]
            raise HostCrash(f"the sanitizer stopped the generated code:\n{shown}") from None
