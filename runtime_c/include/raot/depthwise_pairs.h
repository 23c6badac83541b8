/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthwise_pairs.h - 3 x 3 convolutions of one channel by SMLAD, four rows at a time.
 *
 * Two adjacent rows of a column are a pair of 16-bit integers. `pairs` has sixteen of them for each
 * column, the first row of which is even. sums[c * up(rows, 4) + r] = bias + the window at row r *
 * stride of column c * step, in any order of rows and columns of an image. Weights are nine bytes,
 * three for each column of the window. Sums wrap; those up to a multiple of four rows are
 * undefined.
 *
 *     raot_gather_columns_s8      the pairs of some columns; outside of the image they are `zero`
 *     raot_depthwise_pairs_1      up to 28 rows, stride 1
 *     raot_depthwise_pairs_2      up to 12 rows, stride 2
 */
#ifndef RAOT_DEPTHWISE_PAIRS_H
#define RAOT_DEPTHWISE_PAIRS_H

#include <stdint.h>

#include "gather_pairs.h"

#define RAOT_PAIR_ROWS 16

/* clang-format off */
/* `count` times eight elements that are `step` apart. */
#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && defined(RAOT_DSP)
#define RAOT_COLUMN_FOUR(EXTEND) \
    EXTEND " r4, [%[from]]\n " EXTEND " r8, [%[from], %[step]]\n" \
    EXTEND " r10, [%[from], %[step], lsl #1]\n " EXTEND " r12, [%[from], %[three]]\n" \
    "add %[from], %[from], %[step], lsl #2\n" \
    "pkhbt r4, r4, r8, lsl #16\n pkhbt r10, r10, r12, lsl #16\n" \
    "str r4, [%[to]], #4\n str r10, [%[to]], #4\n"
#define RAOT_COLUMN_BLOCKS(N, T, EXTEND) \
    static inline void raot_column_blocks_##N(int16_t *to, const T *from, int32_t count, \
                                              int32_t step) \
    { \
        __asm volatile("1:\n" RAOT_COLUMN_FOUR(EXTEND) RAOT_COLUMN_FOUR(EXTEND) \
                       "subs %[n], #1\n bne 1b\n" \
                       : [to] "+&r"(to), [from] "+&r"(from), [n] "+&r"(count) \
                       : [step] "r"(step), [three] "r"(3 * step) \
                       : "r4", "r8", "r10", "r12", "cc", "memory"); \
    }
#else
#define RAOT_COLUMN_BLOCKS(N, T, EXTEND) \
    static inline void raot_column_blocks_##N(int16_t *to, const T *from, int32_t count, \
                                              int32_t step) \
    { \
        /*@ loop unroll 4096; */                     \
        for (int32_t i = 0; i < 8 * count; i += 2) { \
            raot_pair_store(to + i, raot_pair_lower((uint32_t)from[0], (uint32_t)from[step])); \
            from += i + 2 < 8 * count ? 2 * step : 0; \
        } \
    }
#endif
#if defined(RAOT_ASM_THUMB) && defined(RAOT_DSP)
/* Columns of contiguous bytes, whose first row may be the second one of a pair. */
struct raot_column_lines {
    int32_t columns;
    int32_t column_step;
    int32_t odd;   /* 1 where that is so */
    int32_t groups; /* of four rows behind it */
    int32_t rest;  /* rows behind them */
    int32_t after; /* pairs outside of the image behind all rows */
    uint32_t empty;
};

/* clang-format off */
/*
 *     r0, r1, r2, r3         pairs, bytes, remaining columns, column_step
 *     r4, r5, r8             sizes, groups of four rows, empty
 *     r10, r11, r12          next pair and byte, remaining groups
 */
#define RAOT_COLUMN_LINES(N, T, LOAD, EXTEND) \
    RAOT_NAKED static void raot_column_lines_##N( \
        RAOT_ARGUMENT int16_t *pairs, RAOT_ARGUMENT const T *from, \
        RAOT_ARGUMENT const struct raot_column_lines *sizes) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n mov r4, r2\n ldrd r2, r3, [r4]\n" \
            "ldr r5, [r4, #12]\n ldr r8, [r4, #24]\n" \
            "1: mov r10, r0\n mov r11, r1\n ldr r6, [r4, #8]\n cbz r6, 2f\n" \
            LOAD " r6, [r11], #1\n pkhbt r6, r8, r6, lsl #16\n str r6, [r10], #4\n" \
            "2: movs r12, r5\n beq 4f\n" \
            "3: ldr r6, [r11], #4\n " EXTEND " r7, r6\n " EXTEND " r6, r6, ror #8\n" \
            "pkhbt lr, r7, r6, lsl #16\n pkhtb r6, r6, r7, asr #16\n" \
            "strd lr, r6, [r10], #8\n subs r12, #1\n bne 3b\n" \
            "4: ldr r6, [r4, #16]\n cbz r6, 6f\n subs r6, #2\n blt 5f\n" \
            LOAD " r7, [r11], #1\n " LOAD " lr, [r11], #1\n" \
            "pkhbt r7, r7, lr, lsl #16\n str r7, [r10], #4\n beq 6f\n" \
            "5: " LOAD " r7, [r11]\n pkhbt r7, r7, r8, lsl #16\n str r7, [r10], #4\n" \
            "6: ldr r6, [r4, #20]\n cbz r6, 8f\n" \
            "7: str r8, [r10], #4\n subs r6, #1\n bne 7b\n" \
            "8: adds r0, #64\n add r1, r3\n subs r2, #1\n bne 1b\n" \
            "pop {r4-r8, r10, r11, pc}\n"); \
    }
RAOT_COLUMN_LINES(s8, int8_t, "ldrsb", "sxtb16")
RAOT_COLUMN_LINES(u8, uint8_t, "ldrb", "uxtb16")
#undef RAOT_COLUMN_LINES
/* Columns left, inside and right of the image; then all is done. */
#define RAOT_COLUMNS_FAST(N) \
    if (row_step == 1 && begin <= 1 && begin < end) { \
        const int32_t first = raot_pair_columns(-left, 1, columns); \
        const int32_t right = raot_pair_columns(image_columns - left, 1, columns); \
        const int32_t last = right < first ? first : right; \
        const int32_t count = end - 2 * begin; \
        const struct raot_column_lines sizes = { \
            last - first, column_step, begin, count / 4, count % 4, \
            (rows + 1) / 2 - (end + 1) / 2, empty}; \
        for (int32_t c = 0; c < first; c++) { \
            raot_pair_fill(pairs + c * 2 * RAOT_PAIR_ROWS, empty, (rows + 1) / 2); \
        } \
        for (int32_t c = last; c < columns; c++) { \
            raot_pair_fill(pairs + c * 2 * RAOT_PAIR_ROWS, empty, (rows + 1) / 2); \
        } \
        if (last > first) { \
            raot_column_lines_##N(pairs + first * 2 * RAOT_PAIR_ROWS, \
                                  image + (left + first) * column_step + top + begin, &sizes); \
        } \
        return; \
    }
#else
#define RAOT_COLUMNS_FAST(N)
#endif
#define RAOT_GATHER_COLUMNS(N, T, EXTEND) \
    RAOT_COLUMN_BLOCKS(N, T, EXTEND) \
    /* `count` elements as pairs. */ \
    static inline void raot_column_pairs_##N(int16_t *to, const T *from, int32_t count, \
                                             int32_t step) \
    { \
        /*@ loop unroll 4096; */                      \
        for (; step == 1 && count >= 4; count -= 4) { \
            raot_pair_channels_##N(to, to + 2, from); \
            to += 4; \
            from += 4; \
        } \
        if (count >= 8) { \
            raot_column_blocks_##N(to, from, count / 8, step); \
            to += count / 8 * 8; \
            from += count / 8 * 8 * step; \
            count %= 8; \
        } \
        /*@ loop unroll 4096; */         \
        for (; count >= 2; count -= 2) { \
            raot_pair_store(to, raot_pair_lower((uint32_t)from[0], (uint32_t)from[step])); \
            to += 2; \
            from += 2 * step; \
        } \
        if (count > 0) { \
            *to = *from; \
        } \
    } \
    __attribute__((noinline, unused)) static void raot_gather_columns_##N##_unpacked( \
        int16_t *pairs, const T *image, int32_t zero, int32_t rows, int32_t top, \
        int32_t image_rows, int32_t row_step, int32_t columns, int32_t left, \
        int32_t image_columns, int32_t column_step) \
    { \
        const uint32_t empty = raot_pair_lower((uint32_t)zero, (uint32_t)zero); \
        const int32_t begin = raot_pair_columns(-top, 1, rows); \
        const int32_t most = raot_pair_columns(image_rows - top, 1, rows); \
        const int32_t end = most < begin ? begin : most; \
        RAOT_COLUMNS_FAST(N) \
        /*@ loop unroll 4096; */                \
        for (int32_t c = 0; c < columns; c++) { \
            const int32_t x = left + c; \
            if (x < 0 || x >= image_columns || begin == end) { \
                raot_pair_fill(pairs, empty, (rows + 1) / 2); \
            } else { \
                const T *from = image + x * column_step + (top + begin) * row_step; \
                int32_t at = begin; \
                raot_pair_fill(pairs, empty, (begin + 1) / 2); \
                if (begin % 2 != 0) { \
                    pairs[at] = *from; \
                    from += row_step; \
                    at++; \
                } \
                raot_column_pairs_##N(pairs + at, from, end - at, row_step); \
                /*@ loop unroll 4096; */          \
                for (at = end; at < rows; at++) { \
                    pairs[at] = (int16_t)zero; \
                } \
            } \
            pairs += 2 * RAOT_PAIR_ROWS; \
        } \
    }
/* clang-format on */
RAOT_GATHER_COLUMNS(s8, int8_t, "ldrsb")
RAOT_GATHER_COLUMNS(u8, uint8_t, "ldrb")
#undef RAOT_GATHER_COLUMNS
#undef RAOT_COLUMNS_FAST

#if defined(RAOT_ASM_THUMB) && defined(__ARM_FEATURE_DSP)
/*
 *     r6, r8, r12, lr, r0, r1    weights of rows 0 and 1, and of rows 1 and 2, of each column
 *     r3, r7, r10, r11           sums
 *     r4, r5                     pairs
 *     r2                         pairs of the tile
 */
/* clang-format off */
/* A column. FIRST gives what the first products of three sums are added to: the sum in r3, in the
   first column. */
#define RAOT_PAIR_COLUMN_1(A, B, C, UPPER, LOWER, FIRST) \
    "ldr r4, [r2, #" A "]\n ldr r5, [r2, #" B "]\n" \
    "smlatb r7, r4, " UPPER ", " FIRST("r7") "\n smlad r10, r5, " UPPER ", " FIRST("r10") "\n" \
    "smlatb r11, r5, " UPPER ", " FIRST("r11") "\n smlad r3, r4, " UPPER ", r3\n" \
    "ldr r4, [r2, #" C "]\n smlabt r3, r5, " LOWER ", r3\n smlad r7, r5, " LOWER ", r7\n" \
    "smlabt r10, r4, " LOWER ", r10\n smlad r11, r4, " LOWER ", r11\n"
#define RAOT_PAIR_BEGUN(SUM) "r3"
#define RAOT_PAIR_ADDED(SUM) SUM
#define RAOT_PAIR_TILE_1 \
    RAOT_PAIR_COLUMN_1("0", "4", "8", "r6", "r8", RAOT_PAIR_BEGUN) \
    RAOT_PAIR_COLUMN_1("64", "68", "72", "r12", "lr", RAOT_PAIR_ADDED) \
    RAOT_PAIR_COLUMN_1("128", "132", "136", "r0", "r1", RAOT_PAIR_ADDED)

#define RAOT_PAIR_COLUMN_2(A, B, C, D, E, UPPER, LOWER, FIRST) \
    "ldr r4, [r2, #" B "]\n ldr r5, [r2, #" C "]\n" \
    "smlad r7, r4, " UPPER ", " FIRST("r7") "\n smlad r10, r5, " UPPER ", " FIRST("r10") "\n" \
    "smlabt r7, r5, " LOWER ", r7\n ldr r5, [r2, #" D "]\n" \
    "smlad r11, r5, " UPPER ", " FIRST("r11") "\n smlabt r3, r4, " LOWER ", r3\n" \
    "smlabt r10, r5, " LOWER ", r10\n ldr r4, [r2, #" A "]\n ldr r5, [r2, #" E "]\n" \
    "smlad r3, r4, " UPPER ", r3\n smlabt r11, r5, " LOWER ", r11\n"
#define RAOT_PAIR_TILE_2 \
    RAOT_PAIR_COLUMN_2("0", "4", "8", "12", "16", "r6", "r8", RAOT_PAIR_BEGUN) \
    RAOT_PAIR_COLUMN_2("64", "68", "72", "76", "80", "r12", "lr", RAOT_PAIR_ADDED) \
    RAOT_PAIR_COLUMN_2("128", "132", "136", "140", "144", "r0", "r1", RAOT_PAIR_ADDED)
/* clang-format on */

/* Three bytes of the word at WORD, the first two of which are rotated to its lower bytes. */
#define RAOT_PAIR_WINDOW(WORD, FIRST, SECOND, UPPER, LOWER)                        \
    "ldr " LOWER ", [r2, #" WORD "]\n sxtb16 " UPPER ", " LOWER FIRST "\n"         \
    "sxtb16 " LOWER ", " LOWER SECOND "\n pkhbt " LOWER ", " LOWER ", " UPPER "\n" \
    "pkhbt " UPPER ", " UPPER ", " LOWER ", lsl #16\n"

/*
 *     [sp], [sp, #4]        pairs of the column, behind its last tile
 *     [sp, #8], [sp, #12]   sums, bias
 *     [sp, #16]             saved registers
 *     [sp, #48]             arguments: columns, bytes of the pairs of all tiles of a column, bytes
 *                           from column to column
 */
/* clang-format off */
#define RAOT_DEPTHWISE_TILES(STRIDE, ADVANCE) \
    RAOT_NAKED static void raot_depthwise_tiles_##STRIDE( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const int16_t *pairs, \
        RAOT_ARGUMENT const int8_t *weights, RAOT_ARGUMENT const int32_t *bias, \
        RAOT_ARGUMENT int32_t columns, RAOT_ARGUMENT int32_t length, RAOT_ARGUMENT int32_t step) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n sub sp, #16\n" \
            "ldr r4, [sp, #52]\n add r4, r1\n strd r1, r4, [sp]\n ldr r3, [r3]\n" \
            "strd r0, r3, [sp, #8]\n" \
            RAOT_PAIR_WINDOW("0", "", ", ror #8", "r6", "r8") \
            RAOT_PAIR_WINDOW("3", "", ", ror #8", "r12", "lr") \
            RAOT_PAIR_WINDOW("5", ", ror #8", ", ror #16", "r0", "r1") \
            "1: ldr r2, [sp]\n" \
            "2: ldr r3, [sp, #12]\n" \
            RAOT_PAIR_TILE_##STRIDE \
            "ldrd r5, r4, [sp, #4]\n adds r2, #" ADVANCE "\n" \
            "stmia r4!, {r3, r7, r10, r11}\n str r4, [sp, #8]\n cmp r2, r5\n bne 2b\n" \
            "ldr r2, [sp]\n ldr r3, [sp, #56]\n ldr r4, [sp, #48]\n add r2, r3\n add r5, r3\n" \
            "strd r2, r5, [sp]\n subs r4, #1\n str r4, [sp, #48]\n bne 1b\n" \
            "add sp, #16\n pop {r4-r8, r10, r11, pc}\n"); \
    } \
    __attribute__((noinline, unused)) static void raot_depthwise_pairs_##STRIDE( \
        int32_t *sums, const int16_t *pairs, const int8_t *weights, const int32_t *bias, \
        int32_t columns, int32_t rows, int32_t step) \
    { \
        raot_depthwise_tiles_##STRIDE(sums, pairs, weights, bias, columns, \
                                      (rows + 3) / 4 * (8 * STRIDE), 64 * step); \
    }
/* clang-format on */
#else
/* clang-format off */
#define RAOT_DEPTHWISE_TILES(STRIDE, ADVANCE) \
    __attribute__((noinline, unused)) static void raot_depthwise_pairs_##STRIDE( \
        int32_t *sums, const int16_t *pairs, const int8_t *weights, const int32_t *bias, \
        int32_t columns, int32_t rows, int32_t step) \
    { \
        /*@ loop unroll 4096; */                \
        for (int32_t c = 0; c < columns; c++) { \
            /*@ loop unroll 4096; */             \
            for (int32_t r = 0; r < rows; r++) { \
                uint32_t sum = (uint32_t)bias[0]; \
                /*@ loop unroll 4096; */          \
                for (int32_t k = 0; k < 9; k++) { \
                    const int16_t *const column = \
                        pairs + (c * step + k / 3) * 2 * RAOT_PAIR_ROWS; \
                    sum += (uint32_t)(column[r * STRIDE + k % 3] * weights[k]); \
                } \
                sums[r] = (int32_t)sum; \
            } \
            sums += (rows + 3) / 4 * 4; \
        } \
    }
/* clang-format on */
#endif
RAOT_DEPTHWISE_TILES(1, "8")
RAOT_DEPTHWISE_TILES(2, "16")
#undef RAOT_DEPTHWISE_TILES

/* Sizes of the functions below, by name. */
struct raot_gather_columns {
    int32_t zero;
    int32_t rows;
    int32_t top;
    int32_t image_rows;
    int32_t row_step;
    int32_t columns;
    int32_t left;
    int32_t image_columns;
    int32_t column_step;
};

#define raot_gather_columns_s8(pairs, image, sizes)                                           \
    raot_gather_columns_s8_unpacked(pairs, image, (sizes)->zero, (sizes)->rows, (sizes)->top, \
                                    (sizes)->image_rows, (sizes)->row_step, (sizes)->columns, \
                                    (sizes)->left, (sizes)->image_columns, (sizes)->column_step)

#define raot_gather_columns_u8(pairs, image, sizes)                                           \
    raot_gather_columns_u8_unpacked(pairs, image, (sizes)->zero, (sizes)->rows, (sizes)->top, \
                                    (sizes)->image_rows, (sizes)->row_step, (sizes)->columns, \
                                    (sizes)->left, (sizes)->image_columns, (sizes)->column_step)

#endif
