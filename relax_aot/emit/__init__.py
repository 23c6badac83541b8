# SPDX-License-Identifier: Apache-2.0
"""Module + Plan -> C text. Python decides here; the templates only place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from relax_aot.emit.contexts import make_contexts
from relax_aot.emit.extern_code import check_macros
from relax_aot.emit.header import HeaderView
from relax_aot.emit.includes import RUNTIME
from relax_aot.emit.interface import STEP_FUNCTIONS, interface_of
from relax_aot.emit.layers import with_layers
from relax_aot.emit.render import render
from relax_aot.emit.sources import Sources
from relax_aot.emit.view import ModelView, model_view
from relax_aot.emit.weights import weights_of
from relax_aot.externs import ExternTable
from relax_aot.planning import Plan


def emit(
    plan: Plan,
    name: str,
    externs: ExternTable | None = None,
    weights: str = "auto",
    meanings: Mapping[str, str] | None = None,
    sharing: str = "same",
    *,
    stepwise: bool = False,
    options: str = "",
    annotate: bool = False,
    threads: int = 1,
    ordered: bool = False,
    thumb1: bool = False,
    functions: str = "auto",
) -> Sources:
    """The C of a planned module. The same plan and name give the same bytes. `weights` is
    one of weights.FORMS; a model without constants has no block. `meanings` are the formulas
    of quantized inputs and results, by name. `sharing` is one of sharing.SHARING; `stepwise` adds
    the form of the run that returns between kernels; `options` are stated in the header;
    `annotate` adds the comments that help Frama-C; `threads` share the parallel loops; with
    `ordered`, float sums have the order of the plain loops; with `thumb1`, it suits cores that
    may have no other instructions than those of Thumb-1. `functions` is one of
    layers.FUNCTIONS."""
    apart = weights == "blob" and bool(plan.module.constants)
    interface = interface_of(
        plan, name, weights_apart=apart, meanings=meanings, stepwise=stepwise, threads=threads
    )
    externs = externs or ExternTable()
    form = "auto" if weights == "blob" and not apart else weights
    stored = weights_of(
        plan.module.constants, interface.name, plan.alignment, plan.constant_regions, form,
        STEP_FUNCTIONS if stepwise else (),
    )  # fmt: skip
    interface = replace(interface, weights_linked=stored.linked)
    foreign = externs.names | externs.macros
    (context,) = make_contexts(
        [(plan, interface, stored.names)], foreign, sharing, annotate=annotate
    )
    if functions == "auto":
        (context,) = with_layers([context], foreign)
    small = sharing == "all"
    view = model_view(
        context, stored, externs.units, options, small=small, ordered=ordered, thumb1=thumb1
    )
    return rendered(view, (), externs)


def rendered(view: ModelView, entries: Sequence[ModelView], externs: ExternTable) -> Sources:
    """The files of a model, or of what `entries` share and of each of them."""
    name, entries = view.name, tuple(entries)
    bare = [entry.unsigned for entry in entries]
    found = {f"raot/{header}" for header in (*RUNTIME, *view.includes.micro)}
    if view.weights.constants and not view.weights.apart:
        found.add(f"{name}_weights.h")
    headers = sorted(found.union(view.includes.externs))  # all that the C file may use
    code = render("model.c.j2", model=view.unsigned, entries=bare, headers=headers)
    view = replace(view, weights=view.weights.packed(code))
    code = render("model.c.j2", model=view, entries=entries, headers=headers)
    template = "entries/example.c.j2" if entries else "project/example.c.j2"
    example = render(template, model=view, entries=entries)
    sizes = [size for one in (view, *entries) for size in one.sizes]
    header = HeaderView.of(view.interface, sizes, code, example)
    files = {
        f"{name}.h": render("model.h.j2", model=view, entries=entries, header=header),
        f"{name}_layout.h": render("layout.h.j2", model=view, entries=entries),
        f"{name}.c": code,
    }
    if view.weights.linked:
        files[f"{name}_weights.h"] = render("weights.h.j2", model=view)
        files[f"{name}_weights.c"] = render("weights.c.j2", model=view)
    text = "".join(files[f"{name}{end}"] for end in (".c", ".h", "_layout.h"))
    check_macros(text, externs.macros)
    if view.interface.threaded:
        files[f"{name}_threads.h"] = render("threads.h.j2", model=view)
        files[f"{name}_threads.c"] = render("threads.c.j2", model=view)
    if view.bounds:
        files[f"{name}_config.h"] = render("config.h.j2", model=view)
    block = view.weights.block
    blocks = {} if block is None else {f"{name}_weights.bin": block}
    return Sources(files, blocks, view.interface, view, header, entries)
