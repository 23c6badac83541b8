# SPDX-License-Identifier: Apache-2.0
"""Products of matrices that a library of the device may compute in the place of a kernel.

A kernel that is one product of dense matrices of floats, a bias added or not, keeps its launches;
its calls state the product as attributes, so that the host can choose at the sizes of a run:

    library="cublaslt", sizes=[rows, columns, steps, batch], requires=[what is at least 0]
    left=[operand, transposed, pitch, apart], right=[...], result=[...], bias=operand or -1
    workspace=bytes, which are the last scratch of the kernel; required: there is no other way;
    tf32: the factors of floats may be rounded

`operand` is a position among the buffers of the kernel. Matrices are as the library has them:
columns one behind the other, `pitch` elements apart, the matrices of a batch `apart`. A row-major
result is the transposed one of the library, whose first factor is therefore the right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from relax_aot.externs.rule import ProductRule
from relax_aot.ir.dims import ZERO, Bounds, Dim, interval, prove, row_major, simplify
from relax_aot.ir.graph import Attr, Call, Function, Module, attrs_of
from relax_aot.ir.loops import Binary, Buffer, Cast, Expr, For, Kernel, Lit, Load, Store
from relax_aot.ir.rewrite import rewrite_module
from relax_aot.ir.types import DType
from relax_aot.scheduling.contraction import contraction_of, follow, stride
from relax_aot.scheduling.devices.operands import Product, as_floats, extent, product_of
from relax_aot.scheduling.nest import names_in, without_lets
from relax_aot.scheduling.scratch import with_kernels
from relax_aot.scheduling.targets import Context, Target

FLOATS = (DType.F32, DType.F16, DType.BF16)


def products(
    module: Module, target: Target, rules: Sequence[ProductRule]
) -> Mapping[str, Mapping[str, Attr]]:
    """By kernel, those that the first fitting rule takes. Before kernels get their device form."""
    found = {}
    for kernel in module.kernels if rules else ():
        product = _product(kernel, target, module.bounds)
        taken = (_taken(product, rule, kernel, target, module.bounds) for rule in rules if product)
        chosen = next((one for one in taken if one is not None), None)
        if chosen is not None:
            found[kernel.name] = chosen
    return found


def marked(module: Module, chosen: Mapping[str, Mapping[str, Attr]]) -> Module:
    """The module with these attributes at its calls, and scratch for the library."""
    kernels = {}
    for name, one in chosen.items():
        kernel = module.kernel_table[name]
        scratch = next(n for n in _names("workspace") if n not in names_in(kernel))
        size = one["workspace"]
        if isinstance(size, int) and size > 0:
            buffer = Buffer(scratch, DType.U8, (Dim.of(size),))
            kernels[name] = replace(kernel, scratch=(*kernel.scratch, buffer))
    module = with_kernels(module, kernels)

    def call(_: Function, line: Call) -> Call:
        if line.op != "call_kernel" or line.ref("kernel") not in chosen:
            return line
        return replace(line, attrs=attrs_of({**dict(line.attrs), **chosen[line.ref("kernel")]}))

    return rewrite_module(module, call)


def _names(stem: str) -> Iterator[str]:
    yield stem
    number = 1
    while True:
        yield f"{stem}_{number}"
        number += 1


def _product(kernel: Kernel, target: Target, bounds: Bounds) -> Product | None:
    """The product of matrices that is all that a kernel computes."""
    body = without_lets(kernel.body)
    found = contraction_of(body[0], bounds) if len(body) == 1 else None
    floats = as_floats(found) if found is not None else None
    if floats is None or floats.sum.dtype is not DType.F32 or kernel.parallel:
        return None
    product = product_of(floats, Context(target, frozenset(), frozenset()))
    if product is None or product.padded or not product.rows or not product.columns:
        return None
    loops = (*product.batch, *product.rows, *product.columns, *product.steps)
    return product if all(loop.start == ZERO for loop in loops) else None


def _taken(
    product: Product | None, rule: ProductRule, kernel: Kernel, target: Target, bounds: Bounds
) -> Mapping[str, Attr] | None:
    """What the library is told; None where the product is none of its own, or never as large."""
    if product is None:
        return None
    store = product.found.after[0] if len(product.found.after) == 1 else None
    factors = [_factor(product, load) for load in (product.found.left, product.found.right)]
    if not isinstance(store, Store) or None in factors:
        return None
    left, right = (factor for factor in factors if factor is not None)
    bias = _bias(product, store)
    known = left.dtype is right.dtype and left.dtype in rule.types
    if bias is None or not known or store.buffer.dtype not in (left.dtype, DType.F32):
        return None
    matrices = (
        _matrix(kernel, left, product.batch, product.steps, product.rows),
        _matrix(kernel, right, product.batch, product.columns, product.steps),
        _matrix(kernel, store, product.batch, product.columns, product.rows),
    )
    axes = (product.rows, product.columns, product.steps, product.batch)
    sizes = dict(zip(("rows", "columns", "steps", "batch"), map(extent, axes), strict=True))
    requires = _requires(rule, sizes, bounds)
    if None in matrices or requires is None or matrices[2] is None or matrices[2][1]:
        return None
    names = [buffer.name for buffer in kernel.buffers]
    attrs: dict[str, Attr] = {
        "library": rule.library,
        "required": rule.required,
        "tf32": target.tf32,
        "workspace": rule.workspace,
        "sizes": tuple(sizes.values()),
        "requires": requires,
        "bias": names.index(bias[0].buffer.name) if bias else -1,
    }
    for name, matrix in zip(("left", "right", "result"), matrices, strict=True):
        assert matrix is not None
        attrs[name] = matrix
    return attrs


def _factor(product: Product, load: Load) -> Load | None:
    """A factor in memory; one of half precision may be converted to floats."""
    computed = product.found.computed_at(load)
    if computed is None:
        return load
    value = computed.value.value if isinstance(computed.value, Cast) else None
    half = isinstance(value, Load) and value.dtype.is_half and not computed.fetched
    return value if half and isinstance(value, Load) else None


def _bias(product: Product, store: Store) -> tuple[Load, ...] | None:
    """What is added to each row, at most one; None where something else is done to the sums."""
    found = product.found
    terms = [*_terms(found.start), *_terms(store.value)]
    others = [term for term in terms if term != found.sum and not _is_zero(term)]
    loads = tuple(term for term in others if isinstance(term, Load))
    if len(loads) < len(others) or len(loads) > 1 or terms.count(found.sum) != 1:
        return None
    for load in loads:
        same = load.dtype is store.buffer.dtype and _begins(load, product)
        steady = all(stride(load, loop.variable) == 0 for loop in product.batch + product.rows)
        if not same or not steady or _step(load, product.columns) != 1:
            return None
    return loads


def _terms(value: Expr) -> Iterator[Expr]:
    """What a sum adds up; conversions between floats are left out."""
    match value:
        case Binary("+", left, right) if value.dtype.is_float:
            yield from (*_terms(left), *_terms(right))
        case Cast(inner) if value.dtype in FLOATS and inner.dtype in FLOATS:
            yield from _terms(inner)
        case _:
            yield value


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Lit) and value.value == 0


def _matrix(
    kernel: Kernel, place: Load | Store, batch: Sequence[For], lines: Sequence[For],
    columns: Sequence[For],
) -> tuple[int, int, Dim, Dim] | None:  # fmt: skip
    """`lines` follow each other in a column of the library, or it is transposed. Buffers are
    inputs or outputs of the kernel."""
    names = [buffer.name for buffer in (*kernel.inputs, *kernel.outputs)]
    loops = (*batch, *lines, *columns)
    if place.buffer.name not in names or not _starts(place, loops):
        return None
    apart, down, across = (_step(place, one) for one in (batch, lines, columns))
    if apart is None or down is None or across is None:
        return None
    operand = names.index(place.buffer.name)
    if down == 1:
        return operand, 0, across, apart
    return (operand, 1, down, apart) if across == 1 else None


def _begins(place: Load, product: Product) -> bool:
    return _starts(place, (*product.batch, *product.rows, *product.columns))


def _starts(place: Load | Store, loops: Sequence[For]) -> bool:
    """Whether the first element is that of the buffer, so that it is aligned."""
    first = row_major(place.index, place.buffer.shape)
    return first.substitute({loop.variable: ZERO for loop in loops}) == ZERO


def _step(place: Load | Store, loops: Sequence[For]) -> Dim | None:
    """How far apart elements are along several loops; None where that is no one number."""
    if not all(follow(place, outer, inner) for outer, inner in pairwise(loops)):
        return None
    return stride(place, loops[-1].variable) if loops else ZERO


def _requires(
    rule: ProductRule, sizes: Mapping[str, Dim], bounds: Bounds
) -> tuple[Dim, ...] | None:
    """What must not be negative at the sizes of a run; None where that is known to fail."""
    open_ = []
    for requirement in rule.requires:
        difference = simplify(requirement.difference.substitute(dict(sizes)), bounds)
        low, high = interval(difference, bounds)
        if requirement.relation == "==0":
            if not prove(difference, "==", 0, bounds):
                return None
        elif high < 0:
            return None
        elif low < 0:
            open_.append(difference)
    return tuple(open_)
