/*
 * string.h - what generated code takes from the C library, for compilers that bring none.
 *
 * The functions are the compiler's own run-time's.
 */
#ifndef RAOT_FREESTANDING_STRING_H
#define RAOT_FREESTANDING_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);

/* A freestanding target makes a call of each of these unless it is told what they do. */
#define memcpy(to, from, bytes) __builtin_memcpy(to, from, bytes)
#define memmove(to, from, bytes) __builtin_memmove(to, from, bytes)
#define memset(to, value, bytes) __builtin_memset(to, value, bytes)
#define memcmp(left, right, bytes) __builtin_memcmp(left, right, bytes)

#endif
