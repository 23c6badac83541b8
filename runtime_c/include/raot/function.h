/* SPDX-License-Identifier: Apache-2.0 */
/*
 * function.h - function attributes.
 *
 * Kernels are not inlined. Compilers inline a function that is called once, and its loops, which
 * need all registers, then share them with the code of the caller. Parts of a kernel are inlined:
 * they are functions for the reader.
 */
#ifndef RAOT_FUNCTION_H
#define RAOT_FUNCTION_H

#if defined(__GNUC__)
#define RAOT_NOINLINE __attribute__((noinline))
#define RAOT_INLINE __attribute__((always_inline))
#else
#define RAOT_NOINLINE
#define RAOT_INLINE
#endif

#endif
