/* SPDX-License-Identifier: Apache-2.0 */
/* test_math.c - elementary functions against exact values, identities and special cases. */
#include <stdint.h>

#include "raot/math.h"
#include "raot/math64.h"

/* Stops at the first check that fails: its line is the exit code, modulo 251, plus 1. */
#define CHECK(condition)               \
    do {                               \
        if (!(condition)) {            \
            return __LINE__ % 251 + 1; \
        }                              \
    } while (0)

/* Units in the last place of float between a and the nearest float to e. */
static uint32_t apart(float a, double e)
{
    const uint32_t x = raot_bitsf(a);
    const uint32_t y = raot_bitsf((float)e);

    return x > y ? x - y : y - x;
}

int main(void)
{
    /* Published values, to 17 digits. */
    CHECK(apart(raot_expf(1.0f), 2.7182818284590452) <= 1);
    CHECK(apart(raot_expf(-10.0f), 4.5399929762484851e-05) <= 1);
    CHECK(apart(raot_logf(10.0f), 2.3025850929940457) <= 1);
    CHECK(apart(raot_tanhf(0.5f), 0.46211715726000976) <= 2);
    CHECK(apart(raot_tanhf(2.0f), 0.96402758007581688) <= 2);
    CHECK(apart(raot_erff(0.5f), 0.52049987781304654) <= 3);
    CHECK(apart(raot_erff(2.0f), 0.99532226501895273) <= 2);
    CHECK(apart(raot_sigmoidf(-3.0f), 0.047425873177566781) <= 2);
    CHECK(apart(raot_sinf(1e30f), -0.79116343852198368) <= 1);
    CHECK(apart(raot_cosf(3.0f), -0.98999249660044546) <= 1);
    CHECK(apart(raot_powf(2.5f, 1.5f), 3.9528470752104741) <= 1);
    CHECK(raot_sqrtf(2.0f) == 1.41421354f);
    CHECK(raot_abs(raot_exp(1.0) - 2.7182818284590452) < 1e-15);
    CHECK(raot_abs(raot_log(10.0) - 2.3025850929940457) < 1e-15);
    CHECK(raot_abs(raot_atan(1.0) - 0.78539816339744831) < 1e-15);
    CHECK(raot_sqrt(2.0) == 1.4142135623730951);

    /* NaN, infinities, signed zeros. */
    CHECK(raot_isnanf(raot_expf(RAOT_NAN)) && raot_expf(-RAOT_INFINITY) == 0.0f);
    CHECK(raot_expf(89.0f) == RAOT_INFINITY && raot_isnanf(raot_logf(-1.0f)));
    CHECK(raot_logf(0.0f) == -RAOT_INFINITY && raot_tanhf(RAOT_INFINITY) == 1.0f);
    CHECK(raot_isnanf(raot_maxf(RAOT_NAN, 1.0f)) && raot_isnanf(raot_maxf(1.0f, RAOT_NAN)));
    CHECK(raot_isnanf(raot_minf(RAOT_NAN, 1.0f)) && raot_isnanf(raot_sinf(RAOT_INFINITY)));
    CHECK(raot_signbitf(raot_rintf(-0.4f)) && raot_signbitf(raot_sinf(-0.0f)));

    /* Rounding. */
    CHECK(raot_rintf(2.5f) == 2.0f && raot_rintf(3.5f) == 4.0f && raot_rintf(-2.5f) == -2.0f);
    CHECK(raot_roundf(2.5f) == 3.0f && raot_roundf(-2.5f) == -3.0f &&
          raot_roundf(0.49999997f) == 0.0f);
    CHECK(raot_floorf(-1.5f) == -2.0f && raot_ceilf(-1.5f) == -1.0f && raot_truncf(-1.5f) == -1.0f);
    CHECK(raot_floorf(1e30f) == 1e30f && raot_fmodf(-7.0f, 3.0f) == -1.0f);

    /* Powers of integers are exact; odd ones keep the sign. */
    CHECK(raot_powf(-2.0f, 3.0f) == -8.0f && raot_powf(-2.0f, 2.0f) == 4.0f);
    CHECK(raot_isnanf(raot_powf(-2.0f, 0.5f)) && raot_powf(0.0f, -1.0f) == RAOT_INFINITY);

    /* exp converts sums to products over the whole range. */
    for (int32_t i = -80; i < 80; i++) {
        const double product = (double)raot_expf((float)i) * 1.6487212707001282;
        CHECK(apart(raot_expf((float)i + 0.5f), product) <= 3);
    }
    return 0;
}
