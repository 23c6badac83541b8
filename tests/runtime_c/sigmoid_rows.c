/* SPDX-License-Identifier: Apache-2.0 */
/* Compares rows of sigmoids with single calls, bit by bit: rows of each length up to 70, from bits
 * of any kind, from usual numbers, and from usual ones of which one is special; also in place, and
 * with an element behind the row. Prints how many elements were compared and how many differ. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "raot/functions_f32.h"

static uint32_t state = 1;

static uint32_t any(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static float element(uint32_t kind)
{
    static const float special[] = {0.0f,  -0.0f, 1e-42f, -1e-42f, 21.0f, -22.5f,  43.9f,  44.1f,
                                    30.0f, 86.9f, 87.5f,  -87.1f,  88.0f, -105.0f, -1e30f, 3e6f};

    if (kind == 0) {
        return raot_of_bitsf(any());
    }
    if (kind == 1 && any() % 64 == 0) {
        return special[any() % 16];
    }
    return (float)(int32_t)any() * (kind == 2 ? 4e-8f : 9e-9f);
}

static int32_t differs(float a, float b)
{
    return raot_bitsf(a) != raot_bitsf(b) && !(raot_isnanf(a) && raot_isnanf(b));
}

int main(void)
{
    float from[72], to[72];
    int32_t compared = 0, different = 0;

    for (int32_t round = 0; round < 60; round++) {
        for (int32_t count = 0; count <= 70; count++) {
            for (int32_t i = 0; i <= count; i++) {
                from[i] = element((uint32_t)round % 4);
            }
            memcpy(to, from, sizeof to);
            raot_sigmoid_f32(to, round % 8 < 4 ? from : to, count);
            for (int32_t i = 0; i < count; i++) {
                different += differs(to[i], raot_sigmoidf(from[i]));
            }
            different += differs(to[count], from[count]);
            compared += count;
        }
    }
    printf("%d %d\n", (int)compared, (int)different);
    return 0;
}
