/* SPDX-License-Identifier: Apache-2.0 */
/* test_math_ordered.c - test_math.c without the functions for vectors, as --numerics ordered. */
#define RAOT_NUMERICS_ORDERED
#include "test_math.c"
