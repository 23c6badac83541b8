/*
 * sums_config.h - the maximum sizes that sums accepts.
 * SPDX-License-Identifier: LicenseRef-Model
 *
 * Change a literal here, or use -D for the whole project: every size, every offset and
 * the arena follow. All files of a program must use the same values.
 */
#ifndef SUMS_CONFIG_H
#define SUMS_CONFIG_H

/* n: input x, axis 0, 1..6 */
#ifndef SUMS_N_MAX
#define SUMS_N_MAX 6
#endif

#endif
