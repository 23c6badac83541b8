/*
 * multiply_last.h - integer contractions whose channels lie side by side.
 *
 * Windows of places are rows of `depth` signed bytes, `row_step` apart. The sums of four channels
 * and two places are worked on at once. Weights come four channels at a time: what their sums start
 * with, for both places, then 16 bytes of each channel in turn, zeros behind the last. Channels go
 * by eights: 0 2 4 6, then 1 3 5 7; the last four or less of all in their own order. Sums wrap.
 */
#ifndef RAOT_MULTIPLY_LAST_H
#define RAOT_MULTIPLY_LAST_H

#include <stdint.h>
#include <string.h>

#include "convert.h"

#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#endif

/* `count` bytes, each xor `flip`. */
static inline void raot_copy_s8(int8_t *to, const uint8_t *from, int32_t count, int32_t flip)
{
#if defined(__ARM_FEATURE_MVE)
    for (int32_t i = 0; i < count; i += 16) {
        const mve_pred16_t some = vctp8q((uint32_t)(count - i));
        const uint8x16_t x = vldrbq_z_u8(from + i, some);
        vstrbq_p_u8((uint8_t *)to + i, veorq_u8(x, vdupq_n_u8((uint8_t)flip)), some);
    }
#else
    for (int32_t i = 0; i < count; i++) {
        to[i] = (int8_t)(from[i] ^ flip);
    }
#endif
}

static inline void raot_fill_s8(int8_t *to, int32_t byte, int32_t count)
{
#if defined(__ARM_FEATURE_MVE)
    for (int32_t i = 0; i < count; i += 16) {
        vstrbq_p_s8(to + i, vdupq_n_s8((int8_t)byte), vctp8q((uint32_t)(count - i)));
    }
#else
    (void)memset(to, byte, (size_t)count);
#endif
}

#if defined(__ARM_FEATURE_MVE)
/* `count` bytes that are `step` apart, as `apart` tells eight of them, each xor `flip`. */
static inline void raot_apart_s8(int8_t *to, const uint8_t *from, int32_t count, int32_t step,
                                 uint16x8_t apart, int32_t flip)
{
    const uint16x8_t other = vdupq_n_u16((uint16_t)flip);
#if defined(__GNUC__) && !defined(__clang__)
    __asm volatile(
        "dlstp.16 lr, %[count]\n"
        "1:\n vldrb.u16 q0, [%[from], %q[apart]]\n veor q0, q0, %q[other]\n"
        "vstrb.16 q0, [%[to]], #8\n add %[from], %[step]\n letp lr, 1b\n"
        : [to] "+l"(to), [from] "+r"(from)
        : [count] "r"(count), [step] "r"(8 * step), [apart] "w"(apart), [other] "w"(other)
        : "lr", "s0", "s1", "s2", "s3", "cc", "memory");
#else
    for (int32_t i = 0; i < count; i += 8) {
        const mve_pred16_t some = vctp16q((uint32_t)(count - i));
        const uint16x8_t x = vldrbq_gather_offset_z_u16(from + i * step, apart, some);
        vstrbq_p_u16((uint8_t *)to + i, veorq_u16(x, other), some);
    }
#endif
}

/* `count` bytes that are `step` apart to places `to_step` apart, each xor `flip`. */
static inline void raot_across_s8(int8_t *to, const uint8_t *from, int32_t count, int32_t step,
                                  int32_t to_step, int32_t flip)
{
    const uint16x8_t place = vidupq_n_u16(0, 1);
    const uint16x8_t apart = vmulq_n_u16(place, (uint16_t)step);
    const uint16x8_t at = vmulq_n_u16(place, (uint16_t)to_step);
    const uint16x8_t other = vdupq_n_u16((uint16_t)flip);

    for (int32_t i = 0; i < count; i += 8) {
        const mve_pred16_t some = vctp16q((uint32_t)(count - i));
        const uint16x8_t x = vldrbq_gather_offset_z_u16(from + i * step, apart, some);
        vstrbq_scatter_offset_p_u16((uint8_t *)to + i * to_step, at, veorq_u16(x, other), some);
    }
}
#endif

/*
 * Columns first..first + columns of some lines of an image, one after the other: of each column,
 * `channels` bytes of every line. Lines first1..last1 of `lines` and columns 0..width lie inside
 * the image; what is outside is `zero`. `image` is column 0 of the first line inside. `flip` is 0,
 * or 128 where the image has unsigned bytes: they become signed.
 */
__attribute__((noinline, unused)) static void
raot_beside_u8(int8_t *strip, const uint8_t *image, int32_t zero, int32_t flip, int32_t channels,
               int32_t channel_step, int32_t lines, int32_t first1, int32_t last1,
               int32_t line_step, int32_t columns, int32_t first, int32_t width,
               int32_t column_step)
{
    const int32_t piece = lines * channels;
    const int32_t left = first < 0 ? (-first < columns ? -first : columns) : 0;
    const int32_t inside = width - first < columns ? width - first : columns;
    const int32_t right = inside > left ? inside : left;

    if (left > 0) {
        raot_fill_s8(strip, zero, left * piece);
    }
    if (right < columns) {
        raot_fill_s8(strip + right * piece, zero, (columns - right) * piece);
    }
    for (int32_t j = 0; j < lines; j++) {
        int8_t *to = strip + left * piece + j * channels;
        if (j < first1 || j >= last1) {
            for (int32_t c = left; c < right; c++) {
                raot_fill_s8(to, zero, channels);
                to += piece;
            }
            continue;
        }
        const uint8_t *from = image + (j - first1) * line_step + (first + left) * column_step;
        if (channel_step == 1 && channels > 1) {
            if (lines == 1 && column_step == channels) {
                raot_copy_s8(to, from, (right - left) * channels, flip);
                continue;
            }
#if defined(__ARM_FEATURE_MVE)
            if (channels <= 16) {
                const mve_pred16_t some = vctp8q((uint32_t)channels);
                const uint8x16_t other = vdupq_n_u8((uint8_t)flip);
                for (int32_t c = left; c < right; c++) {
                    vstrbq_p_u8((uint8_t *)to, veorq_u8(vldrbq_z_u8(from, some), other), some);
                    to += piece;
                    from += column_step;
                }
                continue;
            }
#endif
            for (int32_t c = left; c < right; c++) {
                raot_copy_s8(to, from, channels, flip);
                to += piece;
                from += column_step;
            }
            continue;
        }
#if defined(__ARM_FEATURE_MVE)
        if (channels >= 4 && channel_step <= UINT16_MAX / 7) {
            const uint16x8_t apart = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)channel_step);
            for (int32_t c = left; c < right; c++) {
                raot_apart_s8(to, from, channels, channel_step, apart, flip);
                to += piece;
                from += column_step;
            }
            continue;
        }
        if (column_step <= UINT16_MAX / 7 && piece <= UINT16_MAX / 7) {
            for (int32_t i = 0; i < channels; i++) {
                raot_across_s8(to + i, from + i * channel_step, right - left, column_step, piece,
                               flip);
            }
            continue;
        }
#endif
        for (int32_t i = 0; i < channels; i++) {
            const uint8_t *source = from + i * channel_step;
            int8_t *target = to + i;
            for (int32_t c = left; c < right; c++) {
                *target = (int8_t)(*source ^ flip);
                target += piece;
                source += column_step;
            }
        }
    }
}

#define raot_beside_s8(strip, image, ...) \
    raot_beside_u8(strip, (const uint8_t *)(image), __VA_ARGS__)

/*
 * For pairs of places, of which the second is the first again where there is none: the sums of
 * each group of channels, four of the first place and four of the second.
 */
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define RAOT_BLOCK_LAST         \
    "vldrb.8 q0, [%[x]], #16\n" \
    "vldrb.8 q1, [%[y]], #16\n" \
    "vldrb.8 q2, [%[w]], #16\n" \
    "vldrb.8 q3, [%[w]], #16\n" \
    "vmladava.s8 r0, q0, q2\n"  \
    "vmladava.s8 r8, q1, q2\n"  \
    "vldrb.8 q2, [%[w]], #16\n" \
    "vmladava.s8 r2, q0, q3\n"  \
    "vmladava.s8 r10, q1, q3\n" \
    "vldrb.8 q3, [%[w]], #16\n" \
    "vmladava.s8 r4, q0, q2\n"  \
    "vmladava.s8 r12, q1, q2\n" \
    "vmladava.s8 r6, q0, q3\n"  \
    "vmladava.s8 r14, q1, q3\n"
#define RAOT_BLOCK_ONE          \
    "vldrb.8 q0, [%[x]], #16\n" \
    "vldrb.8 q1, [%[w]], #16\n" \
    "vldrb.8 q2, [%[w]], #16\n" \
    "vmladava.s8 r0, q0, q1\n"  \
    "vldrb.8 q1, [%[w]], #16\n" \
    "vmladava.s8 r2, q0, q2\n"  \
    "vldrb.8 q2, [%[w]], #16\n" \
    "vmladava.s8 r4, q0, q1\n"  \
    "vmladava.s8 r6, q0, q2\n"
#define RAOT_SUMS_LAST "{r0, r2, r4, r6, r8, r10, r12, r14}"

/* Where the four blocks of a turn are entered, and what follows them: jumps of known length. */
struct raot_turns {
    int32_t count;
    int32_t skip;
    int32_t tail;
};

static inline struct raot_turns raot_turns_of(int32_t depth, int32_t block)
{
    const int32_t blocks = depth / 16;
    const struct raot_turns turns = {(blocks + 3) / 4, (4 - blocks % 4) % 4 * block, depth % 16};
    return turns;
}

/* clang-format off */
__attribute__((noinline, unused)) static void
raot_multiply_two_s8(int32_t *to, const int32_t *w, const int8_t *x, const int8_t *y,
                     int32_t *end, int32_t depth)
{
    const struct raot_turns turns = raot_turns_of(depth, 56);
    const int32_t count = turns.count, skip = turns.skip, tail = turns.tail;
    const int32_t back = (depth + 15) / 16 * 16;
    int32_t entry, after, left;
    __asm volatile(
        /* Jumps go to addresses with the lowest bit set. */
        "ldr %[n], %[count]\n cmp %[n], #0\n ite ne\n"
        "adrne.w r0, 2f\n adreq.w r0, 5f\n"
        "ldr %[n], %[skip]\n add r0, r0, %[n]\n orr r0, r0, #1\n str r0, %[entry]\n"
        "ldr %[n], %[tail]\n vctp.8 %[n]\n cmp %[n], #0\n ite ne\n"
        "adrne.w r0, 3f\n adreq.w r0, 4f\n orr r0, r0, #1\n str r0, %[after]\n"
        "1:\n ldm %[w]!, " RAOT_SUMS_LAST "\n"
        "ldr %[n], %[count]\n ldr pc, %[entry]\n"
        ".p2align 2\n"
        "2:\n" RAOT_BLOCK_LAST RAOT_BLOCK_LAST RAOT_BLOCK_LAST RAOT_BLOCK_LAST
        "subs %[n], #1\n bne.w 2b\n"
        "5:\n ldr pc, %[after]\n"
        ".p2align 2\n"
        "3:\n vpstt\n"
        "vldrbt.8 q0, [%[x]], #16\n vldrbt.8 q1, [%[y]], #16\n"
        "vldrb.8 q2, [%[w]], #16\n vldrb.8 q3, [%[w]], #16\n"
        "vmladava.s8 r0, q0, q2\n vmladava.s8 r8, q1, q2\n vldrb.8 q2, [%[w]], #16\n"
        "vmladava.s8 r2, q0, q3\n vmladava.s8 r10, q1, q3\n vldrb.8 q3, [%[w]], #16\n"
        "vmladava.s8 r4, q0, q2\n vmladava.s8 r12, q1, q2\n"
        "vmladava.s8 r6, q0, q3\n vmladava.s8 r14, q1, q3\n"
        ".p2align 2\n"
        "4:\n stm %[to]!, " RAOT_SUMS_LAST "\n"
        "ldr %[n], %[back]\n sub %[x], %[n]\n sub %[y], %[n]\n"
        "cmp %[to], %[end]\n bne.w 1b\n"
        : [w] "+r"(w), [x] "+r"(x), [y] "+r"(y), [to] "+r"(to), [n] "=&r"(left),
          [entry] "=m"(entry), [after] "=m"(after)
        : [end] "r"(end), [count] "m"(count), [skip] "m"(skip), [tail] "m"(tail), [back] "m"(back)
        : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "r14", "s0", "s1", "s2", "s3", "s4", "s5",
          "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15", "cc", "memory");
}

__attribute__((noinline, unused)) static void
raot_multiply_one_s8(int32_t *to, const int32_t *w, const int8_t *x, int32_t *end, int32_t depth)
{
    const struct raot_turns turns = raot_turns_of(depth, 36);
    const int32_t count = turns.count, skip = turns.skip, tail = turns.tail;
    const int32_t back = (depth + 15) / 16 * 16;
    int32_t entry, after, left;
    __asm volatile(
        "cmp %[count], #0\n ite ne\n"
        "adrne.w r0, 2f\n adreq.w r0, 5f\n"
        "ldr %[n], %[skip]\n add r0, r0, %[n]\n orr r0, r0, #1\n str r0, %[entry]\n"
        "ldr %[n], %[tail]\n vctp.8 %[n]\n cmp %[n], #0\n ite ne\n"
        "adrne.w r0, 3f\n adreq.w r0, 4f\n orr r0, r0, #1\n str r0, %[after]\n"
        "1:\n ldm %[w]!, " RAOT_SUMS_LAST "\n"
        "mov %[n], %[count]\n ldr pc, %[entry]\n"
        ".p2align 2\n"
        "2:\n" RAOT_BLOCK_ONE RAOT_BLOCK_ONE RAOT_BLOCK_ONE RAOT_BLOCK_ONE
        "subs %[n], #1\n bne.w 2b\n"
        "5:\n ldr pc, %[after]\n"
        ".p2align 2\n"
        "3:\n vpst\n"
        "vldrbt.8 q0, [%[x]], #16\n"
        "vldrb.8 q1, [%[w]], #16\n vldrb.8 q2, [%[w]], #16\n"
        "vmladava.s8 r0, q0, q1\n vldrb.8 q1, [%[w]], #16\n"
        "vmladava.s8 r2, q0, q2\n vldrb.8 q2, [%[w]], #16\n"
        "vmladava.s8 r4, q0, q1\n vmladava.s8 r6, q0, q2\n"
        ".p2align 2\n"
        "4:\n mov r8, r0\n mov r10, r2\n mov r12, r4\n mov r14, r6\n"
        "stm %[to]!, " RAOT_SUMS_LAST "\n"
        "ldr %[n], %[back]\n sub %[x], %[n]\n"
        "cmp %[to], %[end]\n bne.w 1b\n"
        : [w] "+r"(w), [x] "+r"(x), [to] "+r"(to), [n] "=&r"(left),
          [entry] "=m"(entry), [after] "=m"(after)
        : [end] "r"(end), [count] "r"(count), [skip] "m"(skip), [tail] "m"(tail), [back] "m"(back)
        : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "r14", "s0", "s1", "s2", "s3", "s4", "s5",
          "s6", "s7", "s8", "s9", "s10", "s11", "cc", "memory");
}
/* clang-format on */
#undef RAOT_BLOCK_LAST
#undef RAOT_BLOCK_ONE
#undef RAOT_SUMS_LAST
#else
static inline void raot_multiply_two_s8(int32_t *to, const int32_t *w, const int8_t *x,
                                        const int8_t *y, int32_t *end, int32_t depth)
{
    /*@ loop unroll 4096; */
    for (; to != end; to += 8) {
        const int8_t *const bytes = (const int8_t *)(w + 8);
        for (int32_t n = 0; n < 4; n++) {
            uint32_t first = (uint32_t)w[n];
            uint32_t second = first;
            for (int32_t k = 0; k < depth; k++) {
                const int32_t by = bytes[k / 16 * 64 + n * 16 + k % 16];
                first += (uint32_t)(by * x[k]);
                second += (uint32_t)(by * y[k]);
            }
            to[n] = (int32_t)first;
            to[n + 4] = (int32_t)second;
        }
        w += 8 + (depth + 15) / 16 * 16;
    }
}

static inline void raot_multiply_one_s8(int32_t *to, const int32_t *w, const int8_t *x,
                                        int32_t *end, int32_t depth)
{
    raot_multiply_two_s8(to, w, x, x, end, depth);
}
#endif

__attribute__((noinline, unused)) static void
raot_multiply_last_s8(int32_t *sums, const int32_t *weights, const int8_t *rows, int32_t groups,
                      int32_t depth, int32_t places, int32_t row_step)
{
    int32_t left;

    /*@ split places; */
    /*@ loop unroll 4096; */
    for (left = places; left > 1; left -= 2) {
        raot_multiply_two_s8(sums, weights, rows, rows + row_step, sums + 8 * groups, depth);
        sums += 8 * groups;
        rows += 2 * row_step;
    }
    if (left > 0) {
        raot_multiply_one_s8(sums, weights, rows, sums + 8 * groups, depth);
    }
}

#endif
