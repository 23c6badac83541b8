# SPDX-License-Identifier: Apache-2.0
"""One recording as a C header, for the example program."""

from __future__ import annotations

import numpy as np

from examples.gesture.layers import Array
from examples.gesture.motion import CLASSES


def sample_header(name: str, motion: Array) -> str:
    rows = "\n".join("    {" + ", ".join(map(_literal, row)) + "}," for row in motion)
    names = "\n".join(f'    "{name}",' for name in CLASSES)
    return f"""\
/* gesture_sample.h - one recording, and the names of the classes. Made by train.py. */
#ifndef GESTURE_SAMPLE_H
#define GESTURE_SAMPLE_H

#include <stdint.h>

enum {{
    GESTURE_CLASSES = {len(CLASSES)},
    GESTURE_SAMPLE_CLASS = {CLASSES.index(name)}, /* {name} */
    GESTURE_SAMPLE_N = {len(motion)}
}};

static const char *const gesture_class_names[GESTURE_CLASSES] = {{
{names}
}};

/* Accelerometer x, y, z in g, gyroscope x, y, z in rad/s, at 50 Hz. */
static const float gesture_sample[GESTURE_SAMPLE_N][6] = {{
{rows}
}};

#endif
"""


def _literal(value: np.float32) -> str:
    """The shortest text that is this float and no other."""
    return np.format_float_positional(value, unique=True, trim="0") + "f"
