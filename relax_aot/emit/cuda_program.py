# SPDX-License-Identifier: Apache-2.0
"""The launches of a run on a GPU: the program of a plan as one straight list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relax_aot.emit.c_names import Names, comment
from relax_aot.emit.contexts import RunContext
from relax_aot.emit.cuda_control import ALWAYS, Call, Controls, ControlView, control_text
from relax_aot.emit.cuda_ends import write_commits, write_report, write_slides
from relax_aot.emit.cuda_flow import write_nodes
from relax_aot.emit.cuda_frame import Slots
from relax_aot.emit.cuda_launcher import Launcher
from relax_aot.emit.cuda_library import LibraryProduct
from relax_aot.emit.cuda_module import DeviceLaunch, Frame, Note, Unit, device_sources
from relax_aot.emit.kernels import call_text
from relax_aot.ir.loops import Kernel
from relax_aot.planning import Plan
from relax_aot.planning.steps import Branch, Check, Define, Repeat, Step, walk_steps


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """The launches of a run in order, and words of its frame."""

    calls: tuple[Call, ...]
    results: Mapping[str, int]
    """The words of sizes from data, by symbol."""
    lengths: Mapping[str, int]
    """The words of the lengths of growing states after the last run that succeeded, by the names
    of the source."""
    firsts: Mapping[str, int]
    """The same of the first rows of windows."""
    launches: Mapping[str, tuple[DeviceLaunch, ...]]
    """Those of each kernel."""
    products: tuple[LibraryProduct, ...] = ()
    """What a library may compute, by the numbers that calls have."""


def device_programs(
    contexts: Sequence[RunContext],
    name: str,
    taken: Sequence[str],
    roomy: Mapping[str, int] | None = None,
) -> tuple[tuple[DeviceProgram, ...], str]:
    """The runs of a model or of its entries, and the text of all functions. `taken` are names that
    no function may have. `roomy`: by how many quarters fewer blocks of a function are resident.
    After a failure the runs behind it leave, whatever entry they are of."""
    fallible = any(_fallible(context.plan) for context in contexts)
    slots = [Slots.of(context) for context in contexts]
    pairs = list(zip(contexts, slots, strict=True))
    units = [_unit(context, Frame(fallible, one.sizes)) for context, one in pairs]
    sources = device_sources(name, units, taken, roomy)
    functions = [one.c_name for each in sources for made in each.launches.values() for one in made]
    symbols = [c_name for context in contexts for c_name in context.symbols.values()]
    names = Names([*taken, *functions, *symbols])
    views: list[ControlView] = []
    programs = []
    for (context, own), unit, source in zip(pairs, units, sources, strict=True):
        controls = Controls(context.plan.module.bounds, context.symbols, own.sizes, names, views)
        writer = Launcher(context, source, controls, own, fallible)
        if unit.conditional:
            always = [f"frame[{ALWAYS}] = 1;"]
            writer.add(controls.call("begin", "conditions that always hold", always))
        write_nodes(writer, context.plan.program.nodes, ALWAYS if unit.conditional else None)
        write_commits(writer)
        write_slides(writer)
        write_report(writer)
        shown = {f.symbol.name: own.sizes[f.symbol.name] for f in context.interface.results}
        calls, products = tuple(writer.calls), tuple(writer.products)
        lengths = (own.lengths, own.firsts)
        programs.append(DeviceProgram(calls, shown, *lengths, source.launches, products))
    return tuple(programs), sources[0].text_with(control_text(views))


def _unit(context: RunContext, frame: Frame) -> Unit:
    """The kernels of a run; those inside of branches and loops are given a condition."""
    plan = context.plan
    nodes = plan.program.nodes
    inside = frozenset(
        step.callee.name
        for node in nodes
        if isinstance(node, Branch | Repeat)
        for step in walk_steps((node,))
        if isinstance(step, Step)
    )
    steps = [step for step in walk_steps(nodes) if isinstance(step, Step)]
    kernels = {step.callee.name: step.callee for step in steps if isinstance(step.callee, Kernel)}
    notes = {
        step.callee.name: Note(call_text(step.call), comment(step.call.origin or "the compiler"))
        for step in reversed(steps)
    }
    return Unit(tuple(kernels.values()), plan.module.bounds, frame, inside, notes)


def _fallible(plan: Plan) -> bool:
    return any(
        isinstance(node, Define | Check)
        or (isinstance(node, Repeat) and node.fallible)
        or (isinstance(node, Step) and node.callee.fallible)
        for node in walk_steps(plan.program.nodes)
    )
