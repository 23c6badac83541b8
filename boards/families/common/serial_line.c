/* SPDX-License-Identifier: Apache-2.0 */
/*
 * line.c - the serial line of your firmware. Implement the three functions marked below. Set up
 * clocks, pins and the speed of the line (115200 by default) and disable interrupts before you
 * call raot_runner().
 */
#include <stdint.h>

#include "raot_outside.h"
#include "raot_platform.h"
#include "serial.h"

/* The stack of the model in bytes; it is filled with a pattern to measure its use. */
#ifndef RAOT_RUNNER_STACK_BYTES
#define RAOT_RUNNER_STACK_BYTES 2048u
#endif

_Noreturn void raot_runner(void);

void raot_line_open(void)
{
    /* Yours: open the line, if it is not open yet. */
}

void raot_line_put(unsigned char byte)
{
    (void)byte; /* Yours: wait until the transmitter is free, then send. */
}

unsigned char raot_line_get(void)
{
    return 0; /* Yours: wait for a byte and return it. */
}

_Noreturn void raot_restart(void)
{
    *(volatile uint32_t *)(uintptr_t)0xE000ED0Cu = 0x05FA0004u; /* Cortex-M: AIRCR, SYSRESETREQ */
    for (;;) {
    }
}

void *raot_stack_limit(void)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    return (void *)((here - RAOT_RUNNER_STACK_BYTES) & ~(uintptr_t)7u);
}

_Noreturn void raot_runner(void)
{
    raot_outside_open();
    raot_harness();
    raot_exit(RAOT_EXIT_DONE);
}
