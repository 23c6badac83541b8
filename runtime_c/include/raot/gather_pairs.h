/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather_pairs.h - windows of output positions as pairs of 16-bit integers, an implicit im2col.
 *
 * A window has `lines` rows of `channels` elements for each of its `taps` columns. Elements of a
 * column are numbered row by row, and two with adjacent numbers are a pair. The pair j of tap t
 * at position p is pairs[((j * taps + t) * wide + p) * 2] and the next element, for p < columns.
 * Position p reads column first + t * dilation + p * stride of the image. Columns outside of
 * 0..width, rows outside of first1..last1 and elements beyond the last one are `zero`. `image` is
 * the element of column 0 in row first1.
 */
#ifndef RAOT_GATHER_PAIRS_H
#define RAOT_GATHER_PAIRS_H

#include <stdint.h>

#include "copy.h"
#include "dsp.h"

/* Two 16-bit integers from the lower, and from the upper halves of two words. */
static inline uint32_t raot_pair_lower(uint32_t first, uint32_t second)
{
#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && defined(RAOT_DSP)
    uint32_t both;
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(both) : "r"(first), "r"(second));
    return both;
#else
    return (first & 0xffffu) | second << 16;
#endif
}

static inline uint32_t raot_pair_upper(uint32_t first, uint32_t second)
{
#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && defined(RAOT_DSP)
    uint32_t both;
    __asm("pkhtb %0, %1, %2, asr #16" : "=r"(both) : "r"(second), "r"(first));
    return both;
#else
    return first >> 16 | (second & 0xffff0000u);
#endif
}

static inline void raot_pair_store(int16_t *to, uint32_t pair)
{
#if defined(__ARM_FEATURE_UNALIGNED) && !defined(__ARM_BIG_ENDIAN)
    RAOT_COPY(to, &pair, sizeof pair);
#else
    to[0] = (int16_t)(uint16_t)(pair & 0xffffu);
    to[1] = (int16_t)(uint16_t)(pair >> 16);
#endif
}

static inline void raot_pair_fill(int16_t *to, uint32_t pair, int32_t count)
{
    /*@ loop unroll 4096; */
    for (; count > 0; count--) {
        raot_pair_store(to, pair);
        to += 2;
    }
}

/* The number of positions whose columns are less than `limit`, at most `columns`. */
static inline int32_t raot_pair_columns(int32_t limit, int32_t stride, int32_t columns)
{
    const int32_t count = limit <= 0 ? 0 : stride == 1 ? limit : (limit + stride - 1) / stride;
    return count < columns ? count : columns;
}

/* Positions of two contiguous rows, `count` times four. */
#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && defined(RAOT_DSP)
#define RAOT_GATHER_GROUPS(N, T, EXTEND)                                                         \
    static inline void raot_pair_groups_##N(int16_t *to, const T *a, const T *b, int32_t count)  \
    {                                                                                            \
        __asm volatile("1: ldr r4, [%[a]], #4\n ldr r5, [%[b]], #4\n" EXTEND " r6, r4\n " EXTEND \
                       " r8, r5\n " EXTEND " r4, r4, ror #8\n " EXTEND " r5, r5, ror #8\n"       \
                       "pkhbt r10, r6, r8, lsl #16\n pkhtb r8, r8, r6, asr #16\n"                \
                       "pkhbt r6, r4, r5, lsl #16\n pkhtb r5, r5, r4, asr #16\n"                 \
                       "str r10, [%[to]], #4\n str r6, [%[to]], #4\n str r8, [%[to]], #4\n"      \
                       "str r5, [%[to]], #4\n subs %[n], #1\n bne 1b\n"                          \
                       : [to] "+&r"(to), [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(count)            \
                       :                                                                         \
                       : "r4", "r5", "r6", "r8", "r10", "cc", "memory");                         \
    }
#else
#define RAOT_GATHER_GROUPS(N, T, EXTEND)                                                        \
    static inline void raot_pair_groups_##N(int16_t *to, const T *a, const T *b, int32_t count) \
    {                                                                                           \
        /*@ loop unroll 4096; */                                                                \
        for (int32_t p = 0; p < 4 * count; p++) {                                               \
            raot_pair_store(to + 2 * p, raot_pair_lower((uint32_t)a[p], (uint32_t)b[p]));       \
        }                                                                                       \
    }
#endif

/* Every second one of four positions of two rows; four contiguous channels of a position. */
#if defined(RAOT_DSP)
#define RAOT_GATHER_FOUR(N, T)                                                           \
    static inline void raot_pair_halves_##N(int16_t *to, const T *a, const T *b)         \
    {                                                                                    \
        const uint32_t even_a = (uint32_t)raot_dsp_even_##N(raot_dsp_load(a));           \
        const uint32_t even_b = (uint32_t)raot_dsp_even_##N(raot_dsp_load(b));           \
        raot_pair_store(to, raot_pair_lower(even_a, even_b));                            \
        raot_pair_store(to + 2, raot_pair_upper(even_a, even_b));                        \
    }                                                                                    \
    static inline void raot_pair_channels_##N(int16_t *to, int16_t *next, const T *from) \
    {                                                                                    \
        const uint32_t four = raot_dsp_load(from);                                       \
        const uint32_t even = (uint32_t)raot_dsp_even_##N(four);                         \
        const uint32_t odd = (uint32_t)raot_dsp_odd_##N(four);                           \
        raot_pair_store(to, raot_pair_lower(even, odd));                                 \
        raot_pair_store(next, raot_pair_upper(even, odd));                               \
    }
#else
#define RAOT_GATHER_FOUR(N, T)                                                           \
    static inline void raot_pair_halves_##N(int16_t *to, const T *a, const T *b)         \
    {                                                                                    \
        raot_pair_store(to, raot_pair_lower((uint32_t)a[0], (uint32_t)b[0]));            \
        raot_pair_store(to + 2, raot_pair_lower((uint32_t)a[2], (uint32_t)b[2]));        \
    }                                                                                    \
    static inline void raot_pair_channels_##N(int16_t *to, int16_t *next, const T *from) \
    {                                                                                    \
        raot_pair_store(to, raot_pair_lower((uint32_t)from[0], (uint32_t)from[1]));      \
        raot_pair_store(next, raot_pair_lower((uint32_t)from[2], (uint32_t)from[3]));    \
    }
#endif

/* Four contiguous channels of `count` positions that are `step` apart. */
#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && defined(RAOT_DSP)
#define RAOT_GATHER_POSITIONS(N, T, EXTEND)                                                       \
    static inline void raot_pair_positions_##N(int16_t *to, int16_t *next, const T *from,         \
                                               int32_t count, int32_t step)                       \
    {                                                                                             \
        __asm volatile("subs %[n], #2\n blt 2f\n"                                                 \
                       "1: ldr r8, [%[from]]\n ldr r4, [%[from], %[step]]\n"                      \
                       "add %[from], %[from], %[step], lsl #1\n subs %[n], #2\n" EXTEND           \
                       " r10, r8\n " EXTEND " r8, r8, ror #8\n"                                   \
                       "pkhbt r12, r10, r8, lsl #16\n pkhtb r8, r8, r10, asr #16\n" EXTEND        \
                       " r10, r4\n " EXTEND " r4, r4, ror #8\n"                                   \
                       "str r12, [%[to]], #4\n str r8, [%[next]], #4\n"                           \
                       "pkhbt r12, r10, r4, lsl #16\n pkhtb r4, r4, r10, asr #16\n"               \
                       "str r12, [%[to]], #4\n str r4, [%[next]], #4\n bge 1b\n"                  \
                       "2: adds %[n], #2\n"                                                       \
                       : [to] "+&r"(to), [next] "+&r"(next), [from] "+&r"(from), [n] "+&r"(count) \
                       : [step] "r"(step)                                                         \
                       : "r4", "r8", "r10", "r12", "cc", "memory");                               \
        if (count != 0) {                                                                         \
            raot_pair_channels_##N(to, next, from);                                               \
        }                                                                                         \
    }
#else
#define RAOT_GATHER_POSITIONS(N, T, EXTEND)                                               \
    static inline void raot_pair_positions_##N(int16_t *to, int16_t *next, const T *from, \
                                               int32_t count, int32_t step)               \
    {                                                                                     \
        /*@ loop unroll 4096; */                                                          \
        for (int32_t p = 0; p < count; p++) {                                             \
            raot_pair_channels_##N(to + 2 * p, next + 2 * p, from + p * step);            \
        }                                                                                 \
    }
#endif

/* `count` times four contiguous channels of a position. */
#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && defined(RAOT_DSP)
#define RAOT_GATHER_COLUMN(N, T, EXTEND)                                               \
    static inline void raot_pair_column_##N(int16_t *to, const T *from, int32_t count, \
                                            int32_t far)                               \
    {                                                                                  \
        __asm volatile("1: ldr r8, [%[from]], #4\n " EXTEND " r10, r8\n " EXTEND       \
                       " r8, r8, ror #8\n subs %[n], #1\n"                             \
                       "pkhbt r12, r10, r8, lsl #16\n pkhtb r8, r8, r10, asr #16\n"    \
                       "str r12, [%[to]]\n str r8, [%[to], %[far]]\n"                  \
                       "add %[to], %[to], %[far], lsl #1\n bne 1b\n"                   \
                       : [to] "+&r"(to), [from] "+&r"(from), [n] "+&r"(count)          \
                       : [far] "r"(2 * far)                                            \
                       : "r8", "r10", "r12", "cc", "memory");                          \
    }
#else
#define RAOT_GATHER_COLUMN(N, T, EXTEND)                                                    \
    static inline void raot_pair_column_##N(int16_t *to, const T *from, int32_t count,      \
                                            int32_t far)                                    \
    {                                                                                       \
        /*@ loop unroll 4096; */                                                            \
        for (int32_t i = 0; i < count; i++) {                                               \
            raot_pair_channels_##N(to + 2 * i * far, to + (2 * i + 1) * far, from + 4 * i); \
        }                                                                                   \
    }
#endif

/* clang-format off */
#define RAOT_GATHER_PAIRS(N, T, EXTEND) \
    RAOT_GATHER_GROUPS(N, T, EXTEND) \
    RAOT_GATHER_FOUR(N, T) \
    RAOT_GATHER_POSITIONS(N, T, EXTEND) \
    RAOT_GATHER_COLUMN(N, T, EXTEND) \
    /* `count` positions of two rows, whose elements are `step` apart. */ \
    static inline void raot_pair_rows_##N( \
        int16_t *to, const T *a, const T *b, int32_t count, int32_t step) \
    { \
        if (step == 2) { \
            /*@ loop unroll 4096; */ \
            for (; count > 2; count -= 2) { \
                raot_pair_halves_##N(to, a, b); \
                a += 4; \
                b += 4; \
                to += 4; \
            } \
        } \
        /*@ loop unroll 4096; */ \
        for (; count > 0; count--) { \
            raot_pair_store(to, raot_pair_lower((uint32_t)*a, (uint32_t)*b)); \
            a += step; \
            b += step; \
            to += 2; \
        } \
    } \
    /* A row of an image; `far` from pair to pair. */ \
    static inline void raot_pair_line_##N( \
        int16_t *to, const T *from, uint32_t empty, int32_t channels, int32_t channel_step, \
        int32_t begin, int32_t end, int32_t columns, int32_t step, int32_t far) \
    { \
        int32_t c = 0; \
        if (begin > 0 || end < columns) { \
            /*@ loop unroll 4096; */ \
            for (int32_t n = 0; n < (channels + 1) / 2; n++) { \
                raot_pair_fill(to + n * far, empty, begin); \
                raot_pair_fill(to + n * far + 2 * end, empty, columns - end); \
            } \
        } \
        to += 2 * begin; \
        const int32_t count = end - begin; \
        if (count <= 0) { \
            return; \
        } \
        if (channel_step == 1 && channels >= 4 * count) { \
            const int32_t groups = channels / 4; \
            /*@ loop unroll 4096; */ \
            for (int32_t p = 0; p < count; p++) { \
                raot_pair_column_##N(to + 2 * p, from + p * step, groups, far); \
            } \
            to += 2 * groups * far; \
            c = 4 * groups; \
        } \
        /*@ loop unroll 4096; */ \
        for (; channel_step == 1 && c + 4 <= channels; c += 4) { \
            raot_pair_positions_##N(to, to + far, from + c, count, step); \
            to += 2 * far; \
        } \
        from += c * channel_step; \
        if (step == 1 && count >= 4) { \
            const int32_t last = count % 4 == 0 ? 0 : count - 4; \
            /*@ loop unroll 4096; */ \
            for (; c + 2 <= channels; c += 2) { \
                const T *const next = from + channel_step; \
                raot_pair_groups_##N(to, from, next, count / 4); \
                if (last != 0) { \
                    raot_pair_groups_##N(to + 2 * last, from + last, next + last, 1); \
                } \
                to += far; \
                from = next + channel_step; \
            } \
        } \
        /*@ loop unroll 4096; */ \
        for (; c + 2 <= channels; c += 2) { \
            raot_pair_rows_##N(to, from, from + channel_step, count, step); \
            to += far; \
            from += 2 * channel_step; \
        } \
        /*@ loop unroll 4096; */ \
        for (int32_t p = 0; c < channels && p < count; p++) { \
            raot_pair_store(to + 2 * p, raot_pair_lower((uint32_t)from[p * step], empty)); \
        } \
    } \
    __attribute__((noinline, unused)) static void raot_gather_pairs_##N##_unpacked( \
        int16_t *pairs, const T *image, int32_t zero, int32_t channels, int32_t channel_step, \
        int32_t lines, int32_t first1, int32_t last1, int32_t line_step, int32_t taps, \
        int32_t dilation, int32_t columns, int32_t first, int32_t stride, int32_t width, \
        int32_t column_step, int32_t wide) \
    { \
        const uint32_t empty = raot_pair_lower((uint32_t)zero, (uint32_t)zero); \
        const int32_t far = taps * wide * 2; \
        const int32_t step = stride * column_step; \
        if (channels == 1 && first1 == 0 && last1 == lines) { \
            channels = lines; \
            channel_step = line_step; \
            lines = 1; \
            last1 = 1; \
        } \
        /*@ loop unroll 4096; */ \
        for (int32_t t = 0; t < taps; t++) { \
            const int32_t left = first + t * dilation; \
            const int32_t begin = raot_pair_columns(-left, stride, columns); \
            const int32_t most = raot_pair_columns(width - left, stride, columns); \
            const int32_t end = most < begin ? begin : most; \
            const int32_t origin = end > begin ? (left + begin * stride) * column_step : 0; \
            int16_t *to = pairs + 2 * t * wide; \
            if (channels % 2 == 0 || lines == 1) { \
                /*@ loop unroll 4096; */ \
                for (int32_t y = 0; y < lines; y++) { \
                    const int32_t inside = first1 <= y && y < last1 && begin < end; \
                    const T *const row = image + (inside ? (y - first1) * line_step + origin : 0); \
                    raot_pair_line_##N(to, row, empty, channels, channel_step, \
                                       inside ? begin : columns, inside ? end : columns, columns, \
                                       step, far); \
                    to += channels / 2 * far; \
                } \
                continue; \
            } \
            /* The rows of both elements of a pair may differ. */ \
            int32_t y = 0; \
            int32_t c = 0; \
            /*@ loop unroll 4096; */ \
            while (y < lines) { \
                int32_t inside[2]; \
                const T *from[2]; \
                /*@ loop unroll 4096; */ \
                for (int32_t h = 0; h < 2; h++) { \
                    inside[h] = first1 <= y && y < last1 && begin < end; \
                    from[h] = image; \
                    if (inside[h] != 0) { \
                        from[h] += (y - first1) * line_step + c * channel_step + origin; \
                    } \
                    c++; \
                    if (c == channels) { \
                        c = 0; \
                        y++; \
                    } \
                } \
                if (inside[0] && inside[1]) { \
                    raot_pair_fill(to, empty, begin); \
                    raot_pair_rows_##N(to + 2 * begin, from[0], from[1], end - begin, step); \
                    raot_pair_fill(to + 2 * end, empty, columns - end); \
                } else { \
                    raot_pair_fill(to, empty, columns); \
                    /*@ loop unroll 4096; */ \
                    for (int32_t h = 0; h < 2 && (inside[0] || inside[1]); h++) { \
                        /*@ loop unroll 4096; */ \
                        for (int32_t p = begin; p < end && inside[h]; p++) { \
                            to[2 * p + h] = from[h][(p - begin) * step]; \
                        } \
                    } \
                } \
                to += far; \
            } \
        } \
    }
/* clang-format on */
RAOT_GATHER_PAIRS(s8, int8_t, "sxtb16")
RAOT_GATHER_PAIRS(u8, uint8_t, "uxtb16")
#undef RAOT_GATHER_PAIRS
#undef RAOT_GATHER_GROUPS
#undef RAOT_GATHER_FOUR
#undef RAOT_GATHER_POSITIONS
#undef RAOT_GATHER_COLUMN

/* Sizes of the functions below, by name. */
struct raot_gather_pairs {
    int32_t zero;
    int32_t channels;
    int32_t channel_step;
    int32_t lines;
    int32_t first1;
    int32_t last1;
    int32_t line_step;
    int32_t taps;
    int32_t dilation;
    int32_t columns;
    int32_t first;
    int32_t stride;
    int32_t width;
    int32_t column_step;
    int32_t wide;
};

#define raot_gather_pairs_s8(pairs, image, sizes)                                                \
    raot_gather_pairs_s8_unpacked(                                                               \
        pairs, image, (sizes)->zero, (sizes)->channels, (sizes)->channel_step, (sizes)->lines,   \
        (sizes)->first1, (sizes)->last1, (sizes)->line_step, (sizes)->taps, (sizes)->dilation,   \
        (sizes)->columns, (sizes)->first, (sizes)->stride, (sizes)->width, (sizes)->column_step, \
        (sizes)->wide)

#define raot_gather_pairs_u8(pairs, image, sizes)                                                \
    raot_gather_pairs_u8_unpacked(                                                               \
        pairs, image, (sizes)->zero, (sizes)->channels, (sizes)->channel_step, (sizes)->lines,   \
        (sizes)->first1, (sizes)->last1, (sizes)->line_step, (sizes)->taps, (sizes)->dilation,   \
        (sizes)->columns, (sizes)->first, (sizes)->stride, (sizes)->width, (sizes)->column_step, \
        (sizes)->wide)

#endif
