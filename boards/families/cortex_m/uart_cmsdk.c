/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uart_cmsdk.c - the serial line of Arm's MPS2 boards: the UART of the Cortex-M System Design Kit
 * (Arm DDI 0479, APB UART). RAOT_UART_BASE is its address.
 */
#include <stdint.h>

#include "serial.h"

#define REGISTER(offset) (*(volatile uint32_t *)(RAOT_UART_BASE + (offset)))
#define DATA REGISTER(0x00u)
#define STATE REGISTER(0x04u)
#define CONTROL REGISTER(0x08u)
#define BAUD_DIVIDER REGISTER(0x10u)

enum { TRANSMIT_FULL = 1, RECEIVE_FULL = 2, TRANSMIT_AND_RECEIVE = 3 };

#define CLOCK_HZ 25000000u
#define BAUD 115200u

void raot_line_open(void)
{
    BAUD_DIVIDER = CLOCK_HZ / BAUD;
    CONTROL = TRANSMIT_AND_RECEIVE;
}

void raot_line_put(unsigned char byte)
{
    while ((STATE & TRANSMIT_FULL) != 0u) {
    }
    DATA = byte;
}

unsigned char raot_line_get(void)
{
    while ((STATE & RECEIVE_FULL) == 0u) {
    }
    return (unsigned char)DATA;
}
