/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - the handler of all exceptions: writes fault.bin and ends the run. */
#ifndef RAOT_FAULT_H
#define RAOT_FAULT_H

void raot_fault_entry(void);

#endif
