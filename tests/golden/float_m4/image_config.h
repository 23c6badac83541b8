/*
 * image_config.h - the maximum sizes that image accepts.
 * SPDX-License-Identifier: LicenseRef-Model
 *
 * Change a literal here, or use -D for the whole project: every size, every offset and
 * the arena follow. All files of a program must use the same values.
 */
#ifndef IMAGE_CONFIG_H
#define IMAGE_CONFIG_H

/* batch: input image, axis 0, 1..2 */
#ifndef IMAGE_BATCH_MAX
#define IMAGE_BATCH_MAX 2
#endif

/* height: input image, axis 2, 1..7 */
#ifndef IMAGE_HEIGHT_MAX
#define IMAGE_HEIGHT_MAX 7
#endif

/* width: input image, axis 3, 3..8 */
#ifndef IMAGE_WIDTH_MAX
#define IMAGE_WIDTH_MAX 8
#endif

#endif
