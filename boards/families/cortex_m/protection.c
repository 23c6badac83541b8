/* SPDX-License-Identifier: Apache-2.0 */
/* protection.c - fault handlers and MPU. See protection.h. */
#include "protection.h"

#include <stdint.h>

#include "memory_map.h"

#if __ARM_ARCH >= 7

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define CCR REGISTER(0xE000ED14u)
#define SHCSR REGISTER(0xE000ED24u)
#define MPU_TYPE REGISTER(0xE000ED90u)
#define MPU_CTRL REGISTER(0xE000ED94u)
#define MPU_RNR REGISTER(0xE000ED98u)
#define MPU_RBAR REGISTER(0xE000ED9Cu)
#define MPU_RASR REGISTER(0xE000EDA0u) /* Armv7-M */
#define MPU_RLAR REGISTER(0xE000EDA0u) /* Armv8-M */
#define MPU_MAIR0 REGISTER(0xE000EDC0u)

#define CCR_DIV_0_TRP (1u << 4)
#define SHCSR_MEM_BUS_USAGE (7u << 16)
#define SHCSR_SECURE (1u << 19)
#define MPU_ENABLE_WITH_DEFAULT_MAP 5u

#if __ARM_ARCH >= 8

#define EXECUTE_NEVER 1u
#define READ_ONLY (2u << 1) /* privileged code has no "no access" */

static void add_region(uint32_t number, uint32_t start, uint32_t bytes, uint32_t access)
{
    if (bytes != 0u) {
        MPU_RNR = number;
        MPU_RBAR = start | access;
        MPU_RLAR = ((start + bytes - 1u) & ~31u) | 1u;
    }
}

static void add_regions(uint32_t flash, uint32_t flash_bytes)
{
    MPU_MAIR0 = 0x44u; /* normal memory, not cached */
    add_region(0, flash, flash_bytes, READ_ONLY);
    add_region(1, 0, flash == 0u ? 0u : 32u, READ_ONLY | EXECUTE_NEVER);
    add_region(2, (uint32_t)__ram_start - (uint32_t)__fence_below_bytes,
               (uint32_t)__fence_below_bytes, READ_ONLY | EXECUTE_NEVER);
    add_region(3, (uint32_t)__ram_end, (uint32_t)__fence_above_bytes, READ_ONLY | EXECUTE_NEVER);
}

#else

#define NO_ACCESS ((1u << 28) | (0u << 24))
#define READ_ONLY ((6u << 24) | (1u << 17))
#define NULL_BYTES 1024u /* vectors alone lie here where flash is at 0; the core still finds them \
                          */

/* The size of a region is a power of two and its address a multiple of it; others are skipped. */
static void add_region(uint32_t number, uint32_t start, uint32_t bytes, uint32_t access)
{
    uint32_t log2_bytes = 0;

    if (bytes < 32u || (bytes & (bytes - 1u)) != 0u || (start & (bytes - 1u)) != 0u) {
        return;
    }
    while (bytes >> (log2_bytes + 1u) != 0u) {
        log2_bytes++;
    }
    MPU_RNR = number;
    MPU_RBAR = start;
    MPU_RASR = access | ((log2_bytes - 1u) << 1) | 1u;
}

static void add_regions(uint32_t flash, uint32_t flash_bytes)
{
    add_region(0, flash, flash_bytes, READ_ONLY);
    add_region(1, 0, NULL_BYTES, NO_ACCESS);
    add_region(2, (uint32_t)__ram_start - (uint32_t)__fence_below_bytes,
               (uint32_t)__fence_below_bytes, NO_ACCESS);
    add_region(3, (uint32_t)__ram_end, (uint32_t)__fence_above_bytes, NO_ACCESS);
}

#endif

void raot_protect(void)
{
    const uint32_t flash = (uint32_t)__flash_start;

    CCR |= CCR_DIV_0_TRP;
    SHCSR |= SHCSR_MEM_BUS_USAGE;
#if __ARM_ARCH >= 8
    SHCSR |= SHCSR_SECURE;
#endif
    if ((MPU_TYPE >> 8 & 0xFFu) >= 4u) {
        add_regions(flash, (uint32_t)__flash_end - flash);
        MPU_CTRL = MPU_ENABLE_WITH_DEFAULT_MAP;
    }
    __asm__ volatile("dsb\n isb" ::: "memory");
}

#else

void raot_protect(void)
{
}

#endif
