/* SPDX-License-Identifier: Apache-2.0 */
/*
 * string.h - the C library functions of generated code, for compilers without a C library.
 *
 * The compiler's run-time library implements them.
 */
#ifndef RAOT_FREESTANDING_STRING_H
#define RAOT_FREESTANDING_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);

/* The macros select the builtins; a freestanding target calls the functions otherwise. */
#define memcpy(to, from, bytes) __builtin_memcpy(to, from, bytes)
#define memmove(to, from, bytes) __builtin_memmove(to, from, bytes)
#define memset(to, value, bytes) __builtin_memset(to, value, bytes)
#define memcmp(left, right, bytes) __builtin_memcmp(left, right, bytes)

#endif
