/*
 * line.c - what a firmware of yours adds to the runner: its serial line. Fill in the three
 * functions that say so; clocks, pins and the line's speed (115200 unless you say otherwise)
 * are set up before raot_runner() is called, interrupts off.
 */
#include <stdint.h>

#include "raot_outside.h"
#include "raot_platform.h"
#include "serial.h"

/* How much of the stack the model may use: it is painted to see how much it did. */
#ifndef RAOT_RUNNER_STACK_BYTES
#define RAOT_RUNNER_STACK_BYTES 2048u
#endif

_Noreturn void raot_runner(void);

void raot_line_open(void)
{
    /* Yours, where the line is not open yet. */
}

void raot_line_put(unsigned char byte)
{
    (void)byte; /* Yours: wait until there is room, then send. */
}

unsigned char raot_line_get(void)
{
    return 0; /* Yours: wait until a byte is here. */
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
