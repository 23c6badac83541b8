/* SPDX-License-Identifier: Apache-2.0 */
/* test_window.c - rows of windows against the definition. */
#include <stdint.h>
#include <string.h>

#include "raot/window.h"

enum { COUNT = 35, STEPS = 4 };

static float image[8 + COUNT * STEPS];
static float found[COUNT + 8];

static int row(int32_t count, int32_t first, int32_t last, int32_t step)
{
    const int32_t offset = 4 - first * step;

    for (int32_t i = 0; i < COUNT + 8; i++) {
        found[i] = -1.0f;
    }
    raot_window_f32(found, count, first, last, image, offset, step);
    for (int32_t i = 0; i < COUNT + 8; i++) {
        float wanted = i < count ? 0.0f : -1.0f;
        if (first <= i && i < last) {
            wanted = image[offset + i * step];
        }
        if (memcmp(&found[i], &wanted, sizeof wanted) != 0) {
            return 0;
        }
    }
    return 1;
}

int main(void)
{
    for (int32_t i = 0; i < 8 + COUNT * STEPS; i++) {
        image[i] = (float)(i + 1);
    }
    for (int32_t step = 1; step <= STEPS; step++) {
        for (int32_t count = 0; count <= COUNT; count++) {
            for (int32_t first = 0; first <= count; first += 1 + first / 4) {
                for (int32_t last = first; last <= count; last++) {
                    if (!row(count, first, last, step)) {
                        return (int)step;
                    }
                }
            }
        }
    }
    return 0;
}
