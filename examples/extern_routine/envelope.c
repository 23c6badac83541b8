/* SPDX-License-Identifier: Apache-2.0 */
/* envelope.c - the greatest of the last samples, for every sample. See envelope.h.
 *
 * The method of van Herk (1992) and of Gil and Werman (1993). The signal is cut into blocks of
 * one window. Any window is the end of one block and the start of the next, so its maximum is
 * that of a running maximum towards the left and one towards the right: three comparisons for
 * each sample, however long the window is.
 */
#include "envelope.h"

#include <math.h>

static float greater(float a, float b)
{
    return a > b ? a : b;
}

/* One signal between borders that never win. */
static float sample(const float *x, int32_t length, int32_t t)
{
    return t >= 0 && t < length ? x[t] : -INFINITY;
}

static void block(const float *restrict x, int32_t length, int32_t start, int32_t window,
                  float *restrict to_right, float *restrict to_left)
{
    float most = -INFINITY;
    for (int32_t i = 0; i < window; i++) {
        const float value = sample(x, length, start + i);
        most = greater(most, value);
        to_right[i] = most;
        to_left[i] = value;
    }
    for (int32_t i = window - 2; i >= 0; i--) {
        to_left[i] = greater(to_left[i], to_left[i + 1]);
    }
}

void sliding_max(int32_t rows, int32_t length, int32_t window, int32_t before,
                 const float *restrict x, float *restrict work, float *restrict y)
{
    const int32_t padded = length + window - 1;
    const int32_t blocks = (padded + window - 1) / window;
    float *const to_right = work;
    float *const to_left = work + blocks * window;

    for (int32_t r = 0; r < rows; r++) {
        for (int32_t b = 0; b < blocks; b++) {
            const int32_t at = b * window;
            block(x + r * length, length, at - before, window, to_right + at, to_left + at);
        }
        for (int32_t t = 0; t < length; t++) {
            y[r * length + t] = greater(to_left[t], to_right[t + window - 1]);
        }
    }
}
