/* SPDX-License-Identifier: Apache-2.0 */
/* propose.h - tokens that may follow, found earlier in a text. */
#ifndef RAOT_PROPOSE_H
#define RAOT_PROPOSE_H

#include <stdint.h>

/* So many tokens must be equal, and more than the second number are not compared. */
#define RAOT_PROPOSE_LEAST 2
#define RAOT_PROPOSE_LONGEST 4

/* How many of the last tokens of a text are also those before place `end`. */
static inline int32_t raot_equal_tokens(const int32_t *tokens, int32_t count, int32_t end)
{
    const int32_t most = end < RAOT_PROPOSE_LONGEST ? end : RAOT_PROPOSE_LONGEST;
    int32_t equal = 0;

    while (equal < most && tokens[end - 1 - equal] == tokens[count - 1 - equal]) {
        equal++;
    }
    return equal;
}

/*
 * Proposes tokens behind a text of `count` tokens: those that follow its last tokens where these
 * stand earlier. Where more of them are equal, the proposal is more likely, and the latest of
 * several places counts. Writes up to `most` tokens behind the text, where there is memory for
 * them; returns their number, which is 0 if the last tokens are new.
 */
static inline int32_t raot_propose(int32_t *tokens, int32_t count, int32_t most)
{
    int32_t best = RAOT_PROPOSE_LEAST - 1;
    int32_t place = 0;

    for (int32_t end = count - 1; end > 0 && best < RAOT_PROPOSE_LONGEST; end--) {
        const int32_t equal = raot_equal_tokens(tokens, count, end);

        if (equal > best) {
            best = equal;
            place = end;
        }
    }
    if (place == 0) {
        return 0;
    }
    for (int32_t i = 0; i < most; i++) {
        tokens[count + i] = tokens[place + i]; /* of a repetition, also what was proposed */
    }
    return most;
}

#endif
