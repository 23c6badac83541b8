# SPDX-License-Identifier: Apache-2.0
"""The C of a tokenizer, built for this machine and called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cffi
import numpy as np
from numpy.typing import NDArray

from relax_aot.emit.tokenizer import emit_tokenizer
from relax_aot.errors import RelaxAotError
from relax_aot.frontends.llm.tokenizer.tables import Tokenizer
from relax_aot.project import runtime_headers
from relax_aot.verify.host import OPTIMISE_FLAGS, STRICT_FLAGS, StatusError, build_shared

CDEF = """
struct raot_text { unsigned char held[4], held_bytes, begun, spoken, keeps_special; };
int text_encode(const char *text, size_t bytes, uint32_t options, void *scratch,
    size_t scratch_bytes, int32_t *tokens, int32_t capacity, int32_t *count);
int text_decode_text(struct raot_text *state, int32_t token, char *text, size_t capacity,
    size_t *bytes);
"""
FRAME, SPECIAL = 1, 2
END = -1
# A normal form may be longer than its text; `raot/text.h` has the bytes of scratch memory for each.
GROWTH, LEAST, SCRATCH_EACH, SCRATCH = 4, 64, 25, 64
MOST_BYTES = 1 << 27


class HostTokenizer:
    """Text to tokens and back, as projects have it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        sources = emit_tokenizer(tokenizer, "text")
        files = {path: text.encode() for path, text in sources.files.items()} | sources.blocks
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(CDEF)
        path = build_shared(files | runtime_headers(files), (*STRICT_FLAGS, *OPTIMISE_FLAGS))
        self._c: Any = self._ffi.dlopen(str(path))
        self._room = 3 * (tokenizer.longest + GROWTH)

    def encode(
        self, text: str | bytes, *, frame: bool = True, special: bool = False
    ) -> NDArray[np.int32]:
        """Tokens of a text, with those that begin and end one if `frame` is set. Names of special
        tokens are these tokens if `special` is set."""
        data = text.encode() if isinstance(text, str) else text
        if len(data) > MOST_BYTES:
            raise RelaxAotError(f"the text has {len(data)} bytes; at most {MOST_BYTES} are encoded")
        room = GROWTH * len(data) + LEAST
        tokens, scratch = (
            np.empty(room, np.int32),
            np.empty(SCRATCH_EACH * room + SCRATCH, np.uint8),
        )
        count = self._ffi.new("int32_t *")
        status = self._c.text_encode(
            data, len(data), FRAME * frame | SPECIAL * special,
            self._ffi.cast("void *", scratch.ctypes.data), scratch.nbytes,
            self._ffi.cast("int32_t *", tokens.ctypes.data), room, count,
        )  # fmt: skip
        if status:
            raise StatusError(status, "the tokenizer")
        return tokens[: count[0]].copy()

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        state, size = self._ffi.new("struct raot_text *"), self._ffi.new("size_t *")
        room, found = self._ffi.new("char[]", self._room), b""
        for token in (*tokens, END):
            status = self._c.text_decode_text(state, token, room, self._room, size)
            if status:
                raise StatusError(status, f"the text of token {token}")
            found += bytes(self._ffi.buffer(room, size[0]))
        return found.decode()
