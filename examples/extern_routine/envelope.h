/* SPDX-License-Identifier: Apache-2.0 */
/* envelope.h - the greatest of the last samples, for every sample. */
#ifndef ENVELOPE_H
#define ENVELOPE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * y[r][t] = max of x[r][t - before .. t - before + window - 1], for each of `rows` signals of
 * `length` samples; what lies outside a signal does not count. window >= 1, and 0 <= before <
 * window, so that every window holds a sample.
 *
 * work: 2 * (length + window - 1, rounded up to whole windows) floats. No buffers overlap.
 */
void sliding_max(int32_t rows, int32_t length, int32_t window, int32_t before,
                 const float *restrict x, float *restrict work, float *restrict y);

#ifdef __cplusplus
}
#endif

#endif
