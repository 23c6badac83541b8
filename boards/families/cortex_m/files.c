/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - request, response and fault record of the harness as semihosting files. */
#include <stdint.h>

#include "raot_outside.h"
#include "raot_platform.h"
#include "semihosting.h"

static int32_t request;
static int32_t response;

void raot_outside_open(void)
{
    request = semihosting_open(RAOT_REQUEST_FILE, sizeof RAOT_REQUEST_FILE - 1, OPEN_READ);
    response = semihosting_open(RAOT_RESPONSE_FILE, sizeof RAOT_RESPONSE_FILE - 1, OPEN_WRITE);
    if (request < 0 || response < 0) {
        raot_exit(RAOT_EXIT_FILES);
    }
}

void raot_outside_close(void)
{
    semihosting_close(response);
}

void raot_read(void *to, size_t bytes)
{
    if (bytes > 0 && semihosting_read(request, to, bytes) != 0) {
        raot_exit(RAOT_EXIT_FILES);
    }
}

void raot_write(const void *from, size_t bytes)
{
    if (bytes > 0 && semihosting_write(response, from, bytes) != 0) {
        raot_exit(RAOT_EXIT_FILES);
    }
}

void raot_outside_fault(const void *record, size_t bytes, const void *stack, size_t stack_bytes)
{
    const int32_t file = semihosting_open(RAOT_FAULT_FILE, sizeof RAOT_FAULT_FILE - 1, OPEN_WRITE);

    (void)semihosting_write(file, record, bytes);
    if (stack_bytes > 0) {
        (void)semihosting_write(file, stack, stack_bytes);
    }
    semihosting_close(file);
}

void raot_exit(int code)
{
    semihosting_exit(code);
}
