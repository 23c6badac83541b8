/* SPDX-License-Identifier: Apache-2.0 */
/*
 * winograd.h - 3 x 3 convolutions of integers by the minimal filtering algorithm F(2 x 2, 3 x 3).
 *
 * Two by two adjacent outputs, a tile, are A^T [(G g G^T) (B^T d B)] A: of a window g of weights
 * and 4 x 4 elements d of the image, with 16 products instead of 36 (Lavin and Gray, "Fast
 * Algorithms for Convolutional Neural Networks", 2015, section 4.1; Winograd, 1980). Here G is
 * doubled, so that all numbers are integers, and sums are four times the outputs, exactly: the
 * results have the bits of a convolution. Transformed weights and elements of bytes fit 16 bits:
 * they are at most 9 * 128 and 4 * 255 in magnitude.
 *
 * Two channels are a pair of 16-bit integers; `depth` counts pairs. x = 4 * i + j numbers the
 * elements of 4 x 4.
 *
 *     raot_winograd_weights    to[n / 2][x][k][n % 2][h] of bytes: taps 0 to 7 of a pair of
 *                              channels are words of a[t], a[t + 1], b[t], b[t + 1], and a[8]
 *                              and b[8] follow
 *     raot_winograd_input      to[t / 3][x][k][t % 3][h] of four lines of pairs, the upper and
 *                              the lower two; the last panel is as wide as it has tiles
 *     raot_winograd_multiply   sums[t][n][x] of the products of two channels
 *     raot_winograd_output     a quarter of their transformed sums, and the bias: two lines of
 *                              two channels. Sums wrap
 */
#ifndef RAOT_WINOGRAD_H
#define RAOT_WINOGRAD_H

#include <stdint.h>

#include "copy.h"
#include "dsp.h"

static inline uint32_t raot_winograd_load(const int16_t *from)
{
    uint32_t pair;

    RAOT_COPY(&pair, from, sizeof pair);
    return pair;
}

static inline void raot_winograd_store(int16_t *to, uint32_t pair)
{
    RAOT_COPY(to, &pair, sizeof pair);
}

/* Sums and differences of both halves, which do not overflow. */
static inline uint32_t raot_winograd_add(uint32_t a, uint32_t b)
{
#if defined(RAOT_DSP)
    return (uint32_t)__sadd16((int16x2_t)a, (int16x2_t)b);
#else
    return ((a + b) & 0xffffu) | ((a & 0xffff0000u) + (b & 0xffff0000u));
#endif
}

static inline uint32_t raot_winograd_sub(uint32_t a, uint32_t b)
{
#if defined(RAOT_DSP)
    return (uint32_t)__ssub16((int16x2_t)a, (int16x2_t)b);
#else
    return ((a - b) & 0xffffu) | ((a & 0xffff0000u) - (b & 0xffff0000u));
#endif
}

/* Taps t and t + 1 of two channels, from the word of both. */
static inline void raot_winograd_taps(uint32_t *first, uint32_t *second, const int8_t *from)
{
#if defined(RAOT_DSP)
    const uint32_t four = raot_dsp_load(from);
    *first = (uint32_t)raot_dsp_even_s8(four);
    *second = (uint32_t)raot_dsp_odd_s8(four);
#else
    *first = ((uint32_t)from[0] & 0xffffu) | (uint32_t)from[2] << 16;
    *second = ((uint32_t)from[1] & 0xffffu) | (uint32_t)from[3] << 16;
#endif
}

/* Four elements of a row, `step` apart: 2 G times a row of three. */
static inline void raot_winograd_filter(int16_t *to, int32_t step, uint32_t a, uint32_t b,
                                        uint32_t c)
{
    const uint32_t ends = raot_winograd_add(a, c);

    raot_winograd_store(to, raot_winograd_add(a, a));
    raot_winograd_store(to + step, raot_winograd_add(ends, b));
    raot_winograd_store(to + 2 * step, raot_winograd_sub(ends, b));
    raot_winograd_store(to + 3 * step, raot_winograd_add(c, c));
}

__attribute__((noinline, unused)) static void
raot_winograd_weights(int16_t *to, const int8_t *weights, int32_t channels, int32_t depth)
{
    const int32_t step = 4 * depth;

    /*@ loop unroll 4096; */
    for (int32_t n = 0; n < channels; n++) {
        int16_t *next = to + n / 2 * 16 * step + n % 2 * 2;
        /*@ loop unroll 4096; */
        for (int32_t k = 0; k < depth; k++) {
            uint32_t a, b, c, d, e, f, g, h;
            raot_winograd_taps(&a, &b, weights);
            raot_winograd_taps(&c, &d, weights + 4);
            raot_winograd_taps(&e, &f, weights + 8);
            raot_winograd_taps(&g, &h, weights + 12);
            const uint32_t i = ((uint32_t)weights[16] & 0xffffu) | (uint32_t)weights[17] << 16;
            raot_winograd_filter(next, step, raot_winograd_add(a, a), raot_winograd_add(b, b),
                                 raot_winograd_add(c, c));
            raot_winograd_filter(next + 12 * step, step, raot_winograd_add(g, g),
                                 raot_winograd_add(h, h), raot_winograd_add(i, i));
            a = raot_winograd_add(a, g);
            b = raot_winograd_add(b, h);
            c = raot_winograd_add(c, i);
            raot_winograd_filter(next + 4 * step, step, raot_winograd_add(a, d),
                                 raot_winograd_add(b, e), raot_winograd_add(c, f));
            raot_winograd_filter(next + 8 * step, step, raot_winograd_sub(a, d),
                                 raot_winograd_sub(b, e), raot_winograd_sub(c, f));
            weights += 18;
            next += 4;
        }
    }
}

#if defined(RAOT_ASM_THUMB) && defined(__ARM_FEATURE_DSP)
/*
 * A tile of all pairs of channels: first along the four lines, then across them.
 *
 *     r0 to r3   the next results, pairs of the upper and of the lower lines, bytes from result to
 *                result
 *     [sp], [sp, #4]       bytes of a line of all pairs, pairs that are left
 *     [sp, #8], [sp, #12]  bytes of a line, less those of all results of a pair to the next one
 *     [sp, #16]            saved registers
 *     [sp, #48], [sp, #52] arguments: across, wide
 */
/* clang-format off */
/* a - c, b + c in SPARE, c - b and b - d. */
#define RAOT_WINOGRAD_ALONG(A, B, C, D, SPARE) \
    "ssub16 " A ", " A ", " C "\n ssub16 " D ", " B ", " D "\n" \
    "sadd16 " SPARE ", " B ", " C "\n ssub16 " C ", " C ", " B "\n"
#define RAOT_WINOGRAD_ACROSS(OP, A, B, C, D, E, F, G, H) \
    OP " r5, " A ", " B "\n str r5, [r0]\n" OP " r5, " C ", " D "\n str r5, [r0, r3]\n" \
    "add.w r0, r0, r3, lsl #1\n" \
    OP " r5, " E ", " F "\n str r5, [r0]\n" OP " r5, " G ", " H "\n str r5, [r0, r3]\n" \
    "add.w r0, r0, r3, lsl #1\n"
RAOT_NAKED static void raot_winograd_tile(
    RAOT_ARGUMENT int16_t *to, RAOT_ARGUMENT const int16_t *upper,
    RAOT_ARGUMENT const int16_t *lower, RAOT_ARGUMENT int32_t depth,
    RAOT_ARGUMENT int32_t across, RAOT_ARGUMENT int32_t wide)
{
    __asm volatile(
        "push {r4-r8, r10, r11, lr}\n sub sp, #16\n"
        "ldrd r4, r5, [sp, #48]\n lsls r4, r4, #2\n lsls r5, r5, #2\n mul r6, r5, r3\n"
        "strd r6, r3, [sp]\n muls r3, r4, r3\n sub r4, r4, r3, lsl #4\n strd r5, r4, [sp, #8]\n"
        "1: ldm.w r2, {r8, r10, r11, r12}\n" RAOT_WINOGRAD_ALONG("r8", "r10", "r11", "r12", "lr")
        "ldm.w r1, {r4, r5, r6, r7}\n" RAOT_WINOGRAD_ALONG("r4", "r5", "r6", "r7", "r10")
        RAOT_WINOGRAD_ACROSS("ssub16", "r4", "r8", "r10", "lr", "r6", "r11", "r7", "r12")
        "ldr r5, [sp]\n add r5, r1\n"
        "ldm.w r5, {r4, r5, r6, r7}\n" RAOT_WINOGRAD_ALONG("r4", "r5", "r6", "r7", "r10")
        RAOT_WINOGRAD_ACROSS("sadd16", "r4", "r8", "r10", "lr", "r6", "r11", "r7", "r12")
        RAOT_WINOGRAD_ACROSS("ssub16", "r8", "r4", "lr", "r10", "r11", "r6", "r12", "r7")
        "ldr r5, [sp]\n add r5, r2\n ldm.w r5, {r8, r11, r12, lr}\n"
        "ssub16 r8, r8, r12\n ssub16 lr, r11, lr\n sadd16 r5, r11, r12\n ssub16 r12, r12, r11\n"
        "ssub16 r10, r10, r5\n"
        "ssub16 r5, r4, r8\n str r5, [r0]\n str r10, [r0, r3]\n add.w r0, r0, r3, lsl #1\n"
        "ssub16 r5, r6, r12\n str r5, [r0]\n ssub16 r5, r7, lr\n str r5, [r0, r3]\n"
        "ldrd r5, r6, [sp, #4]\n ldr r7, [sp, #12]\n add.w r0, r0, r3, lsl #1\n add r0, r7\n"
        "add r1, r6\n add r2, r6\n subs r5, #1\n str r5, [sp, #4]\n bne.w 1b\n"
        "add sp, #16\n pop {r4-r8, r10, r11, pc}\n");
}
/* clang-format on */
#else
/* Four elements of a row, `step` apart: a row of four times B. */
static inline void raot_winograd_row(int16_t *to, int32_t step, uint32_t a, uint32_t b, uint32_t c,
                                     uint32_t d)
{
    raot_winograd_store(to, raot_winograd_sub(a, c));
    raot_winograd_store(to + step, raot_winograd_add(b, c));
    raot_winograd_store(to + 2 * step, raot_winograd_sub(c, b));
    raot_winograd_store(to + 3 * step, raot_winograd_sub(b, d));
}

/* The sum or the difference of pairs `at` elements further on in two lines of the image. */
static inline uint32_t raot_winograd_both(const int16_t *from, const int16_t *other, int32_t at,
                                          int32_t sum)
{
    const uint32_t a = raot_winograd_load(from + at);
    const uint32_t b = raot_winograd_load(other + at);

    return sum != 0 ? raot_winograd_add(a, b) : raot_winograd_sub(a, b);
}

/* A row of four such. */
static inline void raot_winograd_lines_of_two(int16_t *to, int32_t step, const int16_t *from,
                                              const int16_t *other, int32_t sum)
{
    raot_winograd_row(
        to, step, raot_winograd_both(from, other, 0, sum), raot_winograd_both(from, other, 2, sum),
        raot_winograd_both(from, other, 4, sum), raot_winograd_both(from, other, 6, sum));
}

static inline void raot_winograd_tile(int16_t *to, const int16_t *upper, const int16_t *lower,
                                      int32_t depth, int32_t across, int32_t wide)
{
    const int32_t line = 2 * depth * wide;
    const int32_t step = 2 * depth * across;

    /*@ loop unroll 4096; */
    for (int32_t k = 0; k < depth; k++) {
        raot_winograd_lines_of_two(to, step, upper, lower, 0);
        raot_winograd_lines_of_two(to + 4 * step, step, upper + line, lower, 1);
        raot_winograd_lines_of_two(to + 8 * step, step, lower, upper + line, 0);
        raot_winograd_lines_of_two(to + 12 * step, step, upper + line, lower + line, 0);
        upper += 2 * wide;
        lower += 2 * wide;
        to += 2 * across;
    }
}
#endif

__attribute__((noinline, unused)) static void raot_winograd_input(int16_t *to, const int16_t *upper,
                                                                  const int16_t *lower,
                                                                  int32_t depth, int32_t tiles,
                                                                  int32_t wide)
{
    /*@ loop unroll 4096; */
    for (int32_t t = 0; t < tiles; t++) {
        const int32_t left = tiles - t + t % 3;
        const int32_t across = left < 3 ? left : 3;
        raot_winograd_tile(to + 2 * (t % 3), upper + 4 * t, lower + 4 * t, depth, across, wide);
        if (t % 3 == 2) {
            to += 96 * depth;
        }
    }
}

#if defined(RAOT_ASM_THUMB) && defined(__ARM_FEATURE_DSP)
/*
 * The sums of two channels at some tiles, 3, 2 or 1, over `depth` pairs: for each x, weights and
 * inputs follow each other.
 *
 *     r3 to r5, r6 to r8   sums of both channels
 *     r10, r11             weights
 *     r0, r12, lr          inputs
 *     r1, r2               the next weights and inputs
 *
 *     [sp], [sp, #4]       sums, end of the weights of an x
 *     [sp, #8], [sp, #12]  entry of the loop, behind the pairs that are too many; end of the sums
 *     [sp, #16]            bytes of the weights of an x
 *     [sp, #24]            saved registers
 */
/* clang-format off */
#define RAOT_WINOGRAD_BEGUN(SUM, A, B) "smuad " SUM ", " A ", " B "\n"
#define RAOT_WINOGRAD_ADDED(SUM, A, B) "smlad " SUM ", " A ", " B ", " SUM "\n"
#define RAOT_WINOGRAD_STEP_3(ADD, TEST) \
    "ldmia.w r1!, {r10, r11}\n" TEST "ldmia.w r2!, {r0, r12, lr}\n" \
    ADD("r3", "r10", "r0") ADD("r4", "r10", "r12") ADD("r5", "r10", "lr") \
    ADD("r6", "r11", "r0") ADD("r7", "r11", "r12") ADD("r8", "r11", "lr")
#define RAOT_WINOGRAD_STEP_2(ADD, TEST) \
    "ldmia.w r1!, {r10, r11}\n" TEST "ldmia.w r2!, {r0, r12}\n" \
    ADD("r3", "r10", "r0") ADD("r4", "r10", "r12") ADD("r6", "r11", "r0") ADD("r7", "r11", "r12")
#define RAOT_WINOGRAD_STEP_1(ADD, TEST) \
    "ldmia.w r1!, {r10, r11}\n" TEST "ldr.w r0, [r2], #4\n" \
    ADD("r3", "r10", "r0") ADD("r6", "r11", "r0")
#define RAOT_WINOGRAD_STORE_1 "str r3, [r0]\n str r6, [r0, #64]\n"
#define RAOT_WINOGRAD_STORE_2 RAOT_WINOGRAD_STORE_1 "str r4, [r0, #128]\n str r7, [r0, #192]\n"
#define RAOT_WINOGRAD_STORE_3 RAOT_WINOGRAD_STORE_2 "str r5, [r0, #256]\n str r8, [r0, #320]\n"
#define RAOT_WINOGRAD_TILES(TILES, BYTES) \
    RAOT_NAKED static void raot_winograd_tiles_##TILES( \
        RAOT_ARGUMENT int32_t *sums, RAOT_ARGUMENT const int16_t *weights, \
        RAOT_ARGUMENT const int16_t *inputs, RAOT_ARGUMENT int32_t depth) \
    { \
        __asm volatile( \
            "push {r4-r8, r10, r11, lr}\n sub sp, #24\n strd r0, r1, [sp]\n" \
            "add r4, r0, #64\n str r4, [sp, #12]\n lsls r4, r3, #3\n str r4, [sp, #16]\n" \
            "adr.w r4, 3f\n subs r3, #1\n beq 1f\n" \
            "negs r3, r3\n and r3, r3, #7\n movs r5, #" BYTES "\n adr.w r4, 2f\n mla r4, r3, r5, r4\n" \
            "1: orr r4, r4, #1\n str r4, [sp, #8]\n" \
            "1: ldr r0, [sp, #4]\n ldr r12, [sp, #16]\n add r0, r12\n str r0, [sp, #4]\n" \
            RAOT_WINOGRAD_STEP_##TILES(RAOT_WINOGRAD_BEGUN, "") "ldr pc, [sp, #8]\n" \
            ".balign 4\n" \
            "2:\n .rept 7\n" RAOT_WINOGRAD_STEP_##TILES(RAOT_WINOGRAD_ADDED, "") ".endr\n" \
            RAOT_WINOGRAD_STEP_##TILES(RAOT_WINOGRAD_ADDED, "ldr.w r0, [sp, #4]\n cmp r1, r0\n") \
            "bne.w 2b\n" \
            ".balign 4\n" \
            "3: ldr r0, [sp]\n ldr r12, [sp, #12]\n" RAOT_WINOGRAD_STORE_##TILES \
            "adds r0, #4\n str r0, [sp]\n cmp r0, r12\n bne.w 1b\n" \
            "add sp, #24\n pop {r4-r8, r10, r11, pc}\n"); \
    }
RAOT_WINOGRAD_TILES(3, "32")
RAOT_WINOGRAD_TILES(2, "24")
RAOT_WINOGRAD_TILES(1, "16")
/* clang-format on */

__attribute__((noinline, unused)) static void raot_winograd_multiply(int32_t *sums,
                                                                     const int16_t *weights,
                                                                     const int16_t *inputs,
                                                                     int32_t depth, int32_t tiles)
{
    for (; tiles >= 3; tiles -= 3) {
        raot_winograd_tiles_3(sums, weights, inputs, depth);
        sums += 96;
        inputs += 96 * depth;
    }
    if (tiles == 2) {
        raot_winograd_tiles_2(sums, weights, inputs, depth);
    } else if (tiles == 1) {
        raot_winograd_tiles_1(sums, weights, inputs, depth);
    } else {
        /* All tiles are in panels of three. */
    }
}
#else
static inline int32_t raot_winograd_dot(const int16_t *a, const int16_t *b, int32_t sum)
{
#if defined(RAOT_DSP)
    return raot_dsp_dot((int16x2_t)raot_winograd_load(a), (int16x2_t)raot_winograd_load(b), sum);
#else
    return (int32_t)((uint32_t)sum + (uint32_t)(a[0] * b[0]) + (uint32_t)(a[1] * b[1]));
#endif
}

__attribute__((noinline, unused)) static void raot_winograd_multiply(int32_t *sums,
                                                                     const int16_t *weights,
                                                                     const int16_t *inputs,
                                                                     int32_t depth, int32_t tiles)
{
    /*@ loop unroll 4096; */
    for (int32_t t = 0; t < tiles; t++) {
        const int32_t left = tiles - t + t % 3;
        const int32_t across = 2 * (left < 3 ? left : 3);
        const int16_t *a = weights;
        const int16_t *b = inputs + 2 * (t % 3);
        /*@ loop unroll 4096; */
        for (int32_t x = 0; x < 16; x++) {
            int32_t first = 0;
            int32_t second = 0;
            /*@ loop unroll 4096; */
            for (int32_t k = 0; k < depth; k++) {
                first = raot_winograd_dot(a, b, first);
                second = raot_winograd_dot(a + 2, b, second);
                a += 4;
                b += across;
            }
            sums[x] = first;
            sums[16 + x] = second;
        }
        sums += 32;
        if (t % 3 == 2) {
            inputs += 16 * depth * across;
        }
    }
}
#endif

#if defined(RAOT_ASM_THUMB)
/*
 * Two lines of a channel, `line_step` bytes apart, for at least one tile.
 *
 *     r0, r1                   the next results and sums
 *     r4 to r7, r8, r10 to r12 sums of the upper, and of the lower line
 *     r2, lr                   sums to be added, the bias
 *     [sp], [sp, #4]           tiles that are left, bias
 *     [sp, #40]                the argument bias, above eight saved registers
 */
/* clang-format off */
#define RAOT_WINOGRAD_TWO(A, B, C, D) \
    "ldrd r2, lr, [r1], #8\n add " A ", r2\n add " B ", lr\n sub " C ", r2\n sub " D ", lr\n"
RAOT_NAKED static void raot_winograd_lines(
    RAOT_ARGUMENT int32_t *to, RAOT_ARGUMENT const int32_t *sums,
    RAOT_ARGUMENT int32_t line_step, RAOT_ARGUMENT int32_t tiles, RAOT_ARGUMENT int32_t bias)
{
    __asm volatile(
        "push {r4-r8, r10, r11, lr}\n sub sp, #8\n ldr r4, [sp, #40]\n"
        "strd r3, r4, [sp]\n mov r3, r2\n"
        "1: ldmia.w r1!, {r4, r5, r6, r7}\n ldmia.w r1!, {r8, r10, r11, r12}\n"
        "add r4, r8\n add r5, r10\n add r6, r11\n add r7, r12\n"
        RAOT_WINOGRAD_TWO("r4", "r5", "r8", "r10") RAOT_WINOGRAD_TWO("r6", "r7", "r11", "r12")
        "ldrd r2, lr, [r1], #8\n sub r8, r2\n sub r10, lr\n"
        "ldrd r2, lr, [r1], #72\n sub r11, r2\n sub r12, lr\n ldr r2, [sp, #4]\n"
        "add r4, r5\n add r4, r6\n sub r5, r6\n sub r5, r7\n"
        "add r8, r10\n add r8, r11\n sub r10, r11\n sub r10, r12\n"
        "add r4, r2, r4, asr #2\n add r5, r2, r5, asr #2\n"
        "add r8, r2, r8, asr #2\n add r10, r2, r10, asr #2\n"
        "str r4, [r0]\n str r8, [r0, r3]\n str r5, [r0, #4]!\n str r10, [r0, r3]\n"
        "ldr r2, [sp]\n adds r0, #4\n subs r2, #1\n str r2, [sp]\n bne.w 1b\n"
        "add sp, #8\n pop {r4-r8, r10, r11, pc}\n");
}
/* clang-format on */
#else
/* bias + sum / 4, where four divides the sum. */
static inline int32_t raot_winograd_quarter(uint32_t sum, int32_t bias)
{
    const int32_t quarter = (int32_t)sum >> 2;

    return (int32_t)((uint32_t)bias + (uint32_t)quarter);
}

/* The sum of the first three of four numbers, and the second one less both behind it: A^T. */
static inline uint32_t raot_winograd_first(const int32_t *sums)
{
    return (uint32_t)sums[0] + (uint32_t)sums[4] + (uint32_t)sums[8];
}

static inline uint32_t raot_winograd_second(const int32_t *sums)
{
    return (uint32_t)sums[4] - (uint32_t)sums[8] - (uint32_t)sums[12];
}

static inline void raot_winograd_lines(int32_t *to, const int32_t *sums, int32_t line_step,
                                       int32_t tiles, int32_t bias)
{
    int32_t *const lower = to + line_step / 4;

    /*@ loop unroll 4096; */
    for (int32_t t = 0; t < tiles; t++) {
        uint32_t a = raot_winograd_first(sums);
        uint32_t b = raot_winograd_first(sums + 1);
        uint32_t c = raot_winograd_first(sums + 2);
        to[2 * t] = raot_winograd_quarter(a + b + c, bias);
        to[2 * t + 1] = raot_winograd_quarter(b - c - raot_winograd_first(sums + 3), bias);
        a = raot_winograd_second(sums);
        b = raot_winograd_second(sums + 1);
        c = raot_winograd_second(sums + 2);
        lower[2 * t] = raot_winograd_quarter(a + b + c, bias);
        lower[2 * t + 1] = raot_winograd_quarter(b - c - raot_winograd_second(sums + 3), bias);
        sums += 32;
    }
}
#endif

__attribute__((noinline, unused)) static void raot_winograd_output(int32_t *to, const int32_t *sums,
                                                                   const int32_t *bias,
                                                                   int32_t tiles, int32_t line_step,
                                                                   int32_t channel_step)
{
    raot_winograd_lines(to, sums, 4 * line_step, tiles, bias[0]);
    raot_winograd_lines(to + channel_step, sums + 16, 4 * line_step, tiles, bias[1]);
}

#endif
