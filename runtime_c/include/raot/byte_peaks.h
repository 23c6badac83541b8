/* SPDX-License-Identifier: Apache-2.0 */
/*
 * byte_peaks.h - maxima of windows of bytes, as max pools find them.
 *
 *     raot_peak_channels   out[c] = the greatest image[c + i * step0 + j * step1]
 *     raot_peak_rows       out[j * step] = the greatest image[i * row_step + x], where x begins at
 *                          j * stride + first and takes `taps` columns; those outside
 *                          0 <= x < width do not count
 *
 * A window without elements has the least byte. Rows are searched in lines of bytes: first down
 * each column, then along the line.
 */
#ifndef RAOT_BYTE_PEAKS_H
#define RAOT_BYTE_PEAKS_H

#include <stdint.h>

#include "assembly.h"
#include "convert.h"
#include "copy.h"
#include "dsp.h"
#include "integer.h"
#include "mve.h"

/* Bytes of a line. */
#define RAOT_PEAK_LINE 128

/* Sizes of the functions below, by name. */
struct raot_peak_channels {
    int32_t channels;
    int32_t count0;
    int32_t step0;
    int32_t count1;
    int32_t step1;
};

struct raot_peak_rows {
    int32_t count;
    int32_t step;
    int32_t rows;
    int32_t row_step;
    int32_t taps;
    int32_t stride;
    int32_t first;
    int32_t width;
};

#if defined(RAOT_MVE)
#define RAOT_PEAKS_OF(suffix, byte, WIDE, LANES)                                                 \
    static inline void raot_peak_down_##suffix(byte *to, const byte *from, int32_t count,        \
                                               int32_t count0, int32_t step0, int32_t count1,    \
                                               int32_t step1)                                    \
    {                                                                                            \
        for (int32_t c = 0; c < count; c += 16) {                                                \
            const mve_pred16_t some = vctp8q((uint32_t)(count - c));                             \
            const byte *row = from + c;                                                          \
            LANES peak = vldrbq_z_##WIDE##8(row, some);                                          \
            for (int32_t i = count0; i > 0; i--) {                                               \
                const byte *at = row;                                                            \
                for (int32_t j = count1; j > 0; j--) {                                           \
                    peak = vmaxq_##WIDE##8(peak, vldrbq_z_##WIDE##8(at, some));                  \
                    at += j > 1 ? step1 : 0;                                                     \
                }                                                                                \
                row += i > 1 ? step0 : 0;                                                        \
            }                                                                                    \
            vstrbq_p_##WIDE##8(to + c, peak, some);                                              \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    static inline void raot_peak_along_##suffix(byte *out, const byte *line, int32_t count,      \
                                                int32_t step, int32_t stride, int32_t taps)      \
    {                                                                                            \
        const uint8x16_t lanes = vidupq_n_u8(0u, 1);                                             \
        const uint8x16_t apart = vmulq_n_u8(lanes, (uint8_t)stride);                             \
        for (int32_t k = 0; k < count; k += 16) {                                                \
            const mve_pred16_t some = vctp8q((uint32_t)(count - k));                             \
            const byte *at = line + k * stride;                                                  \
            LANES peak = vldrbq_gather_offset_z_##WIDE##8(at, apart, some);                      \
            for (int32_t t = taps - 1; t > 0; t--) {                                             \
                at++;                                                                            \
                peak = vmaxq_##WIDE##8(peak, vldrbq_gather_offset_z_##WIDE##8(at, apart, some)); \
            }                                                                                    \
            if (step == 1) {                                                                     \
                vstrbq_p_##WIDE##8(out + k, peak, some);                                         \
            } else {                                                                             \
                byte peaks[16];                                                                  \
                                                                                                 \
                vst1q_##WIDE##8(peaks, peak);                                                    \
                for (int32_t i = 0; i < 16 && i < count - k; i++) {                              \
                    out[(k + i) * step] = peaks[i];                                              \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
    }
RAOT_PEAKS_OF(s8, int8_t, s, int8x16_t)
RAOT_PEAKS_OF(u8, uint8_t, u, uint8x16_t)
#else
#if defined(RAOT_DSP) && defined(RAOT_ASM_THUMB)
#define RAOT_PEAK_FOUR(suffix, byte, SUBTRACT)                                                    \
    static inline uint32_t raot_peak_of_##suffix(uint32_t a, uint32_t b)                          \
    {                                                                                             \
        uint32_t result;                                                                          \
                                                                                                  \
        __asm(SUBTRACT " %0, %1, %2\n sel %0, %1, %2" : "=&r"(result) : "r"(a), "r"(b) : "cc");   \
        return result;                                                                            \
    }                                                                                             \
                                                                                                  \
    /* Of `count` times four bytes that are `step` apart. */                                      \
    __attribute__((always_inline)) static inline uint32_t raot_peak_four_##suffix(                \
        const byte *from, int32_t count, int32_t step)                                            \
    {                                                                                             \
        uint32_t peak = raot_dsp_load(from);                                                      \
                                                                                                  \
        for (int32_t i = 1; i < count; i++) {                                                     \
            from += step;                                                                         \
            peak = raot_peak_of_##suffix(peak, raot_dsp_load(from));                              \
        }                                                                                         \
        return peak;                                                                              \
    }                                                                                             \
                                                                                                  \
    /* to[c] of windows that are not empty. Returns how many are done. */                         \
    __attribute__((always_inline)) static inline int32_t raot_peak_windows_of_##suffix(           \
        byte *to, const byte *from, int32_t count, int32_t count0, int32_t step0, int32_t count1, \
        int32_t step1)                                                                            \
    {                                                                                             \
        int32_t c = 0;                                                                            \
                                                                                                  \
        for (; c + 4 <= count; c += 4) {                                                          \
            const byte *row = from + c;                                                           \
            uint32_t peak = raot_peak_four_##suffix(row, count1, step1);                          \
                                                                                                  \
            for (int32_t i = 1; i < count0; i++) {                                                \
                row += step0;                                                                     \
                peak = raot_peak_of_##suffix(peak, raot_peak_four_##suffix(row, count1, step1));  \
            }                                                                                     \
            RAOT_COPY(to + c, &peak, sizeof peak);                                                \
        }                                                                                         \
        return c;                                                                                 \
    }                                                                                             \
                                                                                                  \
    __attribute__((always_inline)) static inline int32_t raot_peak_taps_of_##suffix(              \
        byte *out, const byte *line, int32_t count, int32_t stride, int32_t taps)                 \
    {                                                                                             \
        int32_t k = 0;                                                                            \
                                                                                                  \
        for (; k + 4 <= count; k += 4) {                                                          \
            uint32_t peak = raot_peak_four_##suffix(line + k * stride, taps, 1);                  \
                                                                                                  \
            if (stride == 2) { /* every second byte of eight */                                   \
                const uint32_t next = raot_peak_four_##suffix(line + k * 2 + 4, taps, 1);         \
                const uint32_t low = peak & 0xFF00FFu;                                            \
                const uint32_t high = next & 0xFF00FFu;                                           \
                                                                                                  \
                peak = ((low | low >> 8) & 0xFFFFu) | (high | high >> 8) << 16;                   \
            }                                                                                     \
            RAOT_COPY(out + k, &peak, sizeof peak);                                               \
        }                                                                                         \
        return k;                                                                                 \
    }
RAOT_PEAK_FOUR(s8, int8_t, "ssub8")
RAOT_PEAK_FOUR(u8, uint8_t, "usub8")
/* What whole words give of the functions below: how many results are done. Loops over constants are
 * written out. */
#define RAOT_PEAK_WORDS(suffix, byte)                                                              \
    static inline int32_t raot_peak_words_down_##suffix(byte *to, const byte *from, int32_t count, \
                                                        int32_t count0, int32_t step0,             \
                                                        int32_t count1, int32_t step1)             \
    {                                                                                              \
        if (count1 == 1) {                                                                         \
            return count0 == 3 ? raot_peak_windows_of_##suffix(to, from, count, 3, step0, 1, 0)    \
                   : count0 == 2                                                                   \
                       ? raot_peak_windows_of_##suffix(to, from, count, 2, step0, 1, 0)            \
                       : raot_peak_windows_of_##suffix(to, from, count, count0, step0, 1, 0);      \
        }                                                                                          \
        return count1 == 3                                                                         \
                   ? raot_peak_windows_of_##suffix(to, from, count, count0, step0, 3, step1)       \
               : count1 == 2                                                                       \
                   ? raot_peak_windows_of_##suffix(to, from, count, count0, step0, 2, step1)       \
                   : raot_peak_windows_of_##suffix(to, from, count, count0, step0, count1, step1); \
    }                                                                                              \
                                                                                                   \
    static inline int32_t raot_peak_words_along_##suffix(                                          \
        byte *out, const byte *line, int32_t count, int32_t step, int32_t stride, int32_t taps)    \
    {                                                                                              \
        int32_t done = 0;                                                                          \
                                                                                                   \
        if (step == 1 && stride == 1) {                                                            \
            done = taps == 3 ? raot_peak_taps_of_##suffix(out, line, count, 1, 3)                  \
                             : raot_peak_taps_of_##suffix(out, line, count, 1, taps);              \
        }                                                                                          \
        if (step == 1 && stride == 2) {                                                            \
            done = taps == 3 ? raot_peak_taps_of_##suffix(out, line, count, 2, 3)                  \
                             : raot_peak_taps_of_##suffix(out, line, count, 2, taps);              \
        }                                                                                          \
        return done;                                                                               \
    }
#else
#define RAOT_PEAK_WORDS(suffix, byte)                                                       \
    static inline int32_t raot_peak_words_down_##suffix(                                    \
        const byte *to, const byte *from, int32_t count, int32_t count0, int32_t step0,     \
        int32_t count1, int32_t step1)                                                      \
    {                                                                                       \
        (void)to;                                                                           \
        (void)from;                                                                         \
        (void)count;                                                                        \
        (void)count0;                                                                       \
        (void)step0;                                                                        \
        (void)count1;                                                                       \
        (void)step1;                                                                        \
        return 0;                                                                           \
    }                                                                                       \
                                                                                            \
    static inline int32_t raot_peak_words_along_##suffix(const byte *out, const byte *line, \
                                                         int32_t count, int32_t step,       \
                                                         int32_t stride, int32_t taps)      \
    {                                                                                       \
        (void)out;                                                                          \
        (void)line;                                                                         \
        (void)count;                                                                        \
        (void)step;                                                                         \
        (void)stride;                                                                       \
        (void)taps;                                                                         \
        return 0;                                                                           \
    }
#endif
RAOT_PEAK_WORDS(s8, int8_t)
RAOT_PEAK_WORDS(u8, uint8_t)
#undef RAOT_PEAK_WORDS

#define RAOT_PEAKS_OF(suffix, byte, LEAST)                                                        \
    static inline byte raot_greater_##suffix(byte a, byte b)                                      \
    {                                                                                             \
        return a > b ? a : b;                                                                     \
    }                                                                                             \
                                                                                                  \
    /* to[c] = the greatest of from[c + i * step0 + j * step1] */                                 \
    static inline void raot_peak_down_##suffix(byte *to, const byte *from, int32_t count,         \
                                               int32_t count0, int32_t step0, int32_t count1,     \
                                               int32_t step1)                                     \
    {                                                                                             \
        int32_t c = raot_peak_words_down_##suffix(to, from, count, count0, step0, count1, step1); \
                                                                                                  \
        /*@ loop unroll 4096; */                                                                  \
        for (; c < count; c++) {                                                                  \
            byte peak = LEAST;                                                                    \
            /*@ loop unroll 4096; */                                                              \
            for (int32_t i = 0; i < count0; i++) {                                                \
                /*@ loop unroll 4096; */                                                          \
                for (int32_t j = 0; j < count1; j++) {                                            \
                    peak = raot_greater_##suffix(peak, from[c + i * step0 + j * step1]);          \
                }                                                                                 \
            }                                                                                     \
            to[c] = peak;                                                                         \
        }                                                                                         \
    }                                                                                             \
                                                                                                  \
    /* out[k * step] = the greatest of line[k * stride] to line[k * stride + taps - 1] */         \
    static inline void raot_peak_along_##suffix(byte *out, const byte *line, int32_t count,       \
                                                int32_t step, int32_t stride, int32_t taps)       \
    {                                                                                             \
        int32_t k = raot_peak_words_along_##suffix(out, line, count, step, stride, taps);         \
                                                                                                  \
        /*@ loop unroll 4096; */                                                                  \
        for (; k < count; k++) {                                                                  \
            byte peak = line[k * stride];                                                         \
            /*@ loop unroll 4096; */                                                              \
            for (int32_t t = 1; t < taps; t++) {                                                  \
                peak = raot_greater_##suffix(peak, line[k * stride + t]);                         \
            }                                                                                     \
            out[k * step] = peak;                                                                 \
        }                                                                                         \
    }
RAOT_PEAKS_OF(s8, int8_t, INT8_MIN)
RAOT_PEAKS_OF(u8, uint8_t, 0)
#endif

#define RAOT_BYTE_PEAKS(suffix, byte, LEAST)                                                    \
    __attribute__((noinline, unused)) static void raot_peak_channels_##suffix(                  \
        byte *out, const byte *image, const struct raot_peak_channels *sizes)                   \
    {                                                                                           \
        if (sizes->count0 > 0 && sizes->count1 > 0) {                                           \
            raot_peak_down_##suffix(out, image, sizes->channels, sizes->count0, sizes->step0,   \
                                    sizes->count1, sizes->step1);                               \
            return;                                                                             \
        }                                                                                       \
        /*@ loop unroll 4096; */                                                                \
        for (int32_t c = 0; c < sizes->channels; c++) {                                         \
            out[c] = LEAST;                                                                     \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    __attribute__((noinline, unused)) static void raot_peak_rows_##suffix(                      \
        byte *out, const byte *image, const struct raot_peak_rows *sizes)                       \
    {                                                                                           \
        const int32_t stride = sizes->stride;                                                   \
        int32_t j = 0;                                                                          \
        byte line[RAOT_PEAK_LINE + 4]; /* and one that is read behind every second byte */      \
                                                                                                \
        /*@ loop unroll 4096; */                                                                \
        while (j < sizes->count) {                                                              \
            const int32_t left = sizes->count - j;                                              \
            const int32_t wide = (left - 1) * stride + sizes->taps;                             \
            const int32_t some =                                                                \
                wide <= RAOT_PEAK_LINE ? left : (RAOT_PEAK_LINE - sizes->taps) / stride + 1;    \
            const int32_t span = (some - 1) * stride + sizes->taps;                             \
            const int32_t x = j * stride + sizes->first;                                        \
            const int32_t low = raot_clamp_i32(-x, 0, span);                                    \
            const int32_t high =                                                                \
                sizes->rows > 0 ? raot_clamp_i32(sizes->width - x, low, span) : low;            \
                                                                                                \
            /*@ loop unroll 4096; */                                                            \
            for (int32_t c = 0; c < low; c++) {                                                 \
                line[c] = LEAST;                                                                \
            }                                                                                   \
            /*@ loop unroll 4096; */                                                            \
            for (int32_t c = high; c <= span; c++) {                                            \
                line[c] = LEAST;                                                                \
            }                                                                                   \
            if (high > low) {                                                                   \
                raot_peak_down_##suffix(line + low, image + (x + low), high - low, sizes->rows, \
                                        sizes->row_step, 1, 0);                                 \
            }                                                                                   \
            raot_peak_along_##suffix(out, line, some, sizes->step, stride, sizes->taps);        \
            j += some;                                                                          \
            out += j < sizes->count ? some * sizes->step : 0;                                   \
        }                                                                                       \
    }
RAOT_BYTE_PEAKS(s8, int8_t, INT8_MIN)
RAOT_BYTE_PEAKS(u8, uint8_t, 0)

#endif
