# SPDX-License-Identifier: Apache-2.0
"""The conventions of this repository, as tests: what a reviewer would otherwise have to remember.

Linters, types and layers run here too, so that "the tests pass" means all of it. Each failure
says which file breaks which rule and how to mend it.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jinja2
import pytest
import yaml
from jinja2 import nodes

from relax_aot.cache import cache_dir
from tests.conftest import clang_format

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sys.executable).parent

MAX_LINES = 600
MAX_TEMPLATE_LINES = 81
MAX_ARCHITECTURE_LINES = 300
MAX_BYTES = 1_000_000

TOP_LEVEL = {
    ".ci",
    ".clang-format",
    ".editorconfig",
    ".gitattributes",
    ".gitignore",
    ".pre-commit-config.yaml",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CMakeLists.txt",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "NOTICE",
    "README.md",
    "benchmarks",
    "boards",
    "docs",
    "examples",
    "mkdocs.yml",
    "pyproject.toml",
    "relax_aot",
    "runtime_c",
    "templates",
    "tests",
}

GOLDEN = Path("tests/golden")
"""Generated projects, which are as long as their models need."""

CODE = {".py", ".c", ".h", ".j2", ".S", ".ld", ".sh", ".cmake", ".cu", ".cuh"}
DATA = {".onnx", ".npz", ".npy", ".wav", ".png", ".bin", ".gz", ".gguf"}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def files_of_repository() -> list[Path]:
    """What is committed or about to be, relative to the root."""
    # A checkout may belong to another user, such as one that continuous integration mounted.
    listing = run(
        *("git", "-c", "safe.directory=*", "ls-files"),
        *("--cached", "--others", "--exclude-standard"),
    )
    names = listing.stdout.splitlines()
    return sorted(Path(name) for name in names if (ROOT / name).is_file())


FILES = files_of_repository()
TEXTS = [path for path in FILES if path.suffix not in DATA]
TEMPLATES = [path for path in FILES if path.suffix == ".j2"]
TEST_FILES = [p for p in FILES if p.parts[0] == "tests" and p.name.startswith("test_")]
PAGES = [path for path in FILES if path.suffix == ".md"]
RUNTIME_C = [p for p in FILES if p.parts[0] == "runtime_c" and p.suffix in {".c", ".h"}]


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def assert_none(problems: list[str], rule: str) -> None:
    if problems:
        pytest.fail(rule + "\n  " + "\n  ".join(problems), pytrace=False)


def assert_passes(*command: str | Path) -> None:
    done = run(*command)
    if done.returncode != 0:
        shown = " ".join(Path(part).name for part in command[:3])
        pytest.fail(f"{shown} ...\n{done.stdout}{done.stderr}", pytrace=False)


def test_there_is_a_repository_to_look_at() -> None:
    assert FILES, "git lists no file: run the tests from a git checkout"


# --- tools -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ruff_finds_nothing() -> None:
    assert_passes(PROGRAMS / "ruff", "check", "--output-format=concise", ".")


@pytest.mark.slow
def test_python_is_formatted() -> None:
    assert_passes(PROGRAMS / "ruff", "format", "--diff", "--quiet", ".")


@pytest.mark.slow
def test_types_are_right() -> None:
    """mypy knows files by their contents: a new checkout begins with what was found in others, and
    takes a tenth of the time."""
    own, kept = ROOT / ".mypy_cache", cache_dir() / "mypy"
    if kept.is_dir() and not own.exists():
        shutil.copytree(kept, own)
    assert_passes(PROGRAMS / "mypy")
    with (
        tempfile.TemporaryDirectory(dir=kept.parent, prefix=".mypy-") as scratch,
        suppress(OSError),
    ):
        # There may be none, and another run may be faster.
        shutil.copytree(own, Path(scratch) / "new")
        if kept.exists():
            kept.rename(Path(scratch) / "old")
        (Path(scratch) / "new").rename(kept)


@pytest.mark.slow
def test_a_stage_imports_only_what_is_below_it() -> None:
    assert_passes(PROGRAMS / "lint-imports")


@pytest.mark.slow
def test_words_are_spelt_right() -> None:
    assert_passes(PROGRAMS / "codespell", *TEXTS)


def test_sources_have_a_license_line() -> None:
    """Generated projects have another license, so golden projects are left out."""
    kinds = {".h": "/* {} */", ".c": "/* {} */", ".j2": "{{# {} #}}"}
    kinds |= dict.fromkeys((".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile", "run"), "# {}")
    missing = []
    for path in FILES:
        kind = path.name if path.name in kinds else path.suffix
        if kind not in kinds or GOLDEN in list(path.parents)[1:]:
            continue
        first, second = (text_of(path) + "\n\n").split("\n")[:2]
        line = kinds[kind].format("SPDX-License-Identifier: Apache-2.0")
        if line != (second if first.startswith("#!") else first):
            missing.append(f"{path}: the first line is {line}")
    assert_none(missing, "licenses:")


@pytest.mark.slow
def test_runtime_c_is_formatted() -> None:
    program = clang_format()
    assert RUNTIME_C, "no C file found in runtime_c/"
    assert_passes(program, "--dry-run", "-Werror", *RUNTIME_C)


# --- files -------------------------------------------------------------------------------------


def test_the_top_level_is_closed() -> None:
    assert_none(
        sorted({path.parts[0] for path in FILES} - TOP_LEVEL),
        "the top level has a fixed set of entries; put these into one of the folders:",
    )


def test_files_are_short() -> None:
    written = [
        p
        for p in TEXTS
        if p.suffix in CODE and not (p.is_relative_to(GOLDEN) and p.suffix != ".py")
    ]
    counts = {p: len(text_of(p).splitlines()) for p in written}
    assert_none(
        [f"{path}: {count} lines" for path, count in counts.items() if count > MAX_LINES],
        f"a source file has at most {MAX_LINES} lines; split these by idea:",
    )


def test_files_are_small() -> None:
    sizes = {path: (ROOT / path).stat().st_size for path in FILES}
    assert_none(
        [f"{path}: {size} bytes" for path, size in sizes.items() if size > MAX_BYTES],
        f"a committed file has at most {MAX_BYTES} bytes:",
    )


def test_texts_end_with_one_line_end_and_have_no_trailing_space() -> None:
    problems = []
    for path in TEXTS:
        text = text_of(path)
        # A template may end with the empty line that stands behind it where it is included.
        empty_line = text.endswith("\n\n") and path.suffix != ".j2"
        if text and (not text.endswith("\n") or empty_line):
            problems.append(f"{path}: must end with exactly one line end")
        if "\r" in text:
            problems.append(f"{path}: has carriage returns")
        problems += [
            f"{path}:{number}: trailing white space"
            for number, line in enumerate(text.splitlines(), start=1)
            if line != line.rstrip()
        ]
    assert_none(problems, "text files:")


def test_no_text_names_a_folder_of_one_machine() -> None:
    # Written in pieces, because this file is looked at too.
    folders = re.compile("(?<![\\w.*])/(?:" + "|".join(("work", "root", "home")) + ")/")
    problems = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path in TEXTS
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if folders.search(line)
    ]
    assert_none(problems, "these lines name a folder that exists on one machine only:")


def test_toml_and_yaml_can_be_read() -> None:
    problems = []
    for path in FILES:
        try:
            if path.suffix == ".toml":
                tomllib.loads(text_of(path))
            elif path.suffix in {".yaml", ".yml"}:
                yaml.safe_load(text_of(path))
        except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
            problems.append(f"{path}: {error}")
    assert_none(problems, "these files cannot be read:")


def test_scripts_are_executable_and_nothing_else_is() -> None:
    problems = []
    for path in TEXTS:
        executable = bool((ROOT / path).stat().st_mode & 0o100)
        script = text_of(path).startswith("#!")
        if script and not executable:
            problems.append(f"{path}: starts with #!, so it needs a run bit")
        if executable and not script:
            problems.append(f"{path}: has a run bit, so it needs a #! line")
    assert_none(problems, "scripts:")


# --- templates ---------------------------------------------------------------------------------

FILTERS = {"indent", "join", "upper"}

# What a template may consist of: text, printing a field, for, if on a boolean field, include.
ALLOWED_NODES = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Getattr,
    nodes.For,
    nodes.If,
    nodes.Include,
    nodes.Const,
    nodes.Filter,
)


def walk(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    for child in node.iter_child_nodes():
        yield from walk(child)


def problems_of_template(path: Path) -> Iterator[str]:
    text = text_of(path)
    lines = text.splitlines()
    if len(lines) < 2 or not lines[1].startswith("{#"):
        yield f"{path}: the second line says in a comment which file this makes and what it sees"
    if len(lines) > MAX_TEMPLATE_LINES:
        yield f"{path}: {len(lines)} lines, at most {MAX_TEMPLATE_LINES}; split it by include"
    for number, line in enumerate(lines, start=1):
        if "{%-" in line or "-%}" in line:
            yield f"{path}:{number}: white space control is never needed"
        if "{%" in line and not re.fullmatch(r"\{% .* %\}", line):
            yield f"{path}:{number}: a control tag stands alone, at column 0"
    for node in walk(jinja2.Environment(autoescape=False).parse(text)):
        if not isinstance(node, ALLOWED_NODES):
            yield f"{path}:{node.lineno}: {type(node).__name__}: compute this in the view"
        if isinstance(node, nodes.Filter) and node.name not in FILTERS:
            yield f"{path}:{node.lineno}: filter {node.name}; allowed are {sorted(FILTERS)}"


@pytest.mark.parametrize("path", TEMPLATES, ids=str)
def test_a_template_places_and_never_computes(path: Path) -> None:
    assert_none(list(problems_of_template(path)), "templates:")


# --- tests -------------------------------------------------------------------------------------


def checks_something(body: ast.AST, helpers: set[str]) -> bool:
    for node in ast.walk(body):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in helpers or name.startswith(("assert_", "check_", "raises", "warns", "fail")):
                return True
    return False


def functions_of(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def unchecked_tests_of(path: Path) -> Iterator[str]:
    functions = functions_of(ast.parse(text_of(path)))
    helpers: set[str] = set()
    while found := {f.name for f in functions if checks_something(f, helpers)} - helpers:
        helpers |= found
    for function in functions:
        if function.name.startswith("test") and function.name not in helpers:
            yield f"{path}:{function.lineno}: {function.name}"


@pytest.mark.slow
def test_every_test_checks_something() -> None:
    assert TEST_FILES, "no test found in tests/"
    assert_none(
        [problem for path in TEST_FILES for problem in unchecked_tests_of(path)],
        "these tests cannot fail by what they find:",
    )


# --- documents ---------------------------------------------------------------------------------


def test_architecture_stays_short() -> None:
    count = len(text_of(Path("ARCHITECTURE.md")).splitlines())
    assert count <= MAX_ARCHITECTURE_LINES, f"ARCHITECTURE.md has {count} lines"


def without_code(page: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)


def test_links_lead_to_files() -> None:
    problems = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page))):
            place = target.partition("#")[0]
            if "://" in target or target.startswith("mailto:") or not place:
                continue
            if not (ROOT / page.parent / place).exists():
                problems.append(f"{page}: {target}")
    assert_none(problems, "these links lead nowhere:")


def commands_in(page: Path) -> list[list[str]]:
    """The command lines in the page's shell blocks, words split, continuations joined."""
    blocks = re.findall(r"```(?:sh|console|bash)\n(.*?)```", text_of(page), flags=re.DOTALL)
    text = "\n".join(blocks).replace("\\\n", " ")
    lines = [line.partition(" #")[0].removeprefix("$ ").split() for line in text.splitlines()]
    return [words for words in lines if words]


def targets_of_makefile() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", text_of(Path("Makefile")), flags=re.MULTILINE))


def problems_of_command(words: list[str]) -> Iterator[str]:
    from relax_aot.cli.main import cli

    if words[0] == "make":
        for word in words[1:]:
            if "=" not in word and not word.startswith("-") and word not in targets_of_makefile():
                yield f"make has no target {word}"
    if Path(words[0]).name == "relax-aot" and not words[1].startswith("-"):
        verb = cli.commands.get(words[1])
        if verb is None:
            yield f"relax-aot has no verb {words[1]}"
            return
        known = {spelling for parameter in verb.params for spelling in parameter.opts}
        for word in words[2:]:
            option = word.partition("=")[0]
            if option.startswith("-") and len(option) > 1 and option not in known:
                yield f"relax-aot {words[1]} has no option {option}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_in_documents_exist(page: Path) -> None:
    problems = [p for words in commands_in(page) for p in problems_of_command(words)]
    assert_none(problems, f"{page}:")
