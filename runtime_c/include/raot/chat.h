/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chat.h - the texts between the messages of a conversation.
 *
 * A model that was trained for conversations expects texts before, between and behind messages,
 * often with special tokens. They are pieces of a text like the messages, which have no special
 * tokens: no user can write one into a message.
 */
#ifndef RAOT_CHAT_H
#define RAOT_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "space.h"
#include "status.h"
#include "text.h"
#include "utf8.h"

/* The most messages of one call, and the pieces that they become. */
#define RAOT_CHAT_MESSAGES 16
#define RAOT_CHAT_PIECES (2 * RAOT_CHAT_MESSAGES + 1)

/* At the ends of a message. */
#define RAOT_TRIM_START 1
#define RAOT_TRIM_END 2

enum raot_role { RAOT_SYSTEM, RAOT_USER, RAOT_ASSISTANT };

/* One message. */
struct raot_message {
    enum raot_role role;
    const char *text;
    size_t bytes;
};

/* The texts around messages. */
struct raot_chat {
    struct raot_piece alone;  /* before the first message of a user, without one of the system */
    struct raot_piece system; /* before a message of the system */
    struct raot_piece user;   /* between it and the first message of a user */
    struct raot_piece answer; /* behind a message of a user, before the answer is generated */
    struct raot_piece given;  /* or before an answer that is given */
    struct raot_piece next;   /* between an answer and the next message of a user */
    uint32_t options;         /* RAOT_ENCODE_FRAME: it begins with the frame of the tokenizer */
    int32_t has_system;       /* 1 if there may be a message of the system */
    int32_t trims[3];         /* by role, RAOT_TRIM_*: the spaces that messages lose */
    int32_t joined_bytes;     /* of `user`, if the message behind it has no text but spaces: both
                                 lose them at their end; -1: that message is like any other */
};

/* 1 for the spaces that Python's `str.strip` removes. */
static inline int raot_chat_is_space(uint32_t point)
{
    return raot_is_space(point) != 0 || (point >= 0x1Cu && point <= 0x1Fu) ? 1 : 0;
}

/* A message as a piece, without the spaces that it loses. */
static inline struct raot_piece raot_chat_piece(const struct raot_message *message, int32_t trims)
{
    const unsigned char *const text = (const unsigned char *)message->text;
    struct raot_piece piece = {message->text, 0u, 0u};
    size_t start = 0u; /* the first byte that is no space */
    size_t at = 0u;

    if (text == NULL || trims == 0) {
        piece.bytes = message->bytes;
        return piece;
    }
    while (at < message->bytes) {
        const int begun = piece.bytes > 0u;
        const size_t before = at;

        if (raot_chat_is_space(raot_utf8_next(text, message->bytes, &at)) == 0) {
            start = begun != 0 ? start : before;
            piece.bytes = at;
        }
    }
    start = (trims & RAOT_TRIM_START) != 0 ? start : 0u;
    piece.bytes = (trims & RAOT_TRIM_END) != 0 ? piece.bytes : message->bytes;
    piece.text += start;
    piece.bytes -= start;
    return piece;
}

/*
 * The pieces of messages: a system's, if there is one, then a user's, which answers and further
 * ones of the user may follow in turn. `continues`: they are behind an answer. Writes up to
 * RAOT_CHAT_PIECES pieces and their number. A system's message without text counts as none.
 *
 * RAOT_ERR_MISMATCH: roles are in another order, or the template has no place for a system's.
 */
static inline enum raot_status raot_chat_pieces(const struct raot_chat *by,
                                                const struct raot_message *messages, int32_t count,
                                                int continues, struct raot_piece *pieces,
                                                int32_t *made)
{
    int32_t first = 0; /* message of a user */
    int says = 0;      /* 1 behind text of the system */
    int32_t filled = 0;

    if (messages == NULL) {
        return RAOT_ERR_NULL;
    }
    if (count < 1 || count > RAOT_CHAT_MESSAGES) {
        return RAOT_ERR_SIZE;
    }
    pieces[filled++] = continues != 0 ? by->next : by->alone;
    if (messages[0].role == RAOT_SYSTEM) {
        first = 1;
        pieces[1] = raot_chat_piece(&messages[0], by->trims[RAOT_SYSTEM]);
        if (continues != 0 || (pieces[1].bytes > 0u && by->has_system == 0)) {
            return RAOT_ERR_MISMATCH;
        }
        if (pieces[1].bytes > 0u) {
            pieces[0] = by->system;
            pieces[2] = by->user;
            filled = 3;
            says = 1;
        }
    }
    if ((count - first) % 2 == 0) {
        return RAOT_ERR_MISMATCH;
    }
    for (int32_t i = first; i < count; i++) {
        const int users = (i - first) % 2 == 0;
        const int joined = says != 0 && i == first && by->joined_bytes >= 0;

        if (messages[i].role != (users != 0 ? RAOT_USER : RAOT_ASSISTANT)) {
            return RAOT_ERR_MISMATCH;
        }
        pieces[filled] = raot_chat_piece(&messages[i],
                                         joined != 0 ? RAOT_TRIM_END : by->trims[messages[i].role]);
        if (joined != 0 && pieces[filled].bytes == 0u) {
            pieces[2].bytes = (size_t)by->joined_bytes;
        }
        filled++;
        pieces[filled++] = users == 0 ? by->next : i + 1 < count ? by->given : by->answer;
    }
    *made = filled;
    return RAOT_OK;
}

#endif
