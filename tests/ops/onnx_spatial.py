# SPDX-License-Identifier: Apache-2.0
"""Samples of ops over windows, images and orders, as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relax_aot.ops._op import Sample
from tests.ops.onnx_node import Node, i64


def conv_transpose(sample: Sample) -> Node:
    return Node("ConvTranspose", sample.args, dict(sample.attrs))


def top_k(sample: Sample) -> Node:
    x, attrs = sample.args[0], sample.attrs
    flags = {name: int(attrs[name]) for name in ("axis", "largest", "sorted")}
    return Node("TopK", (x, i64(attrs["k"])), flags, outputs=2)


def resize(sample: Sample) -> Node:
    """The scales of axes that have some, else the sizes."""
    x, factors, *_ = (*sample.args, None)
    assert x is not None
    attrs = sample.attrs
    renamed = {
        "mode": attrs["mode"],
        "coordinate_transformation_mode": attrs["transform"],
        "nearest_mode": attrs["rounding"],
        "cubic_coeff_a": attrs["cubic_a"],
        "exclude_outside": int(attrs["exclude_outside"]),
        "antialias": int(attrs["antialias"]),
        "extrapolation_value": attrs["extrapolation"],
    }
    region = np.array(attrs["roi"], np.float32) if "roi" in attrs else None
    if any(attrs["scales"]) and "policy" not in attrs:
        factors = np.array([scale or 1 for scale in attrs["scales"]], np.float32)
    if attrs["rounding"] == "legacy":
        return Node("Resize", (x, factors), {"mode": attrs["mode"]}, opset=10)
    if factors is not None:
        return Node("Resize", (x, region, factors), renamed)
    if "policy" in attrs:
        axes = [axis for axis, size in enumerate(attrs["wanted"]) if size]
        renamed |= {"keep_aspect_ratio_policy": attrs["policy"], "axes": axes}
        return Node("Resize", (x, region, None, i64(*filter(None, attrs["wanted"]))), renamed)
    return Node("Resize", (x, region, None, i64(*attrs["sizes"])), renamed)


def grid_sample(sample: Sample) -> Node:
    attrs = sample.attrs
    return Node("GridSample", sample.args, {
        "mode": attrs["mode"],
        "padding_mode": attrs["padding"],
        "align_corners": int(attrs["align_corners"]),
    })  # fmt: skip


def col2im(sample: Sample) -> Node:
    attrs = {name: sample.attrs[name] for name in ("strides", "pads", "dilations")}
    image, block = i64(*sample.attrs["image"]), i64(*sample.attrs["block"])
    return Node("Col2Im", (*sample.args, image, block), attrs)


def affine_grid(sample: Sample) -> Node:
    (theta,) = sample.args
    assert theta is not None
    size = i64(theta.shape[0], 1, *sample.attrs["sizes"])
    return Node("AffineGrid", (theta, size), {"align_corners": int(sample.attrs["align_corners"])})


def roi_align(sample: Sample) -> Node:
    attrs = sample.attrs
    return Node("RoiAlign", sample.args, {
        "output_height": attrs["height"],
        "output_width": attrs["width"],
        "mode": attrs["mode"],
        "sampling_ratio": attrs["sampling"],
        "spatial_scale": attrs["scale"],
        "coordinate_transformation_mode": (
            "half_pixel" if attrs["half_pixel"] else "output_half_pixel"
        ),
    })  # fmt: skip


def max_roi_pool(sample: Sample) -> Node:
    shape = [sample.attrs["height"], sample.attrs["width"]]
    attrs = {"pooled_shape": shape, "spatial_scale": sample.attrs["scale"]}
    return Node("MaxRoiPool", sample.args, attrs, opset=21)


def max_unpool(sample: Sample) -> Node:
    """A kernel of one element and stride 1 infers a shape that is no larger than the result."""
    x, places = sample.args
    assert x is not None
    sizes = i64(*sample.attrs["sizes"])
    return Node("MaxUnpool", (x, places, sizes), {"kernel_shape": [1] * (x.ndim - 2)})


def pool(op_type: str, outputs: int = 1) -> Callable[[Sample], Node]:
    def node(sample: Sample) -> Node:
        given = dict(sample.attrs)
        attrs: dict[str, Any] = {"kernel_shape": given.pop("kernel")}
        attrs["ceil_mode"] = int(given.pop("ceil_mode"))
        if "columns_first" in given:
            attrs["storage_order"] = int(given.pop("columns_first"))
        return Node(op_type, sample.args, attrs | given, outputs)

    return node


def deform_columns(sample: Sample) -> Node:
    """A filter for each channel and tap, which is 1 there."""
    x, offset, mask = sample.args
    assert x is not None
    attrs = dict(sample.attrs)
    kernel = attrs.pop("kernel")
    taps = int(np.prod(kernel))
    w = np.tile(np.eye(taps, dtype=x.dtype), (x.shape[1], 1)).reshape(-1, 1, *kernel)
    return Node("DeformConv", (x, w, offset, None, mask), {"group": x.shape[1], **attrs})


SPATIAL: dict[str, Callable[[Sample], Node]] = {
    "affine_grid": affine_grid,
    "col2im": col2im,
    "conv_transpose": conv_transpose,
    "deform_columns": deform_columns,
    "grid_sample": grid_sample,
    "lp_pool": pool("LpPool"),
    "max_pool_with_indices": pool("MaxPool", outputs=2),
    "max_roi_pool": max_roi_pool,
    "max_unpool": max_unpool,
    "resize": resize,
    "roi_align": roi_align,
    "top_k": top_k,
}

BEYOND = {"deform_columns_4_1": "no implementation takes images of one axis"}
RUNTIME = {
    "grid_sample_14_1": "the implementation keeps places of a cubic at the border",
    "grid_sample_15_1": "the implementation keeps places of a cubic at the border",
    "grid_sample_22_1": "the implementation takes no image of one element",
    **dict.fromkeys(
        ("lp_pool_9_1", "lp_pool_10_1", "lp_pool_11_1"), "the implementation has no ceil_mode"
    ),
    **dict.fromkeys(
        (f"max_pool_with_indices_{n}_1" for n in (0, 1, 14, 15, 16, 17)),
        "the implementation numbers the elements of each channel again",
    ),
    **dict.fromkeys(
        (f"max_unpool_{n}_1" for n in range(3)),
        "the implementation counts indices in the inferred shape",
    ),
    "max_roi_pool_0_1": "there is no implementation",
    "max_roi_pool_1_1": "there is no implementation",
    "conv_transpose_4_1": "the implementation adds biases of groups of two filters wrongly",
    "conv_transpose_8_1": "the implementation takes no empty batch",
    **dict.fromkeys(
        ("resize_5_1", "resize_11_1", "resize_17_1"),
        "the implementation lacks the coordinates tf_half_pixel_for_nn",
    ),
    **dict.fromkeys(
        ("resize_24_1", *(f"resize_{n}_1" for n in range(41, 47))),
        "the implementation divides by size * scale, which is not integral",
    ),
    **dict.fromkeys(
        (f"resize_{n}_1" for n in (*range(47, 51), 53, 54)),
        "the implementation lacks the coordinates tf_half_pixel_for_nn and rounds in double",
    ),
    "resize_55_1": "the implementation filters an axis of equal sizes",
    "resize_58_1": "the implementation lacks Resize of version 10",
    "resize_30_1": "the implementation computes coordinates in double, which breaks ties",
    "resize_38_1": "the implementation rounds integers, ONNX Runtime truncates them",
}
"""Samples that ONNX Runtime judges, and why not the reference implementation."""
