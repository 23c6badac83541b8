/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math.h - elementary functions in float, without libm.
 *
 * The declaration of each function states its special cases; docs/reference/math_functions.md
 * lists the errors.
 */
#ifndef RAOT_MATH_H
#define RAOT_MATH_H

#include "exponential.h"
#include "ieee.h"
#include "rounding.h"
#include "trigonometry.h"

#endif
