"""Module + Plan -> C text. Python decides here; the templates only place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relax_aot.emit import blob
from relax_aot.emit.extern_code import check_macros
from relax_aot.emit.interface import Interface, interface_of
from relax_aot.emit.render import render
from relax_aot.emit.view import ModelView, Rendered, unsigned, view_of
from relax_aot.externs import ExternTable
from relax_aot.planning import Plan


@dataclass(frozen=True, slots=True)
class Sources:
    """The C files of a model (path -> text), the weights block, and what they were made of."""

    files: dict[str, str]
    blocks: dict[str, bytes]
    interface: Interface
    view: ModelView
    const_bytes: int


def emit(
    plan: Plan,
    name: str,
    externs: ExternTable | None = None,
    weights: str = "auto",
    meanings: Mapping[str, str] | None = None,
    sharing: str = "same",
    *,
    stepwise: bool = False,
) -> Sources:
    """The C of a planned module. The same plan and name give the same bytes. `weights` is
    one of weights.FORMS; a model without constants has no block. `meanings` are the formulas
    of inputs and results that are codes, by name. `sharing` is one of sharing.WAYS;
    `stepwise` adds the form of the run that returns between kernels."""
    apart = weights == "blob" and bool(plan.module.constants)
    interface = interface_of(plan, name, weights_apart=apart, meanings=meanings, stepwise=stepwise)
    externs = externs or ExternTable()
    form = "auto" if weights == "blob" and not apart else weights
    rendered = _with_block(view_of(plan, interface, externs, form, sharing))
    model, prefix = rendered.model, interface.name
    files = {
        f"{prefix}.h": render("model.h.j2", model=model),
        f"{prefix}.c": render("model.c.j2", model=model),
        f"{prefix}_weights.h": render("weights.h.j2", model=model),
        f"{prefix}_weights.c": render("weights.c.j2", model=model),
    }
    check_macros(files[f"{prefix}.c"] + files[f"{prefix}.h"], externs.macros)
    if model.has_members:
        files[f"{prefix}_config.h"] = render("config.h.j2", model=model)
    blocks = {f"{prefix}_weights.bin": rendered.block} if rendered.block else {}
    return Sources(files, blocks, interface, model, rendered.const_bytes)


def _with_block(rendered: Rendered) -> Rendered:
    """Weights apart from the code know that code by its hash."""
    if rendered.layout is None:
        return rendered
    code = render("model.c.j2", model=unsigned(rendered.model))
    expected = blob.identity(rendered.layout, code)
    model = replace(rendered.model, weights_identity=blob.identity_rows(expected))
    return replace(rendered, model=model, block=blob.pack(rendered.layout, expected))
