/* protection.h - makes the core report what would otherwise go unseen. */
#ifndef RAOT_PROTECTION_H
#define RAOT_PROTECTION_H

/*
 * Turns on the fault handlers, traps for division by zero, and, where the core has an MPU:
 * flash is read-only, addresses next to the RAM and (Armv7-M) the first 1 KB of the address
 * space are out of bounds.
 */
void raot_protect(void);

#endif
