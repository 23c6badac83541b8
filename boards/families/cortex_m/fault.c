/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c - reports a fault: registers, fault status, and the words on the stack.
 *
 * If the core could not push its registers (stack overflow), the return addresses on the stack
 * show the location. relax_aot/emulation/faults.py reads the record.
 */
#include "fault.h"

#include <stdint.h>

#include "memory_map.h"
#include "raot_outside.h"
#include "raot_platform.h"

#define REGISTER(address) (*(volatile const uint32_t *)(address))
#define EXC_RETURN_PSP 4u
#define FRAME_WORDS 8u
#define WORDS_SHOWN 256u

struct fault_record {
    uint32_t magic;
    uint32_t exception;
    uint32_t exc_return;
    uint32_t cfsr;
    uint32_t hfsr;
    uint32_t mmfar;
    uint32_t bfar;
    uint32_t sfsr;
    uint32_t sfar;
    uint32_t sp;
    uint32_t stack_limit;
    uint32_t stack_top;
    uint32_t frame_in_ram;
    uint32_t frame[FRAME_WORDS]; /* r0 to r3, r12, lr, pc, xpsr */
};

void raot_fault(uint32_t exc_return, uint32_t psp, uint32_t msp);

__attribute__((naked)) void raot_fault_entry(void)
{
    __asm__ volatile("mov r0, lr\n"
                     "mrs r1, psp\n"
                     "mrs r2, msp\n"
                     "ldr r3, =raot_fault\n"
                     "bx r3\n"
                     ".ltorg\n");
}

__attribute__((used)) void raot_fault(uint32_t exc_return, uint32_t psp, uint32_t msp)
{
    static struct fault_record record;
    const uint32_t sp = (exc_return & EXC_RETURN_PSP) != 0u ? psp : msp;
    const uint32_t limit = (uint32_t)__stack_limit;
    const uint32_t top = (uint32_t)__stack_top;
    const uint32_t from = (sp > limit ? sp : limit) & ~3u;
    uint32_t exception;
    uint32_t bytes;

    __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
    record.magic = RAOT_CORTEX_M_FAULT_MAGIC;
    record.exception = exception & 0x1FFu;
    record.exc_return = exc_return;
#if __ARM_ARCH >= 7
    record.cfsr = REGISTER(0xE000ED28u);
    record.hfsr = REGISTER(0xE000ED2Cu);
    record.mmfar = REGISTER(0xE000ED34u);
    record.bfar = REGISTER(0xE000ED38u);
#endif
#if __ARM_ARCH >= 8
    record.sfsr = REGISTER(0xE000EDE4u);
    record.sfar = REGISTER(0xE000EDE8u);
#endif
    record.sp = sp;
    record.stack_limit = limit;
    record.stack_top = top;
    if (sp >= (uint32_t)__ram_start && sp <= (uint32_t)__ram_end - 4u * FRAME_WORDS) {
        record.frame_in_ram = 1;
        for (uint32_t i = 0; i < FRAME_WORDS; i++) {
            record.frame[i] = ((const uint32_t *)(sp & ~3u))[i];
        }
    }
    bytes = from < top ? top - from : 0u;
    bytes = bytes < 4u * WORDS_SHOWN ? bytes : 4u * WORDS_SHOWN;
    raot_outside_fault(&record, sizeof record, (const void *)from, bytes);
    raot_exit(RAOT_EXIT_FAULT);
}
