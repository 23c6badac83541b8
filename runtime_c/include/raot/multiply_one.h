/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_one.h - single sums of multiply.h, for the remainders of tiles.
 */
#ifndef RAOT_MULTIPLY_ONE_H
#define RAOT_MULTIPLY_ONE_H

__attribute__((noinline, unused)) static void
raot_one_f32(const struct raot_level *levels, const float *left, const float *right, float *sums)
{
    float sum = *sums;

    for (int32_t i = 0; i < levels[0].count; i++) {
        for (int32_t j = 0; j < levels[1].count; j++) {
            const float *a = left + i * levels[0].left + j * levels[1].left;
            const float *b = right + i * levels[0].right + j * levels[1].right;
            for (int32_t k = levels[2].count; k > 0; k--) {
                sum = RAOT_ADD_PRODUCT(*a, *b, sum);
                a += levels[2].left;
                b += levels[2].right;
            }
        }
    }
    *sums = sum;
}

#endif
