/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_kernel_forms.c - results of micro-kernels on random tiles, one checksum a line.
 *
 * Built with assembly, with intrinsics alone and in plain C, it prints the same lines. Assembly
 * functions are called through a guard that checks every callee-saved register, r9 among them.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "raot/convolve.h"
#include "raot/depthwise_3x3.h"
#include "raot/multiply_half.h"
#include "raot/multiply_half_left.h"
#include "raot/multiply_s16.h"

enum { ROUNDS = 300, BYTES = 1 << 16, SUMS = 1 << 14, ARGUMENTS = 9 };

static uint32_t state = 1;
static int8_t bytes[BYTES];
static int16_t halves[BYTES];
static float floats[BYTES];
static uint16_t narrow[2][BYTES];
static int32_t sums[SUMS];
static float tile[64 + 24 * RAOT_TILE_COLUMNS];

static int32_t below(int32_t limit)
{
    state = state * 1664525u + 1013904223u;
    return (int32_t)((state >> 8) % (uint32_t)limit);
}

static uint32_t checksum(uint32_t hash, const void *from, size_t count)
{
    const uint8_t *const all = from;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ all[i]) * 16777619u;
    }
    return hash;
}

#if defined(RAOT_ASM_THUMB)
/* Bits of the result: a callee-saved register was changed. `words` are nine arguments. */
__attribute__((naked, noinline)) static uint32_t
guarded(__attribute__((unused)) void (*function)(void),
        __attribute__((unused)) const uint32_t *words)
{
    __asm volatile(
        "push {r4-r11, lr}\n vpush {d8-d15}\n sub sp, #28\n mov r12, r0\n mov lr, r1\n"
        "ldr r0, [lr, #16]\n str r0, [sp]\n ldr r0, [lr, #20]\n str r0, [sp, #4]\n"
        "ldr r0, [lr, #24]\n str r0, [sp, #8]\n ldr r0, [lr, #28]\n str r0, [sp, #12]\n"
        "ldr r0, [lr, #32]\n str r0, [sp, #16]\n ldm lr, {r0-r3}\n"
        "movw r4, #1004\n movw r5, #1005\n movw r6, #1006\n movw r7, #1007\n movw r8, #1008\n"
        "movw r9, #1009\n movw r10, #1010\n movw r11, #1011\n"
        "vmov d8, r4, r5\n vmov d9, r6, r7\n vmov d10, r8, r9\n vmov d11, r10, r11\n"
        "vmov d12, r5, r4\n vmov d13, r7, r6\n vmov d14, r9, r8\n vmov d15, r11, r10\n"
        "blx r12\n"
        "movw r1, #1004\n eor r0, r4, r1\n movw r1, #1005\n eor r1, r5\n orr r0, r1\n"
        "movw r1, #1006\n eor r1, r6\n orr r0, r1\n movw r1, #1007\n eor r1, r7\n orr r0, r1\n"
        "movw r1, #1008\n eor r1, r8\n orr r0, r1\n movw r1, #1009\n eor r1, r9\n orr r0, r1\n"
        "movw r1, #1010\n eor r1, r10\n orr r0, r1\n movw r1, #1011\n eor r1, r11\n orr r0, r1\n"
        "vmov r1, r2, d8\n eor r1, r4\n eor r2, r5\n orr r0, r1\n orr r0, r2\n"
        "vmov r1, r2, d9\n eor r1, r6\n eor r2, r7\n orr r0, r1\n orr r0, r2\n"
        "vmov r1, r2, d10\n eor r1, r8\n eor r2, r9\n orr r0, r1\n orr r0, r2\n"
        "vmov r1, r2, d11\n eor r1, r10\n eor r2, r11\n orr r0, r1\n orr r0, r2\n"
        "vmov r1, r2, d12\n eor r1, r5\n eor r2, r4\n orr r0, r1\n orr r0, r2\n"
        "vmov r1, r2, d13\n eor r1, r7\n eor r2, r6\n orr r0, r1\n orr r0, r2\n"
        "vmov r1, r2, d14\n eor r1, r9\n eor r2, r8\n orr r0, r1\n orr r0, r2\n"
        "vmov r1, r2, d15\n eor r1, r11\n eor r2, r10\n orr r0, r1\n orr r0, r2\n"
        "add sp, #28\n vpop {d8-d15}\n pop {r4-r11, pc}\n");
}

static void check(void (*function)(void), const uint32_t *words)
{
    if (guarded(function, words) != 0u) {
        puts("a callee-saved register was changed");
    }
}
#define WORD(x) ((uint32_t)(uintptr_t)(x))
#define NINE(a, b, c, d, e, f, g, h, i)                                                         \
    ((const uint32_t[ARGUMENTS]){WORD(a), WORD(b), WORD(c), WORD(d), WORD(e), WORD(f), WORD(g), \
                                 WORD(h), WORD(i)})
#define CALL9(f, ...) check((void (*)(void))(f), NINE(__VA_ARGS__))
#define CALL6(f, ...) check((void (*)(void))(f), NINE(__VA_ARGS__, 0, 0, 0))
#define CALL5(f, ...) check((void (*)(void))(f), NINE(__VA_ARGS__, 0, 0, 0, 0))
#else
#define CALL9(f, ...) f(__VA_ARGS__)
#define CALL6(f, ...) f(__VA_ARGS__)
#define CALL5(f, ...) f(__VA_ARGS__)
#endif

/* Sums start as large as they may be: they wrap. */
static int32_t any(void)
{
    return (int32_t)((uint32_t)below(1 << 16) << 16 | (uint32_t)below(1 << 16));
}

static uint32_t depthwise(int unsigned_bytes)
{
    const int32_t columns = 1 + below(20), stride = 1 + below(2), rows = 1 + below(6);
    const int32_t width = (columns - 1) * stride + 3 + below(3), step = columns + 1 + below(3);
    const int8_t *const plane = bytes + below(64);
    int16_t weights[10];
    const int32_t bias = any();

    for (int32_t k = 0; k < 10; k++) {
        weights[k] = k < 9 ? (int16_t)(below(512) - 256) : 0;
    }
    if (unsigned_bytes) {
        CALL9(raot_depthwise_3x3_u8_unpacked, sums, (const uint8_t *)plane, weights, &bias, rows,
              columns, width, stride, step);
    } else {
        CALL9(raot_depthwise_3x3_s8_unpacked, sums, plane, weights, &bias, rows, columns, width,
              stride, step);
    }
    uint32_t hash = 0;
    for (int32_t r = 0; r < rows; r++) {
        hash = checksum(hash, sums + r * step, (size_t)columns * sizeof *sums);
    }
    return hash;
}

static uint32_t multiply(int wide)
{
    const int32_t channels = 2 * (1 + below(5)), blocks = below(30);
    int32_t bias[10];

    for (int32_t n = 0; n < channels; n++) {
        bias[n] = any();
    }
    if (wide) {
        CALL6(raot_multiply_s16, sums, halves + 2 * below(9), halves + 500, bias, channels, blocks);
    } else {
        CALL6(raot_multiply_s8, sums, bytes + 4 * below(9), halves + 500, bias, channels, blocks);
    }
    return checksum(0, sums, 2 * (size_t)channels * sizeof *sums);
}

static uint32_t columns(int unsigned_bytes)
{
    const int32_t count0 = 1 + below(3), count1 = 1 + below(3), count2 = 1 + below(9);
    const int32_t three = below(2), count3 = three ? 3 : 1 + below(4), step3 = three ? 1 : below(3);
    const int8_t *const left = bytes + below(64);
    const int8_t *const right = left + (three ? 1 : below(9));
    const int32_t step0 = below(99), step1 = below(99), step2 = below(99);
    const size_t count = (size_t)(count0 * count1 * ((count2 + 1) / 2) * count3 * 4);
    int16_t *const to = (int16_t *)(void *)sums;

    if (unsigned_bytes) {
        raot_columns_u8_unpacked(to, (const uint8_t *)left, (const uint8_t *)right, count0, step0,
                                 count1, step1, count2, step2, count3, step3);
    } else {
        raot_columns_s8_unpacked(to, left, right, count0, step0, count1, step1, count2, step2,
                                 count3, step3);
    }
    return checksum(0, to, count * sizeof *to);
}

static uint32_t block(void)
{
    const int32_t together = below(2);
    const struct raot_level levels[3] = {
        {below(3), below(20), below(9)},
        {below(4), below(20), below(9)},
        {below(12), together ? 1 : below(3), 4 + below(40)},
    };
    const int32_t left_row = below(40);
    const float *const a = floats + below(64);
    const float *const b = floats + 1000 + below(64);

    for (int32_t i = 0; i < 4 * RAOT_TILE_COLUMNS; i++) {
        tile[i] = floats[below(BYTES)];
    }
#if defined(RAOT_VFP)
    CALL5(raot_block_f32, levels, a, left_row, b, tile);
#else
    raot_multiply_f32(4, 4, levels, a, left_row, b, tile);
#endif
    uint32_t hash = 0;
    for (int32_t r = 0; r < 4; r++) {
        hash = checksum(hash, tile + r * RAOT_TILE_COLUMNS, 4 * sizeof *tile);
    }
    return hash;
}

static uint32_t products(void)
{
    const int32_t rows = 1 + below(RAOT_TILE_ROWS), count = 1 + below(RAOT_TILE_COLUMNS);
    const struct raot_level levels[3] = {{1, 0, 0}, {2, 30, 50}, {below(9), 1, 40}};
    const int32_t from = below(64), step = 1 + below(3);
    uint32_t hash = 0;

    memcpy(tile, floats + below(64), sizeof tile);
    raot_multiply_f32(rows, count, levels, floats + from, 50, floats + 2000, tile);
    for (int32_t r = 0; r < rows; r++) {
        hash = checksum(hash, tile + r * RAOT_TILE_COLUMNS, (size_t)count * sizeof *tile);
    }
    raot_add_products(tile, floats + from, floats + 3000, count);
    raot_add_scaled(tile, floats + from, step, floats[from], count);
    return checksum(hash, tile, (size_t)count * sizeof *tile);
}

/* Rows of one element to those of several groups; the right operand is aligned to words or not. */
static uint32_t half_products(int is_bf16)
{
    const int32_t rows = below(2) ? 1 : 1 + below(9), count = 1 + below(RAOT_TILE_COLUMNS);
    const struct raot_level levels[3] = {
        {1 + below(2), 9, 70},
        {1, 0, 0},
        {below(40), 1 + below(2), below(2) ? RAOT_TILE_COLUMNS : 40 + below(3)}};
    const uint16_t *const right = narrow[is_bf16] + below(64);
    uint32_t hash = 0;

    memcpy(tile, floats + below(64), sizeof tile);
    if (is_bf16) {
        raot_multiply_bf16(rows, count, levels, floats + below(64), 50, right, tile);
    } else {
        raot_multiply_f16(rows, count, levels, floats + below(64), 50, right, tile);
    }
    for (int32_t r = 0; r < rows; r++) {
        hash = checksum(hash, tile + r * RAOT_TILE_COLUMNS, (size_t)count * sizeof *tile);
    }
    return hash;
}

/* The same by a left operand of half precision, whose rows are aligned to words or not. */
static uint32_t half_rows(int is_bf16)
{
    const int32_t rows = 1 + below(9), count = 1 + below(RAOT_TILE_COLUMNS);
    const struct raot_level levels[3] = {
        {1 + below(2), 9, 70},
        {1, 0, 0},
        {below(8) ? below(40) : below(320), below(8) ? 1 : 2, below(2) ? RAOT_TILE_COLUMNS : 35}};
    const uint16_t *const left = narrow[is_bf16] + below(64);
    const int32_t left_row = 50 + below(3);
    uint32_t hash = 0;

    memcpy(tile, floats + below(64), sizeof tile);
    if (is_bf16) {
        raot_multiply_left_bf16(rows, count, levels, left, left_row, floats + below(64), tile);
    } else {
        raot_multiply_left_f16(rows, count, levels, left, left_row, floats + below(64), tile);
    }
    for (int32_t r = 0; r < rows; r++) {
        hash = checksum(hash, tile + r * RAOT_TILE_COLUMNS, (size_t)count * sizeof *tile);
    }
    return hash;
}

/* Numbers of half precision and of floats near them. */
static uint32_t conversions(void)
{
    const uint16_t half = (uint16_t)any();
    const float wide = raot_f16_to_f32(half), other = raot_of_bitsf((uint32_t)any());
    const float near = wide * (1.0f + (float)below(9) * 0.000122070312f);
    const uint32_t found[4] = {raot_isnanf(wide) ? 0 : raot_bitsf(wide), raot_f32_to_f16(wide),
                               raot_f32_to_f16(near), raot_f32_to_f16(other)};

    return raot_isnanf(wide) ? 0 : checksum(0, found, sizeof found);
}

static uint32_t clamps(void)
{
    const int32_t x = any() >> below(31);
    const int32_t all[4] = {raot_clamp_i8(x), raot_clamp_i16(x), raot_clamp_u8(x),
                            raot_clamp_u16(x)};
    const float y = (float)x * 0.01f;
    const int32_t more[3] = {raot_f32_to_i8_nearest(y), raot_f32_to_u16_nearest(y),
                             (int32_t)raot_bitsf(raot_sqrtf(raot_absf(y)))};

    return checksum(checksum(0, all, sizeof all), more, sizeof more);
}

int main(void)
{
    for (int32_t i = 0; i < BYTES; i++) {
        bytes[i] = (int8_t)(below(256) - 128);
        halves[i] = bytes[i];
        floats[i] = (float)(below(1 << 24) - (1 << 23)) / 3e6f;
        narrow[0][i] = raot_f32_to_f16(below(8) != 0 ? floats[i] : floats[i] * 1e-5f);
        narrow[1][i] = raot_f32_to_bf16(floats[i]);
    }
    for (int32_t i = 0; i < ROUNDS; i++) {
        printf("%d depthwise %08x %08x", (int)i, (unsigned)depthwise(0), (unsigned)depthwise(1));
        printf(" multiply %08x %08x", (unsigned)multiply(0), (unsigned)multiply(1));
        printf(" columns %08x %08x", (unsigned)columns(0), (unsigned)columns(1));
        printf(" block %08x products %08x", (unsigned)block(), (unsigned)products());
        printf(" half %08x %08x", (unsigned)half_products(0), (unsigned)half_products(1));
        printf(" half rows %08x %08x", (unsigned)half_rows(0), (unsigned)half_rows(1));
        printf(" conversions %08x clamps %08x\n", (unsigned)conversions(), (unsigned)clamps());
    }
    return 0;
}
