# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of the reference that are generated from code.

    python -m docs.tools.pages [PAGE ...]

Commands and options come from the command line itself, the Python interface from its signatures and
docstrings, C functions from the runtime headers, boards from their files, operators from the
frontends. `operators.md` takes 20 s, the others take no time. A test checks that the committed
pages are up to date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

import relax_aot
from relax_aot.cli.main import cli
from relax_aot.frontends.tflite import page as tflite
from relax_aot.ir.microkernel import MicroKernel
from relax_aot.ir.text import kernel_text
from relax_aot.microkernels import instruction_sets
from relax_aot.ops import files
from relax_aot.ops._attributes import REQUIRED, Attribute, text
from relax_aot.project.board import Board, load_board
from relax_aot.verify import operators
from relax_aot.verify.emulate import Emulation
from relax_aot.verify.figures import Memory
from relax_aot.verify.host import HostEntries, HostModel
from tests.conformance import listing
from tests.conformance.cases import all_cases

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
MADE = "This page is generated from the code by `make pages`."


SIZES_OF_A_CALL = """\
A call determines its sizes from the shapes of all inputs and from the conditions of the model. For
example, the axes `n + p` and `n - p` determine `n` and `p`. Some sizes cannot be determined from
shapes: a size of a state, an operand of `reshape`, or an axis `n + p` alone. `at` sets these sizes,
with the names of `--bound`:

    host.at(n=5)(x=...)                     # also host.at({"n": 5})(x=...)
    host.decode.at(m=64)(x=...)             # one of several entries
    project.at(m=64).host()                 # for every call
    project.at(n=5).emulate(x=...)
    entries.emulate([("decode", {"x": x}, {"m": 64})])

The first call sets the sizes of a state, which stay until `reset`. If several sizes are possible,
or none, the call raises an error that names them. Every axis of every input is compared with the
sizes before the C is called. The C returns `RAOT_ERR_SIZE` for sizes outside their bounds."""


MICRO_KERNELS = """\
Schedules write loops around micro-kernels: C functions that compute on packed operands. The meaning
of each is a kernel of the [text form](text_form.md), whose symbols are the sizes. The shape of an
operand is its access range: the elements that the C function may access, starting at the address
of the operand. Elements of an output that the kernel neither stores nor reads are undefined
afterwards. Tests compare every C variant with the meaning, for random sizes and operands within the
ranges given here."""


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def options_page() -> str:
    lines = [
        "# Commands and options", "", MADE, "",
        "The page [command line](command_line.md) explains the most important ones.",
    ]  # fmt: skip
    for name, command in sorted(cli.commands.items()):
        lines += ["", f"## {name}", "", cell(command.help or ""), ""]
        arguments = [p.make_metavar(click.Context(command)) for p in _arguments(command)]
        lines += [f"    relax-aot {' '.join([name, *arguments, '[OPTIONS]'])}", ""]
        rows = list(_option_rows(command))
        if rows:
            lines += ["| option | value | default | meaning |", "|---|---|---|---|", *rows]
    return "\n".join(lines).rstrip() + "\n"


def _arguments(command: click.Command) -> list[click.Parameter]:
    return [p for p in command.params if isinstance(p, click.Argument)]


def _option_rows(command: click.Command) -> Iterator[str]:
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        names = ", ".join(f"`{name}`" for name in option.opts)
        value = "" if option.is_flag else option.make_metavar(click.Context(command))
        text, _, stated = (option.help or "").partition("[default: ")
        default = option.default
        shown = f"`{default}`" if isinstance(default, str | int | float) else stated.rstrip("]")
        shown = "" if option.is_flag else shown
        notes = [text.strip(), "Required." if option.required else ""]
        code = f"`{cell(value)}`" if value else ""
        yield f"| {names} | {code} | {shown} | {cell(' '.join(filter(None, notes)))} |"


def python_page() -> str:
    lines = [
        "# Python interface", "", MADE, "",
        "`import relax_aot as rx`. Every user error raises an `rx.RelaxAotError`.",
        "", "## Sizes of a call", "", SIZES_OF_A_CALL,
    ]  # fmt: skip
    functions = [n for n in relax_aot.__all__ if inspect.isfunction(getattr(relax_aot, n))]
    for name in functions:
        lines += _function(f"rx.{name}", getattr(relax_aot, name), "##")
    for title, kind in (
        ("rx.Project", relax_aot.Project), ("The result of `Project.host`", HostModel),
        ("The result of `Project.emulate`", Emulation), ("The value of `Project.memory`", Memory),
        ("rx.Entries", relax_aot.Entries), ("rx.EntriesProject", relax_aot.EntriesProject),
        ("The result of `EntriesProject.host`", HostEntries),
        ("rx.StatusError", relax_aot.StatusError),
    ):  # fmt: skip
        lines += _class(title, kind)
    return "\n".join(lines).rstrip() + "\n"


def _paragraph(text: str) -> list[str]:
    return ["", text[:1].upper() + text[1:]] if text else []


def micro_kernels_page() -> str:
    lines = ["# Micro-kernels", "", MADE, "", MICRO_KERNELS]
    for module in instruction_sets().values():
        families: dict[str, list[MicroKernel]] = {}
        for kernel in module.MICRO_KERNELS:
            families.setdefault(re.sub("_[su]8$", "", kernel.name), []).append(kernel)
        title, *rest = re.split(r": |\. |\.$", cell(module.__doc__ or ""), maxsplit=1)
        lines += ["", f"## {title}", *(line for text in rest for line in _paragraph(text))]
        for kernels in families.values():
            kernel = kernels[0]
            lines += ["", f"### {', '.join(f'`{one.name}`' for one in kernels)}", ""]
            sizes = f"its sizes in `struct {kernel.struct}`" if kernel.struct else "its sizes"
            lines += [
                f"`raot/{kernel.header}`. The C function takes the operands, then {sizes}:",
                "",
            ]
            lines += [f"- `{name}`: {found}" for name, found in kernel.sizes.items()]
            lines += [f"- elements of `%{name}`: {found}" for name, found in kernel.values.items()]
            lines += ["", "```", *kernel_text(kernel.meaning).split("\n"), "```"]
    return "\n".join(lines) + "\n"


def _function(name: str, function: Callable[..., Any], level: str) -> list[str]:
    parameters = list(inspect.signature(function).parameters.values())
    shown, starred = [], False
    for parameter in parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        text = str(parameter.replace(annotation=parameter.empty))
        shown.append(text)
    lines = ["", f"{level} {name}", "", f"    {name}({', '.join(shown)})", ""]
    return [*lines, cell(function.__doc__ or "")]


def _field_meanings(kind: type) -> dict[str, str]:
    """The docstring below each field."""
    (tree,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: below.value.value
        for field, below in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def _class(title: str, kind: type) -> list[str]:
    lines = ["", f"## {title}", "", cell(inspect.getdoc(kind) or "")]
    fields = {
        name: (annotation, _field_meanings(kind).get(name, ""))
        for name, annotation in inspect.get_annotations(kind).items()
        if name != "built"
    }
    for name, member in vars(kind).items():
        if isinstance(member, property):
            assert member.fget is not None
            fields[name] = (member.fget.__annotations__["return"], member.__doc__ or "")
    rows = [
        f"| `{name}` | `{cell(type_)}` | {cell(meaning)} |"
        for name, (type_, meaning) in fields.items()
        if not name.startswith("_")
    ]
    if rows:
        lines += ["", "| field | type | meaning |", "|---|---|---|", *rows]
    for name, member in vars(kind).items():
        called = name == "__call__" or not name.startswith("_")
        if inspect.isfunction(member) and called and member.__doc__:
            lines += _function(name, member, "###")
    return lines


FUNCTION = re.compile(
    r"(?:^/\*(?P<comment>(?:[^*]|\*(?!/))*)\*/\n)?^static inline (?P<signature>[^{;]+?)\s*\{", re.M
)
TOP = re.compile(r"\A/\*[\s*]*(?P<file>\S+) - (?P<text>(?:[^*]|\*(?!/))*)\*/")


def comment(text: str) -> str:
    return cell(re.sub(r"^ ?\* ?", "", text, flags=re.M))


def description(text: str) -> str:
    """The description of a header: paragraphs, and its indented lines as code."""
    text = re.sub(r"^ ?\* ?", "", text[:1].upper() + text[1:], flags=re.M)
    blocks = re.split(r"\n{2,}", text.strip())
    return "\n\n".join(b if b.startswith("    ") else " ".join(b.split()) for b in blocks)


def headers_page() -> str:
    lines = [
        "# Runtime headers", "", MADE, "",
        "Generated projects include these headers. A program uses only `raot/status.h` and",
        "`<name>.h`; the page [generated C](generated_c.md) describes the generated functions.",
    ]  # fmt: skip
    for path in sorted((ROOT / "runtime_c" / "include" / "raot").glob("*.h")):
        _license, _, text = path.read_text(encoding="utf-8").partition("\n")
        top = TOP.match(text)
        assert top and top["file"] == path.name, f"{path.name} has no description"
        lines += ["", f"## raot/{path.name}", "", description(top["text"])]
        rows = [
            f"| `{cell(found['signature'])}` | {comment(found['comment'] or '')} |"
            for found in FUNCTION.finditer(text)
        ]
        if rows:
            lines += ["", "| function | |", "|---|---|", *rows]
    return "\n".join(lines).rstrip() + "\n"


def boards_page() -> str:
    lines = [
        "# Boards", "", MADE, "",
        "`relax-aot boards NAME` shows one board with its memories. The page",
        "[add a board](../how-to/add_a_board.md) describes how to add your own.",
        "", "| `--board` | board | core | memories | emulated | figures from |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    names = sorted(path.stem for path in (ROOT / "boards").glob("*.toml"))
    lines += [_board_row(load_board(name)) for name in names]
    return "\n".join(lines) + "\n"


def _board_row(board: Board) -> str:
    memories = ", ".join(f"{m.name} {_size(m.size)}" for m in board.memories)
    emulated = "yes" if board.emulator else ""
    names = ", ".join(f"`{name}`" for name in (board.name, *board.aliases))
    parts = (names, board.title, board.cpu, memories, emulated, board.source)
    return "| " + " | ".join(cell(part) for part in parts) + " |"


def _size(count: int) -> str:
    for unit, scale in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if count >= scale and count % scale == 0:
            return f"{count // scale}{unit}"
    return str(count)


def operators_page() -> str:
    cases = all_cases().values()
    return operators.page((c.model, c.data[0][0]) for c in cases if c.kind == "node" and c.data)


def conformance_page() -> str:
    return listing.page(listing.read())


def tflite_page() -> str:
    return "\n".join(tflite.lines(markdown=True)) + "\n"


def ops_page() -> str:
    lines = [
        "# Ops of the text form", "", MADE, "",
        "Frontends, passes and [programs as text](text_form.md) call these ops. An argument with a",
        "question mark is optional; `_` stands for an absent one. An attribute without default is",
        "required. A size may be an expression of symbols.",
    ]  # fmt: skip
    for module, ops in files():
        summary, _, _ = (module.__doc__ or "").partition("\n\n")
        title = module.__name__.rpartition(".")[2]
        lines += ["", f"## {title}", "", cell(summary), ""]
        lines += ["| op | attribute | kind | default |", "|---|---|---|---|"]
        for op in sorted(ops, key=lambda op: op.name):
            rows = [_attribute_cells(attribute) for attribute in op.attributes] or [" | | |"]
            head = f"`{op.name}({op.parameters})`"
            lines += [f"| {head if n == 0 else ''} | {row}" for n, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


def _attribute_cells(attribute: Attribute) -> str:
    default = "" if attribute.default is REQUIRED else f"`{text(attribute.default)}`"
    return f"`{attribute.name}` | {cell(attribute.meaning)} | {default} |"


PAGES: dict[str, Callable[[], str]] = {
    "boards.md": boards_page,
    "conformance.md": conformance_page,
    "operators.md": operators_page,
    "micro_kernels.md": micro_kernels_page,
    "ops.md": ops_page,
    "options.md": options_page,
    "python.md": python_page,
    "runtime_c.md": headers_page,
    "tflite.md": tflite_page,
}
SLOW = frozenset({"operators.md"})


def main(names: Sequence[str]) -> None:
    for name in names or PAGES:
        (REFERENCE / name).write_text(PAGES[name](), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
