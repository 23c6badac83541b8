/*
 * perceptron_config.h - the maximum sizes that perceptron accepts.
 * SPDX-License-Identifier: LicenseRef-Model
 *
 * Change a literal here, or use -D for the whole project: every size, every offset and
 * the arena follow. All files of a program must use the same values.
 */
#ifndef PERCEPTRON_CONFIG_H
#define PERCEPTRON_CONFIG_H

/* batch: input x, axis 0, 1..9 */
#ifndef PERCEPTRON_BATCH_MAX
#define PERCEPTRON_BATCH_MAX 9
#endif

#endif
