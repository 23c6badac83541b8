/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h - the tables of a tokenizer, and memory to encode with it. */
#ifndef RAOT_TOKENIZER_H
#define RAOT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "nfc.h"
#include "pattern.h"
#include "status.h"
#include "text.h"
#include "words.h"

/* The most patterns that divide texts one after the other. */
#define RAOT_MOST_PATTERNS 8

/* Added tokens that are special, and that take the spaces before and behind their names. */
#define RAOT_ADDED_SPECIAL 1u
#define RAOT_ADDED_BEFORE 2u
#define RAOT_ADDED_BEHIND 4u

enum raot_tokenizer_model {
    RAOT_BPE_BYTES,  /* byte-level BPE: a word begins as its bytes */
    RAOT_BPE_POINTS, /* BPE that begins with code points */
    RAOT_UNIGRAM     /* the most likely sequence of words */
};

enum raot_spaces {
    RAOT_SPACES_PLAIN,      /* bytes of tokens are text */
    RAOT_SPACES_MARKED,     /* U+2581 is a space, <0xHH> a byte */
    RAOT_SPACES_STRIP_TEXT, /* and the text has one space less at its start */
    RAOT_SPACES_STRIP_TOKEN /* and the first token has no spaces */
};

/* Whether a part of a text begins with the prefix of the tokenizer. */
enum raot_prefix {
    RAOT_PREFIX_NEVER,
    RAOT_PREFIX_ALWAYS,
    RAOT_PREFIX_ONCE, /* unless it begins with it anyway */
    RAOT_PREFIX_FIRST /* likewise, in the first part of a text alone */
};

/* Merges by their left part, then by their right one. */
struct raot_merges {
    const uint32_t *first; /* [words + 1]: where those of each left part begin */
    struct raot_numbers right;
    struct raot_numbers result;
    struct raot_numbers rank;
};

/* A code point that normalization replaces. */
struct raot_replacement {
    uint32_t point;
    uint32_t bytes;
    unsigned char text[12];
};

struct raot_tokenizer {
    struct raot_words words; /* by token */
    struct raot_words added; /* tokens that are found in texts before anything else */
    const int32_t *added_tokens;
    const unsigned char *added_flags; /* RAOT_ADDED_* */
    const unsigned char *special;     /* a bit for each token that decoding drops */
    const int32_t *byte_tokens;       /* [256]: the token of each byte, -1 without; or NULL */
    struct raot_merges merges;
    const float *scores;    /* of unigram tokens: float32 */
    const double *scores64; /* or float64 */
    double unknown_score;
    struct raot_point_table classes;
    const struct raot_pattern *patterns;
    const struct raot_nfc_tables *nfc; /* NULL without normalization */
    const struct raot_replacement *replacements;
    const unsigned char *prefix; /* normalized text before each part of a text */
    const int32_t *frame;        /* tokens before a text, then those behind it */
    int32_t count;               /* of tokens */
    int32_t added_count;
    int32_t pattern_count;
    int32_t replacement_count;
    int32_t prefix_bytes;
    int32_t frame_before;
    int32_t frame_behind;
    int32_t unknown;     /* the token of unknown text, or -1 */
    int32_t fuses;       /* 1 if neighbors that are unknown are one token */
    int32_t whole_words; /* 1 if words that are tokens are not divided */
    enum raot_prefix prefix_rule;
    enum raot_tokenizer_model model;
    enum raot_spaces spaces;
};

#endif
