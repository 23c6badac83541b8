# SPDX-License-Identifier: Apache-2.0
"""How many cycles a core takes for a block of instructions, by its file in boards/cores.

A file has the cycles of a taken branch (`taken`), the number of instructions that begin together
(`width`), and `rules`. The first rule whose `match` is the mnemonic (and whose `operands` and
`types` are found in operands and type suffix) is that of an instruction:

- `cycles` keep its `unit` busy, or the core where it has no unit; `each` adds to them for each
  register of a list. `units` is the number of such units.
- `follows`: a cycle less behind an instruction that `leads`, as loads behind loads.
- `latency`: cycles until its result is read; `early` more where the result is an address of this
  instruction, `accumulates` less where it is the sum that this instruction adds to.
- `alone`: it begins with no other. With `narrow_pairs`, pairs have 16 bits each and one is `light`.
- `taken`: the cycles of this branch.

Instructions without a rule take one cycle. A rule without `latency` has results at once: in the
tables of cores that wait, `cycles` contain this.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from relax_aot.resources import data_dir
from relax_aot.toolchain.disassembly import Instruction

CONDITIONS = "eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|t|e"
_NUMBERS = {"sl": 10, "fp": 11, "ip": 12, "sp": 13, "lr": 14, "pc": 15}
_REGISTER = re.compile(r"\b([rsdq])(\d+)\b|\b(sl|fp|ip|sp|lr|pc)\b")
_NO_RESULT = re.compile(r"v?st[rm].*|push|vpush|cmp|cmn|tst|teq|b|bl|bx|blx|cbn?z|tb[bh]|vcmpe?")
_TWO_RESULTS = re.compile(r"ldrd|[su]m[ul]l?l\w*|v\w*mlal?dav\w*|vmlalv\w*|vaddlva?")


@dataclass(frozen=True, slots=True)
class Rule:
    match: str = ".*"
    operands: str = ""
    types: str = ""
    cycles: float = 1
    each: float = 0
    unit: str = ""
    units: int = 1
    latency: float = 0
    early: float = 0
    accumulates: float = 0
    follows: bool = False
    leads: bool = False
    alone: bool = False
    light: bool = False
    taken: float | None = None


@dataclass(frozen=True)
class Core:
    """One file of boards/cores. `factor`: measured cycles over estimated ones, 1 where no
    measurement is known."""

    source: str
    taken: float
    rules: tuple[Rule, ...]
    width: int = 1
    narrow_pairs: bool = False
    factor: float = 1.0
    _found: dict[tuple[str, str], Rule] = field(default_factory=dict)

    def rule(self, instruction: Instruction) -> Rule:
        key = instruction.name, instruction.operands
        if key not in self._found:
            base, _, types = instruction.name.partition(".")
            matching = (
                rule
                for rule in self.rules
                if re.fullmatch(f"(?:{rule.match})(?:{CONDITIONS})?s?", base)
                and re.search(rule.operands, instruction.operands)
                and re.search(rule.types, types)
            )
            self._found[key] = next(matching, Rule())
        return self._found[key]

    @property
    def multiplies_before_it_adds(self) -> bool:
        """Whether a multiplication and an addition take less time than FMA."""
        fused, *parts = (
            self.rule(Instruction(0, f"{name}.f32", "s0, s1, s2", narrow=False)).cycles
            for name in ("vfma", "vmul", "vadd")
        )
        return sum(parts) < fused

    def taken_cycles(self, last: Instruction) -> float:
        """More, for a jump by the last instruction of a block."""
        own = self.rule(last).taken
        return self.taken if own is None else own

    def block_cycles(self, block: Sequence[Instruction]) -> float:
        """Of one run that falls through, as if the block had run before: its results are those
        that a loop hands on."""
        line = _Line(self)
        for instruction in block:
            line.issue(instruction)
        first = line.end
        for instruction in block:
            line.issue(instruction)
        return line.end - first


@lru_cache
def core_times(cpu: str) -> Core | None:
    """The times of a core; None where it has no file."""
    path = data_dir("boards") / "cores" / f"{cpu}.toml"
    if not path.is_file():
        return None
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    rules = tuple(Rule(**rule) for rule in data.pop("rules"))
    return Core(rules=rules, **data)


def known_cores() -> tuple[str, ...]:
    """The cores with a file, sorted."""
    return tuple(sorted(path.stem for path in (data_dir("boards") / "cores").glob("*.toml")))


class _Line:
    """Instructions that begin in order, each when its slot, its unit and what it reads are
    there."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._now = 0.0
        self._slots = core.width
        """Free ones in the cycle `_now`."""
        self._units: dict[str, list[float]] = {}
        self._ready: dict[str, float] = {}
        self._previous: tuple[Rule, bool] = (Rule(), False)

    @property
    def end(self) -> float:
        return self._now + (0 if self._slots == self._core.width else 1)

    def issue(self, instruction: Instruction) -> None:
        rule = self._core.rule(instruction)
        cycles = rule.cycles + rule.each * _listed(instruction.operands)
        if rule.follows and self._previous[0].leads:
            cycles -= 1
        if not self._together(rule, instruction.narrow):
            self._next_cycle()
        reads, addresses, sums, writes = _registers(instruction)
        waits = [self._now]
        waits += [self._ready.get(r, 0) for r in reads]
        waits += [self._ready.get(r, 0) + rule.early for r in addresses]
        waits += [self._ready.get(r, 0) - rule.accumulates for r in sums]
        free = self._units.setdefault(rule.unit, [0.0] * rule.units) if rule.unit else [0.0]
        start = max(*waits, min(free))
        if start > self._now:
            self._now, self._slots = start, self._core.width
        if rule.latency:
            self._ready.update(dict.fromkeys(writes, start + rule.latency))
        if rule.unit:
            free[free.index(min(free))] = start + cycles
            cycles = min(cycles, 1) if not rule.each else cycles
        self._begin(rule, cycles)
        self._previous = rule, instruction.narrow

    def _begin(self, rule: Rule, cycles: float) -> None:
        if cycles == 1 and not rule.alone:
            self._slots -= 1
        elif cycles:
            self._now += cycles
            self._slots = self._core.width

    def _next_cycle(self) -> None:
        if self._slots < self._core.width:
            self._now += 1
            self._slots = self._core.width

    def _together(self, rule: Rule, narrow: bool) -> bool:
        """Whether an instruction may begin with the one before it."""
        if self._slots == 0 or rule.alone:
            return False
        if not self._core.narrow_pairs:
            return True
        before, before_narrow = self._previous
        return narrow and before_narrow and (rule.light or before.light)


def _listed(operands: str) -> int:
    """How many registers a list holds."""
    found = re.search(r"\{(.*)\}", operands)
    count = 0
    for part in found[1].split(",") if found else ():
        first, _, last = (_number(text.strip()) for text in part.partition("-"))
        count += 1 if last is None or first is None else last - first + 1
    return count


def _number(register: str) -> int | None:
    found = re.fullmatch(r"[a-z](\d+)", register)
    return int(found[1]) if found else _NUMBERS.get(register)


def _named(text: str) -> list[str]:
    """Registers in a text; vectors and pairs as the single ones that they consist of."""
    names = []
    for kind, number, name in _REGISTER.findall(text):
        parts = {"s": 1, "d": 2, "q": 4}.get(kind)
        if parts is None:
            names.append(f"r{_NUMBERS[name] if name else number}")
        else:
            names += [f"s{parts * int(number) + i}" for i in range(parts)]
    return names


@lru_cache(maxsize=1 << 16)
def _registers(
    instruction: Instruction,
) -> tuple[list[str], list[str], list[str], list[str]]:
    """What it reads, reads as an address, adds to, and writes."""
    base = instruction.name.partition(".")[0]
    plain = re.sub(r"\[.*?\]|\{.*?\}", "[]", instruction.operands)
    inside = " ".join(re.findall(r"\[.*?\]|\{.*?\}", instruction.operands))
    addresses = _named(inside) if "[" in inside else []
    operands = [part for part in plain.split(",") if part.strip() not in ("[]", "[]!")]
    if _NO_RESULT.fullmatch(base):
        return _named(plain), addresses, [], []
    if re.match(r"v?ldm|v?pop", base):
        return [], _named(plain), [], _named(_written_out(inside))
    results = 2 if _TWO_RESULTS.match(base) else 1
    writes = _named(",".join(operands[:results]))
    if "!" in instruction.operands or re.search(r"\], ", instruction.operands):
        writes += addresses[:1]
    reads = _named(",".join(operands[results:]))
    sums = (
        writes
        if re.match(r"vfn?m[as]|vn?ml[as]|vr?mla\w*v|vaddl?va|movt|bfi|[su]mlal", base)
        else []
    )
    if re.match(r"sml[as]d|smla[bt]|sm?mla|mla|mls", base) and len(operands) == 4:
        reads, sums = _named(",".join(operands[1:3])), _named(operands[3])
    return reads, addresses, sums, writes


def _written_out(text: str) -> str:
    """Ranges of a list as their registers."""

    def each(found: re.Match[str]) -> str:
        first, last = int(found[2]), _number(found[3])
        assert last is not None
        return ", ".join(f"{found[1]}{n}" for n in range(first, last + 1))

    return re.sub(r"([rsd])(\d+)-(\w+)", each, text)
