/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quotients.c - counts the quotients of raot_quotientf as GPUs compute it that are not those of a
 * processor. ESTIMATED is quotient.h with estimates for the instructions of GPUs, wrong by `off`
 * units of their last bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int off;

static float estimate_f32(float d)
{
    const float r = d == 0.0f || fpclassify(d) == FP_SUBNORMAL ? copysignf(INFINITY, d) : 1.0f / d;

    if (fpclassify(r) == FP_SUBNORMAL) {
        return copysignf(0.0f, r);
    }
    return off == 0 || !isnormal(r) ? r : nextafterf(r, off < 0 ? 0.0f : 2.0f * r);
}

static double estimate_f64(double d)
{
    return 1.0 / d * (1.0 + off * 9.5e-7);
}

#define __CUDA_ARCH__ 870
#include ESTIMATED

static uint64_t state = 88172645463325252u;

static uint32_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static long wrong;

static void compare(float a, float b)
{
    const float expected = a / b;
    const float actual = raot_quotientf(a, b);

    if (raot_bitsf(expected) != raot_bitsf(actual) && !(isnan(expected) && isnan(actual))) {
        if (wrong < 10) {
            printf("%a / %a: %a, not %a\n", (double)a, (double)b, (double)actual, (double)expected);
        }
        wrong++;
    }
}

/* Mantissas as compilers and rounding find them hardest: few bits, all bits, any. */
static uint32_t mantissa(void)
{
    const uint32_t any = random_bits() & 0x7fffffu;

    switch (random_bits() % 4u) {
    case 0:
        return any & (0x7fffffu << random_bits() % 23u) & 0x7fffffu;
    case 1:
        return 0x7fffffu - (any >> random_bits() % 23u);
    default:
        return any;
    }
}

static float number(uint32_t exponent)
{
    return raot_of_bitsf((random_bits() & 0x80000000u) | exponent << 23 | mantissa());
}

/* Numerators next to the products of b and the middle between two floats near `q`. */
static void compare_middle(float q, float b)
{
    const double ulp = (double)nextafterf(q, INFINITY) - (double)q;
    const float a = (float)(((double)q + ulp / 2) * (double)b);

    compare(a, b);
    compare(nextafterf(a, INFINITY), b);
    compare(nextafterf(a, -INFINITY), b);
}

int main(int count, char **arguments)
{
    static const float special[] = {
        0.0f,
        0x1p-149f,
        0x1.8p-148f,
        0x1.fffffcp-127f,
        0x1p-126f,
        0x1.000002p-126f,
        0x1p-63f,
        0x1.fffffep-64f,
        0x1.fffffep-1f,
        1.0f,
        0x1.000002p0f,
        3.0f,
        0x1.fffffep62f,
        0x1p63f,
        0x1p126f,
        0x1.000002p126f,
        0x1.fffffep127f,
        INFINITY,
        NAN,
    };
    const size_t specials = sizeof special / sizeof special[0];
    const long rounds = count == 3 ? atol(arguments[2]) : 0;

    off = atoi(arguments[1]);
    for (size_t i = 0; i < 2 * specials; i++) {
        const float x = i % 2 == 0 ? special[i / 2] : -special[i / 2];

        for (size_t j = 0; j < 2 * specials; j++) {
            compare(x, j % 2 == 0 ? special[j / 2] : -special[j / 2]);
        }
        for (uint32_t exponent = 0; exponent < 255; exponent++) {
            compare(x, number(exponent));
            compare(number(exponent), x);
        }
    }
    for (long round = 0; round < rounds; round++) {
        const float b = number(random_bits() % 255u);
        const float near = number(127u);

        compare(number(random_bits() % 255u), b);
        compare(number(127u), near);
        compare_middle(number(127u), near);
        compare_middle(number(random_bits() % 255u), b);
        compare_middle(raot_of_bitsf(random_bits() >> (8u + random_bits() % 24u)), b);
    }
    for (uint32_t bits = 0x3f800000u; bits < 0x40000000u; bits++) {
        const float b = raot_of_bitsf(bits);

        /* Within the error of an estimate, some reciprocals are rounded wrongly. */
        for (long round = 0; raot_reciprocalf(b) != 1.0f / b && round < rounds; round += 100) {
            compare(number(127u), b);
            compare_middle(number(127u), b);
        }
    }
    printf("%ld wrong\n", wrong);
    return wrong != 0;
}
