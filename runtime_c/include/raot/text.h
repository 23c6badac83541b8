/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - options and memory of functions between text and tokens. */
#ifndef RAOT_TEXT_H
#define RAOT_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Options of encoding, to be joined by |. */
#define RAOT_ENCODE_FRAME 1u   /* the tokens that begin and end a text, as the checkpoint says */
#define RAOT_ENCODE_SPECIAL 2u /* names of special tokens in the text are these tokens */

/* Scratch memory for words of up to `longest` bytes, which are at least RAOT_ENCODE_LEAST. */
#define RAOT_ENCODE_BYTES(longest) ((size_t)(longest)*RAOT_ENCODE_BYTES_EACH + 64u)
#define RAOT_ENCODE_BYTES_EACH 25u
#define RAOT_ENCODE_LEAST 16u

/* The bytes of the longest word that scratch memory has room for. */
#define RAOT_ENCODE_LONGEST(bytes) (((bytes)-RAOT_ENCODE_BYTES(0)) / RAOT_ENCODE_BYTES_EACH)

/* Instead of a token: the text ends. */
#define RAOT_TEXT_END (-1)

/* A part of a text: one of the program, or one of a user. */
struct raot_piece {
    const char *text;
    size_t bytes;
    uint32_t options; /* RAOT_ENCODE_SPECIAL, or 0 */
};

/* Room for the text of a token of `longest` bytes. */
#define RAOT_TEXT_BYTES(longest) (3u * ((size_t)(longest) + 4u))

/* A text that is being decoded; begin with zeros. */
struct raot_text {
    unsigned char held[4]; /* the start of a code point whose rest is missing */
    unsigned char held_bytes;
    unsigned char begun;         /* 1 behind the first token */
    unsigned char spoken;        /* 1 behind the first byte */
    unsigned char keeps_special; /* set it to 1 to see special tokens as text */
};

#endif
