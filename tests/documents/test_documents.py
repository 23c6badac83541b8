# SPDX-License-Identifier: Apache-2.0
"""What the documents show works: their code blocks are run as they stand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relax_aot import driver
from relax_aot.cli.main import cli
from relax_aot.project.board import read_board
from relax_aot.verify.job import Job, run_job
from tests.conftest import ROOT
from tests.scheduling import toy

README = ROOT / "README.md"
DOCS = ROOT / "docs"


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder in which README's relative paths mean what they mean in a checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def run(*command: str, folder: Path) -> str:
    package = folder if (folder / "relax_aot").is_dir() else ROOT
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(package), "PATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.qemu
@pytest.mark.slow
def test_readme_leads_from_model_to_board(workplace: Path) -> None:
    commands = "".join(
        block for block in blocks(README, "sh") if not block.startswith(("make ", "pip "))
    )
    missing = [t for t in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake") if not shutil.which(t)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    # The checkout's own program, installed or not.
    ours = f'relax-aot() {{ {sys.executable} -m relax_aot "$@"; }}\n'
    said = run("bash", "-euc", ours + commands, folder=workplace)
    assert said.count("; equal") == 2, said  # host and board
    (snippet,) = blocks(README, "c")
    (workplace / "classify.c").write_text(
        snippet + "\nint main(void) { return classify(NULL, 1); }\n"
    )
    run(
        *(
            "gcc",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
            "build/gesture",
            "-o",
            "classify",
        ),
        *("classify.c", "build/gesture/gesture.c", "build/gesture/gesture_weights.c", "-lm"),
        folder=workplace,
    )
    refused = subprocess.run([workplace / "classify"], check=False).returncode
    assert refused == 256 - 1, "a null pointer is refused with RAOT_ERR_NULL, which is -1"


@pytest.mark.qemu
@pytest.mark.slow
def test_readme_python_runs(workplace: Path) -> None:
    (script,) = blocks(README, "python")
    (workplace / "readme.py").write_text(script)
    instructions, arena = run(sys.executable, "readme.py", folder=workplace).split()
    assert int(instructions) > 0
    assert int(arena) > 0
    assert (workplace / "build" / "gesture" / "gesture.h").is_file()


def test_the_board_of_the_how_to_is_accepted(tmp_path: Path) -> None:
    (text,) = blocks(DOCS / "how-to" / "add_a_board.md", "toml")
    path = tmp_path / "myboard.toml"
    path.write_text(text)
    board = read_board(path)
    assert board.name == "myboard"
    assert board.emulator is not None


def test_the_regions_of_the_how_to_are_accepted(tmp_path: Path) -> None:
    page = DOCS / "how-to" / "add_a_board.md"
    (text,) = blocks(page, "toml")
    (regions,) = (block for block in blocks(page, "text") if block.startswith("[[region]]"))
    memories = "".join(
        f'[[memory]]\nname = "{name}"\norigin = {origin}\nsize = "512K"\nkind = "ram"\n'
        for name, origin in (("dtcm", 0x30000000), ("sram", 0x38000000))
    )
    path = tmp_path / "myboard.toml"
    path.write_text(text + memories + regions)
    assert [region.name for region in read_board(path).regions] == ["dtcm", "sram"]


def title_of(page: Path) -> str:
    if page.suffix == ".ipynb":
        (first, *_) = json.loads(page.read_text(encoding="utf-8"))["cells"]
        return str(first["source"][0]).removeprefix("# ").strip()
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def test_the_changelog_says_nothing_twice() -> None:
    """Merges of two additions to a list double lines without a conflict."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    lines = [line.strip(" .,;") for line in text.splitlines() if len(line) > 50]
    assert not {line for line in lines if lines.count(line) > 1}


def test_each_version_of_the_changelog_has_its_headings_once_and_in_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for version in text.split("\n## ")[1:]:
        headings = re.findall(r"^### (.*)$", version, re.M)
        assert headings == [name for name in ("Added", "Changed", "Fixed") if name in headings]


def test_each_decision_has_a_number_of_its_own() -> None:
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    numbers = [page.name.split("-")[0] for page in pages]
    assert not {number for number in numbers if numbers.count(number) > 1}
    assert not [page.name for page in pages if title_of(page).split(":")[0] != page.name[:4]]


def test_the_list_of_pages_has_every_page_by_its_title() -> None:
    links = re.findall(r"\[([^]]+)\]\(([^)]+)\)", (DOCS / "README.md").read_text(encoding="utf-8"))
    listed = {target: title for title, target in links}
    pages = [p for p in DOCS.rglob("*") if p.suffix in {".md", ".ipynb"} and p.name != "README.md"]
    titles = {
        page.relative_to(DOCS).as_posix(): title_of(page)
        for page in pages
        if page.parent.name != "decisions"
    }
    others = {"../ARCHITECTURE.md", "decisions/0000-template.md"}
    assert {target: title for target, title in listed.items() if target not in others} == titles


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the folders that contributors edit, with links to all others."""
    for path in ROOT.iterdir():
        if path.name in ("relax_aot", "runtime_c", "tests", "docs"):
            ignored = shutil.ignore_patterns("__pycache__", "golden")
            shutil.copytree(path, tmp_path / path.name, ignore=ignored)
        elif path.suffix == ".md":
            shutil.copy(path, tmp_path)
        elif not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


def edited(text: str, diff: str) -> str:
    for hunk in diff.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] != m) for m in "+-")
        assert text.count(before) == 1, f"the diff does not apply:\n{hunk}"
        text = text.replace(before, after)
    return text


def edit(checkout: Path, page: Path) -> None:
    """Make all edits of the page: its diffs, and its blocks that are whole files."""
    for source in blocks(page, "python") + blocks(page, "c"):
        named, _, text = source.partition("\n")
        (checkout / named.strip("#/* ")).write_text(text)
    for diff in blocks(page, "diff"):
        path = checkout / diff.split()[1]
        path.write_text(edited(path.read_text(encoding="utf-8"), diff))


def run_blocks(checkout: Path, page: Path) -> str:
    ours = (
        f'relax-aot() {{ {sys.executable} -m relax_aot "$@"; }}\n'
        f"make() {{ {sys.executable} -m docs.tools.pages; }}\n"
    )
    return run("bash", "-euc", ours + "".join(blocks(page, "sh")), folder=checkout)


@pytest.mark.slow
def test_the_pass_of_the_how_to_passes_its_examples(checkout: Path) -> None:
    edit(checkout, DOCS / "how-to" / "add_a_pass.md")
    assert "3 passed" in run_blocks(checkout, DOCS / "how-to" / "add_a_pass.md")


@pytest.mark.slow
def test_the_rule_of_the_how_to_that_removes_a_call_works() -> None:
    (source,) = blocks(DOCS / "how-to" / "add_a_pass.md", "text")
    imports = (
        "import relax_aot as rx\n"
        "from relax_aot.ir.graph import Call, Function, Module, Var\n"
        "from relax_aot.ir.rewrite import rewrite_module\n"
    )
    model = """
        symbol n in 1..8
        func @main(%x: f32[n]) {
          %a: f32[n] = neg(%x)
          %b: f32[n] = neg(%a)
          %y: f32[n] = exp(%b)
          %c: f32[n] = neg(%y)
          %z: f32[n] = neg(%c)
          return %y, %z
        }"""
    script = f"{imports}{source}print(run(rx.parse({model!r})))"
    after = run(sys.executable, "-c", script, folder=ROOT)
    assert "exp(%x)" in after and "%z: f32[n] = neg(%c)" in after


@pytest.mark.slow
def test_the_op_of_the_how_to_is_correct(checkout: Path) -> None:
    edit(checkout, DOCS / "how-to" / "add_an_op.md")
    script = (
        "from relax_aot.ops import all_ops\n"
        "from relax_aot.verify.op_check import problems_of\n"
        "print(problems_of(all_ops()['cdist']))"
    )
    assert run(sys.executable, "-c", script, folder=checkout) == "[]\n"


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
def test_the_commands_of_the_op_s_how_to_run(checkout: Path) -> None:
    page = DOCS / "how-to" / "add_an_op.md"
    edit(checkout, page)
    said = run_blocks(checkout, page)
    assert len(re.findall(r"\d passed", said)) == 2
    assert " failed" not in said
    assert "\n[]\n" in said
    assert said.count("; equal") == 2
    operators = (checkout / "docs" / "reference" / "operators.md").read_text(encoding="utf-8")
    assert "| com.microsoft.CDist | 1 |" in operators


def test_the_micro_kernel_of_the_how_to_is_the_tested_one() -> None:
    page = (DOCS / "how-to" / "add_a_micro_kernel.md").read_text(encoding="utf-8")
    text = (ROOT / "tests" / "scheduling" / "toy.py").read_text(encoding="utf-8")
    assert page.count("def rows(") == 1
    parts = (
        toy.HEADER,
        text[text.index("(ROWS,) = ") : text.index("    source=HEADER")],
        text[text.index("def rows(") : text.index("\n\nMICRO_KERNELS")],
        text[text.index("TARGET = ") :],
    )
    for part in parts:
        assert part.strip() in page


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.long
def test_the_commands_of_the_micro_kernel_s_how_to_run(checkout: Path) -> None:
    page = DOCS / "how-to" / "add_a_micro_kernel.md"
    edit(checkout, page)
    said = run_blocks(checkout, page)
    assert said.count("; equal") == 2
    slow, fast = re.findall(r"n=9 .* ([\d,]+) │", said)
    assert (slow, fast) == tuple(
        number.replace(" ", ",")
        for number in re.findall(r"\b\d\d \d{3}\b", page.read_text("utf-8"))
    )


def test_every_verb_and_option_is_documented() -> None:
    page = (DOCS / "reference" / "command_line.md").read_text(encoding="utf-8")
    spellings = {f"`{name}" for name in cli.commands}
    for verb in ("compile", "verify", "report"):
        spellings |= {o for p in cli.commands[verb].params for o in p.opts if o.startswith("--")}
    undocumented = {s for s in spellings if s not in page} - {"--output", "--help"}
    # Said to be unbuilt by the command itself.
    assert undocumented <= {"--quantize", "--calibrate"}, undocumented


def test_every_status_is_documented() -> None:
    header = (ROOT / "runtime_c" / "include" / "raot" / "status.h").read_text(encoding="utf-8")
    page = (DOCS / "reference" / "generated_c.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(RAOT_\w+)` \| (-?\d+) \|", page, flags=re.MULTILINE))
    assert rows == dict(re.findall(r"(RAOT_\w+) = (-?\d+)", header))


TEXT_FORM = DOCS / "reference" / "text_form.md"


@pytest.mark.slow
@pytest.mark.parametrize("text", blocks(TEXT_FORM, "raot"))
def test_programs_of_the_text_form_compile_and_equal_their_reference(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "shown.raot"
    path.write_text(text)
    project = driver.compile_model(path)
    assert run_job(Job(path, (project,), reference="numpy")).ok


@pytest.mark.slow
def test_python_of_the_text_form_runs(tmp_path: Path) -> None:
    (script,) = blocks(TEXT_FORM, "python")
    (tmp_path / "shown.py").write_text(script)
    run(sys.executable, "shown.py", folder=tmp_path)
    assert (tmp_path / "product.npz").is_file()
