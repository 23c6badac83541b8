# SPDX-License-Identifier: Apache-2.0
"""The cores that a board file may name, and whether its flags and emulator are of that core."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

NEEDED_FLAGS = {
    "-ffp-contract=off": "fused multiply-add is explicit in the generated C",
    "-fno-strict-aliasing": "one arena holds values of several types",
}
_FPU = "fpu dsp mpu"
_MVE = "fpu fpu64 dsp mve mve_float mpu"
CORTEX_M = {
    "cortex-m0": "", "cortex-m0plus": "mpu", "cortex-m1": "", "cortex-m3": "mpu",
    "cortex-m4": _FPU, "cortex-m7": "fpu fpu64 dsp mpu", "cortex-m23": "mpu", "cortex-m33": _FPU,
    "cortex-m35p": _FPU, "cortex-m52": _MVE, "cortex-m55": _MVE, "cortex-m85": _MVE,
}  # fmt: skip
"""Each with the features that it may have."""
LINUX = (
    "cortex-a5", "cortex-a7", "cortex-a8", "cortex-a9", "cortex-a15", "cortex-a17", "cortex-a32",
    "cortex-a35", "cortex-a53", "cortex-a55", "cortex-a57", "cortex-a72", "cortex-a73",
    "cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78", "cortex-a78ae", "cortex-a78c",
    "cortex-a510", "cortex-a710", "cortex-a715", "cortex-a720", "cortex-x1", "cortex-x2",
    "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2",
)  # fmt: skip
CUDA = (*LINUX, "carmel", "neoverse-v3ae", "native")
"""Cores next to a GPU; `native` is that of this machine."""
STAND_INS = {"cortex-a78ae": ("cortex-a76", "cortex-a78"), "cortex-a78c": ("cortex-a78",)}
"""Cores with the same instructions, which older compilers and emulators know."""
MACHINES = {
    "b-l475e-iot01a": "cortex-m4", "emcraft-sf2": "cortex-m3", "lm3s6965evb": "cortex-m3",
    "lm3s811evb": "cortex-m3", "microbit": "cortex-m0", "mps2-an385": "cortex-m3",
    "mps2-an386": "cortex-m4", "mps2-an500": "cortex-m7", "mps2-an505": "cortex-m33",
    "mps2-an511": "cortex-m3", "mps2-an521": "cortex-m33", "mps3-an524": "cortex-m33",
    "mps3-an547": "cortex-m55", "musca-a": "cortex-m33", "musca-b1": "cortex-m33",
    "netduino2": "cortex-m3", "netduinoplus2": "cortex-m4", "olimex-stm32-h405": "cortex-m4",
    "stm32vldiscovery": "cortex-m3",
}  # fmt: skip
"""The core of each machine of qemu-system-arm; one that is not here is not checked."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a board file says about its core."""

    family: str
    cpu: str
    features: tuple[str, ...]
    flags: tuple[str, ...]
    machine: str = ""
    emulated_cpu: str = ""


def problems(named: Named) -> Iterator[tuple[str, str]]:
    """Each as a key of the board file, and what was expected of it."""
    for flag, reason in NEEDED_FLAGS.items():
        if flag not in named.flags:
            yield "compiler.flags", f"{flag}, since {reason}"
    known = {"cortex_m": tuple(CORTEX_M), "linux": LINUX, "cuda": CUDA}.get(named.family)
    if known is None:
        return
    if named.cpu not in known:
        close = difflib.get_close_matches(named.cpu, known, n=1)
        hint = f", such as {close[0]!r}" if close else ""
        yield "cpu", f"a core of family {named.family}{hint}; known are {', '.join(known)}"
        return
    same = (named.cpu, *STAND_INS.get(named.cpu, ()))
    chosen = [flag.removeprefix("-mcpu=") for flag in named.flags if flag.startswith("-mcpu=")]
    for name in chosen:
        if name.partition("+")[0] not in same:
            yield "compiler.flags", f"-mcpu={named.cpu}, the value of the key cpu, not -mcpu={name}"
    if named.emulated_cpu and named.emulated_cpu not in same:
        yield "emulator.cpu", f"{named.cpu}, the value of the key cpu"
    if named.family == "cortex_m":
        yield from _cortex_m(named, bool(chosen))


def _cortex_m(named: Named, has_cpu: bool) -> Iterator[tuple[str, str]]:
    if not has_cpu:
        yield "compiler.flags", f"-mcpu={named.cpu}, since the default of GCC is another core"
    allowed = CORTEX_M[named.cpu].split()
    if others := [feature for feature in named.features if feature not in allowed]:
        has = ", ".join(allowed) or "none"
        yield "features", f"those of {named.cpu} ({has}), which has no {', '.join(others)}"
    has_fpu = "-mfloat-abi=soft" not in named.flags
    if "fpu" in named.features and not has_fpu:
        yield "compiler.flags", "-mfloat-abi=hard, since the features have fpu"
    core = MACHINES.get(named.machine, named.cpu)
    if core != named.cpu:
        machines = ", ".join(name for name, one in MACHINES.items() if one == named.cpu)
        way = f"one of {machines}" if machines else "no [emulator]"
        yield "emulator.machine", f"a machine with a {named.cpu} ({way}); this machine has a {core}"
