# SPDX-License-Identifier: Apache-2.0
"""The text of runtime headers as a part of CUDA C++, which is one file without headers.

NVRTC knows no header files, so a `.cu` text holds what it uses of `runtime_c/`. Functions of the
headers are `static inline` in C; here they are `__device__ inline`, which compilers drop silently
where nothing calls them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from relax_aot.emit.includes import RUNTIME
from relax_aot.resources import data_dir

_ALWAYS = ("index.h", "status.h")
_INCLUDE = re.compile(r'^#include "([\w/.]+)"\n', re.MULTILINE)


def helper_text(code: str, micro: Iterable[str]) -> str:
    """The headers that `code` uses, each behind those that it includes. `micro`: headers of
    micro-kernels, as `raot/name.h`."""
    used = [name for name, words in RUNTIME.items() if re.search(rf"\b(?:{words})", code)]
    names = dict.fromkeys([*_ALWAYS, *used, *(name.removeprefix("raot/") for name in micro)])
    order: dict[str, None] = {}
    for name in names:
        _visit(name, order)
    return "\n".join(_device_text(name) for name in order if _device_text(name))


def _visit(name: str, order: dict[str, None]) -> None:
    if name in order:
        return
    for inner in _INCLUDE.findall(_header(name)):
        _visit(inner.removeprefix("raot/"), order)
    order[name] = None


@cache
def _header(name: str) -> str:
    return (data_dir("runtime_c") / "include" / "raot" / name).read_text(encoding="utf-8")


@cache
def _device_text(name: str) -> str:
    """Without license line, include guard and includes; empty where nothing else is left."""
    text = re.sub(r"\A/\* SPDX[^\n]*\n", "", _header(name))
    text = re.sub(r"^#ifndef (\w+)\n#define \1\n", "", text, count=1, flags=re.MULTILINE)
    text = re.sub(r"\n#endif\s*\Z", "\n", text)
    text = re.sub(r"^#include [^\n]*\n", "", text, flags=re.MULTILINE)
    text = text.replace("static inline", "__device__ inline")
    text = re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return text if code.strip() else ""
