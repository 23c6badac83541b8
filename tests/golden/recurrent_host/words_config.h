/*
 * words_config.h - the maximum sizes that words accepts.
 * SPDX-License-Identifier: LicenseRef-Model
 *
 * Change a literal here, or use -D for the whole project: every size, every offset and
 * the arena follow. All files of a program must use the same values.
 */
#ifndef WORDS_CONFIG_H
#define WORDS_CONFIG_H

/* batch: input words, axis 0, 1..2 */
#ifndef WORDS_BATCH_MAX
#define WORDS_BATCH_MAX 2
#endif

/* n: input words, axis 1, 1..6 */
#ifndef WORDS_N_MAX
#define WORDS_N_MAX 6
#endif

#endif
