/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply_pairs.h - integer contractions of 8-bit weights and 16-bit pairs by SMLAD. Armv7-M
 * multiplies the elements of pairs by MLA; other cores do so in pair_sums.h.
 *
 * Two channels and three output positions are computed together, up to twelve positions per call,
 * or 24 in the wide forms.
 * `pairs` are those of gather_pairs.h. Weights are bytes: weights[n / 2][k][h] is that of channel n
 * (even) plus 256 times that of channel n + 1, for element h of pair k. SXTB16 extracts the first
 * of them. The second is not extracted: the sum of products with both, less the sum of products
 * with the first, is 256 times its sum, which is less than 2^23 in magnitude for a block of pairs.
 * Sums wrap.
 *
 *     raot_multiply_pairs_1    the pairs of each k at twelve (24) positions
 *     raot_multiply_pairs_3    windows of three adjacent columns: k = 3 * line + tap reads
 *                              position p + tap of the fourteen (26) pairs of a line
 *     raot_multiply_pair_row   one position, four channels at a time:
 *                              weights[n / 4][k / 2][n % 4 / 2][k % 2][h]
 *     raot_multiply_pair_row_f32   the same, as floats: out = sum * scale * row + start, for any
 *                              number of channels. Pairs are signed bytes, aligned to four bytes
 *
 * Channels are computed up to a multiple of two or four. Each has twelve or 24 sums (one for
 * raot_multiply_pair_row); those of further positions are undefined.
 */
#ifndef RAOT_MULTIPLY_PAIRS_H
#define RAOT_MULTIPLY_PAIRS_H

#include <stddef.h>
#include <stdint.h>

#include "copy.h"
#include "dsp.h"
#include "pair_sums.h"

/* Pairs whose weights are read from flash once for all positions: 216 bytes. */
#define RAOT_PAIR_BLOCK 54
/* Pairs of a block of raot_multiply_pair_row. */
#define RAOT_PAIR_ROW_BLOCK 120

#if defined(RAOT_ASM_THUMB)
/*
 *     r3, r7, r10    products with the first channel, at three positions
 *     r11, r12, lr   products with both channels
 *     r4 to r6       pairs, or without SMLAD one element of each
 *     r8, r0         weights of both channels, of the first one
 *     r1, r2         the next weights and pairs
 *
 * Loads follow each other, because each after the first one takes one cycle.
 */
#if defined(__ARM_FEATURE_DSP)
#define RAOT_PAIR_LOAD(X, AT) "ldr.w " X ", [r2, #" AT "]\n"
#define RAOT_PAIR_WEIGHTS "ldr.w r8, [r1], #4\n"
#define RAOT_PAIR_PRODUCTS(A, B, C)                                                   \
    "sxtb16 r0, r8\n"                                                                 \
    "smlad r3, r0, " A ", r3\n smlad r7, r0, " B ", r7\n smlad r10, r0, " C ", r10\n" \
    "smlad r11, r8, " A ", r11\n smlad r12, r8, " B ", r12\n smlad lr, r8, " C ", lr\n"
#define RAOT_PAIR_PRODUCTS_OF_TWO(A, B)                   \
    "sxtb16 r0, r8\n"                                     \
    "smlad r3, r0, " A ", r3\n smlad r7, r0, " B ", r7\n" \
    "smlad r11, r8, " A ", r11\n smlad r12, r8, " B ", r12\n"

/* One pair at three or two positions from AT on; CHECK and TEST stand in the last one of an
   iteration. */
#define RAOT_PAIR_STEP(AT, CHECK, TEST)                                                            \
    CHECK RAOT_PAIR_LOAD("r4", AT) RAOT_PAIR_LOAD("r5", AT " + 4") RAOT_PAIR_LOAD("r6", AT " + 8") \
        RAOT_PAIR_WEIGHTS TEST RAOT_PAIR_PRODUCTS("r4", "r5", "r6")
#define RAOT_PAIR_STEP_OF_TWO(AT, CHECK, TEST)                     \
    CHECK RAOT_PAIR_LOAD("r4", AT) RAOT_PAIR_LOAD("r5", AT " + 4") \
        RAOT_PAIR_WEIGHTS TEST RAOT_PAIR_PRODUCTS_OF_TWO("r4", "r5")
/* Three taps of a line. */
#define RAOT_PAIR_LINE(AT, CHECK, TEST)                                                     \
    RAOT_PAIR_LOAD("r4", AT)                                                                \
    RAOT_PAIR_LOAD("r5", AT " + 4")                                                         \
    RAOT_PAIR_LOAD("r6", AT " + 8")                                                         \
    RAOT_PAIR_WEIGHTS RAOT_PAIR_PRODUCTS("r4", "r5", "r6") RAOT_PAIR_LOAD("r4", AT " + 12") \
        RAOT_PAIR_WEIGHTS RAOT_PAIR_PRODUCTS("r5", "r6", "r4")                              \
            CHECK RAOT_PAIR_LOAD("r5", AT " + 16")                                          \
                RAOT_PAIR_WEIGHTS TEST RAOT_PAIR_PRODUCTS("r6", "r4", "r5")
#define RAOT_PAIR_LINE_OF_TWO(AT, CHECK, TEST)                                              \
    RAOT_PAIR_LOAD("r4", AT)                                                                \
    RAOT_PAIR_LOAD("r5", AT " + 4")                                                         \
    RAOT_PAIR_WEIGHTS RAOT_PAIR_PRODUCTS_OF_TWO("r4", "r5") RAOT_PAIR_LOAD("r4", AT " + 8") \
        RAOT_PAIR_WEIGHTS RAOT_PAIR_PRODUCTS_OF_TWO("r5", "r4")                             \
            CHECK RAOT_PAIR_LOAD("r5", AT " + 12")                                          \
                RAOT_PAIR_WEIGHTS TEST RAOT_PAIR_PRODUCTS_OF_TWO("r4", "r5")
#define RAOT_PAIR_CHECK "ldr.w r0, [sp]\n"
#define RAOT_PAIR_TEST "cmp r1, r0\n"

/* clang-format off */
/* An iteration; lines of pairs are PITCH bytes apart. */
#define RAOT_PAIR_STEPS_1(PITCH) \
    RAOT_PAIR_STEP("0 * " PITCH, , ) \
    RAOT_PAIR_STEP("1 * " PITCH, , ) \
    RAOT_PAIR_STEP("2 * " PITCH, , ) \
    RAOT_PAIR_STEP("3 * " PITCH, , ) \
    RAOT_PAIR_STEP("4 * " PITCH, , ) \
    RAOT_PAIR_STEP("5 * " PITCH, , ) \
    RAOT_PAIR_STEP("6 * " PITCH, , ) \
    RAOT_PAIR_STEP("7 * " PITCH, RAOT_PAIR_CHECK, RAOT_PAIR_TEST) \
    "add.w r2, r2, #8 * " PITCH "\n"
#define RAOT_PAIR_STEPS_OF_TWO_1(PITCH) \
    RAOT_PAIR_STEP_OF_TWO("0 * " PITCH, , ) \
    RAOT_PAIR_STEP_OF_TWO("1 * " PITCH, , ) \
    RAOT_PAIR_STEP_OF_TWO("2 * " PITCH, , ) \
    RAOT_PAIR_STEP_OF_TWO("3 * " PITCH, RAOT_PAIR_CHECK, RAOT_PAIR_TEST) \
    "add.w r2, r2, #4 * " PITCH "\n"
#define RAOT_PAIR_STEPS_3(PITCH) \
    RAOT_PAIR_LINE("0 * " PITCH, , ) \
    RAOT_PAIR_LINE("1 * " PITCH, , ) \
    RAOT_PAIR_LINE("2 * " PITCH, , ) \
    RAOT_PAIR_LINE("3 * " PITCH, RAOT_PAIR_CHECK, RAOT_PAIR_TEST) \
    "add.w r2, r2, #4 * " PITCH "\n"
#define RAOT_PAIR_STEPS_OF_TWO_3(PITCH) \
    RAOT_PAIR_LINE_OF_TWO("0 * " PITCH, , ) \
    RAOT_PAIR_LINE_OF_TWO("1 * " PITCH, RAOT_PAIR_CHECK, RAOT_PAIR_TEST) \
    "add.w r2, r2, #2 * " PITCH "\n"

/* Bytes of a line of pairs in the loops, and lines of an iteration less one. */
#define RAOT_PAIR_BYTES_1 "44"
#define RAOT_PAIR_LAST_1 "7"
#define RAOT_PAIR_BYTES_OF_TWO_1 "32"
#define RAOT_PAIR_LAST_OF_TWO_1 "3"
#define RAOT_PAIR_BYTES_3 "116"
#define RAOT_PAIR_LAST_3 "3"
#define RAOT_PAIR_BYTES_OF_TWO_3 "88"
#define RAOT_PAIR_LAST_OF_TWO_3 "1"
#else
#define RAOT_PAIR_LOAD(X, AT) "ldrsh.w " X ", [r2, #" AT "]\n"
#define RAOT_PAIR_WEIGHTS(AT) "ldrsb.w r0, [r1, #" AT "]\n ldrsh.w r8, [r1, #" AT "]\n"
#define RAOT_PAIR_NEXT(BY) "ldrsb.w r0, [r1]\n ldrsh r8, [r1], #" BY "\n"
#define RAOT_PAIR_PRODUCTS(A, B, C)                                          \
    "mla r3, r0, " A ", r3\n mla r7, r0, " B ", r7\n mla r10, r0, " C ", r10\n" \
    "mla r11, r8, " A ", r11\n mla r12, r8, " B ", r12\n mla lr, r8, " C ", lr\n"
#define RAOT_PAIR_PRODUCTS_OF_TWO(A, B)              \
    "mla r3, r0, " A ", r3\n mla r7, r0, " B ", r7\n" \
    "mla r11, r8, " A ", r11\n mla r12, r8, " B ", r12\n"
#define RAOT_PAIR_ELEMENTS(AT)                                                        \
    RAOT_PAIR_LOAD("r4", AT) RAOT_PAIR_LOAD("r5", AT " + 4") RAOT_PAIR_LOAD("r6", AT " + 8") \
    RAOT_PAIR_NEXT("2") RAOT_PAIR_PRODUCTS("r4", "r5", "r6")
#define RAOT_PAIR_ELEMENTS_OF_TWO(AT)                            \
    RAOT_PAIR_LOAD("r4", AT) RAOT_PAIR_LOAD("r5", AT " + 4")     \
    RAOT_PAIR_NEXT("2") RAOT_PAIR_PRODUCTS_OF_TWO("r4", "r5")
#define RAOT_PAIR_STEP(AT) RAOT_PAIR_ELEMENTS(AT) RAOT_PAIR_ELEMENTS(AT " + 2")
#define RAOT_PAIR_STEP_OF_TWO(AT) RAOT_PAIR_ELEMENTS_OF_TWO(AT) RAOT_PAIR_ELEMENTS_OF_TWO(AT " + 2")
/* Three taps of one element of a line. NEXT: bytes to the next weights behind the last tap. */
#define RAOT_PAIR_TAPS(AT, NEXT)                                                          \
    RAOT_PAIR_LOAD("r4", AT)                                                              \
    RAOT_PAIR_LOAD("r5", AT " + 4")                                                       \
    RAOT_PAIR_LOAD("r6", AT " + 8")                                                       \
    RAOT_PAIR_NEXT("4")                                                                   \
    RAOT_PAIR_PRODUCTS("r4", "r5", "r6") RAOT_PAIR_LOAD("r4", AT " + 12")                 \
    RAOT_PAIR_NEXT("4") RAOT_PAIR_PRODUCTS("r5", "r6", "r4") RAOT_PAIR_LOAD("r5", AT " + 16") \
    RAOT_PAIR_NEXT(NEXT) RAOT_PAIR_PRODUCTS("r6", "r4", "r5")
#define RAOT_PAIR_TAPS_OF_TWO(AT, NEXT)                                                   \
    RAOT_PAIR_LOAD("r4", AT)                                                              \
    RAOT_PAIR_LOAD("r5", AT " + 4")                                                       \
    RAOT_PAIR_NEXT("4") RAOT_PAIR_PRODUCTS_OF_TWO("r4", "r5") RAOT_PAIR_LOAD("r4", AT " + 8")  \
    RAOT_PAIR_NEXT("4") RAOT_PAIR_PRODUCTS_OF_TWO("r5", "r4") RAOT_PAIR_LOAD("r5", AT " + 12") \
    RAOT_PAIR_NEXT(NEXT) RAOT_PAIR_PRODUCTS_OF_TWO("r4", "r5")
#define RAOT_PAIR_LINE(AT) RAOT_PAIR_TAPS(AT, "-6") RAOT_PAIR_TAPS(AT " + 2", "2")
#define RAOT_PAIR_LINE_OF_TWO(AT) RAOT_PAIR_TAPS_OF_TWO(AT, "-6") RAOT_PAIR_TAPS_OF_TWO(AT " + 2", "2")
#define RAOT_PAIR_END "ldr.w r0, [sp]\n cmp r1, r0\n"

/* clang-format off */
#define RAOT_PAIR_STEPS_1(PITCH) \
    RAOT_PAIR_STEP("0 * " PITCH) RAOT_PAIR_STEP("1 * " PITCH) \
    RAOT_PAIR_STEP("2 * " PITCH) RAOT_PAIR_STEP("3 * " PITCH) "add.w r2, r2, #4 * " PITCH "\n" RAOT_PAIR_END
#define RAOT_PAIR_STEPS_OF_TWO_1(PITCH) \
    RAOT_PAIR_STEP_OF_TWO("0 * " PITCH) RAOT_PAIR_STEP_OF_TWO("1 * " PITCH) \
    "add.w r2, r2, #2 * " PITCH "\n" RAOT_PAIR_END
#define RAOT_PAIR_STEPS_3(PITCH) \
    RAOT_PAIR_LINE("0 * " PITCH) RAOT_PAIR_LINE("1 * " PITCH) "add.w r2, r2, #2 * " PITCH "\n" RAOT_PAIR_END
#define RAOT_PAIR_STEPS_OF_TWO_3(PITCH) \
    RAOT_PAIR_LINE_OF_TWO("0 * " PITCH) "add.w r2, r2, #" PITCH "\n" RAOT_PAIR_END
/* clang-format on */
#define RAOT_PAIR_BYTES_1 "88"
#define RAOT_PAIR_LAST_1 "3"
#define RAOT_PAIR_BYTES_OF_TWO_1 "64"
#define RAOT_PAIR_LAST_OF_TWO_1 "1"
#define RAOT_PAIR_BYTES_3 "232"
#define RAOT_PAIR_LAST_3 "1"
#define RAOT_PAIR_BYTES_OF_TWO_3 "176"
#define RAOT_PAIR_LAST_OF_TWO_3 "0"
#endif

/*
 * The sums of `channels` channels at some positions, in tiles of three and then of two positions,
 * over `lines` of TAPS pairs. Unrolled loops are entered behind the lines that are too many.
 *
 *     [sp]                    end of the weights of two channels
 *     [sp, #4], [sp, #8]      entries of both loops
 *     [sp, #12]               pairs of the first tile of two
 *     [sp, #16], [sp, #20]    pairs of a tile, remaining tiles
 *     [sp, #28], [sp, #32]    starts of both sums, zeros where sums are added to
 *     [sp, #36]               sums of a tile
 *     [sp, #40] to [sp, #52]  sums, pairs, weights, bias (null: sums are added to)
 *     [sp, #56]               saved registers
 *     [sp, #88] to [sp, #104] arguments: lines, tiles of three, tiles of two, channels, and bytes
 *                             of the weights of two channels
 */
#define RAOT_PAIR_TILES(FORM, TAPS, ROW, PITCH)                                                    \
    RAOT_NAKED static void raot_pair_tiles_##FORM(                                                 \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const int16_t *pairs,                           \
        RAOT_ARGUMENT const int16_t *weights, RAOT_ARGUMENT const int32_t *bias,                   \
        RAOT_ARGUMENT int32_t lines, RAOT_ARGUMENT int32_t threes, RAOT_ARGUMENT int32_t twos,     \
        RAOT_ARGUMENT int32_t channels, RAOT_ARGUMENT int32_t bytes)                               \
    {                                                                                              \
        __asm volatile(                                                                            \
            "push {r0-r8, r10, r11, lr}\n sub sp, #40\n"                                           \
            "ldr r4, [sp, #88]\n movs r5, #4 * " #TAPS "\n mla r5, r4, r5, r2\n str r5, [sp]\n"    \
            "negs r7, r4\n and r6, r7, #" RAOT_PAIR_LAST_##TAPS                                    \
            "\n and r7, r7, #" RAOT_PAIR_LAST_OF_TWO_##TAPS                                        \
            "\n"                                                                                   \
            "movs r5, #" PITCH "\n mls r2, r7, r5, r1\n mls r1, r6, r5, r1\n str r1, [sp, #44]\n"  \
            "ldr r4, [sp, #92]\n movs r5, #12\n mla r2, r4, r5, r2\n str r2, [sp, #12]\n"          \
            "adr.w r5, 2f\n movs r4, #" RAOT_PAIR_BYTES_##TAPS                                     \
            "\n mla r5, r6, r4, r5\n orr r5, r5, #1\n"                                             \
            "adr.w r6, 7f\n movs r4, #" RAOT_PAIR_BYTES_OF_TWO_##TAPS                              \
            "\n mla r6, r7, r4, r6\n orr r6, r6, #1\n"                                             \
            "strd r5, r6, [sp, #4]\n"                                                              \
            "10: ldr r3, [sp, #52]\n str r3, [sp, #28]\n cbz r3, 0f\n ldr r5, [r3], #4\n ldr r6, " \
            "[r3], #4\n"                                                                           \
            "strd r5, r6, [sp, #28]\n str r3, [sp, #52]\n"                                         \
            "0: ldr r0, [sp, #40]\n ldr r2, [sp, #44]\n ldr r4, [sp, #92]\n str r0, [sp, #36]\n"   \
            "cbz r4, 5f\n strd r2, r4, [sp, #16]\n"                                                \
            "1: ldr r3, [sp, #28]\n mov r7, r3\n mov r10, r3\n mov r11, r3\n mov r12, r3\n mov "   \
            "lr, r3\n"                                                                             \
            "ldr r1, [sp, #48]\n ldr r2, [sp, #16]\n ldr pc, [sp, #4]\n"                           \
            "5: b.w 5f\n"                                                                          \
            ".balign 4\n"                                                                          \
            "2:\n" RAOT_PAIR_STEPS_##TAPS(PITCH) "bne 2b\n");                                      \
        /* C compilers need not take longer texts than 4095 characters. */                         \
        __asm volatile(                                                                            \
            "sub r11, r11, r3\n sub r12, r12, r7\n sub lr, lr, r10\n"                              \
            "ldrd r5, r0, [sp, #32]\n ldr r6, [sp, #52]\n cbz r6, 3f\n"                            \
            "add r11, r5, r11, asr #8\n add r12, r5, r12, asr #8\n add lr, r5, lr, asr #8\n b "    \
            "4f\n"                                                                                 \
            "3: ldr r1, [r0]\n ldr r2, [r0, #4]\n ldr r4, [r0, #8]\n ldr r5, [r0, #" ROW "]\n"     \
            "ldr r6, [r0, #" ROW " + 4]\n ldr r8, [r0, #" ROW                                      \
            " + 8]\n add r3, r1\n add r7, r2\n add r10, r4\n"                                      \
            "add r11, r5, r11, asr #8\n add r12, r6, r12, asr #8\n add lr, r8, lr, asr #8\n"       \
            "4: stmia r0!, {r3, r7, r10}\n str r11, [r0, #" ROW " - 12]\n"                         \
            "str r12, [r0, #" ROW " - 8]\n str lr, [r0, #" ROW " - 4]\n"                           \
            "ldrd r2, r4, [sp, #16]\n str r0, [sp, #36]\n"                                         \
            "adds r2, #12\n subs r4, #1\n strd r2, r4, [sp, #16]\n bne 1b\n"                       \
            "5: ldr r2, [sp, #12]\n ldr r4, [sp, #96]\n cmp r4, #0\n beq 9f\n"                     \
            "strd r2, r4, [sp, #16]\n"                                                             \
            "6: ldr r3, [sp, #28]\n mov r7, r3\n mov r11, r3\n mov r12, r3\n"                      \
            "ldr r1, [sp, #48]\n ldr r2, [sp, #16]\n ldr pc, [sp, #8]\n"                           \
            ".balign 4\n"                                                                          \
            "7:\n" RAOT_PAIR_STEPS_OF_TWO_##TAPS(                                                  \
                PITCH) "bne 7b\n"                                                                  \
                       "sub r11, r11, r3\n sub r12, r12, r7\n"                                     \
                       "ldrd r5, r0, [sp, #32]\n ldr r6, [sp, #52]\n mov r2, r5\n cbnz r6, 8f\n"   \
                       "ldr r4, [r0]\n ldr r1, [r0, #4]\n ldr r5, [r0, #" ROW                      \
                       "]\n ldr r2, [r0, #" ROW " + 4]\n"                                          \
                       "add r3, r4\n add r7, r1\n"                                                 \
                       "8: add r11, r5, r11, asr #8\n add r12, r2, r12, asr #8\n"                  \
                       "str r3, [r0]\n str r7, [r0, #4]\n str r11, [r0, #" ROW                     \
                       "]\n str r12, [r0, #" ROW " + 4]\n"                                         \
                       "ldrd r2, r4, [sp, #16]\n adds r0, #8\n str r0, [sp, #36]\n"                \
                       "adds r2, #8\n subs r4, #1\n strd r2, r4, [sp, #16]\n bne 6b\n"             \
                       "9: ldr r0, [sp, #40]\n ldr r1, [sp, #48]\n ldr r2, [sp]\n ldr r3, [sp, "   \
                       "#104]\n"                                                                   \
                       "ldr r4, [sp, #100]\n adds r0, #2 * " ROW                                   \
                       "\n str r0, [sp, #40]\n add r1, r3\n str r1, [sp, #48]\n"                   \
                       "add r2, r3\n str r2, [sp]\n subs r4, #2\n str r4, [sp, #100]\n bgt.w "     \
                       "10b\n"                                                                     \
                       "add sp, #56\n pop {r4-r8, r10, r11, pc}\n");                               \
    }
/* clang-format on */
RAOT_PAIR_TILES(1, 1, "48", "48")
RAOT_PAIR_TILES(3, 3, "48", "56")
RAOT_PAIR_TILES(1_wide, 1, "96", "96")
RAOT_PAIR_TILES(3_wide, 3, "96", "104")

/*
 * Sums of `groups` times four channels, over `count` times two pairs, which begin them. `skip`:
 * bytes between the weights of groups.
 *
 *     r3, r10           products with the first channels of two weights
 *     r7, r11           products with both
 *     r4, r5            pairs
 *     r6, r8, r12, lr   weights
 *     r0 to r2          end of the pairs, the next weights and pairs
 *
 *     [sp] to [sp, #12]      pairs, sums, starts, end of the sums
 *     [sp, #16]              entry of the loop, behind the pairs that are too many
 *     [sp, #24]              saved registers
 *     [sp, #56] to [sp, #64] arguments: groups, count, skip
 */
/* clang-format off */
#if defined(__ARM_FEATURE_DSP)
#define RAOT_PAIR_ROW_BEGUN(SUM, A, B) "smuad " SUM ", " A ", " B "\n"
#define RAOT_PAIR_ROW_ADDED(SUM, A, B) "smlad " SUM ", " A ", " B ", " SUM "\n"
#define RAOT_PAIR_ROW_TWO(ADD, BOTH, FIRST, WEIGHTS, PAIR) \
    ADD(BOTH, WEIGHTS, PAIR) "sxtb16 " WEIGHTS ", " WEIGHTS "\n" ADD(FIRST, WEIGHTS, PAIR)
#define RAOT_PAIR_ROW_STEP(ADD, TEST) \
    "ldrd r4, r5, [r2], #8\n ldmia.w r1!, {r6, r8, r12, lr}\n" TEST \
    RAOT_PAIR_ROW_TWO(ADD, "r7", "r3", "r6", "r4") \
    RAOT_PAIR_ROW_TWO(RAOT_PAIR_ROW_ADDED, "r7", "r3", "r8", "r5") \
    RAOT_PAIR_ROW_TWO(ADD, "r11", "r10", "r12", "r4") \
    RAOT_PAIR_ROW_TWO(RAOT_PAIR_ROW_ADDED, "r11", "r10", "lr", "r5")
#define RAOT_PAIR_ROW_BYTES "56"
#define RAOT_PAIR_ROW_LAST "7"
#else
/* r4 is an element, r6 and r12 weights of the first channels, r8 and lr of both. */
#define RAOT_PAIR_ROW_BEGUN(SUM, A, B) "mul " SUM ", " A ", " B "\n"
#define RAOT_PAIR_ROW_ADDED(SUM, A, B) "mla " SUM ", " A ", " B ", " SUM "\n"
#define RAOT_PAIR_ROW_ELEMENT(ADD, AT) \
    "ldrsh r4, [r2], #2\n ldrsb.w r6, [r1, #" AT "]\n ldrsh.w r8, [r1, #" AT "]\n" \
    "ldrsb.w r12, [r1, #" AT " + 8]\n ldrsh.w lr, [r1, #" AT " + 8]\n" \
    ADD("r3", "r6", "r4") ADD("r7", "r8", "r4") ADD("r10", "r12", "r4") ADD("r11", "lr", "r4")
#define RAOT_PAIR_ROW_STEP(ADD, TEST) \
    RAOT_PAIR_ROW_ELEMENT(ADD, "0") RAOT_PAIR_ROW_ELEMENT(RAOT_PAIR_ROW_ADDED, "2") \
    RAOT_PAIR_ROW_ELEMENT(RAOT_PAIR_ROW_ADDED, "4") RAOT_PAIR_ROW_ELEMENT(RAOT_PAIR_ROW_ADDED, "6") \
    "add.w r1, r1, #16\n" TEST
#define RAOT_PAIR_ROW_BYTES "148"
#define RAOT_PAIR_ROW_LAST "1"
#endif

RAOT_NAKED static void raot_pair_row_tiles(
    RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const int16_t *pairs,
    RAOT_ARGUMENT const int16_t *weights, RAOT_ARGUMENT const int32_t *starts,
    RAOT_ARGUMENT int32_t groups, RAOT_ARGUMENT int32_t count, RAOT_ARGUMENT int32_t skip)
{
    __asm volatile(
        "push {r4-r8, r10, r11, lr}\n sub sp, #24\n"
        "ldrd r4, r5, [sp, #56]\n add r4, r0, r4, lsl #4\n"
        "strd r1, r0, [sp]\n strd r3, r4, [sp, #8]\n add r0, r1, r5, lsl #3\n"
        "adr.w r6, 3f\n subs r5, #1\n beq 1f\n"
        "negs r5, r5\n and r5, r5, #" RAOT_PAIR_ROW_LAST "\n movs r4, #" RAOT_PAIR_ROW_BYTES "\n adr.w r6, 2f\n mla r6, r5, r4, r6\n"
        "1: orr r6, r6, #1\n str r6, [sp, #16]\n mov r1, r2\n ldr r2, [sp]\n"
        "1:\n" RAOT_PAIR_ROW_STEP(RAOT_PAIR_ROW_BEGUN, "") "ldr pc, [sp, #16]\n"
        ".balign 4\n"
        "2:\n .rept " RAOT_PAIR_ROW_LAST "\n" RAOT_PAIR_ROW_STEP(RAOT_PAIR_ROW_ADDED, "") ".endr\n"
        RAOT_PAIR_ROW_STEP(RAOT_PAIR_ROW_ADDED, "cmp r2, r0\n") "bne.w 2b\n"
        "3: sub r7, r7, r3\n sub r11, r11, r10\n ldm sp, {r2, r4, r5, r6}\n"
        "ldrd r8, r12, [r5], #8\n add r3, r8\n add r7, r12, r7, asr #8\n"
        "ldrd r8, r12, [r5], #8\n add r10, r8\n add r11, r12, r11, asr #8\n"
        "ldr r8, [sp, #64]\n add r1, r8\n stmia.w r4!, {r3, r7, r10, r11}\n strd r4, r5, [sp, #4]\n cmp r4, r6\n bne.w 1b\n"
        "add sp, #24\n pop {r4-r8, r10, r11, pc}\n");
}
/* clang-format on */

#if defined(__ARM_FP) && (__ARM_FP & 4)
/* Pairs whose sums of signed bytes, times 256, stay within 32 bits. */
#define RAOT_PAIR_ROW_MOST 256
#define RAOT_PAIR_ROW_F32 1
/*
 * Floats of `groups` times four channels, over `count` times two pairs. Registers as above, with
 * the end of the pairs in r0; s12 is the scale of the row. The first two pairs begin the sums.
 *
 *     [sp] to [sp, #16]     pairs, results, scales, starts, end of the results
 *     [sp, #20]             entry of the loop, behind the pairs that are too many
 *     [sp, #24]             saved registers
 *     [sp, #56] to [sp, #68] arguments: starts, groups, count, row
 */
/* clang-format off */
RAOT_NAKED static void raot_pair_rows_f32(
    RAOT_ARGUMENT float *out, RAOT_ARGUMENT const int16_t *pairs,
    RAOT_ARGUMENT const int16_t *weights, RAOT_ARGUMENT const float *scales,
    RAOT_ARGUMENT const float *starts, RAOT_ARGUMENT int32_t groups,
    RAOT_ARGUMENT int32_t count, RAOT_ARGUMENT const float *row)
{
    __asm volatile(
        "push {r4-r8, r10, r11, lr}\n sub sp, #24\n"
        "ldr r4, [sp, #56]\n strd r1, r0, [sp]\n strd r3, r4, [sp, #8]\n ldrd r4, r5, [sp, #60]\n"
        "add r4, r0, r4, lsl #4\n str r4, [sp, #16]\n add r0, r1, r5, lsl #3\n"
        "adr.w r6, 3f\n subs r5, #1\n beq 1f\n"
        "negs r5, r5\n and r5, r5, #" RAOT_PAIR_ROW_LAST "\n movs r4, #" RAOT_PAIR_ROW_BYTES "\n adr.w r6, 2f\n mla r6, r5, r4, r6\n"
        "1: orr r6, r6, #1\n str r6, [sp, #20]\n"
        "mov r1, r2\n ldr r2, [sp]\n ldr r5, [sp, #68]\n vldr s12, [r5]\n"
        "1:\n" RAOT_PAIR_ROW_STEP(RAOT_PAIR_ROW_BEGUN, "") "ldr pc, [sp, #20]\n"
        ".balign 4\n"
        "2:\n .rept " RAOT_PAIR_ROW_LAST "\n" RAOT_PAIR_ROW_STEP(RAOT_PAIR_ROW_ADDED, "") ".endr\n"
        RAOT_PAIR_ROW_STEP(RAOT_PAIR_ROW_ADDED, "cmp r2, r0\n") "bne.w 2b\n"
        "3: sub r7, r7, r3\n sub r11, r11, r10\n"
        "vmov s0, s1, r3, r7\n vmov s2, s3, r10, r11\n"
        "vcvt.f32.s32 s0, s0\n vcvt.f32.s32 s1, s1, #8\n"
        "vcvt.f32.s32 s2, s2\n vcvt.f32.s32 s3, s3, #8\n"
        "ldm sp, {r2, r4, r5, r6, r7}\n vldmia r5!, {s4-s7}\n vldmia r6!, {s8-s11}\n"
        "vmul.f32 s0, s0, s4\n vmul.f32 s1, s1, s5\n vmul.f32 s2, s2, s6\n vmul.f32 s3, s3, s7\n"
        "vmul.f32 s0, s0, s12\n vmul.f32 s1, s1, s12\n"
        "vmul.f32 s2, s2, s12\n vmul.f32 s3, s3, s12\n"
        "vadd.f32 s0, s0, s8\n vadd.f32 s1, s1, s9\n vadd.f32 s2, s2, s10\n vadd.f32 s3, s3, s11\n"
        "vstmia r4!, {s0-s3}\n stm sp, {r2, r4, r5, r6}\n cmp r4, r7\n bne.w 1b\n"
        "add sp, #24\n pop {r4-r8, r10, r11, pc}\n");
}
/* clang-format on */
#endif

#endif
#undef RAOT_PAIR_TILES

/* Blocks of about equal length. */
static inline int32_t raot_pair_block(int32_t left, int32_t most)
{
    const int32_t blocks = (left + most - 1) / most;
    return (left + blocks - 1) / blocks;
}

/* clang-format off */
#define RAOT_MULTIPLY_PAIRS(FORM, TAPS, PITCH, WIDE) \
    __attribute__((noinline, unused)) static void raot_multiply_pairs_##FORM( \
        int32_t *sums, const int16_t *weights, const int16_t *pairs, const int32_t *bias, \
        int32_t channels, int32_t positions, int32_t lines) \
    { \
        const int32_t rest = positions % 3; \
        const int32_t twos = rest == 0 ? 0 : rest == 2 || positions == 1 ? (int32_t)1 : 2; \
        const int32_t threes = positions < 3 ? 0 : (positions - 2 * twos) / 3; \
        const int32_t block = raot_pair_block(lines, RAOT_PAIR_BLOCK / TAPS); \
        for (int32_t left = lines; left > 0; left -= block) { \
            const int32_t count = left < block ? left : block; \
            raot_pair_tiles_##FORM(sums, pairs, weights, bias, count, threes, twos, channels, \
                                   4 * TAPS * lines); \
            weights += 2 * TAPS * count; \
            pairs += PITCH * count; \
            bias = NULL; \
        } \
    }
/* clang-format on */
RAOT_MULTIPLY_PAIRS(1, 1, 24, 12)
RAOT_MULTIPLY_PAIRS(3, 3, 28, 12)
RAOT_MULTIPLY_PAIRS(1_wide, 1, 48, 24)
RAOT_MULTIPLY_PAIRS(3_wide, 3, 52, 24)
#undef RAOT_MULTIPLY_PAIRS

__attribute__((noinline, unused)) static void
raot_multiply_pair_row(int32_t *sums, const int16_t *weights, const int16_t *pairs,
                       const int32_t *bias, int32_t channels, int32_t count)
{
    const int32_t *start = bias;

    for (int32_t left = channels > 0 ? count : 0; left > 0; left -= RAOT_PAIR_ROW_BLOCK) {
        const int32_t some = left < RAOT_PAIR_ROW_BLOCK ? left : RAOT_PAIR_ROW_BLOCK;
        raot_pair_row_tiles(sums, pairs, weights, start, (channels + 3) / 4, some / 2,
                            8 * (count - some));
        weights += 4 * some;
        pairs += 2 * some;
        start = sums;
    }
}

__attribute__((noinline, unused)) static void
raot_multiply_pair_row_f32(float *out, const int16_t *weights, const int16_t *pairs,
                           const float *scales, const float *row, const float *starts,
                           int32_t channels, int32_t count)
{
    static const int32_t zeros[4] = {0, 0, 0, 0};
    int32_t n = 0;

#if defined(RAOT_PAIR_ROW_F32)
    if (channels >= 4 && count > 0 && count <= RAOT_PAIR_ROW_MOST) {
        n = channels / 4 * 4;
        raot_pair_rows_f32(out, pairs, weights, scales, starts, n / 4, count / 2, row);
    }
#endif
    /*@ loop unroll 4096; */
    for (; n < channels; n += 4) {
        const int32_t rest = channels - n < 4 ? channels - n : 4;
        int32_t sums[4];

        raot_multiply_pair_row(sums, weights + n * count, pairs, zeros, 4, count);
        /*@ loop unroll 4096; */
        for (int32_t i = 0; i < rest; i++) {
            out[n + i] = (float)sums[i] * scales[n + i] * row[0] + starts[n + i];
        }
    }
}

#endif
