# SPDX-License-Identifier: Apache-2.0
"""Image operators other than convolutions: blocks, regions, deformable taps, index maps."""

from __future__ import annotations

from math import prod

from relax_aot.frontends import ModelError
from relax_aot.frontends.onnx.context import Handler, Node, Results
from relax_aot.frontends.onnx.convolution import windows
from relax_aot.ir.dims import Dim, dim_max, simplify
from relax_aot.ir.graph import Var
from relax_aot.ops._op import normal_axis


def _deform_conv(node: Node) -> Results:
    """A pointwise convolution of the sampled taps."""
    x, w, offset, mask = node.arg(0), node.arg(1), node.arg(2), node.optional(4)
    kernel, group = w.type.shape[2:], int(node.attr("group", 1))
    shared = int(node.attr("offset_group", 1))
    node.require_numbers(1, group=[group], offset_group=[shared])
    window = windows(node, x, kernel)
    node.require_equal(x.type.shape[1], w.type.shape[1] * group, "the channels of a DeformConv")
    columns = node.emit(
        "deform_columns", x, offset, mask, kernel=kernel, offset_group=shared, **window
    )
    ones = [1] * len(kernel)
    flat = node.reshape(w, (w.type.shape[0], prod(kernel, start=w.type.shape[1]), *ones))
    pointwise = {"strides": ones, "pads": [0] * (2 * len(kernel)), "dilations": ones}
    return node.emit("conv", columns, flat, node.optional(3), group=group, **pointwise)


def _col2im(node: Node) -> Results:
    x, rank = node.arg(0), node.result_rank(2, 2)
    axes = range(rank)
    image = node.sizes(1, [axis + 2 for axis in axes])
    block = node.builder.dims(node.arg(2)) or tuple(
        node.named_size(node.arg(2), axis, f"block_{axis}", x.type.shape[1], least=1)
        for axis in axes
    )
    if len(image) != rank:
        raise ModelError(f"a Col2Im has blocks of {rank} axes for an image of {len(image)}")
    for size in block:
        node.require_at_most(1, size, "a block of Col2Im")
    usual = {"strides": [1] * rank, "pads": [0] * 2 * rank, "dilations": [1] * rank}
    attrs = {name: node.numbers(name, default) for name, default in usual.items()}
    if [len(v) for v in attrs.values()] != [rank, 2 * rank, rank]:
        raise ModelError("strides, pads or dilations do not fit the image")
    node.require_numbers(1, strides=attrs["strides"], dilations=attrs["dilations"])
    return node.emit("col2im", x, image=image, block=block, **attrs)


def _max_unpool(node: Node) -> Results:
    x, places = node.arg(0), node.arg(1)
    kernel = [int(v) for v in node.required("kernel_shape")]
    rank = len(kernel)
    strides, pads = node.numbers("strides", [1] * rank), node.numbers("pads", [0] * 2 * rank)
    if x.type.rank != rank + 2 or len(strides) != rank or len(pads) != 2 * rank:
        raise ModelError(f"a window over {rank} axes does not fit {x.type}")
    node.require_numbers(1, kernel_shape=kernel, strides=strides)
    spatial = [
        (x.type.shape[a + 2] - 1) * strides[a] - (pads[a] + pads[a + rank]) + kernel[a]
        for a in range(rank)
    ]
    inferred = (*x.type.shape[:2], *spatial)
    if node.optional(2) is None:
        return node.emit("max_unpool", x, places, sizes=inferred)
    sizes = tuple(node.sizes(2, range(rank + 2)))
    if len(sizes) != rank + 2:
        raise ModelError(f"a MaxUnpool has an output_shape of {len(sizes)} axes for {x.type}")
    for given, size in zip(sizes[:2], inferred[:2], strict=True):
        node.require_equal(given, size, "batch and channels of MaxUnpool's output_shape")
    # Only the number of elements has to suffice: indices count the elements of the result.
    node.require_at_most(prod(inferred), prod(sizes), "MaxUnpool's output_shape")
    return node.emit("max_unpool", x, places, sizes=sizes)


def _roi_align(node: Node) -> Results:
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    transform = node.attr("coordinate_transformation_mode", default)
    height, width = (int(node.attr(f"output_{name}", 1)) for name in ("height", "width"))
    node.require_numbers(1, output_height=[height], output_width=[width])
    return node.emit(
        "roi_align",
        *(node.arg(i) for i in range(3)),
        height=height,
        width=width,
        mode=node.attr("mode", "avg"),
        sampling=int(node.attr("sampling_ratio", 0)),
        scale=float(node.attr("spatial_scale", 1.0)),
        half_pixel=transform == "half_pixel",
    )


def _max_roi_pool(node: Node) -> Results:
    pooled = [int(v) for v in node.required("pooled_shape")]
    if len(pooled) != 2:
        raise ModelError(f"a MaxRoiPool has a pooled_shape of {len(pooled)} sizes")
    node.require_numbers(1, pooled_shape=pooled)
    height, width = pooled
    scale = float(node.attr("spatial_scale", 1.0))
    return node.emit(
        "max_roi_pool", node.arg(0), node.arg(1), height=height, width=width, scale=scale
    )


def _affine_grid(node: Node) -> Results:
    theta = node.arg(0)
    size = _grid_size(node, theta)
    if len(size) < 3:
        raise ModelError(f"an AffineGrid has the size {[str(s) for s in size]}")
    node.require_equal(theta.type.shape[0], size[0], "an AffineGrid's batch")
    align = bool(node.attr("align_corners", 0))
    return node.emit("affine_grid", theta, sizes=size[2:], align_corners=align)


def _grid_size(node: Node, theta: Var) -> tuple[Dim, ...]:
    """Batch, channels and the axes of the result, which stand after its batch."""
    given = node.builder.dims(node.arg(1))
    if given is not None:
        return given
    count = node.result_rank(1)
    sizes = [node.size_of(node.arg(1), axis + 1, axis) for axis in range(1, count - 1)]
    return (theta.type.shape[0], Dim.of(1), *sizes)


def _center_crop_pad(node: Node) -> Results:
    """Crop or pad an axis equally on both sides; an odd element goes to the end."""
    x = node.arg(0)
    rank = x.type.rank
    axes = [normal_axis(axis, rank) for axis in node.numbers("axes", range(rank))]
    requested = node.sizes(1, axes)
    bounds = node.builder.bounds
    if len(axes) != len(requested):
        raise ModelError(f"a CenterCropPad has {len(requested)} sizes for {len(axes)} axes")
    before, after = [Dim.of(0)] * rank, [Dim.of(0)] * rank
    for axis, size in zip(axes, requested, strict=True):
        node.require_at_most(0, size, "a size of CenterCropPad")
        more = size - x.type.shape[axis]
        # Half of what is missing, towards zero; what is too much starts at its lower half.
        half = dim_max(more, 0) // 2 - dim_max(-more, 0) // 2
        before[axis] = simplify(half, bounds)
        after[axis] = more - before[axis]
    if all(pad == 0 for pad in (*before, *after)):
        return x
    return node.emit("pad", x, before=tuple(before), after=tuple(after), mode="constant")


HANDLERS: dict[str, Handler] = {
    "AffineGrid": _affine_grid,
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
    "DeformConv": _deform_conv,
    "MaxRoiPool": _max_roi_pool,
    "MaxUnpool": _max_unpool,
    "RoiAlign": _roi_align,
}
