/* SPDX-License-Identifier: Apache-2.0 */
/* memory_map.h - symbols of the linker script. Their addresses are the values. */
#ifndef RAOT_MEMORY_MAP_H
#define RAOT_MEMORY_MAP_H

#include <stdint.h>

extern uint32_t __stack_limit[];
extern uint32_t __stack_top[];
extern uint32_t __handler_stack_top[];
extern uint32_t __data_load[];
extern uint32_t __data_start[];
extern uint32_t __data_end[];
extern uint32_t __bss_start[];
extern uint32_t __bss_end[];
extern uint32_t __ram_start[];
extern uint32_t __ram_end[];
extern uint32_t __flash_start[];
extern uint32_t __flash_end[];

/* Sizes of the unmapped address ranges below and above the RAM: a power of two, or 0. */
extern uint32_t __fence_below_bytes[];
extern uint32_t __fence_above_bytes[];

#endif
