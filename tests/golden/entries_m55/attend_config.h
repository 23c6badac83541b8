/*
 * attend_config.h - the maximum sizes that attend accepts.
 * SPDX-License-Identifier: LicenseRef-Model
 *
 * Change a literal here, or use -D for the whole project: every size, every offset and
 * the arena follow. All files of a program must use the same values.
 */
#ifndef ATTEND_CONFIG_H
#define ATTEND_CONFIG_H

/* n: input x, axis 0, 1..9 */
#ifndef ATTEND_N_MAX
#define ATTEND_N_MAX 9
#endif

/* m: input k, axis 0, 2..13 */
#ifndef ATTEND_M_MAX
#define ATTEND_M_MAX 13
#endif

#endif
