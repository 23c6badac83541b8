/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math_errors.c - greatest errors of raot/math.h and raot/math64.h against the C library of the
 * host, which computes with more bits: float against double, double against long double.
 *
 * arguments: name of a function, and how many inputs to skip from one to the next: of the 2^32
 * floats every so many-th one; of doubles as many, spread over all 2^64. A function of two
 * arguments takes its second from a generator of numbers. Prints inputs, greatest error in units of
 * the last place, the input of that, and for how many inputs NaN, infinity or zero stand where they
 * should not.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raot/math.h"
#include "raot/math64.h"

/* exp(-|x|) */
static inline float raot_exp_below_zerof(float x)
{
    return raot_exp_belowf(-raot_absf(x), 0.0f);
}

static inline double raot_exp_below_zero(double x)
{
    return raot_exp(-raot_abs(x));
}

struct worst {
    uint64_t inputs;
    double error;
    double at;
    double second;
    uint64_t wrong;
};

static uint64_t state = 88172645463325252u;

static uint64_t next_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static double double_of(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Units of the last place, of a type with `digits` bits whose least number is 2^least. */
static long double units(long double found, long double exact, int digits, int least)
{
    int exponent;

    frexpl(exact, &exponent);
    exponent -= digits;
    return fabsl(found - exact) / ldexpl(1.0L, exponent < least ? least : exponent);
}

static void judge(struct worst *worst, long double found, long double exact, long double rounded,
                  int digits, int least, double x, double y)
{
    worst->inputs++;
    if (isnan(exact) || isinf(rounded) || isnan(found) || isinf(found)) {
        /* The greatest number and infinity are neighbors: either is half a unit away. */
        const int adjacent =
            isinf(exact) == 0 && (isinf(rounded) || isinf(found)) &&
            fabsl(exact) > ldexpl(1.0L - ldexpl(1.0L, -digits + 1), 1 - least - digits - 1);
        worst->wrong += !(isnan(exact) ? isnan(found) : found == rounded || adjacent);
        return;
    }
    const long double error = units(found, exact, digits, least);
    if ((double)error > worst->error) {
        worst->error = (double)error;
        worst->at = x;
        worst->second = y;
    }
}

/* Units of the last place of a float, for finite numbers: what `units` says, in plain double. */
static double units_of_float(double found, double exact)
{
    uint64_t bits;
    uint64_t scale;

    memcpy(&bits, &exact, sizeof bits);
    bits = bits << 1 >> 53;
    bits = bits < 1023 - 126 ? 1023 - 126 : bits;
    scale = (2 * 1023 + 23 - bits) << 52;
    return fabs(found - exact) * double_of(scale);
}

/* Every float takes its turn here, so the common case comes first. */
static inline void judge_float(struct worst *worst, float found, double exact, float x, float y)
{
    const float rounded = (float)exact;

    if (isfinite(found) && isfinite(rounded)) {
        const double error = units_of_float((double)found, exact);

        worst->inputs++;
        if (error > worst->error) {
            worst->error = error;
            worst->at = (double)x;
            worst->second = (double)y;
        }
        return;
    }
    judge(worst, found, exact, rounded, 24, -149, (double)x, (double)y);
}

/* The sign of f(-x) relative to f(x): 0 if f is neither even nor odd. */
static double mirror_of(const char *name)
{
    static const char *const odd[] = {"sin",  "tan",   "asin",  "atan", "sinh",
                                      "tanh", "asinh", "atanh", "erf"};

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        if (strcmp(name, odd[i]) == 0) {
            return -1.0;
        }
    }
    return strcmp(name, "cos") == 0 || strcmp(name, "cosh") == 0 ||
                   strcmp(name, "exp_below_zero") == 0
               ? 1.0
               : 0.0;
}

static int same_float(float a, float b)
{
    return a == b ? signbit(a) == signbit(b) : isnan(a) && isnan(b);
}

/*
 * All floats of one sign, then those of the other. Where a function is odd or even its exact value
 * need not be computed twice: a result that mirrors the one of -x has the same error.
 */
#define ONE(name)                                                                  \
    static void float_##name(struct worst *worst, uint64_t every)                  \
    {                                                                              \
        const double mirror = mirror_of(#name);                                    \
        for (uint64_t bits = 0; bits < (uint64_t)1 << 31; bits += every) {         \
            const float x = float_of((uint32_t)bits);                              \
            const float found = raot_##name##f(x);                                 \
            const float adjacent = raot_##name##f(-x);                             \
            const double exact = exact_##name((double)x);                          \
            judge_float(worst, found, exact, x, 0.0f);                             \
            if (mirror != 0.0 && same_float(adjacent, (float)mirror * found)) {    \
                worst->inputs++;                                                   \
            } else {                                                               \
                judge_float(worst, adjacent, exact_##name((double)-x), -x, 0.0f);  \
            }                                                                      \
        }                                                                          \
    }                                                                              \
    static void double_##name(struct worst *worst, uint64_t every)                 \
    {                                                                              \
        for (uint64_t i = 0; i < (uint64_t)1 << 32; i += every) {                  \
            const double x = double_of((i << 32) ^ (next_number() & 0xffffffffu)); \
            const long double exact = exact_##name##l((long double)x);             \
            judge(worst, raot_##name(x), exact, (double)exact, 53, -1074, x, 0.0); \
        }                                                                          \
    }

static double exact_sigmoid(double x)
{
    return x < 0.0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x));
}

static long double exact_sigmoidl(long double x)
{
    return x < 0.0L ? expl(x) / (1.0L + expl(x)) : 1.0L / (1.0L + expl(-x));
}

static double exact_exp_below_zero(double x)
{
    return exp(-fabs(x));
}

static long double exact_exp_below_zerol(long double x)
{
    return expl(-fabsl(x));
}

#define LIBRARY(name)                                 \
    static double exact_##name(double x)              \
    {                                                 \
        return name(x);                               \
    }                                                 \
    static long double exact_##name##l(long double x) \
    {                                                 \
        return name##l(x);                            \
    }

#define EVERY(DO)                                                                           \
    DO(exp)                                                                                 \
    DO(exp2)                                                                                \
    DO(expm1)                                                                               \
    DO(log)                                                                                 \
    DO(log2)                                                                                \
    DO(log1p)                                                                               \
    DO(sin) DO(cos) DO(tan) DO(asin) DO(acos) DO(atan) DO(sinh) DO(cosh) DO(tanh) DO(asinh) \
        DO(acosh) DO(atanh) DO(erf) DO(sqrt)

EVERY(LIBRARY)
EVERY(ONE)
ONE(sigmoid)
ONE(exp_below_zero)

/* Second arguments from 2^-8 to 2^8 and such that are integers, where most powers are finite. */
static double exponent_of(void)
{
    const uint64_t bits = next_number();
    const double size = ldexp(1.0 + (double)(bits >> 40) / 16777216.0, (int)(bits & 15) - 8);
    const double sign = (bits & 16) != 0 ? -1.0 : 1.0;

    return (double)(float)(sign * ((bits & 32) != 0 ? rint(size) : size));
}

static void float_pow(struct worst *worst, uint64_t every)
{
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += every) {
        const float x = float_of((uint32_t)bits);
        const float y = (float)exponent_of();
        judge_float(worst, raot_powf(x, y), pow((double)x, (double)y), x, y);
    }
}

static void double_pow(struct worst *worst, uint64_t every)
{
    for (uint64_t i = 0; i < (uint64_t)1 << 32; i += every) {
        const double x = double_of((i << 32) ^ (next_number() & 0xffffffffu));
        const double y = exponent_of();
        const long double exact = powl((long double)x, (long double)y);
        judge(worst, raot_pow(x, y), exact, (double)exact, 53, -1074, x, y);
    }
}

struct entry {
    const char *name;
    void (*run)(struct worst *worst, uint64_t every);
};

#define ENTRY(name) {#name "f", float_##name}, {#name, double_##name},

static const struct entry entries[] = {EVERY(ENTRY) ENTRY(sigmoid) ENTRY(exp_below_zero)
                                           ENTRY(pow)};

int main(int count, char **arguments)
{
    for (size_t i = 0; count == 3 && i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(arguments[1], entries[i].name) == 0) {
            struct worst worst = {0, 0.0, 0.0, 0.0, 0};
            entries[i].run(&worst, strtoull(arguments[2], NULL, 10));
            printf("%" PRIu64 " %.4f %a %a %" PRIu64 "\n", worst.inputs, worst.error, worst.at,
                   worst.second, worst.wrong);
            return 0;
        }
    }
    return 1;
}
