/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.h - choose a token by its logit.
 *
 * Probabilities are sums of integers, so that no order of additions changes a choice: the same
 * logits and seed give the same token with every compiler and processor. Logits are overwritten.
 */
#ifndef RAOT_SAMPLE_H
#define RAOT_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "math.h"

/* The weight of the most likely token. Weights below 1 count as 0. */
#define RAOT_GREATEST_WEIGHT 1099511627776.0f /* 2^40 */
#define RAOT_SAMPLE_BINS 64

/* How to choose. Zeros mean: always the most likely token. */
struct raot_sampling {
    float temperature;        /* logits are divided by it; 0: the most likely token */
    int32_t top_k;            /* only the most likely k tokens, and those as likely; 0: all */
    float top_p;              /* only the most likely tokens of this total probability; 0: all */
    float min_p;              /* only tokens at least this times as likely as the first; 0: all */
    float repetition_penalty; /* logits of earlier tokens are divided by it, or multiplied if they
                                 are negative; 0: they are not changed */
};

/* PCG-XSH-RR with 64 bits of state (O'Neill, HMC-CS-2014-0905). */
struct raot_random {
    uint64_t state;
    uint64_t increment;
};

static inline uint32_t raot_random_next(struct raot_random *random)
{
    const uint64_t state = random->state;
    const uint32_t mixed = (uint32_t)(((state >> 18) ^ state) >> 27);
    const uint32_t rotation = (uint32_t)(state >> 59);

    random->state = state * UINT64_C(6364136223846793005) + random->increment;
    return mixed >> rotation | mixed << ((32u - rotation) & 31u);
}

static inline struct raot_random raot_random_from(uint64_t seed, uint64_t sequence)
{
    struct raot_random random = {0u, sequence << 1 | 1u};

    (void)raot_random_next(&random);
    random.state += seed;
    (void)raot_random_next(&random);
    return random;
}

/* A number below `bound`, which is less than 2^63: floor(bound * r / 2^64) for 64 random bits r. */
static inline uint64_t raot_random_below(struct raot_random *random, uint64_t bound)
{
    const uint64_t high = raot_random_next(random);
    const uint64_t low = raot_random_next(random);
    const uint64_t bound_high = bound >> 32;
    const uint64_t bound_low = bound & 0xFFFFFFFFu;
    const uint64_t carried = (low * bound_low >> 32) + (high * bound_low & 0xFFFFFFFFu) +
                             (low * bound_high & 0xFFFFFFFFu);

    return high * bound_high + (high * bound_low >> 32) + (low * bound_high >> 32) +
           (carried >> 32);
}

/* A number that orders floats, which are not NaN; both zeros have the same. */
static inline uint32_t raot_sample_key(float value)
{
    const uint32_t bits = raot_bitsf(value + 0.0f);

    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

static inline uint64_t raot_sample_weight(float probability)
{
    return (uint64_t)(probability * RAOT_GREATEST_WEIGHT);
}

/*
 * The greatest key so that the values with at least this key count `wanted` or more; `weighted`:
 * so that their weights are `wanted` or more. The sum of all is at least `wanted`. The radix is
 * chosen from the highest bits on.
 */
static inline uint32_t raot_sample_threshold(const float *values, int32_t count, uint64_t wanted,
                                             int weighted)
{
    uint32_t prefix = 0u;
    uint32_t known = 0u; /* bits of the prefix */
    uint32_t shift = 32u;

    while (shift > 0u) {
        const uint32_t width = shift < 6u ? shift : 6u;
        uint64_t bins[RAOT_SAMPLE_BINS] = {0};
        uint32_t bin = (1u << width) - 1u;

        shift -= width;
        for (int32_t i = 0; i < count; i++) {
            const uint32_t key = raot_sample_key(values[i]);

            if ((key & known) == prefix) {
                bins[key >> shift & ((1u << width) - 1u)] +=
                    weighted != 0 ? raot_sample_weight(values[i]) : 1u;
            }
        }
        while (bin > 0u && bins[bin] < wanted) {
            wanted -= bins[bin];
            bin--;
        }
        prefix |= bin << shift;
        known |= ((1u << width) - 1u) << shift;
    }
    return prefix;
}

static inline int32_t raot_most_likely(const float *logits, int32_t count)
{
    int32_t best = 0;

    for (int32_t i = 1; i < count; i++) {
        if (logits[i] > logits[best] || logits[best] != logits[best]) {
            best = i;
        }
    }
    return best;
}

/* Changes the logits of tokens whose bits are set in `seen`. */
static inline void raot_penalize(float *logits, int32_t count, const unsigned char *seen,
                                 float penalty)
{
    for (int32_t i = 0; i < count; i++) {
        if ((seen[i / 8] >> (i % 8) & 1) != 0) {
            logits[i] = logits[i] < 0.0f ? logits[i] * penalty : logits[i] / penalty;
        }
    }
}

/* The logarithm of the probability of a token, from logits as the model computes them. */
static inline float raot_log_probability(const float *logits, int32_t count, int32_t token)
{
    const float peak = logits[raot_most_likely(logits, count)];
    uint64_t total = 0u;

    for (int32_t i = 0; i < count; i++) {
        const float probability = raot_expf(logits[i] - peak);

        total += probability > 0.0f ? raot_sample_weight(probability) : 0u;
    }
    return logits[token] - peak - raot_logf((float)total / RAOT_GREATEST_WEIGHT);
}

/* Makes probabilities of logits, relative to the first one, and 0 of those that are excluded. */
static inline void raot_sample_weigh(float *logits, int32_t count, const struct raot_sampling *how,
                                     float peak)
{
    uint32_t least = 0u;

    for (int32_t i = 0; i < count; i++) {
        logits[i] = logits[i] == logits[i] ? logits[i] : -RAOT_INFINITY;
    }
    if (how->top_k > 0 && how->top_k < count) {
        least = raot_sample_threshold(logits, count, (uint64_t)how->top_k, 0);
    }
    for (int32_t i = 0; i < count; i++) {
        const int kept = raot_sample_key(logits[i]) >= least;
        const float probability =
            kept != 0 ? raot_expf((logits[i] - peak) / how->temperature) : 0.0f;

        logits[i] = probability > 0.0f ? probability : 0.0f;
    }
    if (how->top_p > 0.0f && how->top_p < 1.0f) {
        uint64_t total = 0u;

        for (int32_t i = 0; i < count; i++) {
            total += raot_sample_weight(logits[i]);
        }
        total = (uint64_t)((double)how->top_p * (double)total);
        least = raot_sample_threshold(logits, count, total > 0u ? total : 1u, 1);
        for (int32_t i = 0; i < count; i++) {
            logits[i] = raot_sample_key(logits[i]) >= least ? logits[i] : 0.0f;
        }
    }
}

/* Chooses a token. `seen` has a bit for each token that a penalty concerns, or is NULL. */
static inline int32_t raot_sample(float *logits, int32_t count, const struct raot_sampling *how,
                                  const unsigned char *seen, struct raot_random *random)
{
    const float penalty = how->repetition_penalty;
    int32_t best;
    uint64_t total = 0u;

    if (seen != NULL && penalty > 0.0f && (penalty < 1.0f || penalty > 1.0f)) {
        raot_penalize(logits, count, seen, penalty);
    }
    best = raot_most_likely(logits, count);
    if (!(how->temperature > 0.0f)) {
        return best;
    }
    raot_sample_weigh(logits, count, how, logits[best]);
    for (int32_t i = 0; i < count; i++) {
        logits[i] = logits[i] >= how->min_p ? logits[i] : 0.0f;
        total += raot_sample_weight(logits[i]);
    }
    if (total == 0u) {
        return best;
    }
    total = raot_random_below(random, total);
    for (int32_t i = 0; i < count; i++) {
        const uint64_t weight = raot_sample_weight(logits[i]);

        if (total < weight) {
            return i;
        }
        total -= weight;
    }
    return best;
}

#endif
