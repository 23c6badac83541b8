/*
 * raot_outside.h - how a harness reaches those who gave it work: files of an emulator, or a
 * serial line. An image has one of the two.
 */
#ifndef RAOT_OUTSIDE_H
#define RAOT_OUTSIDE_H

#include <stddef.h>

void raot_outside_open(void);
void raot_outside_close(void);

/* The record of a fault, and the words on the stack then. */
void raot_outside_fault(const void *record, size_t bytes, const void *stack, size_t stack_bytes);

#endif
