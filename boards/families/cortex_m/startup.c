/* SPDX-License-Identifier: Apache-2.0 */
/*
 * startup.c - start-up code of Cortex-M: from reset to the harness.
 *
 * The harness runs on PSP and handlers on MSP, so a stack overflow can be reported. Compile it so
 * that loops do not become calls of the C library.
 */
#include <stdint.h>

#include "fault.h"
#include "memory_map.h"
#include "protection.h"
#include "raot_outside.h"
#include "raot_platform.h"
#include "serial.h"

void raot_reset(void);
void raot_start(void);
void _exit(int code);
void __aeabi_unwind_cpp_pr0(void);

union vector {
    uint32_t *stack;
    void (*handler)(void);
};

__attribute__((section(".vectors"), used)) static const union vector vectors[16] = {
    {.stack = __handler_stack_top}, {.handler = raot_reset},
    {.handler = raot_fault_entry}, /* NMI */
    {.handler = raot_fault_entry}, /* HardFault */
    {.handler = raot_fault_entry}, /* MemManage */
    {.handler = raot_fault_entry}, /* BusFault */
    {.handler = raot_fault_entry}, /* UsageFault */
    {.handler = raot_fault_entry}, /* SecureFault */
    {.handler = raot_fault_entry},  {.handler = raot_fault_entry},
    {.handler = raot_fault_entry},  {.handler = raot_fault_entry},
    {.handler = raot_fault_entry},  {.handler = raot_fault_entry},
    {.handler = raot_fault_entry},  {.handler = raot_fault_entry},
};

/* In assembly, so that no floating-point instruction precedes the enabling of the FPU. */
__attribute__((naked)) void raot_reset(void)
{
    __asm__ volatile(
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
        "ldr r0, =0xE000ED88\n" /* CPACR: full access to CP10 and CP11 */
        "ldr r1, [r0]\n"
        "ldr r2, =0x00F00000\n"
        "orrs r1, r1, r2\n"
        "str r1, [r0]\n"
        "dsb\n"
        "isb\n"
#endif
        "ldr r0, =__stack_top\n"
        "msr psp, r0\n"
        "movs r0, #2\n" /* CONTROL.SPSEL: thread mode on PSP */
        "msr control, r0\n"
        "isb\n"
#if defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
        "ldr r0, =__stack_limit\n"
        "msr psplim, r0\n"
#endif
        "bl raot_start\n"
        "b .\n"
        ".ltorg\n");
}

__attribute__((used)) void raot_start(void)
{
    const uint32_t *from = __data_load;

    for (uint32_t *to = __data_start; to < __data_end; to++) {
        *to = *from++;
    }
    for (uint32_t *to = __bss_start; to < __bss_end; to++) {
        *to = 0;
    }
    raot_protect();
    raot_outside_open();
    raot_harness();
    raot_outside_close();
    raot_exit(RAOT_EXIT_DONE);
}

/* A system reset request, so that handlers can call it too. */
void raot_restart(void)
{
    *(volatile uint32_t *)0xE000ED0Cu = 0x05FA0004u; /* AIRCR: key, SYSRESETREQ */
    __asm__ volatile("dsb" ::: "memory");
    for (;;) {
    }
}

void *raot_stack_limit(void)
{
    return __stack_limit;
}

/* The end of exit and abort of the C library. */
void _exit(int code)
{
    (void)code;
    raot_exit(RAOT_EXIT_LIBRARY);
}

/* The unwind tables of libgcc's division refer to it; the real one would link the unwinder. */
void __aeabi_unwind_cpp_pr0(void)
{
}
