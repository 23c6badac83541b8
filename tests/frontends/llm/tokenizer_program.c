/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes what it reads: texts with their lengths, or tokens with their number. */
#include "toy_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

static int read_number(int32_t *value)
{
    return fread(value, sizeof *value, 1u, stdin) == 1u;
}

static void write_numbers(const int32_t *values, int32_t count)
{
    (void)fwrite(values, sizeof *values, (size_t)count, stdout);
}

/* Memory without a byte more than is needed, for sanitizers. */
static void *memory(size_t bytes)
{
    void *const found = malloc(bytes > 0u ? bytes : 1u);

    if (found == NULL) {
        exit(2);
    }
    return found;
}

static void encode(int32_t bytes, uint32_t options, int32_t longest, int32_t capacity)
{
    char *const text = memory((size_t)bytes);
    const size_t room = TOY_TOKENIZER_SCRATCH_BYTES(longest);
    void *const scratch = memory(room);
    int32_t *const tokens = memory(capacity > 0 ? sizeof *tokens * (size_t)capacity : 0u);
    int32_t answer[2] = {0, 0};

    if (fread(text, 1u, (size_t)bytes, stdin) != (size_t)bytes) {
        exit(3);
    }
    answer[0] =
        toy_encode(text, (size_t)bytes, options, scratch, room, tokens, capacity, &answer[1]);
    write_numbers(answer, 2);
    write_numbers(tokens, answer[1]);
    free(text);
    free(scratch);
    free(tokens);
}

static void decode(int32_t count)
{
    struct raot_text state = {0};
    int32_t last = 0;

    for (int32_t i = 0; i <= count; i++) {
        char text[TOY_TOKENIZER_TEXT_BYTES];
        int32_t answer[2];
        int32_t token = RAOT_TEXT_END;
        size_t bytes = 0u;

        if (i < count && !read_number(&token)) {
            exit(3);
        }
        answer[0] = toy_decode_text(&state, token, text, sizeof text, &bytes);
        answer[1] = (int32_t)bytes;
        write_numbers(answer, 2);
        (void)fwrite(text, 1u, bytes, stdout);
        last = token;
    }
    if (last != RAOT_TEXT_END) {
        exit(4);
    }
}

int main(void)
{
    int32_t order[5];

    while (read_number(&order[0])) {
        if (order[0] == 1 && read_number(&order[1])) {
            decode(order[1]);
        } else if (read_number(&order[1]) && read_number(&order[2]) && read_number(&order[3]) &&
                   read_number(&order[4])) {
            encode(order[1], (uint32_t)order[2], order[3], order[4]);
        }
    }
    return 0;
}
