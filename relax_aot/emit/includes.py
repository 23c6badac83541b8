"""Which headers a C file needs, found in its text: no header is included for nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relax_aot.emit.render import render
from relax_aot.emit.view import ModelView
from relax_aot.ir.loops import FUNCTIONS

_INTEGER = "add|sub|mul|and|or|xor|neg|shl|shr|larger|smaller|div|fmod|mod|abs|pow"
_FLOAT = "|".join([*FUNCTIONS, "at_least", "at_most", "bits", "of_bits"])
_NARROW = "i4|u4|i2|u2|f8e4m3fn|f8e4m3fnuz|f8e5m2|f8e5m2fnuz|f8e8m0|f4e2m1"
_WHOLE = "[iu](?:8|16|32|64)"
_RUNTIME = {
    "check.h": r"raot_disjoint|RAOT_STATE_MARK",
    "convert.h": rf"raot_(?:clamp|satu?|quantize)_{_WHOLE}|raot_f(?:32|64)_to_{_WHOLE}_\w+"
    r"|raot_b?f16_\w+|raot_f32_to_b?f16",
    "function.h": "RAOT_NOINLINE",
    "integer.h": rf"raot_(?:{_INTEGER})_{_WHOLE}",
    "math.h": rf"raot_(?:{_FLOAT})f|RAOT_NAN|RAOT_INFINITY",
    "math64.h": rf"raot_(?:{_FLOAT})\(",
    "multiply.h": r"raot_multiply_f32|struct raot_level",
    "narrow.h": rf"raot_(?:{_NARROW})_\w+|raot_(?:f32|i32)_to_(?:{_NARROW})\w*|RAOT_ROUND_",
    "profile.h": "RAOT_PROFILE",
    "weights.h": r"raot_weights_\w+",
    "window.h": "raot_window_f32",
}
"""What the headers of the runtime declare that is not a micro-kernel."""


def render_source(model: ModelView, entries: Sequence[ModelView]) -> str:
    """The C file of a model with the includes that its text asks for."""
    views = {"model": model, "entries": entries}
    bare = render("model.c.j2", headers=(), uses_string=False, **views)
    code = re.sub(r"/\*.*?\*/", "", bare, flags=re.DOTALL)
    used = [name for name, names in _RUNTIME.items() if re.search(rf"\b(?:{names})", code)]
    found = [f"raot/{name}" for name in (*used, *model.includes.micro)]
    found += [f"{model.name}_weights.h", *model.includes.externs]
    headers = tuple(sorted(dict.fromkeys(found)))
    uses_string = re.search(r"\bmem(?:cpy|set|cmp)\(", code) is not None
    return render("model.c.j2", headers=headers, uses_string=uses_string, **views)
