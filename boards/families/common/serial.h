/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serial.h - the harness over a serial line: frames with a checksum, repeated until they arrive.
 *
 * docs/reference/serial.md describes the protocol; relax_aot/emulation/serial_line.py is the
 * host. The board receives only data that it requested, so it needs no timer, interrupt or flow
 * control.
 */
#ifndef RAOT_SERIAL_H
#define RAOT_SERIAL_H

/* The board implements these: send one byte, receive one byte. Both block. */
void raot_line_open(void);
void raot_line_put(unsigned char byte);
unsigned char raot_line_get(void);

/* Restarts the program; called when the host begins a session. */
_Noreturn void raot_restart(void);

#endif
