/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_outside.h - the connection of the harness to the host: files of an emulator, or a serial
 * line. An image has one of the two.
 */
#ifndef RAOT_OUTSIDE_H
#define RAOT_OUTSIDE_H

#include <stddef.h>

void raot_outside_open(void);
void raot_outside_close(void);

/* The record of a fault, and the words on the stack at the fault. */
void raot_outside_fault(const void *record, size_t bytes, const void *stack, size_t stack_bytes);

#endif
