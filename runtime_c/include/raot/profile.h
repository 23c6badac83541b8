/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h - a hook around each kernel's call, for a board's cycle counter.
 *
 * RAOT_PROFILE_HEADER, given to the compiler, names a header of yours that defines
 * RAOT_PROFILE_BEGIN(name) and RAOT_PROFILE_END(name); `name` is the kernel's name as a string.
 * Without it a call is a call, and nothing is added.
 */
#ifndef RAOT_PROFILE_H
#define RAOT_PROFILE_H

#ifdef RAOT_PROFILE_HEADER
#include RAOT_PROFILE_HEADER
#define RAOT_PROFILE(kernel, ...)    \
    do {                             \
        RAOT_PROFILE_BEGIN(#kernel); \
        __VA_ARGS__;                 \
        RAOT_PROFILE_END(#kernel);   \
    } while (0)
#else
#define RAOT_PROFILE(kernel, ...) __VA_ARGS__
#endif

#endif
