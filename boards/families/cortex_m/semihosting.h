/* SPDX-License-Identifier: Apache-2.0 */
/* semihosting.h - the semihosting calls of the harness (BKPT 0xAB). */
#ifndef RAOT_SEMIHOSTING_H
#define RAOT_SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

enum semihosting_operation {
    SYS_OPEN = 0x01,
    SYS_CLOSE = 0x02,
    SYS_WRITE = 0x05,
    SYS_READ = 0x06,
    SYS_EXIT_EXTENDED = 0x20
};

enum semihosting_mode { OPEN_READ = 1, OPEN_WRITE = 5 };

#define ADP_STOPPED_APPLICATION_EXIT 0x20026u

static inline int32_t semihosting(enum semihosting_operation operation, const void *arguments)
{
    register uint32_t r0 __asm__("r0") = (uint32_t)operation;
    register const void *r1 __asm__("r1") = arguments;

    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return (int32_t)r0;
}

/* A handle, or -1. `length` is that of `name` without its end. */
static inline int32_t semihosting_open(const char *name, size_t length, enum semihosting_mode mode)
{
    const uint32_t arguments[] = {(uint32_t)name, (uint32_t)mode, length};

    return semihosting(SYS_OPEN, arguments);
}

static inline void semihosting_close(int32_t handle)
{
    const uint32_t arguments[] = {(uint32_t)handle};

    (void)semihosting(SYS_CLOSE, arguments);
}

/* Both return the number of bytes that were not transferred. */
static inline int32_t semihosting_write(int32_t handle, const void *from, size_t bytes)
{
    const uint32_t arguments[] = {(uint32_t)handle, (uint32_t)from, bytes};

    return semihosting(SYS_WRITE, arguments);
}

static inline int32_t semihosting_read(int32_t handle, void *to, size_t bytes)
{
    const uint32_t arguments[] = {(uint32_t)handle, (uint32_t)to, bytes};

    return semihosting(SYS_READ, arguments);
}

static inline _Noreturn void semihosting_exit(int code)
{
    const uint32_t arguments[] = {ADP_STOPPED_APPLICATION_EXIT, (uint32_t)code};

    for (;;) {
        (void)semihosting(SYS_EXIT_EXTENDED, arguments);
    }
}

#endif
