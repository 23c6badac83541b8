# SPDX-License-Identifier: Apache-2.0
"""Chat templates -> the texts between the messages of a conversation.

A template is a program, but those of published checkpoints only write texts before, between and
behind the messages. These texts are found by rendering conversations whose messages are markers.
Then other conversations are rendered, with messages of other lengths, spaces and characters: where
the template writes something else than the table, it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.frontends import UnsupportedError
from relax_aot.frontends.bounds import printable
from relax_aot.frontends.llm.chat.source import Conversation, Source

LONGEST = 4000
"""Bytes of one text: string literals of C may have 4095."""
PLACE = "{}"
SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
_MARKS = tuple(f"Mark{letter}e7f3{letter}" for letter in "ABCD")
_SPACES = "\u00a0 \n\t", "\t\n \u2003"
_ODD = (
    "", "a", "{{ x }} {% if %} {}", "It's \"quoted\" \\n <b>&amp;</b>", "two\nlines\n\nmore",
    "\u4f60\u597d \u00e9 \U0001f600", "<|im_end|></s>[/INST]<end_of_turn>", "word " * 50 + "end",
)  # fmt: skip
_WAY_OUT = (
    'give --template, such as --template "User: {}\\nAnswer:", or --template "{}" for prompts as '
    "they are"
)


@dataclass(frozen=True, slots=True)
class Chat:
    """The texts around messages. A conversation is `alone`, or both texts of `system` around its
    message; then a user's message, and `answer`. Given answers lie between `given` and `next`."""

    source: str
    alone: str
    answer: str
    given: str
    next: str
    system: tuple[str, str] | None = None
    no_system: str = ""
    """Why there can be no system message."""
    trims: frozenset[str] = frozenset()
    """The roles whose messages lose spaces at both ends."""
    joined: bool = False
    """Whether the first message of a user behind one of the system loses spaces at its end alone,
    and the text in front of it, too, if nothing is left, as in Llama 2."""
    framed: bool = False
    """Whether it begins with the tokens that the tokenizer puts around texts."""

    def render(self, conversation: Conversation) -> str:
        """The text of a conversation, as `<name>_answer` encodes it."""
        said = [text.strip() if role in self.trims else text for role, text in conversation]
        found = self.alone
        if conversation[0][0] == SYSTEM:
            before, behind = self.system or ("", "")
            found = before + said.pop(0) + behind
            if self.joined:
                end = (behind + conversation[1][1]).rstrip()
                found, said[0] = found.removesuffix(behind) + end[: len(behind)], end[len(behind) :]
        for number, text in enumerate(said[:-1]):
            found += text + (self.next if number % 2 else self.given)
        return found + said[-1] + self.answer


def plain(source: str, template: str = PLACE) -> Chat:
    """The chat of a text with a place for each message of a user."""
    before, place, behind = template.partition(PLACE)
    if not place:
        raise UnsupportedError(
            f"the template {printable(template)!r} has no {PLACE}, which stands for the line"
        )
    _require_short(source, before, behind)
    return Chat(source, before, behind, behind, before, framed=True,
                no_system="the template has no place for one")  # fmt: skip


def chat_of(source: Source) -> Chat:
    """The table of a template; an error names a conversation that it would write otherwise."""
    user, answer, second, system = _MARKS
    short: Conversation = ((USER, user),)
    long: Conversation = (*short, (ASSISTANT, answer), (USER, second))
    head = (SYSTEM, system)
    asked = [short, long, (head, *short), *_spaced(system), *_odd(system)]
    found = dict(zip(asked, source.render(asked), strict=True))
    alone, closing = _between(source, found, short, user)
    _, given, following, _ = _between(source, found, long, user, answer, second)
    chat = Chat(source.where, alone, closing, given, following)
    for role, probe in zip((USER, ASSISTANT), _spaced(system), strict=False):
        chat = _trimmed(chat, role, found, probe)
    chat = _with_system(source, chat, found, (head, *short), system, user)
    for conversation in asked:
        if chat.system or conversation[0][0] != SYSTEM:
            _require_equal(source, chat, found, conversation)
    _require_short(source.where, alone, closing, given, following, *(chat.system or ()))
    return chat


def _spaced(system: str) -> tuple[Conversation, Conversation, Conversation]:
    """Conversations in which users, assistants or the system begin and end with spaces."""
    user, answer, second, _ = _MARKS
    before, behind = _SPACES
    wide = f"{before}{user}{behind}"
    return (
        ((USER, wide), (ASSISTANT, answer), (USER, f"{before}{second}{behind}")),
        ((USER, user), (ASSISTANT, f"{before}{answer}{behind}"), (USER, second)),
        ((SYSTEM, f"{before}{system}{behind}"), (USER, user)),
    )


def _odd(system: str) -> list[Conversation]:
    """One to five messages of users and assistants with other contents, with and without one of
    the system."""
    found: list[Conversation] = []
    for start in range(len(_ODD)):
        said = [_ODD[(start + i) % len(_ODD)] for i in range(7)]
        roles = [(USER, ASSISTANT)[i % 2] for i in range(1 + 2 * (start % 4))]
        talk = tuple(zip(roles, said, strict=False))
        found += [talk, ((SYSTEM, said[-1] or system), *talk)]
    return found


def _between(
    source: Source, found: Mapping[Conversation, Mapping[str, str]], key: Conversation, *marks: str
) -> list[str]:
    """The texts before, between and behind messages that are marks."""
    if "error" in found[key]:
        raise _refused(source, key, f"ends with: {printable(found[key]['error'])}")
    rest, texts = found[key]["text"], []
    for mark in marks:
        text, was_there, rest = rest.partition(mark)
        if not was_there or mark in rest:
            raise _refused(source, key, "does not write each message once and in its order")
        texts.append(text)
    return [*texts, rest]


def _trimmed(
    chat: Chat, role: str, found: Mapping[Conversation, Mapping[str, str]], probe: Conversation
) -> Chat:
    """The chat with a role whose messages are trimmed, if that is what the template does."""
    trimmed = replace(chat, trims=chat.trims | {role})
    return trimmed if found[probe].get("text") == trimmed.render(probe) else chat


def _with_system(
    source: Source, chat: Chat, found: Mapping[Conversation, Mapping[str, str]],
    key: Conversation, system: str, user: str,
) -> Chat:  # fmt: skip
    """The chat with its texts around a message of the system, or with the reason why it has
    none."""
    try:
        before, behind, _ = _between(source, found, key, system, user)
        chat = replace(chat, system=(before, behind))
        chat = _trimmed(chat, SYSTEM, found, _spaced(system)[-1])
        joined = replace(chat, joined=bool(behind.strip()))
        asked = [conversation for conversation in found if conversation[0][0] == SYSTEM]
        if all(found[one].get("text") == joined.render(one) for one in asked):
            chat = joined if USER in chat.trims else chat
        for conversation in asked:
            _require_equal(source, chat, found, conversation)
    except UnsupportedError as error:
        reason = str(error).removeprefix(f"{source.where}: ").removesuffix(f"; {_WAY_OUT}")
        return replace(chat, system=None, no_system=reason)
    return chat


def _require_equal(
    source: Source, chat: Chat, found: Mapping[Conversation, Mapping[str, str]], key: Conversation
) -> None:
    if "error" in found[key]:
        raise _refused(source, key, f"ends with: {printable(found[key]['error'])}")
    wanted, made = found[key]["text"], chat.render(key)
    if wanted == made:
        return
    pairs = zip(f"{wanted}\0", f"{made}\1", strict=False)
    at = next(i for i, (a, b) in enumerate(pairs) if a != b)
    shown = printable(wanted[max(at - 20, 0) : at + 20])
    raise _refused(source, key, f"is no table of texts: {shown!r} differs at character {at}")


def _refused(source: Source, key: Conversation, problem: str) -> UnsupportedError:
    roles = ", ".join(role for role, _ in key)
    shown = " (" + printable(repr(key[0][1])[:30]) + ")"
    return UnsupportedError(
        f"{source.where}: the chat template for {roles}{shown} {problem}; {_WAY_OUT}"
    )


def _require_short(where: str, *texts: str) -> None:
    for text in texts:
        if len(text.encode()) > LONGEST:
            raise UnsupportedError(
                f"{where}: the chat template writes {len(text.encode())} bytes between messages;"
                f" at most {LONGEST} are supported; {_WAY_OUT}"
            )
