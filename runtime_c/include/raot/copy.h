/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - copies of a few bytes between objects of any alignment.
 *
 * RAOT_COPY(to, from, bytes) is memcpy. A constant number of bytes compiles to load and store
 * instructions, also in freestanding builds (-ffreestanding, -fno-builtin).
 */
#ifndef RAOT_COPY_H
#define RAOT_COPY_H

#include <string.h>

#if defined(__GNUC__) && !defined(__FRAMAC__) && !defined(RAOT_DEVICE)
#define RAOT_COPY(to, from, bytes) ((void)__builtin_memcpy(to, from, bytes))
#else
#define RAOT_COPY(to, from, bytes) ((void)memcpy(to, from, bytes))
#endif

#endif
