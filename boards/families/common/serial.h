/*
 * serial.h - the harness over a serial line: frames with a checksum, sent again until they arrive.
 *
 * docs/reference/serial.md is the protocol; relax_aot/emulation/serial_line.py is the other end. The
 * board asks and the host answers, so the board never receives what it did not ask for and needs
 * neither timer, interrupts nor flow control.
 */
#ifndef RAOT_SERIAL_H
#define RAOT_SERIAL_H

/* What a board brings: one byte out, one byte in. Both wait until it is done. */
void raot_line_open(void);
void raot_line_put(unsigned char byte);
unsigned char raot_line_get(void);

/* Starts the program anew; called where the host begins a session. */
_Noreturn void raot_restart(void);

#endif
