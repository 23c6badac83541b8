# SPDX-License-Identifier: Apache-2.0
"""What the host's compiler is asked to do."""

from __future__ import annotations

import cffi
import numpy as np

from relax_aot.verify.host import OPTIMISE_FLAGS, build_shared

LOOKED_UP = b"""
#include <stdint.h>
void look_up(const uint8_t *restrict x, const uint8_t *restrict table, uint8_t *restrict y,
             uint8_t *restrict z, int32_t n);
void look_up(const uint8_t *restrict x, const uint8_t *restrict table, uint8_t *restrict y,
             uint8_t *restrict z, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < 8; j++) {
            uint8_t value = x[i * 8 + j];
            y[i * 8 + j] = value;
            z[i * 16 + j + 8] = table[value];
        }
    }
}
"""


def test_loops_that_a_compiler_cannot_turn_into_vectors_are_built() -> None:
    """GCC 12 ends with an internal error at these, and the flags that ask for vectors."""
    ffi = cffi.FFI()
    ffi.cdef("void look_up(const uint8_t *, const uint8_t *, uint8_t *, uint8_t *, int32_t);")
    library = ffi.dlopen(str(build_shared({"k.c": LOOKED_UP}, OPTIMISE_FLAGS)))
    x, table = np.arange(32, dtype=np.uint8), np.arange(255, -1, -1).astype(np.uint8)
    y, z = np.zeros(32, np.uint8), np.zeros((4, 16), np.uint8)
    arrays = [ffi.from_buffer("uint8_t[]", a, require_writable=True) for a in (x, table, y, z)]
    library.look_up(*arrays, 4)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z[:, 8:], table[x].reshape(4, 8))
