/* SPDX-License-Identifier: Apache-2.0 */
/* protection.h - makes the core report invalid accesses. */
#ifndef RAOT_PROTECTION_H
#define RAOT_PROTECTION_H

/*
 * Enables the fault handlers and the trap for division by zero. On cores with an MPU, flash is
 * read-only, and addresses next to the RAM and (Armv7-M) the first 1 KB of the address space are
 * inaccessible.
 */
void raot_protect(void);

#endif
