/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair_sums.h - the blocks of multiply_pairs.h for cores without SMLAD.
 *
 * Sums with the first weight of two and with both are kept, as in assembly there. Armv6-M
 * multiplies elements of pairs in registers: SXTH and ASR extract them, and MULS overwrites one
 * factor. Pairs and weights are aligned to four bytes.
 */
#ifndef RAOT_PAIR_SUMS_H
#define RAOT_PAIR_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "assembly.h"

/* The first of two weights. */
static inline int32_t raot_pair_first(int32_t both)
{
    return (int8_t)(uint8_t)((uint32_t)both & 0xffu);
}

#if !defined(RAOT_ASM_THUMB)
/* A start and the sum of the second channel, which is a 256th of the difference. */
static inline int32_t raot_pair_second(int32_t start, uint32_t both, uint32_t first)
{
    return (int32_t)((uint32_t)start + (uint32_t)((int32_t)(both - first) / 256));
}

/* clang-format off */
#if defined(RAOT_ASM_THUMB_1)
/* Positions of a tile. */
#define RAOT_PAIR_TILE 2
/*
 * Sums of two channels at two positions, over `lines` of TAPS pairs: with the first channel, and with
 * both.
 *
 *     r8, r10, r11, r12    products with the first channel, and with both
 *     r2, r3               pairs, later their second elements
 *     r4, r5               weights, later those of the second elements; one of them
 *     r6, r7               products
 *     r0, r1, lr           the next pairs and weights, end of the weights
 *
 *     [sp, #12]            sums
 */
#define RAOT_PAIR_ADD(X, SUM, WEIGHT) "muls " X ", " WEIGHT "\n add " SUM ", " X "\n"
#define RAOT_PAIR_FIRST_ELEMENTS(A, B) \
    "sxth r6, r2\n" RAOT_PAIR_ADD("r6", A, "r5") "sxth r7, r3\n" RAOT_PAIR_ADD("r7", B, "r5")
#define RAOT_PAIR_STEP(BY) \
    "ldmia r1!, {r4}\n ldmia r0!, {r2, r3}\n" BY "\n" \
    "sxtb r5, r4\n" RAOT_PAIR_FIRST_ELEMENTS("r8", "r10") \
    "sxth r5, r4\n" RAOT_PAIR_FIRST_ELEMENTS("r11", "r12") \
    "asrs r4, r4, #16\n asrs r2, r2, #16\n asrs r3, r3, #16\n sxtb r5, r4\n" \
    "movs r6, r2\n" RAOT_PAIR_ADD("r6", "r8", "r5") "movs r7, r3\n" RAOT_PAIR_ADD("r7", "r10", "r5") \
    RAOT_PAIR_ADD("r2", "r11", "r4") RAOT_PAIR_ADD("r3", "r12", "r4")
#define RAOT_PAIR_LINE_1(PITCH) RAOT_PAIR_STEP("adds r0, #" PITCH " - 8")
#define RAOT_PAIR_LINE_3(PITCH) \
    RAOT_PAIR_STEP("subs r0, #4") RAOT_PAIR_STEP("subs r0, #4") \
    RAOT_PAIR_STEP("adds r0, #" PITCH " - 16")
#define RAOT_PAIR_BYTES_1 "lsls r3, r3, #2\n"
#define RAOT_PAIR_BYTES_3 "lsls r4, r3, #3\n lsls r3, r3, #2\n adds r3, r4\n"
#define RAOT_PAIR_SUMS(FORM, TAPS, PITCH) \
    RAOT_NAKED static void raot_pair_two_##FORM( \
        RAOT_ARGUMENT uint32_t *sums, RAOT_ARGUMENT const int16_t *pairs, \
        RAOT_ARGUMENT const int16_t *weights, RAOT_ARGUMENT int32_t lines) \
    { \
        __asm volatile( \
            ".syntax unified\n" \
            "push {r0, r4-r7, lr}\n mov r4, r8\n mov r5, r10\n mov r6, r11\n push {r4-r6}\n" \
            "mov r0, r1\n mov r1, r2\n" RAOT_PAIR_BYTES_##TAPS \
            "adds r3, r1\n mov lr, r3\n movs r4, #0\n mov r8, r4\n mov r10, r4\n mov r11, r4\n mov r12, r4\n" \
            "1:\n" RAOT_PAIR_LINE_##TAPS(#PITCH) "cmp r1, lr\n bne 1b\n" \
            "ldr r0, [sp, #12]\n mov r1, r8\n mov r2, r10\n stmia r0!, {r1, r2}\n" \
            "mov r1, r11\n mov r2, r12\n stmia r0!, {r1, r2}\n" \
            "pop {r4-r6}\n mov r8, r4\n mov r10, r5\n mov r11, r6\n pop {r0, r4-r7, pc}\n"); \
    } \
    static inline void raot_pair_tile_##FORM( \
        uint32_t *sums, const int16_t *pairs, const int16_t *weights, int32_t lines, int32_t count) \
    { \
        (void)count; \
        raot_pair_two_##FORM(sums, pairs, weights, lines); \
    }
#else
#define RAOT_PAIR_TILE 3
/* The same at `count` positions, one or three. */
#define RAOT_PAIR_SUMS(FORM, TAPS, PITCH) \
    static inline void raot_pair_tile_##FORM( \
        uint32_t *sums, const int16_t *pairs, const int16_t *weights, int32_t lines, int32_t count) \
    { \
        uint32_t a = 0; \
        uint32_t b = 0; \
        uint32_t c = 0; \
        uint32_t all_a = 0; \
        uint32_t all_b = 0; \
        uint32_t all_c = 0; \
        /*@ loop unroll 4096; */ \
        for (int32_t j = 0; j < lines; j++) { \
            /*@ loop unroll 4096; */ \
            for (int32_t k = 0; k < 2 * TAPS; k++) { \
                const int32_t both = *weights++; \
                const int32_t first = raot_pair_first(both); \
                a += (uint32_t)(first * pairs[k]); \
                all_a += (uint32_t)(both * pairs[k]); \
                if (count == RAOT_PAIR_TILE) { \
                    b += (uint32_t)(first * pairs[k + 2]); \
                    all_b += (uint32_t)(both * pairs[k + 2]); \
                    c += (uint32_t)(first * pairs[k + 4]); \
                    all_c += (uint32_t)(both * pairs[k + 4]); \
                } \
            } \
            pairs += PITCH / 2; \
        } \
        sums[0] = a; \
        sums[1] = b; \
        sums[2] = c; \
        sums[3] = all_a; \
        sums[4] = all_b; \
        sums[5] = all_c; \
    }
#endif

/* What raot_pair_tiles of multiply_pairs.h does. */
#define RAOT_PAIR_TILES(FORM, TAPS, ROW, PITCH) \
    RAOT_PAIR_SUMS(FORM, TAPS, PITCH) \
    static inline void raot_pair_tiles_##FORM( \
        int32_t *sums, const int16_t *pairs, const int16_t *weights, const int32_t *bias, \
        int32_t lines, int32_t threes, int32_t twos, int32_t channels, int32_t bytes) \
    { \
        const int32_t positions = 3 * threes + 2 * twos; \
        /*@ loop unroll 4096; */ \
        for (int32_t n = 0; n < channels; n += 2) { \
            int32_t p = 0; \
            /*@ loop unroll 4096; */ \
            while (p < positions) { \
                const int32_t count = p + RAOT_PAIR_TILE <= positions ? RAOT_PAIR_TILE : (int32_t)1; \
                uint32_t tile[2 * RAOT_PAIR_TILE]; \
                raot_pair_tile_##FORM(tile, pairs + 2 * p, weights, lines, count); \
                /*@ loop unroll 4096; */ \
                for (int32_t i = 0; i < count; i++) { \
                    int32_t *const to = sums + p + i; \
                    const int32_t a = bias != NULL ? bias[n] : to[0]; \
                    const int32_t b = bias != NULL ? bias[n + 1] : to[ROW / 4]; \
                    to[0] = (int32_t)((uint32_t)a + tile[i]); \
                    to[ROW / 4] = raot_pair_second(b, tile[RAOT_PAIR_TILE + i], tile[i]); \
                } \
                p += count; \
            } \
            weights += bytes / 2; \
            sums += 2 * ROW / 4; \
        } \
    }
RAOT_PAIR_TILES(1, 1, 48, 48)
RAOT_PAIR_TILES(3, 3, 48, 56)
RAOT_PAIR_TILES(1_wide, 1, 96, 96)
RAOT_PAIR_TILES(3_wide, 3, 96, 104)
/* clang-format on */

/* What raot_pair_row_tiles of multiply_pairs.h does. */
static inline void raot_pair_row_tiles(int32_t *sums, const int16_t *pairs, const int16_t *weights,
                                       const int32_t *starts, int32_t groups, int32_t count,
                                       int32_t skip)
{
    /*@ loop unroll 4096; */
    for (int32_t n = 0; n < 4 * groups; n += 4) {
        uint32_t a = 0;
        uint32_t b = 0;
        uint32_t all_a = 0;
        uint32_t all_b = 0;
        /*@ loop unroll 4096; */
        for (int32_t j = 0; j < count; j++) {
            /*@ loop unroll 4096; */
            for (int32_t k = 0; k < 4; k++) {
                const int32_t x = pairs[4 * j + k];
                a += (uint32_t)(x * raot_pair_first(weights[k]));
                b += (uint32_t)(x * raot_pair_first(weights[k + 4]));
                all_a += (uint32_t)(x * weights[k]);
                all_b += (uint32_t)(x * weights[k + 4]);
            }
            weights += 8;
        }
        sums[n] = (int32_t)((uint32_t)starts[n] + a);
        sums[n + 1] = raot_pair_second(starts[n + 1], all_a, a);
        sums[n + 2] = (int32_t)((uint32_t)starts[n + 2] + b);
        sums[n + 3] = raot_pair_second(starts[n + 3], all_b, b);
        weights += skip / 2;
    }
}
#endif

#endif
