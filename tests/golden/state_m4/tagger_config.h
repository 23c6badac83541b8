/*
 * tagger_config.h - the maximum sizes that tagger accepts.
 * SPDX-License-Identifier: LicenseRef-Model
 *
 * Change a literal here, or use -D for the whole project: every size, every offset and
 * the arena follow. All files of a program must use the same values.
 */
#ifndef TAGGER_CONFIG_H
#define TAGGER_CONFIG_H

/* n: input frames, axis 0, 1..6 */
#ifndef TAGGER_N_MAX
#define TAGGER_N_MAX 6
#endif

/* batch: input frames, axis 1, 1..2 */
#ifndef TAGGER_BATCH_MAX
#define TAGGER_BATCH_MAX 2
#endif

#endif
