# SPDX-License-Identifier: Apache-2.0
"""The function `<name>_generate` of a language model: prompt, entries and sampler as one loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relax_aot.emit.c_names import comment, string
from relax_aot.emit.interface import Interface
from relax_aot.emit.render import render
from relax_aot.frontends.llm.chat.table import Chat
from relax_aot.version import VERSION

CHAT = "chat/main.c"
DEVICE_WORK = "131072"
"""Bytes of the host in which the tokenizer encodes prompts of a model on a GPU."""
_ROLES = ("system", "user", "assistant")
"""In the order of `enum raot_role`."""


@dataclass(frozen=True, slots=True)
class PieceView:
    """A text around messages: lines of a string literal, and its bytes."""

    name: str
    lines: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class ChatView:
    """What the template llm/chat_table.c.j2 sees."""

    source: str
    pieces: tuple[PieceView, ...]
    has_system: bool
    no_system_note: str
    framed: bool
    trims: str
    joined: int


@dataclass(frozen=True, slots=True)
class GenerateView:
    """What the templates llm/generate* see."""

    name: str
    prefix: str
    version: str
    device: bool
    state: bool
    """Whether the state is a block of the host."""
    arena: str
    """The member of the memory struct: that of a GPU is its block on the host."""
    macro: str
    """All bytes of this member."""
    first: str
    """The bytes in front, which `init` fills."""
    work: str
    """The bytes behind them, in which the tokenizer may work."""
    front: str
    scratch: str
    """What these are, in words."""
    length: str
    """The length of the caches, as a part of names."""
    capacity: str
    chunk: str
    rows: str
    """The member of the sizes of prefill."""
    has_dims: bool
    end_count: int
    ends: str
    chat: ChatView
    proposals: str = ""
    """The most tokens that are proposed at a time, in C; nothing where none are."""
    verified: str = ""
    """The member of the sizes of verify."""
    windows: tuple[str, ...] = ()
    """The lengths of caches that keep the last tokens, as parts of names."""
    draft: str = ""
    """The length of the caches of a draft model, as a part of names; nothing without one."""
    apart: bool = False
    """Whether the weights are a block of their own."""

    @property
    def memory_const(self) -> str:
        return "" if self.apart else "const "

    @property
    def usage(self) -> str:
        """What else the chat takes."""
        return " [--weights FILE]" if self.apart else ""

    @property
    def logits(self) -> str:
        """The output that is largest, as a part of macros."""
        return "VERIFY_LOGITS" if self.proposals else "DECODE_LOGITS"

    @property
    def constant(self) -> str:
        return "" if self.proposals else "const "

    @property
    def counters(self) -> str:
        """The first values of what counts proposals."""
        count = (4 if self.proposals else 0) + (1 if self.draft else 0)
        return ", 0" * count

    @property
    def looks_up(self) -> bool:
        """Whether tokens are proposed that followed earlier in the text."""
        return bool(self.proposals) and not self.draft

    @property
    def propose(self) -> str:
        """The beginning of a call that proposes tokens."""
        return "propose(by" if self.draft else "raot_propose(by->tokens"

    @property
    def full(self) -> str:
        """The tokens of the text in the caches."""
        return "by->held" if self.proposals else f"{self.name}_get_{self.length}(by->memory)"

    @property
    def append(self) -> str:
        """The call that appends a token."""
        return "append(by, token, stop)" if self.proposals else "decode(by, token)"


@dataclass(frozen=True, slots=True)
class GenerateSources:
    view: GenerateView
    files: dict[str, str]
    unit: str
    header: str
    readme: str
    chat: dict[str, str]
    """A program for systems with standard input and output."""
    chat_cmake: str
    chat_readme: str


def _memory(shared: Interface) -> tuple[bool, bool, str, str, str, str, str, str]:
    """The fields `device` to `scratch`."""
    if shared.device:
        first, front = f"{shared.prefix}_DEVICE_BYTES", "what init has on the host"
        macro = f"{shared.prefix}_GENERATE_DEVICE_BYTES"
        return True, False, "device", macro, first, DEVICE_WORK, front, "the memory behind that"
    arena = shared.arenas[0]
    macro = f"{shared.prefix}_GENERATE_ARENA_BYTES"
    words = "the arena of the entries", "the arena"
    return False, True, arena.member, macro, "0", f"{arena.macro}_BYTES", *words


def generate_bytes(arena: int, rows: int, words: int, context: int, text_bytes: int) -> int:
    """What the macro of the header says: behind the arena, in which the tokenizer works, `rows`
    rows of logits, tokens, a bit for each of `words` tokens, and the text of one."""
    parts = (max(arena, 8192), 4 * rows * words, 4 * context, words // 8 + 1, text_bytes)
    return sum(-(-part // 64) * 64 for part in parts)


def emit_generate(
    shared: Interface,
    prefill: Interface,
    ends: Sequence[int],
    chat: Chat,
    verify: Interface | None = None,
    draft: str = "",
) -> GenerateSources:
    """The C of a loop over the entries `prefill` and `decode`, which share `lengths` of one state.
    Tokens in `ends` end a text. With an entry `verify`, tokens are proposed; those of a draft
    model have the length `draft`."""
    name, prefix = shared.name, shared.prefix
    windows = [f for f in shared.lengths if f.symbol.growth and f.symbol.growth.is_window]
    lengths = [field for field in shared.lengths if field not in windows]
    (length,) = (field for field in lengths if field.symbol.name != draft)
    drafted = next((field.c_name for field in lengths if field is not length), "")
    has_dims = bool(prefill.dims)
    view = GenerateView(
        name, prefix, VERSION, *_memory(shared),
        length.c_name, length.macro, prefill.dims[0].macro if has_dims else "1",
        prefill.dims[0].c_name if has_dims else "", has_dims, len(ends),
        ", ".join(map(str, [*ends, -1])), chat_view(chat), apart=shared.weights_apart,
    )  # fmt: skip
    if verify is not None:
        (rows,) = verify.dims
        view = replace(view, proposals=f"{rows.macro} - 1", verified=rows.c_name)
        view = replace(view, windows=tuple(field.c_name for field in windows), draft=drafted)
    files = {
        f"{name}_generate{end}": render(f"llm/generate{end}.j2", generate=view, chat=view.chat)
        for end in (".h", ".c")
    }
    readme = render("llm/generate.md.j2", generate=view)
    program = {CHAT: render("llm/chat.c.j2", generate=view)}
    cmake = render("llm/chat.cmake.j2", generate=view)
    about = render("llm/chat.md.j2", generate=view)
    return GenerateSources(
        view, files, f"{name}_generate.c", f"{name}_generate.h", readme, program, cmake, about
    )  # fmt: skip


def chat_view(chat: Chat) -> ChatView:
    """The texts around messages, as literals of C."""
    system, user = chat.system or ("", "")
    texts = {"alone": chat.alone, "system": system, "user": user, "answer": chat.answer,
             "given": chat.given, "next": chat.next}  # fmt: skip
    pieces = tuple(
        PieceView(name, string(text), len(text.encode())) for name, text in texts.items()
    )
    note = "" if chat.system else f"; or a message of the system: {comment(chat.no_system)}"
    both = "RAOT_TRIM_START | RAOT_TRIM_END"
    trims = ", ".join(both if role in chat.trims else "0" for role in _ROLES)
    joined = len(user.rstrip().encode()) if chat.joined else -1
    return ChatView(
        comment(chat.source), pieces, chat.system is not None, note, chat.framed, trims, joined,
    )  # fmt: skip
