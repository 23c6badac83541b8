# SPDX-License-Identifier: Apache-2.0
"""Images between kernels with their channels last (NHWC).

An image of bytes that an integer contraction with known weights reads or writes, and that only
kernels access, element by element, is stored with axis 1 behind the others. Vectors then load and
store the channels of a position at once, and windows are contiguous. Inputs, results and states of
the model keep their layout.

For devices with matrix units, these are the images of half precision of which windows are read,
where the channels of a pixel are whole vectors: threads copy 16 bytes at once rather than gather
them. Copies of bytes, which have zero points, would take more registers than there are. The loops
over channels become inner loops, so that adjacent threads have neighbors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from relax_aot.ir.dims import Bounds, Dim
from relax_aot.ir.example import Example
from relax_aot.ir.graph import Call, Module, Var
from relax_aot.ir.loops import Buffer, For, Kernel, Load, Micro, Stmt, Store, expressions, walk
from relax_aot.ir.rewrite import map_accesses
from relax_aot.ir.types import DType, TensorType
from relax_aot.scheduling.contraction import BYTES, contraction_of, symbols_of, weighted
from relax_aot.scheduling.devices.interchange import perfect_nest
from relax_aot.scheduling.devices.operands import product_of
from relax_aot.scheduling.devices.proofs import Proofs
from relax_aot.scheduling.devices.vectors import BYTES as VECTOR_BYTES
from relax_aot.scheduling.targets import Context, Target

Order = Callable[[tuple[Dim, ...]], tuple[Dim, ...]]
"""Of the axes of an array."""

EXAMPLES = (
    Example(
        why="what two convolutions write and read",
        target="mve",
        before="""
            symbol n in 1..9
            const %w: i8[6, 6, 1] = splat 5
            func @main(%x: i8[1, 6, n]) {
              %y: i8[1, 6, n] = call_kernel(%x, %w) {kernel=@one}
              %z: i8[1, 6, n] = call_kernel(%y, %w) {kernel=@other}
              return %z
            }
            kernel @one(%x: i8[1, 6, n], %w: i8[6, 6, 1]) -> (%y: i8[1, 6, n]) {
              for c in 0..6 {
                for i in 0..n {
                  local sum: i32 = 0:i32
                  for k in 0..6 {
                    sum = (sum + (cast(%x[0, k, i], i32, wrap) * cast(%w[c, k, 0], i32, wrap)))
                  }
                  %y[0, c, i] = cast(sum, i8, saturate)
                }
              }
            }
            kernel @other(%y: i8[1, 6, n], %w: i8[6, 6, 1]) -> (%z: i8[1, 6, n]) {
              for c in 0..6 {
                for i in 0..n {
                  local sum: i32 = 0:i32
                  for k in 0..6 {
                    sum = (sum + (cast(%y[0, k, i], i32, wrap) * cast(%w[c, k, 0], i32, wrap)))
                  }
                  %z[0, c, i] = cast(sum, i8, saturate)
                }
              }
            }""",
        after="""
            ...
              %y.nhwc: i8[1, n, 6] = call_kernel(%x, %w) {kernel=@one}
              %z: i8[1, 6, n] = call_kernel(%y.nhwc, %w) {kernel=@other}
            ...
            kernel @one(%x: i8[1, 6, n], %w: i8[6, 6, 1]) -> (%y: i8[1, n, 6]) {
            ...
                  %y[0, i, c] = cast(sum, i8, saturate)
            ...
            kernel @other(%y: i8[1, n, 6], %w: i8[6, 6, 1]) -> (%z: i8[1, 6, n]) {
            ...
                    sum = (sum + (cast(%y[0, i, k], i32, wrap) * ...))
            ...
                  %z[0, c, i] = cast(sum, i8, saturate)
            ...""",
    ),
    Example(
        why="windows of half precision, for matrix units",
        target="cuda_mma",
        before="""
            symbol n in 1..9
            const %v: f16[8, 3, 1] = splat 0.5
            const %w: f16[6, 8, 3] = splat 0.5
            func @main(%x: f16[1, 3, n]) {
              %y: f16[1, 8, n] = call_kernel(%x, %v) {kernel=@points}
              %z: f16[1, 6, n] = call_kernel(%y, %w) {kernel=@conv}
              return %z
            }
            kernel @points(%x: f16[1, 3, n], %v: f16[8, 3, 1]) -> (%y: f16[1, 8, n]) {
              for c in 0..8 {
                for i in 0..n {
                  local sum: f16 = 0.0:f16
                  for d in 0..3 {
                    sum = (sum + (%x[0, d, i] * %v[c, d, 0]))
                  }
                  %y[0, c, i] = sum
                }
              }
            }
            kernel @conv(%y: f16[1, 8, n], %w: f16[6, 8, 3]) -> (%z: f16[1, 6, n]) {
              for c in 0..6 {
                for i in 0..n {
                  local sum: f16 = 0.0:f16
                  for d in 0..8 {
                    for k in max(-i + 1, 0)..min(n - i + 1, 3) {
                      sum = (sum + (%y[0, d, i + k - 1] * %w[c, d, k]))
                    }
                  }
                  %z[0, c, i] = sum
                }
              }
            }""",
        after="""
            ...
              %y.nhwc: f16[1, n, 8] = call_kernel(%x, %v) {kernel=@points}
              %z: f16[1, 6, n] = call_kernel(%y.nhwc, %w) {kernel=@conv}
            ...
            kernel @points(%x: f16[1, 3, n], %v: f16[8, 3, 1]) -> (%y: f16[1, n, 8]) {
              for i in 0..n {
                for c in 0..8 {
            ...
                  %y[0, i, c] = sum
            ...
                      sum = (sum + (%y[0, i + k - 1, d] * %w[c, d, k]))
            ...""",
    ),
    Example(
        why="between two such images, channels become the innermost loop",
        target="mve",
        before="""
            symbol n in 1..9
            const %w: i8[6, 6, 1] = splat 5
            func @main(%x: i8[1, 6, n]) {
              %y: i8[1, 6, n] = call_kernel(%x, %w) {kernel=@one}
              %v: i8[1, 6, n] = call_kernel(%y) {kernel=@half}
              %z: i8[1, 6, n] = call_kernel(%v, %w) {kernel=@other}
              return %z
            }
            kernel @one(%x: i8[1, 6, n], %w: i8[6, 6, 1]) -> (%y: i8[1, 6, n]) {
              for c in 0..6 {
                for i in 0..n {
                  local sum: i32 = 0:i32
                  for k in 0..6 {
                    sum = (sum + (cast(%x[0, k, i], i32, wrap) * cast(%w[c, k, 0], i32, wrap)))
                  }
                  %y[0, c, i] = cast(sum, i8, saturate)
                }
              }
            }
            kernel @half(%y: i8[1, 6, n]) -> (%v: i8[1, 6, n]) {
              for c in 0..6 {
                for i in 0..n {
                  %v[0, c, i] = (%y[0, c, i] >> 1:i8)
                }
              }
            }
            kernel @other(%v: i8[1, 6, n], %w: i8[6, 6, 1]) -> (%z: i8[1, 6, n]) {
              for c in 0..6 {
                for i in 0..n {
                  local sum: i32 = 0:i32
                  for k in 0..6 {
                    sum = (sum + (cast(%v[0, k, i], i32, wrap) * cast(%w[c, k, 0], i32, wrap)))
                  }
                  %z[0, c, i] = cast(sum, i8, saturate)
                }
              }
            }""",
        after="""
            ...
            kernel @half(%y: i8[1, n, 6]) -> (%v: i8[1, n, 6]) {
              for i in 0..n {
                for c in 0..6 {
                  %v[0, i, c] = (%y[0, i, c] >> 1:i8)
                }
              }
            }
            ...""",
    ),
    Example(
        why="a value that is viewed with other axes",
        target="mve",
        before="""
            const %w: i8[6, 6, 1] = splat 5
            func @main(%x: i8[1, 6, 4]) {
              %y: i8[1, 6, 4] = call_kernel(%x, %w) {kernel=@one}
              %z: i8[24] = view(%y)
              return %z
            }
            kernel @one(%x: i8[1, 6, 4], %w: i8[6, 6, 1]) -> (%y: i8[1, 6, 4]) {
              for c in 0..6 {
                for i in 0..4 {
                  local sum: i32 = 0:i32
                  for k in 0..6 {
                    sum = (sum + (cast(%x[0, k, i], i32, wrap) * cast(%w[c, k, 0], i32, wrap)))
                  }
                  %y[0, c, i] = cast(sum, i8, saturate)
                }
              }
            }""",
    ),
)


def run(module: Module, target: Target) -> Module:
    """Every image that may be, for targets whose vectors hold channels."""
    if not target.channels_last and not (_halves(target) and target.partial_sums > 1):
        return module
    chosen = _chosen(module, target)
    changed = changed_by(module, chosen)
    module = moved(module, chosen)
    kernels = (
        inner_channels(kernel, changed[kernel.name], module.bounds, products=target.device)
        for kernel in module.kernels
    )
    return replace(module, kernels=tuple(kernels))


def changed_by(module: Module, chosen: Collection[Var]) -> dict[str, frozenset[str]]:
    """The buffers of each kernel that hold one of these values."""
    changed: dict[str, frozenset[str]] = {}
    for name, calls in kernel_calls(module).items():
        kernel = module.kernel_table[name]
        names = {b.name for call in calls for b, var in operands(kernel, call) if var in chosen}
        changed[name] = frozenset(names)
    return changed


def _last(axes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return (axes[0], *axes[2:], axes[1])


def moved(
    module: Module, chosen: Collection[Var], order: Order = _last, suffix: str = "nhwc"
) -> Module:
    """Values of the module with axis 1 behind the others, or in another order of axes, and every
    access to them. `suffix`: of their names."""
    if not chosen:
        return module
    changed = changed_by(module, chosen)

    def call(line: Call) -> Call:
        new = {var: _moved_var(var, order, suffix) for var in chosen}
        args = tuple(None if arg is None else new.get(arg, arg) for arg in line.args)
        return replace(line, args=args, outs=tuple(new.get(out, out) for out in line.outs))

    functions = tuple(replace(f, body=tuple(map(call, f.body))) for f in module.functions)
    kernels = tuple(_moved_kernel(kernel, changed[kernel.name], order) for kernel in module.kernels)
    return replace(module, functions=functions, kernels=kernels)


def kernel_calls(module: Module) -> dict[str, list[Call]]:
    """Of each kernel, but for checks, whose operands are not those of the kernel alone."""
    found = module.kernel_calls.items()
    return {name: [one for one in calls if one.op == "call_kernel"] for name, calls in found}


def operands(kernel: Kernel, call: Call) -> Iterator[tuple[Buffer, Var]]:
    yield from zip(kernel.inputs, call.inputs, strict=True)
    yield from zip((*kernel.outputs, *kernel.scratch), call.outs, strict=True)


def _halves(target: Target) -> tuple[DType, ...]:
    """The types of half precision that matrix units multiply."""
    return tuple(kind for kind in target.matrices if kind.is_half)


def _chosen(module: Module, target: Target) -> set[Var]:
    """Images that every kernel can access in either layout, and that a contraction does access."""
    table, calls = module.kernel_table, kernel_calls(module)
    fixed: set[Var] = set()
    useful: set[Var] = set()
    for function in module.functions:
        fixed |= {*function.params, *function.results}
        for call in function.body:
            if call.op != "call_kernel":
                fixed |= {*call.inputs, *call.outs}
                continue
            kernel = table[call.ref("kernel")]
            pairs = operands(kernel, call)
            fixed |= {var for buffer, var in pairs if not _is_image(buffer, target)}
    fixed |= {constant.var for constant in module.constants}
    for kernel in module.kernels:
        accessed = _accessed_by_contractions(kernel, module, target)
        plain = plainly_accessed(kernel)
        for call in calls[kernel.name]:
            for buffer, var in operands(kernel, call):
                if buffer.name not in plain or buffer in kernel.scratch:
                    fixed.add(var)
                elif buffer.name in accessed:
                    useful.add(var)
    chosen = agreeing(module, useful - fixed)
    return chosen if target.device else agreeing(module, chosen | _between(module, chosen, fixed))


def _between(module: Module, chosen: set[Var], fixed: set[Var]) -> set[Var]:
    """Images that only kernels with a chosen image access: another layout would reorder them there
    and back."""
    others: dict[Var, bool] = {}
    for name, calls in kernel_calls(module).items():
        for call in calls:
            images = [v for _, v in operands(module.kernel_table[name], call) if v not in fixed]
            moved = not chosen.isdisjoint(images)
            for image in images:
                others[image] = others.get(image, True) and moved
    return {image for image, moved in others.items() if moved}


def agreeing(module: Module, chosen: set[Var]) -> set[Var]:
    """Those of which all calls of each kernel say the same."""
    before: set[Var] = set()
    calls = kernel_calls(module)
    while chosen != before:
        before = set(chosen)
        for kernel in module.kernels:
            pairs = (operands(kernel, call) for call in calls[kernel.name])
            for shared in zip(*pairs, strict=True):
                values = {var for _, var in shared}
                if not values <= chosen:
                    chosen -= values
    return chosen


def _is_image(buffer: Buffer, target: Target) -> bool:
    """Bytes, or on devices half-precision values, with channels and one more axis longer than 1 at
    least."""
    extents = buffer.shape[2:]
    return (
        buffer.dtype in (_halves(target) if target.device else BYTES)
        and len(extents) > 0
        and buffer.shape[1] != 1
        and any(dim != 1 for dim in extents)
    )


def plainly_accessed(kernel: Kernel) -> set[str]:
    """Buffers of which no micro-kernel reads or writes more than the element it names."""
    names = {buffer.name for buffer in kernel.buffers}
    for stmt in walk(kernel.body):
        if isinstance(stmt, Micro):
            loads = (expr for expr in expressions(stmt) if isinstance(expr, Load))
            names -= {load.buffer.name for load in loads}
    return names


def _accessed_by_contractions(kernel: Kernel, module: Module, target: Target) -> set[str]:
    """What contractions with known weights read, and, on processors, what they store, where
    channels are in axis 1."""
    table, calls = module.constant_table, module.kernel_calls[kernel.name]
    given = (
        (buffer.name, {call.inputs[at].name for call in calls})
        for at, buffer in enumerate(kernel.inputs)
    )
    known = {name: names for name, names in given if names and names <= table.keys()}
    found: set[str] = set()
    for stmt in kernel.body:
        if isinstance(stmt, For) and not target.device:
            found |= _accessed(stmt, module.bounds, frozenset(known))
        elif isinstance(stmt, For) and contraction_of(stmt, module.bounds) is not None:
            finite = (one for one, names in known.items() if all(table[n].is_finite for n in names))
            context = Context(target, frozenset(known), frozenset(finite))
            found |= _windows(stmt, module.bounds, context)
    return found


def _windows(stmt: For, bounds: Bounds, context: Context) -> set[str]:
    """The image of which a product of matrices with known weights reads windows, where the channels
    of a pixel are whole vectors."""
    found = contraction_of(stmt, bounds)
    product = product_of(found, context) if found is not None else None
    if product is None or len(product.steps) < 2 or product.found.computed:
        return set()
    pair = (product.found.left, product.found.right)
    images = [load for load in pair if load.buffer.name not in context.constants]
    if len(images) != 1 or len(images[0].index) < 3 or images[0].dtype is not pair[0].dtype:
        return set()
    (image,) = images
    width = VECTOR_BYTES // image.dtype.bytes
    channels = [loop for loop in product.steps if Dim.of(loop.variable) == image.index[1]]
    whole = all(loop.start == 0 and loop.extent % width == 0 for loop in channels)
    return {image.buffer.name} if channels and whole else set()


def _accessed(stmt: For, bounds: Bounds, known: frozenset[str]) -> set[str]:
    contraction = contraction_of(stmt, bounds)
    roles = weighted(contraction, known) if contraction is not None else None
    if roles is None:
        return set()
    positions = {loop.variable for loop in roles.positions}

    def first(place: Load | Store) -> bool:
        """Whether channels are in axis 1, and positions behind it."""
        _, channels, *others = place.index if len(place.index) > 2 else (None, Dim.of(0))
        behind = frozenset[str]().union(*(dim.symbols for dim in others))
        return bool(positions & behind) and not positions & channels.symbols

    places: list[Load | Store] = [roles.x, *(one for one in roles.after if isinstance(one, Store))]
    return {place.buffer.name for place in places if first(place)}


def inner_channels(
    kernel: Kernel, names: frozenset[str], bounds: Bounds, *, products: bool
) -> Kernel:
    """The kernel with the loops over channels of what it stores as the innermost ones of nests of
    independent iterations. Without `products`, contractions keep theirs, and so do nests that read
    what has its channels elsewhere."""
    if kernel.parallel:
        return kernel
    proofs, body = Proofs(kernel, bounds), list[Stmt]()
    for stmt in kernel.body:
        loops = perfect_nest(stmt) if isinstance(stmt, For) else []
        stores = (one for one in walk((stmt,)) if isinstance(one, Store))
        along = {one.index[-1].symbols for one in stores if one.buffer.name in names}
        inner = [loop for loop in loops if along == {frozenset({loop.variable})}]
        free = all(proofs.private(loop) is not None for loop in loops)
        names_of_inner = {loop.variable for loop in inner}
        taken = products or _reads_along(stmt, names_of_inner, bounds)
        if inner and taken and free and not symbols_of(*loops) & {loop.variable for loop in loops}:
            rest = loops[-1].body
            for loop in reversed([*(one for one in loops if one not in inner), *inner]):
                rest = (replace(loop, body=rest),)
            body += rest
        else:
            body.append(stmt)
    return replace(kernel, body=tuple(body))


def _reads_along(stmt: Stmt, channels: set[str], bounds: Bounds) -> bool:
    """Whether a nest that is no contraction reads along its loops over channels."""
    if not isinstance(stmt, For) or contraction_of(stmt, bounds) is not None:
        return False
    loads = [expr for one in walk((stmt,)) for expr in expressions(one) if isinstance(expr, Load)]
    return not any(dim.symbols & channels for load in loads for dim in load.index[:-1])


def _moved_var(var: Var, order: Order, suffix: str) -> Var:
    return Var(f"{var.name}.{suffix}", TensorType(var.type.dtype, order(var.type.shape)))


def _moved_kernel(kernel: Kernel, names: frozenset[str], order: Order) -> Kernel:
    def moved(buffer: Buffer) -> Buffer:
        return replace(buffer, shape=order(buffer.shape)) if buffer.name in names else buffer

    def access(buffer: Buffer, index: tuple[Dim, ...]) -> tuple[Buffer, tuple[Dim, ...]]:
        return (moved(buffer), order(index)) if buffer.name in names else (buffer, index)

    if not names:
        return kernel
    return replace(
        kernel,
        inputs=tuple(map(moved, kernel.inputs)),
        outputs=tuple(map(moved, kernel.outputs)),
        body=map_accesses(kernel.body, access),
        in_place=tuple(
            pair for pair in kernel.in_place if (pair[0] in names) == (pair[1] in names)
        ),
    )
