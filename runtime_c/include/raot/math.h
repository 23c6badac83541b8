/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math.h - elementary functions in float, without libm.
 *
 * What each function does at the edges stands where it is declared; how exact it is stands in
 * docs/reference/math_functions.md.
 */
#ifndef RAOT_MATH_H
#define RAOT_MATH_H

#include "exponential.h"
#include "ieee.h"
#include "rounding.h"
#include "trigonometry.h"

#endif
