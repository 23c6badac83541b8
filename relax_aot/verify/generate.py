# SPDX-License-Identifier: Apache-2.0
"""`<name>_generate` of a project on the host, called from Python with the state of its entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cffi
import numpy as np

from relax_aot.emit.render import render
from relax_aot.project.entries import EntriesProject
from relax_aot.verify.library import POISON, Guarded, Library
from relax_aot.verify.sizes import InputError

SOURCE = "generate_adapter.c"
FRAME, SPECIAL = 1, 2
UNTOUCHED = -1
CDEF = """
struct sampling {
    uint64_t seed; float temperature; int32_t top_k; float top_p; float min_p;
    float repetition_penalty; int32_t max_tokens; uint32_t options; int32_t grammar;
};
size_t raot_generate_bytes(void);
int raot_generate(void *buffers, const char *prompt, size_t bytes,
    const struct sampling *sampling,
    int (*on_token)(void *user, int32_t token, const char *text, size_t bytes), void *user,
    int32_t *generated);
"""
ON_TOKEN = "int(void *, int32_t, const char *, size_t)"

OnToken = Callable[[int, str], Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to continue, as `struct <name>_sampling` of the generated header has it."""

    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 0.0
    max_tokens: int = 0
    options: int = 0
    grammar: int = 0

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            kinds = (int, np.integer) if isinstance(most, int) else (int, float, np.number)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value <= most:
                raise InputError(f"{name} is {value!r}, expected a number from 0 to {most}")


_MOST = {
    "seed": 2**64 - 1, "temperature": 1e30, "top_k": 2**31 - 1, "top_p": 1.0, "min_p": 1.0,
    "repetition_penalty": 1e30, "max_tokens": 2**31 - 1,
}  # fmt: skip


def prompt_bytes(prompt: str | bytes) -> bytes:
    """The prompt as C takes it."""
    if isinstance(prompt, bytes):
        return prompt
    try:
        return prompt.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InputError(f"the prompt is {prompt!r:.80}, expected a text") from None


def generates(project: EntriesProject) -> bool:
    """Whether its text is generated on this machine."""
    return f"{project.name}_generate.c" in project.files and not project.shared.device


def generate_source(project: EntriesProject) -> str:
    """The C between a harness and `<name>_generate`."""
    shared = project.shared
    links = shared.weights_apart and shared.weights_linked
    arena = shared.arenas[0].member
    return render("verify/generate_adapter.c.j2", shared=shared, arena=arena, links_block=links)


class Generator:
    """`<name>_generate` in a shared library."""

    def __init__(self, library: Library) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(CDEF)
        self._c: Any = self._ffi.dlopen(str(library.path))
        self._library = library

    def __call__(
        self, prompt: bytes, sampling: Sampling, on_token: OnToken | None
    ) -> tuple[int, int, str]:
        """The status, the number of tokens (UNTOUCHED where nothing changed), and the text."""
        found: list[bytes] = []
        raised: list[BaseException] = []

        def called(_user: Any, token: int, text: Any, size: int) -> int:
            found.append(bytes(self._ffi.buffer(text, size)))
            return int(on_token is not None and bool(on_token(token, found[-1].decode())))

        def failed(_kind: Any, error: BaseException, _trace: Any) -> None:
            raised.append(error)

        need = self._c.raot_generate_bytes()
        arena = Guarded(need, self._library.alignment, POISON)
        buffers = self._library.memory(arena, need)
        counted = self._ffi.new("int32_t *", UNTOUCHED)
        values = [getattr(sampling, name) for name in Sampling.__dataclass_fields__]
        status = self._c.raot_generate(
            self._ffi.cast("void *", int(self._library.address_of(buffers))), prompt, len(prompt),
            self._ffi.new("struct sampling *", values),
            self._ffi.callback(ON_TOKEN, called, error=1, onerror=failed),
            self._ffi.NULL, counted,
        )  # fmt: skip
        if raised:
            raise raised[0]
        if not arena.intact:
            raise RuntimeError("the generated text wrote outside its memory")
        return int(status), int(counted[0]), b"".join(found).decode()
