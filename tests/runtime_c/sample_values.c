/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of sample.h for the tests. */
#include "raot/sample.h"

void draw(uint64_t seed, uint64_t sequence, uint32_t *values, int32_t count);
int32_t sample(float *logits, int32_t count, const struct raot_sampling *how,
               const unsigned char *seen, uint64_t seed);
float log_probability(const float *logits, int32_t count, int32_t token);

void draw(uint64_t seed, uint64_t sequence, uint32_t *values, int32_t count)
{
    struct raot_random random = raot_random_from(seed, sequence);

    for (int32_t i = 0; i < count; i++) {
        values[i] = raot_random_next(&random);
    }
}

int32_t sample(float *logits, int32_t count, const struct raot_sampling *how,
               const unsigned char *seen, uint64_t seed)
{
    struct raot_random random = raot_random_from(seed, 0u);

    return raot_sample(logits, count, how, seen, &random);
}

float log_probability(const float *logits, int32_t count, int32_t token)
{
    return raot_log_probability(logits, count, token);
}
