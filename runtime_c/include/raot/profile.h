/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h - a hook around each call of a kernel, for a cycle counter.
 *
 * Define RAOT_PROFILE_HEADER as the name of your header, which defines RAOT_PROFILE_BEGIN(name)
 * and RAOT_PROFILE_END(name); `name` is the kernel's name as a string. Otherwise the hook is
 * empty.
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
