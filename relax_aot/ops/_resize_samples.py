# SPDX-License-Identifier: Apache-2.0
"""Samples of resize: modes, coordinate transformations, roundings, scales, policies."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from relax_aot.ops._op import Sample

TRANSFORMS = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "legacy")
"""`legacy` is that of the first Resize: the ceiling where the scale is below 1, else the floor."""


def _case(
    rng: np.random.Generator, shape: tuple[int, ...], sizes: tuple[int, ...], **attrs: Any
) -> Sample:
    usual = {
        "scales": (0.0,) * len(shape), "mode": "linear", "transform": "half_pixel",
        "rounding": "round_prefer_floor", "cubic_a": -0.75, "exclude_outside": False,
        "antialias": False, "extrapolation": 0.0,
    }  # fmt: skip
    dtype = attrs.pop("dtype", np.float32)
    x = (rng.normal(size=shape) * 9).astype(dtype)
    args = (x, *attrs.pop("args", ()))
    symbolic = ("sizes", "wanted") if "wanted" in attrs else ("sizes",)
    return Sample(args, {**usual, "sizes": sizes, **attrs}, sizes=symbolic, atol=1e-4)


ROI = (0.0, 0.0, 0.4, 0.6, 1.0, 1.0, 0.6, 1.2)
SCALED = (0.0, 0.0, 0.6, 1.3)


def samples_of(rng: np.random.Generator) -> list[Sample]:
    case = partial(_case, rng)
    plain = [
        case((1, 2, 4, 5), (1, 2, 7, 3), mode=mode, transform=transform)
        for mode in ("nearest", "linear", "cubic")
        for transform in TRANSFORMS[:6]
    ]
    nearest = [
        case((1, 1, 6), (1, 1, 9), mode="nearest", rounding=rounding, transform="asymmetric")
        for rounding in ROUNDING[:4]
    ]
    repeated = [
        case((1, 2, 3, 4), (1, 2, 6, 12), mode="nearest", transform=transform, rounding=rounding,
             scales=scales)
        for transform, rounding, scales in (
            ("half_pixel", "round_prefer_floor", (0.0, 0.0, 2.0, 3.0)),
            ("pytorch_half_pixel", "round_prefer_ceil", (0.0,) * 4),
            ("half_pixel_symmetric", "round_prefer_floor", (1.0, 1.0, 2.0, 3.0)),
            ("asymmetric", "floor", (1.0, 1.0, 2.0, 3.0)),
            ("asymmetric", "round_prefer_ceil", (0.0,) * 4),
            ("asymmetric", "floor", (1.0, 1.0, 2.0, 3.2)),
        )
    ]  # fmt: skip
    return [
        *plain,
        *nearest,
        case((1, 1, 5, 7), (1, 1, 3, 9), scales=SCALED),
        case((1, 1, 5, 7), (1, 1, 3, 9), scales=SCALED, transform="half_pixel_symmetric"),
        case((1, 1, 5, 7), (1, 1, 3, 9), scales=SCALED, transform="align_corners"),
        case((1, 1, 5, 7), (1, 1, 3, 9), mode="cubic", exclude_outside=True, cubic_a=-0.5),
        case((1, 1, 8, 7), (1, 1, 3, 9), mode="linear", antialias=True),
        case((1, 1, 8, 7), (1, 1, 3, 9), mode="cubic", antialias=True),
        case((1, 1, 5, 7), (1, 1, 3, 9), mode="cubic", antialias=True, scales=SCALED),
        case((1, 1, 8, 7), (1, 1, 3, 9), mode="cubic", antialias=True, exclude_outside=True),
        *(
            case((1, 1, 4, 4), (1, 1, 3, 5), mode=mode, transform="tf_crop_and_resize", roi=ROI,
                 extrapolation=10.0)
            for mode in ("nearest", "linear", "cubic")
        ),
        *_scaled_samples(rng),
        *repeated,
    ]  # fmt: skip


def _scaled_samples(rng: np.random.Generator) -> list[Sample]:
    case = partial(_case, rng)
    return [
        case((2, 3, 4), (3, 5, 6)),
        case((1, 1, 7, 2), (1, 1, 9, 3), wanted=(0, 0, 9, 3), policy="not_larger"),
        case((1, 1, 4, 3), (1, 1, 8, 6), args=(np.array([1, 1, 2, 2], np.float32),)),
        case((1, 1, 8, 7), (1, 1, 4, 3), antialias=True,
             args=(np.array([1, 1, 0.55, 0.43], np.float32),)),
        case((1, 1, 9, 7), (1, 1, 4, 3), wanted=(0, 0, 5, 3), policy="not_larger",
             mode="cubic", antialias=True),
        case((1, 1, 4, 6), (1, 1, 2, 3), dtype=np.uint8),
        case((1, 1, 4, 5), (1, 1, 2, 3), dtype=np.float64, mode="cubic"),
        case((1, 1, 1), (1, 1, 4), mode="cubic"),
        *(
            case((1, 1, 10, 17), (1, 1, 7, 12), mode=mode, transform="align_corners",
                 scales=(0.0, 0.0, 0.75, 0.75))
            for mode in ("nearest", "linear", "cubic")
        ),
        *(
            case((1, 1, 5, 7), (1, 1, 3, 7), mode=mode, transform="tf_crop_and_resize",
                 scales=SCALED[:3] + (0.0,), roi=ROI, extrapolation=10.0)
            for mode in ("nearest", "linear", "cubic")
        ),
        *(
            case((1, 1, 10, 17), (1, 1, 6, 17), mode="nearest", transform=transform,
                 rounding=rounding, scales=(0.0, 0.0, 0.6, 1.001))
            for transform in ("tf_half_pixel_for_nn", "half_pixel_symmetric")
            for rounding in ROUNDING[:4]
        ),
        case((1, 1, 10, 17), (1, 1, 10, 16), antialias=True, scales=(0.0, 0.0, 1.001, 0.999)),
        *(
            case((1, 1, 3, 10), (1, 1, 3, 11), wanted=(0, 0, 3, 11), policy="not_smaller",
                 mode=mode, transform="asymmetric", rounding="ceil", scales=(1.0, 1.0, 0.0, 0.0))
            for mode in ("nearest", "linear")
        ),
        case((1, 1, 5, 7), (1, 1, 3, 9), mode="nearest", rounding="legacy", scales=SCALED,
             transform="asymmetric"),
    ]  # fmt: skip
