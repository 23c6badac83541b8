/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_platform.h - the platform interface of the harness.
 *
 * Each family implements these functions. Its start-up code calls raot_harness on the stack of
 * the model.
 */
#ifndef RAOT_PLATFORM_H
#define RAOT_PLATFORM_H

#include <stddef.h>

/* The result of a run: the exit code of the emulator. */
enum raot_exit {
    RAOT_EXIT_DONE = 0,
    RAOT_EXIT_FILES = 96,   /* a file could not be opened, read or written */
    RAOT_EXIT_REQUEST = 97, /* the request does not fit the model */
    RAOT_EXIT_LIBRARY = 98, /* the C library called exit or abort */
    RAOT_EXIT_FAULT = 99    /* a fault; fault.bin describes it */
};

#define RAOT_REQUEST_FILE "request.bin"
#define RAOT_RESPONSE_FILE "response.bin"
#define RAOT_FAULT_FILE "fault.bin"

/* First words of the files: "RAQ1", "RAR1", and for faults "RAFC" (Cortex-M), "RAFL" (Linux). */
#define RAOT_REQUEST_MAGIC 0x31514152u
#define RAOT_RESPONSE_MAGIC 0x32524152u
#define RAOT_CORTEX_M_FAULT_MAGIC 0x43464152u
#define RAOT_LINUX_FAULT_MAGIC 0x4c464152u

/* Read and write exactly `bytes` bytes, or end the program with RAOT_EXIT_FILES. */
void raot_read(void *to, size_t bytes);
void raot_write(const void *from, size_t bytes);

_Noreturn void raot_exit(int code);

/* The lowest address of the current stack. */
void *raot_stack_limit(void);

/* Runs the calls of the request in order. */
void raot_harness(void);

#endif
