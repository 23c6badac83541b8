/* SPDX-License-Identifier: Apache-2.0 */
/*
 * function.h - function attributes.
 *
 * Kernels are not inlined. Compilers inline a function that is called once, and its loops, which
 * need all registers, then share them with the code of the caller.
 */
#ifndef RAOT_FUNCTION_H
#define RAOT_FUNCTION_H

#if defined(__GNUC__)
#define RAOT_NOINLINE __attribute__((noinline))
#else
#define RAOT_NOINLINE
#endif

#endif
