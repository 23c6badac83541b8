/* SPDX-License-Identifier: Apache-2.0 */
/*
 * function.h - how functions are compiled.
 *
 * Kernels are functions of their own. Compilers put a function that is called once into its caller,
 * where loops that need all registers compete with everything else for them.
 */
#ifndef RAOT_FUNCTION_H
#define RAOT_FUNCTION_H

#if defined(__GNUC__)
#define RAOT_NOINLINE __attribute__((noinline))
#else
#define RAOT_NOINLINE
#endif

#endif
