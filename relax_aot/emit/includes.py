# SPDX-License-Identifier: Apache-2.0
"""Which headers a C file needs, found in its text: no header is included for nothing."""

from __future__ import annotations

import re

from relax_aot.ir.loops import FUNCTIONS

_INTEGER = "add|sub|mul|and|or|xor|neg|shl|shr|larger|smaller|div|fmod|mod|abs|pow"
_MATH = (name for name in FUNCTIONS if not name.startswith(("gate_", "fixed_")))
_FLOAT = "|".join([*_MATH, "at_least", "at_most", "bits", "of_bits"])
_NARROW = "i4|u4|i2|u2|f8e4m3fn|f8e4m3fnuz|f8e5m2|f8e5m2fnuz|f8e8m0|f4e2m1"
_WHOLE = "[iu](?:8|16|32|64)"
RUNTIME = {
    "check.h": r"raot_disjoint|RAOT_STATE_MARK",
    "convert.h": rf"raot_(?:clamp|satu?|quantize)_{_WHOLE}|raot_f(?:32|64)_to_{_WHOLE}_\w+"
    r"|raot_b?f16_\w+|raot_f32_to_b?f16",
    "fixed_gates.h": r"raot_fixed_(?:sigmoid|tanh)_",
    "function.h": "RAOT_(?:NO)?INLINE",
    "gates.h": r"raot_gate_(?:sigmoid|tanh)_?f",
    "integer.h": rf"raot_(?:{_INTEGER})_{_WHOLE}",
    "math.h": rf"raot_(?:{_FLOAT})f|RAOT_NAN|RAOT_INFINITY",
    "math64.h": rf"raot_(?:{_FLOAT})\(",
    "multiply.h": r"raot_multiply_f32|struct raot_level",
    "multiply_half.h": r"raot_(?:multiply|widen)_b?f16",
    "multiply_half_left.h": r"raot_multiply_left_b?f16",
    "narrow.h": rf"raot_(?:{_NARROW})_\w+|raot_(?:f32|i32)_to_(?:{_NARROW})\w*|RAOT_ROUND_",
    "place.h": r"raot_place\b",
    "profile.h": "RAOT_PROFILE",
    "quotient.h": "raot_quotientf",
    "rows.h": "raot_(?:move|place)_rows",
    "team.h": r"raot_parallel|raot_team\w*",
    "weights.h": r"raot_weights_\w+",
    "window.h": "raot_window_f32",
}
"""What the headers of the runtime declare that is not a micro-kernel."""
_STANDARD = {
    "stddef.h": r"(?:size_t|ptrdiff_t|NULL|offsetof)\b",
    "stdint.h": r"u?int\d+_t\b|U?INT\d+_(?:MIN|MAX|C)\b",
    "string.h": r"mem(?:cpy|set|cmp)\(|str(?:len|cmp)\(",
}
_USES = {f'"raot/{name}"': names for name, names in RUNTIME.items()}
_USES |= {f"<{name}>": names for name, names in _STANDARD.items()}


def without_unused(text: str) -> str:
    """C without the headers of which it uses nothing."""
    code = re.sub(r"/\*.*?\*/|^#include[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    # Each word once: a search in the code would take a twentieth of a compilation.
    words = "\n".join({*re.findall(r"\b(?:struct )?[A-Za-z_]\w*\(?", code)})
    for header, names in _USES.items():
        line = f"#include {header}\n"
        if line in text and not re.search(rf"\b(?:{names})", words):
            text = text.replace(line, "")
    return text
