# SPDX-License-Identifier: Apache-2.0
"""What a user chooses of quantization, refused where an option has nothing to act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relax_aot.errors import RelaxAotError
from relax_aot.quantization.ranges import METHODS
from relax_aot.quantization.weight_only import KINDS

PYTHON: Mapping[str, str] = {}
CLI = {
    "quantize": "--quantize", "calibrate": "--calibrate", "calibration": "--calibration",
    "symmetric": "--activations symmetric", "keep_float": "--keep-float",
}  # fmt: skip
"""What the command line calls the options."""


class QuantizeError(RelaxAotError):
    """A model that cannot be quantized as was asked."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a user chooses."""

    kind: str = "int8"
    calibration: str = "minmax"
    keep_float: tuple[str, ...] = ()
    symmetric: bool = False


def choice_of(
    kind: str | None,
    calibration: str,
    keep_float: tuple[str, ...],
    symmetric: bool,
    calibrated: bool,
    names: Mapping[str, str] = PYTHON,
) -> Choice | None:
    """The choice, once every option that is given has an effect. `calibrated`: there are sample
    inputs; `names` are what messages call the options."""
    given = {
        "calibrate": calibrated,
        "calibration": calibration != "minmax",
        "symmetric": symmetric,
        "keep_float": bool(keep_float),
    }
    kinds = ("int8", *KINDS)
    if kind is not None and kind not in kinds:
        raise QuantizeError(f"quantize is one of {', '.join(kinds)}, not {kind!r}")
    if calibration not in METHODS:
        raise QuantizeError(f"calibration is one of {', '.join(METHODS)}, not {calibration!r}")
    unused = {None: given, "int8": {}}.get(kind, given | {"keep_float": False})
    for option, said in unused.items():
        if said:
            one_of = " or ".join(kinds) if option == "keep_float" else "int8"
            raise QuantizeError(
                f"{names.get(option, option)} belongs to {names.get('quantize', 'quantize')}"
                f" {one_of}, and has no effect without it"
            )
    if kind == "int8" and not calibrated:
        raise QuantizeError(
            f"quantize int8 needs sample inputs: {names.get('calibrate', 'calibrate')}"
        )
    return None if kind is None else Choice(kind, calibration, keep_float, symmetric)
